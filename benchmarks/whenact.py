"""Measures the shown prior on WhenAct: 5-fold cross-validation over source videos, bootstrap over
source videos.

    python benchmarks/whenact.py

log-likelihood: mean over a shown span's seconds of log P(second), P normalised over the 60 s clip.
coverage: share of the shown span inside the predicted one. IoU with it. R@1: the predicted second
lies inside the shown span. 80 % set: share of the shown span inside the most likely seconds that
hold 0.8 of P (0.8 = calibrated).
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fit_shown_prior import densities, fit, log_likelihood
from whenact_data import CLIP, FOLDS, Action, Array, folds, read_actions, shown_seconds

from stepline.grounding.fusion import occupancy
from stepline.grounding.settings import GroundSettings
from stepline.grounding.speech import grow_window
from stepline.text import embed

OUT = Path(__file__).resolve().parent / "results" / "whenact.json"
DRAWS = 2000  # bootstrap samples
SHRINK = (
    # of the ridge from a phrase's vector to its offset. 3 to 100 were tried, none does better in
    # both columns
    30.0
)
FARTHEST = 12.0  # s; an offset beyond counts as this, or a few would make the fit
METRICS = ("log-likelihood", "coverage", "IoU", "R@1", "80 % set")


def gaussian(actions: Sequence[Action], sigma: float) -> Array:
    centers = np.array([a.said.center for a in actions])
    p = np.exp(-0.5 * ((np.arange(CLIP) + 0.5 - centers[:, None]) / sigma) ** 2)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def fit_gaussian(actions: Sequence[Action]) -> float:
    target = shown_seconds([a.shown for a in actions if a.shown])
    sigmas = np.arange(4.0, 40.0, 0.5)
    return float(max(sigmas, key=lambda s: log_likelihood(gaussian(actions, s), target).mean()))


def held_out(actions: Sequence[Action]) -> dict[str, Array]:
    """Return P (N, CLIP) of each method, every action under a curve fitted on other source
    videos."""
    fold = folds([a.source for a in actions])
    forms, vectors = (
        np.array([verb_form(a.text) for a in actions]),
        embed([a.text for a in actions]),
    )
    methods = (
        "uniform",
        "centred Gaussian",
        "shown prior",
        "a curve for each form of the verb",
        "moved by the wording",
    )
    out = {name: np.full((len(actions), CLIP), 1 / CLIP) for name in methods}
    for k in range(FOLDS):
        train = [a for a, f in zip(actions, fold, strict=True) if f != k]
        test = [a for a, f in zip(actions, fold, strict=True) if f == k]
        out["centred Gaussian"][fold == k] = gaussian(test, fit_gaussian(train))
        curve = fit(train)
        out["shown prior"][fold == k] = densities(curve, test)
        for form in set(forms):
            own = [
                a
                for a, f, own_form in zip(actions, fold, forms, strict=True)
                if f != k and own_form == form
            ]
            of_form = (fold == k) & (forms == form)
            tested = [a for a, chosen in zip(actions, of_form, strict=True) if chosen]
            out["a curve for each form of the verb"][of_form] = densities(fit(own), tested)
        lags = offset_by_wording(vectors[fold != k], train, vectors[fold == k])
        out["moved by the wording"][fold == k] = [
            curve.distribution([a.said], CLIP, lag=lag)
            for a, lag in zip(test, lags.tolist(), strict=True)
        ]
    return out


def verb_form(text: str) -> str:
    """Return "now" for "chopping the onion", "past" for "chopped the onion", else "base". By the
    first word's end."""
    first = text.split()[0].lower()
    return "now" if re.search("..ing$", first) else "past" if re.search("..ed$", first) else "base"


def offset_by_wording(vectors: Array, actions: Sequence[Action], asked: Array) -> Array:
    """Return the seconds by which phrases (N, D) are shown later than the usual one: a ridge,
    fitted on actions."""
    offsets = [(a.shown[0] + a.shown[1]) / 2 - a.said.center for a in actions if a.shown]
    offset = np.clip(offsets, -FARTHEST, FARTHEST)
    gram = vectors.T @ vectors + SHRINK * np.eye(vectors.shape[1])
    return np.asarray(asked @ np.linalg.solve(gram, vectors.T @ (offset - offset.mean())))


