"""Narration detection: VND-Test and any other set of clips that are labelled shown or not.

Reference and predictions are JSON objects by video or clip id: a number, or one number a clip of
the video. A label is 0 or 1. A clip without a score cannot be ranked, so videos without predictions
are left out and listed.
"""

import numpy as np

from stepline.datasets.files import Node
from stepline.evaluate.bootstrap import Floats
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
    labels = {id: _values(node) for id, node in entries_by_id(scoring.reference).items()}
    nodes = entries_by_id(scoring.predictions)
    shared = [id for id in labels if id in nodes]
    scores = []
    for id in shared:
        scores.append(_values(nodes[id]))
        require_length(nodes[id], scores[-1], len(labels[id]), "labels")
    clips = np.array([float(len(labels[id])) for id in shared])
    flags = np.concatenate([np.zeros(0), *(labels[id] for id in shared)])
    ranked = np.concatenate([np.zeros(0), *scores])
    truth, ranked, _ = require_both_classes(flags, ranked)
    video = np.repeat(np.arange(len(shared)), clips.astype(np.int64))
    items = truth, ranked, video, len(shared)
    return scoring.scores(
        {"ROC-AUC": RocAuc(*items), "AP": AveragePrecision(*items)},
        {"clips": clips, "shown": np.array([labels[id].sum() for id in shared])},
        items=len(truth),
        reference_ids=labels,
        predicted_ids=nodes,
        handling=SKIP_MISSING,
    )


def _values(node: Node) -> Floats:
    return read_numbers(node) if isinstance(node.value, list) else np.array([node.number()])
