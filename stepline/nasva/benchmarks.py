"""Benchmarks answered by a trained network: what they ask, features and vectors to answer with, the
official files.

    htm-align   every sentence of a video, in spoken order (narration mode)
    ht-step     every line of the article's variation that a video follows, in no order (step mode); of the test splits,
                whose annotations are hidden, the headlines that the evaluation server asks for
    crosstask   every step of a task, in no order (step mode)

A network is never told the truth: when a sentence is said is not read either, since HTM-Align's
file gives it only for sentences that are not alignable. Features come from a feature store or a
folder of files, text vectors from these or from the network's own encoder. K texts a video.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from stepline.atomic_files import write_atomic
from stepline.datasets import read, write_htstep_grounding, write_htstep_result
from stepline.datasets.htm_align import read_rows
from stepline.datasets.htstep import find_queries, read_queries
from stepline.errors import DatasetError, SteplineError, StoreError
from stepline.features import FeatureStore
from stepline.features.files import (
    TextFeatures,
    find_feature_file,
    read_feature_file,
    read_text_features,
)
from stepline.limits import is_storable
from stepline.nasva.align import TextScores, score_texts
from stepline.nasva.checkpoint import LoadedAligner
from stepline.nasva.predict import StepPlacement, place_steps
from stepline.nasva.settings import AlignerSettings, Mode
from stepline.records import FeatureSequence, Matrix, Record, Step, Video


class StoredFeatures:
    """The features of videos by id, rows as they are. Raises StoreError where the folder is not
    there."""

    def __init__(self, folder: Path, rate: float = 1.0) -> None:
        """folder: a feature store, or files of one video each. rate: rows per second of files that
        do not say it."""
        self._folder, self._rate = folder, rate
        self._store = _store(folder)

    def read(self, video: str) -> FeatureSequence:
        """Return the features of a video. Raises StoreError or ShapeError, which say what is
        wrong."""
        if self._store is not None:
            return self._store.read(video)
        return read_feature_file(
            find_feature_file(self._folder, video), rate=self._rate, unit=False
        )


class TextVectors:
    """The vectors of a video's texts, from a store, a folder, one file of many texts, or the
    network's own encoder."""

    def __init__(self, path: Path | None, loaded: LoadedAligner) -> None:
        """path: None for the encoder of the texts that the network was trained on. Raises
        ModelError without one."""
        self._path, self._loaded = path, loaded
        self._store = _store(path) if path is not None and not path.is_file() else None
        if path is None:
            self._encoder = loaded.text_encoder("--texts")

    def encoder(self, video: str) -> str | None:
        """Return whose the vectors of a video's texts are; None where files do not say it, or the
        network made them."""
        return (
            self._store[video].backbone
            if self._store is not None and video in self._store
            else None
        )

    def read(self, video: str, texts: Sequence[str]) -> Matrix:
        """Return (K, C) vectors of the texts. Raises StoreError where one has none."""
        if self._path is None:
            from stepline.text import embed

            return embed(texts, model=self._encoder)
        given = self._whole if self._path.is_file() else self._of(video)
        known, asked = ([text.strip() for text in told] for told in (given.texts, texts))
        if known == asked:  # also where two texts are worded alike
            return given.values
        row = {text: number for number, text in enumerate(known)}
        absent = [text for text in asked if text not in row]
        if absent:
            counts = f"{len(absent)} of {len(texts)} texts have no vector"
            raise StoreError(
                f"{self._path}: {counts}, first {absent[0]!r}; extract them with the same encoder"
            )
        return np.ascontiguousarray(given.values[[row[text] for text in asked]])

    @cached_property
    def _whole(self) -> TextFeatures:
        return read_text_features(Path(str(self._path)))

    def _of(self, video: str) -> TextFeatures:
        if self._store is None:
            return read_text_features(find_feature_file(Path(str(self._path)), video))
        lines = self._store.texts(video)
        if lines is None:
            raise StoreError(
                f"{self._path}: {video} holds no texts beside its vectors; import text features"
            )
        return TextFeatures(lines.texts, self._store.matrix(video))


