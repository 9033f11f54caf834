"""Predictions for benchmarks by NaSVA's network: what the benchmarks ask, the text vectors, the
official files.

htm-align   every sentence of a video, in spoken order (narration mode)
ht-step     every step of the article variation that a video follows, in no order (step mode). For the test splits, of
            which annotations are hidden, the headlines that the evaluation server asks for
crosstask   every step of a task, in no order (step mode)

A network never sees the truth. The times of speech are not read either, because HTM-Align's file
gives them only for sentences that are not alignable. Features come from a feature store or a folder
of files. Text vectors come from these too, or from the network's own text encoder. Letters: K texts
per video, C width of a text vector.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stepline.datasets import read, write_htstep_grounding, write_htstep_result
from stepline.datasets.htm_align import read_rows
from stepline.datasets.htstep import find_queries, read_queries
from stepline.errors import DatasetError, StoreError
from stepline.features import FeatureStore
from stepline.features.files import TextFeatures, find_feature_file, read_text_features
from stepline.files.atomic_files import write_atomic
from stepline.limits import is_storable
from stepline.models.nasva.align import TextScores, score_texts
from stepline.models.nasva.checkpoint import LoadedAligner
from stepline.models.nasva.predict import StepPlacement, place_steps
from stepline.models.nasva.settings import AlignerSettings, Mode
from stepline.models.training.benchmark_answers import (
    BenchmarkAnswers,
    BenchmarkQuestions,
    StoredFeatures,
    answer_questions,
    open_store_if_any,
)
from stepline.records import Matrix, Record, Step, Video


class TextVectors:
    """Text vectors of videos: from a store, a folder of files, one file of many texts, or the
    network's own text encoder."""

    def __init__(self, path: Path | None, aligner: LoadedAligner) -> None:
        """Open the vectors.

        Args:
            path: the store, folder or file. None: the network's text encoder makes the vectors.
            aligner: the network.

        Raises ModelError if the network's encoder is needed and cannot be loaded.
        """
        self._path = path
        self._store: FeatureStore | None = None
        if path is None:
            self._encoder = aligner.get_text_encoder_name("--texts")
        elif not path.is_file():
            self._store = open_store_if_any(path)

    def get_encoder_name(self, video: str) -> str:
        """Return the name of the encoder of a video's text vectors, "" where it is not known."""
        if self._store is None or video not in self._store:
            return ""
        return self._store[video].backbone

    def read_vectors(self, video: str, texts: Sequence[str]) -> Matrix:
        """Return the vectors (K, C) of the texts of a video. Raises StoreError where a text has
        none."""
        if self._path is None:
            from stepline.text import embed

            return embed(texts, model=self._encoder)
        stored = self._read_stored(self._path, video)
        stored_texts = [text.strip() for text in stored.texts]
        asked_texts = [text.strip() for text in texts]
        if stored_texts == asked_texts:  # also where two texts are worded alike
            return stored.values
        row_of = {text: number for number, text in enumerate(stored_texts)}
        absent = [text for text in asked_texts if text not in row_of]
        if absent:
            raise StoreError(
                f"{self._path}: {len(absent)} of {len(texts)} texts have no vector, first "
                f"{absent[0]!r}; extract them with the same encoder"
            )
        return np.ascontiguousarray(stored.values[[row_of[text] for text in asked_texts]])

    @cached_property
    def _file_features(self) -> TextFeatures:
        return read_text_features(Path(str(self._path)))

    def _read_stored(self, path: Path, video: str) -> TextFeatures:
        if path.is_file():
            return self._file_features
        if self._store is None:
            return read_text_features(find_feature_file(path, video))
        lines = self._store.texts(video)
        if lines is None:
            raise StoreError(
                f"{path}: {video} holds no texts next to its vectors; import text features"
            )
        return TextFeatures(lines.texts, self._store.matrix(video))


