"""What a run will take, multiplied up from a sample of its videos that is worked on below OUT.

What the sampled videos took grows in proportion to the videos' seconds where the source states
them, else to their number. Models that a worker loads count once per worker. The 95 % interval of
the CPU time is that of a ratio estimate from a sample without replacement (Cochran, Sampling
Techniques, section 6.4).
"""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from stepline.curate.driver import RunRequest, collect_items, run_recipe
from stepline.curate.settings import ForecastSettings
from stepline.curate.stage import SourceEntry, VideoItem, resolve_stages
from stepline.curate.store.results import CELLS_FOLDER, FAILURES_FOLDER, files_in
from stepline.curate.store.run_log import LogLine, log_number, read_timings
from stepline.errors import DatasetError, StoreError
from stepline.evaluate.bootstrap import Floats
from stepline.files.remote import RemotePath
from stepline.networks.device import core_count, current_device

FORECAST_FOLDER = "forecast"  # below OUT
NAME_DIGITS = 12  # of a sha256 that names a forecast's folder, in hex
NORMAL_QUANTILE = 1.96  # of a 95 % interval
SECONDS_PER_HOUR = 3600.0
BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True)
class StageForecast:
    """What a stage takes for all videos.

    kind: "video" or "dataset". cpu, wall: seconds. load: CPU seconds that each worker pays once for
    models. failed: fraction of the sampled videos.
    """

    name: str
    kind: str
    cpu: float
    wall: float
    bytes: float
    tokens: float = 0.0
    requests: float = 0.0
    load: float = 0.0
    failed: float = 0.0


@dataclass(frozen=True)
class Forecast:
    """What all videos will take, those of the sample included.

    cpu_interval: 95 %, of `cpu_hours`. hours: by the number of workers. gpu_hours: in which stages
    use a GPU. disk: bytes below OUT.
    """

    videos: int
    sampled: int
    stages: tuple[StageForecast, ...]
    cpu_hours: float
    cpu_interval: tuple[float, float]
    hours: Mapping[int, float]
    gpu_hours: float
    disk: float
    tokens: float
    requests: float
    money: float


def dry_run(
    request: RunRequest, source: Sequence[SourceEntry], settings: ForecastSettings
) -> Forecast:
    """Return what the request will take. Results of the sample stay in OUT, where the run finds
    them.

    Raises DatasetError or StoreError where the sample leaves a stage over the dataset nothing.
    """
    recipe = request.recipe
    collection = collect_items(source, request.limit)
    count = min(settings.sample, len(collection.items))
    rng = np.random.default_rng(settings.seed)
    rows = rng.choice(len(collection.items), count, replace=False)
    items = [collection.items[row] for row in rows]

    # Each recipe and sample has a folder of its own, so that no other's times are read.
    content = recipe.model_dump_json() + "".join(item.id + item.stamp for item in items)
    name = hashlib.sha256(content.encode()).hexdigest()[:NAME_DIGITS]
    url = f"{request.out.rstrip('/')}/{FORECAST_FOLDER}/{name}"
    out = RemotePath(url, recipe.remote)
    try:
        run_recipe(replace(request, out=url, limit=None), [*items, *collection.refused])
    except (DatasetError, StoreError) as error:
        if count == len(collection.items):
            raise
        cure = f"a larger forecast.sample than {count} may leave some"
        raise type(error)(f"the sample did not go through: {error}; {cure}") from error

    # A stage over all videos runs where the driver does.
    driver_gpus = float(current_device().kind != "cpu")
    gpus = {}
    stages = resolve_stages(recipe, request.stages)
    for stage in stages:
        if stage.uses_gpu(recipe):
            gpus[stage.name] = recipe.engine.gpus if stage.kind == "video" else driver_gpus
    result = forecast(
        read_timings(out),
        items,
        collection.items,
        settings,
        workers=recipe.engine.workers or core_count(),
        gpus=gpus,
    )

    # A result that needs a dataset stage depends on all videos.
    reusable: list[str] = []
    for stage in stages:
        if stage.kind == "video" and all(need in reusable for need in stage.needs):
            reusable.append(stage.name)
    copied = copy_results(out, RemotePath(request.out, recipe.remote), reusable)
    request.say(f"{copied} results of the sample are kept for the run")
    return result


