"""The process that does units of work: `python -m stepline.curate.execution.worker FD PARENT`, started by a supervisor.

It holds models between units, dies with its parent, and may itself hang, crash or be killed: nobody waits for it.

Where a worker process does its units: it reads what they need, runs the stage, and writes the cell.
"""

import ctypes
import errno
import faulthandler
import os
import pickle
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

from stepline.curate.execution.messages import Became, TaskReply, TaskRequest, WorkerReady, WorkerSetup, plain
from stepline.curate.remote import RemotePath
from stepline.curate.stage import LeftOutError, Stage, VideoContext
from stepline.curate.store.results import ResultStore
from stepline.errors import ModelError, SettingsError, SteplineError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class TaskRunner:
    """Does one unit after another, and remembers which stages have loaded their models."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._cells = ResultStore(RemotePath(setup.out, setup.recipe.places))
        self._loaded: set[str] = set()

    def do(self, order: TaskRequest) -> TaskReply:
        """Return what became of a unit, whose cell is written where it went well."""
        stage = self._setup.stages[order.unit.stage]
        first = stage.name not in self._loaded
        self._loaded.add(stage.name)
        forget_peak()
        notes: dict[str, float] = {}
        cpu, wall = time.process_time(), time.monotonic()
        became, reason, size = self._made(stage, order, notes)
        return TaskReply(
            became,
            _told(became, reason, order),
            cpu=time.process_time() - cpu,
            wall=time.monotonic() - wall,
            peak_rss=peak_memory(),
            bytes=size,
            first=first,
            notes=notes,
        )

    def _made(self, stage: Stage, order: TaskRequest, notes: dict[str, float]) -> tuple[Became, str, int]:
        try:
            work = self._work(order, notes)
        except SteplineError as error:  # a cell that was there cannot be read: no fault of the video
            return "run", str(error), 0
        became, reason, data = attempted(cast(Callable[[VideoContext], bytes], stage.run), work)
        if data is None:
            return became, reason, 0
        try:
            self._cells.write(stage, order.unit.key, data)
        except SteplineError as error:
            return "run", str(error), 0
        return "done", "", len(data)

    def _work(self, order: TaskRequest, notes: dict[str, float]) -> VideoContext:
        stages, folders, needs = self._setup.stages, self._setup.folders, order.unit.needs
        return VideoContext(
            order.unit.item,
            self._setup.recipe,
            media=order.files.get("media"),
            captions=order.files.get("captions"),
            features=order.files.get("features"),
            results={need: self._cells.read(stages[need], key) for need, key in needs.items() if need in stages},
            folders={need: folders[need] for need in needs if need in folders},
            notes=notes,
        )


def attempted(run: Callable[[VideoContext], bytes], work: VideoContext) -> tuple[Became, str, bytes | None]:
    """Return the bytes that a stage makes of a unit, or how it failed and why."""
    try:
        data = run(work)
    except LeftOutError as error:
        return "left out", str(error), None
    except (SettingsError, ModelError, ImportError) as error:  # no fault of the video: each would fail alike
        return "run", str(error), None
    except MemoryError:
        return "memory", "there was no memory for it", None
    except Exception as error:  # noqa: BLE001 (a video may break anything; its reason is kept and the run goes on)
        if full(error):
            return "run", f"{error}; free some space", None
        named = str(error) if isinstance(error, SteplineError) else f"{type(error).__name__}: {error}"
        return "error", named, None
    if not isinstance(data, bytes):
        return "run", f"{run.__qualname__} gave {type(data).__name__}; a stage of kind video gives bytes", None
    return "done", "", data


def _told(became: Became, reason: str, order: TaskRequest) -> str:
    """Return a reason as it is kept; what ends the run is for its owner, with all paths."""
    if became == "run":
        return " ".join(reason.split())
    return plain(reason, map(str, order.files.values()), order.unit.item.id)


def full(error: BaseException) -> bool:
    """Tell whether a full disk is behind an error."""
    return any(isinstance(cause, OSError) and cause.errno in FULL for cause in causes(error))


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what led to it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def forget_peak() -> None:
    """Start to measure the peak of memory anew, where the system can (Linux)."""
    if sys.platform == "linux":
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:  # not allowed in some containers; the peak is then the process's
            return


def peak_memory() -> int:
    """Return the most bytes of main memory held since `forget_peak`."""
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
LOOK = 1.0  # seconds between looks at who the parent is, where the system does not tell


def main(pipe: int, parent: int) -> None:
    """Do what comes through a pipe until it ends."""
    began = time.monotonic()
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    die_with(parent)
    connection = Connection(pipe)
    try:
        bench = TaskRunner(pickle.loads(connection.recv_bytes()))
        connection.send(WorkerReady(time.monotonic() - began, time.process_time()))
        while True:
            connection.send(bench.do(connection.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def die_with(parent: int) -> None:
    """Have this process killed when its parent ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
