"""CrossTask: recall at 1 averaged over tasks, with every step placed by itself or all of a task's
steps in order.

T seconds, K steps of the task, V videos. A cost is low where a step fits. Source: CrossTask (Zhukov
et al., CVPR 2019), section 6 and its released evaluator. NaSVA (section 4.1) takes the mean over 20
random test sets.

The reference is the release's folder. Predictions are JSON, {"task_video": value} or {task: {video:
value}}. A value has one of three forms. It may be one second per step, null where it is not placed.
It may be a matrix of scores, one row per second and one column per step. Or it is {"spans":
[[start, end] or null per step]}, whose middles are the seconds and which also give recall at
overlap.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.datasets.crosstask import (
    TASK_FILES,
    VideoKey,
    read_annotation,
    read_tasks,
    read_validation,
    release_file,
)
from stepline.datasets.files import Node
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Integers, Statistic, grouped_ratio
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    COUNT_MISSING,
    SKIP_MISSING,
    ScoringTask,
    entries_by_id,
    is_matrix_node,
    read_matrix,
    read_numbers,
    read_spans,
    span_centers,
)
from stepline.evaluate.span_overlaps import (
    Pairs,
    grounding_overlaps,
    instances_by_step,
    overlap_statistics,
    span_array,
)

Flags: TypeAlias = npt.NDArray[np.bool_]

TEST_SETS = 20  # drawn at random, NaSVA section 4.1
TRAIN_VIDEOS = 30  # videos per task that a test set leaves to training, CrossTask section 6


def rows_shown(segments: Pairs, steps: Sequence[int], seconds: int, count: int) -> Flags:
    """Return (T, K): which step is shown in which second, rows floor(start):ceil(end) without the
    last.

    steps: of each segment, 0..K-1. What is outside the T seconds is cut off, as officially.
    Raises DatasetError for an unknown step.
    """
    rows = np.zeros((seconds, count), dtype=bool)
    for (start, end), step in zip(span_array(segments, "crosstask"), steps, strict=True):
        if not 0 <= step < count:
            fault = f"step {step + 1} of a task with {count} steps"
            raise DatasetError(f"{fault}; correct the annotation")
        first = max(0, int(np.floor(start)))
        stop = max(0, int(np.ceil(end)))
        rows[first:stop, step] = True
    return rows


def best_rows(cost: Floats) -> Integers:
    """Return (K,) the cheapest second of each step by itself. Of equal ones it is the first."""
    _check_costs(cost)
    return np.asarray(cost.argmin(axis=0), dtype=np.int64)


def ordered_rows(cost: Floats) -> Integers:
    """Return (K,) the seconds of all steps in order, one each, whose sum of costs is least.
    Background costs 0."""
    return np.asarray(ordered_assignment(cost).argmax(axis=0), dtype=np.int64)


def ordered_assignment(cost: Floats) -> Flags:
    """Return (T, K): the cheapest way through all steps in order with background, at cost 0,
    before, between and after.

    Of equally cheap ways it takes the official program's. Raises DatasetError when there are fewer seconds than steps.
    """
    _check_costs(cost)
    seconds, count = cost.shape
    if seconds < count:
        fault = f"{count} steps in {seconds} seconds cannot be in order"
        raise DatasetError(f"{fault}; give one second per step or more")
    # the official program holds costs as float32
    rounded = np.asarray(cost, dtype=np.float32)
    back, state = _backward(rounded.astype(np.float64))
    assigned = np.zeros((seconds, count), dtype=bool)
    # The way is read from its last state back to its first.
    for second in range(seconds, 0, -1):
        step, is_step = divmod(state, 2)
        if is_step:
            assigned[second - 1, step] = True
        state = int(back[second, state])
    return assigned


def _backward(cost: Floats) -> tuple[Integers, int]:
    """Return (T+1, 2K+1) the state before each state on the cheapest way, and the last state.

    Even states are background, 2k+1 is step k. A background follows itself or the step before it. A
    step follows the background before it or the step before that. The first named wins where they
    cost the same. The way ends in background only where that is strictly cheaper.
    """
    seconds, count = cost.shape
    state_count = 2 * count + 1
    rests = np.arange(0, state_count, 2)
    steps = np.arange(1, state_count, 2)
    # Before the first second only the first background is possible.
    total = np.full(state_count, np.inf)
    total[0] = 0.0
    back = np.zeros((seconds + 1, state_count), dtype=np.int64)
    for second in range(seconds):
        # the cheapest way to each state one second earlier (the state s is at s + 2)
        earlier = np.concatenate(([np.inf, np.inf], total))
        to_step = np.stack([earlier[steps + 1], earlier[steps]])
        to_rest = np.stack([earlier[rests + 2], earlier[rests + 1]])
        total = np.zeros(state_count)
        total[rests] = to_rest.min(axis=0)
        total[steps] = to_step.min(axis=0) + cost[second]
        back[second + 1, rests] = rests - to_rest.argmin(axis=0)
        back[second + 1, steps] = steps - 1 - to_step.argmin(axis=0)
    last_rest = state_count - 1
    last_step = state_count - 2
    return (back, last_rest) if total[last_rest] < total[last_step] else (back, last_step)


def _check_costs(cost: Floats) -> None:
    if cost.ndim != 2 or 0 in cost.shape:
        fault = f"costs of shape {cost.shape}"
        raise DatasetError(f"{fault}; give (seconds, steps), at least one of each")
    if not np.isfinite(cost).all():
        raise DatasetError("a cost is NaN or infinite; give a number for every second and step")


def step_costs(scores: Floats) -> Floats:
    """Return costs of scores (T, K): minus their log-softmax over steps, as CrossTask's model is
    decoded."""
    # The largest score is taken off first, so that exp cannot overflow.
    top = scores.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
    return np.asarray(top + log_sums - scores)


def count_hits(rows: Floats, shown_rows: Flags) -> tuple[float, float]:
    """Return (hits, steps) of one video: shown steps whose second is right, and shown steps.

    rows: (K,) a second each, NaN where a step is not placed. shown_rows: (T, K). A step counts once
    however often it is shown.
    """
    seconds, count = shown_rows.shape
    if len(rows) != count:
        counts = f"{len(rows)} predicted seconds for {count} steps"
        raise DatasetError(f"{counts}; give one, or null, per step")
    inside = np.isfinite(rows) & (rows >= 0) & (rows < seconds)
    right = inside
    # Seconds outside the table hit nothing. They become 0 only to index it.
    if seconds:
        is_shown = shown_rows[np.where(inside, rows, 0).astype(np.int64), np.arange(count)]
        right = is_shown & inside
    hits = right.sum()
    shown_steps = shown_rows.any(axis=0).sum()
    return float(hits), float(shown_steps)


# ---------------------------------------------------------------- test sets


def random_test_sets(
    tasks: Mapping[str, Sequence[str]],
    *,
    count: int = TEST_SETS,
    train: int = TRAIN_VIDEOS,
    seed: int = 0,
) -> list[frozenset[tuple[str, str]]]:
    """Return test sets of (task, video): each leaves `train` random videos of every task out.

    A task with no more videos than that is in no test set, as officially. The original seeds were
    not published. Set i is drawn with seed + i.
    """
    sets = []
    for index in range(count):
        rng = np.random.default_rng(seed + index)
        pairs: set[VideoKey] = set()
        # Sorted, so that a set does not depend on the order of the files.
        for task in sorted(tasks):
            videos = sorted(tasks[task])
            if len(videos) > train:
                training = rng.choice(len(videos), size=train, replace=False)
                test_videos = np.delete(videos, training)
                pairs |= {(task, video) for video in test_videos.tolist()}
        sets.append(frozenset(pairs))
    return sets


# ---------------------------------------------------------------- the score


@dataclass(frozen=True)
class _Annotation:
    """One video: its segments (M, 2), the step of each, 0..K-1, and K."""

    segments: Floats
    steps: tuple[int, ...]
    count: int

    @property
    def last_row(self) -> int:
        """The second after which nothing is shown."""
        last_end = self.segments[:, 1].max(initial=0.0)
        return int(np.ceil(last_end))

    def shown_rows(self, seconds: int) -> Flags:
        """Return (T, K): which step is shown in which second."""
        return rows_shown(self.segments, self.steps, seconds, self.count)


def score(
    scoring: ScoringTask, *, ordered: bool = False, sets: bool = True, skip: bool = False
) -> Scores:
    """Return average recall at 1, over the 20 random test sets or over all videos.

    ordered: all steps of a task in order, by dynamic programming. skip: videos without predictions
    are left out.
    """
    truths = _read_reference(scoring.reference)
    predictions = _read_predictions(scoring.predictions)
    keys = [key for key in truths if not skip or key in predictions]
    video_count = len(keys)
    # hits and steps of each video
    hits = np.zeros(video_count)
    steps = np.zeros(video_count)
    for index, key in enumerate(keys):
        node = predictions.get(key)
        hits[index], steps[index] = _hits_and_steps(node, truths[key], ordered, cut=skip)
    # recall by task and test set
    task_of_video = [task for task, _ in keys]
    tasks = sorted(set(task_of_video))
    task_numbers = [tasks.index(task) for task in task_of_video]
    group = np.array(task_numbers, dtype=np.int64)
    members = np.ones((1, video_count), dtype=bool)
    if sets:
        members = _test_sets(list(truths), keys)
    statistics: dict[str, Statistic] = {}
    if keys:
        name = "average R@1, in order" if ordered else "average R@1"
        statistics[name] = grouped_ratio(hits, steps, group, members)
    # overlap, where all predictions are spans
    if predictions and all(isinstance(node.value, dict) for node in predictions.values()):
        fits = [_step_overlaps(predictions.get(key), truths[key]) for key in keys]
        statistics |= overlap_statistics(fits, steps)
    columns = {"hits": hits, "steps": steps, "task": _task_numbers(task_of_video)}
    handling = SKIP_MISSING if skip else COUNT_MISSING
    return scoring.scores(
        statistics,
        columns,
        items=steps.sum(),
        reference_ids=map("_".join, truths),
        predicted_ids=map("_".join, predictions),
        handling=handling,
        notes=[f"{_set_note(members)}, {len(tasks)} tasks"],
    )


def _task_numbers(tasks: Sequence[str]) -> Floats:
    """Return the ids of tasks as numbers, NaN where an id is not a number."""
    numbers = np.full(len(tasks), np.nan)
    for index, task in enumerate(tasks):
        if task.isdecimal():
            numbers[index] = float(task)
    return numbers


def _set_note(members: Flags) -> str:
    """Return how many videos the test sets hold."""
    if len(members) == 1:
        return "all videos"
    set_sizes = members.sum(axis=1)
    sizes = sorted(set(set_sizes.tolist()))
    if len(sizes) == 1:
        return f"{len(members)} test sets of {sizes[0]} videos"
    return f"{len(members)} test sets of {sizes} videos"


def _test_sets(all_keys: list[VideoKey], keys: list[VideoKey]) -> Flags:
    """Return (S, V): which of `keys` each test set holds. The sets are drawn from all annotated
    videos."""
    tasks: dict[str, list[str]] = defaultdict(list)
    for task, video in all_keys:
        tasks[task].append(video)
    sets = random_test_sets(tasks)
    if all_keys and not any(sets):
        few = f"no task has more than the {TRAIN_VIDEOS} videos that a test set leaves out"
        raise DatasetError(f"{few}; score all videos with --convention each-all")
    members = [[key in pairs for key in keys] for pairs in sets]
    shape = (len(sets), len(keys))
    return np.array(members, dtype=bool).reshape(shape)


def _hits_and_steps(
    node: Node | None, truth: _Annotation, ordered: bool, *, cut: bool
) -> tuple[float, float]:
    """Return the hits and the shown steps of one video.

    cut: steps shown only after the last row of the scores are left out, as officially. Otherwise
    they are missed.
    """
    count = truth.count
    last_row = truth.last_row
    if node is None:
        return count_hits(np.full(count, np.nan), truth.shown_rows(last_row))
    # scores of every second and step
    if is_matrix_node(node):
        scores = read_matrix(node)
        row_count, column_count = scores.shape
        if column_count != count:
            counts = f"{column_count} columns for {count} steps"
            raise DatasetError(f"{node.location}: {counts}; give one per step")
        rows = ordered_rows(step_costs(scores)) if ordered else best_rows(-scores)
        seconds = max(last_row, row_count) if not cut else row_count
        return count_hits(rows.astype(np.float64), truth.shown_rows(seconds))
    if ordered:
        fault = f"{node.location}: seconds cannot be put in order"
        raise DatasetError(f"{fault}; give scores, one row per second")
    # spans or seconds
    if isinstance(node.value, dict):
        spans = read_spans(node["spans"], count, "steps")
        centers = span_centers(spans)
    else:
        centers = read_numbers(node, count, "steps")
    return count_hits(np.floor(centers), truth.shown_rows(last_row))


def _step_overlaps(node: Node | None, truth: _Annotation) -> Floats:
    """Return how the spans of the steps that are shown fit. All are missing where the video is."""
    instances = instances_by_step(truth.segments, truth.steps)
    reference = list(instances.values())
    if node is None:
        return grounding_overlaps([None] * len(reference), reference)
    spans = read_spans(node["spans"], truth.count, "steps")
    predicted = [spans[step] for step in instances]
    return grounding_overlaps(predicted, reference)


# ---------------------------------------------------------------- the files


def _read_predictions(path: Path) -> dict[VideoKey, Node]:
    predictions: dict[VideoKey, Node] = {}
    for id, node in entries_by_id(path).items():
        # A mapping without spans is a task, and its keys are videos.
        is_task = isinstance(node.value, dict) and "spans" not in node.value
        if is_task:
            for video, value in node.entries():
                predictions[id, video] = value
        else:
            task, _, video = id.partition("_")
            predictions[task, video] = node
    return predictions


def _read_reference(folder: Path) -> dict[VideoKey, _Annotation]:
    """Return the annotated videos of the primary tasks, without those that the benchmark keeps for
    validation."""
    primary_file = release_file(folder, TASK_FILES[0])
    tasks = read_tasks(primary_file)
    counts = {task.id: len(task.steps) for task in tasks}
    validation = read_validation(folder)
    annotation_folder = folder / "annotations"
    truths = {}
    for path in sorted(annotation_folder.glob("*.csv")):
        task, _, video = path.stem.partition("_")
        if task not in counts or (task, video) in validation:
            continue
        spans = []
        steps = []
        for step, start, end in read_annotation(path):
            spans.append((start, end))
            # The release counts steps from 1.
            steps.append(step - 1)
        segments = span_array(spans, "crosstask")
        step_count = counts[task]
        truths[task, video] = _Annotation(segments, tuple(steps), step_count)
    return truths
