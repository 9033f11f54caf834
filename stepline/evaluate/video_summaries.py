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
from typing import Any, NamedTuple

import numpy as np

from stepline.datasets.files import Node
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Statistic, ratio_statistic
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
SCORE_COLUMNS = ("F", "precision", "recall", "Kendall tau", "Spearman rho")


class FrameOverlap(NamedTuple):
    """Overlap of a predicted summary with the reference summary of one video, in [0, 1].

    Attributes:
        f1: F1 of precision and recall.
        precision: fraction of the predicted frames that are in the reference.
        recall: fraction of the reference frames that are predicted.
    """

    f1: float
    precision: float
    recall: float


def frames_overlap(
    summary: Numbers, reference: Numbers, *, official: bool = False
) -> FrameOverlap | None:
    """Return F1, precision and recall of the frames of a predicted summary.

    The result is None where these are undefined.

    Args:
        summary: (T,) score of each frame. It is cut, or filled with 0, to the length of the
            reference. A frame is in the summary if its score exceeds MIN_FRAME_SCORE.
        reference: (T,) 1 for a frame of the reference summary, else 0.
        official: True scores as IV-Sum's program does. A reference without frames then gives F = 1,
            and lower scores count with their value instead of as 0.

    Raises DatasetError for NaN, or a reference value that is not 0 or 1.
    """
    truth = _finite_vector(reference, "reference frames")
    if not np.isin(truth, (0.0, 1.0)).all():
        raise DatasetError(
            "a reference frame is neither 0 nor 1; give 1 for the frames of the summary"
        )
    scores = cut_or_pad(_finite_vector(summary, "summary frames"), len(truth))
    if not truth.any():
        return FrameOverlap(1.0, 1.0, 1.0) if official else None
    # Officially a low score stays as it is, which makes the summary soft.
    frames = np.where(scores > MIN_FRAME_SCORE, 1.0, scores if official else 0.0)
    shared = float((frames * truth).sum())
    precision = shared / (float(frames.sum()) + FRACTION_EPSILON)
    recall = shared / (float(truth.sum()) + FRACTION_EPSILON)
    f = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
    return FrameOverlap(f, precision, recall)


def cut_or_pad(frames: Floats, length: int) -> Floats:
    """Return (length,) frame scores: the given scores (T,), cut or filled with zeros at the end."""
    return np.pad(frames[:length], (0, max(0, length - len(frames))))


def kendall_tau(first: Numbers, second: Numbers) -> float | None:
    """Return Kendall's tau-b in [-1, 1] of two score vectors (N,), None where one is constant."""
    from scipy.stats import kendalltau

    return _rank_correlation(first, second, kendalltau)


def spearman_rho(first: Numbers, second: Numbers) -> float | None:
    """Return Spearman's rank correlation in [-1, 1] of two score vectors (N,).

    Equal scores share their mean rank. The result is None where one vector is constant.
    """
    from scipy.stats import spearmanr

    return _rank_correlation(first, second, spearmanr)


def _rank_correlation(first: Numbers, second: Numbers, measure: Callable[..., Any]) -> float | None:
    scores = _finite_vector(first, "scores")
    truth = _finite_vector(second, "reference scores")
    # Numbers that are all equal have no order.
    if not _varies(scores) or not _varies(truth):
        return None
    return float(measure(scores, truth).statistic)


def _varies(values: Floats) -> bool:
    return bool((values != values[:1]).any())


def _finite_vector(values: Numbers, name: str) -> Floats:
    vector = np.asarray(values, dtype=np.float64)
    if not np.isfinite(vector).all():
        raise DatasetError(f"{name}: NaN or infinity; give one finite number per frame")
    return vector


# ---------------------------------------------------------------- the score


def score(scoring: ScoringTask, *, official: bool = False) -> Scores:
    """Return the means over videos of F1, precision, recall, Kendall's tau and Spearman's rho.

    Each mean is over the videos for which the number is defined.

    Args:
        scoring: the files of the evaluation.
        official: True computes F1 as IV-Sum's program does, see `frames_overlap`.
    """
    truths = {id: read_numbers(node) for id, node in entries_by_id(scoring.reference).items()}
    nodes = {
        id: node
        for id, node in entries_by_id(scoring.predictions).items()
        if id in truths or _is_summary(node)
    }
    # Officially only predicted videos count.
    scored_ids = [id for id in truths if id in nodes or not official]
    rows = [_video_scores(nodes.get(id), truths[id], official) for id in scored_ids]
    table = np.array(rows).reshape(len(rows), len(SCORE_COLUMNS))
    columns = dict(zip(SCORE_COLUMNS, table.T, strict=True))
    statistics: dict[str, Statistic] = {}
    notes = []
    for name, values in columns.items():
        is_defined = ~np.isnan(values)
        if is_defined.any():
            statistics[name] = ratio_statistic(
                np.where(is_defined, values, 0.0), is_defined.astype(np.float64)
            )
        if not is_defined.all():
            count = (~is_defined).sum()
            notes.append(f"{name} is undefined for {count} videos, which its mean leaves out")
    return scoring.make_scores(
        statistics,
        columns,
        items=sum(len(truths[id]) for id in scored_ids),
        reference_ids=truths,
        predicted_ids=nodes,
        handling=SKIP_MISSING if official else COUNT_MISSING,
        notes=notes,
    )


def _is_summary(node: Node) -> bool:
    """Return whether an entry of IV-Sum's file is a video. Averages and best ids are not."""
    if isinstance(node.value, dict):
        return "machine_summary" in node.value
    return isinstance(node.value, list) and not any(isinstance(item, str) for item in node.value)


def _video_scores(node: Node | None, truth: Floats, official: bool) -> list[float]:
    """Return the scores of one video in the order of SCORE_COLUMNS, NaN where undefined.

    Args:
        node: JSON value of the prediction. None: the video is missing, and every defined score is
            0.
        truth: (T,) 1 for a frame of the reference summary, else 0.
        official: True computes F1 as IV-Sum's program does.
    """
    overlap = frames_overlap(_frames(node, "machine_summary", truth), truth, official=official)
    if overlap is None:
        row = [np.nan, np.nan, np.nan]
    elif node is None:
        row = [0.0, 0.0, 0.0]
    else:
        row = [*overlap]
    # Predicted frames that all score the same are undefined officially, else uncorrelated.
    undefined = 0.0 if _varies(truth) and (node is None or not official) else np.nan
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
