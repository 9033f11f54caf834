"""From the costs of a sample to those of all videos, stage by stage, drawn again for intervals.

n sampled items, N items, B draws of the sample, the first being the sample itself.

A video stage's totals go by the videos' sizes where sizes tell anything, else by the mean. What does not grow with the
videos is apart: models that each worker loads, the start of the driver, and the fixed part of stages that run once over
the whole dataset. The sample holds small and large videos in their true proportions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.curate.forecast.costs import QUANTITIES, REQUESTS, SampleCosts, StageCosts
from stepline.curate.settings import ForecastSettings
from stepline.curate.stage import VideoItem
from stepline.evaluate.bootstrap import LEVEL, Floats

Rows: TypeAlias = npt.NDArray[np.int64]


def extrapolate_totals(
    spent: Floats, chosen: Floats, everything: Floats, drawn: Rows, rng: np.random.Generator
) -> Floats:
    """Return (B,) totals over N items: by a line through size where it predicts better than the mean, else by the mean.

    spent, chosen: (n,) what each sampled item took, and its size; everything: (N,) sizes; drawn: (B, n) which items a
    draw holds, the first all. Sizes beyond the sample's count as its largest, since nothing is known there; what the
    line leaves over in the sample is added for all, so that a wrong line does no harm on the whole. Each draw but the
    first has the noise of N single items added.
    """
    count = len(everything)
    sizes = np.clip(everything, chosen.min(), chosen.max())
    x, y = chosen[drawn], spent[drawn]  # (B, n)
    if size_predicts(chosen, spent):
        fixed, slope = fit_line(x, y)
    else:
        fixed, slope = y.mean(axis=1), np.zeros(len(y))
    rest = y - fixed[:, None] - slope[:, None] * x
    noise = rng.normal(size=len(drawn)) * rest.std(axis=1) * np.sqrt(count)
    noise[0] = 0.0
    sums = fixed * count + slope * sizes.sum() + rest.mean(axis=1) * count
    return np.asarray(np.maximum(0.0, sums + noise))


def fit_line(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return a and b (B,) of the non-negative least-squares lines a + b x through points (B, n)."""
    apart = x - x.mean(axis=1, keepdims=True)
    variance = (apart**2).sum(axis=1)
    slope = np.divide((apart * y).sum(axis=1), variance, out=np.zeros(len(x)), where=variance > 0)
    slope = np.maximum(0.0, slope)
    fixed = y.mean(axis=1) - slope * x.mean(axis=1)
    squares = np.maximum(1e-300, (x**2).sum(axis=1))
    return np.maximum(0.0, fixed), np.where(fixed < 0, (x * y).sum(axis=1) / squares, slope)


def size_predicts(x: Floats, y: Floats) -> bool:
    """Return whether a line through the other items predicts each item (n,) better than their mean (leave-one-out)."""
    if len(x) < 2:
        return False
    others = np.array([np.delete(np.arange(len(x)), item) for item in range(len(x))])
    fixed, slope = fit_line(x[others], y[others])
    by_line = y - fixed - slope * np.clip(x, x[others].min(axis=1), x[others].max(axis=1))
    by_mean = y - y[others].mean(axis=1)
    return bool((by_line**2).sum() < (by_mean**2).sum())


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
    failed: float = 0.0  # fraction of its units


