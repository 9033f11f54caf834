"""Temporal IoU of predicted and reference spans, and recall at IoU.

Spans are (N, 2) float arrays of [start, end] seconds as the files hold them, also reversed or
empty. A reversed span covers nothing. A text may have several reference instances (M of them), and
each one counts. V videos, K texts.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Statistic, ratio

# Of intersection over union, usual in moment retrieval and HiREST.
IOU_THRESHOLDS = (0.1, 0.3, 0.5, 0.7)
FloatArray: TypeAlias = npt.NDArray[np.floating]
Pair: TypeAlias = Sequence[float] | FloatArray
Pairs: TypeAlias = Sequence[Sequence[float]] | FloatArray


def span_array(spans: Pairs, location: str = "spans") -> Floats:
    """Return spans as (N, 2) float64 seconds. Raises DatasetError for NaN or infinity.

    location: where the spans come from, for the error.
    """
    array = np.asarray(spans, dtype=np.float64).reshape(-1, 2)
    is_finite = np.isfinite(array).all(axis=1)
    if not is_finite.all():
        start, end = array[~is_finite][0]
        raise DatasetError(f"{location}: [{start}, {end}] holds NaN or infinity; give seconds")
    return array


def temporal_iou(first: Floats, second: Floats) -> Floats:
    """Return (N, M) intersection over union of spans (N, 2) and (M, 2).

    It is 0 where both spans are empty, also at the same second.
    """
    first_starts, first_ends = first.T[:, :, None]  # (N, 1)
    second_starts, second_ends = second.T  # (M,)
    start = np.maximum(first_starts, second_starts)  # (N, M)
    shared = _lengths(start, np.minimum(first_ends, second_ends))
    first_lengths = _lengths(first_starts, first_ends)
    union = first_lengths + _lengths(second_starts, second_ends) - shared
    overlaps = np.zeros_like(shared)
    np.divide(shared, union, out=overlaps, where=union > 0)
    # Rounding may leave a ratio just above 1.
    return np.asarray(np.clip(overlaps, 0.0, 1.0))


def _lengths(starts: Floats, ends: Floats) -> Floats:
    return np.clip(ends - starts, 0.0, None)


def is_inside_any(second: float, instances: Floats, *, closed: bool = False) -> bool:
    """Return whether a second is inside any of the instances (M, 2).

    An instance covers [start, end), or with `closed` [start, end].
    """
    starts, ends = instances.T
    before_end = second <= ends if closed else second < ends
    return bool(((starts <= second) & before_end).any())


def grounding_overlaps(predicted: Sequence[Pair | None], reference: Sequence[Floats]) -> Floats:
    """Return (K,) the best IoU of one predicted span per text with the instances of that text.

    Args:
        predicted: K predicted [start, end] in seconds, None where the text was not found (IoU 0).
        reference: K arrays of instances (M, 2) in seconds, at least one instance each.
    """
    best = np.zeros(len(reference))
    for index, (span, instances) in enumerate(zip(predicted, reference, strict=True)):
        if span is not None:
            best[index] = temporal_iou(np.array([span], dtype=np.float64), instances).max()
    return best


def overlap_statistics(overlaps_by_video: Sequence[Floats], totals: Floats) -> dict[str, Statistic]:
    """Return the statistics recall at each IoU threshold, and mean IoU.

    Args:
        overlaps_by_video: V arrays with the best IoU of each reference span.
        totals: (V,) reference spans per video.
    """
    statistics = {}
    for threshold in IOU_THRESHOLDS:
        hits = counts_at_least(threshold, overlaps_by_video)
        statistics[f"Recall@IoU {threshold}"] = ratio(hits, totals)
    statistics["mean IoU"] = ratio(overlap_sums(overlaps_by_video), totals)
    return statistics


def counts_at_least(threshold: float, overlaps_by_video: Sequence[Floats]) -> Floats:
    """Return (V,) the number of spans per video with at least this IoU."""
    return np.array([float((overlaps >= threshold).sum()) for overlaps in overlaps_by_video])


def overlap_sums(overlaps_by_video: Sequence[Floats]) -> Floats:
    """Return (V,) the sum of the best IoUs of each video."""
    return np.array([float(overlaps.sum()) for overlaps in overlaps_by_video])
