"""The tables next to this file, read once: verbs, words, frames, misheard words, idle lines."""

from functools import cache
from pathlib import Path

TABLE_FOLDER = Path(__file__).parent


@cache
def lines(name: str) -> tuple[str, ...]:
    """Return the lines of a table, without comments and empty ones."""
    text = (TABLE_FOLDER / name).read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


@cache
def choices(name: str) -> dict[str, tuple[str, ...]]:
    """Return a table of `key: one | other` lines. "=" means the key itself, "0" nothing."""
    table = {}
    for line in lines(name):
        key, _, rest = line.partition(": ")
        meanings = {"=": key, "0": ""}
        options = []
        for text in rest.split(" | "):
            option = text.strip()
            options.append(meanings.get(option, option))
        table[key] = tuple(options)
    return table


@cache
def idle_lines(half: str) -> dict[str, tuple[str, ...]]:
    """Return the idle lines of one half by kind. The halves share no line."""
    table: dict[str, list[str]] = {}
    kind = ""
    number = 0
    for line in lines("idle_lines.txt"):
        if line.startswith("["):
            kind = line.strip("[]")
            number = 0
            continue
        number += 1
        if _half(number) == half:
            table.setdefault(kind, []).append(line)
    return {kind: tuple(texts) for kind, texts in table.items()}


@cache
def frames(half: str) -> tuple[str, ...]:
    """Return the frames of one half."""
    frames_of_half = []
    for number, line in enumerate(lines("frames.txt"), start=1):
        if _half(number) == half:
            frames_of_half.append(line)
    return tuple(frames_of_half)


def _half(number: int) -> str:
    return "development" if number % 2 else "test"
