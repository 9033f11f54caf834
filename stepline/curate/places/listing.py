"""What a place knows of files: their sizes and stamps; and those of local folders."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

MARKS = ("ETag", "etag", "md5Hash", "crc32c", "Last-Modified", "LastModified", "updated", "mtime", "created")


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a listing. name: relative to what was listed; stamp: as `Place.stamp` tells it."""

    name: str
    size: int
    stamp: str


def stamp_of(about: dict[str, Any]) -> str:
    """Return the stamp of a file from what its filesystem says about it."""
    size = about.get("size", about.get("Size"))
    mark = next((about[key] for key in MARKS if about.get(key) is not None), "")
    mark = mark.timestamp() if isinstance(mark, datetime) else mark
    return f"{size}-{json.dumps(mark, default=str)}".replace('"', "").replace("\\", "")


def part_of(path: Path, start: int, end: int | None) -> bytes:
    """Return the bytes of a local file from `start` up to `end`; EOFError where it is shorter."""
    with path.open("rb") as file:
        file.seek(start)
        data = file.read() if end is None else file.read(end - start)
    if end is not None and len(data) != end - start:
        raise EOFError(f"{len(data)} bytes, not {end - start}")
    return data


def existing_folder(path: Path) -> Path:
    """Return a folder that is there; FileNotFoundError where it is not."""
    if not path.is_dir():
        raise FileNotFoundError(str(path))
    return path


def local_files(folder: Path, prefix: str) -> Iterator[Found]:
    """Yield the files below a local folder, sorted, one folder's names held at a time for each level."""
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda entry: entry.name)
    for entry in inside:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from local_files(Path(entry.path), f"{prefix}{entry.name}/")
        elif entry.is_file():
            status = entry.stat()
            yield Found(prefix + entry.name, status.st_size, f"{status.st_size}-{status.st_mtime_ns}")
