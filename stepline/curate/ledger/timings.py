"""What each unit of work took: journals that only grow, one a process that hands out units, no part of the dataset.

A "start" line is written before a unit runs and an "end" line after it, so that nothing that was computed is uncounted,
whatever was killed. The last line of a journal may be cut off; it is left out when journals are read.
"""

import itertools
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

if TYPE_CHECKING:
    from stepline.curate.places import Place

TIMINGS = "timings"
OFTEN = 60.0  # seconds between the copies of a journal that an object store gets: it cannot append
LARGEST = 2**22  # bytes of a journal beside a store, which is copied whole: then another one begins

_serial = itertools.count()


class Journal:
    """One process's lines. Where OUT is no local folder they are kept beside and copied there now and then."""

    def __init__(self, place: "Place") -> None:
        self._place = place
        self._beside = None if place.local is not None else tempfile.TemporaryDirectory(prefix="stepline-")
        self._home = place.local or Path(self._beside.name if self._beside else "")
        self._copied = time.monotonic()
        self._begin()

    def _begin(self) -> None:
        self._name = f"{TIMINGS}/{socket.gethostname()}-{os.getpid()}-{time.time_ns():x}-{next(_serial)}.jsonl"
        self._path = self._home / self._name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("ab", buffering=0)

    def write(self, event: str, **fields: JsonValue) -> None:
        """Add one line."""
        self._file.write(json.dumps({"event": event, "at": round(time.time(), 3), **fields}).encode() + b"\n")
        if time.monotonic() - self._copied > OFTEN:
            self.copy()

    def close(self) -> None:
        """End the journal."""
        self._file.close()
        self.copy()
        if self._beside is not None:
            self._beside.cleanup()

    def copy(self) -> None:
        """Have the lines so far where OUT is."""
        if self._beside is None:
            return
        (self._place / self._name).write(self._path.read_bytes())
        self._copied = time.monotonic()
        if not self._file.closed and self._path.stat().st_size > LARGEST:
            self._file.close()
            self._path.unlink()
            self._begin()


def read_timings(place: "Place") -> Iterator[Mapping[str, JsonValue]]:
    """Yield every whole line of every journal below OUT, in the order of the journals' names."""
    folder = place / TIMINGS
    names = sorted(found.name for found in folder.list()) if folder.local is None or folder.exists() else []
    for name in names:
        lines = (folder / name).read().split(b"\n")
        for line in lines[:-1]:  # what follows the last line's end was cut off
            try:
                fields = json.loads(line)
            except ValueError:  # a line that a full disk cut short
                continue
            if isinstance(fields, dict):
                yield fields
