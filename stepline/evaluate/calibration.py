"""Probability calibration: logistic regression on evidence, and expected calibration error.

N items, F features. A feature is a piece of evidence, such as the best score over the video.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Flags, Floats
from stepline.numeric import fit_logistic_weights, sigmoid

# Of the weights, whose unit is a standard deviation of their feature. It keeps them finite where
# one feature separates all items.
PRIOR_PRECISION = 1.0
CURVATURE_DAMPING = 1e-9  # keeps the fit solvable where a feature never varies
MIN_WEIGHT_CHANGE = 1e-8  # the fit ends below it
MIN_DEVIATION = 1e-6  # of a feature that never varies
MIN_ITEMS = 20  # of each class, for a fit
LOGISTIC_COLUMNS = ("mean", "deviation", "weights", "bias")


@dataclass(frozen=True)
class LogisticRegression:
    """A fitted logistic regression, P = 1 / (1 + exp(-(bias + weights . (x - mean) / deviation))).

    Attributes:
        mean: (F,) mean of each feature in the training data.
        deviation: (F,) standard deviation of each feature in the training data.
        weights: (F,) weight of each standardised feature.
        bias: the intercept.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float

    def __call__(self, rows: Floats) -> Floats:
        """Return the probabilities (N,) of the positive class. rows: (N, F) features of N items."""
        scaled = (rows - np.array(self.mean)) / np.array(self.deviation)
        return sigmoid(self.bias + scaled @ np.array(self.weights))


def read_logistic(tree: Mapping[str, Sequence[float] | float], width: int) -> LogisticRegression:
    """Return the logistic regression that was stored as plain values.

    Args:
        tree: name of each field of `LogisticRegression` -> stored values.
        width: F, the expected number of features.

    Raises ValueError where the values have other shapes or are not finite.
    """
    columns = [np.asarray(tree[name], dtype=np.float64) for name in LOGISTIC_COLUMNS]
    sizes = [column.shape for column in columns]
    expected_sizes = [(width,), (width,), (width,), ()]
    is_finite = all(np.isfinite(column).all() for column in columns)
    if sizes != expected_sizes or not is_finite:
        raise ValueError(f"numbers of shapes {sizes}")
    *rows, bias = columns
    mean, deviation, weights = (tuple(row.tolist()) for row in rows)
    return LogisticRegression(mean, deviation, weights, float(bias))


def fit_logistic(rows: Floats, labels: Flags) -> LogisticRegression:
    """Return the logistic regression fitted to labelled items.

    Args:
        rows: (N, F) features of the items.
        labels: (N,) True for an item of the positive class.

    Raises DatasetError with fewer than MIN_ITEMS items of either class.
    """
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if min(positives, negatives) < MIN_ITEMS:
        raise DatasetError(
            f"{positives} texts shown and {negatives} not"
            f"; a calibration needs {MIN_ITEMS} of each: add videos"
        )
    mean = rows.mean(axis=0)
    deviation = np.maximum(rows.std(axis=0), MIN_DEVIATION)
    scaled = (rows - mean) / deviation
    # The last column is the bias, which has no prior.
    inputs = np.column_stack([scaled, np.ones(len(rows))])  # (N, F + 1)
    size = inputs.shape[1]
    precision = PRIOR_PRECISION * np.eye(size)
    precision[-1, -1] = 0.0
    fitted_weights = fit_logistic_weights(
        inputs,
        labels,
        prior_mean=np.zeros(size),
        prior_precision=precision,
        damping=CURVATURE_DAMPING,
        tolerance=MIN_WEIGHT_CHANGE,
    )
    *weights, bias = fitted_weights.tolist()
    return LogisticRegression(tuple(mean.tolist()), tuple(deviation.tolist()), tuple(weights), bias)


# Bins of equal width, each weighted by the number of its items.
ECE_BINS = 10


def calibration_error(labels: Flags, p: Floats) -> float:
    """Return the expected calibration error (ECE) of predicted probabilities, in [0, 1].

    Args:
        labels: (N,) True for an item of the positive class.
        p: (N,) predicted probability of the positive class.
    """
    bin_of = np.minimum((p * ECE_BINS).astype(np.int64), ECE_BINS - 1)
    counts = np.bincount(bin_of, minlength=ECE_BINS)
    total_gap = np.abs(np.bincount(bin_of, weights=p - labels, minlength=ECE_BINS)).sum()
    return float(total_gap / max(1, counts.sum()))
