"""CrossTask: recall at 1 averaged over tasks, with every step placed by itself or all of a task's
steps in order.

T seconds, K steps of the task, V videos. A cost is low where a step fits. Source: CrossTask (Zhukov
et al., CVPR 2019), section 6 and its released evaluator. NaSVA (section 4.1) takes the mean over 20
random test sets.

The reference is the release's folder. Predictions are JSON, {"task_video": value} or {task: {video:
value}}; a value is one second a step, null where it is not placed; or a matrix of scores, one row a
second and one column a step; or {"spans": [[start, end] or null a step]}, whose middles are the
seconds and which give recall at overlap as well.
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
from stepline.evaluate.bootstrap import Floats, GroupedRatio, Integers, Statistic
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
from stepline.evaluate.temporal_grounding import (
    Pairs,
    SpanOverlaps,
    grounding_overlaps,
    instances_by_step,
    overlap_statistics,
    span_array,
)

Flags: TypeAlias = npt.NDArray[np.bool_]

TEST_SETS = 20  # drawn at random, NaSVA section 4.1
TRAIN_VIDEOS = 30  # videos a task that a test set leaves to training, CrossTask section 6


def rows_shown(segments: Pairs, steps: Sequence[int], seconds: int, count: int) -> Flags:
    """Return (T, K): which step is shown in which second, rows floor(start):ceil(end) without the
    last.

    steps: of each segment, 0..K-1. What lies outside the T seconds is cut off, as officially.
    Raises DatasetError for an unknown step.
    """
    rows = np.zeros((seconds, count), dtype=bool)
    for (start, end), step in zip(span_array(segments, "crosstask"), steps, strict=True):
        if not 0 <= step < count:
            raise DatasetError(
                f"step {step + 1} of a task with {count} steps; correct the annotation"
            )
        first = max(0, int(np.floor(start)))
        rows[first : max(0, int(np.ceil(end))), step] = True
    return rows


def best_rows(cost: Floats) -> Integers:
    """Return (K,) the cheapest second of each step by itself; of equal ones the first."""
    return np.asarray(_checked(cost).argmin(axis=0), dtype=np.int64)


def ordered_rows(cost: Floats) -> Integers:
    """Return (K,) the seconds of all steps in order, one each, whose sum of costs is least;
    background costs 0."""
    return np.asarray(ordered_assignment(cost).argmax(axis=0), dtype=np.int64)


def ordered_assignment(cost: Floats, *, exactly_one: bool = True) -> Flags:
    """Return (T, K): the cheapest way through all steps in order with background, at cost 0,
    before, between and after.

    exactly_one: a step lasts one second; otherwise one or more. Of equally cheap ways the official
    program's.
    Raises DatasetError when there are fewer seconds than steps.
    """
    seconds, count = _checked(cost).shape
    if seconds < count:
        raise DatasetError(
            f"{count} steps in {seconds} seconds cannot stand in order; give one second a step or more"
        )
    # the official program holds costs as float32
    back, state = _backward(np.asarray(cost, dtype=np.float32).astype(np.float64), exactly_one)
    assigned = np.zeros((seconds, count), dtype=bool)
    for second in range(seconds, 0, -1):
        if state % 2:
            assigned[second - 1, state // 2] = True
        state = int(back[second, state])
    return assigned


def _backward(cost: Floats, exactly_one: bool) -> tuple[Integers, int]:
    """Return (T+1, 2K+1) the state before each state on the cheapest way, and the last state.

    Even states are background, 2k+1 is step k. A background follows itself or the step before it; a
    step follows (when it may last) itself, the background before it or the step before that. The
    first named wins where they cost the same; the way ends in background only where that is
    strictly cheaper.
    """
    seconds, count = cost.shape
    states = 2 * count + 1
    rests, steps = np.arange(0, states, 2), np.arange(1, states, 2)
    total = np.full(states, np.inf)
    total[0] = 0.0
    back = np.zeros((seconds + 1, states), dtype=np.int64)
    for second in range(seconds):
        was = np.concatenate(([np.inf, np.inf], total))  # was[2 + state]
        ways = np.stack([was[2 + steps], was[1 + steps], was[steps]])
        if exactly_one:
            ways[0] = np.inf
        rest = np.stack([was[2 + rests], was[1 + rests]])
        total = np.zeros(states)
        total[rests], total[steps] = rest.min(axis=0), ways.min(axis=0) + cost[second]
        back[second + 1, rests] = rests - rest.argmin(axis=0)
        back[second + 1, steps] = steps - ways.argmin(axis=0)
    return back, states - 1 if total[states - 1] < total[states - 2] else states - 2


def _checked(cost: Floats) -> Floats:
    if cost.ndim != 2 or 0 in cost.shape:
        raise DatasetError(
            f"costs of shape {cost.shape}; give (seconds, steps), at least one of each"
        )
    if not np.isfinite(cost).all():
        raise DatasetError("a cost is NaN or infinite; give a number for every second and step")
    return cost


def step_costs(scores: Floats) -> Floats:
    """Return costs of scores (T, K): minus their log-softmax over steps, as CrossTask's model is
    decoded."""
    top = scores.max(axis=1, keepdims=True)
    return np.asarray(top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True)) - scores)


def count_hits(rows: Floats, shown_rows: Flags) -> tuple[float, float]:
    """Return (hits, steps) of one video: shown steps whose second is right, and shown steps.

    rows: (K,) a second each, NaN where a step is not placed. shown_rows: (T, K). A step counts once
    however often it is shown.
    """
    seconds, count = shown_rows.shape
    if len(rows) != count:
        raise DatasetError(
            f"{len(rows)} predicted seconds for {count} steps; give one, or null, a step"
        )
    inside = np.isfinite(rows) & (rows >= 0) & (rows < seconds)
    right = inside
    if seconds:
        indices = np.where(inside, rows, 0).astype(np.int64)
        right = shown_rows[indices, np.arange(count)] & inside
    return float(right.sum()), float(shown_rows.any(axis=0).sum())


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
    not published; set i is drawn with seed + i.
    """
    sets = []
    for index in range(count):
        rng = np.random.default_rng(seed + index)
        pairs: set[VideoKey] = set()
        for task in sorted(tasks):
            videos = sorted(tasks[task])
            if len(videos) > train:
                training = rng.choice(len(videos), size=train, replace=False)
                pairs |= {(task, video) for video in np.delete(videos, training).tolist()}
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
        return int(np.ceil(self.segments[:, 1].max(initial=0.0)))

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
    counts = np.zeros((2, len(keys)))
    for index, key in enumerate(keys):
        counts[:, index] = _hits_and_steps(predictions.get(key), truths[key], ordered, cut=skip)
    hits, steps = counts
    tasks = sorted({task for task, _ in keys})
    group = np.array([tasks.index(task) for task, _ in keys], dtype=np.int64)
    members = np.ones((1, len(keys)), dtype=bool)
    if sets:
        members = _test_sets(list(truths), keys)
    statistics: dict[str, Statistic] = {}
    if keys:
        name = "average R@1, in order" if ordered else "average R@1"
        statistics[name] = GroupedRatio(hits, steps, group, members)
    if predictions and all(isinstance(node.value, dict) for node in predictions.values()):
        fits = [_step_overlaps(predictions.get(key), truths[key]) for key in keys]
        statistics |= overlap_statistics(fits, steps)
    note = "all videos"
    if len(members) > 1:
        sizes = sorted({int(size) for size in members.sum(axis=1)})
        note = f"{len(members)} test sets of {sizes[0] if len(sizes) == 1 else sizes} videos"
    numbers = np.array([float(task) if task.isdecimal() else np.nan for task, _ in keys])
    return scoring.scores(
        statistics,
        {"hits": hits, "steps": steps, "task": numbers},
        items=steps.sum(),
        reference_ids=map("_".join, truths),
        predicted_ids=map("_".join, predictions),
        handling=SKIP_MISSING if skip else COUNT_MISSING,
        notes=[f"{note}, {len(tasks)} tasks"],
    )


