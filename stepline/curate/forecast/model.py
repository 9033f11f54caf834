"""From the costs of a sample to those of all videos, stage by stage, drawn again for intervals.

n sampled items, N items, B draws of the sample, the first being the sample itself.

What the sampled videos took is known, so only the N - n others are estimated and uncertain. A video
stage's totals go by the videos' sizes where sizes predict anything, else by the mean. What does not
grow with the videos is apart: models that each worker loads, the start of the driver, and the fixed
part of stages that run once over the whole dataset. The sample holds small and large videos in
their true proportions, and is doubled while the interval is wide.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.curate.forecast.costs import QUANTITIES, REQUESTS, DatasetRun, SampleCosts, StageCosts
from stepline.curate.settings import ForecastSettings
from stepline.curate.stage import VideoItem
from stepline.evaluate.bootstrap import INTERVAL_PERCENT, Floats

Rows: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Resamples:
    """What else may have been sampled, and what the others may be; the first draw is the sample
    itself.

    rows: (B, n) sampled items with replacement. others: (B, n) how many of the N - n others are
    taken to be like each sampled item, beyond the (N - n) / n that are expected. spread: (B,) how
    much further from the first draw a draw lies, since n items tell their own spread only roughly:
    deviations become those of Student's t with n - 1 degrees.
    """

    rows: Rows
    others: Floats
    spread: Floats


def resample(sampled: int, videos: int, draws: int, rng: np.random.Generator) -> Resamples:
    """Return B draws of n sampled items of N."""
    rows = rng.integers(sampled, size=(draws, sampled))
    share = np.full(sampled, 1 / sampled)
    others = rng.multinomial(videos - sampled, share, size=draws) - (videos - sampled) * share
    degrees = max(1, sampled - 1)
    spread = np.sqrt(sampled / rng.chisquare(degrees, size=draws))
    rows[0] = np.arange(sampled)
    others[0] = 0.0
    return Resamples(rows, others, spread)


def extrapolate_totals(spent: Floats, sizes: Floats, all_sizes: Floats, draws: Resamples) -> Floats:
    """Return (B,) totals over N items: what the n took, and the others by a line through size, else
    by the mean.

    spent, sizes: (n,) what each sampled item took, and its size; all_sizes: (N,). The line
    is taken where it predicts better than the mean. Sizes beyond the sample's count as its largest,
    since nothing is known there; what the line leaves over in the sample is added for the others,
    so that a wrong line does no harm on the whole.

    With a mean, the variance of the draws is (N - n)^2 s^2 / n from which items were sampled and (N
    - n) s^2 from which the others are: together N^2 (1 - n / N) s^2 / n, a sample mean's with the
    finite-population correction (Cochran, Sampling Techniques, section 2.6).
    """
    others = len(all_sizes) - len(sizes)
    other_sizes = np.clip(all_sizes, sizes.min(), sizes.max()).sum() - sizes.sum()
    x = sizes[draws.rows]  # (B, n)
    y = spent[draws.rows]  # (B, n)
    if size_predicts(sizes, spent):
        fixed, slope = fit_line(x, y)
    else:
        fixed = y.mean(axis=1)
        slope = np.zeros(len(y))
    rest = y - fixed[:, None] - slope[:, None] * x  # (B, n)
    estimates = (fixed + rest.mean(axis=1)) * others + slope * other_sizes + draws.others @ rest[0]
    estimates = estimates[0] + draws.spread * (estimates - estimates[0])
    return np.asarray(spent.sum() + np.maximum(0.0, estimates))


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
    """Return whether a line through the other items predicts each item (n,) better than their mean
    (leave-one-out)."""
    if len(x) < 2:
        return False
    others = np.array([np.delete(np.arange(len(x)), item) for item in range(len(x))])
    fixed, slope = fit_line(x[others], y[others])
    by_line = y - fixed - slope * np.clip(x, x[others].min(axis=1), x[others].max(axis=1))
    by_mean = y - y[others].mean(axis=1)
    return bool((by_line**2).sum() < (by_mean**2).sum())


RUN_NOISE = 0.05  # standard deviation of the log of a dataset stage's time, the same work again
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Interval:
    """A number and the interval in which it will lie in 95 of 100 forecasts, as far as the sample
    can tell."""

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
    """What all videos will take. sampled: videos whose results the run finds done; cpu_left: hours
    without them.

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
    sizes: Floats,
    all_sizes: Floats,
    settings: ForecastSettings,
    *,
    size: str = "duration",
    workers: int = 1,
    gpus: Mapping[str, float] | None = None,
) -> Forecast:
    """Return the forecast for N videos.

    sizes: (n,) of the sampled items, in the order of the costs; all_sizes: (N,). workers: of this
    machine or cluster, each of which loads every model once. gpus: of a stage while it works.
    """
    rng = np.random.default_rng(settings.seed)
    draws = resample(len(sizes), len(all_sizes), settings.draws, rng)

    def total(stage: StageCosts, quantity: str) -> Floats:
        return extrapolate_totals(stage.spent[quantity], sizes, all_sizes, draws)

    # The stages of each video, and those over all of them.
    video: dict[str, Totals] = {}
    for name, stage in costs.stages.items():
        video[name] = {quantity: total(stage, quantity) for quantity in QUANTITIES}
    kept_videos = _kept_videos(costs, draws, len(all_sizes))
    dataset: dict[str, Totals] = {}
    for name, runs in costs.dataset.items():
        dataset[name] = _dataset_totals(runs, kept_videos, rng)

    # All stages together, with the models that each worker loads.
    every = {**video, **dataset}
    load = workers * (costs.start + _load(costs, "cpu"))
    cpu = _sum(every, "cpu") + load
    spent = sum(float(stage.spent["cpu"].sum()) for stage in costs.stages.values())
    if len(sizes) == len(all_sizes):  # no worker has models left to load
        spent += load
    gpu = np.zeros(settings.draws) + _gpu_seconds(gpus or {}, every)
    tokens, disk = _sum(every, "tokens"), _sum(every, "bytes")

    gaps = costs.gap * (_units(costs) * len(all_sizes) / len(sizes))
    shared = _sum(video, "wall") + gaps
    fixed = costs.lead + _load(costs, "wall")
    once = _sum(dataset, "wall")
    counts = sorted({workers, *settings.cores})
    requests = np.sum([total(stage, REQUESTS) for stage in costs.stages.values()], axis=0)
    return Forecast(
        videos=len(all_sizes),
        sampled=len(sizes),
        size=size,
        stages=_stages(costs, video, dataset),
        cpu_hours=_hours(cpu),
        cpu_left=_hours(np.maximum(0.0, cpu - spent)),
        hours={count: _hours(fixed + shared / count + once) for count in counts},
        disk=_interval(disk),
        tokens=_interval(tokens),
        money=_interval(_money(settings, cpu, gpu, tokens, disk)),
        gpu_hours=_hours(gpu),
        requests=_interval(requests),
    )


