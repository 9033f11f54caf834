"""HowTo100M's table of one video: a csv with the columns start, end, text."""

import csv
import io

from stepline.asr.captions.cue import Cue, second
from stepline.errors import CaptionError

COLUMNS = ("start", "end", "text")


def is_table(text: str) -> bool:
    """Tell whether the first line names the columns start, end and text."""
    return set(COLUMNS) <= set(_names(text.lstrip("\n").split("\n", 1)[0]))


def read_table(text: str, name: str) -> list[Cue]:
    """Return the cues of a csv with columns start, end (seconds), text in any order; raises CaptionError."""
    rows = csv.reader(io.StringIO(text.lstrip("\n")))
    try:
        header = [column.strip().lower() for column in next(rows, [])]
        if not set(COLUMNS) <= set(header):
            raise CaptionError(f"{name}, line 1: needs the columns start,end,text; it has {','.join(header)[:80]!r}")
        start, end, said = (header.index(column) for column in COLUMNS)
        return [_cue(row, (start, end, said), name, rows.line_num) for row in rows if any(row)]
    except csv.Error as error:
        raise CaptionError(f"{name}, line {rows.line_num}: no valid csv ({error}); correct that line") from error


def _cue(row: list[str], places: tuple[int, int, int], name: str, line: int) -> Cue:
    if len(row) <= max(places):
        raise CaptionError(f"{name}, line {line}: {len(row)} columns, needs start, end, text; add what is missing")
    start, end, text = (row[place] for place in places)
    return Cue(text, second(start), second(end))


def _names(line: str) -> list[str]:
    return [part.strip().strip('"').lower() for part in line.split(",")]
