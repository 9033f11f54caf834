"""Local cache of remote files that are read repeatedly.

    <cache folder>/remote/<digest of URL and listing>/<name>

The least recently used shards are removed, so that the cache takes at most half of the disk's free
space. Processes and threads share the cache, and download each file once. fsspec's own caches
(simplecache, filecache) have no lock, no limit of size, and do not notice that a file changed
during the download.
"""

import contextlib
import hashlib
import shutil
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from os import utime
from pathlib import Path

from filelock import FileLock

from stepline.errors import StoreError
from stepline.files.atomic_files import cache_folder, remove_file
from stepline.files.remote.path import RemotePath

SHARD_PATTERN = "*.safetensors"  # files that may be removed; all others are small or needed whole
IN_USE_SECONDS = 60.0  # s since its last use in which a file is not removed
MAX_PARALLEL_DOWNLOADS = 16  # files
USE_NOTE_SECONDS = 5.0  # s between two notes that a file is used


def is_remote(path: object) -> bool:
    """Return whether a path is a URL."""
    return "://" in str(path)


class CachedFolder:
    """A remote folder, listed once, whose files are downloaded on demand.

    Attributes:
        folder: local folder of the downloaded files. If the remote listing changes, a new
            CachedFolder has another local folder.
        names: paths of the remote files relative to the remote folder, sorted.
    """

    def __init__(self, url: str, *, max_bytes: int | None = None) -> None:
        """List a remote folder.

        Args:
            url: URL of the folder.
            max_bytes: maximal bytes of all files in the cache. None: half of the free disk space.
        """
        self._remote = RemotePath(url)
        self._max_bytes = max_bytes
        entries = sorted(self._remote.list(), key=lambda entry: entry.name)
        self._entries = {entry.name: entry for entry in entries}
        self.folder = _cache_folder_of(
            url, [f"{entry.name} {entry.fingerprint}" for entry in entries]
        )
        self.names = tuple(self._entries)
        self._noted_at: dict[str, float] = {}  # name -> when its use was noted

    @property
    def display_url(self) -> str:
        """Return the folder's URL for messages."""
        return self._remote.display_url

    def path(self, name: str) -> Path:
        """Return the local path of a file, after its download if it is not in the cache.

        name: one of `names`.

        Raises StoreError if the download fails or the remote file has changed.
        """
        path = self.folder / name
        now = time.monotonic()
        # A file that was in use a moment ago has not been removed.
        if now - self._noted_at.get(name, -USE_NOTE_SECONDS) < USE_NOTE_SECONDS:
            return path
        entry = self._entries[name]
        _download_once(self._remote / name, path, entry.fingerprint, entry.size, self._max_bytes)
        utime(path)
        self._noted_at[name] = now
        return path

    def fetch(self, names: Iterable[str]) -> None:
        """Download several files in parallel."""
        with ThreadPoolExecutor(MAX_PARALLEL_DOWNLOADS, thread_name_prefix="fetch") as pool:
            for _ in pool.map(self.path, names):
                pass


def local_copy(url: str) -> Path:
    """Return the local copy of a remote file or folder. Raises StoreError if it does not exist."""
    cached = CachedFolder(url)
    if cached.names:
        cached.fetch(cached.names)
        return cached.folder
    # The URL of a single file lists nothing.
    remote = RemotePath(url)
    fingerprint = remote.fingerprint()
    path = _cache_folder_of(url, [fingerprint]) / remote.name
    _download_once(remote, path, fingerprint, remote.size())
    return path


def _cache_folder_of(url: str, fingerprints: Iterable[str]) -> Path:
    content = "\n".join([url.rstrip("/"), *fingerprints]).encode("utf-8", "surrogatepass")
    return cache_folder() / "remote" / hashlib.sha256(content).hexdigest()[:32]


def _download_once(
    remote: RemotePath, path: Path, fingerprint: str, size: int, max_bytes: int | None = None
) -> None:
    """Download a file to a local path, unless it is there already.

    Args:
        remote: the file.
        path: local path.
        fingerprint: fingerprint of the file in the listing.
        size: bytes of the file.
        max_bytes: maximal bytes of all cached files. None: half of the free disk space.

    Raises StoreError if the file is no longer the one of the listing.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # One thread of one process downloads it. The others find it then.
    with FileLock(path.with_name(f".{path.name}.lock")):
        if path.exists():
            return
        if path.match(SHARD_PATTERN):
            _remove_old_shards(size, max_bytes)
        if remote.fetch(path) != fingerprint:
            remove_file(path)
            raise StoreError(
                f"{remote.display_url}: it changed while it was read; give the same command again"
            )


def _remove_old_shards(size: int, max_bytes: int | None) -> None:
    """Remove the least recently used files until `size` more bytes fit into the cache.

    max_bytes: maximal bytes of the cache. None: half of the free disk space.
    """
    root = cache_folder() / "remote"
    now = time.time()
    shards = []
    total_bytes = size
    for path in root.rglob(SHARD_PATTERN):
        with contextlib.suppress(FileNotFoundError):  # another process removed it
            status = path.stat()
            shards.append((status.st_mtime, status.st_size, path))
            total_bytes += status.st_size
    if max_bytes is None:
        max_bytes = (total_bytes + shutil.disk_usage(root).free) // 2
    for used_at, shard_bytes, path in sorted(shards):
        if total_bytes <= max_bytes or now - used_at < IN_USE_SECONDS:
            break
        path.unlink(missing_ok=True)
        total_bytes -= shard_bytes
