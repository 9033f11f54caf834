"""Entries in the order of their ids, however many: sorted runs on disk, merged; an id that comes again is refused."""

import heapq
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

from stepline.curate.items import Item, Refused

Entry: TypeAlias = Item | Refused
Row: TypeAlias = tuple[str, int, int, list[object]]  # id, place in the source, 1 for an item, its cells

RUN = 100_000  # entries sorted in memory at once
TWICE = "its id came before in the source; ids must be unique, so give the videos other names or a list with ids"
BAD = "its id is no plain name (empty, over 200 letters, or with a slash, a line break or a control character)"
LONGEST = 200  # letters of an id, which names files

_cells = attrgetter(*(field.name for field in fields(Item)))
_refusal = attrgetter("id", "reason")


def in_order(entries: Iterable[Entry], run: int = RUN) -> Iterator[Entry]:
    """Yield entries sorted by id; of those with one id the first of the source counts, the others are refused.

    At most `run` entries are held; more go through a temporary folder.
    """
    rows = (_row(place, entry) for place, entry in enumerate(entries))
    first = sorted(islice(rows, run))
    if len(first) < run:
        yield from _once(first)
        return
    with tempfile.TemporaryDirectory(prefix="stepline-order-") as folder:
        runs = [_written(first, Path(folder) / "0")]
        while block := sorted(islice(rows, run)):
            runs.append(_written(block, Path(folder) / str(len(runs))))
        del first, block
        yield from _once(heapq.merge(*map(_read, runs)))


def _once(rows: Iterable[Row]) -> Iterator[Entry]:
    last: str | None = None
    for id, _, is_item, cells in rows:
        if is_item and id == last:
            yield Refused(id, TWICE)
            continue
        yield Item(*cells) if is_item else Refused(*cells)  # type: ignore[arg-type]   # the fields' own types
        last = id if is_item else last


def _row(place: int, entry: Entry) -> Row:
    if isinstance(entry, Refused):
        return entry.id, place, 0, list(_refusal(entry))
    if not entry.id or len(entry.id) > LONGEST or "/" in entry.id or "\\" in entry.id or not entry.id.isprintable():
        return entry.id, place, 0, [entry.id[:LONGEST], BAD]
    return entry.id, place, 1, list(_cells(entry))


def _written(rows: Sequence[Row], path: Path) -> Path:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def _read(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            id, place, is_item, cells = json.loads(line)
            yield id, place, is_item, cells
