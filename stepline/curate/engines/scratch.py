"""A folder for what a run holds for a while: fetched videos, workers' logs. It goes with the run or the next one.

Machines may share a cache: each removes only what its own dead processes left.
"""

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stepline.errors import StoreError
from stepline.models import cache_folder


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder in the cache; remove it at the end, with those of runs that were killed."""
    home, ours = cache_folder() / "curate", f"{socket.gethostname()}-"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for left in home.iterdir():
            owner = left.name.removeprefix(ours).partition("-")[0] if left.name.startswith(ours) else ""
            if owner.isdigit() and not alive(int(owner)):
                shutil.rmtree(left, ignore_errors=True)
        made = Path(tempfile.mkdtemp(prefix=f"{ours}{os.getpid()}-", dir=home))
    except OSError as error:
        cure = "set STEPLINE_CACHE to a folder that can be"
        raise StoreError(f"{home}: cannot be written ({error.strerror}); {cure}") from error
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def alive(process: int) -> bool:
    """Tell whether a process of this machine is there, and not only the notice of its end that nobody took (Linux)."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    state = Path(f"/proc/{process}/stat")
    return not (state.is_file() and state.read_text().rpartition(")")[2].split()[0] in "ZX")
