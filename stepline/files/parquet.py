"""Reads untrusted Parquet files as plain values, with errors that name column and row."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from stepline.errors import StoreError, first_line

if TYPE_CHECKING:
    import pyarrow as arrow


BATCH_ROWS = 2000  # records of a Parquet file held together. Each is some 10 KiB


def read_text_column(path: Path, column: str) -> Iterator[str]:
    """Yield the cells of a Parquet column, "" for empty ones. Raises StoreError."""
    from pyarrow import types

    try:
        table = ParquetReader(path)
        if column not in table.columns:
            has = f"it has {', '.join(table.columns)[:200]}" if table.columns else "it has none"
            raise StoreError(
                f"{path}: lacks the column {column!r}, {has}; give records that Stepline wrote"
            )
        if not types.is_string(table.schema.field(column).type):
            raise StoreError(
                f"{path}: its column {column!r} holds no text; give records that Stepline wrote"
            )
        yield from (row[column] or "" for row in table.rows([column]))
    except ParquetError as error:
        raise StoreError(
            f"{path}: not a readable Parquet file ({error}); write it again"
        ) from error


class ParquetError(ValueError):
    """A damaged Parquet file. The message names the column and row if known."""


class ParquetReader:
    """Reader of an untrusted Parquet file.

    columns: the names of its columns. schema: Arrow's. Every method raises ParquetError for damage.
    """

    def __init__(self, file: Path | BinaryIO) -> None:
        import pyarrow.parquet as parquet

        with _parquet_damage():
            self._file = parquet.ParquetFile(file)
            self.schema = self._file.schema_arrow
            self.columns: list[str] = list(self.schema.names)

    def rows(
        self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows as plain values. size: rows in memory. columns: None for all."""
        with _parquet_damage():
            row = 0
            for batch in self._file.iter_batches(batch_size=size, columns=columns):
                yield from _plain_rows(batch, row)
                row += len(batch)

    def group(self, number: int) -> list[dict[str, Any]]:
        """Return the rows of one row group."""
        with _parquet_damage():
            batches = self._file.read_row_group(number).to_batches()
            return [row for batch in batches for row in _plain_rows(batch, 0)]

    def table(self) -> "arrow.Table":
        """Return the whole file as an Arrow table with valid texts."""
        with _parquet_damage():
            table = self._file.read()
            table.validate(full=True)
            return table


def _plain_rows(batch: "arrow.RecordBatch", begin: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch as Python values, until the first invalid cell.

    begin: row number of the batch's first row.
    """
    try:
        yield from batch.to_pylist()
        return
    except PARQUET_DAMAGE:
        names = batch.schema.names
    # Cell by cell, to name the one that is damaged.
    for row, cells in enumerate(zip(*batch.columns, strict=True), start=begin):
        values = {}
        for name, cell in zip(names, cells, strict=True):
            try:
                values[name] = cell.as_py()
            except PARQUET_DAMAGE as error:
                reason = (
                    "text that is not UTF-8"
                    if isinstance(error, UnicodeDecodeError)
                    else first_line(error)
                )
                raise ParquetError(f"column {name!r}, row {row}: {reason}") from error
        yield values


# Next to Arrow's own: ValueError for text that is not UTF-8, and what dates, times and zones raise
# that Python lacks.
PARQUET_DAMAGE = (OSError, ValueError, OverflowError, KeyError, TypeError, NotImplementedError)


@contextlib.contextmanager
def _parquet_damage() -> Iterator[None]:
    """Convert Arrow's errors to ParquetError."""
    import pyarrow as arrow

    try:
        yield
    except ParquetError:
        raise
    except (*PARQUET_DAMAGE, arrow.ArrowException) as error:
        raise ParquetError(first_line(error)) from error
