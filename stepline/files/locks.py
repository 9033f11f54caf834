"""Advisory file locks of the operating system that name their owner."""

import contextlib
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from stepline.errors import SettingsError, StoreError
from stepline.files.atomic_files import open_own_file
from stepline.limits import parse_json

log = logging.getLogger(__name__)

LOCK_NAME = ".stepline.lock"  # in the folder that a run writes to
# times in a row that a folder is not there after it was made, from which no one else is the reason
MAX_LOST_FOLDERS = 100
# s between two looks at a lock that another holds. One who only asks who holds it is done sooner
POLL_SECONDS = 0.2
NOTE_START = b'{"host": '  # of every owner's note, by which a lock is known from another's file
MAX_NOTE_BYTES = 4096  # that are read of a lock


@contextlib.contextmanager
def lock_output(
    lock: Path, place: Path | str, *, wait: bool = False, keep: bool = False
) -> Iterator[bool]:
    """Lock the output of a run. Yield whether the previous run was killed.

    The lock is the operating system's (flock), on a file that names its owner. It is released when
    its owner ends, even by a kill, also on a shared disk. Where the system or disk has no locks,
    nothing is locked. filelock would empty the file, and so could not name the owner.

    Args:
        lock: the file.
        place: name of the output in messages.
        wait: until another owner ends, after a warning that names it. Otherwise that is a
            SettingsError.
        keep: leave the file, empty, at the end.

    Raises StoreError where the file is not one of Stepline's locks. It stays as it is.
    """
    new_folders = [folder for folder in lock.parents if not folder.exists()]
    file, killed = _locked_file(lock, place, wait=wait)
    try:
        yield killed
    finally:
        with contextlib.suppress(OSError):
            if keep:
                file.truncate(0)
            elif _is_same_file(lock, file):
                # before it is free: whoever locks it next finds that it is gone, and makes another
                lock.unlink()
        file.close()
        for folder in new_folders:
            with contextlib.suppress(OSError):  # something was written there
                folder.rmdir()


def _locked_file(lock: Path, place: Path | str, *, wait: bool) -> tuple[BinaryIO, bool]:
    """Return the locked lock file, and whether its last owner was killed."""
    looks = 0
    lost_folders = 0  # in a row
    while True:
        looks += 1
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            file = open_own_file(lock)
            lost_folders = 0
            locked = lock_file_now(file)
            note = file.read(MAX_NOTE_BYTES)
            if note and not note.startswith(NOTE_START):
                file.close()
                raise StoreError(f"{lock}: is not a lock file; remove it")
            if locked and _is_same_file(lock, file):
                file.seek(0)
                file.truncate(0)
                file.write(owner_note())
                return file, bool(note)  # one that ends by itself leaves no file
            file.close()
        except (FileNotFoundError, FileExistsError) as error:
            # Whoever had the lock ended in between, and took the folder away. Then mkdir too raises
            # where it is gone between its "exists" and its look whether that is a folder.
            lost_folders += 1
            if lost_folders < MAX_LOST_FOLDERS:
                continue
            reason = f"cannot be made ({error.strerror})"
            raise StoreError(f"{lock.parent}: {reason}; give another --out") from error
        except OSError as error:
            reason = f"cannot be written ({error.strerror})"
            raise StoreError(f"{lock}: {reason}; give another --out") from error
        # Locked, but the last owner removed the file: the next look makes another.
        if locked:
            continue
        if looks > 1 and not wait:
            raise locked_error(place, note)
        if looks == 2:
            log.warning("%s: %s works on it; waiting for its end", place, owner_name(note))
        time.sleep(POLL_SECONDS)


def _is_same_file(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def lock_file_now(file: BinaryIO, *, shared: bool = False) -> bool:
    """Lock an open file without waiting. Return False where another process has locked it.

    Nothing is locked where the system or disk has no locks.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning(
            "%s: this disk has no locks (%s); start no second run there", file.name, error.strerror
        )
    return True


def owner_note(name: str = "") -> bytes:
    """Return the content of a lock file: this process, and the time of locking."""
    return json.dumps(
        {"host": socket.gethostname(), "process": os.getpid(), "at": time.time(), "name": name}
    ).encode()


def owner_fields(note: bytes) -> dict[str, Any]:
    """Return the fields of a lock file's content, or {} for other content."""
    try:
        fields = parse_json(note)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def owner_name(note: bytes) -> str:
    """Return the owner in a lock file's content, in words."""
    fields = owner_fields(note)
    is_known = {"process", "host"} <= fields.keys()
    return f"process {fields['process']} on {fields['host']}" if is_known else "another process"


def locked_error(place: Path | str, note: bytes) -> SettingsError:
    """Return the error for an output that another process has locked."""
    return SettingsError(
        f"{place}: {owner_name(note)} works on it; wait for its end, or give another --out"
    )
