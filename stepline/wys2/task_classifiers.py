"""Which task a clip or a sentence belongs to, by its features alone: the two classifiers behind MC labels.

Letters: N clips, C width, O tasks. Differs from WYS2: a softmax regression on ready features, where the paper trains
SlowFast on frames; each clip is scored by a classifier that never saw its video, so that none is known by heart.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_softmax

from stepline.errors import DatasetError
from stepline.records import Matrix
from stepline.wys2.labels import Array

RIDGE = 1e-3  # weight of the squared weights beside the mean loss
FOLDS = 4


def task_scores(features: Matrix, tasks: npt.NDArray[np.int64], videos: Sequence[str]) -> Array:
    """Return log P(task) of every row of features (N, C), as (N, O), by cross-validation over videos.

    tasks: (N,) 0..O-1. Raises DatasetError for fewer than two tasks or videos.
    """
    names = sorted(set(videos))
    if len(names) < 2 or len(set(tasks.tolist())) < 2:
        raise DatasetError(
            f"{len(names)} videos of {len(set(tasks.tolist()))} tasks; a task classifier needs two of each"
        )
    fold = {name: place % FOLDS for place, name in enumerate(names)}
    parts = np.array([fold[video] for video in videos])
    rows = standard(features)
    scores = np.zeros((len(rows), int(tasks.max()) + 1))
    for part in sorted(set(parts.tolist())):
        held = parts == part
        weights = fit_softmax(rows[~held], tasks[~held], scores.shape[1])
        scores[held] = log_softmax(_wide(rows[held]) @ weights, axis=1)
    return scores


def fit_softmax(rows: Array, classes: npt.NDArray[np.int64], count: int, ridge: float = RIDGE) -> Array:
    """Return the weights (C + 1, O) of a softmax regression; the last row is the bias."""
    wide, truth = _wide(rows), np.eye(count)[classes]

    def loss(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(wide.shape[1], count)
        logs = log_softmax(wide @ weights, axis=1)
        decayed = np.concatenate([weights[:-1], np.zeros((1, count))])
        value = float(-(truth * logs).sum() / len(wide) + ridge * (decayed**2).sum() / 2)
        return value, (wide.T @ (np.exp(logs) - truth) / len(wide) + ridge * decayed).ravel()

    start = np.zeros(wide.shape[1] * count)
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 100}).x
    return np.asarray(best.reshape(wide.shape[1], count))


def standard(rows: Matrix) -> Array:
    """Return the rows with mean 0 and spread 1 in every column; constant columns become 0."""
    values = rows.astype(np.float64)
    centered = values - values.mean(axis=0)
    return np.asarray(centered / np.maximum(values.std(axis=0), 1e-6))


def _wide(rows: Array) -> Array:
    return np.column_stack([rows, np.ones(len(rows))])
