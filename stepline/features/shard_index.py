"""The index of a shard of features: a Parquet file that says where the rows of each item are."""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import StoreError
from stepline.files.atomic_files import atomic_path
from stepline.files.parquet import ParquetError, ParquetReader

INDEX_VERSION = "1"  # of the columns; a reader refuses any other
METADATA_KEY = "stepline_features"
VALUE_DTYPE = "float16"
SHARD_NAME = "shard-{:05d}"
LOCATION_COLUMNS = ("id", "first", "rows", "width", "rate", "backbone", "dtype")
TEXT_COLUMNS = ("text", "start", "end")
Digests: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class FeatureLocation:
    """Where the features of an item are: `rows` rows of a shard from row `first` on. rate: rows per
    second."""

    id: str
    shard: int
    first: int
    rows: int
    width: int
    rate: float
    backbone: str


@dataclass(frozen=True, slots=True)
class RowTexts:
    """The texts that the rows of an item are vectors of, and when each is said or shown, in
    seconds.

    starts and ends are empty where no times are known. Else they are as many as the texts, as found
    (they may be NaN).
    """

    texts: tuple[str, ...]
    starts: tuple[float, ...] = ()
    ends: tuple[float, ...] = ()


def shard_path(folder: Path, shard: int) -> Path:
    """Return the file of a shard's rows."""
    return folder / f"{SHARD_NAME.format(shard)}.safetensors"


def index_path(folder: Path, shard: int) -> Path:
    """Return the file of a shard's index."""
    return folder / f"{SHARD_NAME.format(shard)}.parquet"


def shards_of(folder: Path) -> list[int]:
    """Return the numbers of the shards that are whole, in order."""
    numbers = []
    for path in folder.glob("shard-*.parquet"):
        name = path.stem.removeprefix("shard-")
        if name.isdigit():
            numbers.append(int(name))
    return sorted(numbers)


def write_index(
    folder: Path, shard: int, locations: Iterable[FeatureLocation], texts: Sequence[RowTexts | None]
) -> None:
    """Write the index of a shard, whole or not at all. texts: of each item, None where its rows are
    of none."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    text, integer, real = arrow.string(), arrow.int64(), arrow.float64()
    location_types = (text, integer, integer, integer, real, text, text)
    columns = dict(zip(LOCATION_COLUMNS, location_types, strict=True))
    columns |= {"text": arrow.list_(text), "start": arrow.list_(real), "end": arrow.list_(real)}
    # A row per item. The last three columns are empty where its rows are of no texts.
    rows = []
    for location, row_texts in zip(locations, texts, strict=True):
        row = {name: getattr(location, name, VALUE_DTYPE) for name in LOCATION_COLUMNS}
        if row_texts is not None:
            row["text"] = list(row_texts.texts)
            row["start"] = list(row_texts.starts) or None
            row["end"] = list(row_texts.ends) or None
        rows.append(row)
    schema = arrow.schema(columns.items(), metadata={METADATA_KEY: INDEX_VERSION})
    with atomic_path(index_path(folder, shard)) as partial:
        parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), partial)


def read_index(folder: Path, shard: int) -> Iterator[FeatureLocation]:
    """Yield what a shard holds, in the order of its rows. Raises StoreError for any other file."""
    for row in _read_columns(folder, shard, LOCATION_COLUMNS):
        if row.pop("dtype") != VALUE_DTYPE:
            path = index_path(folder, shard)
            raise StoreError(f"{path}: its rows are not {VALUE_DTYPE}; import the features again")
        row["backbone"] = sys.intern(str(row["backbone"]))  # one string for a million items
        yield FeatureLocation(shard=shard, **row)


def read_row_texts(folder: Path, shard: int) -> dict[str, RowTexts]:
    """Return the texts of every item of a shard that has some."""
    rows = _read_columns(folder, shard, ("id", *TEXT_COLUMNS))
    texts_by_id = {}
    for row in rows:
        if row["text"] is not None:
            starts = tuple(row["start"] or ())
            ends = tuple(row["end"] or ())
            texts_by_id[str(row["id"])] = RowTexts(tuple(row["text"]), starts, ends)
    return texts_by_id


def text_digest(text: str) -> int:
    """Return 8 bytes of a text's BLAKE2b, without the spaces around it: enough to know it by."""
    data = text.strip().encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(data, digest_size=8).digest()
    return int.from_bytes(digest, "big")


def read_text_digests(folder: Path, shard: int) -> dict[str, Digests]:
    """Return the digests of the texts of every item of a shard that has some."""
    rows = _read_columns(folder, shard, ("id", "text"))
    with_texts = [row for row in rows if row["text"] is not None]
    texts = (text for row in with_texts for text in row["text"])
    # One array of all texts, and each item has a part of it.
    digests = np.fromiter(map(text_digest, texts), dtype=np.uint64)
    digests_by_id = {}
    first = 0
    for row in with_texts:
        end = first + len(row["text"])
        digests_by_id[str(row["id"])] = digests[first:end]
        first = end
    return digests_by_id


def _read_columns(folder: Path, shard: int, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of an index, of some of its columns."""
    path = index_path(folder, shard)
    cure = "remove it and import the features again"
    try:
        table = ParquetReader(path)
        metadata = table.schema.metadata or {}
        if metadata.get(METADATA_KEY.encode()) != INDEX_VERSION.encode():
            reason = f"not the index of a feature shard of version {INDEX_VERSION}"
            raise StoreError(f"{path}: {reason}; import it again")
        for column in columns:
            if column not in table.columns:
                raise StoreError(f"{path}: lacks the column {column!r}; {cure}")
        return list(table.rows(columns))
    except ParquetError as error:
        raise StoreError(f"{path}: cannot be read ({error}); {cure}") from error
