"""A benchmark answered by a trained network, whatever network it is: what is asked, what could be
answered, and why the rest could not.

    answers = answer_each({video: video for video in videos}, answer)
    answers.require_any(" videos")

`answer` raises a SteplineError where a question cannot be answered: its features are missing, say.
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
class Questions(Generic[Q]):
    """What a benchmark asks, in its order, and by id why other videos of its files ask nothing."""

    questions: tuple[Q, ...]
    unasked: Mapping[str, str]

    def reasons(self) -> dict[str, int]:
        """Return how many videos ask nothing for each reason, the most frequent first."""
        return dict(Counter(self.unasked.values()).most_common())


@dataclass(frozen=True)
class BenchmarkAnswers(Generic[A]):
    """The answers by id, and by id why there is no answer."""

    by_id: dict[str, A]
    missing: dict[str, str]

    @property
    def count(self) -> int:
        """How many questions are answered."""
        return len(self.by_id)

    def require_any(self, noun: str = "") -> None:
        """Raise DatasetError where nothing is answered. noun: what is asked, such as " videos"."""
        if not self.by_id:
            id, reason = next(iter(self.missing.items()))
            count = f"none of {len(self.missing)}{noun}"
            raise DatasetError(f"{count} can be answered; the first, {id}: {reason}")


def answer_each(questions: Mapping[str, Q], answer: Callable[[Q], A]) -> BenchmarkAnswers[A]:
    """Return the answers of questions by id, or its message where `answer` raises a
    SteplineError."""
    answers = BenchmarkAnswers[A]({}, {})
    # Any other error is a fault of the code, and ends the run.
    for id, question in questions.items():
        try:
            answers.by_id[id] = answer(question)
        except SteplineError as error:
            answers.missing[id] = str(error)
    return answers


class StoredFeatures:
    """The features of videos by id, rows as they are. Raises StoreError where the folder is not
    there."""

    def __init__(self, folder: Path, rate: float = 1.0) -> None:
        """folder: a feature store, or files of one video each. rate: rows per second of files that
        do not say it. Raises StoreError for a store of texts' vectors."""
        self._folder = folder
        self._rate = rate
        self._store = store_or_files(folder)
        if self._store is not None:
            require_videos(self._store, folder)

    def read(self, video: str) -> FeatureSequence:
        """Return the features of a video. Raises StoreError or ShapeError, which say what is
        wrong."""
        if self._store is not None:
            return self._store.read(video)
        file = find_feature_file(self._folder, video)
        return read_feature_file(file, rate=self._rate, unit=False)


def store_or_files(folder: Path) -> FeatureStore | None:
    """Return the store in a folder, None where it holds files of one video each. Raises StoreError
    where it is not a folder."""
    if not folder.is_dir():
        cure = "give a feature store, or files of one video each"
        raise StoreError(f"{folder}: no such folder of features; {cure}")
    if not any(folder.glob("shard-*.parquet")):
        return None
    return FeatureStore(folder)
