"""Curves of `said_to_shown.py` fitted to tellings, each without one fold of them.

Letters: N tellings, T seconds of a video.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from fit_shown_prior import SHRINK, START, WORDS
from scipy.optimize import minimize
from tellings import Array, Telling
from whenact_data import FOLDS

from stepline.grounding.said_to_shown import ShownPrior
from stepline.records import Span

MIN_PROBABILITY = 1e-12
VLOGS_NAME = "WhenAct"
COOKING_NAME = "YouCook2"
COOKING_CUT_NAME = "YouCook2, cut"
# what each curve is fitted to, and how much each source counts
CURVE_SOURCES = {
    "WhenAct": {"WhenAct": 1.0},
    "YouCook2": {"YouCook2": 1.0},
    "YouCook2, cut": {"YouCook2, cut": 1.0},
    "both": {"WhenAct": 0.5, "YouCook2": 0.5},
    "both, cut": {"WhenAct": 0.5, "YouCook2, cut": 0.5},
    "both, a fifth YouCook2": {"WhenAct": 0.8, "YouCook2": 0.2},
    "both, a twentieth YouCook2": {"WhenAct": 0.95, "YouCook2": 0.05},
}

Tellings: TypeAlias = Sequence[Telling]
FoldCurves: TypeAlias = list[ShownPrior]  # each fitted without one fold
Curves: TypeAlias = dict[str, FoldCurves]
Sources: TypeAlias = dict[str, Tellings]
Passage: TypeAlias = tuple[Span, int]  # and the seconds of its video
Rows: TypeAlias = Iterable[Array]  # (T,) each


def distributions(curve: ShownPrior, tellings: Tellings, lag: float = 0.0) -> list[Array]:
    """Return P(second), (T,), of each telling. Equal spoken windows are worked out once."""
    rows = []
    by_speech: dict[Passage, Array] = {}
    for telling in tellings:
        seconds = telling.seconds
        key = (telling.speech, seconds)
        if key not in by_speech:
            passages = [telling.speech]
            by_speech[key] = curve.distribution(passages, seconds, lag=lag)
        rows.append(by_speech[key])
    return rows


def left_out(curves: FoldCurves, tellings: Tellings, lag: float = 0.0) -> list[Array]:
    """Return P(second), (T,), of each telling by the curve that was fitted without its fold."""
    by_fold = []
    for curve in curves:
        of_curve = distributions(curve, tellings, lag)
        by_fold.append(of_curve)
    rows = []
    for number, telling in enumerate(tellings):
        own = by_fold[telling.fold]
        rows.append(own[number])
    return rows


def log_likelihood(rows: Rows, targets: Rows) -> Array:
    """Return (N,): the mean of log P over the seconds that show each step."""
    values = []
    for row, target in zip(rows, targets, strict=True):
        probabilities = np.maximum(row, MIN_PROBABILITY)
        value = target @ np.log(probabilities)
        values.append(value)
    return np.array(values)


def log_mass(rows: Rows, targets: Rows) -> Array:
    """Return (N,): the log of P(the second is in the span)."""
    values = []
    for row, target in zip(rows, targets, strict=True):
        mass = row @ (target > 0)
        mass = max(MIN_PROBABILITY, mass)
        values.append(np.log(mass))
    return np.array(values)


def targets_of(tellings: Tellings) -> list[Array]:
    """Return the seconds that show each step, (T,) each."""
    return [telling.target for telling in tellings]


def fit(sources: Sources, weights: dict[str, float]) -> ShownPrior:
    """Return the curve of greatest likelihood, where each source counts as its weight says."""
    targets = {}
    lengths = []
    for name in weights:
        targets[name] = targets_of(sources[name])
        for telling in sources[name]:
            lengths.append(telling.picture.duration)
    median = float(np.median(lengths))

    def curve_of(logarithms: Array) -> ShownPrior:
        numbers = np.exp(logarithms).tolist()
        # not fitted
        rate = 0.0
        return ShownPrior(*numbers, words=WORDS, shown_median=median, shown_rate=rate)

    def loss(logarithms: Array) -> float:
        curve = curve_of(logarithms)
        distance = logarithms - START
        value = SHRINK * (distance**2).sum()
        for name, weight in weights.items():
            rows = distributions(curve, sources[name])
            values = log_likelihood(rows, targets[name])
            value -= weight * values.mean()
        return float(value)

    best = minimize(loss, START, method="L-BFGS-B")
    return curve_of(best.x)


def fit_without_folds(sources: Sources) -> Curves:
    """Return, for each of CURVE_SOURCES, the curves without one fold after the other."""
    curves: Curves = {name: [] for name in CURVE_SOURCES}
    for fold in range(FOLDS):
        training = without_fold(sources, fold)
        for name, weights in CURVE_SOURCES.items():
            curve = fit(training, weights)
            curves[name].append(curve)
    return curves


def without_fold(sources: Sources, fold: int) -> Sources:
    """Return the tellings of other folds."""
    others: Sources = {}
    for name, tellings in sources.items():
        others[name] = []
        for telling in tellings:
            if telling.fold != fold:
                others[name].append(telling)
    return others
