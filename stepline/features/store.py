"""Reading a feature store: one item at a time, in place, from any thread or process.

Filling a feature store: rows gather in memory until a shard is full, and go to disk whole.

The index of a shard: which rows of it belong to which item, and the texts that the rows are vectors of, if any.

A shard: one float16 matrix in a safetensors file, written whole and read in place.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError, StoreError
from stepline.features.checks import BAD_ID, DAMAGED, EMPTY, NOT_FINITE, OTHER_COUNT, TWICE, rejection_reason
from stepline.records import FeatureSequence, Matrix, Rejected
from stepline.storage import atomic_path, check_writable, remove_partial_files

VERSION = "1"  # of the columns; a reader refuses any other
KEY = "stepline_features"
DTYPE = "float16"
SHARD = "shard-{:05d}"
UNKNOWN = "unknown"  # the backbone of features that do not say it
PLACES = ("id", "first", "rows", "width", "rate", "backbone", "dtype")
LINES = ("text", "start", "end")


@dataclass(frozen=True, slots=True)
class FeatureLocation:
    """Where the features of an item lie: `rows` rows of a shard from row `first` on; rate: rows a second."""

    id: str
    shard: int
    first: int
    rows: int
    width: int
    rate: float
    backbone: str


@dataclass(frozen=True, slots=True)
class RowTexts:
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


def write_index(folder: Path, shard: int, stored: Iterable[FeatureLocation], lines: Sequence[RowTexts | None]) -> None:
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


def read_index(folder: Path, shard: int) -> Iterator[FeatureLocation]:
    """Yield what a shard holds, in the order of its rows. Raises StoreError for any other file."""
    for row in _read(folder, shard, PLACES):
        if row.pop("dtype") != DTYPE:
            raise StoreError(f"{index_path(folder, shard)}: its rows are not {DTYPE}; import the features again")
        yield FeatureLocation(shard=shard, **row)  # type: ignore[arg-type]   # the columns' own types


def read_row_texts(folder: Path, shard: int) -> dict[str, RowTexts]:
    """Return the texts of every item of a shard that has some."""
    rows = _read(folder, shard, ("id", *LINES))
    return {
        str(row["id"]): RowTexts(tuple(row["text"]), tuple(row["start"] or ()), tuple(row["end"] or ()))  # type: ignore[arg-type]
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


def _columns(said: RowTexts | None) -> dict[str, list[str] | list[float] | None]:
    if said is None:
        return dict.fromkeys(LINES)
    times = [list(column) or None for column in (said.starts, said.ends)]
    return {"text": list(said.texts), "start": times[0], "end": times[1]}


Half: TypeAlias = npt.NDArray[np.float16]

NAME = "values"  # of the one tensor
LENGTH = 8  # bytes that tell how long the header is; safetensors' format


def write_shard(values: Half, path: Path) -> None:
    """Write a matrix (N, D), whole or not at all."""
    from safetensors.numpy import save_file

    with atomic_path(path) as partial:
        save_file({NAME: values}, partial)


def map_shard(path: Path) -> Half:
    """Return the matrix of a shard, its rows read from disk when they are looked at. Raises StoreError."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(LENGTH), "little")
            size = path.stat().st_size
            header = json.loads(file.read(length)) if length <= size else {}
        entry = header[NAME]
        rows, width = entry["shape"]
        if entry["dtype"] != "F16" or LENGTH + length + 2 * rows * width != size:
            raise ValueError(f"{entry['dtype']} {entry['shape']} in {size} bytes")
        return np.memmap(path, np.float16, "r", LENGTH + length, (rows, width)).view(np.ndarray)  # slices are cheap
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path}: not a whole shard of features ({reason}); import the features again") from error


KEPT = 4  # shards whose texts stay in memory


