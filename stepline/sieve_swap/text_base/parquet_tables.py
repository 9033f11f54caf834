"""Parquet tables of a text base: written a row group at a time, read with errors that name the
cure."""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    text = arrow.string()
    int64 = arrow.int64()
    types = {
        "text": text,
        "texts": arrow.list_(text),
        "int32": arrow.int32(),
        "int64s": arrow.list_(int64),
    }
    fields = {}
    for name, kind in columns.items():
        fields[name] = types[kind]
    schema = arrow.schema(fields)
    waiting: list[Row] = []
    with (
        atomic_path(path) as partial,
        parquet.ParquetWriter(partial, schema, compression="zstd") as writer,
    ):

        def write_waiting() -> None:
            table = arrow.Table.from_pylist(waiting, schema=schema)
            writer.write_table(table, row_group_size=group)
            waiting.clear()

        # a row group at a time
        for row in rows:
            cells = {name: row[name] for name in columns}
            waiting.append(cells)
            if len(waiting) == group:
                write_waiting()
        if waiting:
            write_waiting()


@contextmanager
def damage_of(path: Path, cure: str = "build the text base again") -> Iterator[None]:
    """Raise StoreError, with the cure, for a table that turns out to be damaged."""
    try:
        yield
    except ParquetError as error:
        raise StoreError(f"{path}: not readable ({error}); {cure}") from error


class PartedTable:
    """Rows of a Parquet file per part, read a row group at a time. The latest groups stay in
    memory."""

    def __init__(self, paths: Sequence[Path], counts: Sequence[int], group: int) -> None:
        self._paths = paths
        self._starts = np.cumsum([0, *counts])
        self._group = group
        self._files: dict[int, ParquetReader] = {}
        self._groups: OrderedDict[tuple[int, int], list[Row]] = OrderedDict()

    def __iter__(self) -> Iterator[Row]:
        for part, count in enumerate(np.diff(self._starts).tolist()):
            for group in range(math.ceil(count / self._group)):
                yield from self._read(part, group)

    def __getitem__(self, row: int) -> Row:
        count = self._starts[-1]
        if not 0 <= row < count:
            raise ShapeError(f"number {row}: the base has {count}, counted from 0")
        # The last part that begins at this row or before it.
        next_part = np.searchsorted(self._starts, row, side="right")
        part = int(next_part) - 1
        row_in_part = int(row - self._starts[part])
        group, row_in_group = divmod(row_in_part, self._group)
        key = (part, group)
        if key not in self._groups:
            self._groups[key] = self._read(part, group)
        # the oldest group is forgotten first
        self._groups.move_to_end(key)
        if len(self._groups) > MAX_GROUPS_IN_MEMORY:
            self._groups.popitem(last=False)
        return self._groups[key][row_in_group]

    def _read(self, part: int, group: int) -> list[Row]:
        path = self._paths[part]
        with damage_of(path):
            if part not in self._files:
                self._files[part] = ParquetReader(path)
            return self._files[part].group(group)
