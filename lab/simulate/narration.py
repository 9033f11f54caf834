"""Texts before they are words: what is said in a video, what a recogniser and a step writer make of
it, articles.

`narrate` mentions steps near and far from where they are shown, among talk that shows nothing.
`recognise` mishears words and times. `write_steps` does what a language model does with a
narration. `recipe_lines` are the task's article.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lab.simulate.scene import NO_INDEX, Timeline, Times
from lab.simulate.settings import NarrationSettings, RecogniserSettings, WriterSettings
from lab.simulate.tasks import Ints, Task

WORDING_COUNT = 1 << 30  # numbers that a line's wording is drawn from
MIN_SENTENCE_SECONDS = 0.5  # s, of a sentence whose times are off

Style: TypeAlias = Literal["narration", "step", "recipe"]
TEXT_STYLES: Final[tuple[Style, ...]] = ("narration", "step", "recipe")

SAID_WORD: Final = 0
DROPPED_WORD: Final = 1  # a pronoun is in its place
MISHEARD_WORD: Final = 2  # the recogniser wrote another word

WordStatus: TypeAlias = npt.NDArray[np.int8]  # SAID_WORD, DROPPED_WORD or MISHEARD_WORD


@dataclass(frozen=True)
class Lines:
    """K texts of one style. Every array has K rows.

    action, object, chat: what a line means, numbers of the world's vocabulary or NO_INDEX.
    step: the task's step that it describes, NO_INDEX for chat.
    window: the window it is about, NO_INDEX where the video does not show it.
    times: (K, 2) when it is said, NaN for lines that no one says.
    said_action, said_object: SAID_WORD, DROPPED_WORD or MISHEARD_WORD. wording: picks the words.
    sources: for each line the narrations that it was written from.
    """

    style: Style
    action: Ints
    object: Ints
    chat: Ints
    step: Ints
    window: Ints
    times: Times
    said_action: WordStatus
    said_object: WordStatus
    wording: Ints
    sources: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.action)

    @property
    def shown(self) -> npt.NDArray[np.bool_]:
        """Tell for each line whether the video shows it."""
        return np.asarray(self.window != NO_INDEX)


def narrate(
    task: Task,
    timeline: Timeline,
    settings: NarrationSettings,
    chats: int,
    rng: np.random.Generator,
) -> Lines:
    """Return the narration of a video, in the order of speech. `chats` is how many chat sentences
    there are."""
    times = _sentence_times(timeline.duration, settings, rng)
    window = _mentioned_windows(timeline, times[:, 0], settings, rng)
    step, object, chat = _sentence_meanings(task, timeline, window, settings, chats, rng)
    has_step = step != NO_INDEX
    action_draw, object_draw = rng.random((2, len(times)))
    is_action_dropped = has_step & (action_draw < settings.action_dropped)
    is_object_dropped = has_step & (object_draw < settings.object_dropped)
    return Lines(
        style="narration",
        action=np.where(has_step, task.actions[step], NO_INDEX),
        object=object,
        chat=chat,
        step=step,
        window=window,
        times=times,
        said_action=_dropped_or_said(is_action_dropped),
        said_object=_dropped_or_said(is_object_dropped),
        wording=rng.integers(0, WORDING_COUNT, len(times)),
    )


def _dropped_or_said(is_dropped: npt.NDArray[np.bool_]) -> WordStatus:
    return np.asarray(np.where(is_dropped, DROPPED_WORD, SAID_WORD), dtype=np.int8)


def _sentence_times(
    duration: float, settings: NarrationSettings, rng: np.random.Generator
) -> Times:
    """Return the times (S, 2) of sentences that fill the video, at least one."""
    count = int(duration / settings.sentence_least) + 2
    lengths = rng.uniform(settings.sentence_least, settings.sentence_most, count)
    pauses = rng.exponential(settings.pause, count)
    ends = np.cumsum(lengths + pauses)
    sentences = max(1, int(np.searchsorted(ends, duration, side="right")))
    starts = ends[:sentences] - lengths[:sentences]
    times = np.stack((starts, ends[:sentences]), axis=1)
    rounded: Times = np.round(np.minimum(times, duration), 2).astype(np.float64)
    return rounded


def _mentioned_windows(
    timeline: Timeline, starts: Times, settings: NarrationSettings, rng: np.random.Generator
) -> Ints:
    """Return for each sentence the window that it is about: each mention takes the free sentence
    nearest its time."""
    # how often each window is mentioned
    mentions = 1 + rng.poisson(settings.more_mentions, len(timeline.windows))
    if settings.again_told < 1:
        is_untold = rng.random(len(mentions)) >= settings.again_told
        mentions[timeline.again & is_untold] = 0
    owner = np.repeat(np.arange(len(timeline.windows)), mentions)

    # when: at an offset from the window, or at any time of the video
    lag = settings.offset
    if settings.lag_spread:
        lag = rng.normal(lag, settings.lag_spread)
    tail = settings.offset_scale * rng.standard_t(settings.offset_freedom, len(owner))
    offset = np.clip(lag + tail, -settings.offset_most, settings.offset_most)
    near = _reflected(timeline.windows[owner, 0] - offset, timeline.duration)
    anywhere = rng.uniform(0.0, timeline.duration, len(owner))
    is_anywhere = rng.random(len(owner)) < settings.anywhere
    mention_times = np.where(is_anywhere, anywhere, near)

    # which sentence says it
    window = np.full(len(starts), NO_INDEX)
    for mention in rng.permutation(len(owner))[: len(starts)]:
        distance = np.abs(starts - mention_times[mention])
        free_distance = np.where(window == NO_INDEX, distance, np.inf)
        window[int(free_distance.argmin())] = owner[mention]
    return window


def _reflected(times: Times, duration: float) -> Times:
    """Reflect times that are outside the video at its ends."""
    return np.asarray(duration - np.abs(duration - np.mod(times, 2 * duration)))


def _sentence_meanings(
    task: Task,
    timeline: Timeline,
    window: Ints,
    settings: NarrationSettings,
    chats: int,
    rng: np.random.Generator,
) -> tuple[Ints, Ints, Ints]:
    """Return each sentence's step, object and chat."""
    count = len(window)
    is_free = window == NO_INDEX
    kind = rng.random(count)

    # the step: one that is shown, or one that the video does not show
    absent_steps = np.setdiff1d(np.arange(len(task)), timeline.steps)
    is_absent = is_free & (kind < settings.absent) & (len(absent_steps) > 0)
    step = np.where(is_free, NO_INDEX, timeline.steps[window])
    if len(absent_steps):
        step = np.where(is_absent, rng.choice(absent_steps, count), step)

    # the object: the step's own, or one that the sentence only talks about
    object_chat_limit = settings.absent + settings.object_chat
    is_object_chat = is_free & ~is_absent & (kind < object_chat_limit)
    object = np.where(step != NO_INDEX, task.objects[step], NO_INDEX)
    object = np.where(is_object_chat, rng.choice(task.objects, count), object)

    is_chat = is_free & ~is_absent & ~is_object_chat
    chat = np.where(is_chat, rng.integers(0, chats, count), NO_INDEX)
    return step, object, chat


