"""Precision and recall of predicted segments, as densevid_eval (by overlap) and VidChapters (by start) count them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.evaluate.events import Event, Matrix, times


@dataclass(frozen=True)
class Detection:
    """One value a threshold, in [0, 1]; the best over the reference sets, precision and recall apart."""

    precision: tuple[float, ...]
    recall: tuple[float, ...]

    @property
    def f1(self) -> tuple[float, ...]:
        """Return the harmonic mean at each threshold."""
        return tuple(map(harmonic_mean, self.precision, self.recall))


def harmonic_mean(precision: float, recall: float) -> float:
    """Return F1; 0 when both are 0."""
    return 2.0 * precision * recall / (precision + recall) if precision + recall else 0.0


def by_overlap(overlaps: Sequence[Matrix], tious: Sequence[float]) -> Detection:
    """Return detection at IoU above each tIoU, strictly. overlaps: (predictions, events) IoU, one a reference set."""
    return _detection([overlap > tiou for overlap in overlaps] for tiou in tious)


def by_start(wanted: Sequence[Sequence[Event]], given: Sequence[Event], distances: Sequence[float]) -> Detection:
    """Return detection with starts closer than each distance. wanted: events of each reference set. Seconds."""
    starts = times(given)[:, 0]
    apart = [np.abs(starts[:, None] - times(events)[None, :, 0]) for events in wanted]  # (predictions, events)
    return _detection([matrix < distance for matrix in apart] for distance in distances)


def _detection(hits: Iterable[list[npt.NDArray[np.bool_]]]) -> Detection:
    """hits: per threshold, one (predictions, events) matrix a reference set."""
    precision, recall = [], []
    for matrices in hits:
        precision.append(max(float(hit.any(axis=1).mean()) if len(hit) else 0.0 for hit in matrices))
        recall.append(max(float(hit.any(axis=0).mean()) for hit in matrices))
    return Detection(tuple(precision), tuple(recall))
