"""Measures the shown prior on WhenAct: 5-fold cross-validation and bootstrap over source videos.

    python lab/whenact.py

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

RESULT_PATH = Path(__file__).resolve().parent / "results" / "whenact.json"
DRAWS = 2000  # bootstrap samples
# Of the ridge from a phrase's vector to its offset. 3 to 100 were tried, none is better in both
# columns.
RIDGE_PENALTY = 30.0
MAX_OFFSET_SECONDS = 12.0  # an offset beyond counts as this, or a few would decide the fit
SHOWN_PRIOR = "shown prior"
VERB_FORM_CURVES = "a curve for each form of the verb"
WORDING_OFFSET = "moved by the wording"
METHOD_NAMES = ("uniform", "centred Gaussian", SHOWN_PRIOR, VERB_FORM_CURVES, WORDING_OFFSET)
METRIC_NAMES = ("log-likelihood", "coverage", "IoU", "R@1", "80 % set")


def gaussian(actions: Sequence[Action], sigma: float) -> Array:
    """Return (N, CLIP): a Gaussian over the clip's seconds about each spoken centre."""
    centers = np.array([action.said.center for action in actions])
    seconds = np.arange(CLIP) + 0.5
    p = np.exp(-0.5 * ((seconds - centers[:, None]) / sigma) ** 2)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def fit_gaussian(actions: Sequence[Action]) -> float:
    """Return the standard deviation of the greatest likelihood."""
    target = shown_seconds([action.shown for action in actions if action.shown])

    def likelihood(sigma: float) -> float:
        return float(log_likelihood(gaussian(actions, sigma), target).mean())

    return float(max(np.arange(4.0, 40.0, 0.5), key=likelihood))


def held_out(actions: Sequence[Action]) -> dict[str, Array]:
    """Return P (N, CLIP) of each method, every action under a curve fitted on other videos."""
    fold = folds([action.source for action in actions])
    forms = np.array([verb_form(action.text) for action in actions])
    vectors = embed([action.text for action in actions])
    p = {name: np.full((len(actions), CLIP), 1 / CLIP) for name in METHOD_NAMES}
    for k in range(FOLDS):
        is_test = fold == k
        train = _select(actions, ~is_test)
        test = _select(actions, is_test)

        # one curve for all actions
        p["centred Gaussian"][is_test] = gaussian(test, fit_gaussian(train))
        curve = fit(train)
        p[SHOWN_PRIOR][is_test] = densities(curve, test)

        # one curve per form of the verb
        for form in set(forms):
            has_form = forms == form
            form_curve = fit(_select(actions, ~is_test & has_form))
            form_test = _select(actions, is_test & has_form)
            p[VERB_FORM_CURVES][is_test & has_form] = densities(form_curve, form_test)

        # the one curve, moved by the phrase's own lag
        lags = offset_by_wording(vectors[~is_test], train, vectors[is_test])
        rows = []
        for action, lag in zip(test, lags.tolist(), strict=True):
            rows.append(curve.distribution([action.said], CLIP, lag=lag))
        p[WORDING_OFFSET][is_test] = rows
    return p


def _select(actions: Sequence[Action], mask: Array) -> list[Action]:
    return [action for action, is_in in zip(actions, mask, strict=True) if is_in]


def verb_form(text: str) -> str:
    """Return "now" for "chopping the onion", "past" for "chopped the onion", else "base".

    The end of the first word decides.
    """
    first = text.split()[0].lower()
    if re.search("..ing$", first):
        return "now"
    return "past" if re.search("..ed$", first) else "base"


def offset_by_wording(vectors: Array, actions: Sequence[Action], phrases: Array) -> Array:
    """Return the seconds by which phrases (N, D) are shown later than the usual one.

    A ridge, fitted on actions and their vectors, predicts them.
    """
    offsets = []
    for action in actions:
        if action.shown:
            start, end = action.shown
            offsets.append((start + end) / 2 - action.said.center)
    offset = np.clip(offsets, -MAX_OFFSET_SECONDS, MAX_OFFSET_SECONDS)
    gram = vectors.T @ vectors + RIDGE_PENALTY * np.eye(vectors.shape[1])
    weights = np.linalg.solve(gram, vectors.T @ (offset - offset.mean()))
    return np.asarray(phrases @ weights)


