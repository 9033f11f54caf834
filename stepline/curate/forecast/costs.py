"""What the sampled videos took, stage by stage, read from the run logs of their runs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import JsonValue

from stepline.evaluate.bootstrap import Floats

# CPU seconds, seconds, bytes of results, a language model's tokens
QUANTITIES = ("cpu", "wall", "bytes", "tokens")
REQUESTS = "requests"  # to language models
LOADED = "loaded"  # models that a unit loaded, where its stage tells


@dataclass
class StageCosts:
    """A video stage. spent: quantity -> (n,) of each sampled item, 0 where it was not reached,
    models left out.

    load: quantity -> what units that load models took on average beyond the others. units: how many
    ran; failed: of them.
    """

    spent: dict[str, Floats]
    load: dict[str, float]
    units: int = 0
    failed: int = 0


@dataclass
class SampleCosts:
    """All that a sample took. dataset: stage -> [(videos of that run, cpu, wall, bytes)], in the
    order run.

    lead: seconds from the start of a run to its first unit. gap: seconds a worker waits between two
    units. start: CPU seconds that a fresh worker process takes before its first unit.
    """

    stages: dict[str, StageCosts]
    dataset: dict[str, list[tuple[int, float, float, float]]]
    lead: float
    gap: float
    start: float = 0.0


def read_costs(lines: Iterable[Mapping[str, JsonValue]], items: Sequence[str]) -> SampleCosts:
    """Return the costs of a sample (ids, in order) from the lines of its run logs, in the order
    written."""
    log = sorted(lines, key=lambda line: _number(line, "at"))
    ends = [line for line in log if line["event"] == "end"]
    names = list(dict.fromkeys(str(line["stage"]) for line in ends))
    dataset: dict[str, list[tuple[int, float, float, float]]] = defaultdict(list)
    runs: list[int] = []
    for line in log:
        if line["event"] == "run":
            runs.append(int(_number(line, "videos")))
        elif line["event"] == "dataset":
            took = (_number(line, "cpu"), _number(line, "wall"), _number(line, "bytes"))
            dataset[str(line["stage"])].append((runs[-1] if runs else len(items), *took))
    stages = {
        name: _stage([line for line in ends if line["stage"] == name], items) for name in names
    }
    fresh = [_number(line, "cpu") for line in log if line["event"] == "worker"]
    start = float(np.mean(fresh)) if fresh else 0.0
    return SampleCosts(stages, dict(dataset), _lead(log), _gap(log), start)


def _stage(ends: Sequence[Mapping[str, JsonValue]], items: Sequence[str]) -> StageCosts:
    """Return a stage's costs. A unit that was tried again counts whole; one made under several
    keys, by their mean."""
    units: dict[str, dict[str, list[Mapping[str, JsonValue]]]] = {
        item: defaultdict(list) for item in items
    }
    for line in ends:
        if line["id"] in units:
            units[str(line["id"])][str(line["key"])].append(line)
    every = [unit for item in units.values() for unit in item.values()]
    costs = StageCosts({}, {}, len(every), sum(not unit[-1]["ok"] for unit in every))
    for quantity in (*QUANTITIES, REQUESTS):
        whole = {id(unit): sum(_quantity(line, quantity) for line in unit) for unit in every}
        loading = [id(unit) for unit in every if _loads_models(unit)]
        others = [took for unit, took in whole.items() if unit not in loading]
        costs.load[quantity] = 0.0
        if loading and others and quantity in ("cpu", "wall"):
            costs.load[quantity] = max(
                0.0, float(np.mean([whole[unit] for unit in loading]) - np.mean(others))
            )
        for unit in loading:
            whole[unit] = max(0.0, whole[unit] - costs.load[quantity])
        means = [[whole[id(unit)] for unit in item.values()] for item in units.values()]
        costs.spent[quantity] = np.array(
            [sum(values) / len(values) if values else 0.0 for values in means]
        )
    return costs


def _loads_models(unit: Sequence[Mapping[str, JsonValue]]) -> bool:
    """Return whether a unit paid for models: as its stage says, else as its worker's first of the
    stage."""
    return any(bool(line.get(LOADED, line.get("first"))) for line in unit)


def _quantity(line: Mapping[str, JsonValue], quantity: str) -> float:
    if quantity != "tokens":
        return _number(line, quantity)
    return sum(_number(line, name) for name in line if name.startswith("tokens"))


def _lead(log: Sequence[Mapping[str, JsonValue]]) -> float:
    """Return the mean seconds from a run's beginning, reading its source included, to its first
    unit."""
    leads = []
    began: float | None = None
    for line in log:
        if line["event"] == "run":
            began = _number(line, "at") - _number(line, "seconds")
        elif line["event"] == "start" and line.get("id") is not None and began is not None:
            leads.append(_number(line, "at") - began)
            began = None
    return float(np.mean(leads)) if leads else 0.0


def _gap(log: Sequence[Mapping[str, JsonValue]]) -> float:
    """Return the median seconds that a worker waits between a unit's end and its next one's
    start."""
    worker: dict[str, JsonValue] = {}
    free: dict[JsonValue, float] = {}
    gaps = []
    for line in log:
        key = str(line.get("key"))
        if line["event"] == "start" and "worker" in line:
            worker[key] = line["worker"]
            if line["worker"] in free:
                gaps.append(_number(line, "at") - free.pop(line["worker"]))
        elif line["event"] == "end" and key in worker:
            free[worker.pop(key)] = _number(line, "at")
    return max(0.0, float(np.median(gaps))) if gaps else 0.0


def _number(line: Mapping[str, JsonValue], name: str) -> float:
    value = line.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0
