"""Narration detection: VND-Test and any other set of clips that are labelled shown or not.

Reference and predictions are JSON objects by video or clip id: a number, or one number per clip of
the video. A label is 0 or 1. Clips without a score cannot be ranked, so videos without predictions
are left out and listed.
"""

import numpy as np

from stepline.datasets.files import Node
from stepline.evaluate.bootstrap import Floats, Statistic
from stepline.evaluate.ranking import AveragePrecision, RocAuc, require_both_classes
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    SKIP_MISSING,
    ScoringTask,
    entries_by_id,
    read_numbers,
    require_length,
)


def score(scoring: ScoringTask) -> Scores:
    """Return ROC-AUC and average precision, clips pooled over videos.

    Raises DatasetError when only one class is labelled, or for a score that is not finite.
    """
    labels_by_id = {}
    for id, node in entries_by_id(scoring.reference).items():
        labels_by_id[id] = _clip_values(node)
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
        "ROC-AUC": RocAuc(truth, ranked, video, video_count),
        "AP": AveragePrecision(truth, ranked, video, video_count),
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
