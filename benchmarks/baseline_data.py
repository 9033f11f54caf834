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

DATA_FOLDER = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"

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
    """Return what a packed JSON file of the shared data holds."""
    packed = DATA_FOLDER.joinpath(*parts).read_bytes()
    return json.loads(gzip.decompress(packed))


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
    videos = []
    for id, video in load("youcook2", f"{split}.json.gz").items():
        rows = [(str(n), segment) for n, segment in enumerate(video["timestamps"])]
        videos.append(shown(id, video["duration"], rows, None))
    return videos


def coin(split: str) -> list[Shown]:
    videos = []
    for id, video in load("coin", "coin.json.gz").items():
        if video["subset"] == split:
            rows = [(row["step_id"], row["segment"]) for row in video["steps"]]
            videos.append(shown(id, video["duration"], rows, None))
    return videos


def hirest(split: str) -> list[Shown]:
    videos = []
    for video in load("hirest", "hirest.json.gz"):
        if video["steps"] and video["split"] == split:
            id = f"{video['video_id']}|{video['query']}"
            rows = [(str(n), row["segment"]) for n, row in enumerate(video["steps"])]
            bounds = tuple(video["clip_bounds"])
            videos.append(shown(id, video["duration"], rows, bounds))
    return videos


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
    step_counts = {}
    for id, task in load("crosstask", "tasks.json.gz").items():
        step_counts[id] = len(task["step2headline"])
    videos = []
    for row in load("crosstask", "videos.json.gz").values():
        video = TaskVideo(
            id=row["video_id"],
            task=row["task_id"],
            duration=row["duration"],
            segments=np.array([step["segment"] for step in row["steps"]]),
            steps=tuple(step["step_id"] - 1 for step in row["steps"]),
            count=step_counts[row["task_id"]],
        )
        videos.append(video)
    return videos
