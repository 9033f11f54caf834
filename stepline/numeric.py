"""Numeric functions: sigmoid, logit, softmax, unit rows, cosines, logistic regression.

Each keeps the precision of its input: float32 in, float32 out.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

MAX_NEWTON_STEPS = 50  # of a logistic fit, which usually ends in ten
MIN_NORM = 1e-12  # below it a row counts as zero; dividing by it keeps zero rows zero


class _BlasLimit:
    """Reference-counted limit of OpenBLAS's threads, which is global to the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._user_count = 0
        self._limit: Any = None  # threadpoolctl's

    def begin(self) -> None:
        """Set the limit for the first user."""
        from threadpoolctl import ThreadpoolController

        with self._lock:
            if self._user_count == 0:
                libraries = ThreadpoolController().select(internal_api="openblas")
                self._limit = libraries.limit(limits=1)
            self._user_count += 1

    def end(self) -> None:
        """Restore the threads after the last user."""
        with self._lock:
            self._user_count -= 1
            if self._user_count == 0:
                self._limit.restore_original_limits()


_blas_limit = _BlasLimit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit NumPy's matrix products to one thread, since the number changes the last bits.

    It holds for the whole process until the last user exits. CTranslate2 and torch keep their
    threads.
    """
    _blas_limit.begin()
    try:
        yield
    finally:
        _blas_limit.end()


def sigmoid(log_odds: Array) -> Array:
    """Return 1 / (1 + exp(-x)) of each number."""
    odds_against = np.exp(-log_odds)
    probabilities: Array = 1 / (1 + odds_against)
    return probabilities


def logit(probabilities: Array, margin: float = 0.0) -> Array:
    """Return log(p / (1 - p)) of each probability, which is first kept `margin` away from 0 and 1."""
    if margin:
        probabilities = np.clip(probabilities, margin, 1 - margin)
    odds = probabilities / (1 - probabilities)
    log_odds: Array = np.log(odds)
    return log_odds


def sum_to_one(rows: Array) -> Array:
    """Return rows (N, M) divided by their sums."""
    sums = rows.sum(axis=1, keepdims=True)
    shares: Array = rows / sums
    return shares


def softmax(logits: Array) -> Array:
    """Return the softmax of each row of logits (N, M). (N, 0) stays (N, 0)."""
    highest = logits.max(axis=1, keepdims=True, initial=-np.inf)
    return sum_to_one(np.exp(logits - highest))


def unit_rows(rows: Array) -> Array:
    """Return rows (N, D) scaled to length 1. A row of zeros stays zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    lengths = np.maximum(lengths, MIN_NORM)
    scaled: Array = rows / lengths
    return scaled


def cosine_matrix(a: Array, b: Array) -> Array:
    """Return the cosines (N, M) of the rows of a (N, D) and b (M, D), 0 for a row of zeros."""
    a_lengths = np.linalg.norm(a, axis=1)
    b_lengths = np.linalg.norm(b, axis=1)
    lengths = a_lengths[:, None] * b_lengths  # (N, M)
    lengths = np.maximum(lengths, MIN_NORM)
    cosines: Array = a @ b.T / lengths
    return cosines


def cosine(a: Array, b: Array) -> float | None:
    """Return the cosine of two vectors (D,), None where a length is zero or not finite."""
    a_length = np.linalg.norm(a)
    b_length = np.linalg.norm(b)
    length = float(a_length * b_length)
    if not np.isfinite(length):
        return None
    if length <= 0:
        return None
    product = float(a @ b)
    return product / length


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
    """Return the MAP weights (F,) of a logistic regression under a normal prior, by Newton's
    method.

    Args:
        rows: (N, F).
        labels: (N,), 0 or 1.
        prior_mean: (F,), also the starting point.
        prior_precision: (F, F).
        damping: added to the diagonal of the Hessian, never to the gradient.
        max_change: bound of each weight's change per step, against overshooting.
        tolerance: the fit ends when no weight changes by more.
    """
    weights = prior_mean
    for _ in range(MAX_NEWTON_STEPS):
        # Slope and curvature of the log posterior.
        probabilities = sigmoid(rows @ weights)  # (N,)
        prior_gradient = prior_precision @ (weights - prior_mean)  # (F,)
        gradient = rows.T @ (labels - probabilities) - prior_gradient  # (F,)
        variance = probabilities * (1 - probabilities)  # (N,)
        weighted_rows = rows * variance[:, None]  # (N, F)
        hessian = weighted_rows.T @ rows + prior_precision  # (F, F)
        diagonal = np.eye(len(weights))
        hessian = hessian + damping * diagonal
        change = np.linalg.solve(hessian, gradient)
        limited = np.clip(change, -max_change, max_change)
        weights = weights + limited
        # By the change before its bound, so that a limited step does not end the fit.
        largest = np.abs(change).max()
        if largest < tolerance:
            break
    return weights
