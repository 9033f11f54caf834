"""The procedure of a task: the steps of its videos with how many do them, their orders and amounts.

`compare(records).steps` are the steps, each with the share of the videos that do it.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

import numpy as np
from pydantic import Field

from stepline.compare.align import (
    StepGroup,
    align_videos,
    count_orders,
    first_step_of_videos,
    group_vectors,
    video_similarities,
    videos_of_one_task,
)
from stepline.compare.amounts import AmountSpread, amount_spreads, step_amounts
from stepline.compare.materials import ComparedMaterial, Embedder, compare_materials
from stepline.compare.settings import CompareSettings
from stepline.errors import StoreError
from stepline.outputs.text import shown_span, title
from stepline.records import FrozenModel, Matrix, Probability, Record, Seconds, Step, StepKind
from stepline.text import embed

START_ID = "start"  # of the transitions: where every video begins
END_ID = "end"
MIN_COMMON_VIDEOS = 2  # what one video does is not common


class ComparedVideo(FrozenModel):
    """A video that shows the compared task."""

    id: str
    """id of the video's record"""
    title: str
    """title of the video"""
    path: str | None
    """path of the video file, as the record has it"""
    duration: float | None
    """duration of the video in seconds"""
    steps: int
    """number of steps of the video"""
    likeness: float = Field(
        description="mean similarity to the other videos: the mean cosine of each step with the "
        "most similar step of another video, in both directions"
    )


class LeftOutVideo(FrozenModel):
    """A record that is not part of the procedure, and why."""

    id: str
    """id of the record"""
    title: str
    """title of the video"""
    reason: str
    """why it was left out, in words"""


class Occurrence(FrozenModel):
    """A step of one video that was aligned with a step of the common procedure."""

    video: str
    """id of the video"""
    step: str
    """id of the step in that video's record"""
    text: str
    """the step in the words of that video"""
    start: Seconds | None
    """second at which the step begins to be shown, or else to be said"""
    end: Seconds | None
    """second at which that ends"""


class SecondsSpread(FrozenModel):
    """How long a step is shown: the least, median and greatest seconds over its occurrences."""

    low: float
    """least number of seconds"""
    median: float
    """median number of seconds"""
    high: float
    """greatest number of seconds"""


class ProcedureStep(FrozenModel):
    """A step that several videos do, in the words of the most typical video."""

    id: str
    """id of the step, unique in the comparison"""
    text: str
    """the step in its most typical wording"""
    kind: StepKind
    """ "do", or "avoid" for a warning"""
    videos: int
    """number of videos that do it"""
    share: Probability
    """fraction of all videos that do it"""
    common: bool
    """whether enough videos do it for the common procedure"""
    place: Probability
    """mean position in the videos, 0 for their first step, 1 for their last"""
    seconds: SecondsSpread | None
    """how long it is shown, null if no video shows it"""
    amounts: tuple[AmountSpread, ...]
    """amounts and times in its wordings, with their spread over the videos"""
    occurrences: tuple[Occurrence, ...]
    """the steps of the videos that were aligned with it"""


class OrderCount(FrozenModel):
    """The more frequent order of two steps over the videos that do both."""

    first: str
    """id of the step that more videos do first"""
    then: str
    """id of the other step"""
    videos: int
    """number of videos that do them in this order"""
    of: int
    """number of videos that do both steps"""


class Transition(FrozenModel):
    """An arrow of the task graph: how often `target` is the next step after `source`.

    Every video begins at "start" and ends at "end".
    """

    source: str = Field(description='id of a step, or "start"')
    target: str = Field(description='id of a step, or "end"')
    count: int
    """how often `target` comes right after `source`, in all videos"""
    probability: Probability
    """`count` as a fraction of all arrows from `source`"""


class TaskComparison(FrozenModel):
    """The steps of many videos of one task as one procedure, in the order most of them keep."""

    version: Literal[1] = 1
    """version of this JSON form"""
    title: str
    """title of the most typical video"""
    videos: tuple[ComparedVideo, ...]
    """the videos of the task"""
    left_out: tuple[LeftOutVideo, ...]
    """records without steps, with a repeated id, or of another task"""
    steps: tuple[ProcedureStep, ...]
    """in the order in which most videos do them"""
    orders: tuple[OrderCount, ...]
    """the usual order of each pair of steps that two or more videos do"""
    transitions: tuple[Transition, ...]
    """the arrows of the task graph"""
    materials: tuple[ComparedMaterial, ...]
    """ingredients and materials that the videos name"""
    tools: tuple[ComparedMaterial, ...]
    """tools that the videos name"""

    @property
    def common_steps(self) -> tuple[ProcedureStep, ...]:
        """The steps of the common procedure."""
        return tuple(step for step in self.steps if step.common)