def predictions(p: Array, settings: GroundSettings) -> tuple[Array, Array]:
    """Return the second (N,) and the span (N, 2) that `ground` would decode from P."""
    held = occupancy(p, [slice(0, CLIP)], settings.typical)
    best = held.argmax(axis=1)
    spans = [grow_window(row, int(t), settings.grow) for row, t in zip(held, best, strict=True)]
    return best + 0.5, np.array(spans, dtype=float)


def measure(p: Array | None, at: Array, spans: Array, shown: Array) -> dict[str, Array]:
    """Return each metric for each action, (N,). No distribution, no likelihood."""
    target = shown_seconds([tuple(s) for s in shown])
    length = np.maximum(shown[:, 1] - shown[:, 0], 1e-3)
    shared = np.clip(
        np.minimum(spans[:, 1], shown[:, 1]) - np.maximum(spans[:, 0], shown[:, 0]), 0, None
    )
    union = length + spans[:, 1] - spans[:, 0] - shared
    hit = (shown[:, 0] <= at) & (at < shown[:, 0] + length)
    nothing = np.full(len(at), np.nan)
    likelihood = nothing if p is None else log_likelihood(p, target)
    inside = nothing if p is None else (likeliest(p, 0.8) * target).sum(axis=1)
    return dict(
        zip(
            METRICS,
            (likelihood, shared / length, shared / union, hit.astype(float), inside),
            strict=True,
        )
    )


def likeliest(p: Array, mass: float) -> Array:
    """Return (N, CLIP) of 0, 1 and one share between: the most likely seconds that together hold
    `mass`."""
    order = np.argsort(-p, axis=1, kind="stable")
    ranked = np.take_along_axis(p, order, axis=1)
    before = ranked.cumsum(axis=1) - ranked
    taken = np.clip((mass - before) / ranked, 0, 1)
    out = np.zeros_like(p)
    np.put_along_axis(out, order, taken, axis=1)
    return out


def interval(values: Array, groups: Array, draws: Array) -> list[float]:
    """Return [mean, low, high]: the 95 % bootstrap interval, source videos drawn with
    replacement."""
    sums, counts = np.bincount(groups, values), np.bincount(groups)
    means = sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
    return [round(float(v), 4) for v in (values.mean(), *np.percentile(means, [2.5, 97.5]))]


def main() -> None:
    actions = [a for a in read_actions() if a.shown]
    shown = np.array([a.shown for a in actions])
    said = np.array([[a.said.start, a.said.end] for a in actions])
    names, groups = np.unique([a.source for a in actions], return_inverse=True)
    draws = np.random.default_rng(0).integers(len(names), size=(DRAWS, len(names)))
    rows = {
        name: measure(p, *predictions(p, GroundSettings()), shown)
        for name, p in held_out(actions).items()
    }
    rows["spoken centre, spoken window"] = measure(None, said.mean(axis=1), said, shown)
    spoken, prior = rows["spoken centre, spoken window"], rows["shown prior"]
    rows["difference: prior - spoken"] = {
        metric: prior[metric] - spoken[metric] for metric in METRICS
    }
    for name in ("a curve for each form of the verb", "moved by the wording"):
        rows[f"difference: {name} - prior"] = {
            metric: rows[name][metric] - prior[metric] for metric in METRICS
        }
    gauss = rows["centred Gaussian"]
    rows["difference: prior - Gaussian"] = {
        metric: prior[metric] - gauss[metric] for metric in METRICS
    }
    table = {
        name: {
            metric: interval(v, groups, draws) for metric, v in row.items() if not np.isnan(v).any()
        }
        for name, row in rows.items()
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(
        json.dumps({"actions": len(actions), "source_videos": len(names), "table": table}, indent=2)
        + "\n"
    )
    print(markdown(table))


def markdown(table: dict[str, dict[str, list[float]]]) -> str:
    lines = ["| " + " | ".join(("", *METRICS)) + " |", "|---" * (len(METRICS) + 1) + "|"]
    for name, row in table.items():
        cells = [
            f"{row[m][0]:.3f} [{row[m][1]:.3f}, {row[m][2]:.3f}]" if m in row else "–"
            for m in METRICS
        ]
        lines.append("| " + " | ".join((name, *cells)) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
