"""Plays 1.2 M videos over 100 nodes through, from the service times of a measured run.

    python benchmarks/curate_simulation.py OUT [OUT ...]

OUT: folders of finished runs of `stepline curate`. The first gives the service times. For each, the
simulation of its own videos with its own workers is set next to what it really took. The model is
believed only as far as that. The check runs on wall seconds, which a busy machine stretches alike
on both sides. The large cluster runs on CPU seconds. Videos of half a minute say little of those of
6.5 minutes, so stages grow in proportion to duration. On a ten-minute video of 720p all stages
together take 0.075 CPU seconds per second (docs/results/speed.md). The rate printed is next to it.
Durations, failure rates and storage of the large cluster are the settings below. They are
assumptions, and named so.
"""

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from benchmarks.cluster_simulation import (
    NEVER_SECONDS,
    Cluster,
    SimulatedRun,
    Workload,
    durations,
    simulate,
    workload,
)
from stepline.curate.forecast.costs import read_costs
from stepline.curate.plan import Plan
from stepline.curate.stage import resolve_stages
from stepline.curate.stages import STAGE_TABLE
from stepline.curate.store.results import ResultStore
from stepline.curate.store.run_log import LogLine, read_items, read_recipe, read_timings
from stepline.evaluate.bootstrap import Floats
from stepline.files.remote import RemotePath

RESULT_PATH = Path(__file__).resolve().parent / "results" / "curate_simulation.json"
VIDEO_COUNT = 1_200_000
MEAN_SECONDS = 390.0  # of a video. HowTo100M's mean is 6.5 min
LOG_SPREAD = 0.6  # standard deviation of the logarithm
HOUR_SECONDS = 3600.0
BYTES_A_SECOND = 60_000.0  # of a video at 0.5 Mbit/s
HANGING_SHARE = 2e-4  # videos that hang to the limit
LARGE_CLUSTER = Cluster(
    nodes=100,
    cores=16,
    start=15.0,
    slow_share=0.03,
    slow_speed=0.5,
    loss_every=200 * HOUR_SECONDS,
    away=600.0,
    driver_every=100 * HOUR_SECONDS,
    driver_away=300.0,
    storage=10e9,
    stream=50e6,
)
CLUSTER_CASES: dict[str, Mapping[str, object]] = {
    "nothing breaks": {
        "slow_share": 0.0,
        "loss_every": NEVER_SECONDS,
        "driver_every": NEVER_SECONDS,
        "storage": NEVER_SECONDS,
        "stream": NEVER_SECONDS,
    },
    "as assumed": {},
    "with copies at the end": {"speculate": True},
    "handed out by 16": {"batch": 16},
    "handed out by 256": {"batch": 256},
    "spot nodes: a loss every 6 h": {"loss_every": 6 * HOUR_SECONDS},
    "the driver dies every 2 h": {"driver_every": 2 * HOUR_SECONDS},
    "storage of 1 GB/s": {"storage": 1e9},
    "storage of 0.2 GB/s": {"storage": 0.2e9},
    "a tenth of the nodes": {"nodes": 10},
    "400 nodes": {"nodes": 400},
}
LIMIT_CASES = {"a hang ends after 5 min": 300.0}  # limits.seconds, 1800 s elsewhere


def measured(out: Path, quantity: str) -> tuple[dict[str, Floats], Floats, float, float, float]:
    """Return a run's seconds ("cpu", "wall") by stage and video, the videos' durations, a worker's
    load, gap, lead."""
    place = RemotePath(str(out))
    ids = [item.id for item in read_items(place)]
    costs = read_costs(read_timings(place), ids)
    rows = np.stack([stage.spent["cpu"] for stage in costs.stages.values()], axis=1)
    # The dry run had the others.
    is_of_run = rows.sum(axis=1) > 0
    spent = {name: stage.spent[quantity][is_of_run] for name, stage in costs.stages.items()}
    sizes = np.array(lengths(out))[is_of_run]
    load = sum(stage.load[quantity] for stage in costs.stages.values())
    return spent, sizes, load, costs.gap, costs.lead


def lengths(out: Path) -> list[float]:
    """Return the seconds of each video as `probe` found them. 0 of one that it could not read."""
    place = RemotePath(str(out))
    recipe = read_recipe(place)
    plan = Plan.from_recipe(recipe, resolve_stages(recipe, STAGE_TABLE))
    results = ResultStore(place)
    probe = STAGE_TABLE["probe"]
    seconds = []
    for item in read_items(place):
        task = next(task for task in plan.tasks(item) if task.stage == "probe")
        duration = 0.0
        if results.has(probe, task.key):
            duration = float(json.loads(results.read(probe, task.key))["duration"] or 0.0)
        seconds.append(duration)
    return seconds


