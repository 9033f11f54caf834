"""The local engine: worker processes of this machine, and the scratch folder that a run has in its
cache.

Machines may share a cache: each removes only what its own dead processes left.
"""

import contextlib
import glob
import math
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
from stepline.errors import SettingsError, StoreError
from stepline.files.atomic_files import cache_folder
from stepline.networks.device import core_count, cuda_gpus, current_device, requested_device


def run_locally(phase: Phase, items: Iterable[VideoItem], run_log: RunLog) -> None:
    """Run video stages over all videos with worker processes on this machine.

    Args:
        phase: the stages, and where their results are stored.
        items: the videos.
        run_log: log of the tasks.

    Raises SteplineError if the run cannot continue. Finished results are kept.
    """
    engine = phase.plan.recipe.engine
    workers = engine.workers or core_count()
    devices = worker_devices(engine.gpus)
    with (
        scratch_folder() as scratch,
        contextlib.closing(Scheduler(phase, workers, scratch, run_log, devices)) as scheduler,
    ):
        scheduler.run(items)


def worker_devices(share: float) -> list[str]:
    """Return the torch device of each worker that has a GPU, such as "cuda:0".

    share: number of GPUs per worker (the setting `engine.gpus`). With 0.25, four workers share a
    GPU. With 2, a worker gets the first of two GPUs.

    Raises SettingsError if this machine has too few GPUs.
    """
    if not share:
        return []
    if requested_device() in ("auto", "cuda"):
        gpus = [f"cuda:{number}" for number in range(cuda_gpus())]
    else:
        gpus = [current_device().name]
    # Rounding of 1 / share must not cost a worker.
    workers = max(1, math.floor(1 / share + 1e-9))  # that share a GPU
    step = max(1, math.ceil(share))  # GPUs of a worker
    first_gpus = gpus[: len(gpus) - step + 1 : step]
    devices = [gpu for gpu in first_gpus for _ in range(workers)]
    if set(devices) <= {"cpu"}:
        raise SettingsError(
            f"engine.gpus={share:g}: {len(gpus) - gpus.count('cpu')} GPUs are here; "
            "set engine.gpus=0, or --device cpu"
        )
    return devices


def gpus_per_worker(share: float) -> float:
    """Return the number of GPUs per worker.

    With `--device cpu` it is 0. Else it is `share` or, if that is 0, 1 on a machine with a GPU.

    share: the setting `engine.gpus` of the recipe.
    """
    if requested_device() == "cpu":
        return 0.0
    return share or float(current_device().device_type != "cpu")


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new scratch folder in the cache, which is deleted at the end.

    Scratch folders that killed processes of this machine left are deleted too.

    Raises StoreError if the cache cannot be written.
    """
    home = cache_folder() / "curate"
    # Machines may share the cache, and a process number means something only on its own.
    ours = f"{socket.gethostname()}-"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for old in home.glob(f"{glob.escape(ours)}*"):
            owner = old.name.removeprefix(ours).partition("-")[0]
            if owner.isdigit() and not process_is_alive(int(owner)):
                shutil.rmtree(old, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{ours}{os.getpid()}-", dir=home))
    except OSError as error:
        raise StoreError(
            f"{home}: cannot be written ({error.strerror}); set STEPLINE_CACHE to a folder that can be"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def process_is_alive(pid: int) -> bool:
    """Return whether a process of this machine runs. A zombie process does not run."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error as error:
        return isinstance(error, psutil.AccessDenied)
