"""One simulated video: its plan is drawn at once, its features, vectors and words when they are asked for.

A simulated video as a Record, with the truth about any of its three kinds of text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from research.simulate import scene as streams
from research.simulate.encoders import Encoder
from research.simulate.narration import hear, narrate, recipe, write
from research.simulate.scene import NONE, Domain, Ints, Lines, Style, Task, Timeline, make_scene, make_timeline
from research.simulate.settings import EMBEDDER, RECOGNISERS, RecogniserSettings, SimulationSettings
from research.simulate.texts import CHATS, captions, texts, title
from stepline.errors import SettingsError
from stepline.records import FeatureSequence, Matrix, Record, Sentence, Span, Step, Transcript, Video


def record(sample: Sample, about: Style = "recipe") -> Record:
    """Return the record of a video; its reference is the truth about the texts of one style."""
    settings = sample.world.settings
    return Record(
        id=sample.id,
        video=Video(id=sample.id, duration=sample.duration, task=title(sample.task.number),
                    title=title(sample.task.number)),
        transcript=transcript(sample.narration, settings.recogniser),
        steps=steps(sample),
        recipe=texts(sample.recipe),
        captions=described(sample),
        reference=reference(sample, about),
        settings={"world": {"seed": sample.world.seed, "video": sample.index, "subset": sample.subset}},
    )  # fmt: skip


def transcript(lines: Lines, recogniser: str) -> Transcript:
    """Return the narration as that recogniser writes it."""
    said = zip(texts(lines, RECOGNISERS[recogniser]), lines.times, strict=True)
    sentences = tuple(Sentence(text=text, span=_span(times)) for text, times in said)
    return Transcript(language="en", sentences=sentences, recogniser=f"world-{recogniser}")


def steps(sample: Sample) -> tuple[Step, ...]:
    """Return the written steps: not placed, each with its sentences."""
    rows = zip(texts(sample.steps), sample.steps.times, sample.steps.sources, strict=True)
    return tuple(
        Step(id=str(number), text=text, said=_span(times), sources=sources)
        for number, (text, times, sources) in enumerate(rows, start=1)
    )


def described(sample: Sample) -> tuple[Step, ...]:
    """Return a person's captions of all windows, in the order of time."""
    lines, timeline = sample.recipe, sample.timeline
    row = {int(step): place for place, step in enumerate(lines.step)}
    said = captions(lines)
    return tuple(
        Step(id=str(number), text=said[row[int(step)]], spans=(_span(timeline.windows[number]),))
        for number, step in enumerate(timeline.steps)
    )


def reference(sample: Sample, about: Style) -> tuple[Step, ...]:
    """Return every text of a style with where it is shown: a recipe line's every window, else the one it tells of.

    ids: a recipe line's number among all tasks' lines (HT-Step), a sentence's row (HTM-Align), a step's own id.
    """
    lines = sample.lines(about)
    said = texts(lines, RECOGNISERS[sample.world.settings.recogniser] if about == "narration" else None)
    return tuple(
        Step(id=str(row + first_number(sample, about)), text=text, spans=_shown(sample, lines, row),
             said=None if np.isnan(lines.times[row, 0]) else _span(lines.times[row]))
        for row, text in enumerate(said)
    )  # fmt: skip


def first_number(sample: Sample, about: Style) -> int:
    """Return the id of a style's first text."""
    if about == "recipe":
        return sample.world.domain.first_line(sample.task.number)
    return 1 if about == "step" else 0


def spoken_words(text: str, span: Span, settings: RecogniserSettings) -> list[dict[str, str | float]]:
    """Return a sentence's words as WhisperX has them; times in proportion to the words' letters."""
    words = text.split()
    edges = np.concatenate(([0.0], np.cumsum([len(word) + 1.0 for word in words])))
    times = np.round(span.start + edges / edges[-1] * span.duration, 3)
    score = round(1.0 - settings.word_error, 3)
    return [
        {"word": word, "start": float(start), "end": float(end), "score": score}
        for word, start, end in zip(words, times[:-1], times[1:], strict=True)
    ]


def _shown(sample: Sample, lines: Lines, row: int) -> tuple[Span, ...]:
    if lines.style == "recipe":
        return tuple(_span(times) for times in sample.timeline.of(int(lines.step[row])))
    window = int(lines.window[row])
    return () if window == NONE else (_span(sample.timeline.windows[window]),)