def checked(out: Path) -> dict[str, object]:
    """Return the phases of a run: seconds measured from first start to last end, and simulated."""
    starts, ends, workers, first = phases(out)
    spent, _, load, gap, _ = measured(out, "wall")
    rows = np.stack([spent[name] for name in sorted(ends)], axis=1)
    is_reached = rows > 0
    times = (rows + gap * is_reached).astype(np.float32)
    work = Workload(times, np.zeros(len(times), dtype=np.float32))
    simulated = simulate(work, Cluster(nodes=1, cores=workers, start=load))
    measured_seconds = max(ends.values()) - first
    return {
        "out": out.name,
        "workers": workers,
        "videos": len(times),
        "units": int(is_reached.sum()),
        "measured s": round(measured_seconds, 1),
        "simulated s": round(simulated.makespan, 1),
        "off": round(simulated.makespan / measured_seconds - 1, 3),
        "starts": round(min(starts.values()) - first, 1),
    }


def phases(out: Path) -> tuple[dict[str, float], dict[str, float], int, float]:
    """Return first start and last end of each video stage, the number of workers seen, and the
    first start of all."""
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    running_keys: set[object] = set()
    most_running = 0
    lines = sorted(read_timings(RemotePath(str(out))), key=_time_of)
    for line in lines:
        stage = str(line.get("stage"))
        if line["event"] == "start" and "worker" in line:
            starts.setdefault(stage, _time_of(line))
            running_keys.add(line["key"])
        elif line["event"] == "end":
            ends[stage] = _time_of(line)
            running_keys.discard(line["key"])
        most_running = max(most_running, len(running_keys))
    return starts, ends, most_running, min(starts.values())


def _time_of(line: LogLine) -> float:
    return float(str(line["at"]))


def row(name: str, run: SimulatedRun, work: Workload, cpu_seconds: float) -> dict[str, object]:
    """Return one case of the table."""
    return {
        "case": name,
        "hours": round(run.makespan / HOUR_SECONDS, 2),
        "ideal_hours": round(work.seconds / run.workers / HOUR_SECONDS, 2),
        "utilisation": round(run.utilisation, 4),
        "tail_min": round(run.tail / 60, 1),
        "last_1_percent_min": round(run.last / 60, 1),
        "p50_s": round(run.usual, 1),
        "p99_s": round(run.slowest, 1),
        "losses": run.losses,
        "restarts": run.restarts,
        "lost_hours": round(run.lost / HOUR_SECONDS, 1),
        "copied_hours": round(run.copied / HOUR_SECONDS, 1),
        "waiting_hours": round(run.waiting / HOUR_SECONDS, 1),
        "simulated_in_cpu_s": round(cpu_seconds, 1),
    }


def main() -> None:
    """Print and keep the checks and the cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("outs", nargs="+", type=Path)
    outs = parser.parse_args().outs
    checks = [checked(out) for out in outs]
    for check in checks:
        print(json.dumps(check))
    spent, sizes, load, _, _ = measured(outs[0], "cpu")
    # The videos of the large cluster
    seconds = durations(VIDEO_COUNT, MEAN_SECONDS, LOG_SPREAD)
    options = {"far": True, "bytes_a_second": BYTES_A_SECOND, "poison": HANGING_SHARE}
    work = workload(spent, sizes, seconds, **options)  # type: ignore[arg-type]
    stage_hours = work.times.sum(axis=0, dtype=np.float64) / HOUR_SECONDS
    core_hours = dict(zip(spent, stage_hours.round(0).tolist(), strict=True))
    video_hours = f"{seconds.sum() / HOUR_SECONDS:,.0f} h of video"
    rate = work.seconds / seconds.sum()
    work_hours = f"{work.seconds / HOUR_SECONDS:,.0f} core hours ({rate:.3f} s a second)"
    print(f"{VIDEO_COUNT:,} videos, {video_hours}, {work_hours}: {core_hours}")
    # The cases
    works = dict.fromkeys(CLUSTER_CASES, work)
    for name, limit in LIMIT_CASES.items():
        limited = {**options, "limit": limit}
        works[name] = workload(spent, sizes, seconds, **limited)  # type: ignore[arg-type]
    cases = []
    cluster = replace(LARGE_CLUSTER, start=max(load, 1.0))
    for name, work in works.items():
        changes = CLUSTER_CASES.get(name, {})
        start = time.process_time()
        run = simulate(work, replace(cluster, **changes))  # type: ignore[arg-type]
        cases.append(row(name, run, work, time.process_time() - start))
        print(json.dumps(cases[-1]), flush=True)
    assumed = {
        **asdict(LARGE_CLUSTER),
        "start": load,
        "poison": HANGING_SHARE,
        "mean_s": MEAN_SECONDS,
        "spread": LOG_SPREAD,
    }
    result = {"assumed": assumed, "core_hours": core_hours, "checks": checks, "cases": cases}
    RESULT_PATH.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
