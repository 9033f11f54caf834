"""One driver at a time on one OUT: a lock that ends with its owner, however that ends.

On a disk of this machine or a shared one it is a lock of the system's on OUT/driver.json, whose
text names the owner. An object store has no locks. There a driver that finds no such file creates
it, which only one of several can (compare and swap: RemotePath.create). It then writes it again and
again. A file that is old has no owner.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepline.errors import StoreError
from stepline.files.locks import (
    lock_output,
    locked_error,
    owner_fields,
    owner_name,
    owner_note,
    read_owner,
)

if TYPE_CHECKING:
    from stepline.files.remote import RemotePath

LOCK_NAME = "driver.json"
CLAIM_SUFFIX = ".claim"  # behind the name: who is about to replace a dead driver's
HEARTBEAT_SECONDS = 20.0  # between the signs of life that a driver leaves in an object store
STALE_SECONDS = 90.0  # without one, after which a lock counts as left by a dead driver


@dataclass
class RunLock:
    """The lock of a run on its output folder.

    Attributes:
        url: URL or path of the output folder, for messages.
        was_killed: whether the previous run on the folder was killed.
        other_owner: note of another run that has taken the lock since, None without one.
    """

    url: str
    was_killed: bool
    other_owner: bytes | None = None

    def require_ownership(self) -> None:
        """Raise SettingsError if another run has taken the lock, as after a long suspension."""
        if self.other_owner is not None:
            raise locked_error(self.url, self.other_owner)


@contextlib.contextmanager
def lock_run(out: "RemotePath") -> Iterator[RunLock]:
    """Lock an output folder for this process in a `with` block.

    Raises SettingsError if another process has the lock.
    """
    if out.local is None:
        with _lock_object_store(out) as lock:
            yield lock
    else:
        with lock_output(out.local / LOCK_NAME, out.display_url, keep=True) as killed:
            yield RunLock(out.display_url, killed)


@contextlib.contextmanager
def _lock_object_store(out: "RemotePath") -> Iterator[RunLock]:
    """Lock an output folder in an object store, by a note that is written again every 20 s."""
    file = out / LOCK_NAME
    # No two drivers have this name, on whatever machine.
    name = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}"
    lock = RunLock(out.display_url, write_owner_note(file, owner_note(name), out.display_url))
    stop = threading.Event()

    def write_heartbeats() -> None:
        while not stop.wait(HEARTBEAT_SECONDS):
            # The next one may come through. If not, the run's own writes fail.
            with contextlib.suppress(StoreError):
                if not file.create(owner_note(name)):
                    note = file.read()
                    if owner_fields(note).get("name") != name:
                        lock.other_owner = note
                        return
                    file.write(owner_note(name))

    thread = threading.Thread(target=write_heartbeats, daemon=True, name="heartbeat")
    thread.start()
    try:
        yield lock
    finally:
        stop.set()
        thread.join()
        # A note that stays grows stale. The error that ended the run is raised.
        with contextlib.suppress(StoreError):
            if owner_fields(file.read()).get("name") == name:
                file.remove()


def write_owner_note(file: "RemotePath", note: bytes, url: str) -> bool:
    """Take the lock of an object store by writing a note. Return whether the last owner was killed.

    The note of a dead owner is replaced under a claim file, so that only one of several runs does
    it.

    Args:
        file: the lock file.
        note: content that names this process.
        url: URL of the output folder, for messages.

    Raises SettingsError if another process has the lock.
    """
    # create() fails where the file exists, which is what makes it a lock.
    killed = not file.create(note)
    if killed:
        before = file.read()
        if _is_fresh(before):
            raise locked_error(url, before)
        claim = type(file)(f"{file.url}{CLAIM_SUFFIX}", file.settings)
        # The claim is a lock on the right to replace the note.
        write_owner_note(claim, note, url)
        try:
            # Someone else may have replaced it before the claim.
            if (latest := file.read()) != before:
                raise locked_error(url, latest)
            file.write(note)
        finally:
            claim.remove()
    latest = file.read()
    if latest != note:  # without conditional writes, the last writer has the lock
        raise locked_error(url, latest)
    return killed


def lock_owner(out: "RemotePath") -> str | None:
    """Return the name of the process that has locked an output folder, None if it is free."""
    if out.local is None:
        file = out / LOCK_NAME
        note = file.read() if file.exists() else b""
        return owner_name(note) if _is_fresh(note) else None
    owner = read_owner(out.local / LOCK_NAME)
    return None if owner is None else owner_name(owner)


def _is_fresh(note: bytes) -> bool:
    at = owner_fields(note).get("at")
    return isinstance(at, (int, float)) and time.time() - at < STALE_SECONDS
