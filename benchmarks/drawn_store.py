"""A store of features whose rows are drawn when they are read, for benchmarks of memory.

Its index is as large as that of a real store.
"""

import numpy as np

from stepline.features import FeatureStore
from stepline.features.shard_index import FeatureLocation
from stepline.records import Matrix

FEATURE_WIDTH = 16
SHARD_VIDEOS = 640


class DrawnRows(FeatureStore):
    """The index of a store of that many videos, and rows that differ from video to video."""

    def __init__(self, videos: int, rows: int) -> None:
        self._locations = {}
        for number in range(videos):
            id = f"v{number:07d}"
            shard, position = divmod(number, SHARD_VIDEOS)
            location = FeatureLocation(
                id, shard, position * rows, rows, FEATURE_WIDTH, 1.0, "drawn"
            )
            self._locations[id] = location

    def matrix(self, id: str, rows: slice = slice(None)) -> Matrix:
        """Return rows of a video, the same each time."""
        first, stop, _ = rows.indices(self[id].rows)
        rng = np.random.default_rng([int(id[1:]), first])
        return rng.standard_normal((stop - first, FEATURE_WIDTH), np.float32)
