"""Feature store: the features of many items in shards, readable from any thread or process.

A shard is one float16 matrix (N, D) in a safetensors file, next to a Parquet index. The index gives
the rows of each item, and the texts of the rows if they are text vectors. `FeatureWriter` buffers
rows in memory until a shard is full. `FeatureStore` reads only the requested rows, and caches none.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError, StoreError, first_line
from stepline.features.files import NOT_VIDEO_FEATURES
from stepline.files.atomic_files import atomic_path, check_writable, remove_partial_files
from stepline.files.digests import hash_text, sha256
from stepline.files.parquet import ParquetError, ParquetReader
from stepline.limits import read_safetensors_header
from stepline.records import FeatureSequence, Matrix, Rejected

# Why features are rejected: fixed wordings, so that what was left out can be counted.
UNREADABLE_FILE = "the file cannot be read"
DAMAGED_SHARD = "its shard is damaged"
CHANGED_SHARD = "its bytes are not those that were written"
NOT_ROWS = "it holds no (rows, width) of float numbers"
NO_ROWS = "it has no row"
NOT_FINITE = "it holds NaN or infinity"
TOO_GREAT = "its values are beyond half precision"
OTHER_WIDTH = "its width is another"
TURNED = "it looks turned, (width, rows); transpose it"
REPEATED_ID = "its id came before"
BAD_ID = "its id is not a plain name"
OTHER_ID = "it says that it is another item"
OTHER_COUNT = "its texts or times are not one per row"
MAX_FLOAT16 = float(np.finfo(np.float16).max)

UNKNOWN_BACKBONE = "unknown"  # the backbone of features that do not say it
# numbers per row of the backbones of docs/features.md
BACKBONE_WIDTHS = {
    "conse": (384, 768),
    "clip": (512, 640, 768, 1024, 1152),
    "internvideo": (512, 768),
    "s3d": (512,),
    "s3d-mixed5c": (1024,),
}


Half = npt.NDArray[np.float16]

# ---------------------------------------------------------------- the index of a shard

INDEX_VERSION = "1"  # of the columns; a reader refuses any other
METADATA_KEY = "stepline_features"
DIGEST_KEY = "shard_sha256"
VALUE_DTYPE = "float16"
SHARD_NAME = "shard-{:05d}"
LOCATION_COLUMNS = ("id", "first", "rows", "width", "rate", "backbone", "dtype")
TEXT_COLUMNS = ("text", "start", "end")
Digests = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class FeatureLocation:
    """Where a feature store holds the rows of an item.

    Attributes:
        id: id of the item.
        shard: number of the shard file.
        first: index of the item's first row in the shard.
        rows: number of rows.
        width: D, the width of a row.
        rate: rows per second.
        backbone: name of the feature extractor.
    """

    id: str
    shard: int
    first: int
    rows: int
    width: int
    rate: float
    backbone: str


@dataclass(frozen=True, slots=True)
class RowTexts:
    """The texts whose vectors are the rows of an item.

    Attributes:
        texts: the text of each row.
        starts: start of each text in seconds, NaN if unknown. Empty if no text has times.
        ends: end of each text in seconds, NaN if unknown. Empty if no text has times.
    """

    texts: tuple[str, ...]
    starts: tuple[float, ...] = ()
    ends: tuple[float, ...] = ()


def shard_path(folder: Path, shard: int) -> Path:
    """Return the path of the file with the rows of a shard."""
    return folder / f"{SHARD_NAME.format(shard)}.safetensors"


def index_path(folder: Path, shard: int) -> Path:
    """Return the path of the index file of a shard."""
    return folder / f"{SHARD_NAME.format(shard)}.parquet"


def shards_of(folder: Path) -> list[int]:
    """Return the sorted numbers of the complete shards in the folder of a store."""
    numbers = []
    for path in folder.glob("shard-*.parquet"):
        name = path.stem.removeprefix("shard-")
        if name.isdigit():
            numbers.append(int(name))
    return sorted(numbers)


def write_index(
    folder: Path, shard: int, locations: Iterable[FeatureLocation], texts: Sequence[RowTexts | None]
) -> None:
    """Write the index file of a shard atomically, with the sha256 of the shard file.

    Args:
        folder: folder of the store.
        shard: number of the shard.
        locations: locations of the shard's items, in the order of their rows.
        texts: texts of each item, None for an item that holds features of a video.
    """
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
    metadata = {METADATA_KEY: INDEX_VERSION, DIGEST_KEY: sha256(shard_path(folder, shard))}
    schema = arrow.schema(columns.items(), metadata=metadata)
    with atomic_path(index_path(folder, shard)) as partial:
        parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), partial)


def read_index(folder: Path, shard: int) -> Iterator[FeatureLocation]:
    """Yield the locations of a shard's items in the order of their rows.

    Raises StoreError for a file that is no index.
    """
    for row in _read_columns(folder, shard, LOCATION_COLUMNS):
        if row.pop("dtype") != VALUE_DTYPE:
            path = index_path(folder, shard)
            raise StoreError(f"{path}: its rows are not {VALUE_DTYPE}; import the features again")
        row["backbone"] = sys.intern(str(row["backbone"]))  # one string for a million items
        yield FeatureLocation(shard=shard, **row)


def read_row_texts(folder: Path, shard: int) -> dict[str, RowTexts]:
    """Return item id -> texts, for the items of a shard that have texts."""
    rows = _read_columns(folder, shard, ("id", *TEXT_COLUMNS))
    texts_by_id = {}
    for row in rows:
        if row["text"] is not None:
            starts = tuple(row["start"] or ())
            ends = tuple(row["end"] or ())
            texts_by_id[str(row["id"])] = RowTexts(tuple(row["text"]), starts, ends)
    return texts_by_id


def text_digest(text: str) -> int:
    """Return the 8-byte BLAKE2b hash of a text without surrounding white space, as a number."""
    return hash_text(text.strip())


def read_text_digests(folder: Path, shard: int) -> dict[str, Digests]:
    """Return item id -> hashes of its texts (`text_digest`), for the items that have texts."""
    rows = _read_columns(folder, shard, ("id", "text"))
    return {
        str(row["id"]): np.fromiter(map(text_digest, row["text"]), dtype=np.uint64)
        for row in rows
        if row["text"] is not None
    }


def _read_columns(folder: Path, shard: int, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of an index file, with only the given columns."""
    with _open_index(folder, shard) as table:
        for column in columns:
            if column not in table.columns:
                path = index_path(folder, shard)
                raise StoreError(f"{path}: lacks the column {column!r}; {INDEX_CURE}")
        return list(table.rows(columns))


