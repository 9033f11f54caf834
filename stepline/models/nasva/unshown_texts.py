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

from stepline.models.nasva.settings import UnshownTexts
from stepline.numeric import unit_rows
from stepline.records import Matrix

# videos among which the nearest is searched for where no task is known. All pairs would cost V
# squared
MAX_CANDIDATES = 1000

RowIndices = npt.NDArray[np.int64]


def unshown_texts(
    tasks: Sequence[str | None], vectors_of: Callable[[int], Matrix], kind: UnshownTexts
) -> Iterator[tuple[int, RowIndices]]:
    """Yield for each of V videos another one, and which of its texts stand for what the video does
    not show.

    vectors_of: the vectors (K, D) of a video's texts. A video whose task is not known, or that
    alone has its task, takes the one whose texts are on average most like its own. Where there is
    no other video, it takes none of its own texts.
    """
    for index, other in enumerate(other_videos(tasks, vectors_of, kind)):
        if other == index:
            yield other, np.zeros(0, np.int64)
            continue
        texts = vectors_of(other)
        if kind == "unlike":
            yield other, least_like(vectors_of(index), texts)
        else:
            yield other, np.arange(len(texts))


def other_videos(
    tasks: Sequence[str | None], vectors_of: Callable[[int], Matrix], kind: UnshownTexts
) -> list[int]:
    """Return for each of V videos the one whose texts are taken. It is itself where there is no
    other."""
    count = len(tasks)
    if kind == "other task":
        return [_half_way_round(index, tasks) for index in range(count)]
    # The videos of each task.
    videos_of: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        if task is not None:
            videos_of.setdefault(task, []).append(index)

    # the next video of the same task
    others: dict[int, int] = {}
    for videos in videos_of.values():
        if len(videos) > 1:
            others.update(zip(videos, (*videos[1:], videos[0]), strict=True))

    # for those that have none, the one with the nearest texts
    alone = [index for index in range(count) if index not in others]
    if alone:
        means = [_mean(vectors_of(index)) for index in range(count)]
        others |= _nearest(alone, np.stack(means))
    return [others[index] for index in range(count)]


def least_like(own: Matrix, other: Matrix) -> RowIndices:
    """Return the half (at least one) of another video's texts (K', D) whose nearest own text (K, D)
    is farthest."""
    if not len(own) or not len(other):
        return np.arange(len(other))
    cosines = unit_rows(other) @ unit_rows(own).T  # (K', K)
    order = np.argsort(cosines.max(axis=1), kind="stable")
    return np.sort(order[: (len(other) + 1) // 2])


def _half_way_round(index: int, tasks: Sequence[str | None]) -> int:
    """Return the video half the way round, or the next one behind it that has another task."""
    count = len(tasks)
    first = (index + max(1, count // 2)) % count
    for step in range(count):
        other = (first + step) % count
        if tasks[index] is None or tasks[other] != tasks[index]:
            return other
    return first


def _nearest(videos: Sequence[int], means: Matrix) -> dict[int, int]:
    """Return the video (of at most `MAX_CANDIDATES`) whose mean (V, D) is nearest to each one's. It
    is itself where there is no other."""
    rng = np.random.default_rng(0)
    nearest = {}
    numbers = np.arange(len(means))
    for index in videos:
        others = np.delete(numbers, index)
        if len(others) > MAX_CANDIDATES:
            others = rng.choice(others, MAX_CANDIDATES, replace=False)
        nearest[index] = index
        if len(others):
            nearest[index] = int(others[(means[others] @ means[index]).argmax()])
    return nearest


def _mean(vectors: Matrix) -> Matrix:
    """Return the direction (D,) of the mean of unit vectors, or 0 without vectors."""
    if not len(vectors):
        return np.zeros(vectors.shape[1], np.float32)
    means = unit_rows(vectors).mean(axis=0, keepdims=True)  # (1, D)
    mean: Matrix = unit_rows(means)[0]
    return mean
