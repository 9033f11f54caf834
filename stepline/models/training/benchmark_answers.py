"""Predictions of a trained network for a benchmark: what the benchmark asks, the answers, and why
an item has no answer.

    answers = answer_questions({video: video for video in videos}, answer)
    answers.require_any(" videos")

`answer` raises a SteplineError where an item cannot be answered, for instance because its features
are missing.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from stepline.errors import DatasetError, SteplineError, StoreError
from stepline.features import FeatureStore, require_videos
from stepline.features.files import find_feature_file, read_feature_file
from stepline.records import FeatureSequence

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True)
class BenchmarkQuestions(Generic[Q]):
    """The questions that a benchmark asks about its videos.

    Attributes:
        questions: the questions in the order of the benchmark's file.
        skipped: by video id, the reason why the benchmark's file asks nothing about the video.
    """

    questions: tuple[Q, ...]
    skipped: Mapping[str, str]

    def count_reasons(self) -> dict[str, int]:
        """Return the number of skipped videos for each reason, the most frequent reason first."""
        return dict(Counter(self.skipped.values()).most_common())


@dataclass(frozen=True)
class BenchmarkAnswers(Generic[A]):
    """The answers of a network to the questions of a benchmark.

    Attributes:
        by_id: by question id, the answer to each answered question.
        missing: by question id, the reason why a question has no answer.
    """

    by_id: dict[str, A]
    missing: dict[str, str]

    @property
    def count(self) -> int:
        """Number of questions that were answered."""
        return len(self.by_id)

    def require_any(self, noun: str = "") -> None:
        """Raise DatasetError if no question was answered.

        Args:
            noun: plural noun with a leading space that the message uses for the questions, such as
                " videos".
        """
        if not self.by_id:
            id, reason = next(iter(self.missing.items()))
            raise DatasetError(
                f"none of {len(self.missing)}{noun} can be answered; the first, {id}: {reason}"
            )


def answer_questions(questions: Mapping[str, Q], answer: Callable[[Q], A]) -> BenchmarkAnswers[A]:
    """Return the answers to questions, and the reason for each question without an answer.

    Args:
        questions: the questions by id.
        answer: returns the answer to a question. If it raises a SteplineError, the message is kept
            as the reason why the answer is missing.
    """
    answers = BenchmarkAnswers[A]({}, {})
    # Any other error is a fault of the code, and ends the run.
    for id, question in questions.items():
        try:
            answers.by_id[id] = answer(question)
        except SteplineError as error:
            answers.missing[id] = str(error)
    return answers


class StoredFeatures:
    """Features of videos, read from a feature store or from a folder with one file per video.

    Rows are not scaled to length 1.
    """

    def __init__(self, folder: Path, rate: float = 1.0) -> None:
        """Open a folder of features.

        Args:
            folder: a feature store, or a folder with one feature file per video.
            rate: feature rows per second, for files that do not state their rate.

        Raises StoreError when there is no such folder, or when the store holds text vectors.
        """
        self._folder = folder
        self._rate = rate
        self._store = open_store_if_any(folder)
        if self._store is not None:
            require_videos(self._store, folder)

    def read(self, video: str) -> FeatureSequence:
        """Return the features of a video.

        Args:
            video: id of the video.

        Raises StoreError or ShapeError with the reason if the features cannot be read.
        """
        if self._store is not None:
            return self._store.read(video)
        file = find_feature_file(self._folder, video)
        return read_feature_file(file, rate=self._rate, unit=False)


def open_store_if_any(folder: Path) -> FeatureStore | None:
    """Return the feature store in a folder, or None if the folder has one file per video instead.

    Raises StoreError when there is no such folder.
    """
    if not folder.is_dir():
        raise StoreError(
            f"{folder}: no such folder of features; give a feature store, or files of one video "
            "each"
        )
    if not any(folder.glob("shard-*.parquet")):
        return None
    return FeatureStore(folder)