def copy_results(source: RemotePath, target: RemotePath, stages: Sequence[str]) -> int:
    """Copy the results of some stages from one OUT to another that lacks them. Return how many."""
    count = 0
    folders = []
    for kind in (CELLS_FOLDER, FAILURES_FOLDER):
        folders += [f"{kind}/{stage}" for stage in stages]
    for folder in folders:
        for entry in files_in(source / folder):
            result = source / f"{folder}/{entry.name}"
            copy = target / f"{folder}/{entry.name}"
            if copy.exists():
                continue
            if result.local is not None and copy.local is not None:
                copy.local.parent.mkdir(parents=True, exist_ok=True)
                os.link(result.local, copy.local)  # there whole or not at all
            else:
                copy.write(result.read())
            count += 1
    return count


def forecast(
    log: Iterable[LogLine],
    sampled: Sequence[VideoItem],
    items: Sequence[VideoItem],
    settings: ForecastSettings,
    *,
    workers: int = 1,
    gpus: Mapping[str, float] | None = None,
) -> Forecast:
    """Return what all videos take.

    Args:
        log: lines of the sample's run.
        sampled: n videos.
        items: all N videos.
        settings: prices, and numbers of workers.
        workers: of this machine or cluster. Each loads every model once.
        gpus: GPUs that a stage holds while it works.
    """
    ends: dict[str, list[LogLine]] = defaultdict(list)
    dataset_ends: dict[str, LogLine] = {}
    for line in log:
        if line["event"] == "end":
            ends[str(line["stage"])].append(line)
        elif line["event"] == "dataset":
            dataset_ends[str(line["stage"])] = line

    sizes = _sizes(sampled, items)  # (n,)
    scale = _sizes(items, items).sum() / sizes.sum()
    rows = {item.id: row for row, item in enumerate(sampled)}
    cpu_by_video = np.zeros(len(sampled))
    stages = []
    for name, lines in ends.items():
        load = _load(lines, "cpu")
        for line in lines:
            loaded = load if _loads_models(line) else 0.0
            cpu_by_video[rows[str(line["id"])]] += log_number(line, "cpu") - loaded
        stages.append(_video_stage(name, lines, load, scale))
    for name, line in dataset_ends.items():
        cpu, wall, size = (scale * log_number(line, key) for key in ("cpu", "wall", "bytes"))
        stages.append(StageForecast(name, "dataset", cpu, wall, size))

    cpu = sum(stage.cpu + workers * stage.load for stage in stages)
    half = _half_interval(cpu_by_video, sizes, len(items))
    shared = sum(stage.wall for stage in stages if stage.kind == "video")
    once = sum(stage.wall for stage in stages if stage.kind == "dataset")
    once += sum(_load(lines, "wall") for lines in ends.values())
    gpu = sum((gpus or {}).get(stage.name, 0.0) * stage.wall for stage in stages)
    tokens = sum(stage.tokens for stage in stages)
    disk = sum(stage.bytes for stage in stages)
    money = cpu / SECONDS_PER_HOUR * settings.core_hour
    money += gpu / SECONDS_PER_HOUR * settings.gpu_hour
    money += tokens / 1e6 * settings.million_tokens + disk / 1e9 * settings.gigabyte_month
    hours = {}
    for count in sorted({workers, *settings.cores}):
        hours[count] = (shared / count + once) / SECONDS_PER_HOUR
    return Forecast(
        videos=len(items),
        sampled=len(sampled),
        stages=tuple(stages),
        cpu_hours=cpu / SECONDS_PER_HOUR,
        cpu_interval=(max(0.0, cpu - half) / SECONDS_PER_HOUR, (cpu + half) / SECONDS_PER_HOUR),
        hours=hours,
        gpu_hours=gpu / SECONDS_PER_HOUR,
        disk=disk,
        tokens=tokens,
        requests=sum(stage.requests for stage in stages),
        money=money,
    )


def _sizes(items: Sequence[VideoItem], all_items: Sequence[VideoItem]) -> Floats:
    """Return what the costs of items grow with: seconds where all are known, else 1 each."""
    if any(item.duration is None for item in all_items):
        return np.ones(len(items))
    return np.array([item.duration for item in items], dtype=np.float64)


