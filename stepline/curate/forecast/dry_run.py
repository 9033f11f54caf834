"""A sample of a run's videos that is worked on, in a folder of OUT, with the forecast that follows,
and its texts."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from stepline.curate.driver import RunRequest, collect_items, run_recipe
from stepline.curate.forecast.costs import read_costs
from stepline.curate.forecast.model import Forecast, Interval, forecast, half_width, next_sample
from stepline.curate.forecast.video_sample import ItemSizes, draw_stratified, known_sizes
from stepline.curate.settings import ForecastSettings
from stepline.curate.stage import Collection, SourceEntry, VideoItem, resolve_stages
from stepline.curate.store.manifests import files_in
from stepline.curate.store.results import CELLS_FOLDER, FAILURES_FOLDER
from stepline.curate.store.run_log import read_timings
from stepline.errors import DatasetError, StoreError
from stepline.files.remote import RemotePath
from stepline.networks.device import core_count, current_device

FORECAST_FOLDER = "forecast"  # below OUT
NAME_DIGITS = 12  # of a sha256 that names a forecast's folder, in hex


@dataclass(frozen=True)
class _Sample:
    """The videos of a forecast. rows: of all items, in the order in which they are sampled."""

    collection: Collection
    settings: ForecastSettings
    sizes: ItemSizes
    rows: list[int]

    def items(self, count: int) -> list[VideoItem]:
        """Return the first `count` videos of the sample."""
        return [self.collection.items[row] for row in self.rows[:count]]

    def forecast(self, request: RunRequest, out: RemotePath, count: int) -> Forecast:
        """Return what the request will take, by what the first `count` videos took in OUT."""
        recipe = request.recipe
        # What the sample took, by the logs of its runs.
        sampled = [item.id for item in self.items(count)]
        costs = read_costs(read_timings(out), sampled)
        # A stage over all videos runs where the driver does.
        driver_gpus = float(current_device().kind != "cpu")
        gpus = {}
        for stage in resolve_stages(recipe, request.stages):
            if not stage.uses_gpu(recipe):
                continue
            if stage.kind == "video":
                gpus[stage.name] = recipe.engine.gpus
            else:
                gpus[stage.name] = driver_gpus
        return forecast(
            costs,
            self.sizes.values[self.rows[:count]],
            self.sizes.values,
            self.settings,
            size=self.sizes.kind,
            workers=recipe.engine.workers or core_count(),
            gpus=gpus,
        )


def dry_run(
    request: RunRequest, source: Sequence[SourceEntry], settings: ForecastSettings
) -> Forecast:
    """Return what the request will take. What the sample made is left in OUT, where the run finds
    it.

    A third of the sample goes through the whole recipe, then all of it, then another third. Stages
    over the dataset are so seen at two sizes, with what only a first run pays apart. While the
    interval is too wide, as many videos again are taken in. All go through the recipe, which finds
    the earlier results. So too where a stage over the dataset ends for want of videos.
    """
    recipe = request.recipe
    collection = collect_items(source, request.limit)
    sizes = known_sizes(collection.items)
    most = max(settings.sample, settings.most)
    # A stratified sample. Each smaller one is its first part.
    rows = draw_stratified(sizes.values, most, settings.seed)
    sample = _Sample(collection, settings, sizes, rows)
    count = min(settings.sample, len(sample.rows))

    # A folder that only this recipe's forecast from these videos has, so that no other's times are
    # read.
    content = recipe.model_dump_json()
    content += "".join(item.id + item.stamp for item in sample.items(count))
    name = hashlib.sha256(content.encode()).hexdigest()[:NAME_DIGITS]
    url = f"{request.out.rstrip('/')}/{FORECAST_FOLDER}/{name}"
    sampled = replace(request, out=url, limit=None)
    out = RemotePath(url, recipe.remote)

    # A loop: it ends when the interval is narrow enough, or nothing more may be sampled.
    parts = _parts(sample.items(count))
    while True:
        try:
            for part in parts:
                run_recipe(sampled, [*part, *collection.refused])
        # Perhaps of too few videos: nothing was left of them to train on.
        except (DatasetError, StoreError) as error:
            if count == len(sample.rows):
                raise
            count = min(2 * count, len(sample.rows))
            parts = _parts(sample.items(count))
            request.say(f"the sample did not go through ({error}): {count} videos are processed")
            continue
        result = sample.forecast(request, out, count)
        larger = next_sample(result, settings)
        if larger == count:
            break
        cpu = f"CPU {_hours(result.cpu_hours)} from {count} videos"
        width = f"{half_width(result.cpu_hours):.0%}, forecast.within={settings.within:g}"
        request.say(f"{cpu} is known to {width}: {larger - count} more are processed")
        count = larger
        parts = [sample.items(count)]

    # The run finds these results under the same keys.
    copied = copy_results(out, RemotePath(request.out, recipe.remote), _stages_alone(request))
    request.say(f"{copied} results of the sample are kept for the run")
    return result


def _parts(items: Sequence[VideoItem]) -> list[Sequence[VideoItem]]:
    """Return a third of a sample, all of it, and another third, without those that nothing is left
    for."""
    # A third, rounded up, and never a single video.
    third = max(2, -(-len(items) // 3))
    parts = [items[:third], items, items[third : 2 * third]]
    return [part for part in parts if part]


def _stages_alone(request: RunRequest) -> list[str]:
    """Return the video stages whose results do not depend on which other videos there are."""
    alone: list[str] = []
    # A result that needs a dataset stage depends on all videos.
    for stage in resolve_stages(request.recipe, request.stages):
        if stage.kind == "video" and all(need in alone for need in stage.needs):
            alone.append(stage.name)
    return alone


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


SECONDS_PER_HOUR = 3600.0
SECONDS_PER_MINUTE = 60.0
BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def forecast_json(forecast: Forecast) -> str:
    """Return all numbers: seconds, bytes, tokens, hours."""
    return json.dumps(asdict(forecast), indent=2)


def format_forecast(forecast: Forecast) -> str:
    """Return a table of the stages, then what the whole will take."""
    # The head of the table, and a row per stage.
    rows = [("stage", "CPU", "95 % interval", "disk", "failed")]
    for stage in forecast.stages:
        cpu = format_seconds(stage.cpu.value)
        interval = f"{format_seconds(stage.cpu.low)} to {format_seconds(stage.cpu.high)}"
        disk = format_bytes(stage.bytes.value)
        failed = "once over all"
        if stage.kind == "video":
            failed = f"{100 * stage.failed:.0f} %"
        rows.append((stage.name, cpu, interval, disk, failed))
    # A table of the stages, each column as wide as its widest cell.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = map(str.ljust, row, widths)
        lines.append("  ".join(cells).rstrip())
    # What the whole takes.
    size_names = {
        "duration": "the videos' seconds",
        "bytes": "the files' sizes",
        "alike": "nothing: the sizes are not known",
    }
    sample = f"{forecast.videos:,} videos, from {forecast.sampled} of them"
    lines += ["", f"{sample}; by {size_names[forecast.size]}"]
    cpu = f"{_hours(forecast.cpu_hours)} in all, {_hours(forecast.cpu_left)} of them are left"
    lines.append(f"CPU: {cpu}")
    if forecast.gpu_hours.value:
        lines.append(f"GPU: {_hours(forecast.gpu_hours)}")
    for workers, hours in forecast.hours.items():
        plural = ""
        if workers > 1:
            plural = "s"
        lines.append(f"with {workers} worker{plural}: {_hours(hours)}")
    lines.append(f"disk below OUT: {_span(forecast.disk, format_bytes)}")
    if forecast.requests.value:
        lines.append(f"requests to language models: {_span(forecast.requests, '{:,.0f}'.format)}")
    if forecast.tokens.value:
        lines.append(f"tokens of language models: {_span(forecast.tokens, '{:,.0f}'.format)}")
    lines.append(f"money at the prices of the settings: {_span(forecast.money, '{:,.2f}'.format)}")
    lines.append("What no video of the sample did (a hang, a damaged file) is not foreseen.")
    return "\n".join(lines)


def _hours(hours: Interval) -> str:
    return _span(hours, lambda value: format_seconds(value * SECONDS_PER_HOUR))


def _span(interval: Interval, form: Callable[[float], str]) -> str:
    return f"{form(interval.value)} [{form(interval.low)}, {form(interval.high)}]"


def format_seconds(seconds: float) -> str:
    """Return seconds in the largest unit that leaves a number above one."""
    if seconds < 2 * SECONDS_PER_MINUTE:
        return f"{seconds:.1f} s"
    if seconds < 2 * SECONDS_PER_HOUR:
        return f"{seconds / SECONDS_PER_MINUTE:.1f} min"
    return f"{seconds / SECONDS_PER_HOUR:,.1f} h"


def format_bytes(count: float) -> str:
    """Return bytes in the largest unit that leaves a number above one."""
    for unit in BYTE_UNITS[:-1]:
        # Units are decimal, as disks are sold.
        if count < 1000:
            return f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {BYTE_UNITS[-1]}"
