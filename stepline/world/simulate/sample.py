"""One simulated video: its plan is drawn at once, its features, vectors and words when they are asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stepline.errors import SettingsError
from stepline.records import FeatureSequence, Matrix, Record
from stepline.world.simulate import records, streams
from stepline.world.simulate.encoders import Encoder
from stepline.world.simulate.lines import NONE, Lines, Style
from stepline.world.simulate.narration import narrate
from stepline.world.simulate.recogniser import hear
from stepline.world.simulate.scene import make_scene
from stepline.world.simulate.settings import EMBEDDER, RECOGNISERS, SimulationSettings
from stepline.world.simulate.steps import recipe, write
from stepline.world.simulate.tasks import Domain, Ints, Task
from stepline.world.simulate.timeline import Timeline, make_timeline
from stepline.world.simulate.words import CHATS

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
        return records.record(self)

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