INDEX_CURE = "remove it and import the features again"


@contextlib.contextmanager
def _open_index(folder: Path, shard: int) -> Iterator[ParquetReader]:
    path = index_path(folder, shard)
    try:
        table = ParquetReader(path)
        metadata = table.schema.metadata or {}
        if metadata.get(METADATA_KEY.encode()) != INDEX_VERSION.encode():
            raise StoreError(
                f"{path}: not the index of a feature shard of version {INDEX_VERSION}; import it "
                "again"
            )
        yield table
    except ParquetError as error:
        raise StoreError(f"{path}: cannot be read ({error}); {INDEX_CURE}") from error


# ---------------------------------------------------------------- the rows of a shard

TENSOR_NAME = "values"  # of the one tensor


@dataclass(frozen=True, slots=True)
class ShardMatrix:
    """Where a shard file holds its matrix (rows, width).

    Attributes:
        path: path of the shard file.
        data_offset: offset in bytes of the first number in the file.
        rows: number of rows.
        width: D, the width of a row.
    """

    path: Path
    data_offset: int
    rows: int
    width: int

    def read(self, first: int, count: int) -> Half:
        """Return rows of the matrix as float16 (count, width).

        Args:
            first: index of the first row.
            count: number of rows.

        Raises StoreError for a truncated or unreadable file.
        """
        # Half precision takes 2 bytes per number.
        offset = self.data_offset + 2 * first * self.width
        try:
            values = np.fromfile(self.path, np.float16, count * self.width, offset=offset)
            return values.reshape(count, self.width)
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{self.path}: {first_line(error)}; it changed while it was read: give the same "
                "command again"
            ) from error


def find_matrix(path: Path) -> ShardMatrix:
    """Return where a shard file holds its matrix. Raises StoreError for a file that is no shard."""
    try:
        with path.open("rb") as file:
            header, begin = read_safetensors_header(file)
        size = path.stat().st_size
        entry = header[TENSOR_NAME]
        rows, width = entry["shape"]
        if entry["dtype"] != "F16" or begin + 2 * rows * width != size:
            raise ValueError(f"{entry['dtype']} {entry['shape']} in {size} bytes")
        return ShardMatrix(path, begin, rows, width)
    except PermissionError as error:
        reason = f"cannot be read ({error.strerror})"
        raise StoreError(f"{path}: {reason}; have its owner allow it") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = first_line(error)
        raise StoreError(
            f"{path}: not a whole shard of features ({reason}); import the features again"
        ) from error


