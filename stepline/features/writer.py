"""Filling a feature store: rows gather in memory until a shard is full, and go to disk whole."""

from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError, StoreError
from stepline.features.flaws import BAD_ID, OTHER_COUNT, TWICE, flaw
from stepline.features.index import Lines, Stored, index_path, read_index, shard_path, shards_of, write_index
from stepline.features.shards import Half, write_shard
from stepline.store import check_writable, sweep

SHARD_BYTES = 256 * 2**20  # of a shard; what a killed import loses at most, and what writing holds in memory


class FeatureWriter:
    """Adds items to a store, which it makes where there is none; one writer a store at a time.

    As a context it writes what is left at the end, also after an error: every item that was added is whole.
    """

    def __init__(self, folder: Path, *, width: int | None = None, shard_bytes: int = SHARD_BYTES) -> None:
        check_writable(folder)
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
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
        self._stored: list[Stored] = []
        self._lines: list[Lines | None] = []

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def _take_width(self, width: int) -> None:
        if self.width not in (None, width):
            reason = f"its features are {width} wide, not {self.width}"
            raise ShapeError(f"{self._folder}: {reason}; give another --out, one store holds one width")
        self.width = width

    def flaw(self, id: str, values: object, lines: Lines | None = None) -> tuple[str, str] | None:
        """Return why an item cannot be added, with what was found; None where it can be."""
        if not id or id == "__metadata__" or any(sign in id for sign in "/\\\0\n"):
            return BAD_ID, repr(id)
        if id in self._ids:
            return TWICE, ""
        found = flaw(values, self.width)
        if found is None and lines is not None and isinstance(values, np.ndarray):
            counts = {len(column) for column in (lines.texts, lines.starts, lines.ends) if column}
            if counts != {len(values)}:
                return OTHER_COUNT, f"{len(values)} rows, {sorted(counts)} texts or times"
        return found

    def add(
        self, id: str, values: npt.NDArray[np.floating], *, rate: float, backbone: str, lines: Lines | None = None
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
        self._stored.append(Stored(id, self._shard, first, rows, width, rate, backbone))
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
