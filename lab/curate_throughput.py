"""Measures `stepline curate`: video-hours per hour by stage and in all, how well work overlaps, and
how it scales.

    python lab/curate_throughput.py SOURCE [--recipe FILE] [--limit N]
        [--runs local:1 local:2 ray:1 ray:2] [--rounds N]

Each run starts from nothing in a folder of its own. Numbers come from the run's journals
(OUT/timings), but the CPU seconds of all its processes, which are looked at each second while it
runs: those beyond the journals' are the engine's own. The overlap figure is wall / max(CPU seconds
/ processes, slowest serial stage): 1 is perfect, and only a quiet machine shows it. With several
rounds the runs alternate, every second round backwards. A row is the median of its runs. The ratio
of video-hours per hour, Ray's to local's of as many workers, is printed of each round and of the
medians. The datasets of all runs must be the same, byte for byte. The table is printed and written
to lab/results/curate_throughput.json.
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

from stepline.curate.store.run_log import read_timings
from stepline.files.remote import RemotePath
from stepline.workers import descendant_pids

DEFAULT_RUNS = ("local:1", "local:2", "ray:1", "ray:2")
RESULT_PATH = Path(__file__).parent / "results" / "curate_throughput.json"
HOUR_SECONDS = 3600.0


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
    cpu_of_process: dict[int, float] = {}
    with subprocess.Popen([*command, "--engine", engine, "--workers", str(workers)]) as process:
        while process.poll() is None:
            for pid in (process.pid, *descendant_pids(process.pid)):
                with contextlib.suppress(psutil.Error):
                    times = psutil.Process(pid).cpu_times()
                    cpu_of_process[pid] = times.user + times.system
            time.sleep(1.0)
    if process.returncode:
        sys.exit(process.returncode)
    return sum(cpu_of_process.values())


def hours_of(out: Path) -> dict[str, float]:
    """Return the hours of each video that could be probed, by id."""
    hours = {}
    for line in read_timings(RemotePath(str(out))):
        if line["event"] != "end" or line["stage"] != "probe":
            continue
        key = str(line["key"])
        cell = out / "cells/probe" / key[:2] / f"{key}.json"
        if cell.exists():
            seconds = json.loads(cell.read_bytes())["duration"]
            hours[str(line["id"])] = seconds / HOUR_SECONDS
    return hours


def measured(out: Path, workers: int) -> dict[str, Any]:
    """Return what the journals of one run say."""
    lines = [dict(line) for line in read_timings(RemotePath(str(out)))]
    hours = hours_of(out)
    all_hours = sum(hours.values())
    lines_of = defaultdict(list)
    for line in lines:
        lines_of[line["event"]].append(line)
    # The stages that take one video
    ends = lines_of["end"]
    map_start = min(line["at"] for line in lines_of["start"] + lines_of["worker"])
    map_wall = max(line["at"] for line in ends) - map_start
    start_cpu = sum(line["cpu"] for line in lines_of["worker"])
    map_cpu = start_cpu + sum(line["cpu"] for line in ends)
    # The stages of the whole dataset
    serial_wall = {line["stage"]: line["wall"] for line in lines_of["dataset"]}
    total_cpu = map_cpu + sum(line["cpu"] for line in lines_of["dataset"])
    run_line = lines_of["run"][0]
    total_wall = max(line["at"] for line in lines) - run_line["at"] + run_line["seconds"]
    least_wall = max(total_cpu / workers, max(serial_wall.values(), default=0.0))
    stage_rows = stages(ends, hours)
    for name, wall in serial_wall.items():
        stage_rows[name] = {"wall_s": wall}
    return {
        "videos": len({line["id"] for line in ends}),
        "video_hours": all_hours,
        "map_wall_s": map_wall,
        "map_cpu_s": map_cpu,
        "worker_start_cpu_s": start_cpu,
        "model_load_cpu_s": loads(ends),
        "busy": sum(line["wall"] for line in ends) / (map_wall * workers),
        "map_overlap": map_wall / (map_cpu / workers),
        "map_video_hours_an_hour": all_hours / (map_wall / HOUR_SECONDS),
        "total_wall_s": total_wall,
        "total_overlap": total_wall / least_wall,
        "total_video_hours_an_hour": all_hours / (total_wall / HOUR_SECONDS),
        "stages": stage_rows,
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
        if not usual:
            continue
        middle = usual[len(usual) // 2]
        extra += sum(max(0.0, cpu - middle) for first, cpu in pairs if first)
    return extra


def stages(
    ends: Sequence[Mapping[str, Any]], hours: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Return units, CPU seconds, peak memory and video-hours per CPU hour of each stage. First
    units count in no pace."""
    rows: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(line["stage"] for line in ends):
        own = [line for line in ends if line["stage"] == name]
        warm = [line for line in own if not line["first"] and line["ok"]]
        warm_cpu = sum(line["cpu"] for line in warm)
        warm_hours = sum(hours.get(line["id"], 0.0) for line in warm)
        pace = float("nan")
        if warm_cpu:
            pace = warm_hours / (warm_cpu / HOUR_SECONDS)
        rows[name] = {
            "units": len(own),
            "failed": sum(not line["ok"] for line in own),
            "cpu_s": sum(line["cpu"] for line in own),
            "peak_mib": max(line["peak_rss"] for line in own) / 2**20,
            "video_hours_a_cpu_hour": pace,
        }
    return rows


