"""Summaries as a benchmark (IV-Sum's WikiHow Summaries): F of frames, Kendall's tau, Spearman's rho.

The reference is IV-Sum's annotation file, {video: [0 or 1 a frame]}; its results file {video: {"machine_summary":
[...]}} or {video: [score a frame]} are the predictions; "scores" beside "machine_summary" rank the frames.
"""

import numpy as np

from stepline.datasets.node import Node
from stepline.errors import DatasetError
from stepline.evaluate.protocols.case import SKIP, ZERO, Case, by_id, numbers
from stepline.evaluate.report import Scores
from stepline.evaluate.statistics import Floats, Ratio, Statistic
from stepline.evaluate.summaries import OFFICIAL, Rules, fitted, frames_overlap, kendall_tau, spearman_rho

NAMES = ("F", "precision", "recall", "Kendall tau", "Spearman rho")


def score(case: Case, *, official: bool = False) -> Scores:
    """Return the means over videos of F, precision, recall, tau and rho, each over the videos where it is defined."""
    rules = OFFICIAL if official else Rules()
    truths = {id: numbers(node) for id, node in by_id(case.reference).items()}
    given = {id: node for id, node in by_id(case.predictions).items() if id in truths or _is_summary(node)}
    kept = [id for id in truths if id in given or not official]
    rows = np.array([_row(given.get(id), truths[id], rules) for id in kept]).reshape(len(kept), len(NAMES))
    statistics: dict[str, Statistic] = {}
    for column, name in enumerate(NAMES):
        known = ~np.isnan(rows[:, column])
        if known.any():
            statistics[name] = Ratio(np.where(known, rows[:, column], 0.0), known.astype(np.float64))
    columns = {name: rows[:, column] for column, name in enumerate(NAMES)}
    items = sum(len(truths[id]) for id in kept)
    return case.scores(
        kept, items, statistics, columns, asked=truths, given=given, handling=SKIP if official else ZERO,
        notes=_undefined(rows),
    )  # fmt: skip


def _is_summary(node: Node) -> bool:
    """Tell whether an entry is a video's: IV-Sum's results file also holds averages and a list of the best ids."""
    if isinstance(node.value, dict):
        return "machine_summary" in node.value
    return isinstance(node.value, list) and not any(isinstance(item, str) for item in node.value)


def _row(node: Node | None, truth: Floats, rules: Rules) -> list[float]:
    """Return the five numbers of one video, NaN where undefined; a missing video scores 0 where it could score."""
    frames = _frames(node, "machine_summary", truth, rules)
    ranks = _frames(node, "scores", truth, rules)
    found = frames_overlap(frames, truth, rules)
    defined = len(truth) > 1 and not (truth == truth[0]).all()
    if node is None:
        return [*([np.nan] * 3 if found is None else [0.0] * 3), *([0.0] * 2 if defined else [np.nan] * 2)]
    tau, rho = kendall_tau(ranks, truth), spearman_rho(ranks, truth)
    if tau is None and defined and rules != OFFICIAL:
        tau = rho = 0.0  # frames that all score the same rank nothing
    overlaps = [np.nan] * 3 if found is None else [found.f, found.precision, found.recall]
    return [*overlaps, *(np.nan if value is None else value for value in (tau, rho))]


def _frames(node: Node | None, key: str, truth: Floats, rules: Rules) -> Floats:
    if node is None:
        return np.zeros(len(truth))
    parts = (node.get(key) or node["machine_summary"]) if isinstance(node.value, dict) else node
    values = numbers(parts)
    if np.isnan(values).any():
        raise DatasetError(f"{parts.place}: holds null; give a score for every frame")
    return fitted(values, len(truth), rules.lengths)


def _undefined(rows: Floats) -> list[str]:
    counts = {name: int(np.isnan(rows[:, column]).sum()) for column, name in enumerate(NAMES)}
    rest = "videos, which its mean leaves out"
    return [f"{name} is undefined for {count} {rest}" for name, count in counts.items() if count]