def _store(folder: Path) -> FeatureStore | None:
    """Return the store in a folder, None where it holds loose files. Raises StoreError where it is
    no folder."""
    if not folder.is_dir():
        raise StoreError(
            f"{folder}: no such folder of features; give a feature store, or files of one video each"
        )
    return FeatureStore(folder) if any(folder.glob("shard-*.parquet")) else None


BenchmarkName: TypeAlias = Literal["htm-align", "ht-step", "crosstask"]
MODES: dict[BenchmarkName, Mode] = {
    "htm-align": "narration",
    "ht-step": "step",
    "crosstask": "step",
}
NO_TEXT = "names no text to place"
UNSTORABLE = "a text of it is empty or cannot be stored"


@dataclass(frozen=True)
class AlignmentQuestion:
    """One video of a benchmark and its texts: id keys the answer, video the features.

    shown: (K,) the truth; None where it is hidden.
    """

    id: str
    video: str
    steps: tuple[Step, ...]
    shown: tuple[bool, ...] | None

    @property
    def texts(self) -> tuple[str, ...]:
        """The K texts."""
        return tuple(step.text for step in self.steps)


@dataclass(frozen=True)
class BenchmarkQuestions:
    """The videos of a benchmark that ask something, and by id why the others of its files do
    not."""

    asked: tuple[AlignmentQuestion, ...]
    unasked: dict[str, str]

    def reasons(self) -> dict[str, int]:
        """Return how many videos ask nothing for each reason, the most frequent first."""
        return dict(Counter(self.unasked.values()).most_common())


@dataclass(frozen=True)
class BenchmarkInputs:
    """What stands for the encoders: the videos' features, and the texts' vectors."""

    features: StoredFeatures
    vectors: TextVectors


@dataclass(frozen=True)
class AnswerSummary:
    """How many videos the file holds, and why the others are not in it, by id."""

    count: int
    missing: dict[str, str]


def benchmark_questions(
    name: BenchmarkName, reference: Path, subset: str | None = None
) -> BenchmarkQuestions:
    """Return what a benchmark asks, in the order of its files. Raises DatasetError where they
    cannot be read."""
    queries = find_queries(reference, subset) if name == "ht-step" else None
    if queries is not None:
        asked, unasked = _server_questions(queries, subset)
    else:
        asked, unasked = _annotated_questions(name, reference, subset)
    unasked |= {one.id: NO_TEXT for one in asked if not one.steps}
    if not any(one.steps for one in asked):
        where = f" of subset {subset!r}" if subset else ""
        raise DatasetError(
            f"{reference}: no video{where} names a text to place; give the annotations of {name}"
        )
    return BenchmarkQuestions(tuple(one for one in asked if one.steps), unasked)


def _annotated_questions(
    name: BenchmarkName, reference: Path, subset: str | None
) -> tuple[list[AlignmentQuestion], dict[str, str]]:
    """Return what annotations ask, and by id why other videos of them ask nothing."""
    reading = read(name, reference, subset=subset)
    asked = []
    unasked = {row.id: row.reason for row in reading.rejected if row.what == "video"}
    rows = dict(read_rows(reference)) if name == "htm-align" else {}
    for record in reading.records:
        id, steps = record.id, record.reference
        # its evaluators count every sentence, also one that is shown for a moment (start = end)
        if id in rows:
            if plain := _plain_steps([row.text for row in rows[id]]):
                asked.append(
                    AlignmentQuestion(id, id, plain, tuple(row.alignable for row in rows[id]))
                )
            elif rows[id]:
                unasked[id] = UNSTORABLE
            continue
        if name == "ht-step":  # its evaluators count the steps of a variation by their numbers
            steps = tuple(sorted(steps, key=lambda step: int(step.id)))
        plain = tuple(Step(id=step.id, text=step.text) for step in steps)
        asked.append(
            AlignmentQuestion(id, record.video.id, plain, tuple(bool(step.spans) for step in steps))
        )
    return asked, unasked