SHARDS_WITH_TEXTS = 4  # shards whose texts stay in memory
ALL_ROWS = slice(None)


class FeatureStore(Mapping[str, FeatureLocation]):
    """Reads the items of a feature store. It is a mapping from item id to location.

    Args:
        folder: folder that `FeatureWriter` wrote.
        display_url: name of the folder in error messages. "": its path.

    Raises StoreError when the folder is not a store, or holds an id twice.
    """

    def __init__(self, folder: Path, *, display_url: str = "") -> None:
        self.folder = folder
        self.display_url = display_url or str(folder)
        shards = shards_of(folder) if folder.is_dir() else []
        if not shards:
            store = str(folder) if not display_url else "STORE"
            raise StoreError(
                f"{self.display_url}: no feature store; `stepline features import SOURCE --out "
                f"{store}` makes one"
            )
        # The indexes alone are read.
        self._locations: dict[str, FeatureLocation] = {}
        for location in chain.from_iterable(read_index(folder, shard) for shard in shards):
            if location.id in self._locations:
                raise StoreError(
                    f"{self.display_url}: {location.id} is in two shards; remove one and its index"
                )
            self._locations[location.id] = location
        self._matrices: dict[int, ShardMatrix] = {}
        self._texts = lru_cache(SHARDS_WITH_TEXTS)(lambda shard: read_row_texts(folder, shard))
        self._digests = lru_cache(None)(lambda shard: read_text_digests(folder, shard))

    def __getitem__(self, id: str) -> FeatureLocation:
        try:
            return self._locations[id]
        except KeyError:
            raise StoreError(
                f"{self.display_url}: no features of {id!r}; import them, or leave the video out"
            ) from None

    def __contains__(self, id: object) -> bool:
        return id in self._locations

    def __iter__(self) -> Iterator[str]:
        return iter(self._locations)

    def __len__(self) -> int:
        return len(self._locations)

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths D of the rows in the store. There is one unless the shards are mixed."""
        widths = {location.width for location in self._locations.values()}
        return tuple(sorted(widths))

    @property
    def backbone(self) -> str:
        """Name of the feature extractor, "" if unknown. Raises StoreError for several names."""
        backbones = {location.backbone for location in self._locations.values()}
        # Features that do not say it are of no other backbone.
        backbones.discard(UNKNOWN_BACKBONE)
        names = sorted(backbones)
        if len(names) > 1:
            raise StoreError(
                f"{self.display_url}: features of {' and '.join(names)}; keep one backbone per "
                "store"
            )
        return names[0] if names else ""

    def matrix(self, id: str, rows: slice = ALL_ROWS) -> Matrix:
        """Return the rows of an item as float32 (T, D).

        Args:
            id: id of the item.
            rows: slice of the rows that are returned.

        Raises StoreError for an unknown id.
        """
        return self._read_rows(self[id], rows).astype(np.float32)

    def read(self, id: str, rows: slice = ALL_ROWS) -> FeatureSequence:
        """Return the features of a video.

        Args:
            id: id of the item.
            rows: slice of the rows that are returned.

        Raises StoreError for an unknown id, ShapeError for NaN.
        """
        values = self.matrix(id, rows)
        location = self[id]
        try:
            return FeatureSequence(values, location.rate, location.backbone)
        except ShapeError as error:
            raise ShapeError(f"{self.display_url}: {id}: {error}") from error

    def texts(self, id: str) -> RowTexts | None:
        """Return the texts of an item's rows. None for features of a video."""
        return self._texts(self[id].shard).get(id)

    def text_digests(self, id: str) -> Digests | None:
        """Return the hash (`text_digest`) of the text of each row of an item, (T,).

        The result is None for features of a video. The texts of each shard are read once, and 8
        bytes per text stay in memory.
        """
        return self._digests(self[id].shard).get(id)

    def forget_texts(self) -> None:
        """Free the cached texts and hashes."""
        self._texts.cache_clear()
        self._digests.cache_clear()

    def _read_rows(self, location: FeatureLocation, rows: slice = ALL_ROWS) -> Half:
        path = self._shard_file(location.shard)  # which fetches a remote one
        if location.shard not in self._matrices:
            self._matrices[location.shard] = find_matrix(path)
        matrix = self._matrices[location.shard]
        if location.first + location.rows > matrix.rows or location.width != matrix.width:
            raise StoreError(
                f"{matrix.path}: {location.id} is outside of it; import the features again"
            )
        # The part of the item's rows that was asked for.
        first, stop, _ = rows.indices(location.rows)
        return matrix.read(location.first + first, max(0, stop - first))

    def _shard_file(self, shard: int) -> Path:
        """Return the local path of the file with the rows of a shard."""
        return shard_path(self.folder, shard)

    def check(self) -> Iterator[Rejected]:
        """Yield each invalid item with the reason. All rows of the store are read."""
        is_changed = lru_cache(None)(self._is_changed)
        for id, location in self._locations.items():
            path = shard_path(self.folder, location.shard)
            try:
                values = self._read_rows(location)
                if is_changed(location.shard):
                    raise StoreError(f"{path}: {CHANGED_SHARD}; import the features again")
            except StoreError as error:
                yield Rejected(
                    "features", DAMAGED_SHARD, id=id, value=str(error), location=str(path)
                )
                continue
            if not location.rows:
                yield Rejected("features", NO_ROWS, id=id, location=str(path))
            elif not np.isfinite(values).all():
                yield Rejected("features", NOT_FINITE, id=id, location=str(path))
            elif is_transposed(values, location.backbone):
                yield Rejected("features", TURNED, id=id, location=str(path))

    def _is_changed(self, shard: int) -> bool:
        """Return whether the bytes of a shard file are others than those that were written.

        False without the sha256 of those bytes in its index.
        """
        with _open_index(self.folder, shard) as table:
            digest = (table.schema.metadata or {}).get(DIGEST_KEY.encode())
        return digest is not None and digest != sha256(self._shard_file(shard)).encode()