BenchmarkName = Literal["htm-align", "ht-step", "crosstask"]
BENCHMARK_MODES: dict[BenchmarkName, Mode] = {
    "htm-align": "narration",
    "ht-step": "step",
    "crosstask": "step",
}
NO_TEXT = "names no text to place"
UNSTORABLE_TEXT = "a text of it is empty or cannot be stored"


@dataclass(frozen=True)
class AlignmentQuestion:
    """One video of a benchmark with the texts to localize.

    Attributes:
        id: key of the answer.
        video: id of the video's features.
        steps: K texts, as steps.
        truth: (K,) whether each text is shown. None: hidden.
    """

    id: str
    video: str
    steps: tuple[Step, ...]
    truth: tuple[bool, ...] | None

    @property
    def texts(self) -> tuple[str, ...]:
        """The K texts."""
        return tuple(step.text for step in self.steps)


@dataclass(frozen=True)
class BenchmarkInputs:
    """Features of the videos, and vectors of the texts."""

    features: StoredFeatures
    vectors: TextVectors


def read_benchmark_questions(
    name: BenchmarkName, reference: Path, subset: str | None = None
) -> BenchmarkQuestions[AlignmentQuestion]:
    """Return the videos and texts that a benchmark asks for, in the order of its files.

    Args:
        name: name of the benchmark.
        reference: path of the benchmark's annotations.
        subset: name of a split. None: all videos.

    Raises DatasetError if the annotations cannot be read or name no text.
    """
    # Splits whose truth is hidden are asked by a file of the server.
    queries = find_queries(reference, subset) if name == "ht-step" else None
    if queries is not None:
        questions, skipped = _read_server_questions(queries, subset)
    else:
        questions, skipped = _read_annotated_questions(name, reference, subset)
    # A video without a text asks nothing.
    with_texts = [question for question in questions if question.steps]
    skipped |= {question.id: NO_TEXT for question in questions if not question.steps}
    if not with_texts:
        part = f" of subset {subset!r}" if subset else ""
        raise DatasetError(
            f"{reference}: no video{part} names a text to place; give the annotations of {name}"
        )
    return BenchmarkQuestions(tuple(with_texts), skipped)


def _read_annotated_questions(
    name: BenchmarkName, reference: Path, subset: str | None
) -> tuple[list[AlignmentQuestion], dict[str, str]]:
    """Return the questions of annotated videos, and by id why other videos have none."""
    reading = read(name, reference, subset=subset)
    skipped = {row.id: row.reason for row in reading.rejected if row.what == "video"}
    rows = dict(read_rows(reference)) if name == "htm-align" else {}
    questions = []
    for record in reading.records:
        id = record.id
        # its evaluators count every sentence, also one that is shown for a moment (start = end)
        if id in rows:
            texts = _make_plain_steps([row.text for row in rows[id]])
            if texts:
                alignable = tuple(row.alignable for row in rows[id])
                questions.append(AlignmentQuestion(id, id, texts, alignable))
            elif rows[id]:
                skipped[id] = UNSTORABLE_TEXT
            continue
        steps = record.reference
        if name == "ht-step":  # its evaluators count the steps of a variation by their numbers
            steps = tuple(sorted(steps, key=lambda step: int(step.id)))
        texts = tuple(Step(id=step.id, text=step.text) for step in steps)
        truth = tuple(bool(step.spans) for step in steps)
        questions.append(AlignmentQuestion(id, record.video.id, texts, truth))
    return questions, skipped


def _read_server_questions(
    file: Path, subset: str | None
) -> tuple[list[AlignmentQuestion], dict[str, str]]:
    """Return the questions of HT-Step's evaluation server, in its order, and by id why other videos
    have none."""
    questions = []
    skipped = {}
    for id, headlines in read_queries(file, subset).items():
        steps = _make_plain_steps(headlines)
        if steps:
            questions.append(AlignmentQuestion(id, id, steps, None))
        elif headlines:
            skipped[id] = UNSTORABLE_TEXT
        else:
            skipped[id] = "the server's file names no headlines of it"
    return questions, skipped


