"""One simulated video: its timeline is drawn immediately, its features, vectors, words and Record
when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lab.simulate.encoders import Encoder
from lab.simulate.narration import Lines, Style, narrate, recipe_lines, recognise, write_steps
from lab.simulate.scene import NO_INDEX, Timeline, make_scene, make_timeline
from lab.simulate.settings import (
    EMBEDDER_NAME,
    RECOGNISER_SETTINGS,
    RecogniserSettings,
    SimulationSettings,
)
from lab.simulate.tasks import WORLD_NUMBER, Domain, Ints, Purpose, Task, random_stream
from lab.simulate.texts import CHAT_TEXTS, captions, texts, title
from stepline.errors import SettingsError
from stepline.records import (
    FeatureSequence,
    Matrix,
    Record,
    Sentence,
    Span,
    Step,
    Transcript,
    Video,
)

ROWS_PER_SECOND = 1.0  # feature rows per second


@dataclass(frozen=True)
class World:
    """What all videos of a simulation share. wordings: of each task's lines, fixed for the
    world."""

    seed: int
    settings: SimulationSettings
    domain: Domain
    encoders: Mapping[str, Encoder]
    wordings: tuple[Ints, ...]

    def encoder(self, backbone: str | None) -> Encoder:
        """Return the encoder of a backbone, the settings' own where none is named. Raises
        SettingsError."""
        name = self.settings.backbone if backbone is None else backbone
        if name not in self.encoders:
            names = ", ".join(self.settings.backbones)
            raise SettingsError(f"backbone {name!r} is not one of this world; take one of {names}")
        return self.encoders[name]


@dataclass(frozen=True)
class SimulatedVideo:
    """A video of a world, with the planted truth about it."""

    world: World
    index: int
    id: str
    subset: str
    task: Task
    timeline: Timeline

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.timeline.duration

    @cached_property
    def spoken(self) -> Lines:
        """What is really said."""
        settings = self.world.settings.narration
        rng = self._random_stream(Purpose.NARRATION)
        return narrate(self.task, self.timeline, settings, len(CHAT_TEXTS), rng)

    @cached_property
    def narration(self) -> Lines:
        """What the settings' recogniser makes of it."""
        return self.recognised(self.world.settings.recogniser)

    def recognised(self, recogniser: str) -> Lines:
        """Return the narration as that recogniser gives it."""
        settings = RECOGNISER_SETTINGS[recogniser]
        rng = self._random_stream(Purpose.RECOGNISER, recogniser)
        return recognise(self.spoken, self.duration, settings, rng)

    @cached_property
    def steps(self) -> Lines:
        """The steps that the stand-in of a language model wrote from the narration."""
        rng = self._random_stream(Purpose.WRITER)
        return write_steps(self.narration, self.world.settings.writer, rng)

    @cached_property
    def recipe(self) -> Lines:
        """The lines of the task's article, in the article's order."""
        return recipe_lines(self.task, self.timeline, self.world.wordings[self.task.number])

    def lines(self, style: Style) -> Lines:
        """Return the texts of a style."""
        if style == "narration":
            return self.narration
        if style == "step":
            return self.steps
        return self.recipe

    def shown(self, style: Style) -> npt.NDArray[np.bool_]:
        """Return (K, T), True where a text's own window (any of a recipe line's) covers the middle
        of the second."""
        seconds = (np.arange(int(np.ceil(self.duration))) + 0.5) / ROWS_PER_SECOND
        windows = self.timeline.windows
        covers = (windows[:, :1] <= seconds) & (seconds < windows[:, 1:])  # (P, T)
        lines = self.lines(style)
        owns = _one_hot(lines.window, len(windows))  # (K, P)
        if style == "recipe":
            owns = self.timeline.steps == lines.step[:, None]
        return (owns.astype(np.int64) @ covers.astype(np.int64)) > 0

    def features(self, backbone: str | None = None) -> FeatureSequence:
        """Return the video's features, unit rows at 1 Hz. T is the duration, rounded up."""
        encoder = self.world.encoder(backbone)
        settings = self.world.settings
        scene_rng = self._random_stream(Purpose.SCENE)
        scene = make_scene(self.world.domain, self.task, self.timeline, settings.scene, scene_rng)
        rng = self._random_stream(Purpose.FEATURES, encoder.name)
        values = encoder.encode_pictures(scene, settings.difficulty, rng)
        return FeatureSequence(values, ROWS_PER_SECOND, f"world-{encoder.name}")

    def vectors(self, style: Style, backbone: str | None = None) -> Matrix:
        """Return the backbone's text vectors (K, C), unit rows, aligned with `lines(style)`."""
        return self._vectors(style, self.world.encoder(backbone))

    def embeddings(self, style: Style) -> Matrix:
        """Return (K, D) unit rows of a text encoder without pictures, in which all styles are
        comparable."""
        return self._vectors(style, self.world.encoders[EMBEDDER_NAME])

    @cached_property
    def record(self) -> Record:
        """Everything as a Record. `reference` is the planted truth about the recipe's lines."""
        return make_record(self)

    def _vectors(self, style: Style, encoder: Encoder) -> Matrix:
        noise = 0.0
        if style == "narration":
            noise = RECOGNISER_SETTINGS[self.world.settings.recogniser].noise
        if style == "recipe":  # a line of an article has one vector, whatever the video
            names = (encoder.name, str(self.task.number))
            rng = random_stream(self.world.seed, WORLD_NUMBER, Purpose.ARTICLES, *names)
        else:
            rng = self._random_stream(Purpose.VECTORS, encoder.name, style)
        return encoder.encode_texts(self.lines(style), self.world.domain, rng, noise)

    def _random_stream(self, purpose: Purpose, *names: str) -> np.random.Generator:
        return random_stream(self.world.seed, self.index + 1, purpose, *names)


