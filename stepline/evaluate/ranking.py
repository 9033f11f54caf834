"""How well scores rank the positives first: area under the ROC curve and average precision, ties as
scikit-learn does.

N items. labels: (N,) 1 positive, 0 negative. scores: (N,) higher means more likely positive. video:
(N,) 0..V-1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Integers, divide_or_nan, point_estimate

Numbers: TypeAlias = Sequence[float] | npt.NDArray[np.floating] | npt.NDArray[np.integer]


@dataclass(frozen=True)
class RankingStatistic:
    """Labelled scores of items that belong to videos."""

    labels: Floats
    scores: Floats
    video: Integers
    videos: int  # V

    @property
    def width(self) -> int:
        """The larger of V and N."""
        return max(self.videos, len(self.labels))

    @property
    def items(self) -> int:
        """N."""
        return len(self.labels)

    @cached_property
    def order(self) -> Integers:
        """Return (N,) the items from the highest score to the lowest."""
        return np.argsort(-self.scores, kind="stable")

    @cached_property
    def last(self) -> Integers:
        """Return, for each distinct score in that order, the index of its last item: a threshold
        lies behind it."""
        ranked = self.scores[self.order]
        ends = np.flatnonzero(np.diff(ranked))
        return np.append(ends, len(ranked) - 1).astype(np.int64)

    def curves(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the weights of positives and of negatives at or above each distinct score: two (B,
        D)."""
        if not len(self.labels):
            shape = (len(weights), 1)
            nothing = np.zeros(shape)
            return nothing, nothing
        # Items from the best score down, each with the weight of its video.
        ranked_videos = self.video[self.order]
        ranked_labels = self.labels[self.order]
        item_weights = weights[:, ranked_videos]  # (B, N)
        positive_weights = item_weights * ranked_labels
        negative_weights = item_weights - positive_weights
        positive_sums = positive_weights.cumsum(axis=1)
        negative_sums = negative_weights.cumsum(axis=1)
        # Equal scores share a threshold, which is behind the last of them.
        above = positive_sums[:, self.last]
        return above, negative_sums[:, self.last]


@dataclass(frozen=True)
class RocAuc(RankingStatistic):
    """ROC-AUC: how often a positive scores above a negative, a tie counting half. It is NaN with
    one class only."""

    def __call__(self, weights: Floats) -> Floats:
        """Return (B,) areas."""
        above, wrong = self.curves(weights)
        shape = (len(above), 1)
        none_above = np.zeros(shape)
        earlier_above = above[:, :-1]
        before = np.hstack([none_above, earlier_above])
        # Trapezoids over the negatives, so that a tie counts half.
        step = np.diff(wrong, prepend=0.0, axis=1)
        wins = (step * (before + above) / 2).sum(axis=1)
        return divide_or_nan(wins, above[:, -1] * wrong[:, -1])


@dataclass(frozen=True)
class AveragePrecision(RankingStatistic):
    """Sum over distinct scores of the gain in recall times the precision there, not interpolated.
    It is NaN with one class only."""

    def __call__(self, weights: Floats) -> Floats:
        """Return (B,) average precisions."""
        above, wrong = self.curves(weights)
        gain = np.diff(above, prepend=0.0, axis=1)
        gained_precision = gain * np.nan_to_num(divide_or_nan(above, above + wrong))
        sums = gained_precision.sum(axis=1)
        # With one class only a ranking is undefined, as for the area.
        negatives = wrong[:, -1]
        positives = above[:, -1]
        positives = np.where(negatives > 0, positives, 0.0)
        return divide_or_nan(sums, positives)


def roc_auc(labels: Numbers, scores: Numbers) -> float:
    """Return the area under the ROC curve.

    Raises DatasetError when it is undefined: one class only, scores that are not finite, or lengths
    that differ.
    """
    truth, values, video = require_both_classes(labels, scores)
    return point_estimate(RocAuc(truth, values, video, 1))


def require_both_classes(labels: Numbers, scores: Numbers) -> tuple[Floats, Floats, Integers]:
    """Return labels, scores and a video index of zeros. Raise DatasetError where no ranking is
    defined."""
    truth = np.asarray(labels, dtype=np.float64)
    values = np.asarray(scores, dtype=np.float64)
    if truth.shape != values.shape or truth.ndim != 1:
        shapes = f"{truth.shape} labels and {values.shape} scores"
        raise DatasetError(f"{shapes}; give one score per label, in one list each")
    if not np.isin(truth, (0.0, 1.0)).all():
        raise DatasetError("a label is neither 0 nor 1; give 1 for a positive and 0 for a negative")
    if not np.isfinite(values).all():
        raise DatasetError("a score is NaN or infinite; give a finite score for every item")
    if not len(truth):
        raise DatasetError("a ranking score is undefined with no item; give items of both classes")
    if len(np.unique(truth)) < 2:
        only = f"only label {truth[0]:g}"
        raise DatasetError(f"a ranking score is undefined with {only}; give items of both classes")
    return truth, values, np.zeros(len(truth), dtype=np.int64)
