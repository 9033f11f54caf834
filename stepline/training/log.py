"""What a run tells on disk: JSON lines, one a step."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from stepline.errors import StoreError
from stepline.store import atomic_path

LOG = "log.jsonl"


class Log:
    """JSON lines, one a step; those after the checkpoint go, since their steps are taken again.

    Raises StoreError, with the cure, when the disk is full.
    """

    def __init__(self, path: Path, done: int) -> None:
        if path.exists():
            kept = path.read_text(encoding="utf-8").splitlines(keepends=True)[:done]
            with atomic_path(path) as partial:
                partial.write_text("".join(kept), encoding="utf-8")
        self._path = path
        self._file = path.open("a", encoding="utf-8")

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with suppress(OSError) if kind is not None else self._refused():
            self._file.close()

    def write(self, line: Mapping[str, float]) -> None:
        """Add a step."""
        with self._refused():
            self._file.write(json.dumps(line) + "\n")

    def flush(self) -> None:
        """Hand the lines to the disk, so that a checkpoint never knows of steps that the log does not."""
        with self._refused():
            self._file.flush()
            os.fsync(self._file.fileno())

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            cure = "free some space and give the same command again"
            raise StoreError(f"{self._path}: cannot be written ({error.strerror or error}); {cure}") from error
