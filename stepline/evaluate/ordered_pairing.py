"""One-to-one pairings that keep the order of both sides, by dynamic programming (SODA, section 3.2)."""

import numpy as np
import numpy.typing as npt

from stepline.evaluate.events import Matrix


def best_total(scores: Matrix) -> float:
    """Return the largest sum of scores over pairs (row, column) that rise together. scores: (N, M), none negative."""
    best = np.zeros(scores.shape[1] + 1)
    for row in scores:
        best[1:] = np.maximum.accumulate(np.maximum(best[1:], best[:-1] + row))
    return float(best[-1])


def chased_pairs(scores: Matrix) -> list[tuple[int, int]]:
    """Return the pairs that SODA's program reads out of the table of best totals, from first to last.

    From the last row up it takes, in each row, the last column (left of the one just taken) whose best choice was to
    pair, even where the best total lies on another way; with ties it would rather not pair. At least one pair always
    comes out, with or without overlap. scores: (N, M), N and M at least 1.
    """
    paired = _paired(scores)
    pairs: list[tuple[int, int]] = []
    limit = scores.shape[1]
    for row in range(len(scores) - 1, -1, -1):
        columns = np.flatnonzero(paired[row, :limit])
        if not len(columns):
            continue
        limit = int(columns[-1])
        pairs.append((row, limit))
        if limit == 0:
            break
    return pairs[::-1]


def _paired(scores: Matrix) -> npt.NDArray[np.bool_]:
    """Tell for each cell whether pairing its row and column beats leaving either out."""
    paired = np.zeros(scores.shape, dtype=bool)
    above = np.full(scores.shape[1], -1.0)  # of the row before; -1: there is none
    for index, row in enumerate(scores):
        diagonal = np.concatenate(([0.0], above[:-1])) if index else np.zeros_like(row)
        total = diagonal + row
        best = np.maximum.accumulate(np.maximum(above, total))
        left = np.concatenate(([-1.0], best[:-1]))
        paired[index] = (total > above) & (total > left)
        above = best
    return paired
