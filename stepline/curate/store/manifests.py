"""Manifests: what lies below OUT as arrays, so that who knows 1.2 million videos asks for no file
of each.

    OUT/manifests/cells-STAGE.npz        the keys of a stage's results
    OUT/manifests/failures-STAGE.json    a stage's failures
    OUT/manifests/tasks-STAGE.npz        the keys of all videos' tasks in a phase, which begins with that stage
    OUT/manifests/STAGE.json             the key of a dataset stage, beside all that it follows from
    OUT/manifests/items.json             the sha256 of the videos and of what was refused
    OUT/manifests/log-NAME.json          what the lines of a log come to (run_log.py)

Each is a cache that is checked each time by what costs little: on a disk by the time of change of
each folder of results, in an object store by who wrote it (lock.py) and by one 256th of the keys,
which is listed. One that is old, damaged or lacking is made anew; so a kill at any point costs time
alone.
"""

import hashlib
import io
import json
import os
import random
import re
import time
import zipfile
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import JsonValue

from stepline.curate.stage import StageFailure, VideoItem
from stepline.errors import StoreError
from stepline.limits import parse_json
from stepline.version import __version__

if TYPE_CHECKING:
    from stepline.curate.plan import Plan
    from stepline.remote import RemotePath

MANIFESTS = "manifests"  # below OUT
# keys that are held as numbers of Python's, 70 bytes each, before they join the others
LOOSE = 65536
# hex digits of a key that are enough to know it by: among 10 million keys no two agree in them
DIGITS = 16
KEY = re.compile(r"[0-9a-f]{64}\b")
SAVE_INTERVAL = 600.0  # seconds between the manifests that a driver writes into an object store
UNSETTLED = 2 * 10**9  # ns after a folder's last change in which another one may have the same time

Keys: TypeAlias = npt.NDArray[np.uint64]


class KeySet:
    """A set of keys: 8 bytes for each."""

    def __init__(self, listed: Keys) -> None:
        """listed: numbers of keys, sorted."""
        self._listed = listed
        self._added: set[int] = set()

    @classmethod
    def of(cls, folder: "RemotePath") -> "KeySet":
        """List a stage's folder of keys."""
        return cls(listed_keys(folder))

    def __contains__(self, key: str) -> bool:
        number = key_number(key)
        index = int(np.searchsorted(self._listed, np.uint64(number)))
        return number in self._added or (
            index < len(self._listed) and int(self._listed[index]) == number
        )

    def add(self, key: str) -> None:
        """Take a key in."""
        self._added.add(key_number(key))
        if len(self._added) >= LOOSE:
            self.numbers()

    def numbers(self) -> Keys:
        """Return the numbers of all keys, sorted."""
        if self._added:
            self._listed = np.union1d(self._listed, np.fromiter(self._added, dtype=np.uint64))
            self._added.clear()
        return self._listed


def key_number(key: str) -> int:
    """Return the number that a key is known by."""
    return int(key[:DIGITS], 16)


def are_among(keys: Keys, listed: Keys) -> "npt.NDArray[np.bool_]":
    """Tell of each key whether it is among the listed ones, which are sorted."""
    # A search in order stays in the processor's cache: seven times as fast as numpy.isin.
    order = np.argsort(keys)
    places = np.searchsorted(listed, keys[order])
    found = np.zeros(len(keys), np.bool_)
    found[order] = np.append(listed, 0)[places] == keys[order]
    found[order] &= places < len(listed)
    return found


def listed_keys(folder: "RemotePath") -> Keys:
    """Return the numbers of the keys below a folder, sorted."""
    return np.sort(_numbers(entry.name.rpartition("/")[2] for entry in folder.list()))


def _numbers(names: Iterable[str]) -> Keys:
    """Return the numbers of the files that are named by a key; what is written half has another
    name."""
    digits = "".join(name[:DIGITS] for name in names if KEY.match(name))
    return np.frombuffer(bytes.fromhex(digits), dtype=">u8").astype(np.uint64)