@dataclass(frozen=True)
class Forecast:
    """What all videos will take. sampled: videos whose results the run finds done; cpu_left: hours without them.

    hours: of the whole, by workers. gpu_hours: that stages use a GPU; others are not billed for it.
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
    gpu_hours: Interval = Interval(0.0, 0.0, 0.0)
    requests: Interval = Interval(0.0, 0.0, 0.0)  # to language models


def forecast(
    costs: SampleCosts,
    chosen: Floats,
    everything: Floats,
    settings: ForecastSettings,
    *,
    size: str = "duration",
    workers: int = 1,
    gpus: Mapping[str, float] | None = None,
) -> Forecast:
    """Return the forecast for N videos.

    chosen: (n,) sizes of the sampled items, in the order of the costs; everything: (N,) of all. workers: of this
    machine or cluster, each of which loads every model once. gpus: that a stage holds while it works, by stage; none of
    another.
    """
    rng = np.random.default_rng(settings.seed)
    drawn = rng.integers(len(chosen), size=(settings.draws, len(chosen)))
    drawn[0] = np.arange(len(chosen))  # the first is the sample itself
    video: dict[str, Totals] = {
        name: {q: extrapolate_totals(stage.spent[q], chosen, everything, drawn, rng) for q in QUANTITIES}
        for name, stage in costs.stages.items()
    }
    kept = _kept(costs, drawn) * len(everything)
    once = {name: _dataset(runs, kept, rng) for name, runs in costs.dataset.items()}
    asked = (stage.spent[REQUESTS] for stage in costs.stages.values())
    requests = np.sum([extrapolate_totals(each, chosen, everything, drawn, rng) for each in asked], axis=0)
    stages = [_stage(name, "video", took, costs.stages[name]) for name, took in video.items()]
    stages += [_stage(name, "dataset", took, None) for name, took in once.items()]
    total = {q: np.sum([t[q] for t in (*video.values(), *once.values())], axis=0) for q in QUANTITIES}
    load = costs.start + sum(stage.load["cpu"] for stage in costs.stages.values())
    cpu = total["cpu"] + load * workers
    done = sum(float(stage.spent["cpu"].sum()) for stage in costs.stages.values())
    cores = sorted({workers, *settings.cores})
    wall = {count: _wall(costs, video, once, count, len(everything)) for count in cores}
    on_gpu = np.zeros(settings.draws)  # GPU seconds
    for name, held in (gpus or {}).items():
        took = video.get(name) or once.get(name)
        on_gpu = on_gpu + held * took["wall"] if took else on_gpu
    money = (
        cpu / 3600 * settings.core_hour
        + on_gpu / 3600 * settings.gpu_hour
        + total["tokens"] / 1e6 * settings.million_tokens
        + total["bytes"] / 1e9 * settings.gigabyte_month
    )
    return Forecast(
        videos=len(everything), sampled=len(chosen), size=size, stages=tuple(stages),
        cpu_hours=_interval(cpu / 3600), cpu_left=_interval(np.maximum(0.0, cpu - done) / 3600),
        hours={count: _interval(seconds / 3600) for count, seconds in wall.items()},
        disk=_interval(total["bytes"]), tokens=_interval(total["tokens"]), money=_interval(money),
        gpu_hours=_interval(on_gpu / 3600), requests=_interval(requests),
    )  # fmt: skip


Totals = Mapping[str, Floats]  # quantity -> (B,), the first being the sample's own


def _kept(costs: SampleCosts, drawn: Rows) -> Floats:
    """Return (B,) how many videos a draw keeps for each that the sample keeps: 1 where all are kept."""
    if not costs.stages:
        return np.ones(len(drawn))
    last = list(costs.stages.values())[-1].spent["wall"] > 0
    return np.asarray(last[drawn].mean(axis=1) / max(1e-9, last.mean()))


def _dataset(runs: list[tuple[int, float, float, float]], videos: Floats, rng: np.random.Generator) -> Totals:
    """Return a dataset stage's totals for (B,) videos: a line through the numbers of videos of the sample's runs.

    The first run also paid for imports and models; what it took beyond the last run of its size is added once.
    """
    count = np.array([run[0] for run in runs], dtype=np.float64)
    totals = {"tokens": np.zeros(len(videos))}
    for column, quantity in ((1, "cpu"), (2, "wall"), (3, "bytes")):
        values = np.array([run[column] for run in runs])
        noise = np.exp(rng.normal(0.0, NOISE if quantity != "bytes" else 0.0, size=(len(videos), len(runs))))
        noise[0] = 1.0
        totals[quantity] = extrapolate_runs(count, values * noise, videos)
    return totals


def extrapolate_runs(count: Floats, values: Floats, videos: Floats) -> Floats:
    """Return (B,) values for (B,) videos. count: (R,) videos of each run; values: (B, R) what it took."""
    if len(count) == 1:
        return np.asarray(values[:, 0] / count[0] * videos)
    later = slice(1, None) if len(count) > 2 else slice(None)
    fixed, slope = fit_line(np.broadcast_to(count[later], values[:, later].shape), values[:, later])
    same = np.flatnonzero(count[1:] == count[0])
    once = np.maximum(0.0, values[:, 0] - values[:, 1 + same[-1]]) if len(same) else np.zeros(len(values))
    return np.asarray(once + fixed + slope * videos)


def _wall(
    costs: SampleCosts, video: Mapping[str, Totals], once: Mapping[str, Totals], cores: int, videos: int
) -> Floats:
    """Return (B,) seconds of a run with so many workers: shared work, what each loads, gaps, what runs once."""
    shared = np.sum([took["wall"] for took in video.values()], axis=0) if video else np.zeros(1)
    load = sum(stage.load["wall"] for stage in costs.stages.values())
    sampled = max(1, max((len(stage.spent["cpu"]) for stage in costs.stages.values()), default=1))
    units = sum(int((stage.spent["cpu"] > 0).sum()) for stage in costs.stages.values()) * videos / sampled
    serial = np.sum([took["wall"] for took in once.values()], axis=0) if once else np.zeros(1)
    return np.asarray(costs.lead + load + (shared + costs.gap * units) / cores + serial)


def _stage(name: str, kind: str, took: Totals, costs: StageCosts | None) -> StageForecast:
    intervals = {quantity: _interval(took[quantity]) for quantity in QUANTITIES}
    load = costs.load["cpu"] if costs else 0.0
    return StageForecast(name, kind, **intervals, load=load, failed=costs.failed / costs.units if costs else 0.0)


def _interval(values: Floats) -> Interval:
    low, high = np.percentile(values, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return Interval(float(values[0]), float(low), float(high))


@dataclass(frozen=True)
class ItemSizes:
    """values: (N,) of all items, by `kind`: their seconds, else the bytes of their files, else all alike."""

    kind: str
    values: Floats


def known_sizes(items: Sequence[VideoItem]) -> ItemSizes:
    """Return what is known of every item's size without opening it."""
    if all(item.duration is not None for item in items):
        return ItemSizes("duration", np.array([item.duration for item in items], dtype=np.float64))
    sizes = [item.stamp.partition("-")[0] for item in items]  # a stamp begins with the bytes: "4711-..."
    if all(size.isdigit() for size in sizes):
        return ItemSizes("bytes", np.array([int(size) for size in sizes], dtype=np.float64))
    return ItemSizes("alike", np.ones(len(items)))


def draw_stratified(values: Floats, count: int, seed: int) -> list[int]:
    """Return the rows of `count` items, one at random of each of `count` equal parts in order of size.

    The first third, the second and the last hold small and large ones alike, so that each stands for the whole.
    """
    rng = np.random.default_rng(seed)
    order = np.argsort(values, kind="stable")
    parts = np.array_split(order, min(count, len(order)))
    chosen = [int(rng.choice(part)) for part in parts]
    return [chosen[row] for start in range(3) for row in range(start, len(chosen), 3)]
