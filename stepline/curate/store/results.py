"""Results and failures below OUT, each written whole or not at all.

    OUT/cells/STAGE/k[:2]/KEY.json        the result of a task; that it is there says that it is done
    OUT/failures/STAGE/KEY.json           why there is none
    OUT/stages/STAGE/KEY/                 what a dataset stage made; a KEY.json next to it says that it is complete

A KEY is a hash of all that decides the result (plan.py).
"""

import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from stepline.curate.stage import DATASET_FOLDER, Stage, StageFailure, from_json
from stepline.errors import StoreError
from stepline.files.atomic_files import PARTIAL_SUFFIX, cache_folder
from stepline.files.remote import FileEntry, RemotePath
from stepline.limits import parse_json

# Folders below OUT.
CELLS_FOLDER = "cells"
FAILURES_FOLDER = "failures"
STAGES_FOLDER = "stages"
# Of a digest of OUT's address, which names its folder in the cache.
DIGEST_DIGITS = 16
STAGE_FAILURES_FILE = "left_out.jsonl"  # of a dataset stage: the videos left out so far
KEY_NAME = re.compile(r"[0-9a-f]{64}\b")
# hex digits that are enough to tell keys apart: among 10 million no two agree in them
KEY_DIGITS = 16


def result_path(stage: Stage, key: str) -> str:
    """Return the path of a result relative to the output folder. key: key of the task."""
    return f"{CELLS_FOLDER}/{stage.name}/{key[:2]}/{key}{stage.suffix}"


def failure_path(stage: Stage, key: str) -> str:
    """Return the path of a failure relative to the output folder. key: key of the task."""
    return f"{FAILURES_FOLDER}/{stage.name}/{key}.json"


def parse_stage_failures(data: bytes, where: str) -> dict[str, StageFailure]:
    """Return the failures of a STAGE_FAILURES_FILE by id of the video.

    Args:
        data: contents of the file.
        where: path of the file, for errors.

    Raises StoreError for a damaged file.
    """
    lines = data.decode("utf-8").split("\n")
    failures = (from_json(StageFailure, line, where) for line in lines if line)
    return {failure.id: failure for failure in failures}


def remove_partials(out: RemotePath) -> None:
    """Delete files that killed processes left half-written. Object stores have none."""
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
    )
    for folder in folders:
        for partial in out.local.glob(f"{folder}.*{PARTIAL_SUFFIX}*"):
            partial.unlink(missing_ok=True)


def list_files(folder: RemotePath) -> "Iterable[FileEntry]":
    """Return the files below a folder. Empty for a missing folder."""
    return () if folder.local is not None and not folder.exists() else folder.list()


def key_to_int(key: str) -> int:
    """Return the first 64 bits of a hexadecimal key as an integer, which takes less memory."""
    return int(key[:KEY_DIGITS], 16)


def _listed_keys(folder: RemotePath) -> set[int]:
    """Return the keys of all results below a folder, as integers."""
    names: Iterable[str]
    if folder.local is None:
        names = (entry.name.rpartition("/")[2] for entry in folder.list())
    else:
        # os.walk looks at names alone. RemotePath.list asks for the size of each file.
        names = (name for _, _, files in os.walk(folder.local) for name in files)
    return {key_to_int(name) for name in names if KEY_NAME.match(name)}


class ResultStore:
    """Stored results and failures of the tasks of a run.

    Args:
        out: output folder of the run.
        listed: whether to list the results of each stage once, which is faster for many videos.
            False: look for each key when it is asked for, as other processes add results.
    """

    def __init__(self, out: RemotePath, *, listed: bool = True) -> None:
        self.out = out
        self._listed = listed
        self._keys: dict[str, set[int]] = {}  # by folder below OUT
        self._failures: dict[str, StageFailure] = {}  # by path below OUT, where listed

    def has_result(self, stage: Stage, key: str) -> bool:
        """Return whether the result of a task is stored. key: key of the task."""
        return self._has_file(CELLS_FOLDER, stage, key, self.out / result_path(stage, key))

    def read_result(self, stage: Stage, key: str) -> bytes:
        """Return the stored result of a task. key: key of the task.

        Raises StoreError if it is missing.
        """
        return (self.out / result_path(stage, key)).read()

    def write_result(self, stage: Stage, key: str, data: bytes) -> None:
        """Store the result of a task atomically.

        Args:
            stage: stage of the task.
            key: key of the task.
            data: the result.

        Raises StoreError if the output folder cannot be written.
        """
        (self.out / result_path(stage, key)).write(data)
        self.add_key(stage, key)

    def add_key(self, stage: Stage, key: str) -> None:
        """Note that another process has stored the result of a task. key: key of the task."""
        self._remember_key(CELLS_FOLDER, stage, key)

    def find_failure(self, stage: Stage, key: str) -> StageFailure | None:
        """Return the stored failure of a task, None without one. key: key of the task."""
        path = failure_path(stage, key)
        if path in self._failures:
            return self._failures[path]
        file = self.out / path
        if not self._has_file(FAILURES_FOLDER, stage, key, file):
            return None
        failure = from_json(StageFailure, file.read(), path)
        if self._listed:
            self._failures[path] = failure
        return failure

    def add_failure(self, stage: Stage, key: str, failure: StageFailure) -> StageFailure:
        """Store a failure, with the attempts of earlier runs added, and return it.

        Args:
            stage: stage of the task.
            key: key of the task.
            failure: the failure.
        """
        before = self.find_failure(stage, key)
        if before is not None:
            failure = replace(failure, attempts=failure.attempts + before.attempts)
        path = failure_path(stage, key)
        (self.out / path).write(json.dumps(asdict(failure), indent=1))
        self._remember_key(FAILURES_FOLDER, stage, key)
        if self._listed:
            self._failures[path] = failure
        return failure

    def _has_file(self, kind: str, stage: Stage, key: str, file: RemotePath) -> bool:
        if not self._listed:
            return file.exists()
        folder = f"{kind}/{stage.name}"
        if folder not in self._keys:
            self._keys[folder] = _listed_keys(self.out / folder)
        return key_to_int(key) in self._keys[folder]

    def _remember_key(self, kind: str, stage: Stage, key: str) -> None:
        folder = f"{kind}/{stage.name}"
        if folder in self._keys:
            self._keys[folder].add(key_to_int(key))


