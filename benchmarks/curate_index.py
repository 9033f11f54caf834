"""Measures what knowing 1.2 M videos costs: planning, listing, cells, Parquet, status, disk. With
synthetic Records.

    python benchmarks/curate_index.py [planning listing cells parquet status rerun]

Each cost is measured at two sizes, so that its slope is known and not only its mean. What is cheap
is measured at the whole 1.2 M. CPU seconds at one thread. A record has 100 sentences of 9 words and
10 steps, no single words.
"""

import gc
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from stepline.curate.plan import Plan, video_status
from stepline.curate.report.counts import DatasetCounts
from stepline.curate.stage import StageFailure, VideoItem, load_recipe, resolve_stages
from stepline.curate.stages import STAGE_TABLE
from stepline.curate.status import RunStatus, run_status
from stepline.curate.store import manifests
from stepline.curate.store.manifests import KeySet
from stepline.curate.store.results import ResultStore, result_path
from stepline.curate.store.run_log import (
    ITEMS_FILE,
    REFUSED_FILE,
    LogTotals,
    from_json_line,
    inventory,
    to_json_line,
)
from stepline.files.remote import FileEntry, RemotePath
from stepline.files.storage import read_parquet, write_parquet
from stepline.records import Record, Sentence, Span, Step, Transcript, Video

RESULT_PATH = Path(__file__).resolve().parent / "results" / "curate_index.json"
WHOLE_VIDEOS = 1_200_000
SENTENCE_COUNT = 100
STEP_COUNT = 10
WORDS_PER_SENTENCE = 9
# bytes of a JSON cell, of the order of what a transcript of 100 sentences needs compressed
MEAN_CELL = 6_000
PREFIX_COUNT = 256  # folders of a stage's cells, by the first two digits of a key
LOG_COUNT = 400


def item(number: int) -> VideoItem:
    """Return a video as a list in a bucket would name it."""
    id = f"{number * 2_654_435_761 % 2**32:08x}{number:07d}"
    url = f"s3://bucket/videos/{id}.mp4"
    stamp = f"{10**7 + number}-{id}"
    return VideoItem(id, video=url, stamp=stamp, title=f"How to {id}", task="task")


def record(number: int, words: list[str]) -> Record:
    """Return a video's record of SENTENCE_COUNT sentences and STEP_COUNT steps."""
    draw = random.Random(number)
    sentences = []
    for n in range(SENTENCE_COUNT):
        text = " ".join(draw.choices(words, k=WORDS_PER_SENTENCE))
        span = Span(4.0 * n, 4.0 * n + 3.5)
        sentences.append(Sentence(text=text, span=span, shown=draw.random()))
    steps = []
    for n in range(STEP_COUNT):
        start = 40.0 * n
        step = Step(
            id=str(n + 1),
            text=" ".join(draw.choices(words, k=8)),
            spans=(Span(start, start + 9.0),),
            at=start,
            said=Span(start, start + 3.5),
            status="shown",
            score=draw.random(),
            sources=(10 * n,),
        )
        steps.append(step)
    id = f"v{number:07d}"
    video = Video(id=id, duration=400.0, title=id, task="task")
    transcript = Transcript(language="en", sentences=tuple(sentences), recogniser="synthetic")
    return Record(id=id, video=video, transcript=transcript, steps=tuple(steps))


