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
from stepline.files.atomic_files import open_plain_file
from stepline.limits import parse_json

log = logging.getLogger(__name__)

LOCK_NAME = ".stepline.lock"  # in the folder that a run writes to
# times in a row that a new folder is missing, from which another process cannot be the reason
MAX_LOST_FOLDERS = 100
# s between two tries to take a lock. A process that only reads the owner's name is done sooner
POLL_SECONDS = 0.2
NOTE_START = b'{"host": '  # of every owner's note: other files are no locks
MAX_NOTE_BYTES = 4096  # read from a lock


@contextlib.contextmanager
def lock_output(
    lock: Path, place: Path | str, *, wait: bool = False, keep: bool = False
) -> Iterator[bool]:
    """Lock the output of a run. Yield whether the previous run on it was killed.

    The lock is one of the operating system (flock) on a file that names its owner. It is released
    when the owner ends, even if killed, also on a shared disk. If the system or disk has no locks,
    nothing is locked.

    Args:
        lock: path of the lock file.
        place: name of the output in messages.
        wait: whether to wait, after a warning, while another process holds the lock. False: raise
            SettingsError.
        keep: whether to leave an empty lock file at the end.

    Raises StoreError if the file is not a lock file of Stepline, and leaves it unchanged.
    """
    new_folders = [folder for folder in lock.parents if not folder.exists()]
    file, was_killed = _open_locked(lock, place, wait=wait)
    try:
        yield was_killed
    finally:
        with contextlib.suppress(OSError):
            if keep:
                file.truncate(0)
            elif _is_same_file(lock, file):
                # Before it is free: the next owner finds that it is gone, and creates another one.
                lock.unlink()
        file.close()
        for folder in new_folders:
            with contextlib.suppress(OSError):  # it holds files
                folder.rmdir()


def _open_locked(lock: Path, place: Path | str, *, wait: bool) -> tuple[BinaryIO, bool]:
    """Return the locked lock file, and whether its last owner was killed."""
    tries = 0
    lost_folders = 0  # in a row
    while True:
        tries += 1
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            file = open_plain_file(lock)
            lost_folders = 0
            is_locked = lock_file_now(file)
            note = file.read(MAX_NOTE_BYTES)
            if note and not note.startswith(NOTE_START):
                file.close()
                raise StoreError(f"{lock}: is not a lock file; remove it")
            if is_locked and _is_same_file(lock, file):
                file.seek(0)
                file.truncate(0)
                file.write(owner_note())
                return file, bool(note)  # an owner that is not killed leaves no note
            file.close()
        except (FileNotFoundError, FileExistsError) as error:
            # The owner ended in between and removed the folder. mkdir raises too where the folder
            # is gone between its two checks.
            lost_folders += 1
            if lost_folders < MAX_LOST_FOLDERS:
                continue
            reason = f"cannot be made ({error.strerror})"
            raise StoreError(f"{lock.parent}: {reason}; give another --out") from error
        except OSError as error:
            reason = f"cannot be written ({error.strerror})"
            raise StoreError(f"{lock}: {reason}; give another --out") from error
        # Locked, but the last owner removed the file: the next try creates another.
        if is_locked:
            continue
        if tries > 1 and not wait:
            raise locked_error(place, note)
        if tries == 2:
            log.warning("%s: %s works on it; waiting for its end", place, owner_name(note))
        time.sleep(POLL_SECONDS)


def _is_same_file(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def lock_file_now(file: BinaryIO, *, shared: bool = False) -> bool:
    """Lock an open file without waiting. Return False if another process holds the lock.

    If the system or disk has no locks, nothing is locked, and the result is True.

    shared: whether several readers may hold the lock at the same time.
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


def read_owner(lock: Path) -> bytes | None:
    """Return the content of a lock file that a process holds, None if it is free."""
    try:
        with lock.open("rb") as file:
            # A shared lock can be taken only while no one holds the exclusive one.
            return None if lock_file_now(file, shared=True) else file.read()
    except FileNotFoundError:
        return None


def owner_note(name: str = "") -> bytes:
    """Return the content of a lock file: host, process id and time, as JSON.

    name: name of the worker that holds the lock.
    """
    return json.dumps(
        {"host": socket.gethostname(), "process": os.getpid(), "at": time.time(), "name": name}
    ).encode()


def owner_fields(note: bytes) -> dict[str, Any]:
    """Return field -> value of the content of a lock file, {} for other content."""
    try:
        fields = parse_json(note)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def owner_name(note: bytes) -> str:
    """Return the process and host in a lock file's content, for messages."""
    fields = owner_fields(note)
    is_known = {"process", "host"} <= fields.keys()
    return f"process {fields['process']} on {fields['host']}" if is_known else "another process"


def locked_error(place: Path | str, note: bytes) -> SettingsError:
    """Return the error for an output that another process has locked.

    Args:
        place: name of the output.
        note: content of its lock file.
    """
    return SettingsError(
        f"{place}: {owner_name(note)} works on it; wait for its end, or give another folder"
    )