class StageFolders:
    """The result folders of stages of kind "dataset", which run once over all videos.

    Stages write to the local disk. If the output folder is remote, a finished folder is uploaded,
    and other machines download it.

    out: output folder of the run.
    """

    def __init__(self, out: RemotePath) -> None:
        self._out = out
        if out.local is not None:
            self._home = out.local / STAGES_FOLDER
        else:
            digest = hashlib.sha256(out.url.encode()).hexdigest()
            self._home = cache_folder() / "curate-stages" / digest[:DIGEST_DIGITS]

    def is_complete(self, stage: str, key: str) -> bool:
        """Return whether the result folder of a stage is complete.

        Args:
            stage: name of the stage.
            key: key of the result.
        """
        return self._completion_mark(stage, key).exists()

    def prepare_folder(self, stage: Stage, key: str) -> Path:
        """Return a local folder for a stage to write into.

        It is empty, unless the stage continues a killed run. key: key of the result.

        Raises StoreError if it cannot be written.
        """
        folder = self._home / stage.name / key
        try:
            # What a stage cannot go on in is removed.
            if folder.exists() and not stage.resumes:
                shutil.rmtree(folder)
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{folder}: cannot be written ({error.strerror}); give another --out"
            ) from error
        return folder

    def mark_complete(self, stage: str, key: str) -> None:
        """Mark a result folder as complete, with a list of its files.

        A remote folder is uploaded first.

        Args:
            stage: name of the stage.
            key: key of the result.
        """
        folder = self._home / stage / key
        # The mark lists the files, so that another machine can fetch them.
        paths = [path for path in folder.rglob("*") if path.is_file()]
        files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
        if self._out.local is None:
            for name in sorted(files):
                (self._remote_folder(stage, key) / name).put(folder / name)
        # The mark comes last: what it names is there.
        self._completion_mark(stage, key).write(json.dumps(files, indent=1, sort_keys=True))

    def local_folder(self, stage: str, key: str) -> Path:
        """Return a complete result folder on the local disk, after its download if it is remote.

        Args:
            stage: name of the stage.
            key: key of the result.
        """
        folder = self._home / stage / key
        if self._out.local is None:
            files: dict[str, int] = parse_json(self._completion_mark(stage, key).read())
            # What a killed run of this machine left here may be but a part.
            for name, size in files.items():
                copy = folder / name
                if not copy.is_file() or copy.stat().st_size != size:
                    (self._remote_folder(stage, key) / name).fetch(copy)
        return folder

    def local_folders(self, keys: Mapping[str, str], needs: Iterable[str]) -> dict[str, Path]:
        """Return stage -> local result folder.

        Args:
            keys: key of the result of each finished stage.
            needs: names of the wanted stages. Those without a key are ignored.
        """
        return {need: self.local_folder(need, keys[need]) for need in needs if need in keys}

    def read_failures(self, keys: Mapping[str, str]) -> dict[str, StageFailure]:
        """Return the failures that complete stages wrote down, by id.

        keys: key of the result of each complete stage, in the order of the recipe.

        Raises StoreError for a damaged file.
        """
        failures: dict[str, StageFailure] = {}
        for stage, key in keys.items():
            if STAGE_FAILURES_FILE in parse_json(self._completion_mark(stage, key).read()):
                file = self._remote_folder(stage, key) / STAGE_FAILURES_FILE
                failures |= parse_stage_failures(file.read(), file.display_url)
        return failures

    def unused_folders(self, keys: Mapping[str, str]) -> dict[str, int]:
        """Return the result folders that a run does not use, as path -> size in bytes.

        keys: key of the result of each stage of the run.
        """
        sizes: Counter[str] = Counter()
        for stage, own_key in keys.items():
            home = f"{STAGES_FOLDER}/{stage}"
            for entry in list_files(self._out / home):
                key, slash, _ = entry.name.partition("/")
                if slash and key != own_key:
                    sizes[f"{home}/{key}"] += entry.size
        return dict(sorted(sizes.items()))

    def _remote_folder(self, stage: str, key: str) -> RemotePath:
        return self._out / f"{STAGES_FOLDER}/{stage}/{key}"

    def _completion_mark(self, stage: str, key: str) -> RemotePath:
        return self._out / f"{STAGES_FOLDER}/{stage}/{key}.json"
