"""From the costs of a sample to those of all videos, stage by stage, drawn again for intervals.

n sampled items, N items, B draws. What does not grow with the videos is apart: models that each worker loads, the start
of the driver, and the fixed part of stages that run once over the whole dataset.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stepline.curate.forecast.costs import QUANTITIES, Costs, StageCosts
from stepline.curate.forecast.lines import Rows, line, totals
from stepline.curate.forecast_settings import ForecastSettings
from stepline.evaluate.statistics import LEVEL, Floats

NOISE = 0.05  # standard deviation of the log of a dataset stage's time, the same work done again


@dataclass(frozen=True)
class Interval:
    """A number and the interval in which it will lie in 95 of 100 forecasts, as far as the sample can tell."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class StageForecast:
    """One stage, all videos: CPU seconds, seconds of one worker, bytes of results, tokens. kind: video or dataset."""

    name: str
    kind: str
    cpu: Interval
    wall: Interval
    bytes: Interval
    tokens: Interval
    load: float = 0.0  # CPU seconds that each worker pays once
    failed: float = 0.0  # share of its units


@dataclass(frozen=True)
class Forecast:
    """What all videos will take. sampled: videos whose results the run finds done; cpu_left: hours without them.

    hours: of the whole, by workers.
    """

    videos: int
    sampled: int
    size: str
    stages: tuple[StageForecast, ...]
    cpu_hours: Interval
    cpu_left: Interval
    hours: Mapping[int, Interval]
    disk: Interval  # bytes of cells and of dataset stages
    tokens: Interval
    money: Interval


def forecast(
    costs: Costs,
    chosen: Floats,
    everything: Floats,
    settings: ForecastSettings,
    *,
    size: str = "duration",
    workers: int = 1,
    gpus: float = 0.0,
) -> Forecast:
    """Return the forecast for N videos.

    chosen: (n,) sizes of the sampled items, in the order of the costs; everything: (N,) of all. workers: of this
    machine or cluster, each of which loads every model once. gpus: that the engine keeps busy.
    """
    generator = np.random.default_rng(settings.seed)
    drawn = generator.integers(len(chosen), size=(settings.draws, len(chosen)))
    drawn[0] = np.arange(len(chosen))  # the first is the sample itself
    video: dict[str, Totals] = {
        name: {q: totals(stage.spent[q], chosen, everything, drawn, generator) for q in QUANTITIES}
        for name, stage in costs.stages.items()
    }
    kept = _kept(costs, drawn) * len(everything)
    once = {name: _dataset(runs, kept, generator) for name, runs in costs.dataset.items()}
    stages = [_stage(name, "video", took, costs.stages[name]) for name, took in video.items()]
    stages += [_stage(name, "dataset", took, None) for name, took in once.items()]
    total = {q: np.sum([t[q] for t in (*video.values(), *once.values())], axis=0) for q in QUANTITIES}
    load = costs.start + sum(stage.load["cpu"] for stage in costs.stages.values())
    cpu = total["cpu"] + load * workers
    done = sum(float(stage.spent["cpu"].sum()) for stage in costs.stages.values())
    hours = {
        cores: _interval(_wall(costs, video, once, cores, len(everything)) / 3600)
        for cores in sorted({workers, *settings.cores})
    }
    return Forecast(
        videos=len(everything),
        sampled=len(chosen),
        size=size,
        stages=tuple(stages),
        cpu_hours=_interval(cpu / 3600),
        cpu_left=_interval(np.maximum(0.0, cpu - done) / 3600),
        hours=hours,
        disk=_interval(total["bytes"]),
        tokens=_interval(total["tokens"]),
        money=_interval(_money(cpu, total, gpus, _wall(costs, video, once, workers, len(everything)), settings)),
    )


Totals = Mapping[str, Floats]  # quantity -> (B,), the first being the sample's own


def _kept(costs: Costs, drawn: Rows) -> Floats:
    """Return (B,) how many videos a draw keeps for each that the sample keeps: 1 where all are kept."""
    if not costs.stages:
        return np.ones(len(drawn))
    last = list(costs.stages.values())[-1].spent["wall"] > 0
    return np.asarray(last[drawn].mean(axis=1) / max(1e-9, last.mean()))


def _dataset(runs: list[tuple[int, float, float, float]], videos: Floats, generator: np.random.Generator) -> Totals:
    """Return a dataset stage's totals for (B,) videos: a line through the numbers of videos of the sample's runs.

    The first run also paid for imports and models; what it took beyond the last run of its size is added once.
    """
    count = np.array([run[0] for run in runs], dtype=np.float64)
    found = {"tokens": np.zeros(len(videos))}
    for place, quantity in ((1, "cpu"), (2, "wall"), (3, "bytes")):
        values = np.array([run[place] for run in runs])
        noise = np.exp(generator.normal(0.0, NOISE if quantity != "bytes" else 0.0, size=(len(videos), len(runs))))
        noise[0] = 1.0
        found[quantity] = at(count, values * noise, videos)
    return found


def at(count: Floats, values: Floats, videos: Floats) -> Floats:
    """Return (B,) values for (B,) videos. count: (R,) videos of each run; values: (B, R) what it took."""
    if len(count) == 1:
        return np.asarray(values[:, 0] / count[0] * videos)
    later = slice(1, None) if len(count) > 2 else slice(None)
    fixed, slope = line(np.broadcast_to(count[later], values[:, later].shape), values[:, later])
    same = np.flatnonzero(count[1:] == count[0])
    once = np.maximum(0.0, values[:, 0] - values[:, 1 + same[-1]]) if len(same) else np.zeros(len(values))
    return np.asarray(once + fixed + slope * videos)


def _wall(costs: Costs, video: Mapping[str, Totals], once: Mapping[str, Totals], cores: int, videos: int) -> Floats:
    """Return (B,) seconds of a run with so many workers: shared work, what each loads, gaps, what runs once."""
    shared = np.sum([took["wall"] for took in video.values()], axis=0) if video else np.zeros(1)
    load = sum(stage.load["wall"] for stage in costs.stages.values())
    sampled = max(1, max((len(stage.spent["cpu"]) for stage in costs.stages.values()), default=1))
    units = sum(int((stage.spent["cpu"] > 0).sum()) for stage in costs.stages.values()) * videos / sampled
    serial = np.sum([took["wall"] for took in once.values()], axis=0) if once else np.zeros(1)
    return np.asarray(costs.lead + load + (shared + costs.gap * units) / cores + serial)


def _money(cpu: Floats, total: Totals, gpus: float, wall: Floats, settings: ForecastSettings) -> Floats:
    return np.asarray(
        cpu / 3600 * settings.core_hour
        + gpus * wall / 3600 * settings.gpu_hour
        + total["tokens"] / 1e6 * settings.million_tokens
        + total["bytes"] / 1e9 * settings.gigabyte_month
    )


def _stage(name: str, kind: str, took: Totals, costs: StageCosts | None) -> StageForecast:
    found = {quantity: _interval(took[quantity]) for quantity in QUANTITIES}
    load = costs.load["cpu"] if costs else 0.0
    return StageForecast(name, kind, **found, load=load, failed=costs.failed / costs.units if costs else 0.0)


def _interval(values: Floats) -> Interval:
    low, high = np.percentile(values, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return Interval(float(values[0]), float(low), float(high))