def _test_sets(all_keys: list[VideoKey], keys: list[VideoKey]) -> Flags:
    """Return (S, V): which of `keys` each test set holds; the sets are drawn from all annotated
    videos."""
    tasks: dict[str, list[str]] = defaultdict(list)
    for task, video in all_keys:
        tasks[task].append(video)
    sets = random_test_sets(tasks)
    if all_keys and not any(sets):
        few = f"no task has more than the {TRAIN_VIDEOS} videos that a test set leaves out"
        raise DatasetError(f"{few}; score all videos with --convention each-all")
    members = [[key in pairs for key in keys] for pairs in sets]
    return np.array(members, dtype=bool).reshape(len(sets), len(keys))


def _hits_and_steps(
    node: Node | None, truth: _Annotation, ordered: bool, *, cut: bool
) -> tuple[float, float]:
    """Return the hits and the shown steps of one video.

    cut: steps shown only after the last row of the scores are left out, as officially; otherwise
    they are missed.
    """
    last = truth.last_row
    if node is None:
        return count_hits(np.full(truth.count, np.nan), truth.shown_rows(last))
    if is_matrix_node(node):
        scores = read_matrix(node)
        if scores.shape[1] != truth.count:
            raise DatasetError(
                f"{node.location}: {scores.shape[1]} columns for {truth.count} steps; give one a step"
            )
        rows = ordered_rows(step_costs(scores)) if ordered else best_rows(-scores)
        seconds = len(scores) if cut else max(last, len(scores))
        return count_hits(rows.astype(np.float64), truth.shown_rows(seconds))
    if ordered:
        raise DatasetError(
            f"{node.location}: seconds cannot be put in order; give scores, one row a second"
        )
    if isinstance(node.value, dict):
        centers = span_centers(read_spans(node["spans"], truth.count, "steps"))
    else:
        centers = read_numbers(node, truth.count, "steps")
    return count_hits(np.floor(centers), truth.shown_rows(last))


