"""How well placed spans fit reference spans: overlap, recall at an overlap, mean overlap, and hits of single seconds.

Spans are (N, 2) float arrays of [start, end] seconds as the files hold them, also reversed or of no length; a
reversed span covers nothing. A text may have several reference instances; any of them counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.statistics import Floats, Ratio, Statistic

THRESHOLDS = (0.1, 0.3, 0.5, 0.7)  # of intersection over union; usual in moment retrieval, HiREST and HT-Step
Pair: TypeAlias = Sequence[float] | npt.NDArray[np.floating]
Pairs: TypeAlias = Sequence[Sequence[float]] | npt.NDArray[np.floating]


def as_spans(spans: Pairs, what: str = "spans") -> Floats:
    """Return (N, 2) float64. Raises DatasetError for another shape, NaN or infinity."""
    try:
        array = np.asarray(spans, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DatasetError(f"{what}: not numbers in pairs ({error}); give [start, end] in seconds") from error
    if array.size == 0:
        return np.zeros((0, 2))
    if array.ndim != 2 or array.shape[1] != 2:
        raise DatasetError(f"{what}: shape {array.shape}, not (N, 2); give [start, end] in seconds")
    if not np.isfinite(array).all():
        raise DatasetError(f"{what}: [{_first_bad(array)}] holds NaN or infinity; give seconds")
    return array


def _first_bad(spans: Floats) -> str:
    row = spans[~np.isfinite(spans).all(axis=1)][0]
    return f"{row[0]}, {row[1]}"


def overlap(first: Floats, second: Floats) -> Floats:
    """Return (N, M) intersection over union of (N, 2) and (M, 2); 0 where neither covers a moment.

    Two spans of no length at the same second do not overlap: they cover nothing.
    """
    start = np.maximum(first[:, None, 0], second[None, :, 0])
    end = np.minimum(first[:, None, 1], second[None, :, 1])
    shared = np.clip(end - start, 0.0, None)
    lengths = np.clip(first[:, 1] - first[:, 0], 0.0, None)[:, None] + np.clip(second[:, 1] - second[:, 0], 0.0, None)
    union = lengths - shared
    out = np.zeros_like(shared)
    np.divide(shared, union, out=out, where=union > 0)
    return np.asarray(np.clip(out, 0.0, 1.0))


def hit(second: float, instances: Floats, *, closed: bool = False) -> bool:
    """Tell whether a second lies in any instance: in [start, end), or with `closed` in [start, end]."""
    before_end = second <= instances[:, 1] if closed else second < instances[:, 1]
    return bool(((instances[:, 0] <= second) & before_end).any())


@dataclass(frozen=True)
class Fit:
    """How one video's placed spans fit: overlaps: (K,) the best one of each reference; placed: how many were given."""

    overlaps: Floats
    placed: int

    def found(self, threshold: float) -> float:
        """Return how many references are met at this intersection over union or more."""
        return float((self.overlaps >= threshold).sum())


def grounding_fit(predicted: Sequence[Pair | None], reference: Sequence[Pairs]) -> Fit:
    """Compare one predicted span a text with the instances of that text.

    predicted: K of [start, end] or None where the text was not placed (overlap 0). reference: K of instances (M, 2).
    Raises DatasetError when the lengths differ or a text has no instance.
    """
    if len(predicted) != len(reference):
        raise DatasetError(f"{len(predicted)} predicted spans for {len(reference)} texts; give one, or null, a text")
    best = np.zeros(len(reference))
    for k, (span, instances) in enumerate(zip(predicted, reference, strict=True)):
        truth = as_spans(instances, "reference")
        if not len(truth):
            raise DatasetError(f"text {k} has no reference instance; leave out texts that are not in the video")
        if span is not None:
            best[k] = overlap(as_spans([span], "prediction"), truth).max()  # type: ignore[list-item]
    return Fit(best, sum(span is not None for span in predicted))


def segmentation_fit(predicted: Pairs, reference: Pairs) -> Fit:
    """Compare spans without texts: each reference takes the predicted span that overlaps it most, one may serve many.

    That is how densevid_eval counts recall, but here `>=` decides.
    """
    given, truth = as_spans(predicted, "prediction"), as_spans(reference, "reference")
    if not len(given):
        return Fit(np.zeros(len(truth)), 0)
    return Fit(overlap(given, truth).max(axis=0), len(given))


def overlap_statistics(fits: Sequence[Fit], totals: Floats) -> dict[str, Statistic]:
    """Return recall at each threshold and mean overlap over videos; totals: (V,) references a video."""
    made: dict[str, Statistic] = {
        f"Recall@IoU {threshold}": Ratio(np.array([fit.found(threshold) for fit in fits]), totals)
        for threshold in THRESHOLDS
    }
    made["mean IoU"] = Ratio(np.array([float(fit.overlaps.sum()) for fit in fits]), totals)
    return made
