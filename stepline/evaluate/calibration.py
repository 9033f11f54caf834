"""Probabilities that mean what they say: a logistic regression on evidence, and how far stated P is
from what happens.

Letters: N items, F pieces of evidence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats
from stepline.numeric import fit_logistic_weights, sigmoid

# of the weights, whose unit is a standard deviation of their evidence; keeps them finite where one
# piece of evidence separates all items
PRIOR_PRECISION = 1.0
CURVATURE_DAMPING = 1e-9  # keeps the fit solvable where a piece of evidence never varies
MIN_WEIGHT_CHANGE = 1e-8  # the fit ends below it
MIN_DEVIATION = 1e-6  # of evidence that never varies
MIN_ITEMS = 20  # of each kind, for a fit

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
        scaled = (rows - np.array(self.mean)) / np.array(self.deviation)
        return sigmoid(self.bias + scaled @ np.array(self.weights))


def read_logistic(tree: Mapping[str, Sequence[float] | float], width: int) -> Logistic:
    """Return a regression on `width` pieces of evidence from plain values. Raises ValueError where
    they are none."""
    columns = [
        np.asarray(tree[name], dtype=np.float64)
        for name in ("mean", "deviation", "weights", "bias")
    ]
    sizes = [column.shape for column in columns]
    if sizes != [(width,)] * 3 + [()] or not all(np.isfinite(column).all() for column in columns):
        raise ValueError(f"numbers of shapes {sizes}")
    mean, deviation, weights, bias = (column.tolist() for column in columns)
    return Logistic(tuple(mean), tuple(deviation), tuple(weights), bias)


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
    # (N, F + 1); the last column is the bias, which no prior holds back
    scaled = np.column_stack([(rows - mean) / deviation, np.ones(len(rows))])
    precision = PRIOR_PRECISION * np.eye(scaled.shape[1])
    precision[-1, -1] = 0.0
    *weights, bias = fit_logistic_weights(
        scaled,
        labels,
        prior_mean=np.zeros(len(precision)),
        prior_precision=precision,
        damping=CURVATURE_DAMPING,
        tolerance=MIN_WEIGHT_CHANGE,
    ).tolist()
    return Logistic(tuple(mean.tolist()), tuple(deviation.tolist()), tuple(weights), bias)


def calibration_error(labels: Flags, p: Floats, bins: int = 10) -> float:
    """Return ECE: mean distance of stated P from how often it was so, over equal bins of P,
    weighted by their items."""
    bin_of = np.minimum((p * bins).astype(np.int64), bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    gap = np.bincount(bin_of, weights=p - labels, minlength=bins)
    return float(np.abs(gap).sum() / max(1, count.sum()))
