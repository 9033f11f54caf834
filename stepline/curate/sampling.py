"""A random part of a stream of unknown length, and proportions of texts with their intervals.

The part is the same in whatever order the stream comes. Proportions come from calibrated scores,
from people's verdicts, and from both. Videos, not texts, are drawn again for the intervals, since
the texts of a video resemble one another.

Source: Cochran, Sampling Techniques, 1977, sections 6.4 (ratio estimate) and 7 (difference
estimate).
"""

import hashlib
import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Generic, TypeVar

import numpy as np

from stepline.evaluate.bootstrap import BOOTSTRAP_DRAWS, Floats, interval, ratio, resample

Value = TypeVar("Value")


class ReservoirSample(Generic[Value]):
    """At most `count` of all values that are added, each equally likely. They are chosen by their
    key and the seed alone."""

    def __init__(self, count: int, *, seed: int = 0) -> None:
        self._count = count
        self._seed = seed
        self._heap: list[tuple[int, str, Value]] = []  # the largest random key first

    def add(self, key: str, value: Value) -> None:
        """Consider a value. Keys are unique."""
        number = random_key(self._seed, key)
        # The heap's root is the largest key, which the next smaller one replaces.
        entry = (-number, key, value)
        if len(self._heap) < self._count:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def items(self) -> list[tuple[str, Value]]:
        """Return the sample as (key, value), sorted by key."""
        pairs = [(key, value) for _, key, value in self._heap]
        return sorted(pairs, key=itemgetter(0))

    def values(self) -> list[Value]:
        """Return the sample's values, sorted by key."""
        return [value for _, value in self.items()]


def random_key(seed: int, name: str) -> int:
    """Return 64 bits of a name, others for another seed."""
    # A hash, so that a value is chosen by its name and not by when it comes.
    content = f"{seed} {name}".encode()
    digest = hashlib.sha256(content).digest()
    return int.from_bytes(digest[:8], "big")


# videos beyond which the interval follows from the spread between videos instead of from draws
MAX_DRAWN_VIDEOS = 4000
ERRORS_EACH_WAY = 1.96  # standard errors, in a 95 % interval


@dataclass(frozen=True)
class Proportion:
    """A proportion in [0, 1] with its 95 % interval, and the numbers of texts and videos behind it.
    NaN: not known."""

    value: float
    low: float
    high: float
    texts: int
    videos: int

    def __str__(self) -> str:
        """Return it as people read it: 60.6 % [55.1, 66.0]."""
        if math.isnan(self.value):
            return "not known"
        interval = f"[{100 * self.low:.1f}, {100 * self.high:.1f}]"
        return f"{100 * self.value:.1f} % {interval}"


NOT_KNOWN = Proportion(math.nan, math.nan, math.nan, 0, 0)


def proportion(hits: Sequence[float], totals: Sequence[float], *, seed: int = 0) -> Proportion:
    """Return the ratio estimate sum(hits) / sum(totals), each over V videos.

    NOT_KNOWN where there are no totals.
    """
    # Both sums are over videos, which are drawn again as a whole.
    above = np.asarray(hits, dtype=np.float64)  # (V,)
    below = np.asarray(totals, dtype=np.float64)  # (V,)
    total = below.sum()
    texts = int(total)
    has_texts = below > 0
    videos = int(has_texts.sum())
    if not texts:
        return NOT_KNOWN
    value = float(above.sum() / total)
    if videos > MAX_DRAWN_VIDEOS:
        # The variance of a ratio from the residuals of its videos (Cochran, section 6.4).
        residuals = above - value * below
        squares = float((residuals**2).sum())
        count = len(above)
        variance = squares * count / max(1, count - 1)
        standard_error = math.sqrt(variance) / float(total)
        margin = ERRORS_EACH_WAY * standard_error
        low = value - margin
        high = value + margin
    else:
        low, high = _bootstrap_interval(above, below, seed)
    return Proportion(
        value=value, low=max(0.0, low), high=min(1.0, high), texts=texts, videos=videos
    )


def _bootstrap_interval(above: Floats, below: Floats, seed: int) -> tuple[float, float]:
    ratios = {"share": ratio(above, below)}
    shares = resample(ratios, draws=BOOTSTRAP_DRAWS, seed=seed)
    return interval(shares["share"])


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

    scores, verdicts: of the audited texts, by id, each in [0, 1]. videos: the video of each.
    mean_score: of all texts of the dataset. The interval is that of the correction, which needs no
    calibrated score and gains from a good one.
    Source: Cochran, section 7.
    """
    texts = sorted(scores.keys() & verdicts.keys())
    if not texts or math.isnan(mean_score):
        return NOT_KNOWN
    audited_videos = {videos[text] for text in texts}
    names = sorted(audited_videos)
    video_count = len(names)
    # The corrections of each video: its texts resemble one another.
    differences = np.zeros(video_count)
    counts = np.zeros(video_count)
    for text in texts:
        row = names.index(videos[text])
        differences[row] += verdicts[text] - scores[text]
        counts[row] += 1
    low, high = _bootstrap_interval(differences, counts, seed)
    # Added to the mean score of all texts, as Cochran's difference estimate.
    mean = differences.sum() / counts.sum()
    mean_difference = float(mean)
    return Proportion(
        value=_clipped(mean_score + mean_difference),
        low=_clipped(mean_score + low),
        high=_clipped(mean_score + high),
        texts=len(texts),
        videos=video_count,
    )


def _clipped(share: float) -> float:
    return min(1.0, max(0.0, share))
