"""Folders that dataset stages make: OUT/stages/STAGE/KEY/, each with a KEY.json beside it that says it is whole.

Stages write on this machine's disk. Where OUT is elsewhere, a folder is made in the cache, copied to OUT when it is
done, and brought from there by other machines.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.curate.stage import Stage
from stepline.errors import StoreError
from stepline.models import cache_folder

if TYPE_CHECKING:
    from stepline.curate.places import Place

STAGES = "stages"


class Folders:
    """The results of a run's dataset stages."""

    def __init__(self, out: "Place") -> None:
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

    def _mark(self, stage: str, key: str) -> "Place":
        return self._out / f"{STAGES}/{stage}/{key}.json"


def _files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix()
