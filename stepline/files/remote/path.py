"""Files and folders by URL: local disk, s3://, gs://, http(s)://, memory://, with atomic writes.

    video = RemotePath("s3://bucket/videos") / "whisk.mp4"
    video.fetch(Path("whisk.mp4"))            # returns its fingerprint; the local file is complete or missing
    RemotePath("s3://bucket/shard.tar#bytes=1536-9000/whisk.mp4").read()    # a byte range with its own name

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
from stepline.files.remote.filesystems import filesystem_of, list_objects, request
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
# errors of disks without hard links
NO_LINK_ERRNOS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
# keys of filesystems for the version of a file, the most reliable first
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
    """A file in the listing of a folder.

    Attributes:
        name: path of the file relative to the listed folder.
        size: bytes.
        fingerprint: text that changes whenever the file changes.
    """

    name: str
    size: int
    fingerprint: str


@dataclass(frozen=True)
class RemotePath:
    """A file or folder, given by a URL or local path.

    Every failure is a StoreError of one line, without the secrets in the URL.

    Attributes:
        url: a URL, a local path, or a byte range of a file.
        settings: limits and options of the requests.
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
        scheme, separator, location = self.url.partition("://")
        if not separator:
            return self.url
        address, slash, path = location.partition("/")
        _, _, host = address.rpartition("@")
        if scheme in ("http", "https"):
            path, _, _ = path.partition("?")
        return f"{scheme}://{host}{slash}{path}"

    @property
    def name(self) -> str:
        """Return the last part of the path, or the name of a byte range."""
        _, _, name = self.display_url.rstrip("/").rpartition("/")
        return name

    @property
    def byte_range(self) -> tuple[Self, int, int] | None:
        """Return (file, first byte, last byte + 1) of a byte range. None for a whole file."""
        match = BYTE_RANGE.match(self.url)
        if match is None:
            return None
        return type(self)(match["file"], self.settings), int(match["start"]), int(match["end"])

    @property
    def local(self) -> Path | None:
        """Return the local path of a local file or folder. None for a URL or byte range."""
        if self.byte_range is not None:
            return None
        if self.url.startswith("file://"):
            return Path(unquote(self.url.removeprefix("file://")))
        if "://" in self.url:
            return None
        return Path(self.url)

    def exists(self) -> bool:
        """Return whether the file or folder exists. Raises StoreError if access is denied."""
        if (path := self.local) is not None:
            return path.exists()
        if self.byte_range is not None:
            return self.byte_range[0].exists()
        return bool(self._request("exists"))

    def fingerprint(self) -> str:
        """Return a text that changes whenever the file changes.

        It contains the size, and the ETag or modification time.
        """
        return self._size_and_fingerprint()[1]

    def size(self) -> int:
        """Return the size in bytes. Raises StoreError if it is unknown or over the limit."""
        return self._require_size(self._size_and_fingerprint()[0])

    def _require_size(self, size: int) -> int:
        if size < 0:
            raise StoreError(
                f"{self.display_url}: its server does not state its size; "
                "download it, and give the file"
            )
        if self.local is None and size > self.settings.largest * BYTES_PER_MIB:
            raise StoreError(
                f"{self.display_url}: {size} bytes are more than "
                f"places.largest={self.settings.largest} MiB; leave it out, or raise that"
            )
        return size

    def _size_and_fingerprint(self) -> tuple[int, str]:
        # A byte range changes with the whole file.
        if self.byte_range is not None:
            whole, start, end = self.byte_range
            return end - start, f"{whole.fingerprint()}+{start}-{end}"
        if (path := self.local) is not None:
            status = self._call_with_retries(path.stat)
            return status.st_size, f"{status.st_size}-{status.st_mtime_ns}"
        metadata = self._request("info")
        if metadata.get("type") == "directory":
            raise StoreError(f"{self.display_url}: is a folder; give a file")
        size = metadata.get("size")
        return -1 if size is None else int(size), fingerprint_of(metadata)

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes [start, end) of the file. end: None for the end of the file."""
        if self.byte_range is not None:
            whole, first, last = self.byte_range
            return whole.read(first + start, last if end is None else min(last, first + end))
        if (path := self.local) is not None:
            return self._call_with_retries(lambda: read_range(path, start, end))
        limits = {"start": start, "end": end} if start or end is not None else {}

        def request_bytes() -> bytes:
            data = bytes(self._request_once("cat_file", **limits))
            if end is not None and len(data) != end - start:
                raise ShortReadError(f"{len(data)} bytes, not {end - start}")
            return data

        return self._call_with_retries(request_bytes)

    def write(self, data: str | bytes) -> None:
        """Write a file atomically: by a rename on a local disk, by one upload elsewhere."""
        content = data.encode() if isinstance(data, str) else data
        if (path := self.local) is not None:
            write_atomic(path, content)
        else:
            filesystem, seconds = self._upload(len(content))
            self._call_with_retries(
                lambda: request(filesystem, "pipe_file", self.url, seconds, content)
            )

    def create(self, data: bytes) -> bool:
        """Create a file only if none exists, atomically. Return whether this call created it.

        On a local disk by a hard link, else by If-None-Match (S3) or generation 0 (GCS). It is not
        atomic on a disk without links, and in a store without conditional writes. Two concurrent
        calls may then both return True, and the last data stays.

        data: content, which no other caller may write.
        """
        if (path := self.local) is not None:
            return self._call_with_retries(lambda: create_local(path, data))
        filesystem, seconds = self._upload(len(data))
        try:
            self._call_with_retries(
                lambda: request(filesystem, "pipe_file", self.url, seconds, data, mode="create")
            )
        except StoreError as error:
            # An earlier try of this call may have created it, whose answer was lost.
            if exists_already(error):
                return self.read() == data
            if not lacks_conditional_writes(error):
                raise
            if self.exists():
                return False
            self.write(data)
        return True

    def put(self, source: Path) -> None:
        """Upload or copy a local file to this path, atomically."""
        if (path := self.local) is not None:
            with atomic_path(path) as partial:
                shutil.copyfile(source, partial)
        else:
            filesystem, seconds = self._upload(source.stat().st_size)
            target = filesystem._strip_protocol(self.url)
            self._call_with_retries(
                lambda: request(filesystem, "put_file", str(source), seconds, target)
            )

    def fetch(self, path: Path) -> str:
        """Download the file to a local path, and return its fingerprint.

        If the download is interrupted, or the file changes meanwhile, the local file is discarded.
        """
        # Block by block, so that a lost connection costs one block.
        size, fingerprint = self._size_and_fingerprint()
        size = self._require_size(size)
        block = self.settings.block * BYTES_PER_MIB
        longest = self.settings.longest
        start_time = time.monotonic()
        with atomic_path(path) as partial, partial.open("wb") as file:
            for start in range(0, size, block):
                file.write(self.read(start, min(start + block, size)))
                if self.local is None and time.monotonic() - start_time > longest:
                    raise StoreError(
                        f"{self.display_url}: takes longer than places.longest={longest:g} s; "
                        "raise that, or leave it out"
                    )
        # The blocks of a file that changed belong to different versions.
        if self.fingerprint() != fingerprint:
            remove_file(path)
            raise StoreError(
                f"{self.display_url}: it changed while it was read; run again when it is complete"
            )
        return fingerprint

    def open(self, buffer: int | None = None) -> BinaryIO:
        """Return the file as a seekable binary stream that reconnects after lost connections.

        buffer: bytes per request. None for the block size in the settings.
        """
        if (path := self.local) is not None:
            return cast(BinaryIO, self._call_with_retries(lambda: path.open("rb")))
        size = self.size()
        buffer = min(buffer or self.settings.block * BYTES_PER_MIB, max(size, 1))
        return cast(BinaryIO, io.BufferedReader(RangeReader(self, size), buffer))

    def list(self, skipped: "builtins.list[tuple[str, str]] | None" = None) -> Iterator[FileEntry]:
        """Yield every file below a folder, without hidden files, in the server's order.

        skipped: list to which (name, reason) of unreadable local files is appended. None: they
            raise StoreError.
        Raises StoreError for a missing local folder. A prefix without objects is empty.
        """
        if (path := self.local) is not None:
            if not self._call_with_retries(path.is_dir):
                raise StoreError(f"{self.display_url}: is not there; correct the address")
            yield from local_files(path, skipped)
            return
        # A remote listing may be endless.
        for count, (name, metadata) in enumerate(
            list_objects(self.url, self.settings, self._call_with_retries)
        ):
            if count == self.settings.most:
                raise StoreError(
                    f"{self.display_url}: lists more than places.most={count} files; raise that"
                )
            if name and not any(part.startswith(".") for part in name.split("/")):
                size = metadata.get("size") or metadata.get("Size") or 0
                yield FileEntry(name, int(size), fingerprint_of(metadata))

    def remove(self) -> None:
        """Remove the file if it exists."""
        if (path := self.local) is not None:
            remove_file(path)
            return

        def remove_remote() -> None:
            with contextlib.suppress(FileNotFoundError):  # removed by an earlier try, for example
                self._request_once("rm_file")

        self._call_with_retries(remove_remote)

    def _upload(self, size: int) -> tuple[Any, float]:
        """Return the filesystem for an upload of `size` bytes, and its timeout in seconds."""
        if self.byte_range is not None:
            raise StoreError(
                f"{self.display_url}: a part of a file cannot be written; write the whole file"
            )
        blocks = 1 + size // (self.settings.block * BYTES_PER_MIB)
        return filesystem_of(self.url, self.settings), self.settings.seconds * blocks

    def _request_once(self, method: str, **options: Any) -> Any:
        files = filesystem_of(self.url, self.settings)
        return request(files, method, self.url, self.settings.seconds, **options)

    def _request(self, method: str) -> Any:
        return self._call_with_retries(lambda: self._request_once(method))

    def _call_with_retries(self, action: Callable[[], T]) -> T:
        return retry_request(action, self.display_url, self.settings)


class RangeReader(io.RawIOBase):
    """A raw stream of a remote file, for `io.BufferedReader`."""

    def __init__(self, path: RemotePath, size: int) -> None:
        """Start at the first byte.

        Args:
            path: the remote file.
            size: bytes of the whole file.
        """
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
        """Set the position in bytes, and return it."""
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


def fingerprint_of(metadata: dict[str, Any]) -> str:
    """Return the fingerprint of a file from its filesystem's metadata: size and version."""
    size = metadata.get("size", metadata.get("Size"))
    version = next((metadata[key] for key in VERSION_KEYS if metadata.get(key) is not None), "")
    if isinstance(version, datetime):
        version = version.timestamp()
    return f"{size}-{json.dumps(version, default=str)}".replace('"', "").replace("\\", "")


