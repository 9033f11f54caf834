"""CrossTask as a benchmark: average recall at 1 over tasks.

The reference is the release's folder. Predictions are JSON, {"task_video": value} or {task: {video: value}}; a value
is one second a step, null where it is not placed; or a matrix of scores, one row a second and one column a step; or
{"spans": [[start, end] or null a step]}, whose middles are the seconds and which give recall at overlap as well.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from stepline.datasets.crosstask import TASKS, VALIDATION, read_tasks
from stepline.datasets.node import Node
from stepline.datasets.source import find, plain_rows
from stepline.errors import DatasetError
from stepline.evaluate import crosstask
from stepline.evaluate.protocols.case import (
    SKIP,
    ZERO,
    Case,
    by_id,
    is_matrix,
    length,
    matrix,
    middles,
    numbers,
    placed,
)
from stepline.evaluate.report import Scores
from stepline.evaluate.spans import Fit, grounding_fit, overlap_statistics
from stepline.evaluate.statistics import Floats, GroupedRatio, Integers, Statistic

Key: TypeAlias = tuple[str, str]  # task, video


@dataclass(frozen=True)
class _Truth:
    segments: tuple[tuple[float, float], ...]
    steps: tuple[int, ...]
    count: int


def score(case: Case, *, ordered: bool = False, sets: bool = True, skip: bool = False) -> Scores:
    """Return average recall at 1, over the 20 random test sets or over all videos.

    ordered: all steps of a task in order, by dynamic programming. skip: videos without predictions are left out.
    """
    truths, given = _reference(case.reference), _given(case.predictions)
    keys = [key for key in truths if not skip or key in given]
    hits, shown = np.zeros(len(keys)), np.zeros(len(keys))
    for index, key in enumerate(keys):
        hits[index], shown[index] = _judge(given.get(key), truths[key], ordered, cut=skip)
    tasks = sorted({task for task, _ in keys})
    group = np.array([tasks.index(task) for task, _ in keys], dtype=np.int64)
    held = _sets(list(truths), keys) if sets else np.ones((1, len(keys)), dtype=bool)
    statistics: dict[str, Statistic] = {}
    if keys:
        name = "average R@1, in order" if ordered else "average R@1"
        statistics[name] = GroupedRatio(hits, shown, group, held)
    if given and all(isinstance(node.value, dict) for node in given.values()):
        statistics |= overlap_statistics([_fit(given.get(key), truths[key]) for key in keys], shown)
    return case.scores(
        map(_name, keys), int(shown.sum()), statistics, {"hits": hits, "steps": shown, "task": _numbers(keys)},
        asked=map(_name, truths), given=map(_name, given), handling=SKIP if skip else ZERO, notes=_notes(keys, held),
    )  # fmt: skip


def _notes(keys: list[Key], held: np.typing.NDArray[np.bool_]) -> list[str]:
    size = sorted({int(count) for count in held.sum(axis=1)})
    sets = f"{len(held)} test sets of {size[0] if len(size) == 1 else size} videos" if len(held) > 1 else "all videos"
    return [f"{sets}, {len({task for task, _ in keys})} tasks"]


def _numbers(keys: list[Key]) -> Floats:
    return np.array([float(task) if task.isdecimal() else float("nan") for task, _ in keys])


def _name(key: Key) -> str:
    return f"{key[0]}_{key[1]}"


def _sets(all_keys: list[Key], keys: list[Key]) -> np.typing.NDArray[np.bool_]:
    """Return (S, V): which of `keys` each test set holds; the sets are drawn from all annotated videos."""
    tasks: dict[str, list[str]] = defaultdict(list)
    for task, video in all_keys:
        tasks[task].append(video)
    sets = crosstask.random_sets(tasks)
    if all_keys and not any(sets):
        few = f"no task has more than the {crosstask.TRAIN_VIDEOS} videos that a test set leaves out"
        raise DatasetError(f"{few}; score all videos with --convention each-all")
    return np.array([[key in chosen for key in keys] for chosen in sets], dtype=bool).reshape(len(sets), len(keys))


def _judge(node: Node | None, truth: _Truth, ordered: bool, *, cut: bool) -> tuple[float, float]:
    """Return the hits and the shown steps of one video.

    cut: steps shown only after the last row of the scores are left out, as officially; otherwise they are missed.
    """
    last = int(np.ceil(max([0.0, *(end for _, end in truth.segments)])))
    if node is None:
        return crosstask.counts(np.full(truth.count, np.nan), _shown(truth, last))
    if is_matrix(node):
        scores = matrix(node)
        if scores.shape[1] != truth.count:
            raise DatasetError(f"{node.place}: {scores.shape[1]} columns for {truth.count} steps; give one a step")
        place: Callable[[Floats], Integers] = crosstask.ordered_rows if ordered else crosstask.best_rows
        rows = place(crosstask.step_costs(scores) if ordered else -scores).astype(np.float64)
        return crosstask.counts(rows, _shown(truth, len(scores) if cut else max(last, len(scores))))
    if ordered:
        raise DatasetError(f"{node.place}: seconds cannot be put in order; give scores, one row a second")
    seconds = middles(_spans(node, truth)) if isinstance(node.value, dict) else numbers(node)
    length(node, seconds, truth.count, "steps")
    return crosstask.counts(np.floor(seconds), _shown(truth, last))


def _shown(truth: _Truth, seconds: int) -> np.typing.NDArray[np.bool_]:
    return crosstask.rows_shown(truth.segments, truth.steps, seconds, truth.count)


def _spans(node: Node, truth: _Truth) -> list[tuple[float, float] | None]:
    spans = placed(node["spans"])
    length(node, spans, truth.count, "steps")
    return spans


def _fit(node: Node | None, truth: _Truth) -> Fit:
    """Return how the spans of the steps that are shown fit; all are missing where the video is."""
    spans = [None] * truth.count if node is None else _spans(node, truth)
    segments, numbered = np.array(truth.segments).reshape(-1, 2), np.array(truth.steps, dtype=np.int64)
    shown = sorted(set(truth.steps))
    return grounding_fit([spans[step] for step in shown], [segments[numbered == step] for step in shown])


def _given(path: Path) -> dict[Key, Node]:
    found: dict[Key, Node] = {}
    for id, node in by_id(path).items():
        if isinstance(node.value, dict) and "spans" not in node.value:
            found |= {(id, video): value for video, value in node.entries()}
        else:
            task, _, video = id.partition("_")
            found[task, video] = node
    return found


def _reference(folder: Path) -> dict[Key, _Truth]:
    """Return the annotated videos of the primary tasks, without those that the benchmark keeps for validation."""
    if not folder.is_dir():
        raise DatasetError(f"{folder}: is not the folder of the CrossTask release; unpack crosstask_release.zip")
    file = find(folder, TASKS[0])
    if file is None:
        raise DatasetError(f"{folder}: holds no {TASKS[0]}; give the folder of the CrossTask release")
    steps = {task.id: len(task.steps) for task in read_tasks(file)}
    held = find(folder, VALIDATION)
    kept_back = {(row[0], row[1]) for _, row in plain_rows(held, 3)} if held else set()
    truths = {}
    for path in sorted((folder / "annotations").glob("*.csv")):
        task, _, video = path.stem.partition("_")
        if task in steps and (task, video) not in kept_back:
            truths[task, video] = _annotation(path, steps)
    return truths


def _annotation(path: Path, steps: Mapping[str, int]) -> _Truth:
    segments, numbered = [], []
    for line, (step, start, end) in plain_rows(path, 3):
        try:
            numbered.append(int(step) - 1)
            segments.append((float(start), float(end)))
        except ValueError as error:
            raise DatasetError(f"{path}: line {line} is not step,start,end; download it again") from error
    return _Truth(tuple(segments), tuple(numbered), steps[path.stem.partition("_")[0]])
