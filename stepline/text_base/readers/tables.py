"""Readers of how-to texts as tables: csv (RecipeNLG's 2.2 million rows) and Parquet, a row at a
time, a text a row.

A list cell of csv is a JSON list in a string (RecipeNLG), or plain text with a step a line. A row
that breaks the rules of csv costs itself only: where a quote never closes, reading goes on at the
next line. Parquet has the same column names as JSON and csv.
"""

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from stepline.errors import DatasetError
from stepline.limits import parse_json
from stepline.parquet import ParquetError, ParquetReader
from stepline.records import Rejected
from stepline.text_base.documents import DocumentOrRejected
from stepline.text_base.readers.item import (
    DAMAGE,
    IDS,
    INGREDIENTS,
    LICENCES,
    NESTED,
    SOURCES,
    STEPS,
    TITLES,
    ItemLocation,
    open_bytes,
    read_item,
    stem,
)
from stepline.text_base.settings import TextBaseSettings

LONGEST_LINE = 4 << 20  # bytes; a longer line is skipped unread
MOST_LINES = 1_000  # lines that one quoted row may span


def read_csv(
    path: Path, settings: TextBaseSettings, licence: str | None
) -> Iterator[DocumentOrRejected]:
    """Yield the documents of a csv file with a header, and the rows left out.

    Raises DatasetError when the file cannot be read or no column holds steps.
    """
    with open_bytes(path) as file:
        rows = _Rows(file)
        header = _header(path, rows)
        try:
            file_stem = stem(path)
            for number, row in rows:
                place = ItemLocation(path.name, file_stem, f"row {number}", licence)
                if isinstance(row, str):
                    yield Rejected("document", row, location=str(place))
                else:
                    yield from _read_row(header, row, place, settings)
        except DAMAGE as error:
            yield Rejected("document", "file cut off", location=path.name, value=str(error)[:200])


def _header(path: Path, rows: "_Rows") -> list[str]:
    try:
        _, header = next(rows, (0, "empty file"))
    except DAMAGE as error:
        raise DatasetError(f"{path}: not readable ({error}); download it again") from error
    names = [] if isinstance(header, str) else [name.strip().lstrip("\ufeff") for name in header]
    if not set(names) & set(STEPS):
        raise DatasetError(
            f"{path}: no column of steps; the header must name one of {', '.join(STEPS[:4])}"
        )
    return names


def _read_row(
    header: Sequence[str], row: Sequence[str], place: ItemLocation, settings: TextBaseSettings
) -> Iterator[DocumentOrRejected]:
    if len(row) != len(header):
        yield Rejected(
            "document",
            "wrong number of columns",
            location=str(place),
            value=f"{len(row)} instead of {len(header)}",
        )
        return
    item: dict[str, object] = dict(zip(header, row, strict=True))
    for name in set(header) & {*STEPS, *INGREDIENTS}:
        try:
            item[name] = _cell(str(item[name]))
        except (ValueError, RecursionError) as error:
            yield Rejected(
                "document",
                "broken list cell",
                location=str(place),
                value=f"{name}: {str(error)[:150]}",
            )
            return
    named = next((str(item[name]) for name in TITLES if item.get(name)), "")
    key = next(
        (str(item[name]) for name in ("id", "") if item.get(name)), ""
    ) or place.key.removeprefix("row ")
    yield from read_item(item | {"id": key, "title": named}, place, settings)


def _cell(text: str) -> object:
    """Return a JSON list, or the text itself where it is none."""
    return parse_json(text) if text.lstrip().startswith("[") else text


class _Rows(Iterator[tuple[int, list[str] | str]]):
    """The rows of a csv file, each with its number from 1, or why a row was left out."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._ahead: deque[bytes] = deque()
        self._number = -1

    def __next__(self) -> tuple[int, list[str] | str]:
        line = self._line()
        while line is not None and not line.strip():
            line = self._line()
        if line is None:
            raise StopIteration
        self._number += 1
        return self._number, self._row(line)

    def _row(self, line: bytes) -> list[str] | str:
        if len(line) >= LONGEST_LINE:
            return "line too long"
        whole = self._closed(line)
        if whole is None:
            return "quote never closed"
        if b"\0" in whole:
            return "binary junk"
        try:
            text = whole.decode("utf-8")
            csv.field_size_limit(max(csv.field_size_limit(), 2 * LONGEST_LINE))
            return next(csv.reader([text], strict=True))
        except UnicodeDecodeError:
            return "not UTF-8"
        except csv.Error:
            return "broken csv row"

    def _closed(self, line: bytes) -> bytes | None:
        """Return the line and those after it up to where its quotes close; None, and they wait,
        where they never do."""
        parts = [line]
        odd, size = line.count(b'"') % 2, len(line)
        while odd:
            more = self._line() if len(parts) < MOST_LINES and size < LONGEST_LINE else None
            if more is None:
                self._ahead.extendleft(reversed(parts[1:]))
                return None
            parts.append(more)
            size += len(more)
            odd ^= more.count(b'"') % 2
        return b"".join(parts)

    def _line(self) -> bytes | None:
        """Return the next line, cut at LONGEST_LINE (the rest of it skipped), or None at the
        end."""
        if self._ahead:
            return self._ahead.popleft()
        line = self._file.readline(LONGEST_LINE)
        rest = line
        while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
            rest = self._file.readline(LONGEST_LINE)
        return line or None


BATCH = 1_000  # rows in memory at once


def read_parquet(
    path: Path, settings: TextBaseSettings, licence: str | None
) -> Iterator[DocumentOrRejected]:
    """Yield the documents of a Parquet file and the rows left out, a batch at a time.

    Raises DatasetError when it is not Parquet or no column holds steps.
    """
    try:
        table = ParquetReader(path)
    except ParquetError as error:
        raise DatasetError(f"{path}: not a Parquet file ({error}); write it again") from error
    known = {*TITLES, *STEPS, *INGREDIENTS, *IDS, *SOURCES, *LICENCES, *NESTED}
    columns = [name for name in table.columns if name in known]
    if not set(columns) & {*STEPS, *NESTED}:
        raise DatasetError(f"{path}: no column of steps; name one of them {', '.join(STEPS[:4])}")
    try:
        for number, item in enumerate(table.rows(columns, BATCH)):
            yield from read_item(
                item, ItemLocation(path.name, stem(path), str(number), licence), settings
            )
    except ParquetError as error:
        yield Rejected("document", "file cut off", location=path.name, value=str(error)[:200])
