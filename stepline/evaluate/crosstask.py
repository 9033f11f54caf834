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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.datasets.crosstask import TASKS, VALIDATION, read_tasks
from stepline.datasets.files import Node, find_file, read_headless_csv
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
    require_length,
    span_centers,
)
from stepline.evaluate.temporal_grounding import (
    Pairs,
    SpanOverlaps,
    grounding_overlaps,
    overlap_statistics,
    span_array,
)

SETS = 20  # random test sets, NaSVA section 4.1
TRAIN_VIDEOS = 30  # videos a task that a test set leaves to training, CrossTask section 6


def rows_shown(
    segments: Pairs, steps: Sequence[int], seconds: int, count: int
) -> npt.NDArray[np.bool_]:
    """Return (T, K): which step is shown in which second, rows floor(start):ceil(end) without the
    last.

    steps: of each segment, 0..K-1. What lies outside the T seconds is cut off, as officially.
    Raises DatasetError for an unknown step.
    """
    shown = np.zeros((seconds, count), dtype=bool)
    for (start, end), step in zip(span_array(segments, "crosstask"), steps, strict=True):
        if not 0 <= step < count:
            raise DatasetError(
                f"step {step + 1} of a task with {count} steps; correct the annotation"
            )
        shown[max(0, int(np.floor(start))) : max(0, int(np.ceil(end))), step] = True
    return shown


def best_rows(cost: Floats) -> Integers:
    """Return (K,) the cheapest second of each step by itself; of equal ones the first."""
    return np.asarray(_checked(cost).argmin(axis=0), dtype=np.int64)


def ordered_rows(cost: Floats) -> Integers:
    """Return (K,) the seconds of all steps in order, one each, whose sum of costs is least;
    background costs 0."""
    return np.asarray(ordered_assignment(cost).argmax(axis=0), dtype=np.int64)


def ordered_assignment(cost: Floats, *, exactly_one: bool = True) -> npt.NDArray[np.bool_]:
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


