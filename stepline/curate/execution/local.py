"""The local engine: worker processes of this machine, and the scratch folder that a run has in its cache.

Machines may share a cache: each removes only what its own dead processes left.
"""

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from stepline.curate.execution.scheduler import Phase, Scheduler
from stepline.curate.stage import VideoItem
from stepline.curate.store.run_log import RunLog
from stepline.errors import StoreError
from stepline.weights import cache_folder


def run_locally(phase: Phase, items: Iterable[VideoItem], workers: int, scratch: Path, run_log: RunLog) -> None:
    """Take all items through a phase with so many worker processes.

    Raises SteplineError where the run must end; what was finished is kept.
    """
    with contextlib.closing(Scheduler(phase, workers, scratch, run_log)) as scheduler:
        scheduler.run(items)


def core_count() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder in the cache; remove it at the end, with those of runs that were killed."""
    home, ours = cache_folder() / "curate", f"{socket.gethostname()}-"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for left in home.iterdir():
            owner = left.name.removeprefix(ours).partition("-")[0] if left.name.startswith(ours) else ""
            if owner.isdigit() and not process_is_alive(int(owner)):
                shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{ours}{os.getpid()}-", dir=home))
    except OSError as error:
        cure = "set STEPLINE_CACHE to a folder that can be"
        raise StoreError(f"{home}: cannot be written ({error.strerror}); {cure}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def process_is_alive(pid: int) -> bool:
    """Tell whether a process of this machine is there, and not only the notice of its end that nobody took."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
