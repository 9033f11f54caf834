"""A forecast as people read it, and as JSON."""

import json
from collections.abc import Callable
from dataclasses import asdict

from stepline.curate.forecast.model import Forecast, Interval

HOUR, MINUTE = 3600.0, 60.0
BYTES = ("B", "kB", "MB", "GB", "TB", "PB")


def as_json(forecast: Forecast) -> str:
    """Return all numbers: seconds, bytes, tokens, hours."""
    return json.dumps(asdict(forecast), indent=2)


def written(forecast: Forecast) -> str:
    """Return a table of the stages, then what the whole will take."""
    rows = [("stage", "CPU", "95 % interval", "disk", "failed")]
    for stage in forecast.stages:
        failed = f"{100 * stage.failed:.0f} %" if stage.kind == "video" else "once over all"
        interval = f"{time(stage.cpu.low)} to {time(stage.cpu.high)}"
        rows.append((stage.name, time(stage.cpu.value), interval, size(stage.bytes.value), failed))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)).rstrip() for row in rows]
    by = {"duration": "the videos' seconds", "bytes": "the files' sizes", "alike": "nothing: the sizes are not known"}
    lines += ["", f"{forecast.videos:,} videos, from {forecast.sampled} of them; by {by[forecast.size]}"]
    lines.append(f"CPU: {_hours(forecast.cpu_hours)}, of which {_hours(forecast.cpu_left)} are left")
    for cores, hours in forecast.hours.items():
        lines.append(f"with {cores} worker{'s' if cores > 1 else ''}: {_hours(hours)}")
    lines.append(f"disk below OUT: {_span(forecast.disk, size)}")
    if forecast.tokens.value:
        lines.append(f"tokens of language models: {_span(forecast.tokens, '{:,.0f}'.format)}")
    lines.append(f"money at the prices of the settings: {_span(forecast.money, '{:,.2f}'.format)}")
    lines.append("What no video of the sample did (a hang, a damaged file) is not foreseen.")
    return "\n".join(lines)


def _hours(hours: Interval) -> str:
    return _span(Interval(hours.value * HOUR, hours.low * HOUR, hours.high * HOUR), time)


def _span(interval: Interval, form: Callable[[float], str]) -> str:
    return f"{form(interval.value)} [{form(interval.low)}, {form(interval.high)}]"


def time(seconds: float) -> str:
    """Return seconds in the largest unit that leaves a number above one."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.1f} s"
    return f"{seconds / MINUTE:.1f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:,.1f} h"


def size(count: float) -> str:
    """Return bytes in the largest unit that leaves a number above one."""
    power = 0
    while count >= 1000 and power < len(BYTES) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.1f} {BYTES[power]}"
