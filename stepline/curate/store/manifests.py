"""Manifests: what is below OUT as arrays, so that 1.2 million videos are known without a look at
each file.

    OUT/manifests/cells-STAGE.npz        the keys of a stage's results
    OUT/manifests/failures-STAGE.json    a stage's failures
    OUT/manifests/tasks-STAGE.npz        the keys of all videos' tasks in a phase, which begins with that stage
    OUT/manifests/STAGE.json             the key of a dataset stage, with a sha256 of all that it follows from
    OUT/manifests/items.json             the sha256 of the videos and of what was refused
    OUT/manifests/log-NAME.json          what the lines of a log come to (run_log.py)

Each is a cache that is checked each time by what costs little. On a disk that is the time of change
of each folder of results. In an object store it is who wrote it (lock.py) and one 256th of the
keys, which is listed. One that is old, damaged or lacking is made again, so a kill at any point
costs only time.
"""

import contextlib
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

from stepline.curate.stage import StageFailure
from stepline.errors import StoreError
from stepline.limits import parse_json

if TYPE_CHECKING:
    from stepline.files.remote import FileEntry, RemotePath

MANIFESTS_FOLDER = "manifests"  # below OUT
# keys that are held as Python's numbers, 70 bytes each, before they join the others
MAX_LOOSE_KEYS = 65536
# hex digits of a key that are enough to know it by: among 10 million keys no two agree in them
KEY_DIGITS = 16
KEY_NAME = re.compile(r"[0-9a-f]{64}\b")
SAVE_INTERVAL = 600.0  # seconds between the manifests that a driver writes into an object store
UNSETTLED_NS = 2 * 10**9  # after a folder's last change, in which another may have the same time

Keys: TypeAlias = npt.NDArray[np.uint64]
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Row: TypeAlias = list[Any]  # of a failure: its file, then its fields


class KeySet:
    """A set of keys: 8 bytes for each."""

    def __init__(self, listing: Keys) -> None:
        """listing: numbers of keys, sorted."""
        self._listing = listing
        self._added: set[int] = set()

    @classmethod
    def in_folder(cls, folder: "RemotePath") -> "KeySet":
        """List a stage's folder of keys."""
        return cls(listed_keys(folder))

    def __contains__(self, key: str) -> bool:
        number = key_number(key)
        if number in self._added:
            return True
        # A bisection, since the numbers are sorted.
        sought = np.uint64(number)
        index = int(np.searchsorted(self._listing, sought))
        return False if index == len(self._listing) else int(self._listing[index]) == number

    def add(self, key: str) -> None:
        """Take a key in."""
        self._added.add(key_number(key))
        if len(self._added) >= MAX_LOOSE_KEYS:
            self.numbers()

    def numbers(self) -> Keys:
        """Return the numbers of all keys, sorted."""
        if self._added:
            added = np.fromiter(self._added, dtype=np.uint64)
            self._listing = np.union1d(self._listing, added)
            self._added.clear()
        return self._listing


def key_number(key: str) -> int:
    """Return the number that a key is known by."""
    return int(key[:KEY_DIGITS], 16)


def are_among(keys: Keys, listing: Keys) -> "npt.NDArray[np.bool_]":
    """Return, for each key, whether it is in a listing, which is sorted."""
    # A search in order stays in the processor's cache: seven times as fast as numpy.isin.
    order = np.argsort(keys)
    ordered_keys = keys[order]
    rows = np.searchsorted(listing, ordered_keys)
    is_equal = np.append(listing, 0)[rows] == ordered_keys
    is_inside = rows < len(listing)
    among = np.zeros(len(keys), np.bool_)
    among[order] = is_equal & is_inside
    return among


def files_in(folder: "RemotePath") -> "Iterable[FileEntry]":
    """Yield the files below a folder, or none where a disk has no such folder."""
    return () if folder.local is not None and not folder.exists() else folder.list()


def listed_keys(folder: "RemotePath") -> Keys:
    """Return the numbers of the keys below a folder, sorted."""
    paths = (entry.name.rpartition("/") for entry in folder.list())
    numbers = _numbers(name for _, _, name in paths)
    return np.sort(numbers)


