"""Video summaries (IV-Sum's WikiHow Summaries): F of frames, Kendall's tau, Spearman's rho.

The official F (utils/evaluate_and_log) has three quirks. A reference without any frame gives F = 1.
Scores of 0.5 and less stay as they are, so the summary is soft (test.py). Frames beyond the
reference are cut off and lacking ones are 0. The first two only apply with `official`, the third
always. tau and rho are not in the official code. WYS2 (section 4.4) reports them.

The reference is IV-Sum's annotation file, {video: [0 or 1 per frame]}. The predictions are its
results file {video: {"machine_summary": [...]}}, or {video: [score per frame]}. "scores" next to
"machine_summary" rank the frames.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepline.datasets.files import Node
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Statistic, ratio
from stepline.evaluate.ranking import Numbers
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    COUNT_MISSING,
    SKIP_MISSING,
    ScoringTask,
    entries_by_id,
    read_numbers,
)

FRACTION_EPSILON = 1e-8  # added below both fractions, official
MIN_FRAME_SCORE = 0.5  # a frame is in the summary above it, IV-Sum's test.py


@dataclass(frozen=True)
class FrameOverlap:
    """F, precision and recall of one video's frames."""

    f: float
    precision: float
    recall: float


def frames_overlap(
    summary: Numbers, reference: Numbers, *, official: bool = False
) -> FrameOverlap | None:
    """Return the overlap of a summary (T,) of scores with reference frames (T,) of 0 and 1, or None
    where undefined.

    official: a reference without frames gives F = 1, and scores up to MIN_FRAME_SCORE stay as they
    are. Raises DatasetError for NaN, or a reference that is not 0 or 1.
    """
    # The reference: 0 and 1 alone.
    truth = _vector(reference, "reference frames")
    if not np.isin(truth, (0.0, 1.0)).all():
        raise DatasetError(
            "a reference frame is neither 0 nor 1; give 1 for the frames of the summary"
        )
    # The summary, as long as the reference.
    all_scores = _vector(summary, "summary frames")
    scores = cut_or_pad(all_scores, len(truth))
    if not truth.any():
        return FrameOverlap(1.0, 1.0, 1.0) if official else None
    # Officially a low score stays as it is, which makes the summary soft.
    low_scores = scores if official else 0.0
    frames = np.where(scores > MIN_FRAME_SCORE, 1.0, low_scores)
    # F of the frames.
    shared = float((frames * truth).sum())
    summary_sum = float(frames.sum()) + FRACTION_EPSILON
    reference_sum = float(truth.sum()) + FRACTION_EPSILON
    precision = shared / summary_sum
    recall = shared / reference_sum
    f = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
    return FrameOverlap(f, precision, recall)


def cut_or_pad(frames: Floats, length: int) -> Floats:
    """Return frames cut or filled with zeros to a length."""
    lacking = max(0, length - len(frames))
    return np.pad(frames[:length], (0, lacking))


def kendall_tau(first: Numbers, second: Numbers) -> float | None:
    """Return Kendall's tau-b in [-1, 1], or None where one side is constant, which leaves it
    undefined."""
    from scipy.stats import kendalltau

    return _correlation(first, second, kendalltau)


def spearman_rho(first: Numbers, second: Numbers) -> float | None:
    """Return Spearman's rank correlation in [-1, 1], ties at their mean rank, or None where one
    side is constant."""
    from scipy.stats import spearmanr

    return _correlation(first, second, spearmanr)


def _correlation(first: Numbers, second: Numbers, measure: Callable[..., Any]) -> float | None:
    scores = _vector(first, "scores")
    truth = _vector(second, "reference scores")
    if len(scores) != len(truth):
        counts = f"{len(scores)} scores for {len(truth)} reference scores"
        raise DatasetError(f"{counts}; give one per frame")
    # Numbers that are all equal have no order.
    if not _varies(scores) or not _varies(truth):
        return None
    return float(measure(scores, truth).statistic)


