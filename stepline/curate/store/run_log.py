"""What a run writes down about itself: its inventory (recipe and videos), and a log of what each
task took.

    OUT/run.json, items.jsonl, refused.jsonl     the inventory, for `status`, reports and other machines
    OUT/timings/*.jsonl                          the log, a file for each process that submits tasks

The log is no part of the dataset. A "start" line is written before a task runs and an "end" line
after it, so that nothing that was computed is uncounted, whatever was killed. The last line of a
file may be cut off; it is left out when the log is read.
"""

import contextlib
import hashlib
import itertools
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import JsonValue

from stepline.atomic_files import atomic_path
from stepline.curate.stage import Collection, Recipe, VideoItem, rejected_video
from stepline.curate.store.manifests import MANIFESTS, read_json, write_manifest
from stepline.errors import StoreError
from stepline.limits import parse_json
from stepline.records import Rejected
from stepline.settings import validate
from stepline.version import __version__

if TYPE_CHECKING:
    from stepline.remote import RemotePath

T = TypeVar("T")

RUN, ITEMS, REFUSED, TIMINGS = "run.json", "items.jsonl", "refused.jsonl", "timings"  # below OUT
# seconds between the copies of a log that an object store gets: it cannot append
COPY_INTERVAL = 60.0
LARGEST_COPY = 2**22  # bytes of a log that is copied whole to a store: then another file begins

_file_number = itertools.count()


@dataclass
class LogTotals:
    """What the lines of a log come to. read: bytes of each of its files that are counted.

    first: when its first line was written; began: when the run was, 0 where another log says that;
    last: the end of its last task; tasks, cpu: finished tasks, and seconds, by stage. gpu_looks,
    gpu_busy: how often workers looked at their GPU, and the sum of the shares that they found busy.
    gpu_fallbacks: tasks done on the CPU as a GPU gave out.
    """

    read: dict[str, int] = field(default_factory=dict)
    first: float = 0.0
    began: float = 0.0
    last: float = 0.0
    tasks: dict[str, int] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    gpu_looks: float = 0.0
    gpu_busy: float = 0.0
    gpu_fallbacks: float = 0.0

    def add(self, line: Mapping[str, JsonValue]) -> None:
        """Count a line."""
        at, stage = _number(line, "at"), str(line.get("stage"))
        self.first = self.first or at
        if line.get("event") == "run":
            self.began = at
        if line.get("event") in ("end", "dataset"):
            self.tasks[stage] = self.tasks.get(stage, 0) + 1
            self.cpu[stage] = self.cpu.get(stage, 0.0) + _number(line, "cpu")
            self.last = at
            self.gpu_looks += _number(line, "gpu_looks")
            self.gpu_busy += _number(line, "gpu_busy")
            self.gpu_fallbacks += _number(line, "gpu_fallbacks")


def _number(line: Mapping[str, JsonValue], name: str) -> float:
    value = line.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0


class RunLog:
    """The log of one process. Where OUT is an object store it is kept on this machine and copied
    there now and then.

    What its lines come to is written beside it as often, so that nobody has to read them all.
    """

    def __init__(self, out: "RemotePath") -> None:
        self._out = out
        self._temporary = (
            None if out.local is not None else tempfile.TemporaryDirectory(prefix="stepline-")
        )
        self._home = out.local or Path(self._temporary.name if self._temporary else "")
        self._copied_at = time.monotonic()
        self._totals = LogTotals()
        self._begin_file()
        self._totals_name = f"{MANIFESTS}/log-{Path(self._name).stem}.json"

    def _begin_file(self) -> None:
        self._name = f"{TIMINGS}/{socket.gethostname()}-{os.getpid()}-{time.time_ns():x}-{next(_file_number)}.jsonl"
        self._path = self._home / self._name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("ab", buffering=0)

    def write(self, event: str, **fields: JsonValue) -> None:
        """Add one line."""
        line: dict[str, JsonValue] = {"event": event, "at": round(time.time(), 3), **fields}
        written = self._file.write(json.dumps(line).encode() + b"\n")
        file = Path(self._name).name
        self._totals.read[file] = self._totals.read.get(file, 0) + written
        self._totals.add(line)
        if time.monotonic() - self._copied_at > COPY_INTERVAL:
            self.copy()

    def close(self) -> None:
        """End the log."""
        self._file.close()
        self.copy()
        if self._temporary is not None:
            self._temporary.cleanup()

    def copy(self) -> None:
        """Have the lines so far where OUT is, and what they come to."""
        self._copied_at = time.monotonic()
        if self._temporary is not None:
            (self._out / self._name).write(self._path.read_bytes())
        write_manifest(self._out / self._totals_name, asdict(self._totals))
        if self._temporary is None:
            return
        if not self._file.closed and self._path.stat().st_size > LARGEST_COPY:
            self._file.close()
            self._path.unlink()
            self._begin_file()


