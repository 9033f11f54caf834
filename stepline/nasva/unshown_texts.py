"""Texts of other videos that stand for texts that a video does not show: negatives for P(shown) and
for the head y.

    other task   those of a video of another task: nothing that they name is in view, so they are refused too easily
    same task    those of a video of the same task: hard, but about half of them are shown here as well
    unlike       the half of these that is least like the video's own texts: steps of the task that it skips

Letters: V videos, K texts, D width of the vectors.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from stepline.nasva.settings import UnshownTexts
from stepline.records import Matrix

# videos among which the nearest is sought where no task is known; all pairs would cost V squared
CANDIDATES = 1000

RowIndices = npt.NDArray[np.int64]


def unshown_texts(
    tasks: Sequence[str | None], read: Callable[[int], Matrix], kind: UnshownTexts
) -> Iterator[tuple[int, RowIndices]]:
    """Yield for each of V videos another one, and which of its texts stand for what the video does
    not show.

    read: the vectors (K, D) of a video's texts. A video whose task is not known, or that alone has
    its task, takes the one whose texts are on average most like its own; a video that is alone,
    none of its own texts.
    """
    for index, other in enumerate(other_videos(tasks, read, kind)):
        if other == index:
            yield other, np.zeros(0, np.int64)
        elif kind == "unlike":
            yield other, least_like(read(index), read(other))
        else:
            yield other, np.arange(len(read(other)))


def other_videos(
    tasks: Sequence[str | None], read: Callable[[int], Matrix], kind: UnshownTexts
) -> list[int]:
    """Return for each of V videos the one whose texts are taken; itself where there is no other."""
    count = len(tasks)
    if kind == "other task":
        return [_half_way_round(index, tasks) for index in range(count)]
    known: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        if task is not None:
            known.setdefault(task, []).append(index)
    alone = [index for index, task in enumerate(tasks) if len(known.get(task or "", ())) < 2]
    nearest = (
        _nearest(alone, np.stack([_mean(read(index)) for index in range(count)])) if alone else {}
    )
    return [
        nearest[index] if index in nearest else _next(index, known[str(task)])
        for index, task in enumerate(tasks)
    ]


def least_like(own: Matrix, other: Matrix) -> RowIndices:
    """Return the half (at least one) of another video's texts (K', D) whose nearest own text (K, D)
    is farthest."""
    if not len(own) or not len(other):
        return np.arange(len(other))
    nearest = (_unit(other) @ _unit(own).T).max(axis=1)
    return np.sort(np.argsort(nearest, kind="stable")[: (len(other) + 1) // 2])


def _half_way_round(index: int, tasks: Sequence[str | None]) -> int:
    """Return the video half the way round, or the next one behind it that has another task."""
    count = len(tasks)
    first = index + max(1, count // 2)
    round_from_there = [(first + step) % count for step in range(count)]
    others = (
        other for other in round_from_there if tasks[index] is None or tasks[other] != tasks[index]
    )
    return next(others, first % count)


def _next(index: int, siblings: Sequence[int]) -> int:
    return siblings[(siblings.index(index) + 1) % len(siblings)]


def _nearest(chosen: Sequence[int], means: Matrix) -> dict[int, int]:
    """Return the video (of at most `CANDIDATES`) whose mean (V, D) is nearest to each chosen
    one's."""
    rng = np.random.default_rng(0)
    found = {}
    for index in chosen:
        others = np.delete(np.arange(len(means)), index)
        if len(others) > CANDIDATES:
            others = rng.choice(others, CANDIDATES, replace=False)
        found[index] = (
            int(others[(means[others] @ means[index]).argmax()]) if len(others) else index
        )
    return found


def _mean(vectors: Matrix) -> Matrix:
    if not len(vectors):
        return np.zeros(vectors.shape[1], np.float32)
    mean: Matrix = _unit(_unit(vectors).mean(axis=0, keepdims=True))[0]
    return mean


def _unit(vectors: Matrix) -> Matrix:
    return np.asarray(
        vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12),
        dtype=np.float32,
    )
