"""How well scores rank the positives first: area under the ROC curve and average precision, ties as
scikit-learn does.

N items. labels: (N,) 1 positive, 0 negative. scores: (N,) higher means more likely positive. video:
(N,) 0..V-1.

VND-Test and any other set of clips that are labelled shown or not is scored by both. Reference and
predictions are JSON objects by video or clip id: a number, or one number per clip of the video. A
label is 0 or 1. Clips without a score cannot be ranked, so videos without predictions are left out
and listed.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.datasets.files import Node
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Integers, Statistic, divide_or_nan, point_estimate
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    SKIP_MISSING,
    ScoringTask,
    entries_by_id,
    read_numbers,
    require_length,
)

Numbers: TypeAlias = Sequence[float] | npt.NDArray[np.floating] | npt.NDArray[np.integer]


def roc_auc_statistic(labels: Floats, scores: Floats, video: Integers, videos: int) -> Statistic:
    """Return ROC-AUC: how often a positive scores above a negative, a tie counting half. It is NaN
    with one class only."""

    def area(above: Floats, wrong: Floats) -> Floats:
        before = np.hstack([np.zeros((len(above), 1)), above[:, :-1]])
        # Trapezoids over the negatives, so that a tie counts half.
        step = np.diff(wrong, prepend=0.0, axis=1)
        wins = (step * (before + above) / 2).sum(axis=1)
        return divide_or_nan(wins, above[:, -1] * wrong[:, -1])

    return _ranking_statistic(area, labels, scores, video, videos)


def average_precision_statistic(
    labels: Floats, scores: Floats, video: Integers, videos: int
) -> Statistic:
    """Return the sum over distinct scores of the gain in recall times the precision there, not
    interpolated. It is NaN with one class only."""

    def precision(above: Floats, wrong: Floats) -> Floats:
        gain = np.diff(above, prepend=0.0, axis=1)
        gained_precision = gain * np.nan_to_num(divide_or_nan(above, above + wrong))
        # With one class only a ranking is undefined, as for the area.
        positives = np.where(wrong[:, -1] > 0, above[:, -1], 0.0)
        return divide_or_nan(gained_precision.sum(axis=1), positives)

    return _ranking_statistic(precision, labels, scores, video, videos)


def _ranking_statistic(
    score_curves: Callable[[Floats, Floats], Floats],
    labels: Floats,
    scores: Floats,
    video: Integers,
    videos: int,
) -> Statistic:
    """score_curves: the weights of positives and of negatives at or above each distinct score, two
    (B, D), -> (B,) scores."""
    # Items from the best score down. Equal scores share a threshold, which is behind the last of
    # them.
    order = np.argsort(-scores, kind="stable")
    ranked_videos = video[order]
    ranked_labels = labels[order]
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1).astype(np.int64)

    def score(weights: Floats) -> Floats:
        item_weights = weights[:, ranked_videos]  # (B, N)
        positive_weights = item_weights * ranked_labels
        negative_weights = item_weights - positive_weights
        above = positive_weights.cumsum(axis=1)[:, last]
        return score_curves(above, negative_weights.cumsum(axis=1)[:, last])

    return Statistic(score, videos, len(labels), width=len(labels))


def roc_auc(labels: Numbers, scores: Numbers) -> float:
    """Return the area under the ROC curve.

    Raises DatasetError when it is undefined: one class only, scores that are not finite, or lengths
    that differ.
    """
    truth, values, video = require_both_classes(labels, scores)
    return point_estimate(roc_auc_statistic(truth, values, video, 1))


def require_both_classes(labels: Numbers, scores: Numbers) -> tuple[Floats, Floats, Integers]:
    """Return labels, scores and a video index of zeros. Raise DatasetError where no ranking is
    defined."""
    truth = np.asarray(labels, dtype=np.float64)
    values = np.asarray(scores, dtype=np.float64)
    if truth.shape != values.shape or truth.ndim != 1:
        shapes = f"{truth.shape} labels and {values.shape} scores"
        raise DatasetError(f"{shapes}; give one score per label, in one list each")
    if not np.isin(truth, (0.0, 1.0)).all():
        raise DatasetError("a label is neither 0 nor 1; give 1 for a positive and 0 for a negative")
    if not np.isfinite(values).all():
        raise DatasetError("a score is NaN or infinite; give a finite score for every item")
    if not len(truth):
        raise DatasetError("a ranking score is undefined with no item; give items of both classes")
    if len(np.unique(truth)) < 2:
        only = f"only label {truth[0]:g}"
        raise DatasetError(f"a ranking score is undefined with {only}; give items of both classes")
    return truth, values, np.zeros(len(truth), dtype=np.int64)


# ---------------------------------------------------------------- the benchmark VND


def score_clips(scoring: ScoringTask) -> Scores:
    """Return ROC-AUC and average precision, clips pooled over videos.

    Raises DatasetError when only one class is labelled, or for a score that is not finite.
    """
    references = entries_by_id(scoring.reference)
    labels_by_id = {id: _clip_values(node) for id, node in references.items()}
    nodes = entries_by_id(scoring.predictions)
    # labels and scores of the videos that have both
    labels = [np.zeros(0)]
    scores = [np.zeros(0)]
    clip_counts = []
    shown_counts = []
    for id, video_labels in labels_by_id.items():
        if id not in nodes:
            continue
        video_scores = _clip_values(nodes[id])
        require_length(nodes[id], video_scores, len(video_labels), "labels")
        labels.append(video_labels)
        scores.append(video_scores)
        clip_counts.append(len(video_labels))
        shown_counts.append(video_labels.sum())
    all_labels = np.concatenate(labels)
    truth, ranked, _ = require_both_classes(all_labels, np.concatenate(scores))
    # which video each clip belongs to
    video_count = len(clip_counts)
    clips = np.array(clip_counts)
    video = np.repeat(np.arange(video_count), clips)
    statistics: dict[str, Statistic] = {
        "ROC-AUC": roc_auc_statistic(truth, ranked, video, video_count),
        "AP": average_precision_statistic(truth, ranked, video, video_count),
    }
    columns = {"clips": clips.astype(np.float64), "shown": np.array(shown_counts)}
    return scoring.scores(
        statistics,
        columns,
        items=len(truth),
        reference_ids=labels_by_id,
        predicted_ids=nodes,
        handling=SKIP_MISSING,
    )


def _clip_values(node: Node) -> Floats:
    return read_numbers(node) if isinstance(node.value, list) else np.array([node.number()])
