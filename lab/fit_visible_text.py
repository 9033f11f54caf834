"""Fits P(the picture shows it | its wording) to WhenAct and writes stepline/text/visible_text.json.

    python lab/fit_visible_text.py

A logistic regression on MiniLM sentence vectors of 10,198 action phrases, each labelled seen or not
seen. Measured by 5-fold cross-validation over source videos. The shipped weights are fitted on all.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.stats import rankdata
from whenact_data import DRAWS, Array, folds, read_actions

from stepline.text import embed

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
MODEL_PATH = PROJECT_FOLDER / "stepline" / "text" / "visible_text.json"
RESULT_PATH = PROJECT_FOLDER / "lab" / "results" / "visible_text.json"
RIDGE_WEIGHT = 1e-4  # the best of 1e-3, 3e-4, 1e-4, 3e-5 by held-out likelihood
CALIBRATION_BINS = 10
WHENACT_COMMIT = "960120e13d26d212337ad6ebdb303b9e0b0dbf64"


def fit(x: Array, y: Array, ridge: float = RIDGE_WEIGHT) -> Array:
    """Return the weights (D + 1,), the last one the intercept."""
    wide = np.column_stack([x, np.ones(len(x))])

    def loss(w: Array) -> tuple[float, Array]:
        z = wide @ w
        losses = np.logaddexp(0, z) - y * z
        penalty = ridge * (w[:-1] ** 2).sum()
        residuals = 1 / (1 + np.exp(-z)) - y
        slope = wide.T @ residuals / len(y)
        penalty_slope = np.append(2 * ridge * w[:-1], 0)
        return float(losses.mean() + penalty), slope + penalty_slope

    start = np.zeros(wide.shape[1])
    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B").x)


def predict(x: Array, w: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-(x @ w[:-1] + w[-1]))))


def held_out(vectors: Array, is_visible: Array, sources: Sequence[str]) -> Array:
    """Return P(visible) of each phrase (N,) by a model that knows no phrase of its video."""
    fold = folds(sources)
    probabilities = np.zeros(len(is_visible))
    for number in np.unique(fold):
        test = fold == number
        weights = fit(vectors[~test], is_visible[~test])
        probabilities[test] = predict(vectors[test], weights)
    return probabilities


def auc(score: Array, y: Array) -> float:
    """Return the area under the ROC curve. y: 1.0 for a positive."""
    ranks = rankdata(score)
    positive = y.sum()
    negative = len(y) - positive
    # Of the ranks of the positives
    rank_sum = ranks[y > 0].sum()
    least_sum = positive * (positive + 1) / 2
    return float((rank_sum - least_sum) / (positive * negative))


def calibration(p: Array, y: Array) -> float:
    """Return the expected calibration error over equal-width bins."""
    bins = (p * CALIBRATION_BINS).astype(int)
    bins = np.minimum(bins, CALIBRATION_BINS - 1)
    error = 0.0
    for number in set(bins):
        inside = bins == number
        predicted = p[inside].mean()
        gap = abs(predicted - y[inside].mean())
        error += gap * inside.mean()
    return float(error)


def interval(p: Array, y: Array, groups: Array) -> list[float]:
    """Return the bootstrap interval of the AUC, groups drawn again. groups: (N,) numbers."""
    rng = np.random.default_rng(0)
    count = groups.max() + 1
    members = [np.flatnonzero(groups == group) for group in range(count)]
    scores = []
    for _ in range(DRAWS // 4):
        draw = rng.integers(count, size=count)
        rows = np.concatenate([members[group] for group in draw])
        scores.append(auc(p[rows], y[rows]))
    bounds = np.percentile(scores, [2.5, 97.5])
    return [round(float(bound), 4) for bound in bounds]


def write_model(weights: Array, fitted_on: dict[str, int]) -> None:
    """Write the weights that the package reads."""
    provenance = {
        "data": "WhenAct: which narrated actions of lifestyle vlogs are visible",
        "from": f"github.com/MichiganNLP/vlog_action_localization, commit {WHENACT_COMMIT}",
        "paper": "arXiv 2202.08138",
        "licence": "MIT, Copyright (c) 2021 Oana Ignat",
        "fitted_on": fitted_on,
        "made_by": "lab/fit_visible_text.py",
    }
    model = {
        "text_model": "minilm",
        "intercept": round(float(weights[-1]), 4),
        "weights": [round(float(weight), 3) for weight in weights[:-1]],
        "provenance": provenance,
    }
    MODEL_PATH.write_text(json.dumps(model) + "\n")


def main() -> None:
    actions = read_actions()
    x = embed([action.text for action in actions]).astype(np.float64)
    y = np.array([action.visible for action in actions], dtype=float)
    sources = [action.source for action in actions]
    names, groups = np.unique(sources, return_inverse=True)
    # How good it is on videos left out
    p = held_out(x, y, sources)
    p_of_truth = np.where(y > 0, p, 1 - p)
    likelihood = np.log(p_of_truth).mean()
    base = y.mean()
    base_likelihood = base * np.log(base) + (1 - base) * np.log(1 - base)
    result = {
        "phrases": len(y),
        "source_videos": len(names),
        "AUC": [round(auc(p, y), 4), *interval(p, y, groups)],
        "log-likelihood": round(float(likelihood), 4),
        "log-likelihood of the base rate": round(float(base_likelihood), 4),
        "calibration error": round(calibration(p, y), 4),
    }
    text = json.dumps(result, indent=2)
    RESULT_PATH.write_text(text + "\n")
    # What ships is fitted on all.
    fitted_on = {"phrases": len(y), "visible": int(y.sum()), "source_videos": len(names)}
    write_model(fit(x, y), fitted_on)
    print(text)


if __name__ == "__main__":
    main()