@dataclass(frozen=True)
class AlignedSteps:
    """Records of one task with their aligned steps.

    Attributes:
        records: records of V videos, one per video.
        vectors: for each record, (K, D) unit vectors of the texts of its K steps.
        groups: groups of equivalent steps, in their usual order.
    """

    records: Sequence[Record]
    vectors: Sequence[Matrix]
    groups: Sequence[StepGroup]

    def find_step(self, video: int, step: int) -> Step:
        """Return a step. video: index of its record. step: index of the step in that record."""
        return self.records[video].steps[step]


def compare(
    records: Sequence[Record],
    settings: CompareSettings = CompareSettings(),
    *,
    embedder: Embedder = embed,
    damaged: Sequence[LeftOutVideo] = (),
) -> TaskComparison:
    """Align the steps of videos of one task and return their common procedure.

    Records without steps, of another task, and with a repeated id are left out. Raises StoreError
    if fewer than two records remain.

    Args:
        records: records of the videos, one per video.
        settings: minimal similarities and shares.
        embedder: function that maps N texts to unit vectors (N, D).
        damaged: records that could not be read, which are left out first.
    """
    # Records that can be compared.
    left_out = [*damaged]
    usable = []
    ids = set()
    for record in records:
        if not record.steps:
            left_out.append(_left_out_video(record, "it has no steps"))
        elif record.id in ids:
            left_out.append(_left_out_video(record, "another record has the same id"))
        else:
            ids.add(record.id)
            usable.append(record)
    # the videos of the most frequent task
    vectors = [embedder([step.text for step in record.steps]) for record in usable]
    likeness = video_similarities(vectors)
    members = videos_of_one_task(likeness, settings.video_likeness)
    # The other videos may show other tasks that have several videos.
    other_videos = [number for number in range(len(usable)) if number not in members]
    while other_videos:
        similarity = likeness[np.ix_(other_videos, other_videos)]
        task = [
            other_videos[index] for index in videos_of_one_task(similarity, settings.video_likeness)
        ]
        other_videos = [number for number in other_videos if number not in task]
        for number in sorted(task):
            mean = float(likeness[number, members].mean())
            task_text = "of something else"
            cure = ""
            if len(task) >= MIN_COMMON_VIDEOS:
                task_text = (
                    f"of another task, “{title(usable[task[0]])}”, as {len(task)} videos here are"
                )
                cure = "; compare these in a folder of their own"
            reason = f"its steps are {task_text} (likeness {mean:.2f} to the others){cure}"
            left_out.append(_left_out_video(usable[number], reason))
    if len(members) < MIN_COMMON_VIDEOS:
        raise StoreError(
            f"no two of the {len(records)} records show the same task; give a folder of "
            "several videos of one task, or --set compare.video_likeness=0"
        )
    # Their steps, aligned, in the order of the members: the most typical video comes first.
    task_records = [usable[number] for number in members]
    task_vectors = [vectors[number] for number in members]
    groups = align_videos(task_vectors, range(len(task_records)), settings)
    aligned = AlignedSteps(task_records, task_vectors, _split_kinds(groups, task_records))
    steps = _procedure_steps(aligned, settings)
    others = likeness[np.ix_(members, members)]
    return TaskComparison(
        title=title(task_records[0]),
        videos=tuple(_compared_videos(task_records, others)),
        left_out=tuple(left_out),
        steps=steps,
        orders=_step_orders(aligned, steps),
        transitions=_count_transitions(aligned),
        materials=compare_materials([(r.id, r.materials) for r in task_records], embedder),
        tools=compare_materials([(r.id, r.tools) for r in task_records], embedder),
    )


def _split_kinds(groups: Sequence[StepGroup], records: Sequence[Record]) -> list[StepGroup]:
    """Return the groups of equivalent steps, where each group that mixes steps to do and steps to
    avoid is split into two groups.

    Args:
        groups: groups of equivalent steps.
        records: records of the videos, by the video index of the steps.
    """
    parts: list[StepGroup] = []
    for group in groups:
        of_kind: dict[StepKind, StepGroup] = {}
        for index in group:
            of_kind.setdefault(records[index.video].steps[index.step].kind, []).append(index)
        parts += of_kind.values()
    return parts


def _left_out_video(record: Record, reason: str) -> LeftOutVideo:
    return LeftOutVideo(id=record.id, title=title(record), reason=reason)


def _compared_videos(records: Sequence[Record], likeness: Matrix) -> list[ComparedVideo]:
    """Return the videos with their mean similarity to the others.

    Args:
        records: records of V videos.
        likeness: (V, V) pairwise similarity, with ones on the diagonal.
    """
    # Each video is like itself by 1, which does not count.
    means = (likeness.sum(axis=1) - 1) / (len(records) - 1)
    return [
        ComparedVideo(
            id=record.id,
            title=title(record),
            path=record.video.path,
            duration=record.video.duration,
            steps=len(record.steps),
            likeness=round(float(mean), 3),
        )
        for record, mean in zip(records, means, strict=True)
    ]


