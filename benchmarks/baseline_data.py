"""Reads the shared annotations of YouCook2, COIN, HiREST and CrossTask as steps with their spans,
in order."""

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shown:
    """One video: duration (s), and for each step, by first appearance, its name and its instances
    (M, 2).

    bounds: the part of the video that the task is about, all of it where the dataset names none.
    """

    id: str
    duration: float
    names: tuple[str, ...]
    instances: tuple[Array, ...]
    bounds: tuple[float, float]


def load(*parts: str) -> Any:
    return json.loads(gzip.decompress(DATA.joinpath(*parts).read_bytes()))


def shown(
    id: str,
    duration: float,
    rows: list[tuple[str, list[float]]],
    bounds: tuple[float, float] | None,
) -> Shown:
    """Return a video. Rows of one name are instances of one step."""
    steps: dict[str, list[list[float]]] = defaultdict(list)
    for name, segment in sorted(rows, key=lambda row: row[1][0]):
        steps[name].append(segment)
    spans = tuple(np.array(instances, dtype=np.float64) for instances in steps.values())
    return Shown(id, duration, tuple(steps), spans, bounds or (0.0, duration))


def youcook2(split: str) -> list[Shown]:
    videos = load("youcook2", f"{split}.json.gz")
    return [
        shown(
            id,
            v["duration"],
            [(str(n), segment) for n, segment in enumerate(v["timestamps"])],
            None,
        )
        for id, v in videos.items()
    ]


def coin(split: str) -> list[Shown]:
    videos = load("coin", "coin.json.gz")
    return [
        shown(id, v["duration"], [(row["step_id"], row["segment"]) for row in v["steps"]], None)
        for id, v in videos.items()
        if v["subset"] == split
    ]


def hirest(split: str) -> list[Shown]:
    items = load("hirest", "hirest.json.gz")
    return [
        shown(
            f"{v['video_id']}|{v['query']}",
            v["duration"],
            [(str(n), row["segment"]) for n, row in enumerate(v["steps"])],
            tuple(v["clip_bounds"]),
        )
        for v in items
        if v["steps"] and v["split"] == split
    ]


@dataclass(frozen=True)
class TaskVideo:
    """One CrossTask video: its task, seconds, the segments and the step (0..count-1) of each."""

    id: str
    task: str
    duration: float
    segments: Array
    steps: tuple[int, ...]
    count: int


def crosstask() -> list[TaskVideo]:
    counts = {
        id: len(task["step2headline"]) for id, task in load("crosstask", "tasks.json.gz").items()
    }
    videos = load("crosstask", "videos.json.gz")
    return [
        TaskVideo(
            v["video_id"],
            v["task_id"],
            v["duration"],
            np.array([row["segment"] for row in v["steps"]]),
            tuple(row["step_id"] - 1 for row in v["steps"]),
            counts[v["task_id"]],
        )
        for v in videos.values()
    ]