def _numbers(names: Iterable[str]) -> Keys:
    """Return the numbers of the files that are named by a key. A half-written file has another
    name."""
    keys = filter(KEY_NAME.match, names)
    # Hex digits of all keys in one text, which becomes numbers in one go.
    digits = "".join(key[:KEY_DIGITS] for key in keys)
    return np.frombuffer(bytes.fromhex(digits), dtype=">u8").astype(np.uint64)


def read_json(path: "RemotePath") -> dict[str, Any]:
    """Return a manifest of JSON, or nothing where none can be read."""
    try:
        if not path.exists():
            return {}
        tree = parse_json(path.read())
    except (ValueError, StoreError):  # a cache: one that is damaged or was removed is made again
        return {}
    return {} if not isinstance(tree, dict) else tree


def read_arrays(path: "RemotePath") -> Arrays:
    """Return the arrays of a manifest, or no arrays where none can be read."""
    try:
        if not path.exists():
            return {}
        file = io.BytesIO(path.read())
        with np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    # A cache, as above.
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile, StoreError):
        return {}


def write_manifest(path: "RemotePath", content: Mapping[str, Any]) -> None:
    """Write a manifest of JSON or arrays, where that is allowed: `status` may be asked by others
    than the owner."""
    is_json = path.name.endswith(".json")
    with contextlib.suppress(StoreError):
        if is_json:
            path.write(json.dumps(content))
        else:
            path.write(_npz(content))


