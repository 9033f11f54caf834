"""The index of a shard: which rows of it belong to which item, and the texts that the rows are vectors of, if any."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepline.errors import StoreError
from stepline.store import atomic_path

VERSION = "1"  # of the columns; a reader refuses any other
KEY = "stepline_features"
DTYPE = "float16"
SHARD = "shard-{:05d}"
UNKNOWN = "unknown"  # the backbone of features that do not say it
PLACES = ("id", "first", "rows", "width", "rate", "backbone", "dtype")
LINES = ("text", "start", "end")


@dataclass(frozen=True, slots=True)
class Stored:
    """Where the features of an item lie: `rows` rows of a shard from row `first` on; rate: rows a second."""

    id: str
    shard: int
    first: int
    rows: int
    width: int
    rate: float
    backbone: str


@dataclass(frozen=True, slots=True)
class Lines:
    """The texts that the rows of an item are vectors of, and when each is said or shown, in seconds.

    starts and ends are empty where no times are known; else as many as the texts, as found (they may be NaN).
    """

    texts: tuple[str, ...]
    starts: tuple[float, ...] = ()
    ends: tuple[float, ...] = ()


def shard_path(folder: Path, shard: int) -> Path:
    """Return the file of a shard's rows."""
    return folder / f"{SHARD.format(shard)}.safetensors"


def index_path(folder: Path, shard: int) -> Path:
    """Return the file of a shard's index."""
    return folder / f"{SHARD.format(shard)}.parquet"


def shards_of(folder: Path) -> list[int]:
    """Return the numbers of the shards that are whole, in order."""
    names = (path.stem.removeprefix("shard-") for path in folder.glob("shard-*.parquet"))
    return sorted(int(name) for name in names if name.isdigit())


def write_index(folder: Path, shard: int, stored: Iterable[Stored], lines: Sequence[Lines | None]) -> None:
    """Write the index of a shard, whole or not at all; lines: of each item, None where its rows are no texts."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    columns = {
        "id": arrow.string(), "first": arrow.int64(), "rows": arrow.int64(), "width": arrow.int64(),
        "rate": arrow.float64(), "backbone": arrow.string(), "dtype": arrow.string(),
        "text": arrow.list_(arrow.string()), "start": arrow.list_(arrow.float64()),
        "end": arrow.list_(arrow.float64()),
    }  # fmt: skip
    rows = [
        {name: getattr(each, name, DTYPE) for name in PLACES} | _columns(said)
        for each, said in zip(stored, lines, strict=True)
    ]
    schema = arrow.schema(list(columns.items()), metadata={KEY: VERSION})
    with atomic_path(index_path(folder, shard)) as partial:
        parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), partial)


def read_index(folder: Path, shard: int) -> Iterator[Stored]:
    """Yield what a shard holds, in the order of its rows. Raises StoreError for any other file."""
    for row in _read(folder, shard, PLACES):
        if row.pop("dtype") != DTYPE:
            raise StoreError(f"{index_path(folder, shard)}: its rows are not {DTYPE}; import the features again")
        yield Stored(shard=shard, **row)  # type: ignore[arg-type]   # the columns' own types


def read_lines(folder: Path, shard: int) -> dict[str, Lines]:
    """Return the texts of every item of a shard that has some."""
    rows = _read(folder, shard, ("id", *LINES))
    return {
        str(row["id"]): Lines(tuple(row["text"]), tuple(row["start"] or ()), tuple(row["end"] or ()))  # type: ignore[arg-type]
        for row in rows
        if row["text"] is not None
    }


def _read(folder: Path, shard: int, columns: Sequence[str]) -> list[dict[str, object]]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    path = index_path(folder, shard)
    try:
        file = parquet.ParquetFile(path)
        if (file.schema_arrow.metadata or {}).get(KEY.encode()) != VERSION.encode():
            raise StoreError(f"{path}: not the index of a feature shard of version {VERSION}; import it again")
        return list(file.read(columns=list(columns)).to_pylist())
    except (OSError, arrow.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path}: cannot be read ({reason}); remove it and import the features again") from error


def _columns(said: Lines | None) -> dict[str, list[str] | list[float] | None]:
    if said is None:
        return dict.fromkeys(LINES)
    times = [list(column) or None for column in (said.starts, said.ends)]
    return {"text": list(said.texts), "start": times[0], "end": times[1]}
