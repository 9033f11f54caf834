"""Rows into Parquet shards whose names tell their place, their number and their content."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stepline.curate.export.rows import Row, schema
from stepline.models import sha256
from stepline.store import atomic_path

DATA = "data"
TRAIN, LEFT_OUT = "train", "left_out"
MOST = 128 * 2**20  # characters of JSON a shard, which bounds the memory of writing one
CUT = 16  # hex digits of a sha256 in a name
GROUP = 100  # rows that a reader must take at once


@dataclass(frozen=True)
class Written:
    """A file of the dataset. path: relative to it."""

    path: str
    bytes: int
    sha256: str


def write_shards(rows: Iterable[Row], split: str, folder: Path, limit: int) -> list[Written]:
    """Write rows, sorted by id already, as shards of at most `limit` rows; one of no rows where there are none.

    split: "train" or "left_out". Shards end where only their content decides, so that equal rows give equal files.
    """
    (folder / DATA).mkdir(parents=True, exist_ok=True)
    parts = []
    for number, block in enumerate(_blocks(rows, limit)):
        part = folder / DATA / f".{split}-{number:05d}.parquet"
        _write(block, part)
        parts.append((part, sha256(part)))
    written = []
    for number, (part, digest) in enumerate(parts):
        name = f"{DATA}/{split}-{number:05d}-of-{len(parts):05d}-{digest[:CUT]}.parquet"
        part.rename(folder / name)
        written.append(Written(name, (folder / name).stat().st_size, digest))
    return written


def _blocks(rows: Iterable[Row], limit: int) -> Iterator[list[dict[str, object]]]:
    block: list[dict[str, object]] = []
    size, none = 0, True
    for row in rows:
        cells = row.cells()
        length = len(str(cells["record"]))
        if block and (len(block) == limit or size + length > MOST):
            yield block
            block, size, none = [], 0, False
        block.append(cells)
        size += length
    if block or none:
        yield block


def _write(block: list[dict[str, object]], path: Path) -> None:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    table = arrow.Table.from_pylist(block, schema=schema())
    with atomic_path(path) as partial:
        parquet.write_table(table, partial, compression="zstd", row_group_size=GROUP)
