"""Reader of untrusted Parquet files as Python values, with errors that name column and row, and
a writer of rows."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from stepline.errors import StoreError, first_line
from stepline.files.atomic_files import atomic_path

if TYPE_CHECKING:
    import pyarrow as arrow


BATCH_ROWS = 2000  # rows in memory at a time. A record is some 10 KiB


def read_text_column(path: Path, column: str) -> Iterator[str]:
    """Yield the texts in a column of a Parquet file, "" for null.

    Raises StoreError if the file cannot be read as such.
    """
    from pyarrow import types

    try:
        table = ParquetReader(path)
        if column not in table.columns:
            raise StoreError(
                f"{path}: lacks the column {column!r}, "
                f"it has {', '.join(table.columns)[:200] or 'none'}; "
                "give records that Stepline wrote"
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


LIST_PREFIX = "list:"  # before the type of a column's items


def write_rows(
    rows: Iterable[Mapping[str, Any]],
    columns: Mapping[str, str],
    path: Path,
    *,
    group_rows: int = 1 << 20,
    compression: str = "zstd",
) -> None:
    """Write rows as a Parquet file, in which row n is in row group n // group_rows. The file is
    written completely or not at all.

    Args:
        rows: value of each column by its name, one mapping per row. Other names are ignored.
        columns: Arrow type of each column, such as "string", or "list:string" for lists of strings.
        path: path of the file.
        group_rows: number of rows in each row group but the last. Only these rows are in memory.
        compression: "snappy" or "zstd".
    """
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    types = {}
    for name, kind in columns.items():
        item_type = arrow.type_for_alias(kind.removeprefix(LIST_PREFIX))
        types[name] = arrow.list_(item_type) if kind.startswith(LIST_PREFIX) else item_type
    schema = arrow.schema(types)
    remaining = iter(rows)
    with (
        atomic_path(path) as partial,
        parquet.ParquetWriter(partial, schema, compression=compression) as writer,
    ):
        while group := list(islice(remaining, group_rows)):
            table = arrow.Table.from_pylist(group, schema=schema)
            writer.write_table(table, row_group_size=group_rows)


class ParquetError(ValueError):
    """A damaged Parquet file. The message names column and row where they are known."""


class ParquetReader:
    """Reader of an untrusted Parquet file. Every method raises ParquetError for damage.

    Attributes:
        columns: names of the columns.
        schema: Arrow schema of the file.
    """

    def __init__(self, file: Path | BinaryIO) -> None:
        import pyarrow.parquet as parquet

        with _converted_errors():
            self._file = parquet.ParquetFile(file)
            self.schema = self._file.schema_arrow
            self.columns: list[str] = list(self.schema.names)

    def rows(
        self, columns: Sequence[str] | None = None, size: int = BATCH_ROWS
    ) -> Iterator[dict[str, Any]]:
        """Yield each row as column name -> Python value.

        Args:
            columns: names of the columns to read. None for all.
            size: maximal number of rows in memory.
        """
        with _converted_errors():
            row = 0
            for batch in self._file.iter_batches(batch_size=size, columns=columns):
                yield from _python_rows(batch, row)
                row += len(batch)

    def group(self, number: int) -> list[dict[str, Any]]:
        """Return the rows of one row group, each as column name -> Python value.

        number: index of the row group, from 0.
        """
        with _converted_errors():
            batches = self._file.read_row_group(number).to_batches()
            return [row for batch in batches for row in _python_rows(batch, 0)]

    def table(self) -> "arrow.Table":
        """Return the whole file as an Arrow table with valid texts."""
        with _converted_errors():
            table = self._file.read()
            table.validate(full=True)
            return table


def _python_rows(batch: "arrow.RecordBatch", first_row: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch, until the first invalid cell.

    first_row: index of the batch's first row in the file.
    """
    try:
        yield from batch.to_pylist()
        return
    except PARQUET_DAMAGE:
        names = batch.schema.names
    # Cell by cell, to name the damaged cell.
    for row, cells in enumerate(zip(*batch.columns, strict=True), start=first_row):
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


# Next to Arrow's own: ValueError for text that is not UTF-8, and errors of dates, times and time
# zones that Python lacks.
PARQUET_DAMAGE = (OSError, ValueError, OverflowError, KeyError, TypeError, NotImplementedError)


@contextlib.contextmanager
def _converted_errors() -> Iterator[None]:
    """Convert Arrow's errors to ParquetError."""
    import pyarrow as arrow

    try:
        yield
    except ParquetError:
        raise
    except (*PARQUET_DAMAGE, arrow.ArrowException) as error:
        raise ParquetError(first_line(error)) from error
