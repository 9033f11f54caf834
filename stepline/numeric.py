"""Numeric helpers that several rooms share: sigmoid, logit, softmax, unit rows, cosines, and the
fit of a logistic regression.

Each keeps the precision of what it is given: float32 in, float32 out.
"""

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

MAX_NEWTON_STEPS = 50  # of a logistic fit, which usually ends in ten
MIN_NORM = 1e-12  # below it a row counts as zero; dividing by it keeps zero rows zero


def sigmoid(log_odds: Array) -> Array:
    """Return 1 / (1 + exp(-x)) of each number."""
    return np.asarray(1 / (1 + np.exp(-log_odds)))


def logit(probabilities: Array, margin: float = 0.0) -> Array:
    """Return log(p / (1 - p)) of each probability, which is first kept `margin` away from 0 and 1."""
    if margin:
        probabilities = np.clip(probabilities, margin, 1 - margin)
    return np.asarray(np.log(probabilities / (1 - probabilities)))


def sum_to_one(rows: Array) -> Array:
    """Return rows (N, M) divided by their sums."""
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def softmax(logits: Array) -> Array:
    """Return the softmax of each row of logits (N, M); (N, 0) stays (N, 0)."""
    highest = logits.max(axis=1, keepdims=True, initial=-np.inf)
    return sum_to_one(np.exp(logits - highest))


def unit_rows(rows: Array) -> Array:
    """Return rows (N, D) scaled to length 1; a row of zeros stays zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, MIN_NORM))


def cosine_matrix(a: Array, b: Array) -> Array:
    """Return the cosines (N, M) of the rows of a (N, D) and b (M, D); 0 for a row of zeros."""
    lengths = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)  # (N, M)
    return np.asarray(a @ b.T / np.maximum(lengths, MIN_NORM))


def cosine(a: Array, b: Array) -> float | None:
    """Return the cosine of two vectors (D,); None where a length is zero or not finite."""
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    if not np.isfinite(length) or length <= 0:
        return None
    return float(a @ b) / length


def fit_logistic_weights(
    rows: Array,
    labels: Array,
    *,
    prior_mean: Array,
    prior_precision: Array,
    damping: float = 0.0,
    max_change: float = math.inf,
    tolerance: float = 1e-9,
) -> Array:
    """Return the weights (F,) of a logistic regression that are most probable under a normal prior.

    rows: (N, F). labels: (N,), 0 or 1. prior_mean: (F,), where Newton's method also starts.
    prior_precision: (F, F). damping: added to the diagonal of the curvature, never to the slope.
    max_change: bound of each weight in one step, since Newton's method may overshoot from far off.
    tolerance: the fit ends when no weight changes by more.
    """
    weights = prior_mean
    for _ in range(MAX_NEWTON_STEPS):
        p = sigmoid(rows @ weights)  # (N,)
        slope = rows.T @ (labels - p) - prior_precision @ (weights - prior_mean)  # (F,)
        curvature = (rows * (p * (1 - p))[:, None]).T @ rows + prior_precision  # (F, F)
        change = np.linalg.solve(curvature + damping * np.eye(len(weights)), slope)
        weights = weights + np.clip(change, -max_change, max_change)
        if np.abs(change).max() < tolerance:
            break
    return weights