def _server_questions(
    file: Path, subset: str | None
) -> tuple[list[AlignmentQuestion], dict[str, str]]:
    """Return what HT-Step's evaluation server asks, in its order, and by id why other videos ask
    nothing."""
    asked, unasked = [], {}
    for id, headlines in read_queries(file, subset).items():
        if plain := _plain_steps(headlines):
            asked.append(AlignmentQuestion(id, id, plain, None))
        else:
            unasked[id] = UNSTORABLE if headlines else "the server's file names no headlines of it"
    return asked, unasked


def _plain_steps(texts: Sequence[str]) -> tuple[Step, ...]:
    """Return a step a text, its id the row; () where a text is empty or cannot be stored."""
    stripped = [text.strip() for text in texts]
    if not all(text and is_storable(text) for text in stripped):
        return ()
    return tuple(Step(id=str(row), text=text) for row, text in enumerate(stripped))


def score_questions(
    asked: Sequence[AlignmentQuestion],
    loaded: LoadedAligner,
    given: BenchmarkInputs,
    settings: AlignerSettings,
    missing: dict[str, str],
) -> Iterator[tuple[AlignmentQuestion, TextScores]]:
    """Yield each video with how its texts fit; `missing` gets the ids of the others, with the
    reason."""
    for one in asked:
        try:
            features = given.features.read(one.video)
            loaded.check(features, given.vectors.encoder(one.video))
            fit = score_texts(
                loaded.aligner,
                features,
                given.vectors.read(one.video, one.texts),
                settings=settings,
            )
        except SteplineError as error:
            missing[one.id] = str(error)
            continue
        yield one, fit


def write_answers(
    name: BenchmarkName,
    asked: Sequence[AlignmentQuestion],
    loaded: LoadedAligner,
    given: BenchmarkInputs,
    out: Path,
    settings: AlignerSettings,
) -> AnswerSummary:
    """Write the answer of a network in the benchmark's official form, and return what is in it and
    what is not.

    out: JSON; for ht-step also .csv, which its mAP needs. Raises DatasetError when no video at all
    can be answered.
    """
    settings = settings.model_copy(update={"mode": MODES[name]})
    if out.suffix == ".csv" and any(one.shown is None for one in asked):
        raise DatasetError(
            f"{out}: the server's queries do not number their steps as a .csv does; name a .json"
        )
    missing: dict[str, str] = {}
    answers = {
        one.id: (one, place_steps(one.steps, fit, loaded.calibration, settings=settings), fit.rate)
        for one, fit in score_questions(asked, loaded, given, settings, missing)
    }
    if not answers:
        id, reason = next(iter(missing.items()))
        raise DatasetError(
            f"none of {len(asked)} videos can be answered, the first, {id}, since: {reason}"
        )
    if name == "ht-step":
        records = [_placed(one, placing, rate) for one, placing, rate in answers.values()]
        (write_htstep_grounding if out.suffix == ".csv" else write_htstep_result)(records, out)
    else:
        tree: dict[str, Any] = {
            id: _seconds(placing, rate) for id, (_, placing, rate) in answers.items()
        }
        if name == "htm-align":
            for id, (_, placing, _) in answers.items():
                spans = [[span.start, span.end] for span in placing.spans]
                shown = [float(np.round(p, 6)) for p in placing.chances.shown]
                tree[id] = {"seconds": tree[id], "spans": spans, "alignability": shown}
        write_atomic(out, json.dumps(tree, allow_nan=False) + "\n")
    return AnswerSummary(len(answers), missing)


def _seconds(placing: StepPlacement, rate: float) -> list[float]:
    """Return the second at which the best row of each text starts, as the released code counts."""
    return [float(row / rate) for row in placing.chances.best]


def _placed(one: AlignmentQuestion, placing: StepPlacement, rate: float) -> Record:
    """Return a record in which every step is placed: HT-Step takes no abstention."""
    steps = zip(
        one.steps, placing.spans, _seconds(placing, rate), placing.chances.shown, strict=True
    )
    placed = tuple(
        step.model_copy(update={"spans": (span,), "at": second, "score": float(p)})
        for step, span, second, p in steps
    )
    return Record(id=one.id, video=Video(id=one.video), steps=placed)