def cpu(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    gc.collect()
    began = time.process_time()
    call()
    return time.process_time() - began


def resident() -> float:
    """Return this process's resident MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def slope(measure: Callable[[int], float], sizes: tuple[int, int]) -> dict[str, float]:
    """Return CPU seconds at two sizes, microseconds of one more between them, and minutes for
    WHOLE_VIDEOS by that slope."""
    cpu_seconds = []
    for size in sizes:
        cpu_seconds.append(min(measure(size) for _ in range(2)))
    small, large = sizes
    seconds_by_slope = (cpu_seconds[1] - cpu_seconds[0]) / (large - small)
    seconds_at_first = cpu_seconds[0] / small
    return {
        "sizes": list(sizes),
        "cpu_s": [round(seconds, 3) for seconds in cpu_seconds],
        "us_each_by_slope": round(1e6 * seconds_by_slope, 2),
        "us_each_at_first": round(1e6 * seconds_at_first, 2),
        "whole_cpu_min": round(seconds_by_slope * WHOLE_VIDEOS / 60, 2),
    }  # type: ignore[dict-item]


def planned() -> Plan:
    """Return the plan of the paper's recipe."""
    recipe = load_recipe("howtostep")
    stages = tuple(name for name in recipe.stages if name in STAGE_TABLE)
    recipe = recipe.model_copy(update={"stages": stages})
    return Plan.from_recipe(recipe, resolve_stages(recipe, STAGE_TABLE))


def planning() -> dict[str, object]:
    """Measure items in memory, their file and their keys, at the whole size where it is cheap."""
    plan = planned()
    before = resident()
    costs: dict[str, object] = {}
    items: list[VideoItem] = []
    numbers = range(WHOLE_VIDEOS)
    costs["items made, whole, cpu_s"] = cpu(lambda: items.extend(map(item, numbers)))
    costs["items sorted, whole, cpu_s"] = cpu(lambda: items.sort(key=lambda video: video.id))
    costs["items in memory, whole, MiB"] = resident() - before

    def make_keys(size: int) -> float:
        return cpu(lambda: [plan.tasks(video) and None for video in items[:size]])

    stage_count = len(plan.tasks(items[0]))
    costs[f"keys of a video's {stage_count} stages"] = slope(make_keys, (20_000, 100_000))
    lines: list[str] = []
    costs["items.jsonl written, whole, cpu_s"] = cpu(lambda: lines.extend(map(to_json_line, items)))
    costs["items.jsonl, whole, MB"] = sum(len(line) + 1 for line in lines) / 1e6
    costs["items.jsonl read, 100 k, cpu_s"] = cpu(
        lambda: [from_json_line(VideoItem, line) for line in lines[:100_000]]
    )
    return costs


def listing() -> dict[str, object]:
    """Measure what a run knows of one stage's cells in an object store, at the whole size."""

    class KeyFolder:
        """A folder of WHOLE_VIDEOS keys."""

        def list(self) -> Iterable[FileEntry]:
            draw = random.Random(0)
            names = (f"{draw.getrandbits(256):064x}.json" for _ in range(WHOLE_VIDEOS))
            return (FileEntry(name, 0, "") for name in names)

    before = resident()
    key_sets: list[KeySet] = []
    list_seconds = cpu(
        lambda: key_sets.append(KeySet.in_folder(KeyFolder()))  # type: ignore[arg-type]
    )
    keys = [random_key(number) for number in range(20_000)]
    ask_seconds = cpu(lambda: [key in key_sets[0] for key in keys])
    return {
        "one stage listed, whole, cpu_s": list_seconds,
        "one stage known, whole, MiB": resident() - before,
        "asked, us each": 1e6 * ask_seconds / len(keys),
        "requests of 1000 keys": WHOLE_VIDEOS / 1000,
    }


def random_key(number: int) -> str:
    """Return the key of a number, 64 digits."""
    return f"{random.Random(number).getrandbits(256):064x}"


def cells(folder: Path) -> dict[str, object]:
    """Measure cells as files against one packed file, written, asked for and read."""
    stage = STAGE_TABLE["transcribe"]
    body = os.urandom(MEAN_CELL)
    keys = [random_key(number) for number in range(20_000)]
    results = ResultStore(RemotePath(str(folder)))

    def append(size: int) -> float:
        with (folder / "packed").open("wb") as file:
            return cpu(lambda: [file.write(body) for _ in range(size)])

    def write(size: int) -> float:
        return cpu(lambda: [results.write(stage, key, body) for key in keys[:size]])

    def ask(size: int) -> float:
        return cpu(lambda: [results.has(stage, key) for key in keys[:size]])

    def read(size: int) -> float:
        return cpu(lambda: [results.read(stage, key) for key in keys[:size]])

    write_start = time.monotonic()
    write_costs = slope(write, (1000, 4000))
    write_seconds = time.monotonic() - write_start
    # The rest without the flush to disk, to have a folder of this size
    for key in keys:
        path = folder / result_path(stage, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    blocks = sum(path.stat().st_blocks * 512 for path in folder.rglob("*.json"))
    sizes = (4000, 20_000)
    return {
        "a cell written, flushed": write_costs,
        "a cell written, wall ms": 1e3 * write_seconds / 10_000,
        "a cell appended to one file": slope(append, sizes),
        "a cell asked for": slope(ask, sizes),
        "a cell read": slope(read, sizes),
        "disk of a cell over its bytes": blocks / len(keys) / MEAN_CELL,
    }


def parquet(folder: Path) -> dict[str, object]:
    """Measure records as Parquet, and the report's pass over them."""
    words = [f"word{n}" for n in range(4000)]
    records = [record(n, words) for n in range(4000)]
    path = folder / "records.parquet"

    def write(size: int) -> float:
        return cpu(lambda: write_parquet(records[:size], path))

    def read(size: int) -> float:
        write_parquet(records[:size], path)
        return cpu(lambda: list(read_parquet(path)))

    def count(size: int) -> float:
        counts = DatasetCounts()
        return cpu(lambda: [counts.add(record) for record in records[:size]])

    sizes = (1000, 4000)
    costs: dict[str, object] = {
        "a record written": slope(write, sizes),
        "a record read": slope(read, sizes),
        "a record counted for the report": slope(count, sizes),
    }
    write_parquet(records, path)
    record_bytes = path.stat().st_size / len(records)
    costs["bytes of a record"] = record_bytes
    costs["dataset of records, whole, GB"] = record_bytes * WHOLE_VIDEOS / 1e9
    return costs


class FinishedRun:
    """What a driver leaves of a run of WHOLE_VIDEOS whose stages are all done but for a tenth that
    is left out.

    These are items, manifests, folders of cells as old as the manifests say, and the totals of 400
    logs. The cells themselves are not made, because no one looks at them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = RemotePath(str(folder))
        self.plan = planned()
        self.names = video_stages(self.plan)
        self.hour_ago = time.time() - 3600
        self.is_left_out = np.arange(WHOLE_VIDEOS) % 10 == 0
        self.columns: dict[str, np.ndarray] = {}  # stage -> (WHOLE_VIDEOS,) beginnings of keys
        self.failures: list[StageFailure] = []

    def write(self) -> None:
        """Write everything."""
        recipe = self.plan.recipe.model_dump(mode="json")
        (self.place / "run.json").write(json.dumps({"recipe": recipe}))
        (self.place / REFUSED_FILE).write("")
        with (self.folder / ITEMS_FILE).open("w") as file:
            file.writelines(to_json_line(item(number)) + "\n" for number in range(WHOLE_VIDEOS))
        content = inventory(self.place).content
        self._write_keys(content)
        for number in np.flatnonzero(self.is_left_out).tolist():
            reason = f"{number % 9} words are said, fewer than 10"
            self.failures.append(StageFailure(f"v{number}", "filter", "left out", reason))
        for stage in self.names:
            self._write_cells(stage)
        self._write_failures()
        self._write_datasets(content)
        self._write_logs()

    def _write_keys(self, content: str) -> None:
        draw = np.random.default_rng(0)
        for name in self.names:
            halves = draw.integers(2**63, size=WHOLE_VIDEOS, dtype=np.uint64)
            self.columns[name] = halves * np.uint64(2)
        digest = np.array(self.plan.digest(content))
        path = self.place / f"manifests/tasks-{self.names[0]}.npz"
        manifests.write_manifest(path, {**self.columns, "digest": digest})

    def _write_cells(self, stage: str) -> None:
        keys = self.columns[stage]
        if self.names.index(stage) >= self.names.index("filter"):
            keys = keys[~self.is_left_out]
        keys = np.sort(keys)
        prefixes = [f"{number:02x}" for number in range(PREFIX_COUNT)]
        for prefix in prefixes:
            self._make_old_folder(f"cells/{stage}/{prefix}")
        bounds = np.arange(1, PREFIX_COUNT + 1, dtype=np.float64) * 2.0**56
        mark = (self.folder / f"cells/{stage}/00").stat().st_mtime_ns
        manifest = {
            "names": np.array(prefixes),
            "marks": np.full(PREFIX_COUNT, mark),
            "ends": np.searchsorted(keys, bounds).astype(np.int64),
            "keys": keys,
        }
        manifests.write_manifest(self.place / f"manifests/cells-{stage}.npz", manifest)

    def _write_failures(self) -> None:
        self._make_old_folder("failures/filter")
        keys = self.columns["filter"][self.is_left_out].tolist()
        rows = []
        for key, failure in zip(keys, self.failures, strict=True):
            name = f"{key:016x}{0:048x}.json"
            rows.append([name, "1-2", failure.id, failure.kind, failure.reason, 1])
        mark = (self.folder / "failures/filter").stat().st_mtime_ns
        path = self.place / "manifests/failures-filter.json"
        manifests.write_manifest(path, {"mark": mark, "rows": rows})

    def _write_datasets(self, content: str) -> None:
        stages = [stage for stage in self.plan.stages.values() if stage.kind == "dataset"]
        for stage in stages:
            digest = self.plan.dataset_digest(stage, self.failures, content)
            key = f"{len(self.plan.dataset_keys):064x}"
            path = self.place / f"manifests/{stage.name}.json"
            manifests.write_manifest(path, {"of": digest, "key": key})
            (self.place / f"stages/{stage.name}/{key}.json").write("{}")
            self.plan = self.plan.with_dataset_key(stage, key)

    def _write_logs(self) -> None:
        tasks = dict.fromkeys(self.names, 3000)
        cpu_seconds = dict.fromkeys(self.names, 5000.0)
        totals = asdict(LogTotals(first=1.0, last=9.0, tasks=tasks, cpu=cpu_seconds))
        for number in range(LOG_COUNT):
            manifests.write_manifest(self.place / f"manifests/log-{number}.json", totals)

    def _make_old_folder(self, name: str) -> None:
        path = self.folder / name
        path.mkdir(parents=True)
        os.utime(path, (self.hour_ago, self.hour_ago))


def video_stages(plan: Plan) -> tuple[str, ...]:
    """Return the names of a plan's stages that take one video."""
    return tuple(stage.name for stage in plan.stages.values() if stage.kind == "video")


def status_time(folder: Path) -> dict[str, object]:
    """Measure what `status` asks of a run of WHOLE_VIDEOS, and what a status without manifests
    takes beyond that, by its slope."""
    run = FinishedRun(folder)
    run.write()
    costs: dict[str, object] = {}
    states: list[RunStatus] = []
    start = time.monotonic()
    cpu_seconds = cpu(lambda: states.append(run_status(run.place, STAGE_TABLE)))
    costs["status, whole, cpu_s"] = cpu_seconds
    costs["status, whole, wall_s"] = time.monotonic() - start
    costs["status, whole, peak MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    counts = {}
    for stage in states[0].stages:
        counts[stage.name] = [stage.done, sum(stage.failed.values()), stage.never]
    costs["counted"] = counts
    numbers = range(20_000)
    key_seconds = cpu(
        lambda: run.plan.task_keys(run.place, run.names, "other", lambda: map(item, numbers))
    )
    costs["keys made anew, us a video"] = 1e6 * key_seconds / len(numbers)
    costs["a cell listed anew"] = listing_slope(folder / "listed")
    return costs


def rerun(folder: Path) -> dict[str, object]:
    """Measure what a run asks of videos whose stages are all done, and what it holds of them."""
    plan = planned()
    names = video_stages(plan)
    items = [item(number) for number in range(4000)]
    for video in items:
        for task in plan.tasks(video):
            path = folder / result_path(plan.stages[task.stage], task.key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    place = RemotePath(str(folder))

    def skip(size: int) -> float:
        results = ResultStore(place)
        return cpu(lambda: [video_status(plan, results, video, names) for video in items[:size]])

    before = resident()
    fates = [video_status(plan, ResultStore(place), video, names) for video in items]
    video_kib = (resident() - before) * 1024 / len(fates)
    return {
        "a video found done": slope(skip, (1000, 4000)),
        "KiB of a video's keys in memory": video_kib,
        "keys in memory, whole, GiB": video_kib * WHOLE_VIDEOS / 2**20,
    }


def listing_slope(folder: Path) -> dict[str, float]:
    """Measure a stage's cells on a disk, listed without a manifest."""

    def list_again(size: int) -> float:
        for number in range(size):
            key = random_key(number)
            path = folder / f"{size}/cells/probe/{key[:2]}/{key}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        place = RemotePath(str(folder / str(size)))
        return cpu(lambda: manifests.disk_keys(place, "probe"))

    return slope(list_again, (20_000, 80_000))


def main(parts: list[str]) -> None:
    """Print and keep every cost, or those of the named parts."""
    costs: dict[str, object] = {}
    if RESULT_PATH.exists():
        costs = json.loads(RESULT_PATH.read_text())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        measures: dict[str, Callable[[], object]] = {
            "planning": planning,
            "listing": listing,
            "cells": lambda: cells(folder / "cells"),
            "parquet": lambda: parquet(folder),
            "status": lambda: status_time(folder / "status"),
            "rerun": lambda: rerun(folder / "rerun"),
        }
        for name in parts or measures:
            folder.joinpath(name).mkdir(exist_ok=True)
            costs[name] = measures[name]()
            print(name, json.dumps(costs[name], indent=1), flush=True)
            RESULT_PATH.write_text(json.dumps(costs, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