def same_bytes(outs: Sequence[Path]) -> bool:
    """Say whether runs have the same cells and datasets, byte for byte. Notes of a training hold
    paths and seconds."""
    trees = []
    for out in outs:
        tree = {}
        for part in ("cells", "dataset"):
            for path in (out / part).rglob("*"):
                if path.is_file():
                    tree[str(path.relative_to(out))] = path.read_bytes()
        trees.append(tree)
    return all(tree == trees[0] for tree in trees)


def median(runs: Sequence[Any]) -> Any:
    """Return the median of each number of runs of the same kind."""
    if not isinstance(runs[0], dict):
        return statistics.median(runs)
    medians = {}
    for name in runs[0]:
        medians[name] = median([run[name] for run in runs if name in run])
    return medians


def local_name(name: str) -> str:
    """Return the local run of as many workers as one of Ray's."""
    return name.replace("ray:", "local:", 1)


def ratios(runs: Mapping[str, Sequence[Mapping[str, Any]]], name: str) -> dict[str, Any]:
    """Return a run of Ray compared with the local one of as many workers, round by round."""
    ratios_of_figures: dict[str, Any] = {}
    for figure in (
        "map_video_hours_an_hour",
        "total_video_hours_an_hour",
        "map_cpu_s",
        "every_process_cpu_s",
    ):
        rounds = []
        for ray, local in zip(runs[name], runs[local_name(name)], strict=True):
            rounds.append(round(ray[figure] / local[figure], 3))
        ratios_of_figures[figure] = {"rounds": rounds, "median": statistics.median(rounds)}
    return ratios_of_figures


def table(rows: Mapping[str, dict[str, Any]]) -> str:
    """Return the rows as text."""
    head = f"{'run':<10}{'wall s':>9}{'CPU s':>9}{'busy':>7}{'overlap':>9}{'vh/h':>8}"
    lines = [head + f"{'all: wall s':>13}{'overlap':>9}{'vh/h':>8}"]
    for name, row in rows.items():
        cells = [
            f"{name:<10}",
            f"{row['map_wall_s']:>9.1f}",
            f"{row['map_cpu_s']:>9.1f}",
            f"{row['busy']:>7.0%}",
            f"{row['map_overlap']:>9.2f}",
            f"{row['map_video_hours_an_hour']:>8.1f}",
            f"{row['total_wall_s']:>13.1f}",
            f"{row['total_overlap']:>9.2f}",
            f"{row['total_video_hours_an_hour']:>8.1f}",
        ]
        lines.append("".join(cells))
    stage_rows = {}
    if rows:
        stage_rows = rows[next(reversed(rows))]["stages"]
    lines.append(
        f"\n{'stage':<12}{'units':>7}{'failed':>8}{'CPU s':>9}{'peak MiB':>10}{'vh a CPU h':>12}"
    )
    for name, stage in stage_rows.items():
        if "units" not in stage:
            lines.append(f"{name:<12}{'once':>7}{'':>8}{stage['wall_s']:>9.1f} s wall")
            continue
        cells = [
            f"{name:<12}",
            f"{stage['units']:>7}",
            f"{stage['failed']:>8}",
            f"{stage['cpu_s']:>9.1f}",
            f"{stage['peak_mib']:>10.0f}",
            f"{stage['video_hours_a_cpu_hour']:>12.1f}",
        ]
        lines.append("".join(cells))
    return "\n".join(lines)


def folder_name(run_name: str, number: int) -> str:
    """Return the folder of a run in a round."""
    return f"{run_name.replace(':', '-')}-{number}"


def main() -> None:
    """Run every row and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source")
    parser.add_argument("--recipe", default="howtostep")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--runs", nargs="+", default=list(DEFAULT_RUNS), metavar="ENGINE:WORKERS")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, help="folder for the runs' own folders, a temporary one by default"
    )
    options = parser.parse_args()
    figures_of_runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    same = True
    with tempfile.TemporaryDirectory(prefix="stepline-curate-") as temporary:
        home = options.keep or Path(temporary)
        first_out = home / folder_name(options.runs[0], 0)
        for number in range(options.rounds):
            names = list(options.runs)
            if number % 2:
                names.reverse()
            for name in names:
                engine, _, count = name.partition(":")
                workers = int(count)
                out = home / folder_name(name, number)
                cpu = run(options.source, options.recipe, options.limit, engine, workers, out)
                figures = {**measured(out, workers), "every_process_cpu_s": cpu}
                figures_of_runs[name].append(figures)
                same = same and same_bytes([first_out, out])
                if number and not options.keep:
                    shutil.rmtree(out)
    rows = {name: median(runs) for name, runs in figures_of_runs.items()}
    ray_to_local = {}
    for name in figures_of_runs:
        if name.startswith("ray:") and local_name(name) in figures_of_runs:
            ray_to_local[name] = ratios(figures_of_runs, name)
    print(table(rows))
    for name, ratio in ray_to_local.items():
        print(f"{name} / {local_name(name)}: {json.dumps(ratio)}")
    outcome = "the same, byte for byte" if same else "NOT the same"
    print(f"the runs' results are {outcome}")
    results = {
        "rounds": options.rounds,
        "runs": rows,
        "ray_to_local": ray_to_local,
        "same_bytes": same,
    }
    RESULT_PATH.write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