class FeatureStore(Mapping[str, FeatureLocation]):
    """The items of a folder that `FeatureWriter` filled: id -> where it lies; `read` gives the rows themselves.

    Raises StoreError when the folder is no store, or holds an id twice.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shards = shards_of(folder) if folder.is_dir() else []
        if not shards:
            raise StoreError(f"{folder}: no feature store; `stepline features import SOURCE --out {folder}` makes one")
        self._stored: dict[str, FeatureLocation] = {}
        for shard in shards:
            for stored in read_index(folder, shard):
                if stored.id in self._stored:
                    raise StoreError(f"{folder}: {stored.id} is in two shards; remove one and its index")
                self._stored[stored.id] = stored
        self._maps: dict[int, Half] = {}
        self._lines = lru_cache(KEPT)(lambda shard: read_row_texts(folder, shard))

    def __getitem__(self, id: str) -> FeatureLocation:
        try:
            return self._stored[id]
        except KeyError:
            raise StoreError(f"{self.folder}: no features of {id!r}; import them, or leave the video out") from None

    def __contains__(self, id: object) -> bool:
        return id in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths of the features: one, unless somebody mixed shards."""
        return tuple(sorted({stored.width for stored in self._stored.values()}))

    @property
    def backbone(self) -> str:
        """The name of what made the features, "" where they do not say. Raises StoreError where several did."""
        names = sorted({stored.backbone for stored in self._stored.values()} - {UNKNOWN})
        if len(names) > 1:
            raise StoreError(f"{self.folder}: features of {' and '.join(names)}; keep one backbone a store")
        return names[0] if names else ""

    def matrix(self, id: str) -> Matrix:
        """Return the rows (T, D) of an item as float32. Raises StoreError where there is none."""
        import torch  # numpy turns halves into floats one by one, which takes 14 times as long

        values: Matrix = torch.from_numpy(self._rows(self[id]).copy()).float().numpy()
        return values

    def read(self, id: str) -> FeatureSequence:
        """Return the features of a video. Raises StoreError where there are none, ShapeError for NaN."""
        try:
            return FeatureSequence(self.matrix(id), self[id].rate, self[id].backbone)
        except ShapeError as error:
            raise ShapeError(f"{self.folder}: {id}: {error}") from error

    def lines(self, id: str) -> RowTexts | None:
        """Return the texts that an item's rows are vectors of; None where they are none."""
        return self._lines(self[id].shard).get(id)

    def _rows(self, stored: FeatureLocation) -> Half:
        if stored.shard not in self._maps:
            self._maps[stored.shard] = map_shard(shard_path(self.folder, stored.shard))
        values = self._maps[stored.shard]
        if stored.first + stored.rows > len(values) or stored.width != values.shape[1]:
            place = shard_path(self.folder, stored.shard)
            raise StoreError(f"{place}: {stored.id} lies outside of it; import the features again")
        return values[stored.first : stored.first + stored.rows]

    def faults(self) -> Iterator[Rejected]:
        """Yield what is wrong with the rows that lie on disk; reads all of them."""
        for id, stored in self._stored.items():
            place = shard_path(self.folder, stored.shard)
            try:
                values = self._rows(stored)
            except StoreError as error:
                yield Rejected("features", DAMAGED, id=id, value=str(error), location=str(place))
                continue
            if not stored.rows:
                yield Rejected("features", EMPTY, id=id, location=str(place))
            elif not np.isfinite(values).all():
                yield Rejected("features", NOT_FINITE, id=id, location=str(place))


SHARD_BYTES = 256 * 2**20  # of a shard; what a killed import loses at most, and what writing holds in memory


class FeatureWriter:
    """Adds items to a store, which it makes where there is none; one writer a store at a time.

    As a context it writes what is left at the end, also after an error: every item that was added is whole.
    """

    def __init__(self, folder: Path, *, width: int | None = None, shard_bytes: int = SHARD_BYTES) -> None:
        check_writable(folder)
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial_files(folder)
        shards = shards_of(folder)
        self._folder, self._shard_bytes = folder, shard_bytes
        self._shard = shards[-1] + 1 if shards else 0
        self._ids: set[str] = set()
        self.width = width
        for shard in shards:
            for stored in read_index(folder, shard):
                self._ids.add(stored.id)
                self._take_width(stored.width)
        self._values: list[Half] = []
        self._stored: list[FeatureLocation] = []
        self._lines: list[RowTexts | None] = []

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def _take_width(self, width: int) -> None:
        if self.width not in (None, width):
            reason = f"its features are {width} wide, not {self.width}"
            raise ShapeError(f"{self._folder}: {reason}; give another --out, one store holds one width")
        self.width = width

    def flaw(self, id: str, values: object, lines: RowTexts | None = None) -> tuple[str, str] | None:
        """Return why an item cannot be added, with what was found; None where it can be."""
        if not id or id == "__metadata__" or any(sign in id for sign in "/\\\0\n"):
            return BAD_ID, repr(id)
        if id in self._ids:
            return TWICE, ""
        found = rejection_reason(values, self.width)
        if found is None and lines is not None and isinstance(values, np.ndarray):
            counts = {len(column) for column in (lines.texts, lines.starts, lines.ends) if column}
            if counts != {len(values)}:
                return OTHER_COUNT, f"{len(values)} rows, {sorted(counts)} texts or times"
        return found

    def add(
        self, id: str, values: npt.NDArray[np.floating], *, rate: float, backbone: str, lines: RowTexts | None = None
    ) -> None:
        """Add the rows (T, D) of an item; lines: the texts that they are vectors of.

        Raises ShapeError for values that are no features, StoreError for an id that is there already.
        """
        found = self.flaw(id, values, lines)
        if found is not None:
            kind = StoreError if found[0] in (TWICE, BAD_ID) else ShapeError
            raise kind(f"{id}: {found[0]} ({found[1] or 'of this store'}); extract its features again, or leave it out")
        first = sum(map(len, self._values))
        self._values.append(values.astype(np.float16))
        rows, width = values.shape
        self._stored.append(FeatureLocation(id, self._shard, first, rows, width, rate, backbone))
        self._lines.append(lines)
        self._ids.add(id)
        self.width = width
        if (first + rows) * width * 2 >= self._shard_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what was added as a shard: first its rows, then its index, which makes it count."""
        if not self._stored:
            return
        if index_path(self._folder, self._shard).exists():
            cure = "let one of them finish, then start the other again"
            raise StoreError(f"{self._folder}: another process has written shard {self._shard} meanwhile; {cure}")
        write_shard(np.concatenate(self._values), shard_path(self._folder, self._shard))
        write_index(self._folder, self._shard, self._stored, self._lines)
        self._values, self._stored, self._lines = [], [], []
        self._shard += 1

    def __enter__(self) -> "FeatureWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()