def is_transposed(values: npt.NDArray[np.floating], backbone: str) -> bool:
    """Return whether an array (T, D) has as many rows as its backbone has numbers per row, and
    another number in each."""
    widths = BACKBONE_WIDTHS.get(backbone, ())
    rows, width = values.shape
    return rows in widths and width not in widths


def open_store(source: Path | str) -> FeatureStore:
    """Return the feature store in a folder, or at a URL. Raises StoreError if it is missing."""
    if "://" not in str(source):
        return FeatureStore(Path(source))
    return RemoteFeatureStore(str(source))


def open_video_store(source: Path | str) -> FeatureStore:
    """Return the feature store of videos in a folder, or at a URL.

    Raises StoreError if the store is missing or holds text features.
    """
    store = open_store(source)
    require_videos(store, source)
    return store


def require_videos(store: FeatureStore, source: Path | str) -> None:
    """Raise StoreError for a store of text features. source: name of the store in the message."""
    first = next(iter(store), None)
    if first is not None and store.texts(first) is not None:
        raise StoreError(f"{source}: {NOT_VIDEO_FEATURES}")


def rejection_reason(values: Any, width: int | None) -> tuple[str, str] | None:
    """Return why values are no valid features, and the offending value as text.

    The result is None for valid features.

    Args:
        values: expected to be a (T, D) array of numbers.
        width: required D. None: any width.
    """
    if not isinstance(values, np.ndarray):
        return NOT_ROWS, type(values).__name__
    if values.ndim != 2 or values.shape[1] == 0 or not np.issubdtype(values.dtype, np.floating):
        return NOT_ROWS, f"{values.dtype} {values.shape}"
    if not len(values):
        return NO_ROWS, str(values.shape)
    if width is not None and values.shape[1] != width:
        reason = TURNED if len(values) == width else OTHER_WIDTH
        return reason, f"{values.shape[1]}, not {width}"
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        return NOT_FINITE, f"row {row}"
    greatest = float(np.abs(values).max())
    return (TOO_GREAT, f"{greatest:g}") if greatest > MAX_FLOAT16 else None


# Of a shard: what a killed import loses at most, and what writing holds in memory.
SHARD_BYTES = 256 * 2**20


