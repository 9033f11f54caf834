"""Which of a source's videos are wanted, and all of them in the order of their ids.

Wanted by category, by a list of ids, and none that evaluates. Sorted however many there are: by
runs on disk that are merged; an id that comes again is refused.
"""

import heapq
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

from stepline.curate.settings import SourceSettings
from stepline.curate.stage import VideoItem, rejected_video
from stepline.datasets.excluded import read_excluded
from stepline.datasets.files import read_text
from stepline.errors import DatasetError
from stepline.records import Rejected

Entry: TypeAlias = VideoItem | Rejected
# id, position in the source, 1 for an item, its cells
Row: TypeAlias = tuple[str, int, int, list[object]]

RUN = 100_000  # entries sorted in memory at once
TWICE = "its id came before in the source; ids must be unique, so give the videos other names or a list with ids"
BAD = "its id is no plain name (empty, over 200 letters, or with a slash, a line break or a control character)"
LONGEST = 200  # letters of an id, which names files

_cells = attrgetter(*(field.name for field in fields(VideoItem)))


def sort_by_id(entries: Iterable[Entry], run: int = RUN) -> Iterator[Entry]:
    """Yield entries sorted by id; of those with one id the first of the source counts, the others
    are refused.

    At most `run` entries are held; more go through a temporary folder.
    """
    rows = (_row(position, entry) for position, entry in enumerate(entries))
    first = sorted(islice(rows, run))
    if len(first) < run:
        yield from _refuse_repeated(first)
        return
    with tempfile.TemporaryDirectory(prefix="stepline-order-") as folder:
        runs = [_write_run(first, Path(folder) / "0")]
        while block := sorted(islice(rows, run)):
            runs.append(_write_run(block, Path(folder) / str(len(runs))))
        del first, block
        yield from _refuse_repeated(heapq.merge(*map(_read_run, runs)))


def _refuse_repeated(rows: Iterable[Row]) -> Iterator[Entry]:
    last: str | None = None
    for id, _, is_item, cells in rows:
        if is_item and id == last:
            yield rejected_video(id, TWICE)
            continue
        yield VideoItem(*cells) if is_item else rejected_video(*cells)  # type: ignore[arg-type]   # the fields' own types
        last = id if is_item else last


def _row(position: int, entry: Entry) -> Row:
    if isinstance(entry, Rejected):
        return entry.id, position, 0, [entry.id or f"item {position + 1}", entry.reason]
    if (
        not entry.id
        or len(entry.id) > LONGEST
        or "/" in entry.id
        or "\\" in entry.id
        or not entry.id.isprintable()
    ):
        return entry.id, position, 0, [entry.id[:LONGEST] or f"item {position + 1}", BAD]
    return entry.id, position, 1, list(_cells(entry))


def _write_run(rows: Sequence[Row], path: Path) -> Path:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def _read_run(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            id, position, is_item, cells = json.loads(line)
            yield id, position, is_item, cells


# HTM-370K is this category of HowTo100M; NaSVA section 4.1
PRESETS = {"htm-370k": ("Food and Entertaining",)}
ABSENT = "is in the list of wanted ids, and not in the source"
SHOWN = 8  # categories that an error names


class SourceFilter:
    """Keeps the videos that the settings want. Raises DatasetError for lists that cannot be
    read."""

    def __init__(self, settings: SourceSettings) -> None:
        self._categories = settings.categories or (
            PRESETS[settings.preset] if settings.preset else ()
        )
        self._wanted = None if settings.ids is None else _ids(settings.ids)
        self._excluded = read_excluded(settings.excluded)
        self._seen: set[str] = set()
        self._others: set[str] = set()
        self._kept = False

    def accepts(self, id: str, category: str | None) -> bool:
        """Return whether a video is wanted; asked before its files are looked at."""
        if self._wanted is not None:
            if id not in self._wanted:
                return False
            self._seen.add(id)
        if self._categories and category not in self._categories:
            if len(self._others) < SHOWN:
                self._others.add(str(category))
            return False
        self._kept = True
        return True

    def apply(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the wanted entries. Videos of evaluation sets, and wanted ids that never come, are
        refused.

        What is of another category or not in the list of ids is no part of the run, and is not told
        one by one.
        Raises DatasetError where the wanted categories never come, though others do.
        """
        for entry in entries:
            if isinstance(entry, Rejected):
                yield entry
            elif self.accepts(entry.id, entry.category):
                held = self._excluded.sets_with(entry.id)
                yield (
                    rejected_video(entry.id, f"evaluates: a video of {', '.join(held)}")
                    if held
                    else entry
                )
        if self._others and not self._kept:
            wanted, known = ", ".join(self._categories), ", ".join(sorted(self._others))
            raise DatasetError(
                f"source.categories {wanted}: no video is of them; the source has {known}"
            )
        for id in sorted((self._wanted or frozenset()) - self._seen):
            yield rejected_video(id, ABSENT)


def _ids(path: Path) -> frozenset[str]:
    """Return the first words of a file's lines; # begins a comment line."""
    lines = (line.split() for line in read_text(path).splitlines() if not line.startswith("#"))
    ids = frozenset(words[0].rstrip(",") for words in lines if words)
    if not ids:
        raise DatasetError(f"{path}: holds no id; give one a line")
    return ids
