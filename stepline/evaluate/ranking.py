"""ROC-AUC and average precision of binary labels, with ties as in scikit-learn.

N items in V videos, B bootstrap draws. This scores VND-Test and any other set of clips with binary
labels. Reference and predictions are JSON objects by video or clip id: a number, or one number per
clip of the video. In `video:clip` what precedes the last colon is the video. A label is 0 or 1.
Clips without a score cannot be ranked, so videos without predictions are left out and listed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

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

Numbers = Sequence[float] | npt.NDArray[np.floating] | npt.NDArray[np.integer]


def roc_auc_statistic(labels: Floats, scores: Floats, video: Integers, videos: int) -> Statistic:
    """Return the area under the ROC curve as a statistic over videos.

    It is the probability that a positive scores above a negative, where ties count half. It is NaN
    for a bootstrap draw that holds only one class.

    Args:
        labels: (N,) 1 for a positive item, 0 for a negative item.
        scores: (N,) score of each item, higher for more likely positive.
        video: (N,) index of the video of each item, 0..V-1.
        videos: V, number of videos.
    """

    def area(positives: Floats, negatives: Floats) -> Floats:
        earlier = np.hstack([np.zeros((len(positives), 1)), positives[:, :-1]])
        # Trapezoids over the negatives, so that a tie counts half.
        step = np.diff(negatives, prepend=0.0, axis=1)
        wins = (step * (earlier + positives) / 2).sum(axis=1)
        return divide_or_nan(wins, positives[:, -1] * negatives[:, -1])

    return _ranking_statistic(area, labels, scores, video, videos)


def average_precision_statistic(
    labels: Floats, scores: Floats, video: Integers, videos: int
) -> Statistic:
    """Return average precision, without interpolation, as a statistic over videos.

    It is the sum, over distinct scores, of the gain in recall times the precision at that score.

    Args:
        labels: (N,) 1 for a positive item, 0 for a negative item.
        scores: (N,) score of each item, higher for more likely positive.
        video: (N,) index of the video of each item, 0..V-1.
        videos: V, number of videos.
    """

    def precision(positives: Floats, negatives: Floats) -> Floats:
        gain = np.diff(positives, prepend=0.0, axis=1)
        gained = gain * np.nan_to_num(divide_or_nan(positives, positives + negatives))
        # With one class only a ranking is undefined, as for the area.
        totals = np.where(negatives[:, -1] > 0, positives[:, -1], 0.0)
        return divide_or_nan(gained.sum(axis=1), totals)

    return _ranking_statistic(precision, labels, scores, video, videos)


def _ranking_statistic(
    score_curves: Callable[[Floats, Floats], Floats],
    labels: Floats,
    scores: Floats,
    video: Integers,
    videos: int,
) -> Statistic:
    """Return a measure of a ranking as a statistic over videos.

    Args:
        score_curves: function of the summed weights of the positives, and of the negatives, that
            score at or above each of the D distinct scores: two arrays (B, D). It returns (B,)
            measures.
        labels: (N,) 1 for a positive item, 0 for a negative item.
        scores: (N,) score of each item.
        video: (N,) index of the video of each item, 0..V-1.
        videos: V, number of videos.
    """
    # Items from the best score down. Equal scores share a threshold, which is at the last of them.
    order = np.argsort(-scores, kind="stable")
    ranked_videos = video[order]
    ranked_labels = labels[order]
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1).astype(np.int64)

    def score(weights: Floats) -> Floats:
        item_weights = weights[:, ranked_videos]  # (B, N)
        positive_weights = item_weights * ranked_labels
        negative_weights = item_weights - positive_weights
        return score_curves(
            positive_weights.cumsum(axis=1)[:, last], negative_weights.cumsum(axis=1)[:, last]
        )

    return Statistic(score, videos, len(labels), numbers_per_draw=len(labels))


def roc_auc(labels: Numbers, scores: Numbers) -> float:
    """Return the area under the ROC curve, in [0, 1].

    Args:
        labels: (N,) 1 for a positive item, 0 for a negative item.
        scores: (N,) score of each item, higher for more likely positive.

    Raises DatasetError when it is undefined: one class only, scores that are not finite, or lengths
    that differ.
    """
    truth, values, video = require_both_classes(labels, scores)
    return point_estimate(roc_auc_statistic(truth, values, video, 1))


def require_both_classes(labels: Numbers, scores: Numbers) -> tuple[Floats, Floats, Integers]:
    """Return labels (N,) and scores (N,) as arrays, and N zeros that put all items into video 0.

    Raises DatasetError where no ranking is defined: one class only, scores that are not finite, or
    lengths that differ.
    """
    truth = np.asarray(labels, dtype=np.float64)
    values = np.asarray(scores, dtype=np.float64)
    if truth.shape != values.shape or truth.ndim != 1:
        raise DatasetError(
            f"{truth.shape} labels and {values.shape} scores"
            "; give one score per label, in one list each"
        )
    if not np.isin(truth, (0.0, 1.0)).all():
        raise DatasetError("a label is neither 0 nor 1; give 1 for a positive and 0 for a negative")
    if not np.isfinite(values).all():
        raise DatasetError("a score is NaN or infinite; give a finite score for every item")
    if not len(truth):
        raise DatasetError("a ranking score is undefined with no item; give items of both classes")
    if len(np.unique(truth)) < 2:
        raise DatasetError(
            f"a ranking score is undefined with only label {truth[0]:g}; give items of both classes"
        )
    return truth, values, np.zeros(len(truth), dtype=np.int64)


# ---------------------------------------------------------------- the benchmark VND


def score_clips(scoring: ScoringTask) -> Scores:
    """Return ROC-AUC and average precision of clip scores, with the clips of all videos in one
    ranking.

    Raises DatasetError when only one class is labelled, or for a score that is not finite.
    """
    references = entries_by_id(scoring.reference)
    labels_by_id = {id: _clip_values(node) for id, node in references.items()}
    nodes = entries_by_id(scoring.predictions)
    # Labels and scores of the videos that have both.
    labels = []
    scores = []
    for id, video_labels in labels_by_id.items():
        if id in nodes:
            labels.append(video_labels)
            scores.append(_clip_values(nodes[id]))
            require_length(nodes[id], scores[-1], len(video_labels), "labels")
    all_labels, all_scores, _ = require_both_classes(
        np.concatenate([[], *labels]), np.concatenate([[], *scores])
    )
    clip_counts = np.array(list(map(len, labels)))
    video = np.repeat(np.arange(len(labels)), clip_counts)
    ranking = (all_labels, all_scores, video, len(labels))
    made = scoring.make_scores(
        {"ROC-AUC": roc_auc_statistic(*ranking), "AP": average_precision_statistic(*ranking)},
        {
            "clips": clip_counts.astype(np.float64),
            "shown": np.array([video_labels.sum() for video_labels in labels]),
        },
        items=len(all_labels),
        reference_ids=labels_by_id,
        predicted_ids=nodes,
        handling=SKIP_MISSING,
    )
    # Clips of one video are not independent.
    return replace(made, sources=tuple(id.rpartition(":")[0] or id for id in made.videos))


def _clip_values(node: Node) -> Floats:
    return read_numbers(node) if isinstance(node.value, list) else np.array([node.number()])
