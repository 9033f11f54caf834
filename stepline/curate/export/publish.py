"""A finished dataset to where it is published: what is there already stays, what belongs to no dataset stays, too."""

import contextlib
import os
from pathlib import Path

from stepline.curate.places import Place
from stepline.store import remove

LAST = "dataset.json"  # written last: it lists every other file with its sha256
LARGE = (".parquet", ".safetensors", ".tar")  # may share their bytes with the stage's folder
OURS = ("data/train-", "data/left_out-", "features/shard-", "webdataset/train-")


def publish(folder: Path, place: Place) -> None:
    """Copy a dataset's files to a place, and remove those of an earlier dataset that this one lacks.

    Doing it again, or after it was stopped, is harmless: `dataset.json`, which lists every file, comes last.
    """
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    known = {found.name: found.size for found in place.list()} if place.local is None or place.exists() else {}
    same = LAST in known and (place / LAST).read() == (folder / LAST).read_bytes()
    for name in (*(name for name in names if name != LAST), LAST):
        if not (same and known.get(name) == (folder / name).stat().st_size):
            _copy(folder / name, place / name)
    for name in sorted(set(known) - set(names)):
        if name.startswith(OURS):
            (place / name).remove()


def _copy(source: Path, target: Place) -> None:
    """Copy a file; on the same disk large ones share their bytes."""
    path = target.local
    if path is not None and source.name.endswith(LARGE):
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # another disk, or one without links: copied below
            remove(path)
            os.link(source, path)
            return
    target.put(source)
