"""Files and folders by URL: local disk, s3://, gs://, http(s)://, memory://, with atomic writes.

    video = RemotePath("s3://bucket/videos") / "whisk.mp4"
    video.fetch(Path("whisk.mp4"))            # returns its fingerprint; a file of half the bytes is never seen
    RemotePath("s3://bucket/shard.tar#bytes=1536-9000/whisk.mp4").read()    # a byte range, under a name of its own

Transient failures are retried (retry.py). A fingerprint shows a changed file.
"""

import builtins
import contextlib
import errno
import io
import json
import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar, cast
from urllib.parse import unquote

from stepline.errors import StoreError
from stepline.files.atomic_files import PARTIAL_SUFFIX, atomic_path, remove_file, write_atomic
from stepline.files.remote.filesystems import filesystem, list_objects, request
from stepline.files.remote.retry import (
    ShortReadError,
    exists_already,
    lacks_conditional_writes,
    retry_request,
)
from stepline.files.remote.settings import BYTES_PER_MIB, RemoteSettings
from stepline.limits import is_storable

T = TypeVar("T")

DEFAULT_SETTINGS = RemoteSettings()
BYTE_RANGE = re.compile(
    r"^(?P<file>.+)#bytes=(?P<start>\d+)-(?P<end>\d+)/(?P<name>[^/]+)$", re.DOTALL
)
# Of disks that know no hard links.
NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
# what filesystems call the version of a file, the surest first
VERSION_KEYS = [
    "ETag",
    "etag",
    "md5Hash",
    "crc32c",
    "Last-Modified",
    "LastModified",
    "updated",
    "mtime",
    "created",
]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a listing. name: relative to the listed folder. fingerprint: see RemotePath."""

    name: str
    size: int
    fingerprint: str


@dataclass(frozen=True)
class RemotePath:
    """A file or folder by URL or path.

    Every failure is a StoreError, in one line that shows no secret of the URL.
    """

    url: str
    settings: RemoteSettings = field(default=DEFAULT_SETTINGS, repr=False)

    def __truediv__(self, name: str) -> Self:
        return type(self)(f"{self.url.rstrip('/')}/{name}", self.settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.display_url!r})"

    @property
    def display_url(self) -> str:
        """Return the URL without user, password and query, for messages."""
        scheme, mark, rest = self.url.partition("://")
        if not mark:
            return self.url
        address, slash, path = rest.partition("/")
        _, _, host = address.rpartition("@")
        if scheme in ("http", "https"):
            path, _, _ = path.partition("?")
        return f"{scheme}://{host}{slash}{path}"

    @property
    def name(self) -> str:
        """Return the last part of the path without query. For a byte range, its own name."""
        _, _, name = self.display_url.rstrip("/").rpartition("/")
        return name

    @property
    def byte_range(self) -> tuple[Self, int, int] | None:
        """Return (file, first byte, byte after the last) of a byte range, None for a whole file."""
        match = BYTE_RANGE.match(self.url)
        if match is None:
            return None
        whole = type(self)(match["file"], self.settings)
        return whole, int(match["start"]), int(match["end"])

    @property
    def local(self) -> Path | None:
        """Return the local path of a whole local file or folder, None for anything else."""
        if self.byte_range is not None:
            return None
        if self.url.startswith("file://"):
            return Path(unquote(self.url.removeprefix("file://")))
        if "://" in self.url:
            return None
        return Path(self.url)

    def exists(self) -> bool:
        """Return whether a file or folder exists. Raises StoreError where a bucket refuses access."""
        if (path := self.local) is not None:
            return path.exists()
        if self.byte_range is not None:
            return self.byte_range[0].exists()
        return bool(self._request("exists"))

    def fingerprint(self) -> str:
        """Return a value that changes with the file: size and ETag, or size and local modification
        time.
        """
        return self._size_and_fingerprint()[1]

    def size(self) -> int:
        """Return the size in bytes. Raises StoreError if unknown or too large."""
        return self._checked_size(self._size_and_fingerprint()[0])

    def _checked_size(self, size: int) -> int:
        if size < 0:
            what = f"{self.display_url}: its server does not state its size"
            raise StoreError(f"{what}; download it, and give the file")
        if self.local is None and size > self.settings.largest * BYTES_PER_MIB:
            limit = f"places.largest={self.settings.largest} MiB"
            what = f"{self.display_url}: {size} bytes are more than {limit}"
            raise StoreError(f"{what}; leave it out, or raise that")
        return size

    def _size_and_fingerprint(self) -> tuple[int, str]:
        # A part changes with the whole file.
        if self.byte_range is not None:
            whole, start, end = self.byte_range
            return end - start, f"{whole.fingerprint()}+{start}-{end}"
        if (path := self.local) is not None:
            status = self._try(path.stat)
            return status.st_size, f"{status.st_size}-{status.st_mtime_ns}"
        about = self._request("info")
        if about.get("type") == "directory":
            raise StoreError(f"{self.display_url}: is a folder; give a file")
        size = about.get("size")
        return -1 if size is None else int(size), fingerprint_of(about)

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a file, or those from `start` to `end`."""
        if self.byte_range is not None:
            whole, first, last = self.byte_range
            return whole.read(first + start, last if end is None else min(last, first + end))
        if (path := self.local) is not None:
            return self._try(lambda: read_range(path, start, end))
        # One request of the bytes that are asked for.
        limits = {"start": start, "end": end} if start or end is not None else {}

        def cat() -> bytes:
            data = bytes(self._request_once("cat_file", **limits))
            if end is not None and len(data) != end - start:
                raise ShortReadError(f"{len(data)} bytes, not {end - start}")
            return data

        return self._try(cat)

    def write(self, data: str | bytes) -> None:
        """Write a file atomically: by a rename on a local disk, by one upload elsewhere."""
        content = data.encode() if isinstance(data, str) else data
        if (path := self.local) is not None:
            write_atomic(path, content)
        else:
            files, seconds = self._upload(len(content))
            self._try(lambda: request(files, "pipe_file", self.url, seconds, content))

    def create(self, data: bytes) -> bool:
        """Create a file only if none exists, atomically. Return whether this call created it.

        By a hard link on a local disk, by If-None-Match (S3) or generation 0 (GCS) elsewhere. It is
        not atomic on a disk without links, and in a store without conditional writes. Two
        concurrent calls may then both return True, and the last data stays.

        data: must differ from that of every other caller.
        """
        if (path := self.local) is not None:
            return self._try(lambda: create_local(path, data))
        files, seconds = self._upload(len(data))
        try:
            self._try(lambda: request(files, "pipe_file", self.url, seconds, data, mode="create"))
        except StoreError as error:
            # By an earlier try of this call, perhaps, whose answer was lost.
            if exists_already(error):
                return self.read() == data
            if not lacks_conditional_writes(error):
                raise
            if self.exists():
                return False
            self.write(data)
        return True

    def put(self, source: Path) -> None:
        """Upload a local file atomically."""
        if (path := self.local) is not None:
            with atomic_path(path) as partial:
                shutil.copyfile(source, partial)
        else:
            files, seconds = self._upload(source.stat().st_size)
            target = files._strip_protocol(self.url)
            self._try(lambda: request(files, "put_file", str(source), seconds, target))

    def fetch(self, path: Path) -> str:
        """Download the file to a local path, and return its fingerprint.

        A download that breaks off, or whose file changes meanwhile, is discarded.
        """
        # Block by block, so that a lost connection costs one block.
        size, fingerprint = self._size_and_fingerprint()
        size = self._checked_size(size)
        block = self.settings.block * BYTES_PER_MIB
        longest = self.settings.longest
        began = time.monotonic()
        with atomic_path(path) as partial, partial.open("wb") as file:
            for start in range(0, size, block):
                end = min(start + block, size)
                file.write(self.read(start, end))
                if self.local is None and time.monotonic() - began > longest:
                    what = f"{self.display_url}: takes longer than places.longest={longest:g} s"
                    raise StoreError(f"{what}; raise that, or leave it out")
        # A file that changed is half of one state and half of another.
        if self.fingerprint() != fingerprint:
            remove_file(path)
            raise StoreError(
                f"{self.display_url}: it changed while it was read; run again when it is complete"
            )
        return fingerprint

    def open(self, buffer: int | None = None) -> BinaryIO:
        """Return the file as a seekable binary stream that resumes after lost connections.

        buffer: bytes per read (None: a block of the settings).
        """
        if (path := self.local) is not None:
            return cast(BinaryIO, self._try(lambda: path.open("rb")))
        size = self.size()
        buffer = min(buffer or self.settings.block * BYTES_PER_MIB, max(size, 1))
        return cast(BinaryIO, io.BufferedReader(RangeReader(self, size), buffer))

    def list(self, skipped: "builtins.list[tuple[str, str]] | None" = None) -> Iterator[FileEntry]:
        """Yield every file below a folder, without hidden ones, in the server's order.

        skipped: called with the name and reason of unreadable local files. None: these raise.
        Raises StoreError for a missing local folder. A prefix without objects is empty.
        """
        if (path := self.local) is not None:
            if not self._try(path.is_dir):
                raise StoreError(f"{self.display_url}: is not there; correct the address")
            yield from local_files(path, skipped)
            return
        # A listing from elsewhere may be endless.
        for number, (name, about) in enumerate(list_objects(self.url, self.settings, self._try)):
            if number == self.settings.most:
                raise StoreError(
                    f"{self.display_url}: lists more than places.most={number} files; raise that"
                )
            if name and not any(part.startswith(".") for part in name.split("/")):
                size = about.get("size") or about.get("Size") or 0
                yield FileEntry(name, int(size), fingerprint_of(about))

    def remove(self) -> None:
        """Remove the file if it is there."""
        if (path := self.local) is not None:
            remove_file(path)
            return

        def remove_remote() -> None:
            with contextlib.suppress(FileNotFoundError):  # by another one, or an earlier try
                self._request_once("rm_file")

        self._try(remove_remote)

    def _upload(self, size: int) -> tuple[Any, float]:
        """Return the filesystem for an upload of `size` bytes, and its timeout in seconds."""
        if self.byte_range is not None:
            raise StoreError(
                f"{self.display_url}: a part of a file cannot be written; write the whole file"
            )
        blocks = 1 + size // (self.settings.block * BYTES_PER_MIB)
        return filesystem(self.url, self.settings), self.settings.seconds * blocks

    def _request_once(self, verb: str, **options: Any) -> Any:
        return request(
            filesystem(self.url, self.settings), verb, self.url, self.settings.seconds, **options
        )

    def _request(self, verb: str) -> Any:
        return self._try(lambda: self._request_once(verb))

    def _try(self, action: Callable[[], T]) -> T:
        return retry_request(action, self.display_url, self.settings)


