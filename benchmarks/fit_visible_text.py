"""Fits P(the picture shows it | its wording) to WhenAct and writes stepline/text/visible_text.json.

    python benchmarks/fit_visible_text.py

A logistic regression on MiniLM sentence vectors of 10,198 action phrases, each labelled seen or not
seen. Measured by 5-fold cross-validation over source videos. The shipped weights are fitted on all.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.stats import rankdata
from whenact import DRAWS
from whenact_data import Array, folds, read_actions

from stepline.text import embed

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "stepline" / "text" / "visible_text.json"
RESULT = ROOT / "benchmarks" / "results" / "visible_text.json"
RIDGE = 1e-4  # the best of 1e-3, 3e-4, 1e-4, 3e-5 by held-out likelihood
BINS = 10  # of the calibration error


def fit(x: Array, y: Array, ridge: float = RIDGE) -> Array:
    """Return the weights (D + 1,), the last one the intercept."""
    wide = np.column_stack([x, np.ones(len(x))])

    def loss(w: Array) -> tuple[float, Array]:
        z = wide @ w
        value = float((np.logaddexp(0, z) - y * z).mean() + ridge * (w[:-1] ** 2).sum())
        return value, wide.T @ (1 / (1 + np.exp(-z)) - y) / len(y) + np.append(
            2 * ridge * w[:-1], 0
        )

    return np.asarray(minimize(loss, np.zeros(wide.shape[1]), jac=True, method="L-BFGS-B").x)


def predict(x: Array, w: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-(x @ w[:-1] + w[-1]))))


def held_out(vectors: Array, seen: Array, sources: Sequence[str]) -> Array:
    """Return P(seen) of each phrase (N,) by a model that knows no phrase of its video."""
    fold, found = folds(sources), np.zeros(len(seen))
    for one in np.unique(fold):
        found[fold == one] = predict(
            vectors[fold == one], fit(vectors[fold != one], seen[fold != one])
        )
    return found


def auc(score: Array, y: Array) -> float:
    ranks, positive = rankdata(score), y.sum()
    return float(
        (ranks[y > 0].sum() - positive * (positive + 1) / 2) / (positive * (len(y) - positive))
    )


def calibration(p: Array, y: Array) -> float:
    """Return the expected calibration error over equal-width bins."""
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    return float(
        sum(abs(p[bins == b].mean() - y[bins == b].mean()) * (bins == b).mean() for b in set(bins))
    )


def interval(p: Array, y: Array, groups: Array) -> list[float]:
    rng, count = np.random.default_rng(0), groups.max() + 1
    members = [np.flatnonzero(groups == g) for g in range(count)]
    drawn = (
        np.concatenate([members[g] for g in rng.integers(count, size=count)])
        for _ in range(DRAWS // 4)
    )
    return [
        round(float(v), 4)
        for v in np.percentile([auc(p[rows], y[rows]) for rows in drawn], [2.5, 97.5])
    ]


def main() -> None:
    actions = read_actions()
    x = embed([a.text for a in actions]).astype(np.float64)
    y = np.array([a.visible for a in actions], dtype=float)
    names, groups = np.unique([a.source for a in actions], return_inverse=True)
    p = held_out(x, y, [a.source for a in actions])
    base = y.mean()
    result = {
        "phrases": len(y),
        "source_videos": len(names),
        "AUC": [round(auc(p, y), 4), *interval(p, y, groups)],
        "log-likelihood": round(float(np.log(np.where(y > 0, p, 1 - p)).mean()), 4),
        "log-likelihood of the base rate": round(
            float(base * np.log(base) + (1 - base) * np.log(1 - base)), 4
        ),
        "calibration error": round(calibration(p, y), 4),
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    weights = fit(x, y)
    provenance = {
        "data": "WhenAct: which narrated actions of lifestyle vlogs are visible",
        "from": "github.com/MichiganNLP/vlog_action_localization, commit 960120e13d26d212337ad6ebdb303b9e0b0dbf64",
        "paper": "arXiv 2202.08138",
        "licence": "MIT, Copyright (c) 2021 Oana Ignat",
        "fitted_on": {"phrases": len(y), "visible": int(y.sum()), "source_videos": len(names)},
        "made_by": "benchmarks/fit_visible_text.py",
    }
    model = {"text_model": "minilm", "intercept": round(float(weights[-1]), 4)}
    model |= {"weights": [round(float(w), 3) for w in weights[:-1]], "provenance": provenance}
    OUT.write_text(json.dumps(model) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
