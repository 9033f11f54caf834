"""Readers of how-to texts as tables: csv (RecipeNLG's 2.2 million rows) and Parquet, read row by
row, one text per row.

A list cell of csv is a JSON list in a string (RecipeNLG), or plain text with one step per line. A
row that breaks the rules of csv costs itself only: where a quote never closes, reading goes on at
the next line. Parquet has the same column names as JSON and csv.
"""

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from stepline.errors import DatasetError
from stepline.files.parquet import ParquetError, ParquetReader
from stepline.limits import parse_json
from stepline.sieve_swap.text_base.documents import DocumentOrRejected
from stepline.sieve_swap.text_base.readers.item import (
    FILE_DAMAGE,
    ID_FIELDS,
    INGREDIENT_FIELDS,
    LICENCE_FIELDS,
    NESTED_FIELDS,
    SOURCE_FIELDS,
    STEP_FIELDS,
    TITLE_FIELDS,
    SourceFile,
    open_unpacked,
    read_item,
)

MAX_LINE_BYTES = 4 << 20  # a longer line is skipped unread
MAX_ROW_LINES = 1_000  # lines that one quoted row may span
BATCH_ROWS = 1_000  # rows of a Parquet file in memory at a time
STEP_COLUMNS = ", ".join(STEP_FIELDS[:4])  # some of their names, for errors


def read_csv(file: SourceFile) -> Iterator[DocumentOrRejected]:
    """Yield the documents of a csv file with a header, and the rows left out.

    Raises DatasetError when the file cannot be read or no column holds steps.
    """
    with open_unpacked(file.path) as stream:
        rows = _Rows(stream)
        header = _header(file, rows)
        try:
            for number, row in rows:
                if isinstance(row, str):
                    yield file.reject(row, key=f"row {number}")
                else:
                    yield from _read_row(header, row, number, file)
        except FILE_DAMAGE as error:
            yield file.reject("file cut off", str(error)[:200])


def _header(file: SourceFile, rows: "_Rows") -> list[str]:
    try:
        _, header = next(rows, (0, "empty file"))
    except FILE_DAMAGE as error:
        raise DatasetError(f"{file.path}: not readable ({error}); download it again") from error
    names = [] if isinstance(header, str) else [name.strip().lstrip("\ufeff") for name in header]
    if not set(names) & set(STEP_FIELDS):
        raise DatasetError(
            f"{file.path}: no column of steps; the header must name one of {STEP_COLUMNS}"
        )
    return names


def _read_row(
    header: Sequence[str], row: Sequence[str], number: int, file: SourceFile
) -> Iterator[DocumentOrRejected]:
    key = f"row {number}"
    if len(row) != len(header):
        yield file.reject(
            "wrong number of columns", f"{len(row)} instead of {len(header)}", key=key
        )
        return
    item: dict[str, object] = dict(zip(header, row, strict=True))
    # A list of steps may be JSON in its cell.
    for name in set(header) & {*STEP_FIELDS, *INGREDIENT_FIELDS}:
        text = str(item[name])
        if not text.lstrip().startswith("["):
            continue
        try:
            item[name] = parse_json(text)
        except (ValueError, RecursionError) as error:
            yield file.reject("broken list cell", f"{name}: {str(error)[:150]}", key=key)
            return
    title = next((str(item[name]) for name in TITLE_FIELDS if item.get(name)), "")
    identity = item.get("id") or item.get("") or str(number)
    yield from read_item(item | {"id": identity, "title": title}, key, file)


class _Rows(Iterator[tuple[int, list[str] | str]]):
    """The rows of a csv file, each with its number from 1, or why a row was left out."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._ahead: deque[bytes] = deque()
        # the header is row 0
        self._number = -1

    def __next__(self) -> tuple[int, list[str] | str]:
        line = self._read_line()
        while line is not None and not line.strip():
            line = self._read_line()
        if line is None:
            raise StopIteration
        self._number += 1
        return self._number, self._row(line)

    def _row(self, line: bytes) -> list[str] | str:
        if len(line) >= MAX_LINE_BYTES:
            return "line too long"
        data = self._join_quoted_lines(line)
        if data is None:
            return "quote never closed"
        if b"\0" in data:
            return "binary junk"
        try:
            text = data.decode("utf-8")
            # The limit is the whole process's, so it is never lowered.
            csv.field_size_limit(max(csv.field_size_limit(), 2 * MAX_LINE_BYTES))
            return next(csv.reader([text], strict=True))
        except UnicodeDecodeError:
            return "not UTF-8"
        except csv.Error:
            return "broken csv row"

    def _join_quoted_lines(self, line: bytes) -> bytes | None:
        """Return the line and those after it up to where its quotes close. Return None, and they
        wait, where they never do."""
        parts = [line]
        size = len(line)
        # A cell in quotes may hold line breaks. An odd number of quotes is still open.
        quotes = line.count(b'"')
        while quotes % 2:
            may_continue = len(parts) < MAX_ROW_LINES and size < MAX_LINE_BYTES
            more = self._read_line() if may_continue else None
            if more is None:
                # The lines behind an open quote are read again, each as a row.
                self._ahead.extendleft(reversed(parts[1:]))
                return None
            parts.append(more)
            size += len(more)
            quotes += more.count(b'"')
        return b"".join(parts)

    def _read_line(self) -> bytes | None:
        """Return the next line, cut at MAX_LINE_BYTES (the rest of it skipped), or None at the
        end."""
        if self._ahead:
            return self._ahead.popleft()
        line = self._file.readline(MAX_LINE_BYTES)
        rest = line
        while len(rest) == MAX_LINE_BYTES and not rest.endswith(b"\n"):
            rest = self._file.readline(MAX_LINE_BYTES)
        return line or None


def read_parquet(file: SourceFile) -> Iterator[DocumentOrRejected]:
    """Yield the documents of a Parquet file and the rows left out, a batch at a time.

    Raises DatasetError when it is not Parquet or no column holds steps.
    """
    try:
        table = ParquetReader(file.path)
    except ParquetError as error:
        raise DatasetError(f"{file.path}: not a Parquet file ({error}); write it again") from error
    step_columns = {*STEP_FIELDS, *NESTED_FIELDS}
    other_columns = {*TITLE_FIELDS, *INGREDIENT_FIELDS, *ID_FIELDS, *SOURCE_FIELDS, *LICENCE_FIELDS}
    columns = [name for name in table.columns if name in step_columns | other_columns]
    if not step_columns.intersection(columns):
        raise DatasetError(f"{file.path}: no column of steps; name one of them {STEP_COLUMNS}")
    try:
        for number, item in enumerate(table.rows(columns, BATCH_ROWS)):
            yield from read_item(item, str(number), file)
    except ParquetError as error:
        yield file.reject("file cut off", str(error)[:200])
