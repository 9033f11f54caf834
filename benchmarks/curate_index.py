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
from stepline.curate.status import run_status
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
from stepline.records import Record, Sentence, Span, Step, Transcript, Video
from stepline.remote import FileEntry, RemotePath
from stepline.storage import read_parquet, write_parquet

OUT = Path(__file__).resolve().parent / "results" / "curate_index.json"
WHOLE = 1_200_000
SENTENCES, STEPS, WORDS = 100, 10, 9
# bytes of a JSON cell, of the order of what a transcript of 100 sentences needs compressed
MEAN_CELL = 6_000


def item(number: int) -> VideoItem:
    """Return a video as a list in a bucket would name it."""
    id = f"{number * 2_654_435_761 % 2**32:08x}{number:07d}"
    url, stamp = f"s3://bucket/videos/{id}.mp4", f"{10**7 + number}-{id}"
    return VideoItem(id, video=url, stamp=stamp, title=f"How to {id}", task="task")


def record(number: int, words: list[str]) -> Record:
    """Return a video's record of SENTENCES and STEPS."""
    draw = random.Random(number)
    said = tuple(
        Sentence(
            text=" ".join(draw.choices(words, k=WORDS)),
            span=Span(4.0 * n, 4.0 * n + 3.5),
            shown=draw.random(),
        )
        for n in range(SENTENCES)
    )
    steps = tuple(
        Step(
            id=str(n + 1),
            text=" ".join(draw.choices(words, k=8)),
            spans=(Span(40.0 * n, 40.0 * n + 9.0),),
            at=40.0 * n,
            said=Span(40.0 * n, 40.0 * n + 3.5),
            status="shown",
            score=draw.random(),
            sources=(10 * n,),
        )
        for n in range(STEPS)
    )
    id = f"v{number:07d}"
    transcript = Transcript(language="en", sentences=said, recogniser="synthetic")
    return Record(
        id=id,
        video=Video(id=id, duration=400.0, title=id, task="task"),
        transcript=transcript,
        steps=steps,
    )


