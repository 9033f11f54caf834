"""An append-only JSON lines file, safe against kills and concurrent processes.

A line is on disk when `add` returns. Each append holds an inter-process lock (`FILE.lock`), and
first reads the lines that other processes appended.
"""

import json
import os
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from filelock import FileLock, Timeout
from pydantic import ValidationError

from stepline.errors import StoreError
from stepline.records import FrozenModel

Entry = TypeVar("Entry", bound=FrozenModel)

# s for another process to finish its line, which takes milliseconds unless it is stopped
LOCK_WAIT_SECONDS = 10.0


class AppendLog(Generic[Entry]):
    """The entries of an append-only JSON lines file, ordered by the first occurrence of their keys.

    An entry replaces an earlier entry with the same key. If a killed process left an incomplete
    last line, the next append removes that line.
    """

    def __init__(
        self, path: Path, kind: type[Entry], key: Callable[[Entry], Hashable], noun: str
    ) -> None:
        """Read all entries of the file if it exists. `path` need not exist yet.

        Args:
            path: path of the file.
            kind: class of an entry, which also validates it.
            key: returns the key of an entry. A later entry with an equal key replaces an earlier one.
            noun: word for an entry in error messages, such as "an answer".

        Raises StoreError if a complete line is not a valid entry.
        """
        self._path, self._kind, self._key, self._noun = path, kind, key, noun
        self._thread_lock = Lock()
        self._file_lock = FileLock(
            path.with_name(f"{path.name}.lock"), timeout=LOCK_WAIT_SECONDS, poll_interval=0.01
        )
        self._entries: dict[Hashable, Entry] = {}
        self._size = 0  # bytes of whole lines read so far
        self._lines = 0
        self._read_new_lines()

    def __iter__(self) -> Iterator[Entry]:
        with self._thread_lock:
            self._read_new_lines()
            return iter(list(self._entries.values()))

    def add(self, entry: Entry) -> None:
        """Append an entry and flush it to disk. Raises StoreError if it cannot be written."""
        line = (json.dumps(entry.model_dump(mode="json"), ensure_ascii=False) + "\n").encode()
        with self._thread_lock:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._file_lock:
                    self._append(line)
            except Timeout as error:
                reason = f"another process has held its lock for {LOCK_WAIT_SECONDS:.0f} s"
                raise StoreError(f"{self._path}: {reason}; end that one and try again") from error
            except OSError as error:
                reason = error.strerror or str(error)
                raise StoreError(
                    f"{self._path}: cannot be written ({reason}); free some space"
                ) from error

    def _append(self, line: bytes) -> None:
        if self._path.is_symlink():
            raise StoreError(f"{self._path}: a link, and Stepline would write there; remove it")
        self._read_new_lines()
        # Without a buffer, which would be written again on closing, after the caller got an error.
        with self._path.open("ab", buffering=0) as file:
            # No other process writes under the lock: bytes after the last whole line are of a kill.
            file.truncate(self._size)
            try:
                remaining = memoryview(line)
                while remaining:
                    remaining = remaining[file.write(remaining) :]
                os.fsync(file.fileno())
            except OSError:
                # An entry that was reported as lost must not come back.
                file.truncate(self._size)
                raise
        self._read_new_lines()

    def _read_new_lines(self) -> None:
        """Read the complete lines that any process has appended since the last read."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if size < self._size:
            raise StoreError(
                f"{self._path}: it became shorter while it was in use; put it back, and start again"
            )
        if size == self._size:
            return
        with self._path.open("rb") as file:
            file.seek(self._size)
            for line in file:
                # A line without an end is still being written, or was truncated.
                if not line.endswith(b"\n"):
                    return
                try:
                    entry = self._kind.model_validate_json(line)
                except ValidationError as error:
                    raise StoreError(
                        f"{self._path}:{self._lines + 1}: "
                        f"not {self._noun}; correct or remove that line"
                    ) from error
                self._size += len(line)
                self._lines += 1
                self._entries[self._key(entry)] = entry
