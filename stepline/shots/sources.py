"""What shots are listed of: a video, the video of a record, or all videos and records of a folder."""

import os
from dataclasses import dataclass
from pathlib import Path

from stepline.errors import MediaError, SteplineError, StoreError
from stepline.library.folder_records import read_corrected_record, read_folder_records
from stepline.outputs.text import safe_stem
from stepline.pipeline.sources import find_videos, name_videos
from stepline.records import Record

SOURCE_CURE = "give a video, a record of `stepline steps`, or a folder of them"


@dataclass(frozen=True)
class ShotSource:
    """A video whose shots are listed. id: names the files. record: of its steps, where one is
    known."""

    id: str
    path: Path
    record: Record | None = None


def find_sources(path: Path, out: Path) -> list[ShotSource | SteplineError]:
    """Return the videos that a path names, each of a folder or why it has none, sorted by path.

    A video has the record that `out` holds of it. Raises StoreError for a file of JSON that is not
    a record. Raises MediaError for a record without its video and for a folder that holds nothing.
    """
    if path.is_dir():
        return _folder_sources(path, out)
    if path.suffix.lower() == ".json":
        return [record_source(path, read_corrected_record(path))]
    return [video_source(path, path.stem, out)]


def record_source(path: Path, record: Record) -> ShotSource:
    """Return the video of a record in the file `path`. Raises MediaError where it is not found."""
    name = record.video.path
    if name is None:
        raise MediaError(f"{path}: names no video; {SOURCE_CURE}")
    # moved with its record, too
    for video in (Path(name), path.parent / name, path.parent / Path(name).name):
        if video.is_file():
            return ShotSource(record.id, video, record)
    raise MediaError(f"{path}: its video {name} is not there; move it back, or give the video")


def video_source(path: Path, id: str, out: Path) -> ShotSource:
    """Return a video with the record that `out` holds of it."""
    file = out / f"{safe_stem(id)}.json"
    try:
        record = read_corrected_record(file)
    except StoreError:  # no record: its shots are listed without steps
        return ShotSource(id, path)
    owner = record.video.path
    if owner is None or os.path.realpath(owner) != os.path.realpath(path):
        return ShotSource(id, path)
    return ShotSource(id, path, record)


def _folder_sources(folder: Path, out: Path) -> list[ShotSource | SteplineError]:
    sources: list[ShotSource | SteplineError] = []
    paths = set()
    ids = set()
    # Records, each with its video.
    for file, record in read_folder_records(folder):
        if not isinstance(record, Record):
            continue
        try:
            source = record_source(file, record)
        except MediaError as error:
            sources.append(error)
            continue
        if source.id in ids:
            reason = f"{source.id}: a second record of this id"
            sources.append(StoreError(f"{file}: {reason}; give it alone with another --out"))
            continue
        ids.add(source.id)
        sources.append(source)
        paths.add(os.path.realpath(source.path))
    # Videos that no record is of.
    videos = []
    for video in find_videos([folder], needed=False):
        if os.path.realpath(video) not in paths:
            videos.append(video)
    for id, video in name_videos(videos, out).items():
        sources.append(video_source(video, id, out))
    if not sources:
        raise MediaError(f"{folder}: no video and no record in this folder; {SOURCE_CURE}")
    return sources
