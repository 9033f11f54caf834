"""What an experiment trains and is scored on: videos with narration and written steps, and held-out texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from stepline.batches import Flags, Sample
from stepline.experiments.trial import Size
from stepline.records import FeatureSequence, Matrix, Sentence, Step
from stepline.world.simulate import Sample as Simulated
from stepline.world.simulate import SimulationSettings, stream
from stepline.world.simulate.lines import STYLES, Style


@dataclass(frozen=True)
class Lesson:
    """A video to train on: its narration and written steps, with the vectors of one backbone.

    step_vectors (K, C), sentence_vectors (S, C), likeness (K, S): of steps to sentences, by a text encoder alone.
    truth: (K, T) where each step is shown, sentence_truth (S, T); None where nobody planted it.
    """

    id: str
    features: FeatureSequence
    steps: tuple[Step, ...]
    sentences: tuple[Sentence, ...]
    step_vectors: Matrix
    sentence_vectors: Matrix
    likeness: Matrix
    truth: Flags | None = None
    sentence_truth: Flags | None = None


@dataclass(frozen=True)
class Corpus:
    """lessons: to train on. tests: texts of one kind in held-out videos, `positive` = where they are really shown."""

    lessons: tuple[Lesson, ...]
    tests: Mapping[str, tuple[Sample, ...]]


@lru_cache(maxsize=2)
def simulated(seed: int, backbone: str, recogniser: str, size: Size) -> Corpus:
    """Return a corpus of the simulated world; held out are its last videos."""
    settings = SimulationSettings(
        videos=size.videos + size.held_out,
        held_out=size.held_out / (size.videos + size.held_out),
        recogniser=recogniser,  # type: ignore[arg-type]   # checked there
    )
    videos = list(stream(seed, settings))
    lessons = tuple(_lesson(video, backbone) for video in videos[: size.videos])
    held = videos[size.videos :]
    return Corpus(lessons, {style: tuple(_test(video, style, backbone) for video in held) for style in STYLES})


def _lesson(video: Simulated, backbone: str) -> Lesson:
    record, features = video.record, video.features(backbone)
    return Lesson(
        video.id,
        features,
        record.steps,
        record.transcript.sentences if record.transcript else (),
        video.vectors("step", backbone),
        video.vectors("narration", backbone),
        video.embeddings("step") @ video.embeddings("narration").T,
        _shown(video, "step", features),
        _shown(video, "narration", features),
    )


def _test(video: Simulated, style: Style, backbone: str) -> Sample:
    features = video.features(backbone)
    shown = _shown(video, style, features)
    return Sample(video.id, features.values, video.vectors(style, backbone), shown, style != "recipe")


def _shown(video: Simulated, style: Style, features: FeatureSequence) -> Flags:
    """Return (K, T): in which rows each text of a style is shown, by the rows' middle seconds."""
    return video.shown(style)[:, : len(features.values)]