class FeatureWriter:
    """Adds items to a feature store, and creates the store if it is missing.

    A store has one writer at a time. As a context manager, the writer writes the last shard at
    exit, also after an error.

    Args:
        folder: folder of the store.
        width: required D, the width of a row. None: the width of the store, or of the first item.
        shard_bytes: size of a shard in bytes.

    Raises ShapeError if the store holds features of another width.
    """

    def __init__(
        self, folder: Path, *, width: int | None = None, shard_bytes: int = SHARD_BYTES
    ) -> None:
        check_writable(folder)
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial_files(folder)
        shards = shards_of(folder)
        self._folder = folder
        self._shard_bytes = shard_bytes
        self._shard = shards[-1] + 1 if shards else 0
        self._backbones: dict[str, str] = {}  # of each item
        self.width = width
        # What the store holds fixes its width.
        for location in chain.from_iterable(read_index(folder, shard) for shard in shards):
            if self.width not in (None, location.width):
                raise ShapeError(
                    f"{folder}: its features are {location.width} wide, not {self.width}; give "
                    "another --out, one store holds one width"
                )
            self.width = location.width
            self._backbones[location.id] = location.backbone
        self._values: list[Half] = []
        self._locations: list[FeatureLocation] = []
        self._texts: list[RowTexts | None] = []

    def __contains__(self, id: str) -> bool:
        return id in self._backbones

    def backbone_of(self, id: str) -> str:
        """Return the backbone under which an item is stored."""
        return self._backbones[id]

    @property
    def unwritten_count(self) -> int:
        """Number of items added since the last shard was written."""
        return len(self._locations)

    def rejection_reason(
        self, id: str, values: object, texts: RowTexts | None = None
    ) -> tuple[str, str] | None:
        """Return why an item cannot be added, and the offending value as text.

        The result is None for a valid item.

        Args:
            id: id of the item.
            values: expected to be a (T, D) array of numbers.
            texts: the texts whose vectors the rows are. None: features of a video.
        """
        if not id or id == "__metadata__" or any(sign in id for sign in "/\\\0\n"):
            return BAD_ID, repr(id)
        if id in self._backbones:
            return REPEATED_ID, ""
        rejection = rejection_reason(values, self.width)
        if rejection is None and texts is not None and isinstance(values, np.ndarray):
            columns = (texts.texts, texts.starts, texts.ends)
            counts = {len(column) for column in columns if column}
            if counts != {len(values)}:
                return OTHER_COUNT, f"{len(values)} rows, {sorted(counts)} texts or times"
        return rejection

    def add(
        self,
        id: str,
        values: npt.NDArray[np.floating],
        *,
        rate: float,
        backbone: str,
        texts: RowTexts | None = None,
    ) -> None:
        """Add an item to the store.

        Args:
            id: id of the item.
            values: (T, D) rows of the item.
            rate: rows per second.
            backbone: name of the feature extractor.
            texts: the texts whose vectors the rows are. None: features of a video.

        Raises ShapeError for invalid values, StoreError for an existing id.
        """
        # What cannot be added is an error here. An import asks first.
        rejection = self.rejection_reason(id, values, texts)
        if rejection is not None:
            reason, value = rejection
            fault = f"{id}: {reason} ({value or 'of this store'})"
            message = f"{fault}; extract its features again, or leave it out"
            if reason in (REPEATED_ID, BAD_ID):
                raise StoreError(message)
            raise ShapeError(message)
        # The rows follow those that wait to be written.
        first = sum(map(len, self._values))
        self._values.append(values.astype(np.float16))
        rows, width = values.shape
        location = FeatureLocation(id, self._shard, first, rows, width, rate, backbone)
        self._locations.append(location)
        self._texts.append(texts)
        self._backbones[id] = backbone
        self.width = width
        if (first + rows) * width * 2 >= self._shard_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the buffered items as a shard: first the file of rows, then the index file."""
        from safetensors.numpy import save_file

        if not self._locations:
            return
        # Two writers would overwrite each other's shards.
        if index_path(self._folder, self._shard).exists():
            raise StoreError(
                f"{self._folder}: another process has now written shard {self._shard}; let one of "
                "them finish, then start the other again"
            )
        with atomic_path(shard_path(self._folder, self._shard)) as partial:
            save_file({TENSOR_NAME: np.concatenate(self._values)}, partial)
        write_index(self._folder, self._shard, self._locations, self._texts)
        self._values = []
        self._locations = []
        self._texts = []
        self._shard += 1

    def __enter__(self) -> "FeatureWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self.flush()


class RemoteFeatureStore(FeatureStore):
    """A feature store at a URL.

    All indexes are downloaded when the store is opened. A shard is downloaded when one of its rows
    is read.

    Args:
        url: address of the store's folder.
    """

    def __init__(self, url: str) -> None:
        from stepline.files.remote.cache import CachedFolder

        self._cached = CachedFolder(url)
        self._cached.fetch(name for name in self._cached.names if name.endswith(".parquet"))
        super().__init__(self._cached.folder, display_url=self._cached.display_url)

    def _shard_file(self, shard: int) -> Path:
        return self._cached.path(shard_path(Path(), shard).name)
