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
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from benchmarks.cluster_simulation import (
    NEVER,
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
from stepline.curate.store.run_log import read_items, read_recipe, read_timings
from stepline.evaluate.bootstrap import Floats
from stepline.remote import RemotePath

RESULT = Path(__file__).resolve().parent / "results" / "curate_simulation.json"
VIDEOS = 1_200_000
# s of a video, and the log's standard deviation. HowTo100M's mean is 6.5 min
MEAN, SPREAD = 390.0, 0.6
HOUR = 3600.0
BYTES_A_SECOND = 60_000.0  # of a video at 0.5 Mbit/s
POISON = 2e-4  # videos that hang to the limit
CLOUD = Cluster(
    nodes=100,
    cores=16,
    start=15.0,
    slow_share=0.03,
    slow_speed=0.5,
    loss_every=200 * HOUR,
    away=600.0,
    driver_every=100 * HOUR,
    driver_away=300.0,
    storage=10e9,
    stream=50e6,
)
CASES: dict[str, Mapping[str, object]] = {
    "nothing breaks": {
        "slow_share": 0.0,
        "loss_every": NEVER,
        "driver_every": NEVER,
        "storage": NEVER,
        "stream": NEVER,
    },
    "as assumed": {},
    "with copies at the end": {"speculate": True},
    "handed out by 16": {"batch": 16},
    "handed out by 256": {"batch": 256},
    "spot nodes: a loss every 6 h": {"loss_every": 6 * HOUR},
    "the driver dies every 2 h": {"driver_every": 2 * HOUR},
    "storage of 1 GB/s": {"storage": 1e9},
    "storage of 0.2 GB/s": {"storage": 0.2e9},
    "a tenth of the nodes": {"nodes": 10},
    "400 nodes": {"nodes": 400},
}
LIMITS = {"a hang ends after 5 min": 300.0}  # limits.seconds, 1800 s elsewhere


def measured(out: Path, quantity: str) -> tuple[dict[str, Floats], Floats, float, float, float]:
    """Return a run's seconds ("cpu", "wall") by stage and video, the videos' durations, a worker's
    load, gap, lead."""
    place = RemotePath(str(out))
    items = list(read_items(place))
    costs = read_costs(read_timings(place), [one.id for one in items])
    names = list(costs.stages)
    rows = np.stack([costs.stages[name].spent["cpu"] for name in names], axis=1)
    done = rows.sum(axis=1) > 0  # the dry run had the others
    spent = {name: costs.stages[name].spent[quantity][done] for name in names}
    sizes = np.array([seconds for seconds, there in zip(lengths(out), done, strict=True) if there])
    load = sum(stage.load[quantity] for stage in costs.stages.values())
    return spent, sizes, load, costs.gap, costs.lead


def lengths(out: Path) -> list[float]:
    """Return the seconds of each video as `probe` found them. 0 of one that it could not read."""
    place = RemotePath(str(out))
    recipe = read_recipe(place)
    plan = Plan.from_recipe(recipe, resolve_stages(recipe, STAGE_TABLE))
    results = ResultStore(place)
    found = []
    for item in read_items(place):
        unit = next(unit for unit in plan.tasks(item) if unit.stage == "probe")
        there = results.has(STAGE_TABLE["probe"], unit.key)
        found.append(
            float(json.loads(results.read(STAGE_TABLE["probe"], unit.key))["duration"] or 0.0)
            if there
            else 0.0
        )
    return found


def checked(out: Path) -> dict[str, object]:
    """Return the phases of a run: seconds measured from first start to last end, and simulated."""
    starts, ends, workers, first = phases(out)
    spent, _, load, gap, _ = measured(out, "wall")
    stages = sorted(ends)
    rows = np.stack([spent[name] for name in stages], axis=1)
    units = (rows > 0).sum()
    times = (rows + gap * (rows > 0)).astype(np.float32)
    work = Workload(times, np.zeros(len(times), dtype=np.float32))
    told = simulate(work, Cluster(nodes=1, cores=workers, start=load))
    took = max(ends.values()) - first
    return {
        "out": out.name,
        "workers": workers,
        "videos": len(times),
        "units": int(units),
        "measured s": round(took, 1),
        "simulated s": round(told.makespan, 1),
        "off": round(told.makespan / took - 1, 3),
        "starts": round(min(starts.values()) - first, 1),
    }


def phases(out: Path) -> tuple[dict[str, float], dict[str, float], int, float]:
    """Return first start and last end of each video stage, the number of workers seen, and the
    first start of all."""
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    workers = set()
    busy: dict[object, object] = defaultdict(lambda: None)
    most = 0
    for line in sorted(read_timings(RemotePath(str(out))), key=lambda line: float(str(line["at"]))):
        at, stage = float(str(line["at"])), str(line.get("stage"))
        if line["event"] == "start" and "worker" in line:
            starts.setdefault(stage, at)
            busy[line["key"]] = line["worker"]
            workers.add(line["worker"])
        elif line["event"] == "end":
            ends[stage] = at
            busy.pop(line["key"], None)
        most = max(most, len(busy))
    return starts, ends, most, min(starts.values())


def row(name: str, told: SimulatedRun, work: Workload, took: float) -> dict[str, object]:
    """Return one case of the table."""
    return {
        "case": name,
        "hours": round(told.makespan / HOUR, 2),
        "ideal_hours": round(work.seconds / told.workers / HOUR, 2),
        "utilisation": round(told.utilisation, 4),
        "tail_min": round(told.tail / 60, 1),
        "last_1_percent_min": round(told.last / 60, 1),
        "p50_s": round(told.usual, 1),
        "p99_s": round(told.slowest, 1),
        "losses": told.losses,
        "restarts": told.restarts,
        "lost_hours": round(told.lost / HOUR, 1),
        "copied_hours": round(told.copied / HOUR, 1),
        "waiting_hours": round(told.waiting / HOUR, 1),
        "simulated_in_cpu_s": round(took, 1),
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
    wanted = durations(VIDEOS, MEAN, SPREAD)
    about = {"far": True, "bytes_a_second": BYTES_A_SECOND, "poison": POISON}
    work = workload(spent, sizes, wanted, **about)  # type: ignore[arg-type]
    shares = dict(
        zip(spent, (work.times.sum(axis=0, dtype=np.float64) / HOUR).round(0).tolist(), strict=True)
    )
    rate = work.seconds / wanted.sum()
    hours = f"{wanted.sum() / HOUR:,.0f} h of video, {work.seconds / HOUR:,.0f} core hours ({rate:.3f} s a second)"
    print(f"{VIDEOS:,} videos, {hours}: {shares}")
    cases = []
    works = dict.fromkeys(CASES, work)
    for name, limit in LIMITS.items():
        works[name] = workload(spent, sizes, wanted, limit=limit, **about)  # type: ignore[arg-type]
    for name, work in works.items():
        changed, began = CASES.get(name, {}), time.process_time()
        one = simulate(work, replace(CLOUD, start=max(load, 1.0), **changed))  # type: ignore[arg-type]
        cases.append(row(name, one, work, time.process_time() - began))
        print(json.dumps(cases[-1]), flush=True)
    assumed = {**asdict(CLOUD), "start": load, "poison": POISON, "mean_s": MEAN, "spread": SPREAD}
    told = {"assumed": assumed, "core_hours": shares, "checks": checks, "cases": cases}
    RESULT.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
