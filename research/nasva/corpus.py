"""What NaSVA's networks train and are scored on: videos with narration and written steps, and held-out texts.

Simulated, or real data from feature stores and the benchmarks' own files:

    DATA/BACKBONE/video                      features of all videos
    DATA/BACKBONE/narration, step            vectors of what is said and of the written steps, with texts and times
    DATA/BACKBONE/narration-noisy            the same of the other recogniser's transcripts, for table 4
    DATA/BACKBONE/recipe                     vectors of HT-Step's headlines, an item a video
    DATA/linking/narration, step             vectors of an encoder of texts alone, which links steps to sentences
    DATA/ht-step, DATA/htm_align.json        the benchmarks, whose videos are not trained on (of HT-Step: its tests)

`stepline features import` fills the stores. BACKBONE is sharp, usual or dull, whatever stands behind the name. All
that is trained on is in memory: 1.2 MB for 400 seconds of width 768.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from research.nasva.rows import NasvaSize, NasvaTrial
from research.simulate import SimulatedVideo, SimulationSettings
from research.simulate import stream as simulated_stream
from research.simulate.narration import STYLES, Style
from stepline.datasets import stream
from stepline.errors import DatasetError
from stepline.features import FeatureStore
from stepline.nasva.dataset import labelled_sample, matching_rows
from stepline.records import FeatureSequence, Matrix, Record, Sentence, Step
from stepline.training.batches import Mask, Sample
from stepline.training.sources import LabelledTexts, read_labelled_texts


@dataclass(frozen=True)
class TrainingVideo:
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
    truth: Mask | None = None
    sentence_truth: Mask | None = None


@dataclass(frozen=True)
class Corpus:
    """videos: to train on. tests: texts of one kind in held-out videos, `positive` = where they are really shown."""

    videos: tuple[TrainingVideo, ...]
    tests: Mapping[str, tuple[Sample, ...]]


@lru_cache(maxsize=2)
def simulated(seed: int, backbone: str, recogniser: str, size: NasvaSize) -> Corpus:
    """Return a corpus of the simulated world; held out are its last videos."""
    settings = SimulationSettings(
        videos=size.videos + size.held_out,
        held_out=size.held_out / (size.videos + size.held_out),
        recogniser=recogniser,  # type: ignore[arg-type]   # checked there
    )
    videos = list(simulated_stream(seed, settings))
    held_out = videos[size.videos :]
    return Corpus(
        tuple(_training_video(video, backbone) for video in videos[: size.videos]),
        {style: tuple(_test_sample(video, style, backbone) for video in held_out) for style in STYLES},
    )


def _training_video(video: SimulatedVideo, backbone: str) -> TrainingVideo:
    record, features = video.record, video.features(backbone)
    return TrainingVideo(
        video.id,
        features,
        record.steps,
        record.sentences,
        video.vectors("step", backbone),
        video.vectors("narration", backbone),
        video.embeddings("step") @ video.embeddings("narration").T,
        _shown_rows(video, "step", features),
        _shown_rows(video, "narration", features),
    )


def _test_sample(video: SimulatedVideo, style: Style, backbone: str) -> Sample:
    features = video.features(backbone)
    shown = _shown_rows(video, style, features)
    return Sample(video.id, features.values, video.vectors(style, backbone), shown, style != "recipe")


def _shown_rows(video: SimulatedVideo, style: Style, features: FeatureSequence) -> Mask:
    """Return (K, T): in which rows each text of a style is shown, by the rows' middle seconds."""
    return video.shown(style)[:, : len(features.values)]


TESTS = {"recipe": ("ht-step", "ht-step"), "narration": ("htm-align", "htm_align.json")}  # kind -> dataset, file


def read_corpus(folder: Path, trial: NasvaTrial) -> Corpus:
    """Return what a trial needs of real data: at most `size.videos` to train on, and both benchmarks.

    Raises StoreError where a store is not there, DatasetError when no video is left to train on.
    """
    at = folder / trial.backbone
    said = "narration" if trial.recogniser == "clean" else "narration-noisy"
    features = FeatureStore(at / "video")
    tests = {kind: tuple(_tests(folder, kind, at, features)) for kind in TESTS}
    excluded = {sample.id for samples in tests.values() for sample in samples}
    videos = tuple(_training_videos(folder, at, said, features, excluded, trial.size))
    if not videos:
        raise DatasetError(f"{folder}: no video has features, steps and narration; import them first")
    return Corpus(videos, tests)


def _training_videos(
    folder: Path, at: Path, said: str, features: FeatureStore, excluded: set[str], size: NasvaSize
) -> Iterable[TrainingVideo]:
    narration, step = FeatureStore(at / said), FeatureStore(at / "step")
    linking = {kind: FeatureStore(folder / "linking" / kind) for kind in (said, "step")}
    sentences = {told.video: told for told in read_labelled_texts(str(at / said), "narration")}
    count = 0
    for told in read_labelled_texts(str(at / "step"), "step"):
        id = told.video
        if count == size.videos or id in excluded or id not in features or id not in sentences:
            continue
        if any(id not in store for store in (*linking.values(), narration, step)):
            continue
        count += 1
        likeness = _unit(linking["step"].matrix(id)) @ _unit(linking[said].matrix(id)).T
        spoken, rows = _spoken(sentences[id])
        yield TrainingVideo(
            id, features.read(id), _steps(told), spoken, step.matrix(id), narration.matrix(id)[rows], likeness[:, rows]
        )


def _steps(told: LabelledTexts) -> tuple[Step, ...]:
    return tuple(Step(id=str(number), text=text or "-") for number, text in enumerate(told.texts, start=1))


def _spoken(told: LabelledTexts) -> tuple[tuple[Sentence, ...], list[int]]:
    """Return the sentences that have a time, and their rows among all texts."""
    rows = [row for row, spans in enumerate(told.spans) if spans]
    return tuple(Sentence(text=told.texts[row], span=told.spans[row][0]) for row in rows), rows


def _tests(folder: Path, kind: str, at: Path, features: FeatureStore) -> Iterable[Sample]:
    """Yield a benchmark's videos that have features and vectors, their texts in time only where they are said."""
    dataset, file = TESTS[kind]
    vectors = FeatureStore(at / kind)
    for entry in stream(dataset, folder / file):
        record = entry.record
        if entry.subset == "train" or record is None:
            continue
        if record.video.id in features and record.video.id in vectors:
            sample = _real_test(record, kind, features, vectors)
            if sample is not None:
                yield sample


def _real_test(record: Record, kind: str, features: FeatureStore, vectors: FeatureStore) -> Sample | None:
    id = record.video.id
    spans = {step.text: step.spans for step in record.reference}
    texts = record.recipe or tuple(step.text for step in record.reference)  # all headlines, shown or not
    told = LabelledTexts(id, "step", texts, tuple(spans.get(text, ()) for text in texts))
    rows = matching_rows(told, vectors)
    if rows is None:
        return None
    return labelled_sample(id, features.read(id), vectors.matrix(id)[rows], told.spans, ordered=kind == "narration")


def _unit(vectors: Matrix) -> Matrix:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), dtype=np.float32)
