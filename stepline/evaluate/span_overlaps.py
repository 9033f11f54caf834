"""How well predicted spans overlap those of a reference: intersection over union, and recall at it.

Spans are (N, 2) float arrays of [start, end] seconds as the files hold them, also reversed or of no
length. A reversed span covers nothing. A text may have several reference instances. Any of them
counts.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Statistic, ratio

# of intersection over union, usual in moment retrieval, HiREST and HT-Step
IOU_THRESHOLDS = (0.1, 0.3, 0.5, 0.7)
FloatArray: TypeAlias = npt.NDArray[np.floating]
Pair: TypeAlias = Sequence[float] | FloatArray
Pairs: TypeAlias = Sequence[Sequence[float]] | FloatArray


def span_array(spans: Pairs, what: str = "spans") -> Floats:
    """Return (N, 2) float64. Raises DatasetError for another shape, NaN or infinity."""
    try:
        array = np.asarray(spans, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        fault = f"{what}: not numbers in pairs ({error})"
        raise DatasetError(f"{fault}; give [start, end] in seconds") from error
    if array.size == 0:
        return np.zeros((0, 2))
    if array.ndim != 2 or array.shape[1] != 2:
        raise DatasetError(f"{what}: shape {array.shape}, not (N, 2); give [start, end] in seconds")
    has_times = np.isfinite(array).all(axis=1)
    if not has_times.all():
        start, end = array[~has_times][0]
        raise DatasetError(f"{what}: [{start}, {end}] holds NaN or infinity; give seconds")
    return array


def temporal_iou(first: Floats, second: Floats) -> Floats:
    """Return (N, M) intersection over union of (N, 2) and (M, 2), or 0 where neither covers a
    moment.

    Two spans of no length at the same second do not overlap: they cover nothing.
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
    """Return whether a second is in any instance: in [start, end), or with `closed` in [start,
    end]."""
    starts, ends = instances.T
    before_end = second <= ends if closed else second < ends
    return bool(((starts <= second) & before_end).any())


def grounding_overlaps(predicted: Sequence[Pair | None], reference: Sequence[Pairs]) -> Floats:
    """Return (K,) the best overlap of one predicted span per text with the instances of that text.

    predicted: K of [start, end] or None where the text was not placed (overlap 0). reference: K of
    instances (M, 2).
    Raises DatasetError when the lengths differ or a text has no instance.
    """
    if len(predicted) != len(reference):
        counts = f"{len(predicted)} predicted spans for {len(reference)} texts"
        raise DatasetError(f"{counts}; give one, or null, per text")
    best = np.zeros(len(reference))
    for k, span in enumerate(predicted):
        instances = span_array(reference[k], "reference")
        if not len(instances):
            fault = f"text {k} has no reference instance"
            raise DatasetError(f"{fault}; leave out texts that are not in the video")
        if span is not None:
            prediction = span_array([span], "prediction")  # type: ignore[list-item]
            best[k] = temporal_iou(prediction, instances).max()
    return best


def overlap_statistics(fits: Sequence[Floats], totals: Floats) -> dict[str, Statistic]:
    """Return recall at each threshold and mean overlap over videos.

    fits: the overlaps of each video. totals: (V,) references per video.
    """
    statistics = {}
    for threshold in IOU_THRESHOLDS:
        hits = counts_at_least(threshold, fits)
        statistics[f"Recall@IoU {threshold}"] = ratio(hits, totals)
    statistics["mean IoU"] = ratio(overlap_sums(fits), totals)
    return statistics


def counts_at_least(threshold: float, fits: Sequence[Floats]) -> Floats:
    """Return (V,) how many spans of each video overlap at least so far."""
    return np.array([float((overlaps >= threshold).sum()) for overlaps in fits])


def overlap_sums(fits: Sequence[Floats]) -> Floats:
    """Return (V,) the sum of each video's best overlaps."""
    return np.array([float(overlaps.sum()) for overlaps in fits])


def instances_by_step(segments: Floats, steps: Sequence[int]) -> dict[int, Floats]:
    """Return step -> its segments (M, 2), in the order of the steps' numbers. steps: of each
    segment."""
    numbers = np.array(steps, dtype=np.int64)
    return {step: segments[numbers == step] for step in sorted(set(steps))}
