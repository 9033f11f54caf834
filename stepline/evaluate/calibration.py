"""Probability calibration: logistic regression on evidence, and expected calibration error.

Letters: N items, F features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats
from stepline.numeric import fit_logistic_weights, sigmoid

# of the weights, whose unit is a standard deviation of their evidence. It keeps them finite where
# one piece of evidence separates all items
PRIOR_PRECISION = 1.0
CURVATURE_DAMPING = 1e-9  # keeps the fit solvable where a piece of evidence never varies
MIN_WEIGHT_CHANGE = 1e-8  # the fit ends below it
MIN_DEVIATION = 1e-6  # of evidence that never varies
MIN_ITEMS = 20  # of each kind, for a fit
LOGISTIC_COLUMNS = ("mean", "deviation", "weights", "bias")

Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Logistic:
    """P = 1 / (1 + exp(-(bias + weights . (x - mean) / deviation)))."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float

    def __call__(self, rows: Floats) -> Floats:
        """Return P (N,) of evidence (N, F)."""
        mean = np.array(self.mean)
        deviation = np.array(self.deviation)
        weights = np.array(self.weights)
        return sigmoid(self.bias + (rows - mean) / deviation @ weights)


def read_logistic(tree: Mapping[str, Sequence[float] | float], width: int) -> Logistic:
    """Return a logistic regression on `width` features from plain values.

    Raises ValueError where the values have other shapes or are not finite.
    """
    columns = [np.asarray(tree[name], dtype=np.float64) for name in LOGISTIC_COLUMNS]
    sizes = [column.shape for column in columns]
    expected_sizes = [(width,), (width,), (width,), ()]
    is_finite = all(np.isfinite(column).all() for column in columns)
    if sizes != expected_sizes or not is_finite:
        raise ValueError(f"numbers of shapes {sizes}")
    mean, deviation, weights, bias = columns
    return Logistic(
        mean=tuple(mean.tolist()),
        deviation=tuple(deviation.tolist()),
        weights=tuple(weights.tolist()),
        bias=bias.tolist(),
    )


def fit_logistic(rows: Floats, labels: Flags) -> Logistic:
    """Return the regression fitted to items with evidence (N, F) and known truth (N,).

    Raises DatasetError with fewer than MIN_ITEMS items of either kind.
    """
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if min(positives, negatives) < MIN_ITEMS:
        counts = f"{positives} texts shown and {negatives} not"
        raise DatasetError(f"{counts}; a calibration needs {MIN_ITEMS} of each: add videos")
    mean = rows.mean(axis=0)
    deviation = np.maximum(rows.std(axis=0), MIN_DEVIATION)
    scaled = (rows - mean) / deviation
    # the last column is the bias, which no prior holds back
    ones = np.ones(len(rows))
    inputs = np.column_stack([scaled, ones])  # (N, F + 1)
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
    return Logistic(
        mean=tuple(mean.tolist()),
        deviation=tuple(deviation.tolist()),
        weights=tuple(weights),
        bias=bias,
    )


def calibration_error(labels: Flags, p: Floats, bins: int = 10) -> float:
    """Return the expected calibration error (ECE) over equal-width bins of P, weighted by item
    counts.
    """
    bin_of = np.minimum((p * bins).astype(np.int64), bins - 1)
    counts = np.bincount(bin_of, minlength=bins)
    total_gap = np.abs(np.bincount(bin_of, weights=p - labels, minlength=bins)).sum()
    item_count = max(1, counts.sum())
    return float(total_gap / item_count)
