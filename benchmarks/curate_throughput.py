"""Measures `stepline curate`: video-hours an hour by stage and in all, how well work overlaps, and
how it scales.

    python benchmarks/curate_throughput.py SOURCE [--recipe FILE] [--limit N] [--runs local:1 local:2 ray:1 ray:2]
        [--rounds N]

Each run starts from nothing in a folder of its own. Numbers come from the run's journals
(OUT/timings), but the CPU seconds of all its processes, which are looked at each second while it
runs: those beyond the journals' are the engine's own. The overlap figure is wall / max(CPU seconds
/ processes, slowest serial stage): 1 is perfect, and only a quiet machine shows it. With several
rounds the runs alternate, every second round backwards. A row is the median of its runs. The ratio
of video-hours per hour, Ray's to local's of as many workers, is printed of each round and of the
medians. The datasets of all runs must be the same, byte for byte. The table is printed and written
to benchmarks/results/curate_throughput.json.
"""

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from stepline.curate.execution.pool import descendants
from stepline.curate.store.run_log import read_timings
from stepline.remote import RemotePath

RUNS = ("local:1", "local:2", "ray:1", "ray:2")
RESULTS = Path(__file__).parent / "results" / "curate_throughput.json"
HOUR = 3600.0


def run(source: str, recipe: str, limit: int | None, engine: str, workers: int, out: Path) -> float:
    """Curate a source from nothing, with the settings of one row. Return the CPU seconds of all its
    processes."""
    limits = ["--limit", str(limit)] if limit else []
    command = [
        sys.executable,
        "-m",
        "stepline",
        "curate",
        source,
        "--recipe",
        recipe,
        "--out",
        str(out),
        *limits,
    ]
    used: dict[int, float] = {}
    with subprocess.Popen([*command, "--engine", engine, "--workers", str(workers)]) as process:
        while process.poll() is None:
            for pid in (process.pid, *descendants(process.pid)):
                with contextlib.suppress(psutil.Error):
                    times = psutil.Process(pid).cpu_times()
                    used[pid] = times.user + times.system
            time.sleep(1.0)
    if process.returncode:
        sys.exit(process.returncode)
    return sum(used.values())


def hours_of(out: Path) -> dict[str, float]:
    """Return the hours of each video that could be probed, by id."""
    lines = [
        line
        for line in read_timings(RemotePath(str(out)))
        if line["event"] == "end" and line["stage"] == "probe"
    ]
    cells = {
        str(line["id"]): out / "cells/probe" / str(line["key"])[:2] / f"{line['key']}.json"
        for line in lines
    }
    return {
        name: json.loads(cell.read_bytes())["duration"] / HOUR
        for name, cell in cells.items()
        if cell.exists()
    }


def measured(out: Path, workers: int) -> dict[str, Any]:
    """Return what the journals of one run tell."""
    lines = [dict(line) for line in read_timings(RemotePath(str(out)))]
    hours = hours_of(out)
    ends = [line for line in lines if line["event"] == "end"]
    whole = [line for line in lines if line["event"] == "dataset"]
    begun = min(line["at"] for line in lines if line["event"] in ("start", "worker"))
    mapped = max(line["at"] for line in ends) - begun
    starts = sum(line["cpu"] for line in lines if line["event"] == "worker")
    used = starts + sum(line["cpu"] for line in ends)
    serial = {line["stage"]: line["wall"] for line in whole}
    run_line = next(line for line in lines if line["event"] == "run")
    total = max(line["at"] for line in lines) - run_line["at"] + run_line["seconds"]
    everything = used + sum(line["cpu"] for line in whole)
    return {
        "videos": len({line["id"] for line in ends}),
        "video_hours": sum(hours.values()),
        "map_wall_s": mapped,
        "map_cpu_s": used,
        "worker_start_cpu_s": starts,
        "model_load_cpu_s": loads(ends),
        "busy": sum(line["wall"] for line in ends) / (mapped * workers),
        "map_overlap": mapped / (used / workers),
        "map_video_hours_an_hour": sum(hours.values()) / (mapped / HOUR),
        "total_wall_s": total,
        "total_overlap": total / max(everything / workers, max(serial.values(), default=0.0)),
        "total_video_hours_an_hour": sum(hours.values()) / (total / HOUR),
        "stages": {
            **stages(ends, hours),
            **{name: {"wall_s": wall} for name, wall in serial.items()},
        },
    }


