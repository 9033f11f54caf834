"""`simulate` and `stream`: all videos of a world, or as many as are asked for, one after
another."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from lab.simulate.encoders import Encoder, make_encoder
from lab.simulate.narration import WORDING_COUNT, Style, article_lines
from lab.simulate.settings import (
    EMBEDDER_NAME,
    SHORT_WORLD,
    BackboneSettings,
    SimulationSettings,
    StyleSettings,
)
from lab.simulate.tasks import WORLD_NUMBER, Domain, Purpose, make_domain, random_stream
from lab.simulate.texts import CHAT_TEXTS, texts, title
from lab.simulate.video import SimulatedVideo, World, make_record, make_video
from stepline.records import FeatureSequence, Matrix, Record

EMBEDDER_WIDTH = 64


@dataclass(frozen=True)
class Simulation:
    """The videos of a world in order: those for training, then the held-out ones.

    `records`, `features`, `vectors` and `embeddings` are aligned with `videos`.
    """

    world: World
    videos: tuple[SimulatedVideo, ...]

    @property
    def settings(self) -> SimulationSettings:
        """What the world was made with."""
        return self.world.settings

    @cached_property
    def records(self) -> list[Record]:
        """One record per video. `reference` is the planted truth about the recipe's lines."""
        return [video.record for video in self.videos]

    def records_about(self, style: Style) -> list[Record]:
        """Return the records with the planted truth about the texts of another style as their
        reference."""
        return [make_record(video, style) for video in self.videos]

    def features(self, backbone: str | None = None) -> list[FeatureSequence]:
        """Return one backbone's features of every video."""
        return [video.features(backbone) for video in self.videos]

    def vectors(self, style: Style, backbone: str | None = None) -> list[Matrix]:
        """Return one backbone's text vectors (K, C) of every video."""
        return [video.vectors(style, backbone) for video in self.videos]

    def embeddings(self, style: Style) -> list[Matrix]:
        """Return (K, D) of every video for linking steps with narration."""
        return [video.embeddings(style) for video in self.videos]

    @property
    def recipes(self) -> dict[str, tuple[str, ...]]:
        """The text base: title -> lines of every task's article, the tasks of no video among
        them."""
        return recipes(self.world)


def simulate(seed: int, settings: SimulationSettings = SHORT_WORLD) -> Simulation:
    """Return the world with this seed and all its videos. The same seed and settings give the same
    values."""
    world = make_world(seed, settings)
    videos = tuple(make_video(world, index) for index in range(settings.videos))
    return Simulation(world, videos)


def stream(
    seed: int,
    settings: SimulationSettings = SHORT_WORLD,
    *,
    start: int = 0,
    count: int | None = None,
) -> Iterator[SimulatedVideo]:
    """Yield the videos from number `start` on, one in memory at a time. Without `count`, up to the
    settings' last.

    Videos past `settings.videos` are further held-out ones. Each is what `simulate` gives at its
    number.
    """
    world = make_world(seed, settings)
    end = settings.videos if count is None else start + count
    return (make_video(world, index) for index in range(start, end))


def make_world(seed: int, settings: SimulationSettings = SHORT_WORLD) -> World:
    """Return what all videos of a world share."""
    domain = make_domain(seed, settings.tasks, settings.scene.backgrounds)
    encoders = MappingProxyType(_encoders(settings, domain))
    rng = random_stream(seed, WORLD_NUMBER, Purpose.ARTICLES)
    wordings = tuple(rng.integers(0, WORDING_COUNT, len(task)) for task in domain.tasks)
    return World(seed, settings, domain, encoders, wordings)


def recipes(world: World) -> dict[str, tuple[str, ...]]:
    """Return title -> lines of every task's article."""
    articles = {}
    for task in world.domain.tasks:
        lines = article_lines(task, world.wordings[task.number])
        articles[title(task.number)] = texts(lines)
    return articles


def _encoders(settings: SimulationSettings, domain: Domain) -> Mapping[str, Encoder]:
    noise = settings.embedder_noise * float(np.sqrt(2))  # next to an action and an object together
    style = StyleSettings(distortion=0.0, noise=noise)
    embedder = BackboneSettings(
        width=EMBEDDER_WIDTH, narration=style, step=style, recipe=style, style_bias=0.0
    )
    encoders = {}
    for name, backbone in {**settings.backbones, EMBEDDER_NAME: embedder}.items():
        encoders[name] = make_encoder(name, backbone, domain, len(CHAT_TEXTS))
    return encoders
