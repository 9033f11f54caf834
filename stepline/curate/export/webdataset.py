"""Records in WebDataset tars: KEY.json, KEY.vtt with the steps, and KEY.mp4 (or as it is) where media go along."""

import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from stepline.curate.export.shards import ExportedFile
from stepline.curate.remote import RemotePath
from stepline.outputs import webvtt
from stepline.records import Record
from stepline.storage import atomic_path, to_json
from stepline.weights import sha256

TARS = "webdataset"
BLOCK = 512  # bytes to which a tar rounds what it holds


def write_tars(
    records: Iterable[Record], folder: Path, shard_bytes: int, media: Mapping[str, RemotePath] | None = None
) -> list[ExportedFile]:
    """Write records, sorted by id already, into tars of about `shard_bytes`. media: videos by id, to go along.

    A key may hold no dot, which ends it for readers: one in an id becomes %2E, and % becomes %25.
    """
    (folder / TARS).mkdir(parents=True, exist_ok=True)
    exported: list[ExportedFile] = []
    stream = iter(records)
    record = next(stream, None)
    while record is not None:
        path = folder / TARS / f"train-{len(exported):05d}.tar"
        with atomic_path(path) as partial, tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as archive:
            size = 0
            while record is not None and (not size or size < shard_bytes):
                size += _add_record(archive, record, (media or {}).get(record.id))
                record = next(stream, None)
        exported.append(ExportedFile(f"{TARS}/{path.name}", path.stat().st_size, sha256(path)))
    return exported


def _add_record(archive: tarfile.TarFile, record: Record, video: RemotePath | None) -> int:
    key = record.id.replace("%", "%25").replace(".", "%2E")
    size = 0
    for ending, text in ((".json", to_json(record)), (".vtt", webvtt(record))):
        data = text.encode()
        size += _add(archive, key + ending, len(data), io.BytesIO(data))
    if video is not None:
        with video.open() as file:
            size += _add(archive, key + (Path(video.name).suffix.lower() or ".mp4"), video.size(), file)
    return size


def _add(archive: tarfile.TarFile, name: str, size: int, file: "BinaryIO | io.BytesIO") -> int:
    """Add a member whose header says nothing but its name and size."""
    header = tarfile.TarInfo(name)
    header.size = size
    archive.addfile(header, file)
    return size + BLOCK