def count_hits(rows: Floats, shown: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Return (hits, steps) of one video: shown steps whose second is right, and shown steps.

    rows: (K,) a second each, NaN where a step is not placed. A step counts once however often it is
    shown.
    """
    if len(rows) != shown.shape[1]:
        raise DatasetError(
            f"{len(rows)} predicted seconds for {shown.shape[1]} steps; give one, or null, a step"
        )
    inside = np.isfinite(rows) & (rows >= 0) & (rows < len(shown))
    places = np.where(inside, rows, 0).astype(np.int64)
    right = shown[places, np.arange(len(rows))] & inside if len(shown) else inside
    return float(right.sum()), float(shown.any(axis=0).sum())


# ---------------------------------------------------------------- test sets


def random_test_sets(
    tasks: Mapping[str, Sequence[str]],
    *,
    count: int = SETS,
    train: int = TRAIN_VIDEOS,
    seed: int = 0,
) -> list[frozenset[tuple[str, str]]]:
    """Return test sets of (task, video): each leaves `train` random videos of every task out.

    A task with no more videos than that is in no test set, as officially. The original seeds were
    not published; set i is drawn with seed + i.
    """
    sets = []
    for index in range(count):
        generator = np.random.default_rng(seed + index)
        chosen: set[tuple[str, str]] = set()
        for task in sorted(tasks):
            videos = sorted(tasks[task])
            if len(videos) > train:
                left_out = set(generator.choice(len(videos), size=train, replace=False).tolist())
                chosen |= {
                    (task, video) for index, video in enumerate(videos) if index not in left_out
                }
        sets.append(frozenset(chosen))
    return sets


# ---------------------------------------------------------------- the score


Key: TypeAlias = tuple[str, str]  # task, video


@dataclass(frozen=True)
class _Annotation:
    segments: tuple[tuple[float, float], ...]
    steps: tuple[int, ...]
    count: int


def score(
    scoring: ScoringTask, *, ordered: bool = False, sets: bool = True, skip: bool = False
) -> Scores:
    """Return average recall at 1, over the 20 random test sets or over all videos.

    ordered: all steps of a task in order, by dynamic programming. skip: videos without predictions
    are left out.
    """
    truths, given = _read_reference(scoring.reference), _read_predictions(scoring.predictions)
    keys = [key for key in truths if not skip or key in given]
    hits, shown = np.zeros(len(keys)), np.zeros(len(keys))
    for index, key in enumerate(keys):
        hits[index], shown[index] = _hits_and_steps(given.get(key), truths[key], ordered, cut=skip)
    tasks = sorted({task for task, _ in keys})
    group = np.array([tasks.index(task) for task, _ in keys], dtype=np.int64)
    held = _test_sets(list(truths), keys) if sets else np.ones((1, len(keys)), dtype=bool)
    statistics: dict[str, Statistic] = {}
    if keys:
        name = "average R@1, in order" if ordered else "average R@1"
        statistics[name] = GroupedRatio(hits, shown, group, held)
    if given and all(isinstance(node.value, dict) for node in given.values()):
        statistics |= overlap_statistics(
            [_step_overlaps(given.get(key), truths[key]) for key in keys], shown
        )
    numbers = np.array([float(task) if task.isdecimal() else float("nan") for task, _ in keys])
    size = sorted({int(count) for count in held.sum(axis=1)})
    drawn = (
        f"{len(held)} test sets of {size[0] if len(size) == 1 else size} videos"
        if len(held) > 1
        else "all videos"
    )
    return scoring.scores(
        map("_".join, keys),
        int(shown.sum()),
        statistics,
        {"hits": hits, "steps": shown, "task": numbers},
        asked=map("_".join, truths),
        given=map("_".join, given),
        handling=SKIP_MISSING if skip else COUNT_MISSING,
        notes=[f"{drawn}, {len(tasks)} tasks"],
    )


def _test_sets(all_keys: list[Key], keys: list[Key]) -> np.typing.NDArray[np.bool_]:
    """Return (S, V): which of `keys` each test set holds; the sets are drawn from all annotated
    videos."""
    tasks: dict[str, list[str]] = defaultdict(list)
    for task, video in all_keys:
        tasks[task].append(video)
    sets = random_test_sets(tasks)
    if all_keys and not any(sets):
        few = f"no task has more than the {TRAIN_VIDEOS} videos that a test set leaves out"
        raise DatasetError(f"{few}; score all videos with --convention each-all")
    return np.array([[key in chosen for key in keys] for chosen in sets], dtype=bool).reshape(
        len(sets), len(keys)
    )


def _hits_and_steps(
    node: Node | None, truth: _Annotation, ordered: bool, *, cut: bool
) -> tuple[float, float]:
    """Return the hits and the shown steps of one video.

    cut: steps shown only after the last row of the scores are left out, as officially; otherwise
    they are missed.
    """
    last = int(np.ceil(max([0.0, *(end for _, end in truth.segments)])))
    if node is None:
        return count_hits(np.full(truth.count, np.nan), _rows_shown(truth, last))
    if is_matrix_node(node):
        scores = read_matrix(node)
        if scores.shape[1] != truth.count:
            raise DatasetError(
                f"{node.location}: {scores.shape[1]} columns for {truth.count} steps; give one a step"
            )
        decode: Callable[[Floats], Integers] = ordered_rows if ordered else best_rows
        rows = decode(step_costs(scores) if ordered else -scores).astype(np.float64)
        return count_hits(rows, _rows_shown(truth, len(scores) if cut else max(last, len(scores))))
    if ordered:
        raise DatasetError(
            f"{node.location}: seconds cannot be put in order; give scores, one row a second"
        )
    seconds = (
        span_centers(_read_step_spans(node, truth))
        if isinstance(node.value, dict)
        else read_numbers(node)
    )
    require_length(node, seconds, truth.count, "steps")
    return count_hits(np.floor(seconds), _rows_shown(truth, last))


def _rows_shown(truth: _Annotation, seconds: int) -> np.typing.NDArray[np.bool_]:
    return rows_shown(truth.segments, truth.steps, seconds, truth.count)


def _read_step_spans(node: Node, truth: _Annotation) -> list[tuple[float, float] | None]:
    spans = read_spans(node["spans"])
    require_length(node, spans, truth.count, "steps")
    return spans


def _step_overlaps(node: Node | None, truth: _Annotation) -> SpanOverlaps:
    """Return how the spans of the steps that are shown fit; all are missing where the video is."""
    spans = [None] * truth.count if node is None else _read_step_spans(node, truth)
    segments, numbered = (
        np.array(truth.segments).reshape(-1, 2),
        np.array(truth.steps, dtype=np.int64),
    )
    shown = sorted(set(truth.steps))
    return grounding_overlaps(
        [spans[step] for step in shown], [segments[numbered == step] for step in shown]
    )


# ---------------------------------------------------------------- the files


def _read_predictions(path: Path) -> dict[Key, Node]:
    found: dict[Key, Node] = {}
    for id, node in entries_by_id(path).items():
        if isinstance(node.value, dict) and "spans" not in node.value:
            found |= {(id, video): value for video, value in node.entries()}
        else:
            task, _, video = id.partition("_")
            found[task, video] = node
    return found


def _read_reference(folder: Path) -> dict[Key, _Annotation]:
    """Return the annotated videos of the primary tasks, without those that the benchmark keeps for
    validation."""
    if not folder.is_dir():
        raise DatasetError(
            f"{folder}: is not the folder of the CrossTask release; unpack crosstask_release.zip"
        )
    file = find_file(folder, TASKS[0])
    if file is None:
        raise DatasetError(
            f"{folder}: holds no {TASKS[0]}; give the folder of the CrossTask release"
        )
    steps = {task.id: len(task.steps) for task in read_tasks(file)}
    held = find_file(folder, VALIDATION)
    kept_back = {(row[0], row[1]) for _, row in read_headless_csv(held, 3)} if held else set()
    truths = {}
    for path in sorted((folder / "annotations").glob("*.csv")):
        task, _, video = path.stem.partition("_")
        if task in steps and (task, video) not in kept_back:
            truths[task, video] = _read_annotation(path, steps)
    return truths


def _read_annotation(path: Path, steps: Mapping[str, int]) -> _Annotation:
    segments, numbered = [], []
    for line, (step, start, end) in read_headless_csv(path, 3):
        try:
            numbered.append(int(step) - 1)
            segments.append((float(start), float(end)))
        except ValueError as error:
            raise DatasetError(
                f"{path}: line {line} is not step,start,end; download it again"
            ) from error
    return _Annotation(tuple(segments), tuple(numbered), steps[path.stem.partition("_")[0]])
