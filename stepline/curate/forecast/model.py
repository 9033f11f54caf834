"""From the costs of a sample to those of all videos, stage by stage, drawn again for intervals.

n sampled items, N items, B draws of the sample, the first being the sample itself.

What the sampled videos took is known, so only the N - n others are estimated and uncertain. A video
stage's totals go by the videos' sizes where sizes tell anything, else by the mean. What does not
grow with the videos is apart: models that each worker loads, the start of the driver, and the fixed
part of stages that run once over the whole dataset. The sample holds small and large videos in
their true proportions, and is taken twice as large while the interval is wide.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.curate.forecast.costs import QUANTITIES, REQUESTS, SampleCosts, StageCosts
from stepline.curate.settings import ForecastSettings
from stepline.curate.stage import VideoItem
from stepline.evaluate.bootstrap import LEVEL, Floats

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
    rows[0], others[0] = np.arange(sampled), 0.0
    return Resamples(rows, others, spread)


def extrapolate_totals(
    spent: Floats, chosen: Floats, everything: Floats, draws: Resamples
) -> Floats:
    """Return (B,) totals over N items: what the n took, and the others by a line through size, else
    by the mean.

    spent, chosen: (n,) what each sampled item took, and its size; everything: (N,) sizes. The line
    is taken where it predicts better than the mean. Sizes beyond the sample's count as its largest,
    since nothing is known there; what the line leaves over in the sample is added for the others,
    so that a wrong line does no harm on the whole.

    With a mean, the variance of the draws is (N - n)^2 s^2 / n from which items were sampled and (N
    - n) s^2 from which the others are: together N^2 (1 - n / N) s^2 / n, a sample mean's with the
    finite-population correction (Cochran, Sampling Techniques, section 2.6).
    """
    others = len(everything) - len(chosen)
    sizes = np.clip(everything, chosen.min(), chosen.max()).sum() - chosen.sum()
    x, y = chosen[draws.rows], spent[draws.rows]  # (B, n)
    if size_predicts(chosen, spent):
        fixed, slope = fit_line(x, y)
    else:
        fixed, slope = y.mean(axis=1), np.zeros(len(y))
    rest = y - fixed[:, None] - slope[:, None] * x
    estimates = (fixed + rest.mean(axis=1)) * others + slope * sizes + draws.others @ rest[0]
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


NOISE = 0.05  # standard deviation of the log of a dataset stage's time, the same work done again


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
    chosen: Floats,
    everything: Floats,
    settings: ForecastSettings,
    *,
    size: str = "duration",
    workers: int = 1,
    gpus: Mapping[str, float] | None = None,
) -> Forecast:
    """Return the forecast for N videos.

    chosen: (n,) sizes of the sampled items, in the order of the costs; everything: (N,) of all.
    workers: of this machine or cluster, each of which loads every model once. gpus: that a stage
    holds while it works, by stage; none of another.
    """
    rng = np.random.default_rng(settings.seed)
    drawn = resample(len(chosen), len(everything), settings.draws, rng)
    video: dict[str, Totals] = {
        name: {q: extrapolate_totals(stage.spent[q], chosen, everything, drawn) for q in QUANTITIES}
        for name, stage in costs.stages.items()
    }
    kept = _kept(costs, drawn, len(everything))
    once = {name: _dataset(runs, kept, rng) for name, runs in costs.dataset.items()}
    asked = (stage.spent[REQUESTS] for stage in costs.stages.values())
    requests = np.sum(
        [extrapolate_totals(each, chosen, everything, drawn) for each in asked], axis=0
    )
    stages = [_stage(name, "video", took, costs.stages[name]) for name, took in video.items()]
    stages += [_stage(name, "dataset", took, None) for name, took in once.items()]
    total = {
        q: np.sum([t[q] for t in (*video.values(), *once.values())], axis=0) for q in QUANTITIES
    }
    load = costs.start + sum(stage.load["cpu"] for stage in costs.stages.values())
    cpu = total["cpu"] + load * workers
    done = sum(float(stage.spent["cpu"].sum()) for stage in costs.stages.values())
    if len(chosen) == len(everything):  # no worker has anything left to load models for
        done += load * workers
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
        videos=len(everything),
        sampled=len(chosen),
        size=size,
        stages=tuple(stages),
        cpu_hours=_interval(cpu / 3600),
        cpu_left=_interval(np.maximum(0.0, cpu - done) / 3600),
        hours={count: _interval(seconds / 3600) for count, seconds in wall.items()},
        disk=_interval(total["bytes"]),
        tokens=_interval(total["tokens"]),
        money=_interval(money),
        gpu_hours=_interval(on_gpu / 3600),
        requests=_interval(requests),
    )


Totals = Mapping[str, Floats]  # quantity -> (B,), the first being the sample's own


def _kept(costs: SampleCosts, drawn: Resamples, videos: int) -> Floats:
    """Return (B,) of how many videos a stage over the dataset is: N where a draw keeps as many as
    the sample does."""
    sampled = drawn.rows.shape[1]
    last = (
        list(costs.stages.values())[-1].spent["wall"] > 0
        if costs.stages
        else np.ones(sampled, dtype=bool)
    )
    kept = extrapolate_totals(last.astype(np.float64), np.ones(sampled), np.ones(videos), drawn)
    return np.asarray(kept / max(1e-9, kept[0]) * videos)


def _dataset(
    runs: list[tuple[int, float, float, float]], videos: Floats, rng: np.random.Generator
) -> Totals:
    """Return a dataset stage's totals for (B,) videos: a line through the numbers of videos of the
    sample's runs.

    The first run also paid for imports and models; what it took beyond the last run of its size is
    added once.
    """
    count = np.array([run[0] for run in runs], dtype=np.float64)
    totals = {"tokens": np.zeros(len(videos))}
    for column, quantity in ((1, "cpu"), (2, "wall"), (3, "bytes")):
        values = np.array([run[column] for run in runs])
        noise = np.exp(
            rng.normal(0.0, NOISE if quantity != "bytes" else 0.0, size=(len(videos), len(runs)))
        )
        noise[0] = 1.0
        totals[quantity] = extrapolate_runs(count, values * noise, videos)
    return totals


def extrapolate_runs(count: Floats, values: Floats, videos: Floats) -> Floats:
    """Return (B,) values for (B,) videos, the first being those there are: measured, where a run
    was of so many.

    count: (R,) videos of each run; values: (B, R) what it took.
    """
    if len(count) == 1:
        return np.asarray(values[:, 0] / count[0] * videos)
    later = slice(1, None) if len(count) > 2 else slice(None)
    fixed, slope = fit_line(np.broadcast_to(count[later], values[:, later].shape), values[:, later])
    same = np.flatnonzero(count[1:] == count[0])
    once = (
        np.maximum(0.0, values[:, 0] - values[:, 1 + same[-1]])
        if len(same)
        else np.zeros(len(values))
    )
    whole = np.flatnonzero(count[1:] == videos[0])
    return np.asarray(once + (values[:, 1 + whole[-1]] if len(whole) else fixed + slope * videos))


def _wall(
    costs: SampleCosts,
    video: Mapping[str, Totals],
    once: Mapping[str, Totals],
    cores: int,
    videos: int,
) -> Floats:
    """Return (B,) seconds of a run with so many workers: shared work, what each loads, gaps, what
    runs once."""
    shared = np.sum([took["wall"] for took in video.values()], axis=0) if video else np.zeros(1)
    load = sum(stage.load["wall"] for stage in costs.stages.values())
    sampled = max(1, max((len(stage.spent["cpu"]) for stage in costs.stages.values()), default=1))
    units = (
        sum(int((stage.spent["cpu"] > 0).sum()) for stage in costs.stages.values())
        * videos
        / sampled
    )
    serial = np.sum([took["wall"] for took in once.values()], axis=0) if once else np.zeros(1)
    return np.asarray(costs.lead + load + (shared + costs.gap * units) / cores + serial)


def _stage(name: str, kind: str, took: Totals, costs: StageCosts | None) -> StageForecast:
    intervals = {quantity: _interval(took[quantity]) for quantity in QUANTITIES}
    load = costs.load["cpu"] if costs else 0.0
    return StageForecast(
        name, kind, **intervals, load=load, failed=costs.failed / costs.units if costs else 0.0
    )


def _interval(values: Floats) -> Interval:
    low, high = np.percentile(values, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return Interval(float(values[0]), float(low), float(high))


@dataclass(frozen=True)
class ItemSizes:
    """values: (N,) of all items, by `kind`: their seconds, else the bytes of their files, else all
    alike."""

    kind: str
    values: Floats


def known_sizes(items: Sequence[VideoItem]) -> ItemSizes:
    """Return what is known of every item's size without opening it."""
    if all(item.duration is not None for item in items):
        return ItemSizes("duration", np.array([item.duration for item in items], dtype=np.float64))
    # a stamp begins with the bytes: "4711-..."
    sizes = [item.stamp.partition("-")[0] for item in items]
    if all(size.isdigit() for size in sizes):
        return ItemSizes("bytes", np.array([int(size) for size in sizes], dtype=np.float64))
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
        odd, place = rng.integers(len(order), size=2)
        others = _alternate(np.delete(order, odd), rng)
        yield from islice(others, place)
        yield int(order[odd])
        yield from others
    elif len(order):
        halves = np.split(order, 2)[:: rng.choice((-1, 1))]
        for pair in zip(*(_alternate(half, rng) for half in halves), strict=True):
            yield from pair


def half_width(interval: Interval) -> float:
    """Return half of an interval's length as a share of its value."""
    return (interval.high - interval.low) / 2 / interval.value if interval.value else 0.0


def next_sample(told: Forecast, settings: ForecastSettings) -> int:
    """Return how many videos to sample: twice as many as were, while the interval is too wide; else
    no more."""
    if half_width(told.cpu_hours) <= settings.within:
        return told.sampled
    return max(told.sampled, min(2 * told.sampled, settings.most, told.videos))