def _npz(arrays: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _cells_path(out: "RemotePath", stage: str) -> "RemotePath":
    return out / f"{MANIFESTS_FOLDER}/cells-{stage}.npz"


def _settled(mark: int, now: int) -> int:
    """Return the time of change of a folder, or 0 where it is so new that it may change again
    unnoticed."""
    return 0 if now - mark <= UNSETTLED_NS else mark


def disk_keys(out: "RemotePath", stage: str) -> Keys:
    """Return the numbers of a stage's results on a disk, sorted. Only folders that changed are
    listed."""
    path = _cells_path(out, stage)
    home = (out / f"cells/{stage}").local
    before = _keys_by_folder(read_arrays(path))
    # Each folder's keys, with the time of its change.
    names: list[str] = []
    marks: list[int] = []
    parts: list[Keys] = [np.zeros(0, np.uint64)]
    lengths: list[int] = []
    now = time.time_ns()
    changed = False
    entries: list[os.DirEntry[str]] = []
    if home is not None and home.is_dir():
        entries = sorted(os.scandir(home), key=lambda entry: entry.name)
    for entry in entries:
        if not entry.is_dir():
            continue
        # A folder that has not changed has the keys that it had.
        mark = entry.stat().st_mtime_ns
        old_mark, keys = before.get(entry.name, (0, None))
        if keys is None or mark != old_mark:
            changed = True
            mark = _settled(mark, now)
            keys = _numbers(os.listdir(entry.path))
        names.append(entry.name)
        marks.append(mark)
        parts.append(keys)
        lengths.append(len(keys))
    all_keys = np.concatenate(parts)
    # Written only where something changed, so that a look costs little.
    if changed or len(names) != len(before):
        arrays = {
            "names": np.array(names, dtype=np.str_),
            "marks": np.array(marks, dtype=np.int64),
            "ends": np.cumsum(lengths, dtype=np.int64),
            "keys": all_keys,
        }
        write_manifest(path, arrays)
    return np.sort(all_keys)


def _keys_by_folder(arrays: "Arrays") -> dict[str, tuple[int, Keys]]:
    """Return the time of change and the keys of each folder, or none where a manifest has another
    form."""
    try:
        names = arrays["names"].tolist()
        marks = arrays["marks"].tolist()
        ends = arrays["ends"][:-1]
        parts = np.split(arrays["keys"], ends)
        marked_parts = zip(marks, parts, strict=True)
        return dict(zip(names, marked_parts, strict=True))
    except (KeyError, ValueError):
        return {}


def store_keys(out: "RemotePath", stage: str, owner: str) -> Keys:
    """Return the numbers of a stage's results in an object store, sorted.

    They are of the manifest where the driver that works now wrote it, in the last `SAVE_INTERVAL`,
    or the last driver at its end. A 256th of the keys, listed, must also not contradict it. Else
    all are listed. owner: the driver's name, or "".
    """
    folder = out / f"cells/{stage}"
    manifest = read_arrays(_cells_path(out, stage))
    if "keys" not in manifest or str(manifest.get("owner")) != owner:
        return listed_keys(folder)
    keys: Keys = manifest["keys"]

    # A 256th of the keys, listed, against those of the manifest.
    prefix = random.randrange(256)
    # The folders are named by the first byte of a key, so one of them is a 256th.
    sample = listed_keys(folder / f"{prefix:02x}")
    lowest = prefix << 56
    highest = lowest | (2**56 - 1)
    bounds = np.array([lowest, highest], np.uint64)
    first, last = np.searchsorted(keys, bounds)
    saved = keys[first:last]
    # While a driver works, the store may have more than the manifest, never less.
    agrees = bool(are_among(saved, sample).all()) if owner else np.array_equal(saved, sample)
    if not agrees:
        return listed_keys(folder)
    return keys


def save_store_keys(out: "RemotePath", stage: str, keys: Keys, owner: str) -> None:
    """Write the manifest of a stage's results in an object store. owner: the driver that works, ""
    at its end.

    Raises StoreError where it cannot be written: an older one would be believed.
    """
    arrays = {"keys": keys, "owner": np.array(owner)}
    data = _npz(arrays)
    _cells_path(out, stage).write(data)


def stage_failures(out: "RemotePath", stage: str) -> dict[int, StageFailure]:
    """Return a stage's failures, by the number of the task's key. Only those that are new are
    read."""
    path = out / f"{MANIFESTS_FOLDER}/failures-{stage}.json"
    folder = out / f"failures/{stage}"
    local = folder.local
    if local is not None and not local.is_dir():
        return {}
    manifest = read_json(path)
    # A disk shows by its folder's time that nothing came. A store is listed.
    mark = 0  # of an object store, which is listed each time
    if local is not None:
        mark = local.stat().st_mtime_ns
    rows: list[Row] = manifest.get("rows", [])
    if not mark or mark != manifest.get("mark"):
        mark = _settled(mark, time.time_ns())
        # Only files that are new or have changed are read.
        before = {(row[0], row[1]): row for row in rows}
        rows = []
        for file in folder.list():
            if not KEY_NAME.match(file.name):
                continue
            row = before.get((file.name, file.fingerprint))
            if not row:
                row = _read_failure(folder, file)
            rows.append(row)
        write_manifest(path, {"mark": mark, "rows": rows})
    # By the number of the key, as results are.
    failures = {}
    for name, _, id, kind, reason, attempts in rows:
        failure = StageFailure(id, stage, kind, reason, attempts)
        failures[key_number(name)] = failure
    return failures


def _read_failure(folder: "RemotePath", file: "FileEntry") -> Row:
    failure = StageFailure.from_json((folder / file.name).read(), file.name)
    row: Row = [file.name, file.fingerprint]
    row += [failure.id, failure.kind, failure.reason, failure.attempts]
    return row


def phase_keys(
    out: "RemotePath",
    first_stage: str,
    digest: str,
    named_keys: Callable[[], Iterable[tuple[str, str]]],
) -> dict[str, Keys]:
    """Return, by stage of a phase, the number of the key of each video's task, in the videos'
    order.

    digest: of all that decides them. named_keys: stage and key of every task, asked only where no
    manifest of that digest is there.
    """
    # All keys of a phase in one file, which holds for one digest alone.
    path = out / f"{MANIFESTS_FOLDER}/tasks-{first_stage}.npz"
    manifest = read_arrays(path)
    if str(manifest.pop("digest", "")) == digest:
        return manifest
    # array takes 8 bytes per key, where a list would take many times that.
    columns: dict[str, array[int]] = {}
    for stage, key in named_keys():
        column = columns.setdefault(stage, array("Q"))
        column.append(key_number(key))
    keys: dict[str, Keys] = {}
    for stage, column in columns.items():
        keys[stage] = np.frombuffer(column, dtype=np.uint64)
    arrays = {**keys, "digest": np.array(digest)}
    write_manifest(path, arrays)
    return keys
