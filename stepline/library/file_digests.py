"""The sha256 of video files, computed in a background thread."""

import hashlib
import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

log = logging.getLogger(__name__)

FileVersion: TypeAlias = tuple[Path, int, int]  # the path, the time of change (ns), the bytes

MAX_DIGESTS_IN_MEMORY = 10_000
BLOCK_BYTES = 2**20  # that are read at a time


class FileDigests:
    """Cache of the sha256 of files, by path, modification time and size.

    Attributes:
        on_done: called in the background thread after each digest.
    """

    def __init__(self) -> None:
        self.on_done: Callable[[], None] = lambda: None
        # None for a file that cannot be read
        self._digests: OrderedDict[FileVersion, str | None] = OrderedDict()
        self._waiting: queue.SimpleQueue[FileVersion | None] = queue.SimpleQueue()
        self._asked: set[FileVersion] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = threading.Event()

    def get(self, path: Path) -> str | None:
        """Return the sha256 of a file as hexadecimal digits. None until it is computed in the
        background, and for a file that cannot be read. Raises OSError for a missing file."""
        # A file that changed has another version, and another digest.
        state = path.stat()
        version = (path, state.st_mtime_ns, state.st_size)
        with self._lock:
            if version in self._digests:
                return self._digests[version]
            if version not in self._asked and not self._is_closed.is_set():
                self._asked.add(version)
                self._waiting.put(version)
                self._start()
        return None

    def close(self) -> None:
        """Stop the background thread and wait for its end."""
        self._is_closed.set()
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._compute_digests, name="digests", daemon=True
            )
            self._thread.start()

    def _compute_digests(self) -> None:
        while version := self._waiting.get():
            digest = None
            try:
                digest = self._digest(version[0])
            except OSError as error:
                log.warning("%s: cannot be compared with its record (%s)", version[0], error)
            # The digest may have been broken off.
            if self._is_closed.is_set():
                return
            with self._lock:
                self._digests[version] = digest
                self._asked.discard(version)
                if len(self._digests) > MAX_DIGESTS_IN_MEMORY:
                    self._digests.popitem(last=False)
            self.on_done()

    def _digest(self, path: Path) -> str | None:
        """Return the sha256 of a file, or None if the thread is stopped first."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                if self._is_closed.is_set():
                    return None
                digest.update(block)
        return digest.hexdigest()