def _video_stage(name: str, lines: Sequence[LogLine], load: float, scale: float) -> StageForecast:
    totals: dict[str, float] = defaultdict(float)
    for line in lines:
        for key in line:
            if key.startswith("tokens"):  # logged by direction, and both are paid for
                totals["tokens"] += log_number(line, key)
        for key in ("cpu", "wall", "bytes", "requests"):
            totals[key] += log_number(line, key)
    loading = sum(map(_loads_models, lines))
    # Of a unit that was tried again, the last line says how it ended.
    is_done = {line["id"]: line["ok"] for line in lines}
    return StageForecast(
        name,
        "video",
        cpu=scale * (totals["cpu"] - loading * load),
        wall=scale * (totals["wall"] - loading * _load(lines, "wall")),
        bytes=scale * totals["bytes"],
        tokens=scale * totals["tokens"],
        requests=scale * totals["requests"],
        load=load,
        failed=1 - sum(map(bool, is_done.values())) / len(is_done),
    )


def _loads_models(line: LogLine) -> bool:
    """Return whether a unit loaded models: as its stage counts them, else as the first of its
    worker."""
    return bool(line.get("loaded", line.get("first")))


def _load(lines: Sequence[LogLine], quantity: str) -> float:
    """Return what units that load models take beyond the others on average. 0 where all do or
    none."""
    loading = [log_number(line, quantity) for line in lines if _loads_models(line)]
    others = [log_number(line, quantity) for line in lines if not _loads_models(line)]
    if not loading or not others:
        return 0.0
    return max(0.0, float(np.mean(loading) - np.mean(others)))


def _half_interval(spent: Floats, sizes: Floats, videos: int) -> float:
    """Return half the 95 % interval of a total over N videos, from what n sampled ones spent (n,)
    and their sizes (n,)."""
    count = len(spent)
    if count < 2 or count == videos:
        return 0.0
    rest = spent - spent.sum() / sizes.sum() * sizes
    variance = (rest**2).sum() / (count - 1)
    return NORMAL_QUANTILE * videos * float(np.sqrt((1 - count / videos) * variance / count))


def forecast_json(forecast: Forecast) -> str:
    """Return all numbers: seconds, bytes, tokens, hours."""
    return json.dumps(asdict(forecast), indent=2)


def format_forecast(forecast: Forecast) -> str:
    """Return a table of the stages, then what the whole will take."""
    rows = [("stage", "CPU", "disk", "failed")]
    for stage in forecast.stages:
        failed = f"{100 * stage.failed:.0f} %" if stage.kind == "video" else "once over all"
        rows.append((stage.name, format_seconds(stage.cpu), format_bytes(stage.bytes), failed))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        lines.append("  ".join(map(str.ljust, row, widths)).rstrip())
    low, high = map(_hours, forecast.cpu_interval)
    lines += [
        "",
        f"{forecast.videos:,} videos, from {forecast.sampled} of them",
        f"CPU: {_hours(forecast.cpu_hours)}, 95 % interval {low} to {high}",
    ]
    if forecast.gpu_hours:
        lines.append(f"GPU: {_hours(forecast.gpu_hours)}")
    for workers, hours in forecast.hours.items():
        lines.append(f"with {workers} worker{'' if workers == 1 else 's'}: {_hours(hours)}")
    lines.append(f"disk below OUT: {format_bytes(forecast.disk)}")
    if forecast.requests:
        lines.append(f"requests to language models: {forecast.requests:,.0f}")
    if forecast.tokens:
        lines.append(f"tokens of language models: {forecast.tokens:,.0f}")
    lines.append(f"money at the prices of the settings: {forecast.money:,.2f}")
    lines.append("What no video of the sample did (a hang, a damaged file) is not foreseen.")
    return "\n".join(lines)


def _hours(hours: float) -> str:
    return format_seconds(hours * SECONDS_PER_HOUR)


def format_seconds(seconds: float) -> str:
    """Return seconds in the largest unit that leaves a number above one."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 2 * SECONDS_PER_HOUR:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / SECONDS_PER_HOUR:,.1f} h"


def format_bytes(count: float) -> str:
    """Return bytes in the largest unit that leaves a number above one."""
    for unit in BYTE_UNITS[:-1]:
        # Units are decimal, as disks are sold.
        if count < 1000:
            return f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {BYTE_UNITS[-1]}"
