"""Is anything being done at this second? Learned from the one video, with its own speech as the teacher.

A presenter who talks moves otherwise, and looks otherwise, than hands at work; but how differs from video to video.
So a small ridge regression explains where the speech expects steps by how the seconds look and move, and what it
predicts is evidence for every step. The prediction for a step never saw that step's own words, so that its later
weighing (`evidence.earned_weights`) is honest. Letters: K steps, T seconds, D width, P predictors.
"""

from collections.abc import Sequence

import numpy as np

from stepline.nasva.evidence import LIMIT, NOISE, smoothed, unit
from stepline.nasva.prior import Array

LOOKS = 4        # principal components of the features that may predict; more would fit the speech of a short video
RIDGE = 0.1      # penalty on the standardised weights, as a share of the seconds
STILL = 1e-3     # motion below which a picture counts as still, a share of the grey range


def doing(rows: Sequence[Array], expected: Array, shots: Sequence[slice], smooth: float) -> Array:
    """Return (K, T) evidence, in standard deviations, that a step is being done; zero where nothing predicts it.

    rows: what may predict it, each (T,), NaN where missing. expected: (K, T) occupancy, P(step k is being shown at t)
    by speech alone.
    """
    x = _predictors(rows, shots, smooth, expected.shape[1])
    if not len(expected) or not len(x):
        return np.zeros(expected.shape)
    return np.array([_standard(_explained(x, *_others(expected, k))) for k in range(len(expected))])


def moves(motion: Array) -> list[Array]:
    """Return the predictor that motion (T,) is: its logarithm: hands move many times more than a face."""
    return [np.log(motion + STILL)]


def looks(features: Array) -> list[Array]:
    """Return up to LOOKS principal components of the unit rows (T, D) over time, each (T,), NaN where missing."""
    known = np.isfinite(features).all(axis=1)
    if known.sum() < 2:
        return []
    rows = unit(features[known])
    left, size, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)   # (T', R), (R,)
    out = np.full((min(LOOKS, len(size)), len(features)), np.nan)
    out[:, known] = (left * size).T[: len(out)]
    return list(out)


def _predictors(rows: Sequence[Array], shots: Sequence[slice], smooth: float, seconds: int) -> Array:
    """Return (P, T) standardised predictors, smoothed inside shots, without the constant ones."""
    filled = [np.where(np.isfinite(row), row, np.nanmean(row)) for row in rows if np.isfinite(row).any()]
    z = smoothed(np.array(filled).reshape(-1, seconds), shots, smooth)
    z = z - z.mean(axis=1, keepdims=True)
    spread = z.std(axis=1, keepdims=True)
    return np.asarray((z / np.maximum(spread, NOISE))[spread[:, 0] > NOISE])


def _others(expected: Array, step: int) -> tuple[Array, Array]:
    """Return the target (T,), where others are expected, and the weight (T,) of each second: less for its own."""
    rest = np.delete(expected, step, axis=0)
    return 1 - np.prod(1 - rest, axis=0), 1 - expected[step]


def _explained(x: Array, target: Array, weight: Array) -> Array:
    """Return the weighted ridge regression of the target on x (P, T), predicted for every second: (T,)."""
    weight = weight / max(weight.mean(), NOISE)
    level = np.average(target, weights=weight)
    inner = (x * weight) @ x.T + RIDGE * x.shape[1] * np.eye(len(x))
    return np.asarray(np.linalg.solve(inner, (x * weight) @ (target - level)) @ x)


def _standard(row: Array) -> Array:
    spread = row.std()
    return np.clip((row - row.mean()) / spread, -LIMIT, LIMIT) if spread > NOISE else np.zeros(len(row))
