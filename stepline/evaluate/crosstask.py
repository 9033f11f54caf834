"""CrossTask: recall at 1 averaged over tasks, with every step placed by itself or all of a task's steps in order.

T seconds, K steps of the task, V videos. A cost is low where a step fits. Source: CrossTask (Zhukov et al., CVPR
2019), section 6 and its released evaluator. NaSVA (section 4.1) takes the mean over 20 random test sets.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.spans import Pairs, as_spans
from stepline.evaluate.statistics import Floats, Integers

SETS = 20  # random test sets, NaSVA section 4.1
TRAIN_VIDEOS = 30  # videos a task that a test set leaves to training, CrossTask section 6


def rows_shown(segments: Pairs, steps: Sequence[int], seconds: int, count: int) -> npt.NDArray[np.bool_]:
    """Return (T, K): which step is shown in which second, rows floor(start):ceil(end) without the last.

    steps: of each segment, 0..K-1. What lies outside the T seconds is cut off, as officially.
    Raises DatasetError for an unknown step.
    """
    shown = np.zeros((seconds, count), dtype=bool)
    for (start, end), step in zip(as_spans(segments, "crosstask"), steps, strict=True):
        if not 0 <= step < count:
            raise DatasetError(f"step {step + 1} of a task with {count} steps; correct the annotation")
        shown[max(0, int(np.floor(start))) : max(0, int(np.ceil(end))), step] = True
    return shown


def best_rows(cost: Floats) -> Integers:
    """Return (K,) the cheapest second of each step by itself; of equal ones the first."""
    return np.asarray(_checked(cost).argmin(axis=0), dtype=np.int64)


def ordered_rows(cost: Floats) -> Integers:
    """Return (K,) the seconds of all steps in order, one each, whose sum of costs is least; background costs 0."""
    return np.asarray(ordered_assignment(cost).argmax(axis=0), dtype=np.int64)


def ordered_assignment(cost: Floats, *, exactly_one: bool = True) -> npt.NDArray[np.bool_]:
    """Return (T, K): the cheapest way through all steps in order with background, at cost 0, before, between and after.

    exactly_one: a step lasts one second; otherwise one or more. Of equally cheap ways the official program's.
    Raises DatasetError when there are fewer seconds than steps.
    """
    seconds, count = _checked(cost).shape
    if seconds < count:
        raise DatasetError(f"{count} steps in {seconds} seconds cannot stand in order; give one second a step or more")
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

    Even states are background, 2k+1 is step k. A background follows itself or the step before it; a step follows (when
    it may last) itself, the background before it or the step before that. The first named wins where they cost the
    same; the way ends in background only where that is strictly cheaper.
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
        raise DatasetError(f"costs of shape {cost.shape}; give (seconds, steps), at least one of each")
    if not np.isfinite(cost).all():
        raise DatasetError("a cost is NaN or infinite; give a number for every second and step")
    return cost


def step_costs(scores: Floats) -> Floats:
    """Return costs of scores (T, K): minus their log-softmax over steps, as CrossTask's model is decoded."""
    top = scores.max(axis=1, keepdims=True)
    return np.asarray(top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True)) - scores)


def counts(rows: Floats, shown: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Return (hits, steps) of one video: shown steps whose second is right, and shown steps.

    rows: (K,) a second each, NaN where a step is not placed. A step counts once however often it is shown.
    """
    if len(rows) != shown.shape[1]:
        raise DatasetError(f"{len(rows)} predicted seconds for {shown.shape[1]} steps; give one, or null, a step")
    inside = np.isfinite(rows) & (rows >= 0) & (rows < len(shown))
    places = np.where(inside, rows, 0).astype(np.int64)
    right = shown[places, np.arange(len(rows))] & inside if len(shown) else inside
    return float(right.sum()), float(shown.any(axis=0).sum())


def random_sets(
    tasks: Mapping[str, Sequence[str]], *, count: int = SETS, train: int = TRAIN_VIDEOS, seed: int = 0
) -> list[frozenset[tuple[str, str]]]:
    """Return test sets of (task, video): each leaves `train` random videos of every task out.

    A task with no more videos than that is in no test set, as officially. The original seeds were not published; set i
    is drawn with seed + i.
    """
    sets = []
    for index in range(count):
        generator = np.random.default_rng(seed + index)
        chosen: set[tuple[str, str]] = set()
        for task in sorted(tasks):
            videos = sorted(tasks[task])
            if len(videos) > train:
                left_out = set(generator.choice(len(videos), size=train, replace=False).tolist())
                chosen |= {(task, video) for place, video in enumerate(videos) if place not in left_out}
        sets.append(frozenset(chosen))
    return sets
