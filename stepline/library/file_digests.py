"""The sha256 of video files, computed in a background thread."""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock

log = logging.getLogger(__name__)

FileVersion = tuple[Path, int, int]  # the path, the time of change (ns), the bytes

MAX_DIGESTS_IN_MEMORY = 10_000
BLOCK_BYTES = 2**20  # that are read at a time


class FileDigests:
    """Cache of the sha256 of files, by path, modification time and size.

    Attributes:
        on_done: called in the background thread after each digest.
    """

    def __init__(self) -> None:
        self.on_done: Callable[[], None] = lambda: None
        # None until the digest is computed, "" for a file that cannot be read
        self._digests: OrderedDict[FileVersion, str | None] = OrderedDict()
        self._lock = Lock()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="digests")
        self._is_closed = Event()

    def get(self, path: Path) -> str | None:
        """Return the sha256 of a file as hexadecimal digits. None until it is computed in the
        background, "" for a file that cannot be read. Raises OSError for a missing file."""
        # A file that changed has another version, and another digest.
        state = path.stat()
        version = (path, state.st_mtime_ns, state.st_size)
        with self._lock:
            if version not in self._digests and not self._is_closed.is_set():
                self._digests[version] = None
                if len(self._digests) > MAX_DIGESTS_IN_MEMORY:
                    self._digests.popitem(last=False)
                self._executor.submit(self._store_digest, version)
            return self._digests.get(version)

    @property
    def is_busy(self) -> bool:
        """Whether a digest is being computed."""
        with self._lock:
            return None in self._digests.values()

    def close(self) -> None:
        """Stop the background thread and wait for its end."""
        with self._lock:
            self._is_closed.set()
        self._executor.shutdown(cancel_futures=True)

    def _store_digest(self, version: FileVersion) -> None:
        digest: str | None = ""
        try:
            digest = self._digest(version[0])
        except OSError as error:
            log.warning("%s: cannot be compared with its record (%s)", version[0], error)
        if not self._is_closed.is_set():
            with self._lock:
                self._digests[version] = digest
            self.on_done()

    def _digest(self, path: Path) -> str | None:
        """Return the sha256 of a file, or None if `close` is called first."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                if self._is_closed.is_set():
                    return None
                digest.update(block)
        return digest.hexdigest()
