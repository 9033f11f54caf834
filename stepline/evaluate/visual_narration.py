"""Narration detection: VND-Test and any other set of clips that are labelled shown or not.

Reference and predictions are JSON objects by video or clip id: a number, or one number a clip of
the video. A label is 0 or 1. A clip without a score cannot be ranked, so videos without predictions
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
    labels = {id: _values(node) for id, node in entries_by_id(scoring.reference).items()}
    given = entries_by_id(scoring.predictions)
    shared = [id for id in labels if id in given]
    scores = {id: _values(given[id]) for id in shared}
    for id in shared:
        require_length(given[id], scores[id], len(labels[id]), "labels")
    video = np.repeat(np.arange(len(shared)), [len(labels[id]) for id in shared])
    truth, ranked, _ = require_both_classes(_joined(labels, shared), _joined(scores, shared))
    statistics: dict[str, Statistic] = {
        "ROC-AUC": RocAuc(truth, ranked, video, len(shared)),
        "AP": AveragePrecision(truth, ranked, video, len(shared)),
    }
    columns = {
        "clips": np.array([float(len(labels[id])) for id in shared]),
        "shown": np.array([labels[id].sum() for id in shared]),
    }
    return scoring.scores(
        shared, len(truth), statistics, columns, asked=labels, given=given, handling=SKIP_MISSING
    )


def _values(node: Node) -> Floats:
    return read_numbers(node) if isinstance(node.value, list) else np.array([node.number()])


def _joined(values: dict[str, Floats], ids: list[str]) -> Floats:
    return np.concatenate([values[id] for id in ids]) if ids else np.zeros(0)