def recognise(
    spoken: Lines, duration: float, settings: RecogniserSettings, rng: np.random.Generator
) -> Lines:
    """Return the narration as a recogniser gives it: as many lines, sorted by start, each one's
    truth kept."""
    error_draws = rng.random((2, len(spoken)))
    times = spoken.times + settings.jitter * rng.standard_normal(spoken.times.shape)
    if not (settings.word_error or settings.jitter):
        return spoken
    action_error, object_error = error_draws < settings.word_error
    recognised = replace(
        spoken,
        times=_valid_times(times, duration),
        said_action=_misheard_words(spoken.said_action, spoken.action, action_error),
        said_object=_misheard_words(spoken.said_object, spoken.object, object_error),
    )
    return select_lines(recognised, np.argsort(recognised.times[:, 0], kind="stable"))


def select_lines(lines: Lines, order: Ints) -> Lines:
    """Return the lines in another order, or some of them."""
    sources: tuple[tuple[int, ...], ...] = ()
    if lines.sources:
        sources = tuple(lines.sources[row] for row in order)
    return Lines(
        style=lines.style,
        action=lines.action[order],
        object=lines.object[order],
        chat=lines.chat[order],
        step=lines.step[order],
        window=lines.window[order],
        times=lines.times[order],
        said_action=lines.said_action[order],
        said_object=lines.said_object[order],
        wording=lines.wording[order],
        sources=sources,
    )


