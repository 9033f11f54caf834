"""CrossTask: recall at 1 averaged over tasks, with each step localized separately or in order.

T seconds, K steps of the task, V videos. A cost is low where a step fits. Source: CrossTask (Zhukov
et al., CVPR 2019), section 6 and its released evaluator. NaSVA (section 4.1) takes the mean over 20
random test sets.

The reference is the release's folder. Predictions are JSON, {"task_video": value} or {task: {video:
value}}. A value is one second per step, null where it was not found, or a matrix of scores, one row
per second and one column per step.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepline.datasets.crosstask import (
    TASK_FILES,
    VideoKey,
    find_release_file,
    read_annotation,
    read_tasks,
    read_validation_pairs,
)
from stepline.datasets.files import Node
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Flags, Floats, Integers, Statistic, grouped_ratio_statistic
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    COUNT_MISSING,
    SKIP_MISSING,
    ScoringTask,
    entries_by_id,
    is_matrix_node,
    read_matrix,
    read_numbers,
)
from stepline.evaluate.span_overlaps import Pairs, span_array

TEST_SETS = 20  # drawn at random, NaSVA section 4.1
TRAIN_VIDEOS = 30  # videos per task that a test set leaves to training, CrossTask section 6


def shown_mask(segments: Pairs, steps: Sequence[int], seconds: int, step_count: int) -> Flags:
    """Return the mask (T, K) of the seconds in which each step is shown.

    It is True in the seconds floor(start) to ceil(end) of each segment, end exclusive.

    Args:
        segments: (M, 2) start and end of each annotated segment in seconds.
        steps: (M,) index of the step that each segment shows, 0..K-1.
        seconds: T, number of seconds. Segments are clipped there, as in the official program.
        step_count: K, number of steps of the task.

    Raises DatasetError for an unknown step.
    """
    mask = np.zeros((seconds, step_count), dtype=bool)
    for (start, end), step in zip(span_array(segments, "crosstask"), steps, strict=True):
        if not 0 <= step < step_count:
            raise DatasetError(
                f"step {step + 1} of a task with {step_count} steps; correct the annotation"
            )
        first = max(0, int(np.floor(start)))
        mask[first : max(0, int(np.ceil(end))), step] = True
    return mask


def ordered_assignment(cost: Floats) -> Flags:
    """Return the mask (T, K) of the seconds assigned to each step, with all K steps in order.

    The assignment has the lowest total cost, found by dynamic programming. Ties are resolved as in
    the official program.

    Args:
        cost: (T, K) cost of each step in each second. A second without a step costs 0.

    Raises DatasetError for fewer seconds than steps.
    """
    seconds, step_count = cost.shape
    if seconds < step_count:
        raise DatasetError(
            f"{step_count} steps in {seconds} seconds cannot be in order"
            "; give one second per step or more"
        )
    # The official program holds costs as float32.
    rounded = np.asarray(cost, dtype=np.float32)
    backpointers, state = _backpointers(rounded.astype(np.float64))
    assigned = np.zeros((seconds, step_count), dtype=bool)
    # The path is read from its last state back to its first.
    for second in range(seconds, 0, -1):
        step, is_step = divmod(state, 2)
        if is_step:
            assigned[second - 1, step] = True
        state = int(backpointers[second, state])
    return assigned


def _backpointers(cost: Floats) -> tuple[Integers, int]:
    """Return the (T+1, 2K+1) backpointers of the dynamic program, and the last state of the best
    path.

    Even states are background, state 2k+1 is step k. Background may follow background or the step
    before it. A step may follow the background before it or the previous step. In ties the first
    one named here wins. The path ends in background only if that is strictly cheaper.
    """
    seconds, step_count = cost.shape
    state_count = 2 * step_count + 1
    backgrounds = np.arange(0, state_count, 2)
    steps = np.arange(1, state_count, 2)
    # Before the first second only the first background is possible.
    total = np.full(state_count, np.inf)
    total[0] = 0.0
    backpointers = np.zeros((seconds + 1, state_count), dtype=np.int64)
    for second in range(seconds):
        # The cheapest path to each state one second earlier (state s is at s + 2).
        earlier = np.concatenate(([np.inf, np.inf], total))
        to_step = np.stack([earlier[steps + 1], earlier[steps]])
        to_background = np.stack([earlier[backgrounds + 2], earlier[backgrounds + 1]])
        total = np.zeros(state_count)
        total[backgrounds] = to_background.min(axis=0)
        total[steps] = to_step.min(axis=0) + cost[second]
        backpointers[second + 1, backgrounds] = backgrounds - to_background.argmin(axis=0)
        backpointers[second + 1, steps] = steps - 1 - to_step.argmin(axis=0)
    last_background = state_count - 1
    last_step = state_count - 2
    return backpointers, last_background if total[last_background] < total[last_step] else last_step


def step_costs(scores: Floats) -> Floats:
    """Return the costs (T, K) from which CrossTask decodes: minus the log-softmax over the steps.

    scores: (T, K) score of each step in each second, higher for more likely.
    """
    # The largest score is taken off first, so that exp cannot overflow.
    top = scores.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
    return np.asarray(top + log_sums - scores)


def count_hits(predicted_seconds: Floats, mask: Flags) -> tuple[float, float]:
    """Return the number of hits and the number of shown steps of one video.

    A hit is a shown step whose predicted second shows the step.

    Args:
        predicted_seconds: (K,) one second per step, NaN for a step without a prediction.
        mask: (T, K) True in the seconds that show each step.
    """
    is_inside = (predicted_seconds >= 0) & (predicted_seconds < len(mask))
    steps = np.flatnonzero(is_inside)
    hits = mask[predicted_seconds[steps].astype(np.int64), steps].sum()
    return float(hits), float(mask.any(axis=0).sum())


# ---------------------------------------------------------------- test sets


def random_test_sets(tasks: Mapping[str, Sequence[str]]) -> list[frozenset[VideoKey]]:
    """Return TEST_SETS random test sets, each as a set of (task id, video id).

    A test set leaves out TRAIN_VIDEOS random videos of each task. A task with no more videos than
    that is in no test set, as in the official program. The original seeds were not published, so
    test set i is drawn with seed i.

    Args:
        tasks: task id -> ids of the task's videos.
    """
    test_sets = []
    for seed in range(TEST_SETS):
        rng = np.random.default_rng(seed)
        test_set: set[VideoKey] = set()
        # Sorted, so that a test set does not depend on the order of the files.
        for task in sorted(tasks):
            videos = sorted(tasks[task])
            if len(videos) > TRAIN_VIDEOS:
                training = rng.choice(len(videos), size=TRAIN_VIDEOS, replace=False)
                test_videos = np.delete(videos, training)
                test_set |= {(task, video) for video in test_videos.tolist()}
        test_sets.append(frozenset(test_set))
    return test_sets


# ---------------------------------------------------------------- the score


@dataclass(frozen=True)
class _Annotation:
    """The annotated segments of one video.

    Attributes:
        segments: (M, 2) start and end of each segment in seconds.
        steps: (M,) index of the step that each segment shows, 0..K-1.
        step_count: K, number of steps of the task.
    """

    segments: Floats
    steps: list[int]
    step_count: int

    @property
    def seconds(self) -> int:
        """End of the last annotated segment, in whole seconds."""
        return int(np.ceil(self.segments[:, 1].max(initial=0.0)))

    def mask(self, seconds: int) -> Flags:
        """Return the mask (T, K) of the seconds that show each step. seconds: T."""
        return shown_mask(self.segments, self.steps, seconds, self.step_count)


def score(
    scoring: ScoringTask,
    *,
    ordered: bool = False,
    use_test_sets: bool = True,
    skip_missing: bool = False,
) -> Scores:
    """Return average recall at 1 (one predicted second per step), the mean over tasks.

    Args:
        scoring: the files of the evaluation.
        ordered: True localizes all steps of a task in order, by dynamic programming. False
            localizes each step separately.
        use_test_sets: True returns the mean over the 20 random test sets. False scores all
            annotated videos at once.
        skip_missing: True leaves out videos without predictions, and steps that are shown only
            after the last scored second. False counts them as missed.
    """
    annotations = _read_reference(scoring.reference)
    predictions = _read_predictions(scoring.predictions)
    keys = [key for key in annotations if not skip_missing or key in predictions]
    hits = np.zeros(len(keys))
    step_counts = np.zeros(len(keys))
    for index, key in enumerate(keys):
        hits[index], step_counts[index] = _hits_and_steps(
            predictions.get(key), annotations[key], ordered, clip=skip_missing
        )
    tasks = sorted({task for task, _ in keys})
    members = np.ones((1, len(keys)), dtype=bool)
    if use_test_sets:
        members = _test_set_members(list(annotations), keys)
    statistics: dict[str, Statistic] = {}
    if keys:
        name = "average R@1, in order" if ordered else "average R@1"
        task_indices = np.array([tasks.index(task) for task, _ in keys], dtype=np.int64)
        statistics[name] = grouped_ratio_statistic(hits, step_counts, task_indices, members)
    return scoring.make_scores(
        statistics,
        {"hits": hits, "steps": step_counts},
        items=step_counts.sum(),
        reference_ids=map("_".join, annotations),
        predicted_ids=map("_".join, predictions),
        handling=SKIP_MISSING if skip_missing else COUNT_MISSING,
        notes=[f"{_test_sets_note(members)}, tasks: {len(tasks)}"],
    )


def _test_sets_note(members: Flags) -> str:
    if len(members) == 1:
        return "all videos that are not in videos_val.csv"
    sizes = sorted(set(members.sum(axis=1).tolist()))
    return f"{len(members)} test sets of {sizes[0] if len(sizes) == 1 else sizes} videos"


def _test_set_members(all_keys: list[VideoKey], keys: list[VideoKey]) -> Flags:
    """Return the mask (S, V) of the videos in each of the S test sets.

    Args:
        all_keys: (task id, video id) of all annotated videos, from which the test sets are drawn.
        keys: (task id, video id) of the V scored videos.
    """
    tasks: dict[str, list[str]] = defaultdict(list)
    for task, video in all_keys:
        tasks[task].append(video)
    test_sets = random_test_sets(tasks)
    if all_keys and not any(test_sets):
        raise DatasetError(
            f"no task has more than the {TRAIN_VIDEOS} videos that a test set leaves out"
            "; score all videos with --convention each-all"
        )
    members = [[key in test_set for key in keys] for test_set in test_sets]
    return np.array(members, dtype=bool).reshape(len(test_sets), len(keys))


def _hits_and_steps(
    node: Node | None, annotation: _Annotation, ordered: bool, *, clip: bool
) -> tuple[float, float]:
    """Return the number of hits and the number of shown steps of one video. A hit is a shown step
    whose predicted second shows the step.

    Args:
        node: JSON value of the prediction, None for a video without a prediction.
        annotation: the annotated segments.
        ordered: whether the steps are localized in order.
        clip: True ignores steps that are shown only after the last scored second, as the official
            program does. False counts them as missed.
    """
    step_count = annotation.step_count
    seconds = annotation.seconds
    if node is None:
        return count_hits(np.full(step_count, np.nan), annotation.mask(seconds))
    if not is_matrix_node(node):
        if ordered:
            raise DatasetError(
                f"{node.location}: seconds cannot be put in order; give scores, one row per second"
            )
        predicted = np.floor(read_numbers(node, step_count, "steps"))
        return count_hits(predicted, annotation.mask(seconds))
    scores = read_matrix(node)
    row_count, column_count = scores.shape
    if column_count != step_count:
        raise DatasetError(
            f"{node.location}: {column_count} columns for {step_count} steps; give one per step"
        )
    # The first of equally good seconds.
    fit = ordered_assignment(step_costs(scores)) if ordered else scores
    seconds = row_count if clip else max(seconds, row_count)
    return count_hits(fit.argmax(axis=0).astype(np.float64), annotation.mask(seconds))


# ---------------------------------------------------------------- the files


def _read_predictions(path: Path) -> dict[VideoKey, Node]:
    predictions: dict[VideoKey, Node] = {}
    for id, node in entries_by_id(path).items():
        # An object is a task, and its keys are videos.
        if isinstance(node.value, dict):
            for video, value in node.entries():
                predictions[id, video] = value
        else:
            task, _, video = id.partition("_")
            predictions[task, video] = node
    return predictions


def _read_reference(folder: Path) -> dict[VideoKey, _Annotation]:
    """Return (task id, video id) -> annotation, for the primary tasks without the validation
    videos.
    """
    tasks = read_tasks(find_release_file(folder, TASK_FILES[0]))
    step_counts = {task.id: len(task.steps) for task in tasks}
    validation = read_validation_pairs(folder)
    annotations = {}
    for path in sorted((folder / "annotations").glob("*.csv")):
        task, _, video = path.stem.partition("_")
        if task not in step_counts or (task, video) in validation:
            continue
        rows = list(read_annotation(path))
        segments = span_array([(start, end) for _, start, end in rows], "crosstask")
        # The release counts steps from 1.
        steps = [step - 1 for step, _, _ in rows]
        annotations[task, video] = _Annotation(segments, steps, step_counts[task])
    return annotations
