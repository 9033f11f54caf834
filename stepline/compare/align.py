"""Multiple alignment of the steps of several videos, by meaning and order.

It is progressive, as alignments of many sequences in biology are (Feng and Doolittle, 1987). The
video most like all others gives the first groups of steps, and each further video is aligned with
the groups. Then every video is taken out and aligned again. Letters: V videos, K steps of a video,
N groups, D width of a vector.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stepline.compare.settings import CompareSettings
from stepline.numeric import match_in_order, unit_rows
from stepline.records import Matrix


class StepIndex(NamedTuple):
    """Index of a step: number of its video and number in that video, both from 0."""

    video: int
    step: int


StepGroup = list[StepIndex]  # steps that do the same, of one video or several
# number of a step -> number of its group
GroupNumbers = dict[int, int]
FirstSteps = dict[int, int]  # number of a video -> its first step in a group


def video_similarities(vectors: Sequence[Matrix]) -> Matrix:
    """Return the pairwise similarity of videos (V, V), with ones on the diagonal.

    It is the mean cosine of each step with the most similar step of the other video, averaged over
    both directions.

    vectors: for each of V videos, (K, D) unit vectors of the texts of its K steps.
    """
    count = len(vectors)
    similarity = np.eye(count, dtype=np.float32)
    for first in range(count):
        for second in range(first):
            # The best partner of each step, seen from both videos.
            cosines = vectors[first] @ vectors[second].T  # (K, K')
            forward = cosines.max(axis=1).mean()
            similarity[first, second] = (forward + cosines.max(axis=0).mean()) / 2
    # Only one half was filled, and likeness is the same both ways.
    return np.maximum(similarity, similarity.T)


def videos_of_one_task(similarity: Matrix, floor: float) -> list[int]:
    """Return the indices of the videos that show the same task, the most typical first.

    The first is the most similar to all videos. Then the video with the greatest mean similarity to
    the added videos is added, again and again.

    Args:
        similarity: (V, V) pairwise similarity of the videos, in [-1, 1].
        floor: least mean similarity with which a video is added.
    """
    if not len(similarity):
        return []
    # The video with the greatest sum of likeness begins.
    members = [int(similarity.sum(axis=1).argmax())]
    while len(members) < len(similarity):
        means = similarity[:, members].mean(axis=1)  # (V,)
        # Members are never found again.
        means[members] = -np.inf
        nearest = int(means.argmax())
        if means[nearest] < floor:
            break
        members.append(nearest)
    return members


def align_videos(
    vectors: Sequence[Matrix], videos: Sequence[int], settings: CompareSettings
) -> list[StepGroup]:
    """Return groups of equivalent steps, in their usual order.

    Args:
        vectors: for each of V videos, (K, D) unit vectors of the texts of its K steps.
        videos: indices in `vectors` of the videos to align, the most typical first.
        settings: minimal cosines, and the number of rounds in which each video is aligned again.
    """
    groups: list[StepGroup] = []
    # Each video is aligned with what those before it gave.
    for video in videos:
        groups = _add_video(groups, video, vectors, settings)
    # A second look, with the groups of all others known.
    for _ in range(settings.rounds):
        for video in videos:
            others = [[step for step in group if step.video != video] for group in groups]
            groups = _add_video(list(filter(None, others)), video, vectors, settings)
    return groups


def group_vectors(groups: Sequence[StepGroup], vectors: Sequence[Matrix]) -> Matrix:
    """Return the mean vector of the steps of each group, scaled to length 1: (N, D).

    Args:
        groups: N groups of steps.
        vectors: for each of V videos, (K, D) unit vectors of the texts of its K steps.
    """
    means = [np.mean([vectors[video][step] for video, step in group], axis=0) for group in groups]
    return unit_rows(np.array(means, dtype=np.float32))


def _add_video(
    groups: Sequence[StepGroup], video: int, vectors: Sequence[Matrix], settings: CompareSettings
) -> list[StepGroup]:
    """Return the groups of equivalent steps with the steps of one more video added, sorted again by
    the usual order.

    Args:
        groups: N groups of steps of other videos.
        video: index in `vectors` of the video to add.
        vectors: for each of V videos, (K, D) unit vectors of the texts of its K steps.
        settings: minimal cosines of a step with its group.
    """
    extended = list(map(list, groups))
    numbers: GroupNumbers = {}
    if groups:
        centers = group_vectors(groups, vectors)  # (N, D)
        # Unit rows, so the products are cosines.
        cosines = vectors[video] @ centers.T  # (K, N)
        numbers = match_in_order(cosines, settings.step_likeness)
        _match_moved_steps(cosines, numbers, settings)
    # Steps without a group begin one of their own.
    for step in range(len(vectors[video])):
        if step in numbers:
            extended[numbers[step]].append(StepIndex(video, step))
        else:
            extended.append([StepIndex(video, step)])
    return sort_groups(extended, list(map(len, vectors)))


def _match_moved_steps(cosines: Matrix, numbers: GroupNumbers, settings: CompareSettings) -> None:
    """Add the unmatched steps to `numbers`, each with its most similar group, in any order.

    A group that already has a step of the video requires a higher cosine.

    Args:
        cosines: (K, N) cosine of each of K steps with each of N groups.
        numbers: step index -> group index. It is changed.
        settings: minimal cosines.
    """
    # A group that the video is in already needs a step that is almost the same.
    min_gains = np.full(cosines.shape[1], settings.moved_likeness)  # (N,)
    min_gains[list(numbers.values())] = settings.repeated_likeness
    for step, row in enumerate(cosines):
        if step in numbers:
            continue
        allowed = np.where(row >= min_gains, row, -np.inf)
        group = int(allowed.argmax())
        if np.isfinite(allowed[group]):
            numbers[step] = group
            min_gains[group] = settings.repeated_likeness


def sort_groups(groups: Sequence[StepGroup], step_counts: Sequence[int]) -> list[StepGroup]:
    """Return the groups in the order in which most videos do them.

    They are sorted by mean relative position. Then neighbours are swapped while more videos do them
    in the reverse order.

    Args:
        groups: N groups of steps.
        step_counts: number of steps of each video, by the index of the video.
    """
    ordered = sorted(
        groups,
        key=lambda group: (
            sum((step + 0.5) / step_counts[video] for video, step in group) / len(group)
        ),
    )
    # each pass is a pass of bubble sort. Majorities may go in circles, so passes are bounded.
    for _ in groups:
        if not _swap_neighbours(ordered):
            break
    return ordered


def _swap_neighbours(groups: list[StepGroup]) -> bool:
    """Swap neighbouring groups that more videos do in the other order. Return whether any were
    swapped."""
    swapped = False
    for number in range(1, len(groups)):
        former, latter = groups[number - 1 : number + 1]
        # Only videos that do both have an order of the two.
        before, after = count_orders(first_step_of_videos(former), first_step_of_videos(latter))
        if after > before:
            groups[number - 1 : number + 1] = [latter, former]
            swapped = True
    return swapped


def first_step_of_videos(group: Iterable[StepIndex]) -> FirstSteps:
    """Return video index -> index of its first step in a group."""
    first: FirstSteps = {}
    for video, step in sorted(group):
        first.setdefault(video, step)
    return first


def count_orders(first: FirstSteps, second: FirstSteps) -> tuple[int, int]:
    """Return in how many videos the first group comes before the second, and in how many after it.

    Args:
        first: video index -> index of the video's first step in the first group.
        second: the same for the second group. Only videos in both groups count.
    """
    before = 0
    after = 0
    for video in first.keys() & second.keys():
        before += first[video] < second[video]
        after += first[video] > second[video]
    return before, after
