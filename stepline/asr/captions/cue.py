"""One caption cue, as every format gives it before anything is repaired."""

import math
from dataclasses import dataclass

from stepline.records import Word

LATEST = 360_000.0  # s (100 h); a time past it is a broken one


@dataclass(frozen=True)
class Cue:
    """Text shown from start to end seconds; None where the file gives no usable time.

    text may hold line breaks. words: where the format times them, each with the space before it.
    """

    text: str
    start: float | None
    end: float | None
    words: tuple[Word, ...] = ()


def second(value: object) -> float | None:
    """Return a time in seconds from what a file holds: a number or its text; None for anything else, NaN, infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def objection(cue: Cue) -> str | None:
    """Return why the cue's times cannot be used, or None when they can."""
    if cue.start is None or cue.end is None:
        return "the caption has no time"
    if cue.end > LATEST or cue.start > LATEST:
        return f"its time lies past {LATEST:.0f} s"
    if cue.end <= max(0.0, cue.start):
        return f"it ends at {cue.end:.2f} s, not after its start at {cue.start:.2f} s"
    return None
