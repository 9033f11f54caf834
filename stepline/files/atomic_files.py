"""How Stepline writes files: whole or not at all, and never through a link.

A file is written to a temporary one in the same folder, which is then renamed. A folder from
elsewhere, such as a library, may hold something else where Stepline keeps its own files: a link, a
pipe or a second name of one of the user's files. `open_own_file` and `check_own_file` refuse these.
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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from stepline.errors import StoreError

# marks a file that is being written. Its name holds the writer's process id and machine
PARTIAL_SUFFIX = ".partial"
MAX_STEM_BYTES = (
    80  # bytes of a file's stem that its temporary name begins with; a name may have 255
)
OWNER_ALONE = 0o600  # rights of a file that no one else can read
OWNER_MASK = 0o077  # the umask that gives them
_serial = itertools.count()
_umask_lock = threading.Lock()  # it can only be asked for by a change


def write_atomic(path: Path, data: str | bytes) -> None:
    """Write a file whole or not at all: a temporary file next to it, flushed to disk, then renamed
    over it."""
    with atomic_path(path) as partial:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path` to write to. It takes its place on success and is
    removed on failure.

    Raises StoreError, with the cure, when the disk is full or the folder cannot be written.
    """
    with atomic_files() as files:
        yield files.partial(path)


class FileSet:
    """Files that appear together: each is written next to its place, and none takes it before all
    are on disk."""

    def __init__(self) -> None:
        self.current = Path()  # what an error is about
        self._partials: dict[Path, Path] = {}
        self._stale: list[Path] = []

    def partial(self, path: Path) -> Path:
        """Return the temporary path to write to instead of `path`."""
        self.current = path
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = f"{os.getpid()}-{next(_serial)}-{_machine()}"
        name = f".{_partial_stem(path)}.{writer}{PARTIAL_SUFFIX}{path.suffix}"
        self._partials[path] = path.parent / name
        return self._partials[path]

    @property
    def partials(self) -> Mapping[Path, Path]:
        """The temporary path of each file that was asked for."""
        return self._partials

    def remove(self, path: Path) -> None:
        """Remove a file with the change, if none of the new ones replaces it."""
        self._stale.append(path)

    def commit(self) -> None:
        """Flush all to disk, then put each in its place, in the order in which they were asked
        for."""
        for path, partial in self._partials.items():
            self.current = path
            with partial.open("rb") as file:
                # Libraries that write by a temporary file of their own make it their owner's alone.
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) == OWNER_ALONE:
                    partial.chmod(_new_file_mode())
                os.fsync(file.fileno())
        # What is stale goes once all that is new is on disk.
        for path in self._stale:
            if path not in self._partials:
                remove_file(path)
        for path, partial in self._partials.items():
            self.current = path
            partial.replace(path)

    def discard(self) -> None:
        """Remove what has not taken its place."""
        for partial in self._partials.values():
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_files() -> Iterator[FileSet]:
    """Yield a set of files that takes its place on success, as a whole. On failure nothing of it is
    left.

    Raises StoreError, with the cure, when the disk is full or a folder cannot be written.
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
        cure = "free some space or give another --out"
        raise StoreError(f"{files.current}: cannot be written ({reason}); {cure}") from error
    finally:
        files.discard()


@functools.cache
def _new_file_mode() -> int:
    """Return the rights of a file that this process opens to write."""
    with _umask_lock:
        mask = os.umask(OWNER_MASK)
        os.umask(mask)
    return 0o666 & ~mask


def files_below(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted by path. Folders that cannot be read, or go during
    this, are left out.

    pathlib's own rglob ends with an error where another process removes a folder of it.
    """
    inside = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sorted(path for path in inside if path.is_file())


def check_writable(folder: Path) -> None:
    """Raise StoreError where files could not be written into a folder, or the folder not be made.
    Makes nothing."""
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:  # the writers of Parquet and safetensors take no other
        raise StoreError(f"{str(folder)!a}: its name is not UTF-8; give another --out") from error
    existing = next(
        path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()
    )
    if not existing.is_dir():
        raise StoreError(f"{folder}: cannot be a folder, {existing} is a file; give another --out")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StoreError(f"{folder}: {existing} does not allow writing; give another --out")


def remove_file(path: Path) -> None:
    """Remove a file that Stepline wrote, if it is there. Raises StoreError where the folder does
    not allow it."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"{path}: cannot be removed ({reason}); remove it, or give another --out"
        ) from error


def remove_partial_files(folder: Path, of: Path | None = None) -> None:
    """Remove the temporary files that killed processes of this machine left in `folder`. Those of
    others stay.

    of: the one file in it whose temporary files are meant.
    """
    import psutil

    for partial in folder.glob(f".*{PARTIAL_SUFFIX}*") if of is None else partial_files(of):
        # The name ends with its writer's process and machine.
        owner, _, rest = (
            partial.name.rpartition(PARTIAL_SUFFIX)[0].rpartition(".")[2].partition("-")
        )
        ours = rest.partition("-")[2] in (_machine(), "")  # "": of a version that did not name it
        if owner.isdigit() and ours and not psutil.pid_exists(int(owner)):
            partial.unlink(missing_ok=True)


def _machine() -> str:
    """Return what distinguishes this machine from another on a shared disk, short enough for a
    file's name."""
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _partial_stem(path: Path) -> str:
    """Return the first bytes of a file's stem: its temporary name is then no longer than names may
    be."""
    return os.fsencode(path.stem)[:MAX_STEM_BYTES].decode(errors="ignore")


def partial_files(path: Path) -> list[Path]:
    """Return the temporary files of `path` that are being written, or that killed processes
    left."""
    stem = re.escape(_partial_stem(path))
    suffix = re.escape(PARTIAL_SUFFIX + path.suffix)
    own = re.compile(rf"\.{stem}\.\d+-\d+(-[0-9a-f]{{8}})?{suffix}")
    return sorted(
        file for file in path.parent.glob(f".*{PARTIAL_SUFFIX}*") if own.fullmatch(file.name)
    )


def cache_folder() -> Path:
    """Return the folder for what can be made again: STEPLINE_CACHE, else the user's cache
    folder."""
    import platformdirs

    variable = os.environ.get("STEPLINE_CACHE")
    if variable:
        return Path(variable).expanduser()
    return platformdirs.user_cache_path("stepline", appauthor=False)


def open_own_file(path: Path, *, append: bool = False) -> BinaryIO:
    """Open a file to read and write, without a buffer, or make it. Its content stays.

    append: each write goes to its end. Raises StoreError as `check_own_file` does, OSError where it
    cannot be opened.
    """
    # A link is refused, and a pipe keeps no one waiting.
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if append:
        flags |= os.O_APPEND
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        check_own_file(path)
        descriptor = os.open(path, flags)
    file = os.fdopen(descriptor, "r+b", buffering=0)
    try:
        _check_state(path, os.fstat(descriptor))
    except StoreError:
        file.close()
        raise
    return file


def check_own_file(path: Path) -> None:
    """Raise StoreError where a link, a folder, a device or a file with a second name is in a file's
    place."""
    try:
        state = path.lstat()
    except FileNotFoundError:
        return
    _check_state(path, state)


def check_own_folder(folder: Path) -> None:
    """Raise StoreError where a folder that Stepline writes into is a link, or holds one."""
    for path in (folder, *folder.glob("*"), *folder.glob(".*")):
        if path.is_symlink():
            raise StoreError(f"{path}: is a link, and Stepline would write there; remove it")


def _check_state(path: Path, state: os.stat_result) -> None:
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