def _group_id(number: int) -> str:
    return f"s{number + 1}"


def _procedure_steps(aligned: AlignedSteps, settings: CompareSettings) -> tuple[ProcedureStep, ...]:
    centers = group_vectors(aligned.groups, aligned.vectors)  # (N, D)
    video_count = len(aligned.records)
    # At least two videos, however small the share that is asked for.
    least = max(MIN_COMMON_VIDEOS, settings.common_share * video_count)
    steps = []
    for number, group in enumerate(aligned.groups):
        steps_of_group = [aligned.find_step(*index) for index in group]
        # The wording that is nearest to the middle of its group.
        likeness = [float(aligned.vectors[v][s] @ centers[number]) for v, s in group]
        typical = steps_of_group[int(np.argmax(likeness))]
        # From 0 at the first step to 1 at the last. A video of one step has it at 0.
        counts = [len(aligned.records[video].steps) for video, _ in group]
        positions = [p.step / max(1, n - 1) for p, n in zip(group, counts, strict=True)]
        count = len({index.video for index in group})
        occurrences = _make_occurrences(aligned, group)
        amounts = []
        for occurrence in occurrences:
            amounts += step_amounts(occurrence.video, occurrence.text)
        step = ProcedureStep(
            id=_group_id(number),
            text=typical.text,
            kind=typical.kind,
            videos=count,
            share=round(count / video_count, 3),
            common=count >= least,
            place=round(statistics.mean(positions), 3),
            seconds=_seconds_spread(steps_of_group),
            amounts=amount_spreads(amounts),
            occurrences=occurrences,
        )
        steps.append(step)
    return tuple(steps)


def _make_occurrences(aligned: AlignedSteps, group: StepGroup) -> tuple[Occurrence, ...]:
    occurrences = []
    for index in sorted(group):
        step = aligned.find_step(*index)
        video = aligned.records[index.video].id
        # Where the step is shown, or else spoken.
        span = shown_span(step) or step.said
        start, end = (span.start, span.end) if span else (None, None)
        occurrences.append(
            Occurrence(video=video, step=step.id, text=step.text, start=start, end=end)
        )
    return tuple(occurrences)


def _seconds_spread(steps: Sequence[Step]) -> SecondsSpread | None:
    """Return the spread of the shown seconds of steps, or None if no step is shown."""
    durations = [span.duration for span in map(shown_span, steps) if span is not None]
    if not durations:
        return None
    return SecondsSpread(
        low=round(min(durations), 2),
        median=round(statistics.median(durations), 2),
        high=round(max(durations), 2),
    )


def _step_orders(aligned: AlignedSteps, steps: Sequence[ProcedureStep]) -> tuple[OrderCount, ...]:
    """Return the usual order of each pair of steps that several videos do."""
    orders = []
    # A video that does a step twice counts by the first time.
    first_steps = [first_step_of_videos(group) for group in aligned.groups]
    for first, second in combinations(range(len(steps)), 2):
        before, after = count_orders(first_steps[first], first_steps[second])
        if before + after < MIN_COMMON_VIDEOS:
            continue
        pair = [steps[first].id, steps[second].id]
        if after > before:
            pair.reverse()
        count = max(before, after)
        orders.append(OrderCount(first=pair[0], then=pair[1], videos=count, of=before + after))
    return tuple(orders)


def _count_transitions(aligned: AlignedSteps) -> tuple[Transition, ...]:
    """Return the transitions between steps, with their counts and probabilities."""
    # The group of each step, by which a video becomes a path through groups.
    number_of = {index: number for number, group in enumerate(aligned.groups) for index in group}
    # Arrows are counted along each path, from the start to the end.
    arrows: Counter[tuple[int, int]] = Counter()
    start = -1
    end = len(aligned.groups)
    paths: dict[int, list[int]] = {video: [start] for video in range(len(aligned.records))}
    for index in sorted(number_of):
        path = paths[index.video]
        # two steps of one group in a row are one visit
        if path[-1] != number_of[index]:
            path.append(number_of[index])
    # Probabilities are of all arrows that leave a step. Each visit of a step has one.
    transition_counts: Counter[int] = Counter()
    for path in paths.values():
        transition_counts.update(path)
        arrows.update(pairwise([*path, end]))
    names = {start: START_ID, end: END_ID}
    return tuple(
        Transition(
            source=names.get(source, _group_id(source)),
            target=names.get(target, _group_id(target)),
            count=count,
            probability=count / transition_counts[source],
        )
        for (source, target), count in sorted(arrows.items())
    )
