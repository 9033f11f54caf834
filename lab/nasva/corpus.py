"""What NaSVA's networks train and are scored on: simulated narrated videos with steps, and held-out texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from lab.nasva.rows import NasvaSize
from lab.simulate import WORLD_SETTINGS, SimulatedVideo
from lab.simulate import stream as simulated_stream
from lab.simulate.narration import TEXT_STYLES, Style
from stepline.models.training.batches import Mask, Sample
from stepline.records import FeatureSequence, Matrix, Sentence, Step


@dataclass(frozen=True)
class TrainingVideo:
    """A video to train on: its narration and written steps, with the vectors of one backbone.

    step_vectors (K, C), sentence_vectors (S, C), likeness (K, S): of steps to sentences, by a text
    encoder alone.
    truth: (K, T) where each step is shown, sentence_truth (S, T).
    """

    id: str
    features: FeatureSequence
    steps: tuple[Step, ...]
    sentences: tuple[Sentence, ...]
    step_vectors: Matrix
    sentence_vectors: Matrix
    likeness: Matrix
    truth: Mask
    sentence_truth: Mask


@dataclass(frozen=True)
class Corpus:
    """What one training needs.

    videos: to train on. tests: texts of one kind in held-out videos, `positive` = where they are
    really shown.
    """

    videos: tuple[TrainingVideo, ...]
    tests: Mapping[str, tuple[Sample, ...]]


@lru_cache(maxsize=2)
def simulated(
    seed: int, backbone: str, recogniser: str, size: NasvaSize, world: str = "short"
) -> Corpus:
    """Return a corpus of the simulated world. Held out are its last videos."""
    count = size.videos + size.held_out
    changes = {"videos": count, "held_out": size.held_out / count, "recogniser": recogniser}
    settings = WORLD_SETTINGS[world].model_copy(update=changes)
    videos = list(simulated_stream(seed, settings))
    training = [_training_video(video, backbone) for video in videos[: size.videos]]
    tests: dict[str, tuple[Sample, ...]] = {}
    for style in TEXT_STYLES:
        samples = [_test_sample(video, style, backbone) for video in videos[size.videos :]]
        tests[style] = tuple(samples)
    return Corpus(tuple(training), tests)


def _training_video(video: SimulatedVideo, backbone: str) -> TrainingVideo:
    features = video.features(backbone)
    return TrainingVideo(
        id=video.id,
        features=features,
        steps=video.record.steps,
        sentences=video.record.sentences,
        step_vectors=video.vectors("step", backbone),
        sentence_vectors=video.vectors("narration", backbone),
        likeness=video.embeddings("step") @ video.embeddings("narration").T,
        truth=_shown_rows(video, "step", features),
        sentence_truth=_shown_rows(video, "narration", features),
    )


def _test_sample(video: SimulatedVideo, style: Style, backbone: str) -> Sample:
    features = video.features(backbone)
    vectors = video.vectors(style, backbone)
    truth = _shown_rows(video, style, features)
    return Sample(video.id, features.values, vectors, truth, style != "recipe")


def _shown_rows(video: SimulatedVideo, style: Style, features: FeatureSequence) -> Mask:
    """Return (K, T): in which rows each text of a style is shown, by the rows' middle seconds."""
    return video.shown(style)[:, : len(features.values)]
