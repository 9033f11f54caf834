"""One driver at a time on one OUT: a lock that ends with its owner, however that ends.

On a disk of this machine or a shared one it is a lock of the system's on OUT/driver.json, whose
text names the owner. An object store has no locks: there one who finds no such file creates it,
which of several but one can (compare and swap: RemotePath.create), and writes it again and again;
one that is old has no owner.
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
from stepline.locks import lock_file_now, lock_output, owner_fields, owner_name, owner_note, taken

if TYPE_CHECKING:
    from stepline.remote import RemotePath

NAME = "driver.json"
HEARTBEAT = 20.0  # seconds between the signs of life that a driver leaves in an object store
CLAIM = ".claim"  # behind the name: who is about to replace a dead driver's
STALE = 90.0  # seconds without one after which its lock counts as left by a dead driver


@dataclass
class RunLock:
    """A hold on OUT. killed: whether the driver before was; usurper: the note of one that has taken
    it since.

    name: of this driver in an object store, one of its own.
    """

    shown: str
    killed: bool
    name: str = ""
    usurper: bytes | None = None

    def check(self) -> None:
        """Raise SettingsError where another driver took OUT for abandoned, as when this machine
        slept for minutes."""
        if self.usurper is not None:
            raise taken(self.shown, self.usurper)


@contextlib.contextmanager
def lock_run(out: "RemotePath") -> Iterator[RunLock]:
    """Hold OUT for this process.

    Raises SettingsError where another one has it.
    """
    if out.local is None:
        with _heartbeat(out) as lock:
            yield lock
    else:
        with lock_output(out.local / NAME, out.display_url, keep=True) as killed:
            yield RunLock(out.display_url, killed)


@contextlib.contextmanager
def _heartbeat(out: "RemotePath") -> Iterator[RunLock]:
    """Leave signs of life in an object store."""
    file, ours, stop = (
        out / NAME,
        f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}",
        threading.Event(),
    )
    lock = RunLock(out.display_url, sign(file, owner_note(ours), out.display_url), ours)

    def beat() -> None:
        while not stop.wait(HEARTBEAT):
            # the next one may come through; the run's own writes will tell
            with contextlib.suppress(StoreError):
                if not file.create(owner_note(ours)):
                    now = file.read()
                    if owner_fields(now).get("name") != ours:
                        lock.usurper = now
                        return
                    file.write(owner_note(ours))

    thread = threading.Thread(target=beat, daemon=True, name="heartbeat")
    thread.start()
    try:
        yield lock
    finally:
        stop.set()
        thread.join()
        # a sign that stays grows stale; what ended the run is to be told
        with contextlib.suppress(StoreError):
            if owner_fields(file.read()).get("name") == ours:
                file.remove()


def sign(file: "RemotePath", note: bytes, shown: str) -> bool:
    """Put a note where no other one holds OUT; tell whether there was one of a dead driver.

    A dead one's is replaced by whoever holds a claim to it, which is signed in the same way: of two
    who find it, one does. Raises SettingsError where another one holds OUT, or was faster.
    """
    killed = not file.create(note)
    if killed:
        before = file.read()
        if _is_fresh(before):
            raise taken(shown, before)
        claim = type(file)(f"{file.url}{CLAIM}", file.settings)
        sign(claim, note, shown)
        try:
            if (now := file.read()) != before:
                raise taken(shown, now)
            file.write(note)
        finally:
            claim.remove()
    if (now := file.read()) != note:  # a store without conditional writes: the last to sign has it
        raise taken(shown, now)
    return killed


def lock_owner(out: "RemotePath") -> str | None:
    """Return which process works on OUT; None where none does."""
    if out.local is None:
        sign = out / NAME
        content = sign.read() if sign.exists() else b""
        return owner_name(content) if _is_fresh(content) else None
    try:
        with (out.local / NAME).open("rb") as file:
            return None if lock_file_now(file, shared=True) else owner_name(file.read())
    except FileNotFoundError:
        return None


def driver_name(out: "RemotePath") -> str:
    """Return the name of the driver that works on an object store, as of `RunLock`; "" where none
    does."""
    sign = out / NAME
    content = sign.read() if sign.exists() else b""
    return str(owner_fields(content).get("name", "")) if _is_fresh(content) else ""


def _is_fresh(content: bytes) -> bool:
    at = owner_fields(content).get("at")
    return isinstance(at, (int, float)) and time.time() - at < STALE
