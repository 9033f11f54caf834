"""From the costs of a sample to those of all videos, stage by stage, drawn again for intervals.

n sampled items, N items, B draws of the sample, the first being the sample itself.

A video stage's totals go by the videos' sizes where sizes predict anything, else by the mean. What
does not grow with the videos is apart: models that each worker loads, and the start of the driver.
So is the fixed part of stages that run once over the whole dataset. The sample is doubled while the
interval is wide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from stepline.curate.forecast.costs import (
    COST_QUANTITIES,
    REQUEST_QUANTITY,
    DatasetRun,
    SampleCosts,
    StageCosts,
)
from stepline.curate.forecast.extrapolation import (
    Resamples,
    extrapolate_runs,
    extrapolate_totals,
    resample,
)
from stepline.curate.settings import ForecastSettings
from stepline.evaluate.bootstrap import INTERVAL_PERCENT, Floats

RUN_NOISE = 0.05  # standard deviation of the log of a dataset stage's time, the same work again
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Interval:
    """A number and the interval in which it will be in 95 of 100 forecasts, as far as the sample
    shows."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class StageForecast:
    """One stage, all videos: CPU seconds, seconds of one worker, bytes of results, tokens. kind:
    video or dataset."""

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
    """What all videos will take. sampled: videos whose results the run finds done. cpu_left: hours
    without them.

    hours: of the whole, by workers. gpu_hours: that stages use a GPU. Others are not billed for it.
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
    sizes: Floats,
    all_sizes: Floats,
    settings: ForecastSettings,
    *,
    size: str = "duration",
    workers: int = 1,
    gpus: Mapping[str, float] | None = None,
) -> Forecast:
    """Return the forecast for N videos.

    sizes: (n,) of the sampled items, in the order of the costs. all_sizes: (N,).
    workers: of this machine or cluster, each loads every model once. gpus: of a stage at work.
    """
    rng = np.random.default_rng(settings.seed)
    draws = resample(len(sizes), len(all_sizes), settings.draws, rng)

    def total(stage: StageCosts, quantity: str) -> Floats:
        return extrapolate_totals(stage.spent[quantity], sizes, all_sizes, draws)

    # The stages of each video, and those over all videos that these leave.
    video_stages: dict[str, Totals] = {}
    for name, stage in costs.stages.items():
        video_stages[name] = {what: total(stage, what) for what in COST_QUANTITIES}
    requests = [total(stage, REQUEST_QUANTITY) for stage in costs.stages.values()]
    remaining = _remaining_videos(costs, draws, len(all_sizes))
    dataset_stages = _dataset_stages(costs, remaining, rng)

    # All stages together, with the models that each worker loads.
    every_stage = {**video_stages, **dataset_stages}
    load = workers * (costs.start + _load(costs, "cpu"))
    cpu = _sum(every_stage, "cpu") + load
    has_loaded = len(sizes) == len(all_sizes)  # no worker has models left to load
    spent = _spent_cpu(costs) + (load if has_loaded else 0.0)
    gpu = np.zeros(settings.draws) + _gpu_seconds(gpus or {}, every_stage)
    tokens = _sum(every_stage, "tokens")
    disk = _sum(every_stage, "bytes")
    money = _money(settings, cpu, gpu, tokens, disk)

    # Workers share the units and the gaps between them, but nothing else.
    gaps = costs.gap * (_units(costs) * len(all_sizes) / len(sizes))
    shared = _sum(video_stages, "wall") + gaps
    fixed = costs.lead + _load(costs, "wall")
    once = _sum(dataset_stages, "wall")
    worker_counts = sorted({workers, *settings.cores})
    return Forecast(
        videos=len(all_sizes),
        sampled=len(sizes),
        size=size,
        stages=_stages(costs, video_stages, dataset_stages),
        cpu_hours=_hours(cpu),
        cpu_left=_hours(np.maximum(0.0, cpu - spent)),
        hours={count: _hours(fixed + shared / count + once) for count in worker_counts},
        disk=_interval(disk),
        tokens=_interval(tokens),
        money=_interval(money),
        gpu_hours=_hours(gpu),
        requests=_interval(np.sum(requests, axis=0)),
    )


Totals: TypeAlias = Mapping[str, Floats]  # quantity -> (B,), the first being the sample's own


def _dataset_stages(
    costs: SampleCosts, remaining: Floats, rng: np.random.Generator
) -> dict[str, Totals]:
    """Return the totals of each stage over all videos. remaining: videos that other stages leave."""
    stages: dict[str, Totals] = {}
    for name, runs in costs.dataset.items():
        stages[name] = _dataset_totals(runs, remaining, rng)
    return stages


def _sum(stages: Mapping[str, Totals], quantity: str) -> Floats:
    # Draw by draw, since a draw takes the same videos for all stages.
    parts = [totals[quantity] for totals in stages.values()]
    total = np.sum(parts, axis=0)
    return np.asarray(total)


def _gpu_seconds(gpus: Mapping[str, float], stages: Mapping[str, Totals]) -> Floats:
    parts = []
    for name, share in gpus.items():
        # A stage that has not run in the sample has no seconds.
        if name in stages:
            seconds = stages[name]["wall"]
            parts.append(share * seconds)
    total = np.sum(parts, axis=0)
    return np.asarray(total)


def _spent_cpu(costs: SampleCosts) -> float:
    return sum(float(stage.spent["cpu"].sum()) for stage in costs.stages.values())


def _units(costs: SampleCosts) -> int:
    count = 0
    for stage in costs.stages.values():
        # A stage took CPU seconds of each item that it reached.
        has_run = stage.spent["cpu"] > 0  # (n,)
        count += int(has_run.sum())
    return count


def _money(
    settings: ForecastSettings, cpu: Floats, gpu: Floats, tokens: Floats, disk: Floats
) -> Floats:
    """Return (B,) prices of CPU and GPU seconds, tokens and bytes."""
    cpu_price = cpu / SECONDS_PER_HOUR * settings.core_hour
    gpu_price = gpu / SECONDS_PER_HOUR * settings.gpu_hour
    token_price = tokens / 1e6 * settings.million_tokens
    disk_price = disk / 1e9 * settings.gigabyte_month
    return cpu_price + gpu_price + token_price + disk_price


def _load(costs: SampleCosts, quantity: str) -> float:
    return sum(stage.load[quantity] for stage in costs.stages.values())


def _remaining_videos(costs: SampleCosts, draws: Resamples, videos: int) -> Floats:
    """Return (B,) the videos of a stage over the dataset: N where a draw keeps as many as the
    sample does."""
    # How many of the sampled videos the last stage reached.
    sampled = draws.rows.shape[1]
    reached = np.ones(sampled)
    if costs.stages:
        last_stage = list(costs.stages.values())[-1]
        is_reached = last_stage.spent["wall"] > 0  # (n,)
        reached = is_reached.astype(np.float64)
    count = extrapolate_totals(reached, np.ones(sampled), np.ones(videos), draws)
    # The ratio to the sample's own, so that the first draw is N.
    ratio = count / max(1e-9, count[0])
    return np.asarray(ratio * videos)


def _dataset_totals(runs: Sequence[DatasetRun], videos: Floats, rng: np.random.Generator) -> Totals:
    """Return a dataset stage's totals for (B,) videos: a line through the numbers of videos of the
    sample's runs.

    The first run also paid for imports and models. What it took beyond the last run of its size is
    added once.
    """
    # A row per run: videos, and what it took of each quantity.
    table = np.array(runs, dtype=np.float64)  # (R, 4)
    run_videos = table[:, 0]
    shape = (len(videos), len(runs))
    totals = {"tokens": np.zeros(len(videos))}
    for column, quantity in enumerate(COST_QUANTITIES[:3], start=1):
        # Times vary when the same work is done again. Bytes do not.
        deviation = RUN_NOISE
        if quantity == "bytes":
            deviation = 0.0
        logs = rng.normal(0.0, deviation, size=shape)
        noise = np.exp(logs)  # (B, R)
        noise[0] = 1.0
        values = table[:, column] * noise
        totals[quantity] = extrapolate_runs(run_videos, values, videos)
    return totals


def _stages(
    costs: SampleCosts, video: Mapping[str, Totals], dataset: Mapping[str, Totals]
) -> tuple[StageForecast, ...]:
    stages = []
    for name, totals in video.items():
        own = costs.stages[name]
        stage = _stage(name, "video", totals)
        load = own.load["cpu"]
        failed = own.failed / own.units
        stages.append(replace(stage, load=load, failed=failed))
    for name, totals in dataset.items():
        stages.append(_stage(name, "dataset", totals))
    return tuple(stages)


def _stage(name: str, kind: str, totals: Totals) -> StageForecast:
    return StageForecast(
        name=name,
        kind=kind,
        cpu=_interval(totals["cpu"]),
        wall=_interval(totals["wall"]),
        bytes=_interval(totals["bytes"]),
        tokens=_interval(totals["tokens"]),
    )


def _hours(seconds: Floats) -> Interval:
    return _interval(seconds / SECONDS_PER_HOUR)


def _interval(values: Floats) -> Interval:
    # The first draw is the estimate, and the others give its interval.
    lower_percent = (100 - INTERVAL_PERCENT) / 2
    upper_percent = (100 + INTERVAL_PERCENT) / 2
    low, high = np.percentile(values, [lower_percent, upper_percent])
    value = float(values[0])
    return Interval(value, float(low), float(high))


def half_width(interval: Interval) -> float:
    """Return half of an interval's length as a share of its value."""
    # Nothing is expected, so nothing can be wide.
    if not interval.value:
        return 0.0
    half = (interval.high - interval.low) / 2
    return half / interval.value


def next_sample(forecast: Forecast, settings: ForecastSettings) -> int:
    """Return how many videos to sample: twice as many as were, while the interval is too wide. Else
    no more."""
    sampled = forecast.sampled
    # Doubled at most, and never beyond the settings or the videos there are.
    if half_width(forecast.cpu_hours) <= settings.within:
        return sampled
    larger = min(2 * sampled, settings.most, forecast.videos)
    return max(sampled, larger)
