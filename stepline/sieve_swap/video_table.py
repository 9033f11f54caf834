"""HowTo100M's tables of videos: category, task and length of each id, in arrays and not in objects."""

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.records import Record

VIDEOS, TITLES, LENGTHS = "HowTo100M_v1.csv", "task_ids.csv", "htm_vlen.csv"
TABLES = (VIDEOS, TITLES, LENGTHS)
BLOCK = 65_536  # rows held as objects at once
ID, NUMBER, WORDS = 16, 12, 48  # bytes kept of an id, a number and a category

Cells = npt.NDArray[np.bytes_]


class Table:
    """Columns of a csv file, looked up by its first: sorted ids (N,) and each other column (N,), as bytes."""

    def __init__(self, path: Path, columns: Sequence[tuple[str, int]]) -> None:
        blocks: list[list[Cells]] = [[] for _ in columns]
        for rows in _blocks(path, [name for name, _ in columns]):
            for place, (_, width) in enumerate(columns):
                blocks[place].append(np.array([row[place].encode() for row in rows], dtype=f"S{width}"))
        whole = [
            np.concatenate([np.empty(0, f"S{width}"), *parts])
            for parts, (_, width) in zip(blocks, columns, strict=True)
        ]
        order = np.argsort(whole[0], kind="stable")
        self._ids, *self._cells = (column[order] for column in whole)

    def find(self, key: str) -> list[str] | None:
        """Return the other cells of a row; None where the key is not there. The first row of a key counts."""
        wanted = key.encode()
        place = int(np.searchsorted(self._ids, wanted))
        if place == len(self._ids) or self._ids[place] != wanted:
            return None
        return [column[place].decode(errors="replace") for column in self._cells]


def _blocks(path: Path, columns: Sequence[str]) -> Iterator[list[list[str]]]:
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            rows = csv.DictReader(file)
            lacking = [column for column in columns if column not in (rows.fieldnames or ())]
            if lacking:
                raise DatasetError(f"{path}: line 1 lacks the column {lacking[0]!r}; it needs {', '.join(columns)}")
            while block := [[row[column] or "" for column in columns] for row in islice(rows, BLOCK)]:
                yield block
    except (OSError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot be read ({error}); download it again") from error


class VideoTable:
    """What the tables beside a captions file say of its videos; a table that is not there says nothing."""

    def __init__(self, folder: Path) -> None:
        def table(name: str, columns: Sequence[tuple[str, int]]) -> Table | None:
            return Table(folder / name, columns) if (folder / name).is_file() else None

        self._videos = table(VIDEOS, (("video_id", ID), ("category_1", WORDS), ("task_id", NUMBER)))
        self._lengths = table(LENGTHS, (("vid", ID), ("vlen", NUMBER)))
        self._titles = read_titles(folder / TITLES)

    def completed(self, record: Record) -> Record:
        """Return a record with its video's task, title and duration, and its category in `settings`."""
        category, task = (self._videos.find(record.video.id) if self._videos else None) or (None, None)
        length = self._lengths.find(record.video.id) if self._lengths else None
        title = self._titles.get(task, task) if task else None
        known = {"title": title, "task": title, "duration": seconds_of(length[0]) if length else None}
        video = record.video.model_copy(update={name: value for name, value in known.items() if value is not None})
        settings = record.settings | ({"category": category} if category else {})
        return record.model_copy(update={"video": video, "settings": settings})


def read_titles(path: Path) -> dict[str, str]:
    """Return task -> title of a file of "id<tab>title" lines, without a header."""
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        lines = (line.rstrip("\r\n").replace(",", "\t", "\t" not in line).partition("\t") for line in file)
        return {task.strip(): title.strip() for task, _, title in lines if title.strip()}


def seconds_of(cell: str) -> float | None:
    """Return the seconds in a cell; None where it holds no length."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
