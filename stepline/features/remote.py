"""Feature stores in a bucket: the same items, whose shards come to this disk when their rows are
asked for."""

from pathlib import Path

from stepline.features.store import FeatureStore, shard_path
from stepline.remote.cache import CachedFolder


class RemoteFeatureStore(FeatureStore):
    """A store at a URL. All its indexes are fetched at once, its shards as they are read
    (`remote.cache`)."""

    def __init__(self, url: str, *, most: int | None = None) -> None:
        self._cached = CachedFolder(url, most=most)
        self._cached.fetch(name for name in self._cached.names if name.endswith(".parquet"))
        super().__init__(self._cached.folder, shown=self._cached.display_url)

    def _shard_file(self, shard: int) -> Path:
        return self._cached.path(shard_path(Path(), shard).name)
