"""Repairs rolling captions: what one cue repeats of the next is left out, and no two cues overlap."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from stepline.asr.captions.cue import Cue

TOUCHING = 0.5  # s between two cues up to which the second can be a longer version of the first


def repaired(cues: Sequence[Cue]) -> list[Cue]:
    """Return the cues with each text once, one line each, overlaps cut at their middle; needs times, sorted by start.

    A last line that the next cue begins with goes to the next; a cue that grows into the next is merged with it.
    Source: the sentencified HowTo100M of TAN; its cases are tests/asr/test_rolling.py.
    """
    single = [replace(cue, text=_lines(cue.text)) for cue in cues]
    moved = [_unrepeated(cue, following) for cue, following in pairwise([*single, Cue("", None, None)])]
    flat = [replace(cue, text=" ".join(cue.text.split())) for cue in moved if cue.text.strip()]
    return _apart(_grown(flat))


def _lines(text: str) -> str:
    return "\n".join(line for line in (" ".join(line.split()) for line in text.splitlines()) if line)


def _unrepeated(cue: Cue, following: Cue) -> Cue:
    """Leave out the last lines of a cue that the next one, touching it, begins with."""
    lines, after = cue.text.split("\n"), following.text.split("\n")
    if not _touch(cue, following):
        return cue
    for count in range(min(len(lines) - 1, len(after)), 0, -1):
        if lines[-count:] == after[:count]:
            return replace(cue, text="\n".join(lines[:-count]))
    return cue


def _grown(cues: Sequence[Cue]) -> list[Cue]:
    """Merge each cue with the next where the next one says the same and goes on."""
    found: list[Cue] = []
    for cue in cues:
        last = found[-1] if found else None
        if last is not None and _touch(last, cue) and f"{cue.text} ".startswith(f"{last.text} "):
            found[-1] = replace(cue, start=last.start, end=max(last.end or 0.0, cue.end or 0.0))
        else:
            found.append(cue)
    return found


def _touch(cue: Cue, following: Cue) -> bool:
    return cue.end is not None and following.start is not None and following.start - cue.end <= TOUCHING


def _apart(cues: Sequence[Cue]) -> list[Cue]:
    """Cut overlaps in the middle; a cue inside another takes its seconds, two that start together stay."""
    found: list[Cue] = []
    for cue in cues:
        last = found[-1] if found else None
        if last is not None and last.start is not None and last.end is not None:
            start, end = cue.start or 0.0, cue.end or 0.0
            middle = (last.end + start) / 2
            if last.end > start and last.start < middle < end:
                found[-1], cue = replace(last, end=middle), replace(cue, start=middle)
            elif last.end > start > last.start:
                found[-1] = replace(last, end=start)
        found.append(cue)
    return found
