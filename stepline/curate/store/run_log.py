"""What each unit of work took: journals that only grow, one a process that hands out units, no part of the dataset.

A "start" line is written before a unit runs and an "end" line after it, so that nothing that was computed is uncounted,
whatever was killed. The last line of a journal may be cut off; it is left out when journals are read.

What a run works on, beside its results: its recipe and its videos, for `status`, reports and other machines.
"""

import itertools
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import JsonValue

from stepline.curate.stage import Collection, Item, Recipe, Refused
from stepline.errors import StoreError
from stepline.settings import validate
from stepline.storage import atomic_path
from stepline.version import __version__

if TYPE_CHECKING:
    from stepline.curate.remote import RemotePath

TIMINGS = "timings"
OFTEN = 60.0  # seconds between the copies of a journal that an object store gets: it cannot append
LARGEST = 2**22  # bytes of a journal beside a store, which is copied whole: then another one begins

_serial = itertools.count()


class RunLog:
    """One process's lines. Where OUT is no local folder they are kept beside and copied there now and then."""

    def __init__(self, place: "RemotePath") -> None:
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


def read_timings(place: "RemotePath") -> Iterator[Mapping[str, JsonValue]]:
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


T = TypeVar("T", Item, Refused)

RUN, ITEMS, REFUSED = "run.json", "items.jsonl", "refused.jsonl"


def write_inventory(out: "RemotePath", recipe: Recipe, collection: Collection, source: str) -> None:
    """Write what a run is, its items and its refused items below OUT. source: as it was named."""
    about = {"source": source, "version": __version__, "stages": list(recipe.stages)}
    counts = {"items": len(collection.items), "refused": len(collection.refused)}
    (out / RUN).write(json.dumps({**about, **counts, "recipe": recipe.model_dump(mode="json")}, indent=1))
    _write_lines(out / ITEMS, collection.items)
    _write_lines(out / REFUSED, collection.refused)


def _write_lines(place: "RemotePath", things: Iterable[Item | Refused]) -> None:
    """Write a line a thing, without holding them all."""
    with tempfile.TemporaryDirectory(prefix="stepline-") as beside:
        with atomic_path(place.local or Path(beside) / "lines") as partial, partial.open("w", encoding="utf-8") as file:
            file.writelines(to_json_line(one) + "\n" for one in things)
        if place.local is None:
            place.put(Path(beside) / "lines")


def read_recipe(out: "RemotePath") -> Recipe:
    """Return the recipe of the last run on OUT. Raises StoreError where there was none."""
    place = out / RUN
    if not place.exists():
        raise StoreError(
            f"{out.display_url}: no run of `stepline curate` has begun here; give the folder that --out named"
        )
    return validate(Recipe, json.loads(place.read())["recipe"])


def read_items(out: "RemotePath") -> Iterator[Item]:
    """Yield the items of the last run on OUT, sorted by id."""
    with (out / ITEMS).open() as file:
        yield from (from_json_line(Item, line) for line in file)


def read_refused(out: "RemotePath") -> Iterator[Refused]:
    """Yield what the source of the last run on OUT refused."""
    with (out / REFUSED).open() as file:
        yield from (from_json_line(Refused, line) for line in file)


def to_json_line(one: Item | Refused) -> str:
    """Return an item as one line of JSON, without what is not known of it."""
    return json.dumps({name: value for name, value in asdict(one).items() if value is not None}, ensure_ascii=False)


def from_json_line(kind: type[T], line: bytes | str) -> T:
    """Return the item of a line."""
    try:
        return kind(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise StoreError(f"{ITEMS}: a line is none that Stepline wrote ({error}); run again") from error