def log_totals(out: "RemotePath") -> list[LogTotals]:
    """Return what each log comes to: what its process has written of it, with the lines since
    then."""
    folder, found = out / TIMINGS, out / MANIFESTS
    sizes = (
        {entry.name: entry.size for entry in folder.list()}
        if folder.local is None or folder.exists()
        else {}
    )
    names = [entry.name for entry in found.list()] if found.local is None or found.exists() else []
    totals = []
    for name in names:
        if name.startswith("log-"):
            with contextlib.suppress(TypeError):  # of another form: a cache, so the lines are read
                known = LogTotals(**read_json(found / name))
                if all(sizes.get(file, -1) >= size for file, size in known.read.items()):
                    totals.append(known)
    counted = {file: known for known in totals for file in known.read}
    for file in sorted(sizes):
        known = counted.get(file) or LogTotals()
        if known.read.get(file, 0) < sizes[file]:
            for line in _whole_lines((folder / file).read(known.read.get(file, 0))):
                known.add(line)
            if file not in counted:
                totals.append(known)
    return totals


def read_timings(out: "RemotePath") -> Iterator[Mapping[str, JsonValue]]:
    """Yield every whole line of every log below OUT, in the order of the files' names."""
    folder = out / TIMINGS
    names = (
        sorted(entry.name for entry in folder.list())
        if folder.local is None or folder.exists()
        else []
    )
    for name in names:
        yield from _whole_lines((folder / name).read())


def _whole_lines(data: bytes) -> Iterator[Mapping[str, JsonValue]]:
    for line in data.split(b"\n")[:-1]:  # what follows the last line's end was cut off
        try:
            fields = parse_json(line)
        except ValueError:  # a line that a full disk cut short
            continue
        if isinstance(fields, dict):
            yield fields


def write_inventory(out: "RemotePath", recipe: Recipe, collection: Collection, source: str) -> None:
    """Write what a run is, its items and its refused items below OUT. source: as it was named."""
    about = {"source": source, "version": __version__, "stages": list(recipe.stages)}
    counts = {"items": len(collection.items), "refused": len(collection.refused)}
    (out / RUN).write(
        json.dumps({**about, **counts, "recipe": recipe.model_dump(mode="json")}, indent=1)
    )
    _write_lines(out / ITEMS, collection.items)
    _write_lines(out / REFUSED, collection.refused)


@dataclass(frozen=True)
class InventoryCounts:
    """How many items and refused items a run has, and the sha256 of their files. files: the
    fingerprints of both."""

    files: list[str]
    items: int
    refused: int
    content: str


def inventory(out: "RemotePath") -> InventoryCounts:
    """Return what the inventory of the last run holds; written down until one of its files
    changes."""
    files, known = [out / ITEMS, out / REFUSED], read_json(out / f"{MANIFESTS}/items.json")
    marks = [file.fingerprint() for file in files]
    if known.get("files") != marks or known.keys() != {
        each.name for each in fields(InventoryCounts)
    }:
        digest, lines = hashlib.sha256(), [0, 0]
        for number, file in enumerate(files):
            with file.open() as opened:
                for part in iter(partial(opened.read, LARGEST_COPY), b""):
                    digest.update(part)
                    lines[number] += part.count(b"\n")
        known = {
            "files": marks,
            "items": lines[0],
            "refused": lines[1],
            "content": digest.hexdigest(),
        }
        write_manifest(out / f"{MANIFESTS}/items.json", known)
    return InventoryCounts(**known)


def _write_lines(path: "RemotePath", entries: Iterable[VideoItem | Rejected]) -> None:
    """Write a line an entry, without holding them all."""
    with tempfile.TemporaryDirectory(prefix="stepline-") as folder:
        local = path.local or Path(folder) / "lines"
        with atomic_path(local) as whole, whole.open("w", encoding="utf-8") as file:
            file.writelines(to_json_line(entry) + "\n" for entry in entries)
        if path.local is None:
            path.put(local)


def read_recipe(out: "RemotePath") -> Recipe:
    """Return the recipe of the last run on OUT. Raises StoreError where there was none."""
    path = out / RUN
    if not path.exists():
        cure = "give the folder that --out named"
        raise StoreError(f"{out.display_url}: no run of `stepline curate` has begun here; {cure}")
    return validate(Recipe, parse_json(path.read())["recipe"])


def read_items(out: "RemotePath") -> Iterator[VideoItem]:
    """Yield the items of the last run on OUT, sorted by id."""
    with (out / ITEMS).open() as file:
        yield from (from_json_line(VideoItem, line) for line in file)


def read_refused(out: "RemotePath") -> Iterator[Rejected]:
    """Yield what the source of the last run on OUT refused."""
    with (out / REFUSED).open() as file:
        yield from (from_json_line(rejected_video, line) for line in file)


def to_json_line(entry: VideoItem | Rejected) -> str:
    """Return an item, or an item that was refused, as one line of JSON, without what is not known
    of it."""
    fields = (
        {"id": entry.id, "reason": entry.reason} if isinstance(entry, Rejected) else asdict(entry)
    )
    return json.dumps(
        {name: value for name, value in fields.items() if value is not None}, ensure_ascii=False
    )


def from_json_line(build: Callable[..., T], line: bytes | str) -> T:
    """Return what `build` makes of the fields of a line."""
    try:
        return build(**parse_json(line))
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"{ITEMS}: a line is none that Stepline wrote ({error}); run again"
        ) from error