Totals: TypeAlias = Mapping[str, Floats]  # quantity -> (B,), the first being the sample's own


def _sum(stages: Mapping[str, Totals], quantity: str) -> Floats:
    return np.asarray(np.sum([totals[quantity] for totals in stages.values()], axis=0))


def _gpu_seconds(gpus: Mapping[str, float], stages: Mapping[str, Totals]) -> Floats:
    parts = [share * stages[name]["wall"] for name, share in gpus.items() if name in stages]
    return np.asarray(np.sum(parts, axis=0))


def _units(costs: SampleCosts) -> int:
    return sum(int((stage.spent["cpu"] > 0).sum()) for stage in costs.stages.values())


def _money(
    settings: ForecastSettings, cpu: Floats, gpu: Floats, tokens: Floats, disk: Floats
) -> Floats:
    """Return (B,) prices of CPU and GPU seconds, tokens and bytes."""
    return (
        cpu / SECONDS_PER_HOUR * settings.core_hour
        + gpu / SECONDS_PER_HOUR * settings.gpu_hour
        + tokens / 1e6 * settings.million_tokens
        + disk / 1e9 * settings.gigabyte_month
    )


def _load(costs: SampleCosts, quantity: str) -> float:
    return sum(stage.load[quantity] for stage in costs.stages.values())


def _kept_videos(costs: SampleCosts, draws: Resamples, videos: int) -> Floats:
    """Return (B,) the videos of a stage over the dataset: N where a draw keeps as many as the
    sample does."""
    sampled = draws.rows.shape[1]
    reached = np.ones(sampled)
    if costs.stages:
        last = list(costs.stages.values())[-1]
        reached = (last.spent["wall"] > 0).astype(np.float64)
    count = extrapolate_totals(reached, np.ones(sampled), np.ones(videos), draws)
    return np.asarray(count / max(1e-9, count[0]) * videos)


def _dataset_totals(runs: Sequence[DatasetRun], videos: Floats, rng: np.random.Generator) -> Totals:
    """Return a dataset stage's totals for (B,) videos: a line through the numbers of videos of the
    sample's runs.

    The first run also paid for imports and models; what it took beyond the last run of its size is
    added once.
    """
    table = np.array(runs, dtype=np.float64)  # (R, 4)
    totals = {"tokens": np.zeros(len(videos))}
    for column, quantity in enumerate(QUANTITIES[:3], start=1):
        deviation = 0.0 if quantity == "bytes" else RUN_NOISE
        noise = np.exp(rng.normal(0.0, deviation, size=(len(videos), len(runs))))
        noise[0] = 1.0
        totals[quantity] = extrapolate_runs(table[:, 0], table[:, column] * noise, videos)
    return totals


