"""Scores as functions of how often each video is drawn: the bootstrap resamples per-video sums and
never scores twice.

V videos, B draws, G groups, N items. weights: (B, V) float64, how often each video was drawn. All
ones is the score.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]

BOOTSTRAP_DRAWS = 1000  # of videos; the interval's ends then move by about a twentieth of its width
INTERVAL_PERCENT = 95.0  # percent of the draws inside the interval
MAX_WEIGHTS = 4_000_000  # in memory together: 32 MB of float64


class Statistic(Protocol):
    """A score that can be computed again for any multiset of its videos."""

    @property
    def videos(self) -> int:
        """V."""
        ...

    @property
    def width(self) -> int:
        """Numbers held for one draw, at least V. It sets how many draws fit into memory."""
        ...

    @property
    def items(self) -> int:
        """What was counted in all videos together: sentences, steps, segments, or videos for a mean
        over them."""
        ...

    def __call__(self, weights: Floats) -> Floats:
        """Return (B,) scores under weights (B, V), or NaN where a draw leaves the score
        undefined."""
        ...


def divide_or_nan(above: Floats, below: Floats) -> Floats:
    """Return above / below, NaN where below is 0."""
    shape = np.broadcast(above, below).shape
    ratios = np.full(shape, np.nan)
    np.divide(above, below, out=ratios, where=below > 0)
    return ratios


class SumOfTotals:
    """The sizes of a statistic that divides by what is counted in each video: `totals` (V,)."""

    totals: Floats

    @property
    def videos(self) -> int:
        """V."""
        return len(self.totals)

    @property
    def width(self) -> int:
        """V."""
        return len(self.totals)

    @property
    def items(self) -> int:
        """The sum of totals."""
        return int(self.totals.sum())


@dataclass(frozen=True)
class Ratio(SumOfTotals):
    """Sum over videos of `hits` (V,) divided by the sum of `totals` (V,). With totals of 1 it is
    the mean over videos."""

    hits: Floats
    totals: Floats

    def __call__(self, weights: Floats) -> Floats:
        """Return (B,) ratios."""
        hits = weights @ self.hits
        totals = weights @ self.totals
        return divide_or_nan(hits, totals)


@dataclass(frozen=True)
class GroupedRatio(Ratio):
    """A Ratio in each group of videos, then the unweighted mean over groups, then over sets of
    videos.

    group: (V,) 0..G-1. sets: (S, V) bool, which videos each test set holds.
    A group without items in a set is left out of that set's mean.
    """

    group: Integers
    sets: npt.NDArray[np.bool_]

    def by_group(self, weights: Floats) -> Floats:
        """Return (S, B, G) ratios, NaN where a group has no items."""
        # A column per group, so that one product sums the videos of each.
        last_group = int(self.group.max())
        identity = np.eye(last_group + 1)
        is_member = identity[self.group]  # (V, G)
        hits = is_member * self.hits[:, None]
        totals = is_member * self.totals[:, None]
        ratios = []
        for is_in_set in self.sets:
            set_weights = weights * is_in_set  # (B, V)
            set_hits = set_weights @ hits  # (B, G)
            ratios.append(divide_or_nan(set_hits, set_weights @ totals))
        return np.stack(ratios)

    def __call__(self, weights: Floats) -> Floats:
        """Return (B,) means of means."""
        ratios = self.by_group(weights)
        means_of_sets = mean_of_known(ratios, axis=2)  # (S, B)
        return mean_of_known(means_of_sets, axis=0)


def mean_of_known(values: Floats, axis: int) -> Floats:
    """Return the mean over an axis of what is not NaN, or NaN where nothing is known."""
    # np.nanmean would warn of a slice without numbers.
    defined = ~np.isnan(values)
    sums = np.where(defined, values, 0.0).sum(axis=axis)
    return divide_or_nan(sums, defined.sum(axis=axis).astype(np.float64))


def point_estimate(statistic: Statistic) -> float:
    """Return the score itself: every video once."""
    weights = np.ones((1, statistic.videos))
    return float(statistic(weights)[0])


def draw_videos(videos: int, draws: int, rng: np.random.Generator) -> Floats:
    """Return (draws, V): how often each video is drawn when V are drawn with replacement."""
    shape = (draws, videos)
    numbers = rng.integers(videos, size=shape)
    # a number for each (draw, video), so that all draws are counted together
    first_numbers = videos * np.arange(draws)
    draw_numbers = numbers + first_numbers[:, None]
    counts = np.bincount(draw_numbers.ravel(), minlength=draws * videos)
    return counts.reshape(shape).astype(np.float64)


def resample(
    statistics: Mapping[str, Statistic], *, draws: int = BOOTSTRAP_DRAWS, seed: int = 0
) -> dict[str, Floats]:
    """Return (draws,) scores of each statistic. All see the same draws of videos, so they can be
    compared draw by draw.

    Raises DatasetError when the statistics are not over the same videos.
    """
    if not statistics:
        return {}
    # All statistics see the same draws, so they must be of the same videos.
    all_statistics = statistics.values()
    counts = {statistic.videos for statistic in all_statistics}
    if len(counts) != 1:
        fault = f"scores over {sorted(counts)} videos cannot be resampled together"
        raise DatasetError(f"{fault}; score the same videos")
    videos = counts.pop()
    if videos == 0:
        return {name: np.full(draws, np.nan) for name in statistics}
    # some draws at a time, as many as fit into memory
    rng = np.random.default_rng(seed)
    widest = max(statistic.width for statistic in all_statistics)
    block = max(1, MAX_WEIGHTS // widest)
    parts: dict[str, list[Floats]] = {name: [] for name in statistics}
    for start in range(0, draws, block):
        weights = draw_videos(videos, min(block, draws - start), rng)
        for name, statistic in statistics.items():
            scores = statistic(weights)
            parts[name].append(scores)
    return {name: np.concatenate(values) for name, values in parts.items()}


def interval(values: Floats, level: float = INTERVAL_PERCENT) -> tuple[float, float]:
    """Return the percentile interval of bootstrap scores, without the draws that have no score, or
    NaN where no draw has one."""
    defined = values[~np.isnan(values)]
    if not len(defined):
        return math.nan, math.nan
    low_end = (100 - level) / 2  # per cent
    high_end = (100 + level) / 2
    low, high = np.percentile(defined, [low_end, high_end])
    return float(low), float(high)


@dataclass(frozen=True)
class RedrawnStatistic:
    """A statistic under other draws: `weights_of` turns draws of `videos` other units into its
    weights (B, V).

    width and items are those of the whole, also where some of its videos are never drawn.
    """

    whole: Statistic
    videos: int
    weights_of: Callable[[Floats], Floats]

    @property
    def width(self) -> int:
        """As wide as the whole."""
        return self.whole.width

    @property
    def items(self) -> int:
        """As many as the whole counts."""
        return self.whole.items

    def __call__(self, weights: Floats) -> Floats:
        """Return (B,) scores under weights (B, videos)."""
        return self.whole(self.weights_of(weights))


def over_videos(
    statistic: Statistic, own: Sequence[str], videos: Sequence[str]
) -> RedrawnStatistic:
    """Return the statistic over these videos in that order. `own` are the ids of its V videos."""
    index_of = {video: index for index, video in enumerate(own)}
    indexes = [index_of[video] for video in videos]
    columns = np.array(indexes, dtype=np.int64)

    def weights_of(drawn: Floats) -> Floats:
        # Other videos of the statistic are never drawn.
        shape = (len(drawn), statistic.videos)
        weights = np.zeros(shape)
        weights[:, columns] = drawn
        return weights

    return RedrawnStatistic(statistic, len(columns), weights_of)


def over_sources(statistic: Statistic, sources: Sequence[str]) -> RedrawnStatistic:
    """Return the statistic over sources, whose videos are drawn together.

    sources: of each of its V videos.
    """
    names, index = np.unique(np.array(sources, dtype=object), return_inverse=True)
    columns = index.reshape(-1)

    def weights_of(drawn: Floats) -> Floats:
        # A source is drawn with all of its videos.
        return drawn[:, columns]

    return RedrawnStatistic(statistic, len(names), weights_of)
