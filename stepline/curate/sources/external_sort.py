"""Entries of a source in the order of their ids, however many there are: blocks sorted on disk, then
merged. An id that comes again is refused."""

import heapq
import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

from stepline.curate.stage import SourceEntry, VideoItem, rejected_video
from stepline.records import Rejected

# id, position in the source, 1 for an item, its cells
Row: TypeAlias = tuple[str, int, int, list[object]]

BLOCK_ROWS = 100_000  # entries sorted in memory together
MAX_ID_CHARS = 200  # an id names files
# reasons of refused entries
REPEATED_ID = (
    "its id came before in the source; ids must be unique, "
    "so give the videos other names or a list with ids"
)
INVALID_ID = (
    "its id is not a plain name "
    "(empty, over 200 letters, or with a slash, a line break or a control character)"
)

_item_cells = attrgetter(*(field.name for field in fields(VideoItem)))


def sort_by_id(
    entries: Iterable[SourceEntry], block_rows: int = BLOCK_ROWS
) -> Iterator[SourceEntry]:
    """Yield entries sorted by id. Of those with one id the first of the source counts, the others
    are refused.

    At most `block_rows` entries are held. More go through a temporary folder.
    """
    # The position comes second, so that of one id the first of the source sorts first.
    rows = itertools.starmap(_row, enumerate(entries))
    block = sorted(islice(rows, block_rows))
    if len(block) < block_rows:
        yield from _refuse_repeated(block)
        return
    with tempfile.TemporaryDirectory(prefix="stepline-order-") as folder:
        files: list[Path] = []
        # Blocks are sorted in memory and merged from disk.
        while block:
            path = Path(folder) / str(len(files))
            _write_block(block, path)
            files.append(path)
            block = sorted(islice(rows, block_rows))
        blocks = map(_read_block, files)
        yield from _refuse_repeated(heapq.merge(*blocks))


def _refuse_repeated(rows: Iterable[Row]) -> Iterator[SourceEntry]:
    last: str | None = None
    for id, _, is_item, cells in rows:
        if not is_item:
            yield rejected_video(*cells)  # type: ignore[arg-type]   # an id and a reason
        elif id == last:
            yield rejected_video(id, REPEATED_ID)
        else:
            yield VideoItem(*cells)  # type: ignore[arg-type]   # the fields' own types
            last = id


def _row(position: int, entry: SourceEntry) -> Row:
    id = entry.id
    if isinstance(entry, Rejected):
        reason = entry.reason
    elif _is_plain(id):
        return id, position, 1, list(_item_cells(entry))
    else:
        reason = INVALID_ID
    return id, position, 0, [id[:MAX_ID_CHARS] or f"item {position + 1}", reason]


def _is_plain(id: str) -> bool:
    if not 0 < len(id) <= MAX_ID_CHARS:
        return False
    return id.isprintable() and not {"/", "\\"} & set(id)


def _write_block(rows: Sequence[Row], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


def _read_block(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            id, position, is_item, cells = json.loads(line)
            yield id, position, is_item, cells
