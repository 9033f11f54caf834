"""A random part of a stream of unknown length, and proportions of texts with their intervals.

The part is the same in whatever order the stream comes. Proportions come from calibrated scores,
from people's verdicts, and from both; videos, not texts, are drawn again for the intervals, since
the texts of a video resemble one another.

Source: Cochran, Sampling Techniques, 1977, sections 6.4 (ratio estimate) and 7 (difference
estimate).
"""

import hashlib
import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from stepline.evaluate.bootstrap import BOOTSTRAP_DRAWS, Floats, Ratio, interval, resample

Value = TypeVar("Value")


class ReservoirSample(Generic[Value]):
    """At most `count` of all values that are added, each equally likely; chosen by its key and the
    seed alone."""

    def __init__(self, count: int, *, seed: int = 0) -> None:
        self._count, self._seed = count, seed
        self._heap: list[tuple[int, str, Value]] = []  # the largest random key first

    def add(self, key: str, value: Value) -> None:
        """Consider a value; keys are unique."""
        entry = (-random_key(self._seed, key), key, value)
        if len(self._heap) < self._count:
            heapq.heappush(self._heap, entry)
        elif self._count and entry[0] > self._heap[0][0]:
            heapq.heapreplace(self._heap, entry)

    def items(self) -> list[tuple[str, Value]]:
        """Return the sample as (key, value), sorted by key."""
        return sorted(((key, value) for _, key, value in self._heap), key=lambda pair: pair[0])

    def values(self) -> list[Value]:
        """Return the sample's values, sorted by key."""
        return [value for _, value in self.items()]


def random_key(seed: int, name: str) -> int:
    """Return 64 bits of a name that another seed makes others."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "big")


# videos from which the interval follows from the spread between videos instead of from draws
MANY = 4000
NORMAL = 1.96  # standard errors each way in a 95 % interval


@dataclass(frozen=True)
class Proportion:
    """A proportion in [0, 1] with its 95 % interval, over so many texts of so many videos. NaN:
    nothing to go by."""

    value: float
    low: float
    high: float
    texts: int
    videos: int

    def __str__(self) -> str:
        """Return it as people read it: 60.6 % [55.1, 66.0]."""
        if math.isnan(self.value):
            return "not known"
        return f"{100 * self.value:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}]"


UNKNOWN = Proportion(math.nan, math.nan, math.nan, 0, 0)


def proportion(hits: Sequence[float], totals: Sequence[float], *, seed: int = 0) -> Proportion:
    """Return the ratio estimate sum(hits) / sum(totals), each over V videos; UNKNOWN where there
    are no totals."""
    above, below = np.asarray(hits, dtype=np.float64), np.asarray(totals, dtype=np.float64)
    texts, videos = int(below.sum()), int((below > 0).sum())
    if not texts:
        return UNKNOWN
    value = float(above.sum() / below.sum())
    if videos > MANY:
        # The variance of a ratio from the residuals of its videos (Cochran, section 6.4).
        residuals = above - value * below
        error = math.sqrt(
            float((residuals**2).sum()) * len(above) / max(1, len(above) - 1)
        ) / float(below.sum())
        low, high = value - NORMAL * error, value + NORMAL * error
    else:
        low, high = _bootstrap_interval(above, below, seed)
    return Proportion(value, max(0.0, low), min(1.0, high), texts, videos)


def _bootstrap_interval(above: Floats, below: Floats, seed: int) -> tuple[float, float]:
    return interval(
        resample({"share": Ratio(above, below)}, draws=BOOTSTRAP_DRAWS, seed=seed)["share"]
    )


def audited_mean(
    scores: Mapping[str, float],
    verdicts: Mapping[str, float],
    videos: Mapping[str, str],
    mean_score: float,
    *,
    seed: int = 0,
) -> Proportion:
    """Return the difference estimate: the mean score of all texts, corrected by the audited texts'
    verdicts.

    scores, verdicts: of the audited texts, by id, each in [0, 1]; videos: the video of each.
    mean_score: of all texts of the dataset. The interval is that of the correction, which needs no
    calibrated score and gains from a good one.
    Source: Cochran, section 7.
    """
    both = sorted(scores.keys() & verdicts.keys())
    if not both or math.isnan(mean_score):
        return UNKNOWN
    rows = {video: row for row, video in enumerate(sorted({videos[text] for text in both}))}
    difference, count = np.zeros(len(rows)), np.zeros(len(rows))
    for text in both:
        difference[rows[videos[text]]] += verdicts[text] - scores[text]
        count[rows[videos[text]]] += 1
    low, high = _bootstrap_interval(difference, count, seed)
    value, low, high = (
        min(1.0, max(0.0, mean_score + part))
        for part in (float(difference.sum() / count.sum()), low, high)
    )
    return Proportion(value, low, high, len(both), len(rows))
