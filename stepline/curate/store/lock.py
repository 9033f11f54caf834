"""One driver at a time on one OUT: a lock that ends with its holder, however that ends."""

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
BEAT = 20.0  # seconds between the signs of life that a driver leaves in an object store
GLANCE = 0.2  # seconds that one who only asks who holds a file may hold it
STALE = 90.0  # seconds without one after which its lock counts as left by a dead driver


@contextlib.contextmanager
def lock_output(out: "RemotePath") -> Iterator[bool]:
    """Hold OUT for this process; tell whether the one before it was killed.

    Raises SettingsError where another one has it.
    """
    with _beating(out) if out.local is None else _locked_file(out, out.local / NAME) as killed:
        yield killed


@contextlib.contextmanager
def _locked_file(out: "RemotePath", path: Path) -> Iterator[bool]:
    """Lock a file of this machine or of a shared disk: the system frees it when its holder dies."""
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
                time.sleep(GLANCE)
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
def _beating(out: "RemotePath") -> Iterator[bool]:
    """Leave signs of life in an object store, which has no locks."""
    place, ours, stop = out / NAME, f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}", threading.Event()
    killed = place.exists()
    if killed:
        before = place.read()
        with contextlib.suppress(ValueError, TypeError, KeyError):
            if time.time() - float(json.loads(before)["at"]) < STALE:
                raise SettingsError(_taken(out, before))

    def beat() -> None:
        while not stop.wait(BEAT):
            with contextlib.suppress(StoreError):  # the next one may come through; the run's own writes will tell
                place.write(_signature(ours))

    place.write(_signature(ours))
    now = place.read()
    if not _is(now, ours):  # two began at once: the last to sign has it
        raise SettingsError(_taken(out, now))
    thread = threading.Thread(target=beat, daemon=True, name="beat")
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()
        with contextlib.suppress(StoreError):  # a sign that stays grows stale; what ended the run is to be told
            if _is(place.read(), ours):
                place.remove()


def lock_owner(out: "RemotePath") -> str | None:
    """Return which process works on OUT; None where none does."""
    place = out / NAME
    if not place.exists():
        return None
    content = place.read()
    if out.local is None:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            return _who(content) if time.time() - float(json.loads(content)["at"]) < STALE else None
        return None
    import fcntl

    with (out.local / NAME).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _who(content)
    return None


def _signature(name: str = "") -> bytes:
    known = {"host": socket.gethostname(), "process": os.getpid(), "at": time.time(), "name": name}
    return json.dumps(known).encode()


def _is(content: bytes, name: str) -> bool:
    try:
        return bool(json.loads(content)["name"] == name)
    except (ValueError, TypeError, KeyError):
        return False


def _taken(out: "RemotePath", content: bytes) -> str:
    return f"{out.display_url}: {_who(content)} works on it; wait for its end, or give another --out"


def _who(content: bytes) -> str:
    try:
        known = json.loads(content)
        return f"process {known['process']} on {known['host']}"
    except (ValueError, TypeError, KeyError):
        return "another process"
