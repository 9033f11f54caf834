"""What a run writes down about itself: its inventory (recipe and videos), and a log of what each
task took.

    OUT/run.json, items.jsonl, refused.jsonl     the inventory, for `status`, reports and other machines
    OUT/timings/*.jsonl                          the log, a file for each process that submits tasks

The log is not part of the dataset. A "start" line is written before a task runs and an "end" line
after it. So nothing that was computed is uncounted, whatever was killed. The last line of a file
may be cut off. It is left out when the log is read.
"""

import contextlib
import itertools
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue

from stepline.curate.stage import (
    Collection,
    Recipe,
    SourceEntry,
    VideoItem,
    from_json,
    reject_video,
)
from stepline.curate.store.results import list_files
from stepline.errors import StoreError
from stepline.files.remote import RemotePath
from stepline.limits import parse_json
from stepline.records import Rejected
from stepline.settings import validate, without_removed_settings
from stepline.version import __version__

T = TypeVar("T")
LogLine = Mapping[str, JsonValue]

# Files and a folder below OUT.
RUN_FILE = "run.json"
ITEMS_FILE = "items.jsonl"
REFUSED_FILE = "refused.jsonl"
TIMINGS_FOLDER = "timings"
# seconds between the copies of a log that an object store gets: it cannot append
COPY_INTERVAL = 60.0
MAX_COPY_BYTES = 2**22  # of a log that is copied whole to a store: then another file begins

_file_number = itertools.count()


def read_number(line: LogLine, name: str) -> float:
    """Return a number of a log line, 0 if it is missing. name: key of the number."""
    value = line.get(name)
    return 0.0 if not isinstance(value, (int, float)) else float(value)


class RunLog:
    """The log of one process, as JSON lines. It is uploaded every minute to a remote output folder.

    out: output folder of the run.
    """

    def __init__(self, out: RemotePath) -> None:
        # An object store cannot append, so the log is written here and copied.
        self._out = out
        self._until_end = contextlib.ExitStack()
        if out.local is not None:
            self._home = out.local
        else:
            temporary = tempfile.TemporaryDirectory(prefix="stepline-")
            self._home = Path(self._until_end.enter_context(temporary))
        self._copied_at = time.monotonic()
        self._open_file()

    def _open_file(self) -> None:
        # A name that no other process has, on whatever machine.
        process = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns():x}"
        self._name = f"{TIMINGS_FOLDER}/{process}-{next(_file_number)}.jsonl"
        self._path = self._home / self._name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("ab", buffering=0)

    def write(self, event: str, **fields: JsonValue) -> None:
        """Append one line.

        Args:
            event: what happened, such as "start".
            fields: values of the line, by name.
        """
        line: dict[str, JsonValue] = {"event": event, "at": round(time.time(), 3), **fields}
        self._file.write(json.dumps(line).encode() + b"\n")
        if time.monotonic() - self._copied_at > COPY_INTERVAL:
            self.upload()

    def close(self) -> None:
        """Close the log."""
        self._file.close()
        self.upload()
        self._until_end.close()

    def upload(self) -> None:
        """Upload the log if the output folder is remote."""
        self._copied_at = time.monotonic()
        if self._out.local is not None:
            return
        (self._out / self._name).write(self._path.read_bytes())
        # A copy takes the whole file, so a file must not grow without end.
        if self._path.stat().st_size > MAX_COPY_BYTES and not self._file.closed:
            self._file.close()
            self._path.unlink()
            self._open_file()


def read_timings(out: RemotePath) -> Iterator[LogLine]:
    """Yield the complete lines of all logs of an output folder, in the order of the file names."""
    folder = out / TIMINGS_FOLDER
    for name in sorted(entry.name for entry in list_files(folder)):
        with (folder / name).open() as file:
            for line in file:
                try:
                    fields = parse_json(line)
                except ValueError:  # a line that a full disk or a kill cut short
                    continue
                if isinstance(fields, dict):
                    yield fields


def write_inventory(out: RemotePath, recipe: Recipe, collection: Collection, source: str) -> None:
    """Write the recipe, the videos and the refused entries of a run into its output folder.

    Args:
        out: output folder of the run.
        recipe: stages and settings.
        collection: videos and refused entries.
        source: URL or path of the source, as the user named it.
    """
    # The recipe as it was in force, with every setting.
    about = {
        "source": source,
        "version": __version__,
        "stages": list(recipe.stages),
        "items": len(collection.items),
        "refused": len(collection.refused),
        "recipe": recipe.model_dump(mode="json"),
    }
    (out / RUN_FILE).write(json.dumps(about, indent=1))
    _write_lines(out / ITEMS_FILE, collection.items)
    _write_lines(out / REFUSED_FILE, collection.refused)


def _write_lines(path: RemotePath, entries: Iterable[SourceEntry]) -> None:
    """Write entries as JSON lines."""
    path.write("".join(to_json_line(entry) + "\n" for entry in entries))


def read_recipe(out: RemotePath) -> Recipe:
    """Return the recipe of the last run, without settings that this release no longer has.

    out: output folder of the run.

    Raises StoreError if no run has begun there.
    """
    path = out / RUN_FILE
    if not path.exists():
        raise StoreError(
            f"{out.display_url}: no run of `stepline curate` has begun here; "
            "give the folder that --out named"
        )
    return validate(Recipe, without_removed_settings(parse_json(path.read())["recipe"]))


def read_items(out: RemotePath) -> Iterator[VideoItem]:
    """Yield the videos of the last run in an output folder, sorted by id."""
    return _read_lines(VideoItem, out / ITEMS_FILE)


def read_refused(out: RemotePath) -> Iterator[Rejected]:
    """Yield the entries that the source of the last run refused. out: output folder of the run."""
    return _read_lines(reject_video, out / REFUSED_FILE)


def _read_lines(build: Callable[..., T], path: RemotePath) -> Iterator[T]:
    with path.open() as file:
        for line in file:
            yield from_json(build, line, path.name)


def to_json_line(entry: SourceEntry) -> str:
    """Return an entry as one line of JSON. Fields that are None are omitted."""
    if isinstance(entry, Rejected):
        fields = {"id": entry.id, "reason": entry.reason}
    else:
        fields = {name: value for name, value in asdict(entry).items() if value is not None}
    return json.dumps(fields, ensure_ascii=False)
