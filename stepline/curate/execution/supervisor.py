"""A process that works under watch: with a deadline and a limit of memory for each unit, replaced when it dies.

Each is a fresh interpreter (no fork: the driver may hold threads) with one thread for every library.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from stepline.curate.execution.messages import TaskReply, TaskRequest, WorkerReady, WorkerSetup
from stepline.curate.stage import no_settings
from stepline.errors import SteplineError

START = 180.0  # seconds that a process may take to start
STARTS = 5  # times in a row that one may be killed while it starts
END = 5.0  # seconds to wait for one that was killed
MIB = 2**20
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS")
QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false", "PYTHONSAFEPATH": "1"}

# Linux kills a child when the THREAD that started it ends: this one ends with the process only.
_starter = ThreadPoolExecutor(1, thread_name_prefix="stepline-start")


@dataclass(frozen=True)
class WorkerDeath:
    """How a worker ended without a reply. code: as of `subprocess`; why: the limit that it broke, None = by itself."""

    code: int
    why: str | None


class WorkerProcess:
    """One worker process, at most one order at a time."""

    def __init__(self, setup: WorkerSetup, log: Path) -> None:
        self._setup = setup
        self._log = log
        self._limits = setup.recipe.limits
        self.order: TaskRequest | None = None
        self.served = 0  # orders it was given since its process started
        self.loaded: set[str] = set()  # stages it has done
        self._ready = False
        self._failed_starts = 0
        self._deadline = 0.0
        self._began = 0.0
        self._start()

    @property
    def connection(self) -> Connection:
        """What `multiprocessing.connection.wait` waits on."""
        return self._connection

    @property
    def free(self) -> bool:
        """Tell whether an order can be given."""
        return self._ready and self.order is None

    @property
    def process(self) -> int:
        """The id of its process."""
        return self._process.pid

    def give(self, order: TaskRequest) -> None:
        """Give an order to a free worker; one that has died meanwhile is noticed at `answer`."""
        self.order = order
        self.served += 1
        self.loaded.add(order.unit.stage)
        self._began = time.monotonic()
        self._deadline = self._began + self._limits.seconds
        try:
            self._connection.send(order)
        except (BrokenPipeError, ConnectionResetError):
            return

    def answer(self) -> WorkerReady | TaskReply | WorkerDeath:
        """Return what came from the process: that it has started, a reply, or its death."""
        try:
            message = self._connection.recv()
        except (EOFError, ConnectionResetError, pickle.UnpicklingError):
            return self._ended(None)
        if isinstance(message, WorkerReady):
            self._ready = True
        return message if isinstance(message, (WorkerReady, TaskReply)) else self._ended(None)

    def overrun(self) -> WorkerDeath | None:
        """Kill a worker that is beyond its limits and return which; None where it is within them."""
        if self._connection.poll():  # the reply is there
            return None
        if self.order is not None and memory_of(self.process) > self._limits.memory * MIB:
            return self._ended("memory")
        if time.monotonic() > self._deadline and not self.free:
            return self._ended("time")
        return None

    @property
    def seconds(self) -> float:
        """How long the present order has taken."""
        return time.monotonic() - self._began

    def restart(self) -> None:
        """Replace the process by a fresh one."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the process and all it started."""
        kill(self._process)
        self._connection.close()

    def _ended(self, why: str | None) -> WorkerDeath:
        if why is None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it closed its pipe and went on
                self._process.wait(END)
        code = self._process.poll()
        kill(self._process)
        self._failed_starts = 0 if self._ready else self._failed_starts + 1
        killed = code == -signal.SIGKILL and self._failed_starts < STARTS
        if not self._ready and why is not None:
            raise SteplineError(f"a worker process did not start within {START:.0f} s; is the machine overloaded?")
        if not self._ready and not killed:
            raise SteplineError(f"a worker process cannot start (code {code}): {self._last_words()}")
        return WorkerDeath(self._process.returncode if code is None else code, why)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n") if self._log.is_file() else []
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")

    def _start(self) -> None:
        self._connection, theirs = Pipe()
        self.order, self.served, self._ready = None, 0, False
        self.loaded = set()
        self._deadline = time.monotonic() + START
        with self._log.open("wb") as log:
            self._process = _starter.submit(_started, theirs.fileno(), log).result()
        theirs.close()
        try:
            self._connection.send_bytes(pickle.dumps(_sendable(self._setup)))
        except (BrokenPipeError, ConnectionResetError):  # it is noticed at `answer`
            return


def _sendable(setup: WorkerSetup) -> WorkerSetup:
    """Return a setup without the functions that only the driver calls, which may have no name to be sent by."""
    return replace(setup, stages={name: replace(stage, settings=no_settings) for name, stage in setup.stages.items()})


def _started(pipe: int, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    one = dict.fromkeys(ONE_THREAD, "1") | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-m", "stepline.curate.execution.worker", str(pipe), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=(pipe,),
        env={**os.environ, **one, **QUIET},
        start_new_session=True,  # so that what it starts can be killed with it
    )


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process with all of its group and wait for its end."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def memory_of(process: int) -> int:
    """Return the resident bytes of a process; 0 where the system does not tell (only Linux does)."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError, ValueError):
        return 0
