"""Lines with times in a text, as language models and descriptions of videos write them.

00:01:20 - title                                     a chapter: its end is set by rule
1. 01:20 - 01:35: mix        - mix (01:20 - 01:35)   a segment
80.0 - 95.5 seconds, mix. 97.0 - 101.0 seconds, ...  several segments on a line (TimeChat)
"""

import re
from typing import NamedTuple

from stepline.datasets.predictions.clock import seconds
from stepline.datasets.predictions.found import Found, Segment

NO_TIMES = "a listed item without times"
NO_END = "has a start but no end, where others have one"

_TIME = r"(?:\d{1,4}:)?\d{1,5}:\d{2}(?:[.,]\d{1,9})?"
_DASH = r"\s{0,4}(?:-->|–|—|-|to)\s{0,4}"
_NUMBER = r"\W{0,8}(?:\d{1,3}[.)]\W{1,8})?"
_HEAD = re.compile(rf"{_NUMBER}\[?({_TIME})\]?(?:{_DASH}\[?({_TIME})\]?)?[\s\-–—:.,|*)]+(\S.*)")
_TAIL = re.compile(rf"[(\[]({_TIME})(?:{_DASH}({_TIME}))?[)\]]\W{{0,8}}$")
_SECONDS = r"\d{1,7}(?:\.\d{1,6})?"
# only where a sentence begins: "heat it for 2 - 3 seconds" is no time of the video
_SPOKEN = re.compile(rf"(?:^|(?<=[.;!?]\s))({_SECONDS}){_DASH}({_SECONDS})\s?(?:s|secs?|seconds)\b[\s,:]{{0,4}}")
_ITEM = re.compile(r"\s{0,8}(?:\d{1,3}[.)]|[-*•])\s+\S")
_LISTED = re.compile(_NUMBER)


class Line(NamedTuple):
    """A text with its start and perhaps its end, as they are written, and its place in the file."""

    start: str
    end: str | None
    text: str
    where: str


def read_lines(found: Found, text: str, name: str, stem: str) -> None:
    """Add the lines that carry times; listed items without times are noted, other lines are prose."""
    rows: list[Line] = []
    bare: list[tuple[str, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        where = f"{name}: line {number}"
        own = _timed(line.strip(), where)
        rows += own
        if not own and _ITEM.match(line):
            bare.append((where, line.strip()))
    if not rows or not found.opens(stem, name):
        return
    for where, item in bare:
        found.skip(where, item, NO_TIMES)
    if any(row.end is not None for row in rows):
        _segments(found, stem, rows)
    else:
        starts = [(start, row.text, row.where) for row in rows if (start := seconds(row.start)) is not None]
        found.chapters(stem, starts)


def _timed(line: str, where: str) -> list[Line]:
    head = _HEAD.match(line)
    if head is not None:
        return [Line(head[1], head[2], head[3].strip(), where)]
    listed = _LISTED.match(line)
    body = line[listed.end() :] if listed else line
    tail = _TAIL.search(body)
    if tail is not None:
        return [Line(tail[1], tail[2], body[: tail.start()].strip(), where)]
    spoken = list(_SPOKEN.finditer(body))
    ends = [match.start() for match in spoken[1:]] + [len(body)]
    return [Line(m[1], m[2], body[m.end() : end].strip(), where) for m, end in zip(spoken, ends, strict=False)]


def _segments(found: Found, video: str, rows: list[Line]) -> None:
    for row in rows:
        start, end = seconds(row.start), seconds(row.end)
        if start is None or end is None:
            found.skip(row.where, row.text, NO_END)
        elif not row.text:
            found.skip(row.where, "", "has times but no text")
        else:
            found.segments[video].append(Segment(start, end, row.text))
