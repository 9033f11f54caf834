"""A file of JSON lines that a kill cannot harm: each line is on disk before the one who gave it hears so."""

import json
import os
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from pydantic import ValidationError

from stepline.errors import StoreError
from stepline.records import Frozen

T = TypeVar("T", bound=Frozen)


class Kept(Generic[T]):
    """What was given, in the order given; a later one of the same key replaces the earlier.

    A last line that a kill cut short is removed when the file is next written to; nobody was told that it was kept.
    Raises StoreError for any other line that is no `kind`; `noun` names one in errors ("an answer").
    """

    def __init__(self, path: Path, kind: type[T], key: Callable[[T], Hashable], noun: str) -> None:
        self._path, self._kind, self._key, self._noun = path, kind, key, noun
        self._lock = Lock()
        self._given: dict[Hashable, T] = {}
        self._whole = 0  # bytes of whole lines
        for given in self._read():
            self._given[key(given)] = given

    def __iter__(self) -> Iterator[T]:
        with self._lock:
            return iter(list(self._given.values()))

    def add(self, given: T) -> None:
        """Keep one: it is on disk when this returns. Raises StoreError when it cannot be written."""
        line = (json.dumps(given.model_dump(mode="json"), ensure_ascii=False) + "\n").encode()
        with self._lock:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("r+b" if self._path.exists() else "wb") as file:
                    file.truncate(self._whole)
                    file.seek(self._whole)
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                reason = error.strerror or str(error)
                raise StoreError(f"{self._path}: cannot be written ({reason}); free some space") from error
            self._whole += len(line)
            self._given[self._key(given)] = given

    def _read(self) -> Iterator[T]:
        if not self._path.exists():
            return
        for number, line in enumerate(self._path.read_bytes().splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield self._kind.model_validate_json(line)
            except ValidationError as error:
                raise StoreError(f"{self._path}:{number}: not {self._noun}; mend or remove that line") from error
            self._whole += len(line)
