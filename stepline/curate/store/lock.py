"""One driver at a time on one OUT: a lock that ends with its owner, however that ends.

On a disk of this machine or a shared one it is a lock of the system's on OUT/driver.json, whose text names the owner.
An object store has no locks: there the owner writes the file again and again, and one that is old has no owner.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepline.errors import StoreError
from stepline.storage import lock_file_now, lock_output, owner_fields, owner_name, owner_note, taken

if TYPE_CHECKING:
    from stepline.curate.remote import RemotePath

NAME = "driver.json"
HEARTBEAT = 20.0  # seconds between the signs of life that a driver leaves in an object store
STALE = 90.0  # seconds without one after which its lock counts as left by a dead driver


@contextlib.contextmanager
def lock_run(out: "RemotePath") -> Iterator[bool]:
    """Hold OUT for this process; tell whether the one before it was killed.

    Raises SettingsError where another one has it.
    """
    with _heartbeat(out) if out.local is None else lock_output(out.local / NAME, out.display_url, keep=True) as killed:
        yield killed


@contextlib.contextmanager
def _heartbeat(out: "RemotePath") -> Iterator[bool]:
    """Leave signs of life in an object store."""
    file, ours, stop = out / NAME, f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}", threading.Event()
    killed = file.exists()
    if killed:
        before = file.read()
        if _is_fresh(before):
            raise taken(out.display_url, before)

    def beat() -> None:
        while not stop.wait(HEARTBEAT):
            with contextlib.suppress(StoreError):  # the next one may come through; the run's own writes will tell
                file.write(owner_note(ours))

    file.write(owner_note(ours))
    now = file.read()
    if owner_fields(now).get("name") != ours:  # two began at once: the last to sign has it
        raise taken(out.display_url, now)
    thread = threading.Thread(target=beat, daemon=True, name="heartbeat")
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()
        with contextlib.suppress(StoreError):  # a sign that stays grows stale; what ended the run is to be told
            if owner_fields(file.read()).get("name") == ours:
                file.remove()


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


def _is_fresh(content: bytes) -> bool:
    at = owner_fields(content).get("at")
    return isinstance(at, (int, float)) and time.time() - at < STALE