def _make_plain_steps(texts: Sequence[str]) -> tuple[Step, ...]:
    """Return a step per text, with its row as id. Empty where a text is empty or cannot be
    stored."""
    stripped = [text.strip() for text in texts]
    if not all(text and is_storable(text) for text in stripped):
        return ()
    return tuple(Step(id=str(row), text=text) for row, text in enumerate(stripped))


def score_questions(
    questions: Sequence[AlignmentQuestion],
    aligner: LoadedAligner,
    inputs: BenchmarkInputs,
    settings: AlignerSettings,
) -> BenchmarkAnswers[TextScores]:
    """Return the network's scores of the texts of each question, by question id, and why others have
    none.

    Args:
        questions: videos with the texts to localize.
        aligner: the network.
        inputs: features of the videos and vectors of the texts.
        settings: how long videos are split, and whether texts are in order.
    """

    def score(question: AlignmentQuestion) -> TextScores:
        features = inputs.features.read(question.video)
        aligner.check_features(features, inputs.vectors.get_encoder_name(question.video))
        vectors = inputs.vectors.read_vectors(question.video, question.texts)
        return score_texts(aligner.network, features, vectors, settings=settings)

    return answer_questions({question.id: question for question in questions}, score)


def write_alignments(
    name: BenchmarkName,
    questions: Sequence[AlignmentQuestion],
    aligner: LoadedAligner,
    inputs: BenchmarkInputs,
    out: Path,
    settings: AlignerSettings,
) -> BenchmarkAnswers[TextScores]:
    """Write the predictions of a network in the benchmark's official form, and return the scores
    behind them.

    Args:
        name: name of the benchmark.
        questions: videos with the texts to localize.
        aligner: the network.
        inputs: features of the videos and vectors of the texts.
        out: file to write: JSON, or for ht-step also .csv.
        settings: how texts are localized.

    Raises DatasetError when no video can be answered.
    """
    settings = settings.model_copy(update={"mode": BENCHMARK_MODES[name]})
    if out.suffix == ".csv" and any(question.truth is None for question in questions):
        raise DatasetError(
            f"{out}: the server's queries do not number their steps as a .csv does; name a .json"
        )
    answers = score_questions(questions, aligner, inputs, settings)
    answers.require_any(" videos")
    records: list[Record] = []
    tree: dict[str, Any] = {}
    for question in questions:
        text_scores = answers.by_id.get(question.id)
        if text_scores is None:
            continue
        placement = place_steps(question.steps, text_scores, aligner.calibration, settings=settings)
        # of the best row of each text, as the released code counts
        seconds = [float(row / text_scores.rate) for row in placement.posterior.best_rows]
        if name == "ht-step":
            records.append(_make_record(question, placement, seconds))
        elif name == "htm-align":
            tree[question.id] = {
                "seconds": seconds,
                "spans": [[span.start, span.end] for span in placement.spans],
                "alignability": [float(np.round(p, 6)) for p in placement.posterior.p_shown],
            }
        else:
            tree[question.id] = seconds
    # Each benchmark has its own form of file.
    if name != "ht-step":
        write_atomic(out, json.dumps(tree, allow_nan=False) + "\n")
    elif out.suffix == ".csv":
        write_htstep_grounding(records, out)
    else:
        write_htstep_result(records, out)
    return answers


def _make_record(
    question: AlignmentQuestion, placement: StepPlacement, seconds: Sequence[float]
) -> Record:
    """Return a record in which every step has a span, because HT-Step takes no abstention."""
    steps = []
    p_shown = placement.posterior.p_shown
    for step, span, second, p in zip(
        question.steps, placement.spans, seconds, p_shown, strict=True
    ):
        changes = {"spans": (span,), "at": second, "score": float(p)}
        steps.append(step.model_copy(update=changes))
    return Record(id=question.id, video=Video(id=question.id), steps=tuple(steps))
