"""Scores as functions of how often each video is drawn: the bootstrap resamples per-video sums and
never scores twice.

V videos, B draws, G groups, N items. weights: (B, V) float64, how often each video was drawn. All
ones is the score.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]

BOOTSTRAP_DRAWS = 1000  # of videos; the interval's ends then move by about a twentieth of its width
INTERVAL_PERCENT = 95.0  # percent of the draws inside the interval
MAX_WEIGHTS = 4_000_000  # in memory together: 32 MB of float64


@dataclass(frozen=True)
class Statistic:
    """A score that can be computed again for any multiset of its videos.

    score: weights (B, V) -> (B,) scores, NaN where a draw leaves the score undefined. videos: V.
    items: what was counted in all videos together: sentences, steps, segments, or videos for a mean
    over them. width: numbers held for one draw where more than V. It sets how many draws fit into
    memory.
    """

    score: Callable[[Floats], Floats]
    videos: int
    items: int
    width: int = 0


def divide_or_nan(above: Floats, below: Floats) -> Floats:
    """Return above / below, NaN where below is 0."""
    shape = np.broadcast(above, below).shape
    ratios = np.full(shape, np.nan)
    np.divide(above, below, out=ratios, where=below > 0)
    return ratios


def ratio(hits: Floats, totals: Floats) -> Statistic:
    """Return the sum over videos of `hits` (V,) divided by the sum of `totals` (V,). With totals of
    1 it is the mean over videos."""

    def score(weights: Floats) -> Floats:
        return divide_or_nan(weights @ hits, weights @ totals)

    return Statistic(score, len(totals), int(totals.sum()))


def ratios_by_group(
    hits: Floats, totals: Floats, group: Integers, sets: npt.NDArray[np.bool_], weights: Floats
) -> Floats:
    """Return (S, B, G) ratios of each group of videos, NaN where a group has no items.

    Args:
        hits: (V,).
        totals: (V,).
        group: (V,) 0..G-1.
        sets: (S, V) which videos each test set holds.
        weights: (B, V).
    """
    # A column per group, so that one product sums the videos of each.
    identity = np.eye(int(group.max()) + 1)
    is_member = identity[group]  # (V, G)
    group_hits = is_member * hits[:, None]
    group_totals = is_member * totals[:, None]
    ratios = []
    for is_in_set in sets:
        set_weights = weights * is_in_set  # (B, V)
        ratios.append(divide_or_nan(set_weights @ group_hits, set_weights @ group_totals))
    return np.stack(ratios)


def grouped_ratio(
    hits: Floats, totals: Floats, group: Integers, sets: npt.NDArray[np.bool_]
) -> Statistic:
    """Return a ratio in each group of videos, then the unweighted mean over groups, then over sets
    of videos. A group without items in a set is left out of that set's mean.

    Args:
        hits: (V,).
        totals: (V,).
        group: (V,) 0..G-1.
        sets: (S, V) which videos each test set holds.
    """

    def score(weights: Floats) -> Floats:
        ratios = ratios_by_group(hits, totals, group, sets, weights)
        return mean_of_known(mean_of_known(ratios, axis=2), axis=0)

    return Statistic(score, len(totals), int(totals.sum()))


def mean_of_known(values: Floats, axis: int) -> Floats:
    """Return the mean over an axis of what is not NaN, or NaN where nothing is known."""
    # np.nanmean would warn of a slice without numbers.
    defined = ~np.isnan(values)
    sums = np.where(defined, values, 0.0).sum(axis=axis)
    return divide_or_nan(sums, defined.sum(axis=axis).astype(np.float64))


def point_estimate(statistic: Statistic) -> float:
    """Return the score itself: every video once."""
    return float(statistic.score(np.ones((1, statistic.videos)))[0])


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
    widest = max(videos, *(statistic.width for statistic in all_statistics))
    block = max(1, MAX_WEIGHTS // widest)
    parts: dict[str, list[Floats]] = {name: [] for name in statistics}
    for start in range(0, draws, block):
        weights = draw_videos(videos, min(block, draws - start), rng)
        for name, statistic in statistics.items():
            parts[name].append(statistic.score(weights))
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


def over_videos(statistic: Statistic, own: Sequence[str], videos: Sequence[str]) -> Statistic:
    """Return the statistic over these videos in that order. `own` are the ids of its V videos."""
    index_of = {video: index for index, video in enumerate(own)}
    columns = [index_of[video] for video in videos]

    def score(drawn: Floats) -> Floats:
        # Other videos of the statistic are never drawn.
        weights = np.zeros((len(drawn), statistic.videos))
        weights[:, columns] = drawn
        return statistic.score(weights)

    width = max(statistic.width, statistic.videos)
    return Statistic(score, len(columns), statistic.items, width)


def over_sources(statistic: Statistic, sources: Sequence[str]) -> Statistic:
    """Return the statistic over sources, whose videos are drawn together.

    sources: of each of its V videos.
    """
    names, index = np.unique(np.array(sources, dtype=object), return_inverse=True)
    columns = index.reshape(-1)

    def score(drawn: Floats) -> Floats:
        # A source is drawn with all of its videos.
        return statistic.score(drawn[:, columns])

    width = max(statistic.width, statistic.videos)
    return Statistic(score, len(names), statistic.items, width)
