"""A sample of a run's videos worked on for real, beside the run's own OUT; the forecast that
follows, and its texts."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from stepline.curate.driver import RunRequest, collect_items, run_recipe
from stepline.curate.forecast.costs import read_costs
from stepline.curate.forecast.model import (
    Forecast,
    Interval,
    draw_stratified,
    forecast,
    half_width,
    known_sizes,
    next_sample,
)
from stepline.curate.settings import ForecastSettings
from stepline.curate.stage import VideoItem, resolve_stages
from stepline.curate.store.results import CELLS, FAILURES
from stepline.curate.store.run_log import read_timings
from stepline.device import core_count, current_device
from stepline.errors import DatasetError, StoreError
from stepline.records import Rejected
from stepline.remote import RemotePath

FORECAST = "forecast"  # below OUT


def dry_run(
    request: RunRequest, source: Sequence[VideoItem | Rejected], settings: ForecastSettings
) -> Forecast:
    """Return what the request will take. What the sample made is left in OUT, where the run finds
    it done.

    A third of the sample goes through the whole recipe, then all of it, then another third: stages
    over the dataset are so seen at two sizes, with what only a first run pays apart. While the
    interval is too wide, as many videos again are taken in, and all go through the recipe, which
    finds the earlier ones done; so too where a stage over the dataset ends for want of videos.
    """
    recipe = request.recipe
    collection = collect_items(source, request.limit)
    sizes = known_sizes(collection.items)
    drawn = draw_stratified(sizes.values, max(settings.sample, settings.most), settings.seed)
    items = [collection.items[row] for row in drawn]  # of which the first so many are the sample
    count = min(settings.sample, len(items))
    # A folder that only this recipe's forecast from these videos has, so that no other's times are
    # read.
    known = recipe.model_dump_json() + "".join(item.id + item.stamp for item in items[:count])
    folder = (
        f"{request.out.rstrip('/')}/{FORECAST}/{hashlib.sha256(known.encode()).hexdigest()[:12]}"
    )
    sampled = replace(request, out=folder, limit=None)
    out = RemotePath(sampled.out, recipe.places)
    stages = list(resolve_stages(recipe, request.stages))
    workers = recipe.engine.workers or core_count()
    # a stage over all videos runs where the driver does
    driver_gpus = float(current_device().kind != "cpu")
    gpus = {
        stage.name: recipe.engine.gpus if stage.kind == "video" else driver_gpus
        for stage in stages
        if stage.gpu(recipe)
    }

    parts = _parts(items[:count])
    while True:
        try:
            for part in parts:
                run_recipe(sampled, [*part, *collection.refused])
        # perhaps of too few videos: nothing was left of them to train on
        except (DatasetError, StoreError) as error:
            if count == len(items):
                raise
            count = min(2 * count, len(items))
            parts = _parts(items[:count])
            request.say(f"the sample did not go through ({error}): {count} videos are worked on")
            continue
        costs = read_costs(read_timings(out), [item.id for item in items[:count]])
        chosen = sizes.values[drawn[:count]]
        told = forecast(
            costs, chosen, sizes.values, settings, size=sizes.kind, workers=workers, gpus=gpus
        )
        if (more := next_sample(told, settings)) == count:
            break
        known_to = f"CPU {_hours(told.cpu_hours)} from {count} videos is known to {half_width(told.cpu_hours):.0%}"
        request.say(
            f"{known_to}, forecast.within={settings.within:g}: {more - count} more are worked on"
        )
        count, parts = more, [items[:more]]

    # Video stages whose results do not hang on which other videos there are.
    alone: list[str] = []
    for stage in stages:
        if stage.kind == "video" and all(need in alone for need in stage.needs):
            alone.append(stage.name)
    kept = copy_results(out, RemotePath(request.out, recipe.places), alone)
    request.say(f"{kept} results of the sample are kept for the run")
    return told


def _parts(items: Sequence[VideoItem]) -> list[Sequence[VideoItem]]:
    """Return a third of a sample, all of it, and another third, without those that nothing is left
    for."""
    third = max(2, -(-len(items) // 3))
    return [part for part in (items[:third], items, items[third : 2 * third]) if part]


def copy_results(source: RemotePath, target: RemotePath, stages: Sequence[str]) -> int:
    """Copy the results of some stages from one OUT to another that lacks them; return how many."""
    count = 0
    for folder in (f"{kind}/{stage}" for kind in (CELLS, FAILURES) for stage in stages):
        results = source / folder
        if results.local is not None and not results.exists():
            continue
        for entry in results.list():
            made, copy = results / entry.name, target / f"{folder}/{entry.name}"
            if copy.exists():
                continue
            if made.local is not None and copy.local is not None:
                copy.local.parent.mkdir(parents=True, exist_ok=True)
                os.link(made.local, copy.local)  # there whole or not at all
            else:
                copy.write(made.read())
            count += 1
    return count


HOUR, MINUTE = 3600.0, 60.0
BYTES = ("B", "kB", "MB", "GB", "TB", "PB")


def forecast_json(forecast: Forecast) -> str:
    """Return all numbers: seconds, bytes, tokens, hours."""
    return json.dumps(asdict(forecast), indent=2)


def format_forecast(forecast: Forecast) -> str:
    """Return a table of the stages, then what the whole will take."""
    rows = [("stage", "CPU", "95 % interval", "disk", "failed")]
    for stage in forecast.stages:
        failed = f"{100 * stage.failed:.0f} %" if stage.kind == "video" else "once over all"
        interval = f"{format_seconds(stage.cpu.low)} to {format_seconds(stage.cpu.high)}"
        rows.append(
            (
                stage.name,
                format_seconds(stage.cpu.value),
                interval,
                format_bytes(stage.bytes.value),
                failed,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    by = {
        "duration": "the videos' seconds",
        "bytes": "the files' sizes",
        "alike": "nothing: the sizes are not known",
    }
    lines += [
        "",
        f"{forecast.videos:,} videos, from {forecast.sampled} of them; by {by[forecast.size]}",
    ]
    lines.append(
        f"CPU: {_hours(forecast.cpu_hours)}, of which {_hours(forecast.cpu_left)} are left"
    )
    if forecast.gpu_hours.value:
        lines.append(f"GPU: {_hours(forecast.gpu_hours)}")
    for workers, hours in forecast.hours.items():
        lines.append(f"with {workers} worker{'s' if workers > 1 else ''}: {_hours(hours)}")
    lines.append(f"disk below OUT: {_span(forecast.disk, format_bytes)}")
    if forecast.requests.value:
        lines.append(f"requests to language models: {_span(forecast.requests, '{:,.0f}'.format)}")
    if forecast.tokens.value:
        lines.append(f"tokens of language models: {_span(forecast.tokens, '{:,.0f}'.format)}")
    lines.append(f"money at the prices of the settings: {_span(forecast.money, '{:,.2f}'.format)}")
    lines.append("What no video of the sample did (a hang, a damaged file) is not foreseen.")
    return "\n".join(lines)


def _hours(hours: Interval) -> str:
    return _span(Interval(hours.value * HOUR, hours.low * HOUR, hours.high * HOUR), format_seconds)


def _span(interval: Interval, form: Callable[[float], str]) -> str:
    return f"{form(interval.value)} [{form(interval.low)}, {form(interval.high)}]"


def format_seconds(seconds: float) -> str:
    """Return seconds in the largest unit that leaves a number above one."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.1f} s"
    return f"{seconds / MINUTE:.1f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:,.1f} h"


def format_bytes(count: float) -> str:
    """Return bytes in the largest unit that leaves a number above one."""
    power = 0
    while count >= 1000 and power < len(BYTES) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.1f} {BYTES[power]}"