def extrapolate_runs(count: Floats, values: Floats, videos: Floats) -> Floats:
    """Return (B,) values for (B,) videos, the first being those there are: measured, where a run
    was of as many.

    count: (R,) videos of each run; values: (B, R) what it took.
    """
    if len(count) == 1:
        return np.asarray(values[:, 0] / count[0] * videos)
    # What the first run took beyond the last one of its size.
    extra = np.zeros(len(values))
    again = np.flatnonzero(count[1:] == count[0])
    if len(again):
        extra = np.maximum(0.0, values[:, 0] - values[:, 1 + again[-1]])
    whole = np.flatnonzero(count[1:] == videos[0])
    if len(whole):
        return np.asarray(extra + values[:, 1 + whole[-1]])
    later = slice(1, None) if len(count) > 2 else slice(None)
    x = np.broadcast_to(count[later], values[:, later].shape)
    fixed, slope = fit_line(x, values[:, later])
    return np.asarray(extra + (fixed + slope * videos))


def _stages(
    costs: SampleCosts, video: Mapping[str, Totals], dataset: Mapping[str, Totals]
) -> tuple[StageForecast, ...]:
    stages = []
    for name, totals in video.items():
        own = costs.stages[name]
        stage = _stage(name, "video", totals)
        failed = own.failed / own.units
        stages.append(replace(stage, load=own.load["cpu"], failed=failed))
    return (*stages, *(_stage(name, "dataset", totals) for name, totals in dataset.items()))


def _stage(name: str, kind: str, totals: Totals) -> StageForecast:
    cpu, wall, size, tokens = (_interval(totals[quantity]) for quantity in QUANTITIES)
    return StageForecast(name, kind, cpu, wall, size, tokens)


def _hours(seconds: Floats) -> Interval:
    return _interval(seconds / SECONDS_PER_HOUR)


def _interval(values: Floats) -> Interval:
    bounds = [(100 - INTERVAL_PERCENT) / 2, (100 + INTERVAL_PERCENT) / 2]
    low, high = np.percentile(values, bounds)
    return Interval(float(values[0]), float(low), float(high))


@dataclass(frozen=True)
class ItemSizes:
    """values: (N,) of all items, by `kind`: their seconds, else the bytes of their files, else all
    alike."""

    kind: str
    values: Floats


def known_sizes(items: Sequence[VideoItem]) -> ItemSizes:
    """Return what is known of every item's size without opening it."""
    durations = [item.duration for item in items]
    if None not in durations:
        return ItemSizes("duration", np.array(durations, dtype=np.float64))
    # a stamp begins with the bytes: "4711-..."
    sizes = [item.stamp.partition("-")[0] for item in items]
    if all(size.isdigit() for size in sizes):
        return ItemSizes("bytes", np.array(sizes, dtype=np.float64))
    return ItemSizes("alike", np.ones(len(items)))


def draw_stratified(values: Floats, count: int, seed: int) -> list[int]:
    """Return the rows of `count` items, at random, small and large ones in their true proportions.

    A shorter draw is the first part of a longer one; later parts hold the proportions nearly as
    well.
    """
    order = np.argsort(values, kind="stable")
    return list(islice(_alternate(order, np.random.default_rng(seed)), count))


def _alternate(order: Rows, rng: np.random.Generator) -> Iterator[int]:
    """Yield all rows by turns from either half of their order, within each half likewise, which
    half first by chance.

    A van der Corput sequence, scrambled as Owen does, of ranks in place of fractions. Of an odd
    number one row, drawn at random, comes at a random place, so that every row is as likely to be
    among the first.
    """
    if len(order) % 2:
        odd, position = rng.integers(len(order), size=2)
        others = _alternate(np.delete(order, odd), rng)
        yield from islice(others, position)
        yield int(order[odd])
        yield from others
    elif len(order):
        first, second = np.split(order, 2)[:: rng.choice((-1, 1))]
        pairs = zip(_alternate(first, rng), _alternate(second, rng), strict=True)
        yield from chain.from_iterable(pairs)


def half_width(interval: Interval) -> float:
    """Return half of an interval's length as a share of its value."""
    return (interval.high - interval.low) / 2 / interval.value if interval.value else 0.0


def next_sample(forecast: Forecast, settings: ForecastSettings) -> int:
    """Return how many videos to sample: twice as many as were, while the interval is too wide; else
    no more."""
    sampled = forecast.sampled
    if half_width(forecast.cpu_hours) <= settings.within:
        return sampled
    return max(sampled, min(2 * sampled, settings.most, forecast.videos))