def make_video(world: World, index: int) -> SimulatedVideo:
    """Return the video with this number. Any number may be asked for, in any order."""
    settings = world.settings
    held_out_videos = round(settings.videos * settings.held_out)
    is_training = index < settings.videos - held_out_videos
    rng = random_stream(world.seed, index + 1, Purpose.TIMELINE)
    training_tasks = settings.tasks.tasks - settings.tasks.unseen
    task_count = training_tasks if is_training else settings.tasks.tasks
    task = world.domain.tasks[int(rng.integers(task_count))]
    if is_training:
        subset = "train"
    elif task.number < training_tasks:
        subset = "val_seen"
    else:
        subset = "val_unseen"
    timeline = make_timeline(len(task), settings.timeline, rng)
    return SimulatedVideo(world, index, video_id(world.seed, index), subset, task, timeline)


def video_id(seed: int, index: int) -> str:
    """Return an id of 11 characters, like YouTube's (longer for seeds past 9999 and numbers past
    999999)."""
    return f"w{seed:04d}{index:06d}"


def _one_hot(window: Ints, count: int) -> npt.NDArray[np.bool_]:
    is_window = window[:, None] == np.arange(count)
    has_window = window[:, None] != NO_INDEX
    return np.asarray(is_window & has_window)


def make_record(video: SimulatedVideo, about: Style = "recipe") -> Record:
    """Return the record of a video. Its reference is the truth about the texts of one style."""
    settings = video.world.settings
    return Record(
        id=video.id,
        video=Video(
            id=video.id,
            duration=video.duration,
            task=title(video.task.number),
            title=title(video.task.number),
        ),
        transcript=make_transcript(video.narration, settings.recogniser),
        steps=written_steps(video),
        recipe=texts(video.recipe),
        captions=person_captions(video),
        reference=shown_texts(video, about),
        settings={
            "world": {"seed": video.world.seed, "video": video.index, "subset": video.subset}
        },
    )


def make_transcript(lines: Lines, recogniser: str) -> Transcript:
    """Return the narration as that recogniser writes it."""
    sentences = []
    for text, times in zip(texts(lines, RECOGNISER_SETTINGS[recogniser]), lines.times, strict=True):
        sentences.append(Sentence(text=text, span=_span(times)))
    return Transcript(language="en", sentences=tuple(sentences), recogniser=f"world-{recogniser}")


def written_steps(video: SimulatedVideo) -> tuple[Step, ...]:
    """Return the written steps: not placed, each with its sentences."""
    lines = video.steps
    steps = []
    for row, text in enumerate(texts(lines)):
        said_span = _span(lines.times[row])
        step = Step(id=str(row + 1), text=text, said=said_span, sources=lines.sources[row])
        steps.append(step)
    return tuple(steps)


def person_captions(video: SimulatedVideo) -> tuple[Step, ...]:
    """Return a person's captions of all windows, in the order of time."""
    line_of_step = {int(step): row for row, step in enumerate(video.recipe.step)}
    sentences = captions(video.recipe)
    steps = []
    for number, step in enumerate(video.timeline.steps):
        text = sentences[line_of_step[int(step)]]
        span = _span(video.timeline.windows[number])
        steps.append(Step(id=str(number), text=text, spans=(span,)))
    return tuple(steps)


def shown_texts(video: SimulatedVideo, about: Style) -> tuple[Step, ...]:
    """Return every text of a style with where it is shown: a recipe line's every window, else the
    one it is about.

    ids: a recipe line's number among all tasks' lines (HT-Step), a sentence's row (HTM-Align), a
    step's own id.
    """
    lines = video.lines(about)
    first_id = first_text_id(video, about)
    recogniser = RECOGNISER_SETTINGS[video.world.settings.recogniser]
    steps = []
    for row, text in enumerate(texts(lines, recogniser)):
        is_said = not np.isnan(lines.times[row, 0])
        said_span = _span(lines.times[row]) if is_said else None
        spans = _shown_spans(video, lines, row)
        step = Step(id=str(row + first_id), text=text, spans=spans, said=said_span)
        steps.append(step)
    return tuple(steps)


def first_text_id(video: SimulatedVideo, about: Style) -> int:
    """Return the id of a style's first text."""
    if about == "recipe":
        return video.world.domain.first_line(video.task.number)
    return 1 if about == "step" else 0


def spoken_words(
    text: str, span: Span, settings: RecogniserSettings
) -> list[dict[str, str | float]]:
    """Return a sentence's words as WhisperX has them. Times in proportion to the words' letters."""
    words = text.split()
    lengths = [len(word) + 1.0 for word in words]
    edges = np.concatenate(([0.0], np.cumsum(lengths)))
    times = np.round(span.start + edges / edges[-1] * span.duration, 3)
    score = round(1.0 - settings.word_error, 3)
    entries: list[dict[str, str | float]] = []
    for word, start, end in zip(words, times[:-1], times[1:], strict=True):
        times_of_word = {"start": float(start), "end": float(end)}
        entries.append({"word": word, **times_of_word, "score": score})
    return entries


def _shown_spans(video: SimulatedVideo, lines: Lines, row: int) -> tuple[Span, ...]:
    if lines.style == "recipe":
        return tuple(_span(times) for times in video.timeline.of(int(lines.step[row])))
    window = int(lines.window[row])
    if window == NO_INDEX:
        return ()
    return (_span(video.timeline.windows[window]),)


def _span(times: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Span:
    return Span(float(times[0]), float(times[1]))
