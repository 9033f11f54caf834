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

from research.simulate.scene import NONE, Timeline, Times
from research.simulate.settings import NarrationSettings, RecogniserSettings, WriterSettings
from research.simulate.tasks import Ints, Task

WORDINGS = 1 << 30  # numbers that a line's wording is drawn from
SHORTEST = 0.5  # s, of a sentence whose times are off

Style: TypeAlias = Literal["narration", "step", "recipe"]
STYLES: Final[tuple[Style, ...]] = ("narration", "step", "recipe")

SAID: Final = 0
DROPPED: Final = 1  # a pronoun is in its place
MISHEARD: Final = 2  # the recogniser wrote another word

WordStatus: TypeAlias = npt.NDArray[np.int8]  # SAID, DROPPED or MISHEARD


@dataclass(frozen=True)
class Lines:
    """K texts of one style. Every array has K rows.

    action, object, chat: what a line means, numbers of the world's vocabulary or NONE.
    step: the task's step that it describes, NONE for chat.
    window: the window it is about, NONE where the video does not show it.
    times: (K, 2) when it is said, NaN for lines that no one says.
    said_action, said_object: SAID, DROPPED or MISHEARD. wording: picks the words.
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
        return np.asarray(self.window != NONE)


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
    tells = step != NONE
    drop = rng.random((2, len(times)))
    return Lines(
        style="narration",
        action=np.where(tells, task.actions[step], NONE),
        object=object,
        chat=chat,
        step=step,
        window=window,
        times=times,
        said_action=_dropped_or_said(tells & (drop[0] < settings.action_dropped)),
        said_object=_dropped_or_said(tells & (drop[1] < settings.object_dropped)),
        wording=rng.integers(0, WORDINGS, len(times)),
    )


def _dropped_or_said(dropped: npt.NDArray[np.bool_]) -> WordStatus:
    return np.asarray(np.where(dropped, DROPPED, SAID), dtype=np.int8)


def _sentence_times(
    duration: float, settings: NarrationSettings, rng: np.random.Generator
) -> Times:
    """Return the times (S, 2) of sentences that fill the video, at least one."""
    count = int(duration / settings.sentence_least) + 2
    lengths = rng.uniform(settings.sentence_least, settings.sentence_most, count)
    ends = np.cumsum(lengths + rng.exponential(settings.pause, count))
    kept = max(1, int(np.searchsorted(ends, duration, side="right")))
    times = np.stack((ends[:kept] - lengths[:kept], ends[:kept]), axis=1)
    rounded: Times = np.round(np.minimum(times, duration), 2).astype(np.float64)
    return rounded


def _mentioned_windows(
    timeline: Timeline, starts: Times, settings: NarrationSettings, rng: np.random.Generator
) -> Ints:
    """Return for each sentence the window that it is about: each mention takes the free sentence
    nearest its time."""
    mentions = 1 + rng.poisson(settings.more_mentions, len(timeline.windows))
    if settings.again_told < 1:
        mentions[timeline.again & (rng.random(len(mentions)) >= settings.again_told)] = 0
    owner = np.repeat(np.arange(len(timeline.windows)), mentions)
    lag = settings.offset
    if settings.lag_spread:
        lag = rng.normal(lag, settings.lag_spread)
    tail = settings.offset_scale * rng.standard_t(settings.offset_freedom, len(owner))
    offset = np.clip(lag + tail, -settings.offset_most, settings.offset_most)
    near = _reflected(timeline.windows[owner, 0] - offset, timeline.duration)
    anywhere = rng.uniform(0.0, timeline.duration, len(owner))
    wanted = np.where(rng.random(len(owner)) < settings.anywhere, anywhere, near)
    window = np.full(len(starts), NONE)
    for mention in rng.permutation(len(owner))[: len(starts)]:
        distance = np.where(window == NONE, np.abs(starts - wanted[mention]), np.inf)
        window[int(distance.argmin())] = owner[mention]
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
    free, kind = window == NONE, rng.random(count)
    missing = np.setdiff1d(np.arange(len(task)), timeline.steps)
    absent = free & (kind < settings.absent) & (len(missing) > 0)
    step = np.where(free, NONE, timeline.steps[window])
    if len(missing):
        step = np.where(absent, rng.choice(missing, count), step)
    about = free & ~absent & (kind < settings.absent + settings.object_chat)
    object = np.where(step != NONE, task.objects[step], NONE)
    object = np.where(about, rng.choice(task.objects, count), object)
    chat = np.where(free & ~absent & ~about, rng.integers(0, chats, count), NONE)
    return step, object, chat


def recognise(
    spoken: Lines, duration: float, settings: RecogniserSettings, rng: np.random.Generator
) -> Lines:
    """Return the narration as a recogniser gives it: as many lines, sorted by start, each one's
    truth kept."""
    error = rng.random((2, len(spoken)))
    times = spoken.times + settings.jitter * rng.standard_normal(spoken.times.shape)
    if not (settings.word_error or settings.jitter):
        return spoken
    heard = replace(
        spoken,
        times=_valid_times(times, duration),
        said_action=_misheard_words(
            spoken.said_action, spoken.action, error[0] < settings.word_error
        ),
        said_object=_misheard_words(
            spoken.said_object, spoken.object, error[1] < settings.word_error
        ),
    )
    return select_lines(heard, np.argsort(heard.times[:, 0], kind="stable"))


def select_lines(lines: Lines, order: Ints) -> Lines:
    """Return the lines in another order, or some of them."""
    arrays = (
        "action",
        "object",
        "chat",
        "step",
        "window",
        "times",
        "said_action",
        "said_object",
        "wording",
    )
    sources = tuple(lines.sources[row] for row in order) if lines.sources else ()
    return replace(lines, **{name: getattr(lines, name)[order] for name in arrays}, sources=sources)


def _misheard_words(
    said: WordStatus, word: Ints, error: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> WordStatus:
    marks: WordStatus = np.where(error & (said == SAID) & (word != NONE), MISHEARD, said).astype(
        np.int8
    )
    return marks


def _valid_times(times: Times, duration: float) -> Times:
    """Return times inside the video, each at least `SHORTEST` long."""
    start = np.clip(times[:, 0], 0.0, duration - SHORTEST)
    end = np.clip(times[:, 1], start + SHORTEST, duration)
    return np.round(np.stack((start, np.maximum(end, start + SHORTEST)), axis=1), 2)


def write_steps(heard: Lines, settings: WriterSettings, rng: np.random.Generator) -> Lines:
    """Return the written steps: chunk by chunk, each thing to do once per chunk, with the sentences
    it rests on.

    `times` of a step is the union of its sentences. Source: NaSVA, section 3.1. The rates are
    docs/world.md's.
    """
    draw = rng.random(len(heard))
    probability = np.select(
        (heard.step != NONE, heard.object != NONE),
        (settings.step_kept, settings.object_chat_kept),
        settings.chat_kept,
    )
    groups: dict[tuple[int, ...], list[int]] = {}
    for row in np.flatnonzero(draw < probability):
        meaning = (int(heard.step[row]), int(heard.object[row]), int(heard.chat[row]))
        groups.setdefault((int(row) // settings.chunk, *meaning), []).append(int(row))
    sources = tuple(tuple(rows) for rows in groups.values())
    first = np.array([rows[0] for rows in sources], dtype=np.int64)
    last = np.array([rows[-1] for rows in sources], dtype=np.int64)
    return Lines(
        style="step",
        action=heard.action[first],
        object=heard.object[first],
        chat=heard.chat[first],
        step=heard.step[first],
        window=heard.window[first],
        times=np.stack(
            (heard.times[first, 0], np.maximum(heard.times[first, 1], heard.times[last, 1])), axis=1
        ),
        said_action=_restored_words(heard.said_action[first], settings, rng),
        said_object=_restored_words(heard.said_object[first], settings, rng),
        wording=rng.integers(0, WORDINGS, len(first)),
        sources=sources,
    )


def _restored_words(
    said: WordStatus, settings: WriterSettings, rng: np.random.Generator
) -> WordStatus:
    draw = rng.random(len(said))
    good = ((said == DROPPED) & (draw < settings.restored)) | (
        (said == MISHEARD) & (draw < settings.corrected)
    )
    marks: WordStatus = np.where(good, SAID, said).astype(np.int8)
    return marks


def article_lines(task: Task, wording: Ints) -> Lines:
    """Return the lines of the task's article in its own order, in no video.

    wording: of every step of the task, so that a line reads the same in every video.
    """
    step, count = task.article, len(task)
    return Lines(
        style="recipe",
        action=task.actions[step],
        object=task.objects[step],
        chat=np.full(count, NONE),
        step=step,
        window=np.full(count, NONE),
        times=np.full((count, 2), np.nan),
        said_action=np.full(count, SAID, np.int8),
        said_object=np.full(count, SAID, np.int8),
        wording=wording[step],
    )


def recipe_lines(task: Task, timeline: Timeline, wording: Ints) -> Lines:
    """Return the article's lines for a video. `window` is the first of a step's windows."""
    first = np.full(len(task), NONE)
    for window in range(len(timeline.steps) - 1, -1, -1):
        first[timeline.steps[window]] = window
    return replace(article_lines(task, wording), window=first[task.article])
