"""A corpus of real data, from feature stores and the benchmarks' own files.

    DATA/BACKBONE/video                      features of all videos
    DATA/BACKBONE/narration, step            vectors of what is said and of the written steps, with texts and times
    DATA/BACKBONE/narration-noisy            the same of the other recogniser's transcripts, for table 4
    DATA/BACKBONE/recipe                     vectors of HT-Step's headlines, an item a video
    DATA/linking/narration, step             vectors of an encoder of texts alone, which links steps to sentences
    DATA/ht-step, DATA/htm_align.json        the benchmarks, whose videos are not trained on (of HT-Step: its tests)

`stepline features import` fills the stores. BACKBONE is sharp, usual or dull, whatever stands behind the name. All
that is trained on is in memory: 1.2 MB for 400 seconds of width 768.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from stepline.batches import Sample
from stepline.datasets import stream
from stepline.errors import DatasetError
from stepline.experiments.corpus import Corpus, Lesson
from stepline.experiments.trial import Size, Trial
from stepline.features import FeatureStore
from stepline.nasva.samples import matching_rows
from stepline.nasva.targets import labelled_sample
from stepline.nasva.told import Told, read_told
from stepline.records import Matrix, Record, Sentence, Step

TESTS = {"recipe": ("ht-step", "ht-step"), "narration": ("htm-align", "htm_align.json")}  # kind -> dataset, file


def read_corpus(folder: Path, trial: Trial) -> Corpus:
    """Return what a trial needs of real data: at most `size.videos` lessons, and both benchmarks.

    Raises StoreError where a store is not there, DatasetError when no video is left to train on.
    """
    at = folder / trial.backbone
    said = "narration" if trial.recogniser == "clean" else "narration-noisy"
    features = FeatureStore(at / "video")
    tests = {kind: tuple(_tests(folder, kind, at, features)) for kind in TESTS}
    excluded = {sample.id for samples in tests.values() for sample in samples}
    lessons = tuple(_lessons(folder, at, said, features, excluded, trial.size))
    if not lessons:
        raise DatasetError(f"{folder}: no video has features, steps and narration; import them first")
    return Corpus(lessons, tests)


def _lessons(
    folder: Path, at: Path, said: str, features: FeatureStore, excluded: set[str], size: Size
) -> Iterable[Lesson]:
    narration, step = FeatureStore(at / said), FeatureStore(at / "step")
    linking = {kind: FeatureStore(folder / "linking" / kind) for kind in (said, "step")}
    sentences = {told.video: told for told in read_told(str(at / said), "narration")}
    count = 0
    for told in read_told(str(at / "step"), "step"):
        id = told.video
        if count == size.videos or id in excluded or id not in features or id not in sentences:
            continue
        if any(id not in store for store in (*linking.values(), narration, step)):
            continue
        count += 1
        likeness = _unit(linking["step"].matrix(id)) @ _unit(linking[said].matrix(id)).T
        spoken, rows = _spoken(sentences[id])
        yield Lesson(
            id, features.read(id), _steps(told), spoken, step.matrix(id), narration.matrix(id)[rows], likeness[:, rows]
        )


def _steps(told: Told) -> tuple[Step, ...]:
    return tuple(Step(id=str(number), text=text or "-") for number, text in enumerate(told.texts, start=1))


def _spoken(told: Told) -> tuple[tuple[Sentence, ...], list[int]]:
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
            sample = _test(record, kind, features, vectors)
            if sample is not None:
                yield sample


def _test(record: Record, kind: str, features: FeatureStore, vectors: FeatureStore) -> Sample | None:
    id = record.video.id
    spans = {step.text: step.spans for step in record.reference}
    texts = record.recipe or tuple(step.text for step in record.reference)  # all headlines, shown or not
    told = Told(id, "step", texts, tuple(spans.get(text, ()) for text in texts))
    rows = matching_rows(told, vectors)
    if rows is None:
        return None
    return labelled_sample(id, features.read(id), vectors.matrix(id)[rows], told.spans, ordered=kind == "narration")


def _unit(vectors: Matrix) -> Matrix:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), dtype=np.float32)
