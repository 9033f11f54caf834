"""Reading a feature store: one item at a time, in place, from any thread or process."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np

from stepline.errors import ShapeError, StoreError
from stepline.features.flaws import DAMAGED, EMPTY, NOT_FINITE, Dropped
from stepline.features.index import UNKNOWN, Lines, Stored, read_index, read_lines, shard_path, shards_of
from stepline.features.shards import Half, map_shard
from stepline.records import FeatureSequence, Matrix

KEPT = 4  # shards whose texts stay in memory


class FeatureStore(Mapping[str, Stored]):
    """The items of a folder that `FeatureWriter` filled: id -> where it lies; `read` gives the rows themselves.

    Raises StoreError when the folder is no store, or holds an id twice.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shards = shards_of(folder) if folder.is_dir() else []
        if not shards:
            raise StoreError(f"{folder}: no feature store; `stepline features import SOURCE --out {folder}` makes one")
        self._stored: dict[str, Stored] = {}
        for shard in shards:
            for stored in read_index(folder, shard):
                if stored.id in self._stored:
                    raise StoreError(f"{folder}: {stored.id} is in two shards; remove one and its index")
                self._stored[stored.id] = stored
        self._maps: dict[int, Half] = {}
        self._lines = lru_cache(KEPT)(lambda shard: read_lines(folder, shard))

    def __getitem__(self, id: str) -> Stored:
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

    def lines(self, id: str) -> Lines | None:
        """Return the texts that an item's rows are vectors of; None where they are none."""
        return self._lines(self[id].shard).get(id)

    def _rows(self, stored: Stored) -> Half:
        if stored.shard not in self._maps:
            self._maps[stored.shard] = map_shard(shard_path(self.folder, stored.shard))
        values = self._maps[stored.shard]
        if stored.first + stored.rows > len(values) or stored.width != values.shape[1]:
            place = shard_path(self.folder, stored.shard)
            raise StoreError(f"{place}: {stored.id} lies outside of it; import the features again")
        return values[stored.first : stored.first + stored.rows]

    def faults(self) -> Iterator[Dropped]:
        """Yield what is wrong with the rows that lie on disk; reads all of them."""
        for id, stored in self._stored.items():
            place = shard_path(self.folder, stored.shard)
            try:
                values = self._rows(stored)
            except StoreError as error:
                yield Dropped(id, str(place), DAMAGED, str(error))
                continue
            if not stored.rows:
                yield Dropped(id, str(place), EMPTY)
            elif not np.isfinite(values).all():
                yield Dropped(id, str(place), NOT_FINITE)
