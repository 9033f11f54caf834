"""Sentences matched to the steps of one document in its order, or to none: dynamic programming with an idle state."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.records import Matrix

Assigned: TypeAlias = npt.NDArray[np.int64]

IDLE = -1  # the sentence tells no step


def monotone(similarity: Matrix, floor: float) -> tuple[Assigned, float]:
    """Return the step of each sentence, IDLE for none, and the total gain; step numbers never go back.

    similarity: (S, K) cosine of sentence and step. A sentence at a step gains similarity - floor, an idle one 0; the
    total is the greatest there is. Several sentences may tell one step, and steps may be left out. Ties prefer idle,
    then the earlier step. Source: beyond the paper, which takes each sentence's nearest step by itself.
    """
    if similarity.ndim != 2:
        raise ShapeError(f"similarity must be (sentences, steps), not {similarity.shape}")
    sentences, steps = similarity.shape
    gain = similarity.astype(np.float64) - floor
    # best[k + 1]: most that the sentences so far can gain when the last step told is at most k.
    best = np.zeros(steps + 1)
    taken = np.zeros((sentences, steps), dtype=bool)  # the sentence tells exactly step k, and that beats idling
    came_from = np.zeros((sentences, steps + 1), dtype=np.int64)
    for row in range(sentences):
        told = best[1:] + gain[row]
        taken[row] = told > best[1:]
        reached = np.concatenate([[best[0]], np.where(taken[row], told, best[1:])])
        best = np.maximum.accumulate(reached)
        came_from[row] = _first_reaching(reached, best)
    return _traced(taken, came_from), float(best[-1])


def _first_reaching(values: npt.NDArray[np.float64], best: npt.NDArray[np.float64]) -> Assigned:
    """Return, for each place, the first place whose value is the running maximum there."""
    new = np.concatenate([[True], best[1:] > best[:-1]])
    return np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))


def _traced(taken: npt.NDArray[np.bool_], came_from: Assigned) -> Assigned:
    sentences, steps = taken.shape
    assigned = np.full(sentences, IDLE, dtype=np.int64)
    place = steps
    for row in range(sentences - 1, -1, -1):
        place = int(came_from[row, place])
        if place and taken[row, place - 1]:
            assigned[row] = place - 1
    return assigned