def create_local(path: Path, data: bytes) -> bool:
    """Create a local file with `data` if none exists. Return whether this call created it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A link to a complete file is created in one step, or fails where a file exists.
    complete = path.parent / f".{uuid.uuid4().hex}{PARTIAL_SUFFIX}"
    try:
        complete.write_bytes(data)
        os.link(complete, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINK_ERRNOS:
            raise
        # Without links: created in one step, and filled afterwards.
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            return False
    finally:
        complete.unlink(missing_ok=True)
    return True


def read_range(path: Path, start: int, end: int | None) -> bytes:
    """Return the bytes [start, end) of a local file. end: None for the end of the file.

    Raises EOFError if the file is shorter.
    """
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
    parents: frozenset[tuple[int, int]] = frozenset(),
) -> Iterator[FileEntry]:
    """Yield the files below a local folder, sorted. Memory holds the names of one folder per level.

    Files removed during the listing are skipped.

    Args:
        folder: the folder.
        skipped: list to which (name, reason) of unreadable files is appended. None: they raise
            StoreError.
        prefix: of the names.
        parents: (device, inode) of the parent folders, to detect links that lead back.
    """

    def skip_or_raise(path: str | Path, name: str, error: OSError) -> None:
        if skipped is None:
            raise StoreError(
                f"{path}: cannot be read ({error.strerror}); allow it, or move it"
            ) from error
        skipped.append((name, f"it cannot be read ({error.strerror})"))

    try:
        status = folder.stat()
        with os.scandir(folder) as entries:
            children = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        skip_or_raise(folder, prefix or "/", error)
        return
    # A link that leads back to a parent folder is not followed.
    parents |= {(status.st_dev, status.st_ino)}
    for entry in children:
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
            skip_or_raise(entry.path, name, error)
            continue
        if stat.S_ISDIR(status.st_mode):
            if (status.st_dev, status.st_ino) not in parents:
                yield from local_files(Path(entry.path), skipped, f"{name}/", parents)
        elif stat.S_ISREG(status.st_mode):
            yield FileEntry(name, status.st_size, f"{status.st_size}-{status.st_mtime_ns}")