def _varies(values: Floats) -> bool:
    return bool((values != values[:1]).any())


def _vector(values: Numbers, what: str) -> Floats:
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        fault = f"{what}: not a list of numbers ({error})"
        raise DatasetError(f"{fault}; give one number per frame") from error
    if vector.ndim != 1 or not np.isfinite(vector).all():
        fault = f"{what}: shape {vector.shape} or NaN in it"
        raise DatasetError(f"{fault}; give one finite number per frame")
    return vector


# ---------------------------------------------------------------- the score


SCORE_COLUMNS = ("F", "precision", "recall", "Kendall tau", "Spearman rho")


def score(scoring: ScoringTask, *, official: bool = False) -> Scores:
    """Return the means over videos of F, precision, recall, tau and rho, each over the videos where
    it is defined."""
    truths = {}
    for id, node in entries_by_id(scoring.reference).items():
        truths[id] = read_numbers(node)
    nodes = {}
    for id, node in entries_by_id(scoring.predictions).items():
        if id in truths or _is_summary(node):
            nodes[id] = node
    # the numbers of each video (the official ones are of predicted videos only)
    rows = []
    frame_count = 0
    for id, truth in truths.items():
        if official and id not in nodes:
            continue
        rows.append(_video_scores(nodes.get(id), truth, official))
        frame_count += len(truth)
    shape = (len(rows), len(SCORE_COLUMNS))
    table = np.array(rows).reshape(shape)
    columns = dict(zip(SCORE_COLUMNS, table.T, strict=True))
    # their means, each over the videos where it is defined
    statistics: dict[str, Statistic] = {}
    notes = []
    for name, values in columns.items():
        defined = ~np.isnan(values)
        if defined.any():
            defined_values = np.where(defined, values, 0.0)
            statistics[name] = ratio(defined_values, defined.astype(np.float64))
        if not defined.all():
            count = (~defined).sum()
            notes.append(f"{name} is undefined for {count} videos, which its mean leaves out")
    handling = SKIP_MISSING if official else COUNT_MISSING
    return scoring.scores(
        statistics,
        columns,
        items=frame_count,
        reference_ids=truths,
        predicted_ids=nodes,
        handling=handling,
        notes=notes,
    )


def _is_summary(node: Node) -> bool:
    """Return whether an entry is a video's: IV-Sum's results file also holds averages and a list
    of the best ids."""
    if isinstance(node.value, dict):
        return "machine_summary" in node.value
    if not isinstance(node.value, list):
        return False
    return not any(isinstance(item, str) for item in node.value)


def _video_scores(node: Node | None, truth: Floats, official: bool) -> list[float]:
    """Return the five numbers of one video, NaN where undefined. A missing video scores 0 where it
    could score."""
    # F, precision and recall
    summary = _frames(node, "machine_summary", truth)
    overlap = frames_overlap(summary, truth, official=official)
    if overlap is None:
        row = [np.nan, np.nan, np.nan]
    elif node is None:
        row = [0.0, 0.0, 0.0]
    else:
        row = [overlap.f, overlap.precision, overlap.recall]
    # tau and rho. Frames that all score the same rank nothing: undefined, officially
    undefined = np.nan
    if _varies(truth) and (node is None or not official):
        undefined = 0.0
    ranks = _frames(node, "scores", truth)
    for correlation in (kendall_tau(ranks, truth), spearman_rho(ranks, truth)):
        row.append(undefined if correlation is None else correlation)
    return row


def _frames(node: Node | None, key: str, truth: Floats) -> Floats:
    if node is None:
        return np.zeros(len(truth))
    if isinstance(node.value, dict):
        node = node.get(key) or node["machine_summary"]
    values = read_numbers(node)
    if np.isnan(values).any():
        raise DatasetError(f"{node.location}: holds null; give a score for every frame")
    return cut_or_pad(values, len(truth))
