"""Temporal IoU of predicted and reference spans, and recall at IoU.

Spans are (N, 2) float arrays of [start, end] seconds as the files hold them, also reversed or
empty. A reversed span covers nothing. A text may have several reference instances (M of them), and
each one counts. V videos, K texts.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Statistic, ratio_statistic

# Of intersection over union, usual in moment retrieval and HiREST.
IOU_THRESHOLDS = (0.1, 0.3, 0.5, 0.7)
FloatArray = npt.NDArray[np.floating]
Pair = Sequence[float] | FloatArray
Pairs = Sequence[Sequence[float]] | FloatArray


def span_array(spans: Pairs, location: str = "spans") -> Floats:
    """Return (start, end) pairs in seconds as a float64 array (N, 2).

    Args:
        spans: the pairs.
        location: name of their file or field, for the error message.

    Raises DatasetError for NaN or infinity.
    """
    array = np.asarray(spans, dtype=np.float64).reshape(-1, 2)
    is_finite = np.isfinite(array).all(axis=1)
    if not is_finite.all():
        start, end = array[~is_finite][0]
        raise DatasetError(f"{location}: [{start}, {end}] holds NaN or infinity; give seconds")
    return array


def temporal_iou(first: Floats, second: Floats) -> Floats:
    """Return the temporal IoU (N, M) of each of N spans with each of M spans.

    It is 0 for two empty spans, even at the same second.

    Args:
        first: (N, 2) start and end in seconds.
        second: (M, 2) start and end in seconds.
    """
    first_starts, first_ends = first.T[:, :, None]  # (N, 1)
    second_starts, second_ends = second.T  # (M,)
    start = np.maximum(first_starts, second_starts)  # (N, M)
    shared = _lengths(start, np.minimum(first_ends, second_ends))
    union = _lengths(first_starts, first_ends) + _lengths(second_starts, second_ends) - shared
    overlaps = np.zeros_like(shared)
    np.divide(shared, union, out=overlaps, where=union > 0)
    # Rounding may leave a ratio just above 1.
    return np.asarray(np.clip(overlaps, 0.0, 1.0))


def _lengths(starts: Floats, ends: Floats) -> Floats:
    return np.clip(ends - starts, 0.0, None)


def is_inside_any(second: float, instances: Floats, *, closed: bool = False) -> bool:
    """Return whether a second is inside any of several spans.

    Args:
        second: a time in seconds.
        instances: (M, 2) start and end of the spans in seconds.
        closed: True counts the end of a span as inside, False does not.
    """
    starts, ends = instances.T
    before_end = second <= ends if closed else second < ends
    return bool(((starts <= second) & before_end).any())


def grounding_overlaps(predicted: Sequence[Pair | None], reference: Sequence[Floats]) -> Floats:
    """Return (K,) the IoU of each predicted span with the reference span that it overlaps most.

    Args:
        predicted: for each of K texts, the predicted (start, end) in seconds. None: no prediction,
            so the IoU is 0.
        reference: for each of K texts, its reference spans (M, 2) in seconds, at least one.
    """
    best = np.zeros(len(reference))
    for index, (span, instances) in enumerate(zip(predicted, reference, strict=True)):
        if span is not None:
            best[index] = temporal_iou(np.array([span], dtype=np.float64), instances).max()
    return best


def overlap_statistics(overlaps_by_video: Sequence[Floats], totals: Floats) -> dict[str, Statistic]:
    """Return metric name -> statistic: recall at each IoU threshold, and mean IoU.

    Args:
        overlaps_by_video: for each of V videos, (M,) the best IoU of each of its M reference spans
            with a predicted span.
        totals: (V,) number of reference spans of each video.
    """
    statistics = {}
    for threshold in IOU_THRESHOLDS:
        hits = counts_at_least(threshold, overlaps_by_video)
        statistics[f"Recall@IoU {threshold}"] = ratio_statistic(hits, totals)
    statistics["mean IoU"] = ratio_statistic(best_overlap_sums(overlaps_by_video), totals)
    return statistics


def counts_at_least(threshold: float, overlaps_by_video: Sequence[Floats]) -> Floats:
    """Return (V,) the number of spans of each video whose best temporal IoU reaches `threshold`.

    Args:
        threshold: least IoU, in [0, 1].
        overlaps_by_video: for each of V videos, (M,) the best IoU of each of its M spans with a
            span of the other side (reference or prediction).
    """
    return np.array([float((overlaps >= threshold).sum()) for overlaps in overlaps_by_video])


def best_overlap_sums(overlaps_by_video: Sequence[Floats]) -> Floats:
    """Return (V,) the sum, over the spans of each video, of the best temporal IoU with a span of
    the other side.

    overlaps_by_video: for each of V videos, (M,) best IoU of each of its M spans. A reference span
    is compared with the predicted spans, a predicted span with the reference spans.
    """
    return np.array([float(overlaps.sum()) for overlaps in overlaps_by_video])