def read_json(path: "RemotePath") -> dict[str, Any]:
    """Return a manifest of JSON; nothing where there is none that can be read."""
    try:
        tree = parse_json(path.read()) if path.exists() else {}
    except (ValueError, StoreError):  # a cache: what is damaged, or removed meanwhile, is made anew
        return {}
    return tree if isinstance(tree, dict) else {}


def read_arrays(path: "RemotePath") -> "dict[str, npt.NDArray[Any]]":
    """Return the arrays of a manifest; none where there is none that can be read."""
    try:
        if not path.exists():
            return {}
        with np.load(io.BytesIO(path.read()), allow_pickle=False) as arrays:
            return dict(arrays)
    # a cache, as above
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile, StoreError):
        return {}


def write_manifest(path: "RemotePath", content: Mapping[str, Any]) -> bool:
    """Write a manifest of JSON or arrays; tell whether that was possible: who asks for a status may
    not be allowed."""
    try:
        path.write(json.dumps(content) if path.name.endswith(".json") else _npz(content))
    except StoreError:
        return False
    return True


def _npz(arrays: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def disk_keys(out: "RemotePath", stage: str) -> Keys:
    """Return the numbers of a stage's results on a disk, sorted; only folders that changed are
    listed."""
    path, home = out / f"{MANIFESTS}/cells-{stage}.npz", (out / f"cells/{stage}").local
    known = read_arrays(path)
    try:
        ends = known.get("ends", np.zeros(0, np.int64)).tolist()
        parts = (
            dict(zip(known["names"].tolist(), np.split(known["keys"], ends[:-1]), strict=True))
            if ends
            else {}
        )
        marks = dict(zip(parts, known["marks"].tolist(), strict=True))
    except (KeyError, ValueError):  # no manifest of this form
        parts, marks = {}, {}
    found: dict[str, tuple[int, Keys]] = {}
    now, same = time.time_ns(), True
    for folder in (
        sorted(os.scandir(home), key=lambda entry: entry.name)
        if home is not None and home.is_dir()
        else ()
    ):
        if not folder.is_dir():
            continue
        mark = folder.stat().st_mtime_ns
        if marks.get(folder.name) != mark:
            same = False
            parts[folder.name] = _numbers(os.listdir(folder.path))
            mark = mark if now - mark > UNSETTLED else 0
        found[folder.name] = mark, parts[folder.name]
    keys = [part for _, part in found.values()]
    whole = np.concatenate(keys) if keys else np.zeros(0, np.uint64)
    if not same or len(found) != len(marks):
        sizes = np.cumsum([len(part) for part in keys], dtype=np.int64)
        times = np.array([mark for mark, _ in found.values()], dtype=np.int64)
        names = np.array(list(found), dtype=np.str_)
        write_manifest(path, {"names": names, "marks": times, "ends": sizes, "keys": whole})
    return np.sort(whole)


def store_keys(out: "RemotePath", stage: str, owner: str) -> Keys:
    """Return the numbers of a stage's results in an object store, sorted.

    Of the manifest, where the driver that works now wrote it, in the last `SAVE_INTERVAL`, or the
    last driver at its end, and where a 256th of the keys, listed, does not belie it; else all are
    listed. owner: the driver's name, or "".
    """
    path, folder = out / f"{MANIFESTS}/cells-{stage}.npz", out / f"cells/{stage}"
    known = read_arrays(path)
    if "keys" in known and str(known.get("owner")) == owner:
        keys: Keys = known["keys"]
        prefix = random.randrange(256)
        sample = listed_keys(folder / f"{prefix:02x}")
        first, last = np.searchsorted(
            keys, [np.uint64(prefix << 56), np.uint64((prefix << 56) | (2**56 - 1))]
        )
        same = (
            are_among(keys[first:last], sample).all()
            if owner
            else np.array_equal(keys[first:last], sample)
        )
        if same:
            return keys
    return listed_keys(folder)


def save_store_keys(out: "RemotePath", stage: str, keys: Keys, owner: str) -> None:
    """Write the manifest of a stage's results in an object store. owner: the driver that works, ""
    at its end.

    Raises StoreError where it cannot be written: an older one would be believed.
    """
    (out / f"{MANIFESTS}/cells-{stage}.npz").write(_npz({"keys": keys, "owner": np.array(owner)}))


def stage_failures(out: "RemotePath", stage: str) -> dict[int, StageFailure]:
    """Return a stage's failures, by the number of the task's key; only those that are new are
    read."""
    path, folder = out / f"{MANIFESTS}/failures-{stage}.json", out / f"failures/{stage}"
    if folder.local is not None and not folder.local.is_dir():
        return {}
    known = read_json(path)
    # a store's is listed each time
    mark = folder.local.stat().st_mtime_ns if folder.local is not None else 0
    rows: list[list[Any]] = known.get("rows", [])
    if not mark or mark != known.get("mark"):
        mark = mark if time.time_ns() - mark > UNSETTLED else 0
        before = {(row[0], row[1]): row for row in rows}
        files = [file for file in folder.list() if KEY.match(file.name)]
        rows = [
            before.get((file.name, file.fingerprint)) or _read_failure(folder, file)
            for file in files
        ]
        write_manifest(path, {"mark": mark, "rows": rows})
    return {
        key_number(name): StageFailure(id, stage, kind, reason, tries)
        for name, _, id, kind, reason, tries in rows
    }


def _read_failure(folder: "RemotePath", file: Any) -> list[Any]:
    try:
        found = StageFailure(**parse_json((folder / file.name).read()))
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"{file.name}: not a failure that Stepline wrote ({error}); remove it"
        ) from error
    return [file.name, file.fingerprint, found.id, found.kind, found.reason, found.attempts]