def cpu(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    gc.collect()
    began = time.process_time()
    call()
    return time.process_time() - began


def resident() -> float:
    """Return this process's resident MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def slope(measure: Callable[[int], float], sizes: tuple[int, int]) -> dict[str, float]:
    """Return CPU seconds at two sizes, microseconds of one more between them, and hours for WHOLE
    by that slope."""
    took = [min(measure(size) for _ in range(2)) for size in sizes]
    each = (took[1] - took[0]) / (sizes[1] - sizes[0])
    first = took[0] / sizes[0]
    return {
        "sizes": list(sizes),
        "cpu_s": [round(t, 3) for t in took],
        "us_each_by_slope": round(1e6 * each, 2),
        "us_each_at_first": round(1e6 * first, 2),
        "whole_cpu_min": round(each * WHOLE / 60, 2),
    }  # type: ignore[dict-item]


def planned() -> Plan:
    """Return the plan of the paper's recipe."""
    recipe = load_recipe("howtostep")
    recipe = recipe.model_copy(
        update={"stages": tuple(name for name in recipe.stages if name in STAGE_TABLE)}
    )
    return Plan.from_recipe(recipe, resolve_stages(recipe, STAGE_TABLE))


def planning() -> dict[str, object]:
    """Measure items in memory, their file and their keys, at the whole size where it is cheap."""
    plan = planned()
    before = resident()
    took: dict[str, object] = {}
    items: list[VideoItem] = []
    took["items made, whole, cpu_s"] = cpu(lambda: items.extend(map(item, range(WHOLE))))
    took["items sorted, whole, cpu_s"] = cpu(lambda: items.sort(key=lambda one: one.id))
    took["items in memory, whole, MiB"] = resident() - before
    keyed = slope(
        lambda size: cpu(lambda: [plan.tasks(one) and None for one in items[:size]]),
        (20_000, 100_000),
    )
    took[f"keys of a video's {len(plan.tasks(items[0]))} stages"] = keyed
    lines: list[str] = []
    took["items.jsonl written, whole, cpu_s"] = cpu(lambda: lines.extend(map(to_json_line, items)))
    took["items.jsonl, whole, MB"] = sum(len(line) + 1 for line in lines) / 1e6
    took["items.jsonl read, 100 k, cpu_s"] = cpu(
        lambda: [from_json_line(VideoItem, line) for line in lines[:100_000]]
    )
    return took


def listing() -> dict[str, object]:
    """Measure what a run knows of one stage's cells in an object store, at the whole size."""

    class Listed:
        """A folder of WHOLE keys."""

        def list(self) -> Iterable[FileEntry]:
            draw = random.Random(0)
            return (FileEntry(f"{draw.getrandbits(256):064x}.json", 0, "") for _ in range(WHOLE))

    before, held = resident(), []
    took = cpu(lambda: held.append(KeySet.in_folder(Listed())))  # type: ignore[arg-type]
    keys = [f"{random.Random(n).getrandbits(256):064x}" for n in range(20_000)]
    asked = cpu(lambda: [key in held[0] for key in keys])
    return {
        "one stage listed, whole, cpu_s": took,
        "one stage known, whole, MiB": resident() - before,
        "asked, us each": 1e6 * asked / len(keys),
        "requests of 1000 keys": WHOLE / 1000,
    }


def cells(folder: Path) -> dict[str, object]:
    """Measure cells as files against one packed file, written, asked for and read."""
    stage = STAGE_TABLE["transcribe"]
    body = os.urandom(MEAN_CELL)
    keys = [f"{random.Random(n).getrandbits(256):064x}" for n in range(20_000)]
    kept = ResultStore(RemotePath(str(folder)))

    def packed(size: int) -> float:
        with (folder / "packed").open("wb") as file:
            return cpu(lambda: [file.write(body) for _ in range(size)])

    wall = time.monotonic()
    written = slope(
        lambda size: cpu(lambda: [kept.write(stage, key, body) for key in keys[:size]]),
        (1000, 4000),
    )
    wall = time.monotonic() - wall
    for key in keys:  # the rest without the flush to disk, to have a folder of this size
        path = folder / result_path(stage, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    blocks = sum(path.stat().st_blocks * 512 for path in folder.rglob("*.json"))
    sizes = (4000, 20_000)
    return {
        "a cell written, flushed": written,
        "a cell written, wall ms": 1e3 * wall / 10_000,
        "a cell appended to one file": slope(packed, sizes),
        "a cell asked for": slope(
            lambda size: cpu(lambda: [kept.has(stage, key) for key in keys[:size]]), sizes
        ),
        "a cell read": slope(
            lambda size: cpu(lambda: [kept.read(stage, key) for key in keys[:size]]), sizes
        ),
        "disk of a cell over its bytes": blocks / len(keys) / MEAN_CELL,
    }


def parquet(folder: Path) -> dict[str, object]:
    """Measure records as Parquet, and the report's pass over them."""
    words = [f"word{n}" for n in range(4000)]
    records = [record(n, words) for n in range(4000)]
    path = folder / "records.parquet"

    def written(size: int) -> float:
        return cpu(lambda: write_parquet(records[:size], path))

    def read(size: int) -> float:
        write_parquet(records[:size], path)
        return cpu(lambda: list(read_parquet(path)))

    def counted(size: int) -> float:
        counts = DatasetCounts()
        return cpu(lambda: [counts.add(one) for one in records[:size]])

    sizes = (1000, 4000)
    told = {"a record written": slope(written, sizes), "a record read": slope(read, sizes)}
    told |= {"a record counted for the report": slope(counted, sizes)}
    write_parquet(records, path)
    size = path.stat().st_size / len(records)
    return {**told, "bytes of a record": size, "dataset of records, whole, GB": size * WHOLE / 1e9}


def status_time(folder: Path) -> dict[str, object]:
    """Measure what `status` asks of a run of WHOLE videos whose stages are all done but for a tenth
    that is left out.

    The whole run is made of what a driver leaves. These are items, manifests, folders of cells as
    old as the manifests say, and the totals of 400 logs. The cells themselves are not made, because
    no one looks at them. What a status without manifests takes beyond that is measured by its
    slope.
    """
    plan = planned()
    names = tuple(stage.name for stage in plan.stages.values() if stage.kind == "video")
    place, draw, told = RemotePath(str(folder)), np.random.default_rng(0), dict[str, object]()
    (place / "run.json").write(json.dumps({"recipe": plan.recipe.model_dump(mode="json")}))
    (place / REFUSED_FILE).write("")
    with (folder / ITEMS_FILE).open("w") as file:
        file.writelines(to_json_line(item(number)) + "\n" for number in range(WHOLE))
    content = inventory(place).content
    columns = {
        name: draw.integers(2**63, size=WHOLE, dtype=np.uint64) * np.uint64(2) for name in names
    }
    digest = np.array(plan.digest(content))
    manifests.write_manifest(
        place / f"manifests/tasks-{names[0]}.npz", {**columns, "digest": digest}
    )
    filtered, ago = np.arange(WHOLE) % 10 == 0, time.time() - 3600
    failures = [
        StageFailure(f"v{row}", "filter", "left out", f"{row % 9} words are said, fewer than 10")
        for row in np.flatnonzero(filtered).tolist()
    ]
    for stage in names:
        keys = np.sort(
            columns[stage][~filtered]
            if names.index(stage) >= names.index("filter")
            else columns[stage]
        )
        for number in range(256):
            (folder / f"cells/{stage}/{number:02x}").mkdir(parents=True)
            os.utime(folder / f"cells/{stage}/{number:02x}", (ago, ago))
        ends = np.searchsorted(keys, np.arange(1, 257, dtype=np.float64) * 2.0**56).astype(np.int64)
        prefixes = np.array([f"{number:02x}" for number in range(256)])
        marks = np.full(256, (folder / f"cells/{stage}/00").stat().st_mtime_ns)
        found = {"names": prefixes, "marks": marks, "ends": ends, "keys": keys}
        manifests.write_manifest(place / f"manifests/cells-{stage}.npz", found)
    (folder / "failures/filter").mkdir(parents=True)
    os.utime(folder / "failures/filter", (ago, ago))
    lost = zip(columns["filter"][filtered].tolist(), failures, strict=True)
    rows = [
        [f"{key:016x}{0:048x}.json", "1-2", one.id, one.kind, one.reason, 1] for key, one in lost
    ]
    mark = (folder / "failures/filter").stat().st_mtime_ns
    manifests.write_manifest(place / "manifests/failures-filter.json", {"mark": mark, "rows": rows})
    for stage in (stage for stage in plan.stages.values() if stage.kind == "dataset"):
        of = plan.dataset_digest(stage, failures, content)
        key = f"{len(plan.dataset_keys):064x}"
        manifests.write_manifest(place / f"manifests/{stage.name}.json", {"of": of, "key": key})
        (place / f"stages/{stage.name}/{key}.json").write("{}")
        plan = plan.with_dataset_key(stage, key)
    for number in range(400):
        took = LogTotals(
            first=1.0, last=9.0, tasks=dict.fromkeys(names, 3000), cpu=dict.fromkeys(names, 5000.0)
        )
        manifests.write_manifest(place / f"manifests/log-{number}.json", asdict(took))
    began, states = time.monotonic(), []
    told["status, whole, cpu_s"] = cpu(lambda: states.append(run_status(place, STAGE_TABLE)))
    told["status, whole, wall_s"] = time.monotonic() - began
    told["status, whole, peak MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told["counted"] = {
        one.name: [one.done, sum(one.failed.values()), one.never] for one in states[0].stages
    }
    started = cpu(lambda: plan.task_keys(place, names, "other", lambda: map(item, range(20_000))))
    told["keys made anew, us a video"] = 1e6 * started / 20_000
    return told | {"a cell listed anew": listing_slope(folder / "listed")}


def rerun(folder: Path) -> dict[str, object]:
    """Measure what a run asks of videos whose stages are all done, and what it holds of them."""
    plan = planned()
    names = tuple(stage.name for stage in plan.stages.values() if stage.kind == "video")
    items = [item(number) for number in range(4000)]
    for one in items:
        for unit in plan.tasks(one):
            path = folder / result_path(plan.stages[unit.stage], unit.key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    place = RemotePath(str(folder))

    def skipped(size: int) -> float:
        known = ResultStore(place)
        return cpu(lambda: [video_status(plan, known, one, names) for one in items[:size]])

    before = resident()
    fates = [video_status(plan, ResultStore(place), one, names) for one in items]
    held = (resident() - before) * 1024 / len(fates)
    told = {"a video found done": slope(skipped, (1000, 4000))}
    return {
        **told,
        "KiB of a video's keys in memory": held,
        "keys in memory, whole, GiB": held * WHOLE / 2**20,
    }


def listing_slope(folder: Path) -> dict[str, float]:
    """Measure a stage's cells on a disk, listed without a manifest."""

    def listed(size: int) -> float:
        for number in range(size):
            key = f"{random.Random(number).getrandbits(256):064x}"
            path = folder / f"{size}/cells/probe/{key[:2]}/{key}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return cpu(lambda: manifests.disk_keys(RemotePath(str(folder / str(size))), "probe"))

    return slope(listed, (20_000, 80_000))


def main(parts: list[str]) -> None:
    """Print and keep every cost, or those of the named parts."""
    told: dict[str, object] = json.loads(OUT.read_text()) if OUT.exists() else {}
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
            told[name] = measures[name]()
            print(name, json.dumps(told[name], indent=1), flush=True)
            OUT.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
