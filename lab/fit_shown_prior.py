"""Fits P(shown at t | said at s) to WhenAct and writes stepline/grounding/shown_prior.json.

    python lab/fit_shown_prior.py

Likelihood of one action: the mean, over the seconds of its shown span, of log P(second). P is
normalised over the 60 s of the clip, so that what the cut hides is not counted as far. The spoken
windows are passages of 10 s. The words lie somewhere within, and the curve is averaged over where,
so that what is fitted is the distance from the words.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from whenact_data import CLIP, Action, Array, read_actions, shown_seconds

from stepline.grounding.said_to_shown import ShownPrior

PRIOR_PATH = Path(__file__).resolve().parents[1] / "stepline" / "grounding" / "shown_prior.json"
WORDS = 3.0  # seconds, the usual length of a recogniser's sentence
START = np.log([2.0, 1.0, 2.0, 1.0])  # before scale, before power, after scale, after power
WHENACT_COMMIT = "960120e13d26d212337ad6ebdb303b9e0b0dbf64"
SHRINK = 1e-4  # weight of the squared distance from START; only keeps the fit from drifting


def fit(actions: Sequence[Action]) -> ShownPrior:
    """Return the curve of greatest likelihood for the localised actions given."""
    target = shown_seconds([a.shown for a in actions if a.shown])
    base = _base(actions)

    def loss(x: Array) -> float:
        prior = ShownPrior(*np.exp(x), **base)
        likelihood = log_likelihood(densities(prior, actions), target).mean()
        penalty = SHRINK * ((x - START) ** 2).sum()
        return float(-likelihood + penalty)

    best = minimize(loss, START, method="L-BFGS-B").x
    curve = [float(round(value, 3)) for value in np.exp(best)]
    return ShownPrior(*curve, **base)


def densities(prior: ShownPrior, actions: Sequence[Action]) -> Array:
    """Return (N, CLIP). Equal spoken windows are worked out once."""
    rows = {}
    for action in actions:
        if action.said not in rows:
            rows[action.said] = prior.distribution([action.said], CLIP)
    return np.array([rows[action.said] for action in actions])


def log_likelihood(p: Array, target: Array) -> Array:
    """Return (N,): the mean of log p over the shown seconds of each action."""
    return np.asarray((target * np.log(np.maximum(p, 1e-12))).sum(axis=1))


def _base(actions: Sequence[Action]) -> dict[str, float]:
    lengths = []
    for action in actions:
        if action.shown:
            start, end = action.shown
            lengths.append(end - start)
    return {"words": WORDS, "shown_median": float(np.median(lengths)), "shown_rate": 0.0}


def main(write: Callable[[str], object] = print) -> None:
    actions = read_actions()
    shown_actions = [action for action in actions if action.shown]
    curve = asdict(fit(shown_actions))
    visible = sum(action.visible for action in actions)
    curve["shown_rate"] = round(visible / len(actions), 3)
    provenance = {
        "data": "WhenAct: narrated actions in lifestyle vlogs, when said and when shown",
        "from": f"github.com/MichiganNLP/vlog_action_localization, commit {WHENACT_COMMIT}",
        "paper": "arXiv 2202.08138",
        "licence": "MIT, Copyright (c) 2021 Oana Ignat",
        "fitted_on": {
            "phrases": len(actions),
            "shown": len(shown_actions),
            "source_videos": len({action.source for action in shown_actions}),
        },
        "made_by": "lab/fit_shown_prior.py",
    }
    PRIOR_PATH.write_text(json.dumps({"curve": curve, "provenance": provenance}, indent=2) + "\n")
    write(json.dumps(curve, indent=2))


if __name__ == "__main__":
    main()
