"""Local cache of remote files that are read repeatedly.

    <cache folder>/remote/<digest of URL and listing>/<name>

The least recently used shards are removed, so that the cache takes at most half of the disk's free
space. Processes and threads share it, and each file is downloaded once. fsspec's own caches
(simplecache, filecache) have no lock, no limit of size, and do not notice that a file changed
during the download.
"""

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
from stepline.files.remote.path import DEFAULT_SETTINGS, RemotePath
from stepline.files.remote.settings import RemoteSettings

SHARD_PATTERN = "*.safetensors"  # files that make room; all others are small, or wanted whole
IN_USE_SECONDS = 60.0  # s since a file was asked for, in which it stays
MAX_PARALLEL_FETCHES = 16  # files that are fetched at the same time
NOTE_SECONDS = 5.0  # s between two notes that a file is used


def is_remote(path: object) -> bool:
    """Return whether a path is a URL."""
    return "://" in str(path)


class CachedFolder:
    """A remote folder, as listed now, whose files are downloaded on demand.

    folder: of the local files. Each state of the remote folder has its own. most: limit in bytes of
    all cached shards, None for half of the free space.
    """

    def __init__(
        self, url: str, settings: RemoteSettings = DEFAULT_SETTINGS, *, most: int | None = None
    ) -> None:
        self._remote = RemotePath(url, settings)
        self._most = most
        entries = sorted(self._remote.list(), key=lambda entry: entry.name)
        self._entries = {entry.name: entry for entry in entries}
        # Another state of the remote folder has a folder of its own.
        self.folder = _folder_of(url, [f"{entry.name} {entry.fingerprint}" for entry in entries])
        self.names = tuple(self._entries)
        self._noted_at: dict[str, float] = {}  # by name: when the use of a file was noted

    @property
    def display_url(self) -> str:
        """Return the folder's URL for messages."""
        return self._remote.display_url

    def path(self, name: str) -> Path:
        """Return a local file, downloaded if missing.

        Raises StoreError where the download fails or the remote file has changed.
        """
        path = self.folder / name
        now = time.monotonic()
        # A file that was in use a moment ago has not been removed.
        if now - self._noted_at.get(name, -NOTE_SECONDS) < NOTE_SECONDS:
            return path
        entry = self._entries[name]
        _fetch_once(self._remote / name, path, entry.fingerprint, entry.size, self._most)
        utime(path)
        self._noted_at[name] = now
        return path

    def fetch(self, names: Iterable[str]) -> None:
        """Fetch several files."""
        with ThreadPoolExecutor(MAX_PARALLEL_FETCHES, thread_name_prefix="fetch") as pool:
            for _ in pool.map(self.path, names):
                pass


def local_copy(url: str, settings: RemoteSettings = DEFAULT_SETTINGS) -> Path:
    """Return the local copy of a remote file or folder. Raises StoreError where it is missing."""
    cached = CachedFolder(url, settings)
    if cached.names:
        cached.fetch(cached.names)
        return cached.folder
    # A single file, for its address lists nothing.
    remote = RemotePath(url, settings)
    fingerprint = remote.fingerprint()
    path = _folder_of(url, [fingerprint]) / remote.name
    _fetch_once(remote, path, fingerprint, remote.size())
    return path


def _folder_of(url: str, state: Iterable[str]) -> Path:
    content = "\n".join([url.rstrip("/"), *state]).encode("utf-8", "surrogatepass")
    return cache_folder() / "remote" / hashlib.sha256(content).hexdigest()[:32]


def _fetch_once(
    remote: RemotePath, path: Path, fingerprint: str, size: int, most: int | None = None
) -> None:
    """Download a file if it is missing. Raises StoreError where it differs from the listing."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # One thread of one process fetches it. The others find it then.
    with FileLock(path.with_name(f".{path.name}.lock")):
        if path.exists():
            return
        if path.match(SHARD_PATTERN):
            _make_room(size, most)
        if remote.fetch(path) != fingerprint:
            remove_file(path)
            raise StoreError(
                f"{remote.display_url}: it changed while it was read; give the same command again"
            )


def _make_room(size: int, most: int | None) -> None:
    """Remove the least recently used shards until `size` more bytes fit."""
    root = cache_folder() / "remote"
    now = time.time()
    shards = []
    total_bytes = size
    for path in root.rglob(SHARD_PATTERN):
        try:
            status = path.stat()
        except FileNotFoundError:  # another process made room
            continue
        shards.append((status.st_mtime, status.st_size, path))
        total_bytes += status.st_size
    if most is None:
        most = (total_bytes + shutil.disk_usage(root).free) // 2
    for used_at, shard_bytes, path in sorted(shards):
        if total_bytes <= most or now - used_at < IN_USE_SECONDS:
            break
        path.unlink(missing_ok=True)
        total_bytes -= shard_bytes
