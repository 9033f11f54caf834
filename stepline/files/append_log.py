"""An append-only JSON lines file, safe against kills and concurrent processes.

A line is on disk when `add` returns. Each append holds an inter-process lock (`FILE.lock`), and
first reads the lines that others appended.
"""

import json
import os
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from threading import Lock
from typing import Generic, Protocol, TypeVar

from filelock import FileLock, Timeout
from pydantic import ValidationError

from stepline.errors import StoreError
from stepline.records import FrozenModel

Entry = TypeVar("Entry", bound=FrozenModel)

# s for another process to finish its line, which takes milliseconds unless it is stopped
LOCK_WAIT_SECONDS = 10.0


class EntryStore(Protocol[Entry]):
    """Protocol of a store of entries, durable before `add` returns. A later entry replaces its
    key's.
    """

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries in the order of their first keys."""
        ...

    def add(self, entry: Entry) -> None:
        """Add an entry durably."""
        ...


class AppendLog(Generic[Entry]):
    """The entries of a file in the order of their first keys. A later entry replaces its key's.

    The next append removes a last line that a kill truncated.

    Args:
        path: the file.
        kind: the class of the entries.
        key: returns the key of an entry.
        noun: names an entry in errors, such as "an answer".

    Raises StoreError for any other line that is not a `kind`.
    """

    def __init__(
        self, path: Path, kind: type[Entry], key: Callable[[Entry], Hashable], noun: str
    ) -> None:
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
        """Append an entry durably. Raises StoreError when it cannot be written."""
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
        # Without a buffer, which would be written once more on closing, after an error that the
        # caller got.
        with self._path.open("ab", buffering=0) as file:
            # Under the lock no one else writes: what is behind the last whole line is what a kill
            # cut short.
            file.truncate(self._size)
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            except OSError:
                # What the caller hears is lost must not come back as kept.
                file.truncate(self._size)
                raise
        self._read_new_lines()

    def _read_new_lines(self) -> None:
        """Read the complete lines that any process appended since the last read."""
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
                # A line without an end is still being written, or was cut short.
                if not line.endswith(b"\n"):
                    return
                try:
                    entry = self._kind.model_validate_json(line)
                except ValidationError as error:
                    where = f"{self._path}:{self._lines + 1}"
                    raise StoreError(
                        f"{where}: not {self._noun}; correct or remove that line"
                    ) from error
                self._size += len(line)
                self._lines += 1
                self._entries[self._key(entry)] = entry
