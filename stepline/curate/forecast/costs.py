"""What the sampled videos took, stage by stage, read from the run logs of their runs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from pydantic import JsonValue

from stepline.curate.store.run_log import LogLine, log_number
from stepline.evaluate.bootstrap import Floats

# CPU seconds, seconds, bytes of results, a language model's tokens
QUANTITIES = ("cpu", "wall", "bytes", "tokens")
REQUESTS = "requests"  # to language models
LOADED = "loaded"  # in a log's line: models that a unit loaded, where its stage counts them

# one run of a dataset stage: videos, then what it took of the first three quantities
DatasetRun: TypeAlias = tuple[int, float, float, float]


@dataclass
class StageCosts:
    """A video stage. spent: quantity -> (n,) of each sampled item, 0 where it was not reached,
    models left out.

    load: quantity -> what units that load models took on average beyond the others. units: that
    ran; failed: of them.
    """

    spent: dict[str, Floats]
    load: dict[str, float]
    units: int = 0
    failed: int = 0


@dataclass
class SampleCosts:
    """All that a sample took. dataset: stage -> its runs, in their order.

    lead: seconds from the start of a run to its first unit. gap: seconds a worker waits between two
    units. start: CPU seconds that a fresh worker process takes before its first unit.
    """

    stages: dict[str, StageCosts]
    dataset: dict[str, list[DatasetRun]]
    lead: float
    gap: float
    start: float = 0.0


def read_costs(lines: Iterable[LogLine], items: Sequence[str]) -> SampleCosts:
    """Return the costs of a sample (ids, in order) from the lines of its run logs, in the order
    written."""
    log = sorted(lines, key=lambda line: log_number(line, "at"))
    ends: dict[str, list[LogLine]] = defaultdict(list)
    dataset: dict[str, list[DatasetRun]] = defaultdict(list)
    starts = []
    videos = len(items)
    for line in log:
        event = line["event"]
        stage = str(line.get("stage"))
        cpu = log_number(line, "cpu")
        if event == "run":
            videos = int(log_number(line, "videos"))
        elif event == "worker":
            starts.append(cpu)
        elif event == "end":
            ends[stage].append(line)
        elif event == "dataset":
            run = (videos, cpu, log_number(line, "wall"), log_number(line, "bytes"))
            dataset[stage].append(run)
    stages = {stage: _stage_costs(own, items) for stage, own in ends.items()}
    return SampleCosts(stages, dict(dataset), _lead(log), _gap(log), _mean(starts))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _stage_costs(ends: Sequence[LogLine], items: Sequence[str]) -> StageCosts:
    """Return a stage's costs. A unit that was tried again counts whole; one made under several
    keys, by their mean."""
    by_item: dict[str, dict[str, list[LogLine]]] = {item: defaultdict(list) for item in items}
    for line in ends:
        item = str(line["id"])
        if item in by_item:
            by_item[item][str(line["key"])].append(line)
    units = [unit for keys in by_item.values() for unit in keys.values()]
    failed = sum(not unit[-1]["ok"] for unit in units)
    costs = StageCosts({}, {}, len(units), failed)
    counts = [len(keys) for keys in by_item.values()]
    rows = np.repeat(np.arange(len(items)), counts)  # the item of each unit
    loading = np.array([_loads_models(unit) for unit in units], dtype=np.bool_)
    for quantity in (*QUANTITIES, REQUESTS):
        took = np.array([sum(_amount(line, quantity) for line in unit) for unit in units])
        load = 0.0
        if quantity in ("cpu", "wall") and 0 < loading.sum() < len(units):
            load = max(0.0, float(took[loading].mean() - took[~loading].mean()))
        took[loading] = np.maximum(0.0, took[loading] - load)
        costs.load[quantity] = load
        sums = np.bincount(rows, took, minlength=len(items))
        costs.spent[quantity] = sums / np.maximum(1, counts)
    return costs


def _loads_models(unit: Sequence[LogLine]) -> bool:
    """Return whether a unit paid for models: as its stage counts, else as its worker's first of the
    stage."""
    return any(bool(line.get(LOADED, line.get("first"))) for line in unit)


def _amount(line: LogLine, quantity: str) -> float:
    """Return what a line has of a quantity; tokens go in and come out."""
    if quantity != "tokens":
        return log_number(line, quantity)
    return sum(log_number(line, name) for name in line if name.startswith("tokens"))


def _lead(log: Sequence[LogLine]) -> float:
    """Return the mean seconds from a run's beginning, reading its source included, to its first
    unit."""
    leads = []
    began: float | None = None
    for line in log:
        at = log_number(line, "at")
        if line["event"] == "run":
            began = at - log_number(line, "seconds")
        elif line["event"] == "start" and line.get("id") is not None and began is not None:
            leads.append(at - began)
            began = None
    return _mean(leads)


def _gap(log: Sequence[LogLine]) -> float:
    """Return the median seconds that a worker waits between a unit's end and its next one's
    start."""
    workers: dict[str, JsonValue] = {}  # by the key of the unit that each works on
    free_since: dict[JsonValue, float] = {}
    gaps = []
    for line in log:
        key = str(line.get("key"))
        at = log_number(line, "at")
        if line["event"] == "start" and "worker" in line:
            worker = line["worker"]
            workers[key] = worker
            if worker in free_since:
                gaps.append(at - free_since.pop(worker))
        elif line["event"] == "end" and key in workers:
            free_since[workers.pop(key)] = at
    return max(0.0, float(np.median(gaps))) if gaps else 0.0
