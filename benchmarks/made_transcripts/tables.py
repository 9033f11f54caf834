"""The tables beside this file, read once: verbs, words, frames, misheard words, idle lines."""

from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@cache
def lines(name: str) -> tuple[str, ...]:
    """Return the lines of a table, without comments and empty ones."""
    text = (HERE / name).read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


@cache
def choices(name: str) -> dict[str, tuple[str, ...]]:
    """Return a table of `key: one | other` lines; "=" stands for the key itself, "0" for
    nothing."""
    table = {}
    for line in lines(name):
        key, _, rest = line.partition(": ")
        options = [option.strip() for option in rest.split(" | ")]
        table[key] = tuple({"=": key, "0": ""}.get(option, option) for option in options)
    return table


@cache
def idle_lines(half: str) -> dict[str, tuple[str, ...]]:
    """Return the idle lines of one half by kind; the halves share no line."""
    table: dict[str, list[str]] = {}
    kind, place = "", 0
    for line in lines("idle_lines.txt"):
        if line.startswith("["):
            kind, place = line.strip("[]"), 0
            continue
        place += 1
        if _half(place) == half:
            table.setdefault(kind, []).append(line)
    return {kind: tuple(found) for kind, found in table.items()}


@cache
def frames(half: str) -> tuple[str, ...]:
    """Return the frames of one half."""
    return tuple(line for place, line in enumerate(lines("frames.txt"), 1) if _half(place) == half)


def _half(place: int) -> str:
    return "development" if place % 2 else "test"