def _span(times: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Span:
    return Span(float(times[0]), float(times[1]))


RATE = 1.0  # feature rows a second


@dataclass(frozen=True)
class World:
    """What all videos of a simulation share. wordings: of each task's lines, fixed for the world."""

    seed: int
    settings: SimulationSettings
    domain: Domain
    encoders: Mapping[str, Encoder]
    wordings: tuple[Ints, ...]

    def encoder(self, backbone: str | None) -> Encoder:
        """Return the encoder of a backbone, the settings' own where none is named. Raises SettingsError."""
        name = self.settings.backbone if backbone is None else backbone
        if name not in self.encoders:
            known = ", ".join(self.settings.backbones)
            raise SettingsError(f"backbone {name!r} is not one of this world; take one of {known}")
        return self.encoders[name]


@dataclass(frozen=True)
class Sample:
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
        settings, rng = self.world.settings.narration, self._random(streams.NARRATION)
        return narrate(self.task, self.timeline, settings, len(CHATS), rng)

    @cached_property
    def narration(self) -> Lines:
        """What the settings' recogniser makes of it."""
        return self.heard(self.world.settings.recogniser)

    def heard(self, recogniser: str) -> Lines:
        """Return the narration as that recogniser gives it."""
        return hear(self.spoken, self.duration, RECOGNISERS[recogniser], self._random(streams.RECOGNISER, recogniser))

    @cached_property
    def steps(self) -> Lines:
        """The steps that the stand-in of a language model wrote from the narration."""
        return write(self.narration, self.world.settings.writer, self._random(streams.WRITER))

    @cached_property
    def recipe(self) -> Lines:
        """The lines of the task's article, in the article's order."""
        return recipe(self.task, self.timeline, self.world.wordings[self.task.number])

    def lines(self, style: Style) -> Lines:
        """Return the texts of a style."""
        return {"narration": lambda: self.narration, "step": lambda: self.steps, "recipe": lambda: self.recipe}[style]()

    def shown(self, style: Style) -> npt.NDArray[np.bool_]:
        """Return (K, T), True where a text's own window (any of a recipe line's) covers the middle of the second."""
        seconds = (np.arange(int(np.ceil(self.duration))) + 0.5) / RATE
        windows = self.timeline.windows
        cover = (windows[:, :1] <= seconds) & (seconds < windows[:, 1:])  # (P, T)
        lines = self.lines(style)
        owns = self.timeline.steps == lines.step[:, None] if style == "recipe" else _one_hot(lines.window, len(windows))
        return (owns.astype(np.int64) @ cover.astype(np.int64)) > 0

    def features(self, backbone: str | None = None) -> FeatureSequence:
        """Return the video's features, unit rows at 1 Hz; T is the duration, rounded up."""
        encoder, settings = self.world.encoder(backbone), self.world.settings
        scene = make_scene(self.world.domain, self.task, self.timeline, settings.scene, self._random(streams.SCENE))
        values = encoder.pictures(scene, settings.difficulty, self._random(streams.FEATURES, encoder.name))
        return FeatureSequence(values, RATE, f"world-{encoder.name}")

    def vectors(self, style: Style, backbone: str | None = None) -> Matrix:
        """Return the backbone's text vectors (K, C), unit rows, aligned with `lines(style)`."""
        return self._vectors(style, self.world.encoder(backbone))

    def embeddings(self, style: Style) -> Matrix:
        """Return (K, D) unit rows of a text encoder without pictures, in which all styles are comparable."""
        return self._vectors(style, self.world.encoders[EMBEDDER])

    @cached_property
    def record(self) -> Record:
        """Everything as a Record; `reference` is the planted truth about the recipe's lines."""
        return record(self)

    def _vectors(self, style: Style, encoder: Encoder) -> Matrix:
        noise = RECOGNISERS[self.world.settings.recogniser].noise if style == "narration" else 0.0
        if style == "recipe":  # a line of an article has one vector, whatever the video
            rng = streams.random(self.world.seed, streams.WORLD, streams.ARTICLES, encoder.name, str(self.task.number))
        else:
            rng = self._random(streams.VECTORS, encoder.name, style)
        return encoder.lines(self.lines(style), self.world.domain, rng, noise)

    def _random(self, purpose: int, *names: str) -> np.random.Generator:
        return streams.random(self.world.seed, self.index + 1, purpose, *names)


def make_sample(world: World, index: int) -> Sample:
    """Return the video with this number; any number may be asked for, in any order."""
    settings = world.settings
    train = index < settings.videos - round(settings.videos * settings.held_out)
    rng = streams.random(world.seed, index + 1, streams.TIMELINE)
    known = settings.tasks.tasks - settings.tasks.unseen
    task = world.domain.tasks[int(rng.integers(known if train else settings.tasks.tasks))]
    subset = "train" if train else "val_seen" if task.number < known else "val_unseen"
    timeline = make_timeline(len(task), settings.timeline, rng)
    return Sample(world, index, video_id(world.seed, index), subset, task, timeline)


def video_id(seed: int, index: int) -> str:
    """Return an id of 11 characters, like YouTube's (longer for seeds past 9999 and numbers past 999999)."""
    return f"w{seed:04d}{index:06d}"


def _one_hot(window: Ints, count: int) -> npt.NDArray[np.bool_]:
    return np.asarray((window[:, None] == np.arange(count)) & (window[:, None] != NONE))
