"""From what sampled items took to what all take: a line through their sizes, resampled.

n sampled items, N items, R runs, B draws of the sample, the first being the sample itself.

What the sampled items took is known, so only the N - n others are estimated and uncertain.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.evaluate.bootstrap import Floats

Rows: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Resamples:
    """What else may have been sampled, and what the others may be. The first draw is the sample
    itself.

    rows: (B, n) sampled items with replacement.
    others: (B, n) how many of the N - n others are taken to be like each sampled item. They are
    counted beyond the expected (N - n) / n.
    spread: (B,) how much further from the first draw a draw is, since n items show their own spread
    only roughly. Deviations become those of Student's t with n - 1 degrees.
    """

    rows: Rows
    others: Floats
    spread: Floats


def resample(sampled: int, videos: int, draws: int, rng: np.random.Generator) -> Resamples:
    """Return B draws of n sampled items of N."""
    shape = (draws, sampled)
    rows = rng.integers(sampled, size=shape)
    # How many of the others are like each sampled item.
    unsampled = videos - sampled
    share = np.full(sampled, 1 / sampled)
    counts = rng.multinomial(unsampled, share, size=draws)
    expected = unsampled * share
    others = counts - expected
    # The factor from the spread of n items to that of Student's t.
    degrees = max(1, sampled - 1)
    chi_squares = rng.chisquare(degrees, size=draws)
    spread = np.sqrt(sampled / chi_squares)
    # The first draw is the sample itself, so that its values are the estimates.
    rows[0] = np.arange(sampled)
    others[0] = 0.0
    return Resamples(rows, others, spread)


def extrapolate_totals(
    spent: Floats, sizes: Floats, all_sizes: Floats, resamples: Resamples
) -> Floats:
    """Return (B,) totals over N items: what the n took, and the others by a line through size, else
    by the mean.

    spent, sizes: (n,) what each sampled item took, and its size. all_sizes: (N,). The line is taken
    where it predicts better than the mean. Sizes beyond the sample's count as its largest, since
    nothing is known there. What the line leaves over in the sample is added for the others, so that
    a wrong line does no harm on the whole.

    With a mean, the variance of the draws is (N - n)^2 s^2 / n from which items were sampled and (N
    - n) s^2 from which the others are. Together they are N^2 (1 - n / N) s^2 / n, a sample mean's
    with the finite-population correction (Cochran, Sampling Techniques, section 2.6).
    """
    # How many others there are, and how large they are together.
    others = len(all_sizes) - len(sizes)
    smallest = sizes.min()
    largest = sizes.max()
    clipped_sizes = np.clip(all_sizes, smallest, largest)
    other_sizes = clipped_sizes.sum() - sizes.sum()

    # The line of each draw, and what it leaves over.
    x = sizes[resamples.rows]  # (B, n)
    y = spent[resamples.rows]  # (B, n)
    if size_predicts(sizes, spent):
        fixed, slope = fit_line(x, y)
    else:
        fixed = _row_means(y)
        slope = np.zeros(len(y))
    rest = y - fixed[:, None] - slope[:, None] * x  # (B, n)

    # What the others take by each draw, as far from the first as Student's t wants.
    rest_means = _row_means(rest)
    level = fixed + rest_means
    by_size = slope * other_sizes
    expected = level * others + by_size
    chance = resamples.others @ rest[0]
    estimates = expected + chance
    first = estimates[0]
    differences = estimates - first
    deviations = resamples.spread * differences
    spent_by_others = np.maximum(0.0, first + deviations)
    total = spent.sum() + spent_by_others
    return np.asarray(total)


def fit_line(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return a and b (B,) of the non-negative least-squares lines a + b x through points (B, n)."""
    # Least squares of each draw: b = cov(x, y) / var(x), a = mean(y) - b mean(x).
    mean_x = _row_means(x)
    mean_y = _row_means(y)
    deviations = x - mean_x[:, None]
    variance = _row_sums(deviations**2)
    covariance = _row_sums(deviations * y)
    slope = np.zeros(len(x))
    varies = variance > 0
    np.divide(covariance, variance, out=slope, where=varies)
    # More videos, or longer ones, never cost less.
    slope = np.maximum(0.0, slope)
    fixed = mean_y - slope * mean_x

    # A line that would begin below zero goes through zero.
    squares = _row_sums(x**2)
    squares = np.maximum(1e-300, squares)
    slope_from_zero = _row_sums(x * y) / squares
    slope = np.where(fixed < 0, slope_from_zero, slope)
    fixed = np.maximum(0.0, fixed)
    return fixed, slope


def _row_means(values: Floats) -> Floats:
    return np.asarray(values.mean(axis=1))


def _row_sums(values: Floats) -> Floats:
    return np.asarray(values.sum(axis=1))


def size_predicts(x: Floats, y: Floats) -> bool:
    """Return whether a line through the other items predicts each item (n,) better than their mean
    (leave-one-out)."""
    count = len(x)
    if count < 2:
        return False
    # The items without each.
    rows = np.arange(count)
    other_rows = [np.delete(rows, row) for row in rows]
    others = np.array(other_rows)  # (n, n - 1)
    other_x = x[others]
    other_y = y[others]
    # Each item as the line of the others predicts it, within their sizes.
    fixed, slope = fit_line(other_x, other_y)
    smallest = other_x.min(axis=1)
    largest = other_x.max(axis=1)
    clipped = np.clip(x, smallest, largest)
    by_size = slope * clipped
    line_errors = y - fixed - by_size
    line_error = (line_errors**2).sum()
    # Each item as the mean of the others predicts it.
    means = _row_means(other_y)
    mean_errors = y - means
    mean_error = (mean_errors**2).sum()
    return bool(line_error < mean_error)


def extrapolate_runs(count: Floats, values: Floats, videos: Floats) -> Floats:
    """Return (B,) values for (B,) videos, the first being those there are: measured, where a run
    was of as many.

    count: (R,) videos of each run. values: (B, R) what it took.
    """
    first_count = count[0]
    first_values = values[:, 0]
    # A single run says nothing of a fixed part, so all counts per video.
    if len(count) == 1:
        per_video = first_values / first_count
        return np.asarray(per_video * videos)

    # What the first run took beyond the last one of its size.
    later_count = count[1:]
    later_values = values[:, 1:]
    extra = np.zeros(len(values))
    of_first_size = np.flatnonzero(later_count == first_count)
    if len(of_first_size):
        last = of_first_size[-1]
        last_values = later_values[:, last]
        extra = np.maximum(0.0, first_values - last_values)

    # A run over all videos is the answer itself.
    of_all = np.flatnonzero(later_count == videos[0])
    if len(of_all):
        last = of_all[-1]
        measured = later_values[:, last]
        return np.asarray(extra + measured)

    # Else a line, without the first run where others are enough for one.
    if len(count) == 2:
        later_count = count
        later_values = values
    x = np.broadcast_to(later_count, later_values.shape)
    fixed, slope = fit_line(x, later_values)
    by_size = slope * videos
    by_line = fixed + by_size
    return np.asarray(extra + by_line)