def _step_overlaps(node: Node | None, truth: _Annotation) -> SpanOverlaps:
    """Return how the spans of the steps that are shown fit; all are missing where the video is."""
    instances = instances_by_step(truth.segments, truth.steps)
    if node is None:
        return grounding_overlaps([None] * len(instances), list(instances.values()))
    spans = read_spans(node["spans"], truth.count, "steps")
    return grounding_overlaps([spans[step] for step in instances], list(instances.values()))


# ---------------------------------------------------------------- the files


def _read_predictions(path: Path) -> dict[VideoKey, Node]:
    predictions: dict[VideoKey, Node] = {}
    for id, node in entries_by_id(path).items():
        if isinstance(node.value, dict) and "spans" not in node.value:
            predictions |= {(id, video): value for video, value in node.entries()}
        else:
            task, _, video = id.partition("_")
            predictions[task, video] = node
    return predictions


def _read_reference(folder: Path) -> dict[VideoKey, _Annotation]:
    """Return the annotated videos of the primary tasks, without those that the benchmark keeps for
    validation."""
    tasks = read_tasks(release_file(folder, TASK_FILES[0]))
    counts = {task.id: len(task.steps) for task in tasks}
    validation = read_validation(folder)
    truths = {}
    for path in sorted((folder / "annotations").glob("*.csv")):
        task, _, video = path.stem.partition("_")
        if task in counts and (task, video) not in validation:
            rows = list(read_annotation(path))
            segments = span_array([row[1:] for row in rows], "crosstask")
            steps = tuple(row[0] - 1 for row in rows)
            truths[task, video] = _Annotation(segments, steps, counts[task])
    return truths
