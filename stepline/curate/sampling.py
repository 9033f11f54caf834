"""Reservoir sampling, and proportions of texts with bootstrap intervals.

A sample does not depend on the order of the stream. The bootstrap resamples videos instead of texts,
since the texts of a video resemble one another.
"""

import hashlib
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Generic, TypeVar

import numpy as np

from stepline.evaluate.bootstrap import (
    BOOTSTRAP_DRAWS,
    bootstrap_scores,
    percentile_interval,
    ratio_statistic,
)

Value = TypeVar("Value")


class ReservoirSample(Generic[Value]):
    """A random sample of a stream of values of unknown length.

    The keys and the seed decide which values are drawn, not the order of the stream.

    Args:
        count: size of the sample.
        seed: random seed.
    """

    def __init__(self, count: int, *, seed: int = 0) -> None:
        self._count = count
        self._seed = seed
        self._heap: list[tuple[int, str, Value]] = []  # the largest random key first

    def add(self, key: str, value: Value) -> None:
        """Offer a value to the sample.

        Args:
            key: unique name of the value.
            value: the value.
        """
        number = hash_to_int(self._seed, key)
        # The heap's root is the largest key, which the next smaller one replaces.
        entry = (-number, key, value)
        if len(self._heap) < self._count:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def values(self) -> list[Value]:
        """Return the drawn values, sorted by key."""
        return [value for _, _, value in sorted(self._heap, key=itemgetter(1))]


def hash_to_int(seed: int, name: str) -> int:
    """Return a pseudo-random 64-bit integer that depends on a seed and a name."""
    # A hash, so that a value is chosen by its name and not by when it comes.
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "big")


@dataclass(frozen=True)
class Proportion:
    """A proportion of texts with its 95 % interval, all NaN without texts.

    Attributes:
        value: the proportion, in [0, 1].
        low: lower end of the interval.
        high: upper end of the interval.
        texts: number of texts.
        videos: number of videos with texts.
    """

    value: float
    low: float
    high: float
    texts: int
    videos: int

    def __str__(self) -> str:
        """Return the proportion as text, such as "60.6 % [55.1, 66.0]"."""
        if math.isnan(self.value):
            return "not known"
        return f"{100 * self.value:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}]"


def estimate_proportion(hits: Sequence[float], totals: Sequence[float]) -> Proportion:
    """Return sum(hits) / sum(totals) with a 95 % interval from a bootstrap over videos.

    Args:
        hits: number of positive texts of each of V videos. A fraction counts in part.
        totals: number of texts of each of V videos.
    """
    # Both sums are over videos, which are drawn again as a whole.
    above = np.asarray(hits, dtype=np.float64)  # (V,)
    below = np.asarray(totals, dtype=np.float64)  # (V,)
    total = below.sum()
    texts = int(total)
    if not texts:
        return Proportion(math.nan, math.nan, math.nan, 0, 0)
    value = float(above.sum() / total)
    shares = bootstrap_scores({"share": ratio_statistic(above, below)}, draws=BOOTSTRAP_DRAWS)
    low, high = percentile_interval(shares["share"])
    return Proportion(value=value, low=low, high=high, texts=texts, videos=int((below > 0).sum()))
