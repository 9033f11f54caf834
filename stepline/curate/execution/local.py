"""The local engine: worker processes of this machine.

A folder for what a run holds for a while: fetched videos, workers' logs. It goes with the run or the next one.

Machines may share a cache: each removes only what its own dead processes left.
"""

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from stepline.curate.execution.messages import WorkerSetup
from stepline.curate.execution.pool import WorkerPool
from stepline.curate.execution.scheduler import Fetcher, Phase, Scheduler
from stepline.curate.stage import Item
from stepline.curate.store.results import StageFolders
from stepline.curate.store.run_log import RunLog
from stepline.errors import StoreError
from stepline.weights import cache_folder

MIB = 2**20


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def setup_of(task: Phase) -> WorkerSetup:
    """Return what workers are told, with the folders of dataset stages that their units need on this machine."""
    plan = task.plan
    stages = {name: stage for name, stage in plan.stages.items() if stage.kind == "video"}
    needed = {need for name in task.stages for need in stages[name].needs if need in plan.dataset_keys}
    folders = StageFolders(task.cells.place)
    brought = {need: folders.here(need, plan.dataset_keys[need]) for need in sorted(needed)}
    return WorkerSetup(plan.recipe, stages, task.cells.place.url, brought)


def work_through(task: Phase, items: Iterable[Item], size: int, scratch: Path, journal: RunLog) -> None:
    """Do the stages of a task for all items with `size` worker processes.

    Raises SteplineError where the run must end; what was finished is kept.
    """
    engine = task.plan.recipe.engine
    fetcher = Fetcher(scratch, engine.cache * MIB, task.plan.recipe.places)
    team = WorkerPool(setup_of(task), size, journal, scratch)
    try:
        Scheduler(task, team, fetcher, iter(items), engine.ahead * size).run()
    finally:
        team.close()
        fetcher.close()


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
