"""Numeric helpers that several rooms share: sigmoid, logit, softmax, unit rows, cosines.

Each keeps the precision of what it is given: float32 in, float32 out.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

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
