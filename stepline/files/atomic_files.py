"""Atomic file writes, which never follow a link.

A file is written to a temporary file in the same folder, which is then renamed. A foreign folder,
such as a shared library, may hold a link, a pipe or a hard link in place of Stepline's own files.
`open_plain_file` and `check_plain_file` refuse these.
"""

import contextlib
import functools
import itertools
import os
import re
import socket
import stat
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from stepline.errors import SteplineError, StoreError

# of a file that is being written. Its name holds the writer's process id and machine
PARTIAL_SUFFIX = ".partial"
MAX_STEM_BYTES = 80  # of a file's stem in its temporary name; a name may have 255
OWNER_ONLY_MODE = 0o600  # rights of a file that no one else can read
OWNER_ONLY_UMASK = 0o077  # the umask that gives them
_serial = itertools.count()
_umask_lock = threading.Lock()  # the umask can only be read by a change


def write_atomic(path: Path, data: str | bytes) -> None:
    """Write a file atomically: a temporary file next to it is flushed to disk, then renamed."""
    with atomic_path(path) as partial:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`. On success it is renamed to `path`, else removed.

    Raises StoreError if the disk is full or the folder cannot be written.
    """
    with atomic_files() as files:
        yield files.partial(path)


class FileSet:
    """Files that are replaced together: all are written to temporary files before any is renamed.

    Attributes:
        current: path of the file that is being written, for error messages.
        partials: path -> temporary path of each file.
        error: error of a file that is left out. `atomic_files` raises it after the commit.
    """

    def __init__(self) -> None:
        self.current = Path()
        self.partials: dict[Path, Path] = {}
        self.error: SteplineError | None = None
        self._stale: list[Path] = []

    def partial(self, path: Path) -> Path:
        """Return the temporary path at which the content of `path` is to be written."""
        self.current = path
        path.parent.mkdir(parents=True, exist_ok=True)
        name = f".{_partial_stem(path)}.{os.getpid()}-{next(_serial)}-{_machine_id()}{PARTIAL_SUFFIX}{path.suffix}"
        self.partials[path] = path.parent / name
        return self.partials[path]

    def remove(self, path: Path) -> None:
        """Mark a file for removal at commit, unless the set replaces it."""
        self._stale.append(path)

    def commit(self) -> None:
        """Flush all files to disk, then rename them in the order of the `partial` calls."""
        for path, partial in self.partials.items():
            self.current = path
            with partial.open("rb") as file:
                # Libraries with a temporary file of their own make it readable by its owner only.
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) == OWNER_ONLY_MODE:
                    partial.chmod(_new_file_mode())
                os.fsync(file.fileno())
        # Stale files go once all new ones are on disk.
        for path in self._stale:
            if path not in self.partials:
                remove_file(path)
        for path, partial in self.partials.items():
            self.current = path
            partial.replace(path)

    def discard(self) -> None:
        """Remove the temporary files."""
        for partial in self.partials.values():
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_files() -> Iterator[FileSet]:
    """Yield a FileSet, which is committed on success and discarded on failure.

    Raises StoreError if the disk is full or a folder cannot be written, and the set's `error`.
    """
    from safetensors import SafetensorError  # what its writers raise, also when the disk is full

    files = FileSet()
    try:
        yield files
        files.commit()
    except (FileExistsError, NotADirectoryError) as error:
        reason = "there is a file where its folder should be"
        raise StoreError(
            f"{files.current}: cannot be written, {reason}; give another --out"
        ) from error
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreError(
            f"{files.current}: cannot be written ({reason}); free some space or give another --out"
        ) from error
    finally:
        files.discard()
    if files.error is not None:
        raise files.error


@functools.cache
def _new_file_mode() -> int:
    """Return the permission bits of a new file of this process, by its umask."""
    with _umask_lock:
        mask = os.umask(OWNER_ONLY_UMASK)
        os.umask(mask)
    return 0o666 & ~mask


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted by path. Unreadable folders are skipped.

    pathlib's rglob fails where another process removes a folder meanwhile.
    """
    paths = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sorted(path for path in paths if path.is_file())


def check_writable(folder: Path) -> None:
    """Raise StoreError if a folder cannot be created or written. Nothing is created."""
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:  # the writers of Parquet and safetensors refuse it
        raise StoreError(f"{str(folder)!a}: its name is not UTF-8; give another --out") from error
    existing = next(
        path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()
    )
    if not existing.is_dir():
        raise StoreError(f"{folder}: cannot be a folder, {existing} is a file; give another --out")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StoreError(f"{folder}: {existing} does not allow writing; give another --out")


def remove_file(path: Path) -> None:
    """Remove a file if it exists. Raises StoreError if that is not permitted."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"{path}: cannot be removed ({reason}); remove it, or give another --out"
        ) from error


def remove_partial_files(folder: Path, of: Path | None = None) -> None:
    """Remove the temporary files that killed processes of this machine left in a folder.

    Args:
        folder: the folder.
        of: a file. Only its temporary files are removed. None: all in the folder.
    """
    import psutil

    for partial in folder.glob(f".*{PARTIAL_SUFFIX}*") if of is None else partial_files(of):
        # The name ends with its writer's process, a serial number and the machine.
        writer = partial.name.rpartition(PARTIAL_SUFFIX)[0].rpartition(".")[2]
        process, _, serial_and_machine = writer.partition("-")
        machine = serial_and_machine.partition("-")[2]
        # An earlier version did not name the machine.
        is_of_this_machine = machine in (_machine_id(), "")
        if process.isdigit() and is_of_this_machine and not psutil.pid_exists(int(process)):
            partial.unlink(missing_ok=True)


def _machine_id() -> str:
    """Return a short id of this machine, for file names on a shared disk."""
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _partial_stem(path: Path) -> str:
    """Return a file's stem, truncated so that its temporary name is not too long."""
    return os.fsencode(path.stem)[:MAX_STEM_BYTES].decode(errors="ignore")


def partial_files(path: Path) -> list[Path]:
    """Return the temporary files of `path` that are in use or left by killed processes."""
    stem = re.escape(_partial_stem(path))
    suffix = re.escape(PARTIAL_SUFFIX + path.suffix)
    pattern = re.compile(rf"\.{stem}\.\d+-\d+(-[0-9a-f]{{8}})?{suffix}")
    files = path.parent.glob(f".*{PARTIAL_SUFFIX}*")
    return sorted(file for file in files if pattern.fullmatch(file.name))


def cache_folder() -> Path:
    """Return Stepline's cache folder.

    The environment variable STEPLINE_CACHE names it. By default it is in the user's cache folder.
    """
    import platformdirs

    variable = os.environ.get("STEPLINE_CACHE")
    if variable:
        return Path(variable).expanduser()
    return platformdirs.user_cache_path("stepline", appauthor=False)


def open_plain_file(path: Path, *, append: bool = False) -> BinaryIO:
    """Open or create a plain file for unbuffered reading and writing, without truncation.

    A plain file is a regular file with one name: no link, folder or device.

    append: whether each write goes to the end of the file.

    Raises StoreError if the path is not a plain file or has a second hard link, OSError if the file
    cannot be opened.
    """
    # A link is refused, and a pipe does not block.
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if append:
        flags |= os.O_APPEND
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        check_plain_file(path)
        descriptor = os.open(path, flags)
    file = os.fdopen(descriptor, "r+b", buffering=0)
    try:
        _require_plain_file(path, os.fstat(descriptor))
    except StoreError:
        file.close()
        raise
    return file


def check_plain_file(path: Path) -> None:
    """Raise StoreError if a path is a link, folder or device, or has a second hard link. A missing
    file passes."""
    try:
        state = path.lstat()
    except FileNotFoundError:
        return
    _require_plain_file(path, state)


def check_own_folder(folder: Path) -> None:
    """Raise StoreError if a folder is a link or contains a link."""
    for path in (folder, *folder.glob("*"), *folder.glob(".*")):
        if path.is_symlink():
            raise StoreError(f"{path}: is a link, and Stepline would write there; remove it")


def _require_plain_file(path: Path, state: os.stat_result) -> None:
    reason = None
    cure = "remove it"
    if stat.S_ISLNK(state.st_mode):
        reason = "is a link"
    elif not stat.S_ISREG(state.st_mode):
        reason = "is not a plain file"
    elif state.st_nlink > 1:
        # Writing here would change the file of the other name.
        reason = "has another name too"
        cure = "put a copy in its place"
    if reason is not None:
        raise StoreError(f"{path}: {reason}, and Stepline would write there; {cure}")
