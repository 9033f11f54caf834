"""Results and failures below OUT, each written whole or not at all.

    OUT/cells/STAGE/k[:2]/KEY.json        the result of a task; that it is there says that it is done
    OUT/failures/STAGE/KEY.json           why there is none
    OUT/stages/STAGE/KEY/                 what a dataset stage made; a KEY.json next to it says that it is complete

A KEY is a hash of all that decides the result (plan.py).
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.curate.stage import DATASET_FOLDER, Stage, StageFailure
from stepline.curate.store.manifests import (
    MANIFESTS_FOLDER,
    KeySet,
    disk_keys,
    files_in,
    save_store_keys,
)
from stepline.errors import StoreError
from stepline.files.atomic_files import PARTIAL_SUFFIX, cache_folder
from stepline.limits import parse_json

if TYPE_CHECKING:
    from stepline.files.remote import RemotePath

# Folders below OUT.
CELLS_FOLDER = "cells"
FAILURES_FOLDER = "failures"
STAGES_FOLDER = "stages"
# Of a digest of OUT's address, which names its folder in the cache.
DIGEST_DIGITS = 16


def result_path(stage: Stage, key: str) -> str:
    """Return where a result is below OUT."""
    return f"{CELLS_FOLDER}/{stage.name}/{key[:2]}/{key}{stage.suffix}"


def failure_path(stage: Stage, key: str) -> str:
    """Return where a failure is below OUT."""
    return f"{FAILURES_FOLDER}/{stage.name}/{key}.json"


def remove_partials(out: "RemotePath") -> None:
    """Remove what killed processes left half-written on a disk. No other process reads it."""
    if out.local is None:
        return
    # Patterns below OUT.
    folders = (
        "",
        f"{CELLS_FOLDER}/*/*/",
        f"{FAILURES_FOLDER}/*/",
        f"{STAGES_FOLDER}/*/",
        f"{DATASET_FOLDER}/**/",
        "features/",
        f"{MANIFESTS_FOLDER}/",
    )
    for folder in folders:
        for partial in out.local.glob(f"{folder}.*{PARTIAL_SUFFIX}*"):
            partial.unlink(missing_ok=True)


class ResultStore:
    """Results and failures of a run's tasks. An object store is listed once per stage: to ask for
    each key takes days.

    listed: False for one of many who see a few videos each. Each key is asked for when it is
    needed.
    """

    def __init__(self, out: "RemotePath", *, listed: bool = True) -> None:
        self.out = out
        self._listed = listed and out.local is None
        # Of an object store, by path: they are asked for again before each stage over all videos.
        self._failures: dict[str, StageFailure] = {}
        self._done_keys: dict[str, KeySet] = {}  # by stage
        self._failed_keys: dict[str, KeySet] = {}

    def has(self, stage: Stage, key: str) -> bool:
        """Return whether a result is there."""
        if self._listed:
            return key in self._done(stage.name)
        # One file on a disk is asked for faster than a folder is listed.
        return self._result(stage, key).exists()

    def read(self, stage: Stage, key: str) -> bytes:
        """Return a result. Raises StoreError where it is not there."""
        return self._result(stage, key).read()

    def write(self, stage: Stage, key: str, data: bytes) -> None:
        """Keep a result, whole or not at all. Raises StoreError where there is no room or no
        permission."""
        self._result(stage, key).write(data)
        self.add_key(stage, key)

    def _result(self, stage: Stage, key: str) -> "RemotePath":
        return self.out / result_path(stage, key)

    def add_key(self, stage: Stage, key: str) -> None:
        """Know of a result that another process has written."""
        if stage.name in self._done_keys:
            self._done_keys[stage.name].add(key)

    def failure(self, stage: Stage, key: str) -> StageFailure | None:
        """Return why a task has no result, where that was found out before."""
        path = failure_path(stage, key)
        file = self.out / path
        # A disk, or a single key: the file itself is asked for.
        if not self._listed:
            if not file.exists():
                return None
            data = file.read()
            return StageFailure.from_json(data, path)
        if key not in self._keys(self._failed_keys, FAILURES_FOLDER, stage.name):
            return None
        if path not in self._failures:
            data = file.read()
            self._failures[path] = StageFailure.from_json(data, path)
        return self._failures[path]

    def add_failure(self, stage: Stage, key: str, failure: StageFailure) -> StageFailure:
        """Keep a failure, with the attempts of earlier runs added, and return it."""
        before = self.failure(stage, key)
        if before is not None:
            attempts = failure.attempts + before.attempts
            failure = replace(failure, attempts=attempts)
        path = failure_path(stage, key)
        content = json.dumps(asdict(failure), indent=1)
        (self.out / path).write(content)
        self._failures.pop(path, None)
        if stage.name in self._failed_keys:
            self._failed_keys[stage.name].add(key)
        return failure

    def save_manifests(self, stages: Iterable[str], owner: str | None = None) -> None:
        """Write down which results there are. owner: the driver that goes on, None at its end.

        On a disk folders show by themselves when they changed, so once at the end is enough.
        """
        for stage in stages:
            if self._listed:
                numbers = self._done(stage).numbers()
                save_store_keys(self.out, stage, numbers, owner or "")
            elif owner is None and self.out.local is not None:
                disk_keys(self.out, stage)

    def _done(self, stage: str) -> KeySet:
        return self._keys(self._done_keys, CELLS_FOLDER, stage)

    def _keys(self, by_stage: dict[str, KeySet], folder: str, stage: str) -> KeySet:
        """Return the keys that a stage has in a folder of an object store, listed once."""
        if stage not in by_stage:
            by_stage[stage] = KeySet.in_folder(self.out / f"{folder}/{stage}")
        return by_stage[stage]


class StageFolders:
    """The results of a run's dataset stages: a folder each.

    Stages write on this machine's disk. Where OUT is elsewhere, a folder is made in the cache,
    copied to OUT when it is complete, and fetched from there by other machines.
    """

    def __init__(self, out: "RemotePath") -> None:
        self._out = out
        if out.local is not None:
            self._home = out.local / STAGES_FOLDER
        else:
            digest = hashlib.sha256(out.url.encode()).hexdigest()
            self._home = cache_folder() / "curate-stages" / digest[:DIGEST_DIGITS]

    def is_complete(self, stage: str, key: str) -> bool:
        """Return whether a stage's folder is complete."""
        return self._mark(stage, key).exists()

    def begin(self, stage: Stage, key: str) -> Path:
        """Return the folder for a stage to write into: empty, or as a killed run left it where the
        stage can go on."""
        folder = self._home / stage.name / key
        try:
            # What a stage cannot go on in is removed.
            if folder.exists() and not stage.resumes:
                shutil.rmtree(folder)
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"{folder}: cannot be written ({error.strerror})"
            cure = "give another --out"
            raise StoreError(f"{what}; {cure}") from error
        return folder

    def complete(self, stage: str, key: str) -> None:
        """Say that a folder is complete, once it is at OUT."""
        folder = self._home / stage / key
        # The mark lists the files, so that another machine can fetch them.
        files = {}
        for path in folder.rglob("*"):
            if path.is_file():
                name = path.relative_to(folder).as_posix()
                files[name] = path.stat().st_size
        if self._out.local is None:
            for name in sorted(files):
                (self._remote_folder(stage, key) / name).put(folder / name)
        # The mark comes last: what it names is there.
        content = json.dumps(files, indent=1, sort_keys=True)
        self._mark(stage, key).write(content)

    def local_folder(self, stage: str, key: str) -> Path:
        """Return a complete folder on this machine, fetched from OUT where it must be."""
        folder = self._home / stage / key
        if self._out.local is None:
            content = self._mark(stage, key).read()
            files: dict[str, int] = parse_json(content)
            # What a killed run of this machine left here may be but a part.
            for name, size in files.items():
                copy = folder / name
                is_whole = copy.stat().st_size == size if copy.is_file() else False
                if not is_whole:
                    (self._remote_folder(stage, key) / name).fetch(copy)
        return folder

    def local_folders(self, keys: Mapping[str, str], needs: Iterable[str]) -> dict[str, Path]:
        """Return the folders of those needs that are dataset stages, on this machine. keys: of
        those stages."""
        folders = {}
        for need in needs:
            if need in keys:
                folders[need] = self.local_folder(need, keys[need])
        return folders

    def unused(self, keys: Mapping[str, str]) -> dict[str, int]:
        """Return the folders of other keys than a run's: name below OUT -> bytes. keys: of the
        stages to look at.

        Another recipe or other videos made them, and a run with these finds them again. Nothing
        removes them.
        """
        sizes: Counter[str] = Counter()
        for stage, own_key in keys.items():
            home = f"{STAGES_FOLDER}/{stage}"
            for entry in files_in(self._out / home):
                key, slash, _ = entry.name.partition("/")
                if slash and key != own_key:
                    sizes[f"{home}/{key}"] += entry.size
        by_name = sorted(sizes.items())
        return dict(by_name)

    def _remote_folder(self, stage: str, key: str) -> "RemotePath":
        return self._out / f"{STAGES_FOLDER}/{stage}/{key}"

    def _mark(self, stage: str, key: str) -> "RemotePath":
        return self._out / f"{STAGES_FOLDER}/{stage}/{key}.json"