def loads(ends: Sequence[Mapping[str, Any]]) -> float:
    """Return about how many CPU seconds went into loading models: what first units took beyond a
    usual one."""
    by_stage = defaultdict(list)
    for line in ends:
        by_stage[line["stage"]].append((line["first"], line["cpu"]))
    extra = 0.0
    for pairs in by_stage.values():
        usual = sorted(cpu for first, cpu in pairs if not first)
        if usual:
            extra += sum(max(0.0, cpu - usual[len(usual) // 2]) for first, cpu in pairs if first)
    return extra


def stages(
    ends: Sequence[Mapping[str, Any]], hours: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Return units, CPU seconds, peak memory and video-hours a CPU hour of each stage. First units
    count in no pace."""
    found: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(line["stage"] for line in ends):
        own = [line for line in ends if line["stage"] == name]
        warm = [line for line in own if not line["first"] and line["ok"]]
        took, seen = (
            sum(line["cpu"] for line in warm),
            sum(hours.get(line["id"], 0.0) for line in warm),
        )
        found[name] = {
            "units": len(own),
            "failed": sum(not line["ok"] for line in own),
            "cpu_s": sum(line["cpu"] for line in own),
            "peak_mib": max(line["peak_rss"] for line in own) / 2**20,
            "video_hours_a_cpu_hour": seen / (took / HOUR) if took else float("nan"),
        }
    return found


def same_bytes(outs: Sequence[Path]) -> bool:
    """Say whether runs have the same cells and datasets, byte for byte. Notes of a training hold
    paths and seconds."""
    trees = []
    for out in outs:
        files = (
            path
            for part in ("cells", "dataset")
            for path in (out / part).rglob("*")
            if path.is_file()
        )
        trees.append({str(path.relative_to(out)): path.read_bytes() for path in files})
    return all(tree == trees[0] for tree in trees)


def median(runs: Sequence[Any]) -> Any:
    """Return the median of each number of runs of the same kind."""
    if isinstance(runs[0], dict):
        return {name: median([each[name] for each in runs if name in each]) for name in runs[0]}
    return statistics.median(runs)


def ratios(found: Mapping[str, Sequence[Mapping[str, Any]]], name: str) -> dict[str, Any]:
    """Return a run of Ray compared with the local one of as many workers, round by round."""
    told: dict[str, Any] = {}
    for number in (
        "map_video_hours_an_hour",
        "total_video_hours_an_hour",
        "map_cpu_s",
        "every_process_cpu_s",
    ):
        pairs = zip(found[name], found[f"local{name[3:]}"], strict=True)
        each = [round(ray[number] / local[number], 3) for ray, local in pairs]
        told[number] = {"rounds": each, "median": statistics.median(each)}
    return told


def table(rows: Mapping[str, dict[str, Any]]) -> str:
    """Return the rows as text."""
    head = f"{'run':<10}{'wall s':>9}{'CPU s':>9}{'busy':>7}{'overlap':>9}{'vh/h':>8}"
    lines = [head + f"{'all: wall s':>13}{'overlap':>9}{'vh/h':>8}"]
    for name, row in rows.items():
        mapped = f"{row['map_wall_s']:>9.1f}{row['map_cpu_s']:>9.1f}{row['busy']:>7.0%}{row['map_overlap']:>9.2f}"
        whole = f"{row['total_wall_s']:>13.1f}{row['total_overlap']:>9.2f}{row['total_video_hours_an_hour']:>8.1f}"
        lines.append(f"{name:<10}{mapped}{row['map_video_hours_an_hour']:>8.1f}{whole}")
    last = rows[next(reversed(rows))] if rows else {"stages": {}}
    lines.append(
        f"\n{'stage':<12}{'units':>7}{'failed':>8}{'CPU s':>9}{'peak MiB':>10}{'vh a CPU h':>12}"
    )
    for name, stage in last["stages"].items():
        if "units" not in stage:
            lines.append(f"{name:<12}{'once':>7}{'':>8}{stage['wall_s']:>9.1f} s wall")
            continue
        counts = f"{stage['units']:>7}{stage['failed']:>8}{stage['cpu_s']:>9.1f}{stage['peak_mib']:>10.0f}"
        lines.append(f"{name:<12}{counts}{stage['video_hours_a_cpu_hour']:>12.1f}")
    return "\n".join(lines)


def main() -> None:
    """Run every row and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source")
    parser.add_argument("--recipe", default="howtostep")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--runs", nargs="+", default=list(RUNS), metavar="ENGINE:WORKERS")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, help="folder for the runs' own folders; a temporary one by default"
    )
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="stepline-curate-") as temporary:
        home, same = options.keep or Path(temporary), True
        for number in range(options.rounds):
            for name in options.runs[:: -1 if number % 2 else 1]:
                engine, _, workers = name.partition(":")
                out = home / f"{name.replace(':', '-')}-{number}"
                used = run(options.source, options.recipe, options.limit, engine, int(workers), out)
                found[name].append({**measured(out, int(workers)), "every_process_cpu_s": used})
                same = same and same_bytes([home / f"{options.runs[0].replace(':', '-')}-0", out])
                if number and not options.keep:
                    shutil.rmtree(out)
    rows = {name: median(runs) for name, runs in found.items()}
    told = {
        name: ratios(found, name)
        for name in found
        if name.startswith("ray:") and f"local{name[3:]}" in found
    }
    print(table(rows))
    for name, ratio in told.items():
        print(f"{name} / local{name[3:]}: {json.dumps(ratio)}")
    print(f"the runs' results are {'the same, byte for byte' if same else 'NOT the same'}")
    results = {"rounds": options.rounds, "runs": rows, "ray_to_local": told, "same_bytes": same}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