class RangeReader(io.RawIOBase):
    """A raw stream of a remote file, for `io.BufferedReader`. size: bytes of the whole file."""

    def __init__(self, path: RemotePath, size: int) -> None:
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a byte and return its position."""
        origins = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}
        self._position = offset + origins[whence]
        return self._position

    def readall(self) -> bytes:
        """Return the remaining bytes."""
        block = self._path.settings.block * BYTES_PER_MIB
        return b"".join(iter(lambda: self.read(block), b""))

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer up to the end of the file. Return the number of bytes."""
        end = min(self._size, self._position + len(buffer))
        if end <= self._position:
            return 0
        data = self._path.read(self._position, end)
        buffer[: len(data)] = data
        self._position = end
        return len(data)


def fingerprint_of(about: dict[str, Any]) -> str:
    """Return the fingerprint of a file from its filesystem's info."""
    size = about.get("size", about.get("Size"))
    mark = next((about[key] for key in VERSION_KEYS if about.get(key) is not None), "")
    if isinstance(mark, datetime):
        mark = mark.timestamp()
    return f"{size}-{json.dumps(mark, default=str)}".replace('"', "").replace("\\", "")


def create_local(path: Path, data: bytes) -> bool:
    """Create a local file only if none exists. Return whether this call created it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A link to a whole file is made in one step, or fails where a file is.
    whole = path.parent / f".{uuid.uuid4().hex}{PARTIAL_SUFFIX}"
    try:
        whole.write_bytes(data)
        os.link(whole, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # Without links: made in one step, and filled after it.
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            return False
    finally:
        whole.unlink(missing_ok=True)
    return True


def read_range(path: Path, start: int, end: int | None) -> bytes:
    """Return the bytes of a local file from `start` to `end`. Raises EOFError if it is shorter."""
    with path.open("rb") as file:
        file.seek(start)
        if end is None:
            return file.read()
        data = file.read(end - start)
    if len(data) != end - start:
        raise EOFError(f"{len(data)} bytes, not {end - start}")
    return data


def local_files(
    folder: Path,
    skipped: list[tuple[str, str]] | None,
    prefix: str = "",
    above: frozenset[tuple[int, int]] = frozenset(),
) -> Iterator[FileEntry]:
    """Yield the files below a local folder, sorted. Memory holds the names of one folder per level.

    Files removed during the listing are skipped.

    Args:
        folder: where to list.
        skipped: called with the name and reason of unreadable files. None: these raise StoreError.
        prefix: of the names.
        above: parent folders, to detect links that lead back.
    """

    def skip(path: str | Path, name: str, error: OSError) -> None:
        if skipped is None:
            raise StoreError(
                f"{path}: cannot be read ({error.strerror}); allow it, or move it"
            ) from error
        skipped.append((name, f"it cannot be read ({error.strerror})"))

    try:
        status = folder.stat()
        with os.scandir(folder) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        skip(folder, prefix or "/", error)
        return
    # A link that leads back to a folder above is not followed.
    within = above | {(status.st_dev, status.st_ino)}
    for entry in inside:
        name = prefix + entry.name
        if entry.name.startswith("."):
            continue
        if not is_storable(name):
            if skipped is not None:
                skipped.append((ascii(name)[1:-1], "its name is not UTF-8"))
            continue
        try:
            status = entry.stat()
        except FileNotFoundError:  # gone, or a link that leads nowhere
            continue
        except OSError as error:
            skip(entry.path, name, error)
            continue
        if stat.S_ISDIR(status.st_mode):
            if (status.st_dev, status.st_ino) not in within:
                yield from local_files(Path(entry.path), skipped, f"{name}/", within)
        elif stat.S_ISREG(status.st_mode):
            yield FileEntry(name, status.st_size, f"{status.st_size}-{status.st_mtime_ns}")