def predictions(p: Array, settings: GroundSettings) -> tuple[Array, Array]:
    """Return the second (N,) and the span (N, 2) that `ground` would decode from P."""
    occupied = occupancy(p, [slice(0, CLIP)], settings.typical)
    best = occupied.argmax(axis=1)
    spans = []
    for row, second in zip(occupied, best, strict=True):
        spans.append(grow_window(row, int(second), settings.grow))
    return best + 0.5, np.array(spans, dtype=float)


def measure(p: Array | None, at: Array, spans: Array, shown_spans: Array) -> dict[str, Array]:
    """Return each metric for each action, (N,). Without P two of them are NaN."""
    target = shown_seconds([tuple(span) for span in shown_spans])
    start, end = shown_spans.T
    length = np.maximum(end - start, 1e-3)
    span_start, span_end = spans.T
    shared = np.clip(np.minimum(span_end, end) - np.maximum(span_start, start), 0, None)
    union = length + span_end - span_start - shared
    hit = (start <= at) & (at < start + length)
    likelihood = np.full(len(at), np.nan)
    inside = likelihood
    if p is not None:
        likelihood = log_likelihood(p, target)
        inside = (most_likely_seconds(p, 0.8) * target).sum(axis=1)
    columns = (likelihood, shared / length, shared / union, hit.astype(float), inside)
    return dict(zip(METRIC_NAMES, columns, strict=True))


def most_likely_seconds(p: Array, mass: float) -> Array:
    """Return (N, CLIP) of 0 and 1: the most likely seconds that together hold `mass`.

    The last of them counts in part.
    """
    order = np.argsort(-p, axis=1, kind="stable")
    ranked = np.take_along_axis(p, order, axis=1)
    before = ranked.cumsum(axis=1) - ranked
    shares = np.clip((mass - before) / ranked, 0, 1)
    by_second = np.zeros_like(p)
    np.put_along_axis(by_second, order, shares, axis=1)
    return by_second


def interval(values: Array, groups: Array, draws: Array) -> list[float]:
    """Return [mean, low, high]: the 95 % bootstrap interval over source videos."""
    sums = np.bincount(groups, values)
    counts = np.bincount(groups)
    means = sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return [round(float(value), 4) for value in (values.mean(), low, high)]


def main() -> None:
    actions = [action for action in read_actions() if action.shown]
    shown_spans = np.array([action.shown for action in actions])
    spoken_spans = np.array([[action.said.start, action.said.end] for action in actions])
    names, groups = np.unique([action.source for action in actions], return_inverse=True)
    draws = np.random.default_rng(0).integers(len(names), size=(DRAWS, len(names)))

    # every method, and what the spoken times alone give
    rows = {}
    for name, p in held_out(actions).items():
        at, spans = predictions(p, GroundSettings())
        rows[name] = measure(p, at, spans, shown_spans)
    spoken = measure(None, spoken_spans.mean(axis=1), spoken_spans, shown_spans)
    rows["spoken centre, spoken window"] = spoken

    # differences
    prior = rows[SHOWN_PRIOR]
    rows["difference: prior - spoken"] = _difference(prior, spoken)
    for name in (VERB_FORM_CURVES, WORDING_OFFSET):
        rows[f"difference: {name} - prior"] = _difference(rows[name], prior)
    rows["difference: prior - Gaussian"] = _difference(prior, rows["centred Gaussian"])

    table: dict[str, dict[str, list[float]]] = {}
    for name, row in rows.items():
        table[name] = {}
        for metric, values in row.items():
            if not np.isnan(values).any():
                table[name][metric] = interval(values, groups, draws)
    tree = {"actions": len(actions), "source_videos": len(names), "table": table}
    RESULT_PATH.parent.mkdir(exist_ok=True)
    RESULT_PATH.write_text(json.dumps(tree, indent=2) + "\n")
    print(markdown(table))


def _difference(first: dict[str, Array], second: dict[str, Array]) -> dict[str, Array]:
    return {metric: first[metric] - second[metric] for metric in METRIC_NAMES}


def markdown(table: dict[str, dict[str, list[float]]]) -> str:
    lines = ["| " + " | ".join(("", *METRIC_NAMES)) + " |", "|---" * (len(METRIC_NAMES) + 1) + "|"]
    for name, row in table.items():
        cells = [name]
        for metric in METRIC_NAMES:
            if metric not in row:
                cells.append("–")
                continue
            mean, low, high = row[metric]
            cells.append(f"{mean:.3f} [{low:.3f}, {high:.3f}]")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
