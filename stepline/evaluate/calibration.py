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

# of the weights, in standard deviations; keeps them finite where a feature separates all
RIDGE = 1.0
STEPS = 50  # of Newton's method; it ends in ten
LEAST = 20  # items of each kind that a fit needs

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
        return np.asarray(1 / (1 + np.exp(-(self.bias + scaled @ np.array(self.weights)))))


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


def fit_logistic(rows: Floats, shown: Flags) -> Logistic:
    """Return the regression fitted to items with evidence (N, F) and known truth (N,).

    Raises DatasetError with fewer than `LEAST` items of either kind.
    """
    kinds = int(shown.sum()), int((~shown).sum())
    if min(kinds) < LEAST:
        counts = f"{kinds[0]} texts shown and {kinds[1]} not"
        raise DatasetError(f"{counts}; a calibration needs {LEAST} of each: add videos")
    mean, deviation = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-6)
    # (N, F + 1), the last is the bias
    scaled = np.column_stack([(rows - mean) / deviation, np.ones(len(rows))])
    weights = np.zeros(scaled.shape[1])
    ridge = np.diag([RIDGE] * (scaled.shape[1] - 1) + [0.0])
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-(scaled @ weights)))
        slope = scaled.T @ (shown - p) - ridge @ weights
        curve = (scaled * (p * (1 - p))[:, None]).T @ scaled + ridge
        step = np.linalg.solve(curve + 1e-9 * np.eye(len(weights)), slope)
        weights = weights + step
        if np.abs(step).max() < 1e-8:
            break
    return Logistic(
        tuple(mean.tolist()),
        tuple(deviation.tolist()),
        tuple(weights[:-1].tolist()),
        float(weights[-1]),
    )


def calibration_error(shown: Flags, p: Floats, bins: int = 10) -> float:
    """Return ECE: mean distance of stated P from how often it was so, over equal bins of P,
    weighted by their items."""
    bin_of = np.minimum((p * bins).astype(np.int64), bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    gap = np.bincount(bin_of, weights=p - shown, minlength=bins)
    return float(np.abs(gap).sum() / max(1, count.sum()))