def task_keys(
    out: "RemotePath",
    plan: "Plan",
    stages: tuple[str, ...],
    content: str,
    items: Callable[[], Iterable[VideoItem]],
) -> dict[str, Keys]:
    """Return, by stage of a phase, the number of the key of each video's task, in the videos'
    order.

    Stages whose needs are not done have none. content: the sha256 of the videos, which are read
    only where the keys are not known yet.
    """
    path, digest = out / f"{MANIFESTS}/tasks-{stages[0]}.npz", _plan_digest(plan, content)
    known = read_arrays(path)
    if str(known.pop("digest", "")) == digest:
        return known
    columns: dict[str, array[int]] = {}
    for item in items():
        for task in plan.tasks(item):
            if task.stage in stages:
                columns.setdefault(task.stage, array("Q")).append(key_number(task.key))
    found = {name: np.frombuffer(column, dtype=np.uint64) for name, column in columns.items()}
    write_manifest(path, {**found, "digest": np.array(digest)})
    return found


def _plan_digest(plan: "Plan", content: str) -> str:
    """Return a sha256 of all that decides the keys of a run's tasks."""
    parts: list[JsonValue] = [
        __version__,
        content,
        list(map(list, sorted(plan.dataset_keys.items()))),
    ]
    for stage in plan.stages.values():
        if stage.kind == "video":
            parts.append(
                [
                    stage.name,
                    stage.version,
                    list(stage.needs),
                    list(stage.reads),
                    plan.settings[stage.name],
                ]
            )
            parts.append(list(map(list, sorted(plan.libraries.get(stage.name, {}).items()))))
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def dataset_digest(plan: "Plan", stage: str, failures: Iterable[StageFailure], content: str) -> str:
    """Return a sha256 of all that a dataset stage's key follows from. failures: of the video stages
    before it."""
    named, about = plan.stages[stage], _plan_digest(plan, content)
    lost = sorted([failure.id, failure.stage, failure.kind, failure.reason] for failure in failures)
    parts: list[JsonValue] = [
        about,
        stage,
        named.version,
        list(named.needs),
        list(named.reads),
        plan.settings[stage],
    ]
    return hashlib.sha256(
        json.dumps([*parts, plan.recipe.threads, lost], sort_keys=True).encode()
    ).hexdigest()
