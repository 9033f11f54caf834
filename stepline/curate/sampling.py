"""A random part of a stream of unknown length: the same part in whatever order the stream comes.

Shares of texts with intervals: from calibrated scores, from people's verdicts, and from both.

Videos, not texts, are drawn again for the intervals, since the texts of a video resemble one another.
"""

import hashlib
import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from stepline.evaluate.bootstrap import DRAWS, Floats, Ratio, interval, resample

T = TypeVar("T")


class Some(Generic[T]):
    """At most `count` of all that is added, each equally likely; chosen by its name and the seed alone."""

    def __init__(self, count: int, *, seed: int = 0) -> None:
        self._count, self._seed = count, seed
        self._held: list[tuple[int, str, T]] = []  # a heap, the largest number first
        self.seen = 0

    def add(self, name: str, thing: T) -> None:
        """Consider a thing; names are unique."""
        self.seen += 1
        entry = (-number(self._seed, name), name, thing)
        if len(self._held) < self._count:
            heapq.heappush(self._held, entry)
        elif self._count and entry[0] > self._held[0][0]:
            heapq.heapreplace(self._held, entry)

    def chosen(self) -> list[tuple[str, T]]:
        """Return what is held, sorted by name."""
        return sorted(((name, thing) for _, name, thing in self._held), key=lambda pair: pair[0])


def number(seed: int, name: str) -> int:
    """Return 64 bits of a name that another seed makes others."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "big")


MANY = 4000  # videos from which the interval follows from the spread between videos instead of from draws
NORMAL = 1.96  # standard errors each way in a 95 % interval


@dataclass(frozen=True)
class Share:
    """A share in [0, 1] with its 95 % interval, over so many texts of so many videos. NaN: nothing to go by."""

    value: float
    low: float
    high: float
    texts: int
    videos: int


def share(hits: Sequence[float], totals: Sequence[float], *, seed: int = 0) -> Share:
    """Return sum(hits) / sum(totals), each over V videos, and its interval; NaN where there are no totals."""
    above, below = np.asarray(hits, dtype=np.float64), np.asarray(totals, dtype=np.float64)
    texts, videos = int(below.sum()), int((below > 0).sum())
    if not texts:
        return Share(math.nan, math.nan, math.nan, 0, 0)
    value = float(above.sum() / below.sum())
    low, high = _spread(above, below, value) if videos > MANY else _drawn(above, below, seed)
    return Share(value, max(0.0, low), min(1.0, high), texts, videos)


def _drawn(above: Floats, below: Floats, seed: int) -> tuple[float, float]:
    return interval(resample({"share": Ratio(above, below)}, draws=DRAWS, seed=seed)["share"])


def _spread(above: Floats, below: Floats, value: float) -> tuple[float, float]:
    """Return the interval of a ratio from the residuals of its videos (Cochran 1977, section 6.4)."""
    residuals = above - value * below
    error = math.sqrt(float((residuals**2).sum()) * len(above) / max(1, len(above) - 1)) / float(below.sum())
    return value - NORMAL * error, value + NORMAL * error


def corrected(
    scores: Mapping[str, float],
    verdicts: Mapping[str, float],
    owner: Mapping[str, str],
    everywhere: float,
    *,
    seed: int = 0,
) -> Share:
    """Return the mean score of all texts, corrected by how far scores lie from the verdicts where both are known.

    scores, verdicts: of the audited texts, by id, each in [0, 1]; owner: the video of each. everywhere: the mean score
    of all texts of the dataset. The interval is that of the correction: the difference estimator of sampling theory
    (Cochran 1977, section 7), which needs no calibrated score and gains from a good one.
    """
    both = sorted(scores.keys() & verdicts.keys())
    videos = sorted({owner[text] for text in both})
    place = {video: number for number, video in enumerate(videos)}
    off, count = np.zeros(len(videos)), np.zeros(len(videos))
    for text in both:
        off[place[owner[text]]] += verdicts[text] - scores[text]
        count[place[owner[text]]] += 1
    if not both or math.isnan(everywhere):
        return Share(math.nan, math.nan, math.nan, 0, 0)
    low, high = _drawn(off, count, seed)
    ends = [min(1.0, max(0.0, everywhere + end)) for end in (float(off.sum() / count.sum()), low, high)]
    return Share(ends[0], ends[1], ends[2], len(both), len(videos))


def written(share: Share) -> str:
    """Return a share as people read it: 60.6 % [55.1, 66.0]."""
    if math.isnan(share.value):
        return "not known"
    return f"{100 * share.value:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}]"
