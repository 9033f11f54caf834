"""Bootstrap over videos: scores as functions of video weights, resampled from per-video sums.

V videos, B draws, G groups, S test sets. weights: (B, V) float64, how often each video was drawn.
With weights of one a score is the usual one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

BOOTSTRAP_DRAWS = 1000  # of videos; the interval's ends then move by about a twentieth of its width
INTERVAL_PERCENT = 95.0  # percent of the draws inside the interval
MAX_WEIGHTS = 4_000_000  # in memory together: 32 MB of float64


@dataclass(frozen=True)
class Statistic:
    """A score that can be recomputed for any weighting of its videos, as bootstrap draws need.

    Attributes:
        score: function of weights (B, V), how often each of B draws holds each video. It returns
            (B,) scores, NaN where a score is undefined.
        videos: V, number of videos.
        items: number of counted items over all videos: sentences, steps or segments. For a mean
            over videos, it is the number of videos.
        numbers_per_draw: count of numbers that `score` holds in memory per draw, if that is more
            than V. It limits how many draws are scored at once.
    """

    score: Callable[[Floats], Floats]
    videos: int
    items: int
    numbers_per_draw: int = 0


def divide_or_nan(numerator: Floats, denominator: Floats) -> Floats:
    """Return numerator / denominator, NaN where the denominator is 0. Shapes broadcast."""
    ratios = np.full(np.broadcast(numerator, denominator).shape, np.nan)
    np.divide(numerator, denominator, out=ratios, where=denominator > 0)
    return ratios


def ratio_statistic(hits: Floats, totals: Floats) -> Statistic:
    """Return the statistic sum(hits) / sum(totals) over videos. Totals of 1 give the mean of
    `hits`.

    Args:
        hits: (V,) numerator of each video.
        totals: (V,) denominator of each video.
    """

    def score(weights: Floats) -> Floats:
        return divide_or_nan(weights @ hits, weights @ totals)

    return Statistic(score, len(totals), int(totals.sum()))


def grouped_ratio_statistic(
    hits: Floats, totals: Floats, group: Integers, sets: Flags
) -> Statistic:
    """Return a macro average as a statistic: hits / totals per group, mean over groups, mean over
    sets.

    A group without items in a test set is left out of the mean of that set.

    Args:
        hits: (V,) number of correct items of each video.
        totals: (V,) number of items of each video.
        group: (V,) index of the group of each video, 0..G-1.
        sets: (S, V) True for the videos in each of the S test sets.
    """
    # A column per group, so that one product sums the videos of each.
    is_member = np.eye(int(group.max()) + 1)[group]  # (V, G)
    group_hits = is_member * hits[:, None]
    group_totals = is_member * totals[:, None]

    def score(weights: Floats) -> Floats:
        means = []
        for is_in_set in sets:
            set_weights = weights * is_in_set  # (B, V)
            ratios = divide_or_nan(set_weights @ group_hits, set_weights @ group_totals)
            means.append(mean_of_known(ratios, axis=1))
        return mean_of_known(np.stack(means), axis=0)

    return Statistic(score, len(totals), int(totals.sum()))


def mean_of_known(values: Floats, axis: int) -> Floats:
    """Return the mean of an array of scores over an axis, leaving out NaN. It is NaN where all
    values are NaN.

    Args:
        values: scores of any shape.
        axis: axis that the result lacks.
    """
    # np.nanmean would warn of a slice without numbers.
    is_known = ~np.isnan(values)
    sums = np.where(is_known, values, 0.0).sum(axis=axis)
    return divide_or_nan(sums, is_known.sum(axis=axis).astype(np.float64))


def point_estimate(statistic: Statistic) -> float:
    """Return the score of a statistic on the data itself, with every video counted once."""
    return float(statistic.score(np.ones((1, statistic.videos)))[0])


def draw_videos(videos: int, draws: int, rng: np.random.Generator) -> Floats:
    """Return (draws, V), how often each draw holds each of the V videos.

    A draw takes V videos with replacement.

    Args:
        videos: V, number of videos.
        draws: number of draws.
        rng: source of the random draws.
    """
    shape = (draws, videos)
    # A number for each (draw, video), so that all draws are counted together.
    numbers = rng.integers(videos, size=shape) + videos * np.arange(draws)[:, None]
    counts = np.bincount(numbers.ravel(), minlength=draws * videos)
    return counts.reshape(shape).astype(np.float64)


def bootstrap_scores(
    statistics: Mapping[str, Statistic], *, draws: int, seed: int = 0
) -> dict[str, Floats]:
    """Return name -> (draws,) bootstrap scores. All statistics are scored on the same draws.

    Args:
        statistics: name -> statistic, all over the same videos.
        draws: number of bootstrap draws.
        seed: seed of the random draws.
    """
    if not statistics:
        return {}
    videos = next(iter(statistics.values())).videos
    if videos == 0:
        return {name: np.full(draws, np.nan) for name in statistics}
    # Some draws at a time, as many as fit into memory.
    rng = np.random.default_rng(seed)
    widest = max(videos, *(statistic.numbers_per_draw for statistic in statistics.values()))
    block = max(1, MAX_WEIGHTS // widest)
    scores: dict[str, list[Floats]] = {name: [] for name in statistics}
    for start in range(0, draws, block):
        weights = draw_videos(videos, min(block, draws - start), rng)
        for name, statistic in statistics.items():
            scores[name].append(statistic.score(weights))
    return {name: np.concatenate(values) for name, values in scores.items()}


def percentile_interval(values: Floats) -> tuple[float, float]:
    """Return (low, high), the percentile interval of bootstrap scores, leaving out NaN.

    Low and high are NaN if all values are NaN.
    """
    known = values[~np.isnan(values)]
    if not len(known):
        return math.nan, math.nan
    margin = (100 - INTERVAL_PERCENT) / 2  # per cent
    low, high = np.percentile(known, [margin, 100 - margin])
    return float(low), float(high)


def group_by_source(statistic: Statistic, sources: Sequence[str | None]) -> Statistic:
    """Return the statistic resampled by source video: a bootstrap draw takes all videos of a source
    together.

    Args:
        statistic: statistic over V videos.
        sources: (V,) name of the source of each video. None: the video is never drawn.
    """
    names = sorted({source for source in sources if source is not None})
    index_of = {name: index for index, name in enumerate(names)}
    indices = [index_of.get(source or "", 0) for source in sources]
    is_drawn = np.array([source is not None for source in sources], dtype=np.float64)

    def score(drawn: Floats) -> Floats:
        return statistic.score(drawn[:, indices] * is_drawn)

    width = max(statistic.numbers_per_draw, statistic.videos)
    return Statistic(score, len(names), statistic.items, width)
