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
COST_QUANTITIES = ("cpu", "wall", "bytes", "tokens")
REQUEST_QUANTITY = "requests"  # to language models
LOADED_MODELS = "loaded"  # in a log's line: models that a unit loaded, where its stage counts them

# one run of a dataset stage: videos, then what it took of the first three quantities
DatasetRun: TypeAlias = tuple[int, float, float, float]


@dataclass
class StageCosts:
    """A video stage. spent: quantity -> (n,) of each sampled item, 0 where it was not reached,
    models left out.

    load: quantity -> what units that load models took on average beyond the others. units: that
    ran. failed: of them.
    """

    spent: dict[str, Floats]
    load: dict[str, float]
    units: int = 0
    failed: int = 0


@dataclass
class SampleCosts:
    """All that a sample took. dataset: stage -> its runs, in their order.

    lead: seconds from the start of a run to its first unit.
    gap: seconds that a worker waits between two units.
    start: CPU seconds that a fresh worker process takes before its first unit.
    """

    stages: dict[str, StageCosts]
    dataset: dict[str, list[DatasetRun]]
    lead: float
    gap: float
    start: float = 0.0


def read_costs(lines: Iterable[LogLine], items: Sequence[str]) -> SampleCosts:
    """Return the costs of a sample (ids, in order) from the lines of its run logs, in the order
    written."""
    # By time, since a sample takes several runs with a log each.
    log = sorted(lines, key=_log_time)
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
            wall = log_number(line, "wall")
            result_bytes = log_number(line, "bytes")
            dataset[stage].append((videos, cpu, wall, result_bytes))
    # Sums and means of each stage, and of what is between units.
    stages = {}
    for stage, stage_ends in ends.items():
        stages[stage] = _stage_costs(stage_ends, items)
    return SampleCosts(
        stages=stages, dataset=dict(dataset), lead=_lead(log), gap=_gap(log), start=_mean(starts)
    )


def _log_time(line: LogLine) -> float:
    return log_number(line, "at")


def _mean(values: Sequence[float]) -> float:
    if not values:
        return 0.0
    return float(np.mean(values))


def _stage_costs(ends: Sequence[LogLine], items: Sequence[str]) -> StageCosts:
    """Return a stage's costs. A unit that was tried again counts whole. One made under several keys
    counts by their mean."""
    # The lines of each unit: what a stage did of an item under one key.
    by_item: dict[str, dict[str, list[LogLine]]] = {}
    for item in items:
        by_item[item] = defaultdict(list)
    for line in ends:
        item = str(line["id"])
        key = str(line["key"])
        if item in by_item:
            by_item[item][key].append(line)
    units: list[list[LogLine]] = []
    counts = []
    for keys in by_item.values():
        units.extend(keys.values())
        counts.append(len(keys))
    failed = 0
    # Of a unit that was tried again, the last try says how it ended.
    for unit in units:
        last_line = unit[-1]
        if not last_line["ok"]:
            failed += 1
    unit_count = len(units)
    costs = StageCosts({}, {}, unit_count, failed)

    # Each quantity, without what loading models took.
    item_rows = np.arange(len(items))
    rows = np.repeat(item_rows, counts)  # the item of each unit
    loads = [_loads_models(unit) for unit in units]
    loading = np.array(loads, dtype=np.bool_)
    some_load = 0 < loading.sum() < len(units)
    for quantity in (*COST_QUANTITIES, REQUEST_QUANTITY):
        amounts = np.array([_unit_amount(unit, quantity) for unit in units])
        load = 0.0
        # Models are apart only where some units load them and others do not.
        if some_load and quantity in ("cpu", "wall"):
            mean_loading = amounts[loading].mean()
            mean_other = amounts[~loading].mean()
            load = max(0.0, float(mean_loading - mean_other))
        without_load = amounts[loading] - load
        amounts[loading] = np.maximum(0.0, without_load)
        costs.load[quantity] = load
        sums = np.bincount(rows, amounts, minlength=len(items))
        # Made under several keys, an item counts by their mean.
        divisors = np.maximum(1, counts)
        costs.spent[quantity] = sums / divisors
    return costs


def _loads_models(unit: Sequence[LogLine]) -> bool:
    """Return whether a unit paid for models: as its stage counts, else as its worker's first of the
    stage."""
    for line in unit:
        first = line.get("first")
        if line.get(LOADED_MODELS, first):
            return True
    return False


def _unit_amount(unit: Sequence[LogLine], quantity: str) -> float:
    return sum(_amount(line, quantity) for line in unit)


def _amount(line: LogLine, quantity: str) -> float:
    """Return what a line has of a quantity. Tokens go in and come out."""
    if quantity != "tokens":
        return log_number(line, quantity)
    # Tokens are logged by direction, and both are paid for.
    token_names = [name for name in line if name.startswith("tokens")]
    numbers = [log_number(line, name) for name in token_names]
    return sum(numbers)


def _lead(log: Sequence[LogLine]) -> float:
    """Return the mean seconds from a run's beginning, reading its source included, to its first
    unit."""
    leads = []
    # From the beginning of a run to its first unit. What follows does not count.
    beginning: float | None = None
    for line in log:
        at = _log_time(line)
        event = line["event"]
        starts_unit = event == "start" and line.get("id") is not None
        if event == "run":
            beginning = at - log_number(line, "seconds")
        elif starts_unit and beginning is not None:
            leads.append(at - beginning)
            beginning = None
    return _mean(leads)


def _gap(log: Sequence[LogLine]) -> float:
    """Return the median seconds that a worker waits between a unit's end and its next one's
    start."""
    # Of each worker, since when it has been free.
    workers: dict[str, JsonValue] = {}  # by the key of the unit that each works on
    free_since: dict[JsonValue, float] = {}
    gaps = []
    for line in log:
        key = str(line.get("key"))
        at = _log_time(line)
        event = line["event"]
        if event == "start" and "worker" in line:
            worker = line["worker"]
            workers[key] = worker
            if worker in free_since:
                gaps.append(at - free_since.pop(worker))
        elif event == "end" and key in workers:
            worker = workers.pop(key)
            free_since[worker] = at
    if not gaps:
        return 0.0
    # The median, which a few long waits do not move.
    median = float(np.median(gaps))
    return max(0.0, median)
