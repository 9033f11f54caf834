"""Parquet tables of a text base: written a row group at a time, read with errors that name the
cure."""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from stepline.errors import ShapeError, StoreError
from stepline.files.atomic_files import atomic_path
from stepline.files.parquet import ParquetError, ParquetReader

Row: TypeAlias = dict[str, Any]
ColumnType: TypeAlias = Literal["text", "texts", "int32", "int64s"]

MAX_GROUPS_IN_MEMORY = 64  # row groups of one table, the latest used; a few MB each at most


def write_table(
    rows: Iterable[Row], columns: Mapping[str, ColumnType], path: Path, group: int
) -> None:
    """Write rows as Parquet, `group` rows per row group, so that row n is in group n // group."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    # The columns, by the types that a base needs.
    types = {
        "text": arrow.string(),
        "texts": arrow.list_(arrow.string()),
        "int32": arrow.int32(),
        "int64s": arrow.list_(arrow.int64()),
    }
    schema = arrow.schema({name: types[kind] for name, kind in columns.items()})
    rows = iter(rows)
    with (
        atomic_path(path) as partial,
        parquet.ParquetWriter(partial, schema, compression="zstd") as writer,
    ):
        while batch := list(islice(rows, group)):
            table = arrow.Table.from_pylist(batch, schema=schema)
            writer.write_table(table, row_group_size=group)


@contextmanager
def reject_damaged_table(path: Path, cure: str = "build the text base again") -> Iterator[None]:
    """Raise StoreError, with the cure, for a table that turns out to be damaged."""
    try:
        yield
    except ParquetError as error:
        raise StoreError(f"{path}: not readable ({error}); {cure}") from error


class PartedTable:
    """Rows of several Parquet files, one after another, read a row group at a time. The latest
    groups stay in memory.

    counts: rows of each file. group: rows per row group.
    """

    def __init__(self, counts: Mapping[Path, int], group: int) -> None:
        self._paths = list(counts)
        self._starts = np.cumsum([0, *counts.values()])
        self._group = group
        self._files: dict[Path, ParquetReader] = {}
        self._groups: OrderedDict[tuple[Path, int], list[Row]] = OrderedDict()

    def __iter__(self) -> Iterator[Row]:
        for path, count in zip(self._paths, np.diff(self._starts).tolist(), strict=True):
            for group in range(math.ceil(count / self._group)):
                yield from self._read(path, group)

    def __getitem__(self, row: int) -> Row:
        count = self._starts[-1]
        if not 0 <= row < count:
            raise ShapeError(f"number {row}: the base has {count}, counted from 0")
        # The last file that begins at this row or before it.
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        path = self._paths[number]
        group, row_in_group = divmod(int(row - self._starts[number]), self._group)
        key = (path, group)
        if key not in self._groups:
            self._groups[key] = self._read(path, group)
        # the oldest group is forgotten first
        self._groups.move_to_end(key)
        if len(self._groups) > MAX_GROUPS_IN_MEMORY:
            self._groups.popitem(last=False)
        return self._groups[key][row_in_group]

    def _read(self, path: Path, group: int) -> list[Row]:
        with reject_damaged_table(path):
            if path not in self._files:
                self._files[path] = ParquetReader(path)
            return self._files[path].group(group)
