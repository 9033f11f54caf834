"""One driver at a time on one OUT: a lock that ends with its owner, however that ends.

On a disk of this machine or a shared one it is a lock of the system's on OUT/driver.json, whose text names the owner.
An object store has no locks: there the owner writes the file again and again, and one that is old has no owner.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.errors import SettingsError, StoreError

if TYPE_CHECKING:
    from stepline.curate.remote import RemotePath

NAME = "driver.json"
HEARTBEAT = 20.0  # seconds between the signs of life that a driver leaves in an object store
STALE = 90.0  # seconds without one after which its lock counts as left by a dead driver
SECOND_TRY = 0.2  # seconds; one who only asks who the owner is may hold the file for less


@contextlib.contextmanager
def lock_output(out: "RemotePath") -> Iterator[bool]:
    """Hold OUT for this process; tell whether the one before it was killed.

    Raises SettingsError where another one has it.
    """
    with _heartbeat(out) if out.local is None else _locked_file(out, out.local / NAME) as killed:
        yield killed


@contextlib.contextmanager
def _locked_file(out: "RemotePath", path: Path) -> Iterator[bool]:
    """Lock a file of this machine or of a shared disk: the system frees it when its owner dies."""
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror}); give another --out") from error
    with file:
        for last in (False, True):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if last:
                    file.seek(0)
                    raise SettingsError(_taken(out, file.read())) from error
                time.sleep(SECOND_TRY)
        file.seek(0)
        killed = bool(file.read())  # one that ends by itself leaves nothing
        file.truncate(0)
        file.write(_signature())
        file.flush()
        try:
            yield killed
        finally:
            file.truncate(0)


@contextlib.contextmanager
def _heartbeat(out: "RemotePath") -> Iterator[bool]:
    """Leave signs of life in an object store."""
    file, ours, stop = out / NAME, f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}", threading.Event()
    killed = file.exists()
    if killed:
        before = file.read()
        if _is_fresh(before):
            raise SettingsError(_taken(out, before))

    def beat() -> None:
        while not stop.wait(HEARTBEAT):
            with contextlib.suppress(StoreError):  # the next one may come through; the run's own writes will tell
                file.write(_signature(ours))

    file.write(_signature(ours))
    now = file.read()
    if _fields(now).get("name") != ours:  # two began at once: the last to sign has it
        raise SettingsError(_taken(out, now))
    thread = threading.Thread(target=beat, daemon=True, name="heartbeat")
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()
        with contextlib.suppress(StoreError):  # a sign that stays grows stale; what ended the run is to be told
            if _fields(file.read()).get("name") == ours:
                file.remove()


def lock_owner(out: "RemotePath") -> str | None:
    """Return which process works on OUT; None where none does."""
    path = out / NAME
    if not path.exists():
        return None
    content = path.read()
    if out.local is None:
        return _owner(content) if _is_fresh(content) else None
    import fcntl

    with (out.local / NAME).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _owner(content)
    return None


def _signature(name: str = "") -> bytes:
    fields = {"host": socket.gethostname(), "process": os.getpid(), "at": time.time(), "name": name}
    return json.dumps(fields).encode()


def _fields(content: bytes) -> dict[str, object]:
    """Return what a signature says; nothing where it is none."""
    try:
        fields = json.loads(content)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _is_fresh(content: bytes) -> bool:
    at = _fields(content).get("at")
    return isinstance(at, (int, float)) and time.time() - at < STALE


def _owner(content: bytes) -> str:
    fields = _fields(content)
    known = {"process", "host"} <= set(fields)
    return f"process {fields['process']} on {fields['host']}" if known else "another process"


def _taken(out: "RemotePath", content: bytes) -> str:
    return f"{out.display_url}: {_owner(content)} works on it; wait for its end, or give another --out"
