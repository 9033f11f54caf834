"""Results and failures of units, as files below OUT that are there whole or not at all.

Folders that dataset stages make: OUT/stages/STAGE/KEY/, each with a KEY.json beside it that says it is whole.

Stages write on this machine's disk. Where OUT is elsewhere, a folder is made in the cache, copied to OUT when it is
done, and brought from there by other machines.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.curate.stage import CELLS, FAILURES, Stage, StageFailure, failure_path, result_path
from stepline.errors import StoreError
from stepline.weights import cache_folder

if TYPE_CHECKING:
    from stepline.curate.remote import RemotePath

LOOSE = 65536  # keys that are held as numbers of Python's, 70 bytes each, before they join the others
DIGITS = 16  # hex digits of a key that are enough to know it by: among 10 million keys no two agree in them


class ResultStore:
    """What a run has made so far. An object store is listed once a stage: asking it for each key would take days.

    listed: False for one of many who see a few videos each; each key is asked for when it is needed.
    """

    def __init__(self, place: "RemotePath", *, listed: bool = True) -> None:
        self.place = place
        self._listed = listed and place.local is None
        self._read: dict[
            str, StageFailure
        ] = {}  # of a store: they are asked for again before each stage over all videos
        self._kept: dict[str, KeySet] = {}
        self._failed: dict[str, KeySet] = {}

    def has(self, stage: Stage, key: str) -> bool:
        """Tell whether a result is there."""
        return self._knows(self._kept, CELLS, stage, key, result_path(stage, key))

    def read(self, stage: Stage, key: str) -> bytes:
        """Return a result. Raises StoreError where it is not there."""
        return (self.place / result_path(stage, key)).read()

    def write(self, stage: Stage, key: str, data: bytes) -> None:
        """Keep a result, whole or not at all. Raises StoreError where there is no room or no permission."""
        (self.place / result_path(stage, key)).write(data)
        self.note(stage, key)

    def note(self, stage: Stage, key: str) -> None:
        """Know of a result that another process has written."""
        if stage.name in self._kept:
            self._kept[stage.name].add(key)

    def failure(self, stage: Stage, key: str) -> StageFailure | None:
        """Return why a unit has no result, where that was found out before."""
        name = failure_path(stage, key)
        if not self._knows(self._failed, FAILURES, stage, key, name):
            return None
        if name in self._read:
            return self._read[name]
        try:
            found = StageFailure(**json.loads((self.place / name).read()))
        except (ValueError, TypeError) as error:
            raise StoreError(f"{name}: not a failure that Stepline wrote ({error}); remove it") from error
        if self._listed:
            self._read[name] = found
        return found

    def fail(self, stage: Stage, key: str, failure: StageFailure) -> StageFailure:
        """Keep a failure, with the attempts of earlier runs added; return it."""
        before = self.failure(stage, key)
        told = replace(failure, attempts=failure.attempts + (before.attempts if before else 0))
        (self.place / failure_path(stage, key)).write(json.dumps(asdict(told), indent=1))
        self._read.pop(failure_path(stage, key), None)
        if stage.name in self._failed:
            self._failed[stage.name].add(key)
        return told

    def _knows(self, known: "dict[str, KeySet]", root: str, stage: Stage, key: str, name: str) -> bool:
        if not self._listed:
            return (self.place / name).exists()
        if stage.name not in known:
            known[stage.name] = KeySet.of(self.place / f"{root}/{stage.name}")
        return key in known[stage.name]


class KeySet:
    """A set of keys: 8 bytes for each."""

    def __init__(self, listed: "npt.NDArray[np.uint64]") -> None:
        self._listed = listed
        self._added: set[int] = set()

    @classmethod
    def of(cls, folder: "RemotePath") -> "KeySet":
        """List a stage's folder of keys."""
        keys = (found.name.rpartition("/")[2].partition(".")[0] for found in folder.list())
        return cls(np.sort(np.fromiter((_number(key) for key in keys), dtype=np.uint64)))

    def __contains__(self, key: str) -> bool:
        number = _number(key)
        at = int(np.searchsorted(self._listed, np.uint64(number)))
        return number in self._added or (at < len(self._listed) and int(self._listed[at]) == number)

    def add(self, key: str) -> None:
        """Take a key in."""
        self._added.add(_number(key))
        if len(self._added) >= LOOSE:
            self._listed = np.union1d(self._listed, np.fromiter(self._added, dtype=np.uint64))
            self._added.clear()


def _number(key: str) -> int:
    return int(key[:DIGITS], 16)


STAGES = "stages"


class StageFolders:
    """The results of a run's dataset stages."""

    def __init__(self, out: "RemotePath") -> None:
        self._out = out
        digest = hashlib.sha256(out.url.encode()).hexdigest()[:16]
        self._home = out.local / STAGES if out.local is not None else cache_folder() / "curate-stages" / digest

    def done(self, stage: str, key: str) -> bool:
        """Tell whether a stage's folder is whole."""
        return self._mark(stage, key).exists()

    def started(self, stage: Stage, key: str) -> Path:
        """Return the folder for a stage to write into: empty, or as a killed run left it where the stage can go on."""
        folder = self._home / stage.name / key
        try:
            if folder.exists() and not stage.resumes:
                shutil.rmtree(folder)
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be written ({error.strerror}); give another --out") from error
        return folder

    def finish(self, stage: str, key: str) -> None:
        """Say that a folder is whole, once it is at OUT."""
        folder = self._home / stage / key
        files = {name: (folder / name).stat().st_size for name in sorted(_files(folder))}
        if self._out.local is None:
            for name in files:
                (self._out / f"{STAGES}/{stage}/{key}/{name}").put(folder / name)
        self._mark(stage, key).write(json.dumps(files, indent=1))

    def here(self, stage: str, key: str) -> Path:
        """Return a whole folder on this machine, brought from OUT where it must be."""
        folder = self._home / stage / key
        if self._out.local is None:
            files: dict[str, int] = json.loads(self._mark(stage, key).read())
            for name, size in files.items():  # what a killed run of this machine left here may be but a part
                if not (folder / name).is_file() or (folder / name).stat().st_size != size:
                    (self._out / f"{STAGES}/{stage}/{key}/{name}").fetch(folder / name)
        return folder

    def others(self, keys: Mapping[str, str]) -> dict[str, int]:
        """Return the folders of other keys than a run's: name below OUT -> bytes. keys: of the stages to look at.

        Another recipe or other videos made them, and a run with these finds them again; nothing removes them.
        """
        sizes: Counter[str] = Counter()
        for stage, ours in keys.items():
            place = self._out / f"{STAGES}/{stage}"
            for found in place.list() if place.local is None or place.exists() else ():
                key, inside, _ = found.name.partition("/")
                if inside and key != ours:
                    sizes[f"{STAGES}/{stage}/{key}"] += found.size
        return dict(sorted(sizes.items()))

    def _mark(self, stage: str, key: str) -> "RemotePath":
        return self._out / f"{STAGES}/{stage}/{key}.json"


def _files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix()