def _misheard_words(
    status: WordStatus, word: Ints, error: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> WordStatus:
    is_misheard = error & (status == SAID_WORD) & (word != NO_INDEX)
    marks: WordStatus = np.where(is_misheard, MISHEARD_WORD, status).astype(np.int8)
    return marks


def _valid_times(times: Times, duration: float) -> Times:
    """Return times inside the video, each at least `MIN_SENTENCE_SECONDS` long."""
    start = np.clip(times[:, 0], 0.0, duration - MIN_SENTENCE_SECONDS)
    least_end = start + MIN_SENTENCE_SECONDS
    end = np.clip(times[:, 1], least_end, duration)
    return np.round(np.stack((start, np.maximum(end, least_end)), axis=1), 2)


def write_steps(narration: Lines, settings: WriterSettings, rng: np.random.Generator) -> Lines:
    """Return the written steps: chunk by chunk, each thing to do once per chunk, with the sentences
    it rests on.

    `times` of a step is the union of its sentences. Source: NaSVA, section 3.1. The rates are
    docs/world.md's.
    """
    # the sentences that become steps
    draw = rng.random(len(narration))
    probability = np.select(
        (narration.step != NO_INDEX, narration.object != NO_INDEX),
        (settings.step_kept, settings.object_chat_kept),
        settings.chat_kept,
    )

    # those of one chunk with one meaning are one step
    groups: dict[tuple[int, ...], list[int]] = {}
    for number in np.flatnonzero(draw < probability):
        row = int(number)
        step = int(narration.step[row])
        object = int(narration.object[row])
        chat = int(narration.chat[row])
        key = (row // settings.chunk, step, object, chat)
        groups.setdefault(key, []).append(row)
    sources = tuple(tuple(rows) for rows in groups.values())
    first = np.array([rows[0] for rows in sources], dtype=np.int64)
    last = np.array([rows[-1] for rows in sources], dtype=np.int64)

    starts = narration.times[first, 0]
    ends = np.maximum(narration.times[first, 1], narration.times[last, 1])
    return Lines(
        style="step",
        action=narration.action[first],
        object=narration.object[first],
        chat=narration.chat[first],
        step=narration.step[first],
        window=narration.window[first],
        times=np.stack((starts, ends), axis=1),
        said_action=_restored_words(narration.said_action[first], settings, rng),
        said_object=_restored_words(narration.said_object[first], settings, rng),
        wording=rng.integers(0, WORDING_COUNT, len(first)),
        sources=sources,
    )


def _restored_words(
    status: WordStatus, settings: WriterSettings, rng: np.random.Generator
) -> WordStatus:
    draw = rng.random(len(status))
    is_restored = (status == DROPPED_WORD) & (draw < settings.restored)
    is_corrected = (status == MISHEARD_WORD) & (draw < settings.corrected)
    marks: WordStatus = np.where(is_restored | is_corrected, SAID_WORD, status).astype(np.int8)
    return marks


def article_lines(task: Task, wording: Ints) -> Lines:
    """Return the lines of the task's article in its own order, in no video.

    wording: of every step of the task, so that a line reads the same in every video.
    """
    step = task.article
    count = len(task)
    return Lines(
        style="recipe",
        action=task.actions[step],
        object=task.objects[step],
        chat=np.full(count, NO_INDEX),
        step=step,
        window=np.full(count, NO_INDEX),
        times=np.full((count, 2), np.nan),
        said_action=np.full(count, SAID_WORD, np.int8),
        said_object=np.full(count, SAID_WORD, np.int8),
        wording=wording[step],
    )


def recipe_lines(task: Task, timeline: Timeline, wording: Ints) -> Lines:
    """Return the article's lines for a video. `window` is the first of a step's windows."""
    first = np.full(len(task), NO_INDEX)
    for window in range(len(timeline.steps) - 1, -1, -1):
        first[timeline.steps[window]] = window
    return replace(article_lines(task, wording), window=first[task.article])
