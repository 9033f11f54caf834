"""Multiple alignment of the steps of several videos, by meaning and order.

It is progressive, as alignments of many sequences in biology are (Feng and Doolittle, 1987): the
video most like all others gives the first groups of steps, and each further video is aligned with
the groups. Then every video is taken out and aligned again. Letters: V videos, K steps of a video,
N groups, D width of a vector.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from stepline.compare.settings import CompareSettings
from stepline.records import Matrix


class StepPlace(NamedTuple):
    """A step by the number of its video and its number there, both from 0."""

    video: int
    step: int


StepGroup: TypeAlias = list[StepPlace]  # steps that do the same, of one video or several
# number of a step -> number of its group
GroupNumbers: TypeAlias = dict[int, int]


def video_likeness(vectors: Sequence[Matrix]) -> Matrix:
    """Return how much each video is like each other, (V, V) with ones on the diagonal.

    It is the mean cosine of each step with the most similar one of the other video, both ways.
    """
    count = len(vectors)
    likeness = np.eye(count, dtype=np.float32)
    for first in range(count):
        for second in range(first):
            cosines = vectors[first] @ vectors[second].T  # (K, K')
            mean = (cosines.max(axis=0).mean() + cosines.max(axis=1).mean()) / 2
            likeness[first, second] = mean
            likeness[second, first] = mean
    return likeness


def videos_of_one_task(likeness: Matrix, floor: float) -> list[int]:
    """Return the numbers of the videos that are alike, the most typical first.

    The first is most like all others. Videos join by their mean likeness to those that have joined,
    the greatest first, while that is at least `floor`.
    """
    count = len(likeness)
    if count == 0:
        return []
    members = [int(likeness.sum(axis=1).argmax())]
    while len(members) < count:
        means = likeness[:, members].mean(axis=1)  # (V,)
        means[members] = -np.inf
        nearest = int(means.argmax())
        if means[nearest] < floor:
            break
        members.append(nearest)
    return members


def align_videos(
    vectors: Sequence[Matrix], videos: Sequence[int], settings: CompareSettings
) -> list[StepGroup]:
    """Return groups of steps that do the same, in the order in which they are usually done.

    vectors: of the steps of all videos, unit rows (K, D). videos: the numbers of those to align,
    the most typical first.
    """
    groups: list[StepGroup] = []
    for video in videos:
        groups = _add_video(groups, video, vectors, settings)
    for _ in range(settings.rounds):
        for video in videos:
            groups = _remove_video(groups, video)
            groups = _add_video(groups, video, vectors, settings)
    return groups


def group_vectors(groups: Sequence[StepGroup], vectors: Sequence[Matrix]) -> Matrix:
    """Return the mean direction of the steps of each group, unit rows (N, D)."""
    means = []
    for group in groups:
        mean = np.mean([vectors[video][step] for video, step in group], axis=0)
        means.append(mean / max(float(np.linalg.norm(mean)), 1e-9))
    return np.array(means, dtype=np.float32)


def _remove_video(groups: Iterable[StepGroup], video: int) -> list[StepGroup]:
    remaining = []
    for group in groups:
        others = [place for place in group if place.video != video]
        if others:
            remaining.append(others)
    return remaining


def _add_video(
    groups: Sequence[StepGroup], video: int, vectors: Sequence[Matrix], settings: CompareSettings
) -> list[StepGroup]:
    """Return the groups with the steps of one more video, sorted again."""
    step_count = len(vectors[video])
    extended = [list(group) for group in groups]
    numbers: GroupNumbers = {}
    if groups:
        cosines = vectors[video] @ group_vectors(groups, vectors).T  # (K, N)
        numbers = match_in_order(cosines, settings.step_likeness)
        _match_moved(cosines, numbers, settings)
    for step in range(step_count):
        place = StepPlace(video, step)
        if step in numbers:
            extended[numbers[step]].append(place)
        else:
            extended.append([place])
    return sort_groups(extended, [len(rows) for rows in vectors])


def match_in_order(cosines: Matrix, floor: float) -> GroupNumbers:
    """Match steps with groups so that both rise and the cosines above `floor` have the largest sum.

    cosines: (K, N). Source: Needleman and Wunsch, 1970, with gaps that cost nothing.
    """
    gains = cosines - floor
    step_count, group_count = gains.shape
    best = np.zeros((step_count + 1, group_count + 1))
    for step in range(step_count):
        joined = np.maximum(best[step, 1:], best[step, :-1] + gains[step])
        best[step + 1, 1:] = np.maximum.accumulate(joined)
    numbers: GroupNumbers = {}
    step = step_count
    group = group_count
    while step and group:
        if best[step, group] == best[step - 1, group]:
            step -= 1
        elif best[step, group] == best[step, group - 1]:
            group -= 1
        else:
            step -= 1
            group -= 1
            numbers[step] = group
    return numbers


def _match_moved(cosines: Matrix, numbers: GroupNumbers, settings: CompareSettings) -> None:
    """Match also steps that have no group in order, with the most similar group, wherever it is.

    A group that a step of the video has joined needs a greater cosine.
    """
    floors = np.full(cosines.shape[1], settings.moved_likeness)  # (N,)
    floors[list(numbers.values())] = settings.repeated_likeness
    for step in range(len(cosines)):
        if step in numbers:
            continue
        allowed = np.where(cosines[step] >= floors, cosines[step], -np.inf)
        group = int(allowed.argmax())
        if np.isfinite(allowed[group]):
            numbers[step] = group
            floors[group] = settings.repeated_likeness


def sort_groups(groups: Sequence[StepGroup], step_counts: Sequence[int]) -> list[StepGroup]:
    """Return the groups in the order in which most videos do them.

    They are sorted by their mean place in the videos, 0 at the start and 1 at the end. Then
    neighbours change places while more videos do the second before the first.
    """

    def mean_place(group: StepGroup) -> float:
        places = [(step + 0.5) / step_counts[video] for video, step in group]
        return sum(places) / len(places)

    ordered = sorted(groups, key=mean_place)
    first_steps = [first_step_of_videos(group) for group in ordered]
    # each pass is a pass of bubble sort; majorities may go in circles, so passes are bounded
    for _ in range(len(ordered)):
        changed = False
        for number in range(len(ordered) - 1):
            before, after = count_orders(first_steps[number], first_steps[number + 1])
            if after > before:
                pair = slice(number, number + 2)
                ordered[pair] = reversed(ordered[pair])
                first_steps[pair] = reversed(first_steps[pair])
                changed = True
        if not changed:
            break
    return ordered


def first_step_of_videos(group: Iterable[StepPlace]) -> dict[int, int]:
    """Return the first step in the group of each video, by the number of the video."""
    first: dict[int, int] = {}
    for video, step in sorted(group):
        first.setdefault(video, step)
    return first


def count_orders(one: dict[int, int], other: dict[int, int]) -> tuple[int, int]:
    """Return in how many videos the one group comes before the other, and in how many after it."""
    before = 0
    after = 0
    for video in one.keys() & other.keys():
        before += one[video] < other[video]
        after += one[video] > other[video]
    return before, after
