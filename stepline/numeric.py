"""Numeric functions: parsing, sigmoid, logit, softmax, unit rows, cosines, logistic regression.

Each keeps the precision of its input: float32 in, float32 out.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MAX_NEWTON_STEPS = 50  # of a logistic fit, which usually ends in ten
MIN_NORM = 1e-12  # below it a row counts as zero; dividing by it keeps zero rows zero


class _BlasLimit:
    """The limit of OpenBLAS to one thread in this process, and the number of its users."""

    lock = threading.Lock()
    user_count = 0
    limiter: Any = None  # threadpoolctl's limit, while there is a user


@contextmanager
def limit_blas_to_one_thread() -> Iterator[None]:
    """Limit NumPy's matrix products to one thread inside this context.

    The number of threads changes the last bits of a product. The limit is for the whole process,
    until the last such context ends. CTranslate2 and torch keep their threads.
    """
    from threadpoolctl import ThreadpoolController

    # The first user sets the limit.
    with _BlasLimit.lock:
        if _BlasLimit.user_count == 0:
            libraries = ThreadpoolController().select(internal_api="openblas")
            _BlasLimit.limiter = libraries.limit(limits=1)
        _BlasLimit.user_count += 1
    try:
        yield
    finally:
        # The last user restores the earlier number of threads.
        with _BlasLimit.lock:
            _BlasLimit.user_count -= 1
            if _BlasLimit.user_count == 0:
                _BlasLimit.limiter.restore_original_limits()


def parse_number(value: object) -> float | None:
    """Return a number, also one that is written as a text.

    None for any other value, NaN and infinity.
    """
    # To isinstance, JSON's true is an int.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def sigmoid(log_odds: Array) -> Array:
    """Return the sigmoid 1 / (1 + exp(-x)) of each log-odds x, in the shape of the input."""
    probabilities: Array = 1 / (1 + np.exp(-log_odds))
    return probabilities


def logit(probabilities: Array, margin: float = 0.0) -> Array:
    """Return the log-odds log(p / (1 - p)) of each probability p, in the shape of the input.

    margin: each p is first clipped to [margin, 1 - margin], so that a margin > 0 avoids infinity.
    """
    if margin:
        probabilities = np.clip(probabilities, margin, 1 - margin)
    log_odds: Array = np.log(probabilities / (1 - probabilities))
    return log_odds


def sum_to_one(rows: Array) -> Array:
    """Return rows (N, M) divided by the sum of each row."""
    normalized: Array = rows / rows.sum(axis=1, keepdims=True)
    return normalized


def softmax(logits: Array) -> Array:
    """Return the softmax of each row of logits (N, M). (N, 0) stays (N, 0)."""
    highest = logits.max(axis=1, keepdims=True, initial=-np.inf)
    return sum_to_one(np.exp(logits - highest))


def unit_rows(rows: Array) -> Array:
    """Return rows (N, D) scaled to length 1. A row of zeros stays zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Array = rows / np.maximum(lengths, MIN_NORM)
    return unit


def cosine_matrix(a: Array, b: Array) -> Array:
    """Return the cosines (N, M) between each row of a (N, D) and each row of b (M, D).

    The cosine of a row of zeros is 0.
    """
    a_lengths = np.linalg.norm(a, axis=1)
    b_lengths = np.linalg.norm(b, axis=1)
    lengths = a_lengths[:, None] * b_lengths  # (N, M)
    cosines: Array = a @ b.T / np.maximum(lengths, MIN_NORM)
    return cosines


def cosine(a: Array, b: Array) -> float | None:
    """Return the cosine of two vectors (D,). None if the length of a vector is 0 or not finite."""
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    if not np.isfinite(length) or length <= 0:
        return None
    return float(a @ b) / length


def match_in_order(scores: Array, floor: float) -> dict[int, int]:
    """Return row -> column of the best matching that keeps the order of both.

    The sum of (score - floor) over the matched pairs is maximal. Rows and columns may stay
    unmatched. Source: Needleman and Wunsch, 1970, with free gaps.

    Args:
        scores: (K, N) score of each of K rows with each of N columns.
        floor: score that a match must exceed to be worth making.
    """
    gains = scores - floor
    row_count, column_count = gains.shape
    # the largest sum of the first rows and the first columns
    best = np.zeros((row_count + 1, column_count + 1))
    for row in range(row_count):
        # The row is left out, or joins a column. The running maximum leaves columns out.
        above = best[row]
        sums = np.maximum(above[1:], above[:-1] + gains[row])
        best[row + 1, 1:] = np.maximum.accumulate(sums)
    # Back from the end: which rows and columns made the largest sum.
    columns: dict[int, int] = {}
    row, column = row_count, column_count
    while row and column:
        total = best[row, column]
        if total == best[row - 1, column]:
            row -= 1
        elif total == best[row, column - 1]:
            column -= 1
        else:
            row -= 1
            column -= 1
            columns[row] = column
    return columns


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
    """Return the MAP weights (F,) of a logistic regression with a normal prior, by Newton's method.

    Args:
        rows: (N, F) F features of each of N items.
        labels: (N,) 0 or 1.
        prior_mean: (F,) mean of the prior, which is also the starting point.
        prior_precision: (F, F) inverse covariance of the prior.
        damping: number added to the diagonal of the Hessian.
        max_change: maximal change of a weight in one Newton step. It prevents overshooting.
        tolerance: the iteration ends when no weight changes by more than this.
    """
    weights = prior_mean
    for _ in range(MAX_NEWTON_STEPS):
        # Gradient and Hessian of the log posterior.
        probabilities = sigmoid(rows @ weights)  # (N,)
        prior_gradient = prior_precision @ (weights - prior_mean)  # (F,)
        gradient = rows.T @ (labels - probabilities) - prior_gradient  # (F,)
        variance = probabilities * (1 - probabilities)  # (N,)
        weighted_rows = rows * variance[:, None]  # (N, F)
        hessian = weighted_rows.T @ rows + prior_precision  # (F, F)
        hessian = hessian + damping * np.eye(len(weights))
        change = np.linalg.solve(hessian, gradient)
        weights = weights + np.clip(change, -max_change, max_change)
        # By the change before its bound, so that a clipped step does not end the fit.
        if np.abs(change).max() < tolerance:
            break
    return weights
