"""Times as people and language models write them."""

import math
import re

from stepline.datasets.source import Tree

_CLOCK = re.compile(r"(?:(\d{1,4}):)?(\d{1,5}):(\d{1,2}(?:[.,]\d{1,9})?)")
# as Python, NumPy and pandas write a float: up to 17 digits after the point, or an exponent
_PLAIN = re.compile(r"(-?\d{1,20}(?:\.\d{0,30})?(?:e[+-]?\d{1,3})?)\s*(?:s|sec|secs|seconds?)?", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*(?:-->|–|—|-|\bto\b)\s*")
SIXTY = 60  # seconds a minute, minutes an hour


def seconds(value: Tree) -> float | None:
    """Return the seconds of a number, "95.2", "95.2 s", "01:20", "1:02:03.5"; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _finite(value)
    if not isinstance(value, str):
        return None
    text = value.strip().strip("[]()<>")
    plain = _PLAIN.fullmatch(text)
    return _finite(float(plain[1])) if plain else _clock(text)


def _clock(text: str) -> float | None:
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    hours, minutes, rest = found[1], int(found[2]), float(found[3].replace(",", "."))
    if rest >= SIXTY or (hours is not None and minutes >= SIXTY):
        return None
    return SIXTY * (SIXTY * int(hours or 0) + minutes) + rest


def _finite(value: int | float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def interval(value: Tree) -> tuple[float, float] | None:
    """Return the two times of a list of two or of text such as "01:20 - 01:35"; None for anything else."""
    parts = _BETWEEN.split(value.strip()) if isinstance(value, str) else value
    if not isinstance(parts, list) or len(parts) != 2:
        return None
    start, end = seconds(parts[0]), seconds(parts[1])
    return None if start is None or end is None else (start, end)
