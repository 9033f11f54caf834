"""Worker processes: Python child processes that do one task at a time.

    worker = WorkerProcess("stepline.llm.local_model:LoadedModel")
    end = worker.run(ModelFiles(...), seconds=60.0)  # a Reply, or a WorkerDeath

The target names a function of an importable module. The child calls it once, with the setup and a
function that sends a message, and gets the task function. A worker has limits of time and memory,
and ends with its parent and all its descendants.
"""

import contextlib
import math
import os
import pickle
import pkgutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar

import psutil

from stepline.errors import error_line
from stepline.processes import kill_group, start_module

Send: TypeAlias = Callable[[object], None]

END_SECONDS = 5.0  # to wait for a process that closed its pipe
POLL_SECONDS = 0.5  # between two looks at a worker that sends nothing
FAMILY_POLL_SECONDS = 0.5  # between two looks at the memory of what a worker has started
MAX_OUTPUT_CHARS = 400  # of the last line that a worker printed
INTERRUPTED_EXIT_CODE = 130  # as a shell reports a program that Ctrl-C ended


class WorkerReady(NamedTuple):
    """Message: a worker has started. wall, cpu: seconds of the start."""

    wall: float
    cpu: float


class Reply(NamedTuple):
    """Message: the result of a task."""

    value: Any


class WorkerDeath(NamedTuple):
    """The end of a worker process without a reply.

    Args:
        code: as of `subprocess`.
        limit: the limit that the process broke, for which it was killed.
        last_line: what it printed last.
    """

    code: int
    limit: Literal["time", "memory"] | None = None
    last_line: str = ""

    @property
    def cause(self) -> str:
        """Return the signal or the exit code."""
        if self.code < 0:
            return f"signal {signal.Signals(-self.code).name}"
        return f"exit code {self.code}"

    @property
    def message(self) -> str:
        """Return the signal or the exit code, with the last printed line."""
        return f"{self.cause}: {self.last_line}" if self.last_line else self.cause


class WorkerProcess:
    """The parent's handle of one worker process.

    Args:
        target: "module:function" to run in the child.
        setup: argument of the function, once per process.
        variables: of its environment, in addition to the usual ones.
        max_bytes: memory of the process and its descendants during a task.
        start_seconds: timeout of the start.
        show_output: whether its errors go to this process's stderr, instead of `WorkerDeath`.
    """

    def __init__(
        self,
        target: str,
        setup: object = None,
        *,
        variables: Mapping[str, str] | None = None,
        max_bytes: float = math.inf,
        start_seconds: float = math.inf,
        show_output: bool = False,
    ) -> None:
        self.target = target
        self.task: Any = None  # the latest
        self.failed_starts = 0  # in a row
        self._setup = setup
        self._variables = variables
        self._max_bytes = max_bytes
        self._start_seconds = start_seconds
        self._show_output = show_output
        self._family_poll_time = 0.0
        self._start()

    @property
    def is_free(self) -> bool:
        """Return whether it can take a task."""
        return self.is_ready and not self.is_busy

    @property
    def seconds(self) -> float:
        """Return the seconds since the latest task was submitted."""
        return time.monotonic() - self._submit_time

    def submit(self, task: object, seconds: float = math.inf) -> None:
        """Send a task with a timeout in seconds. `receive` reports a dead process."""
        self.task = task
        self.task_count += 1
        self.is_busy = True
        self._submit_time = time.monotonic()
        self._deadline = self._submit_time + seconds
        self._send(task)

    def run(
        self,
        task: object,
        seconds: float = math.inf,
        on_message: Callable[[object], None] = lambda message: None,  # noqa: ARG005
    ) -> Reply | WorkerDeath:
        """Return the result of a task.

        Args:
            task: to submit.
            seconds: timeout.
            on_message: called with each of the target's own messages.
        """
        self.submit(task, seconds)
        while True:
            message = self.receive() if self.connection.poll(POLL_SECONDS) else self.check()
            if isinstance(message, Reply | WorkerDeath):
                return message
            if message is not None:
                on_message(message)

    def receive(self) -> object:
        """Return the next message: WorkerReady, Reply, WorkerDeath, or one of the target's own."""
        try:
            message: object = self.connection.recv()
        # A pipe that ends, or a message that was cut short by a kill.
        except (EOFError, OSError, pickle.UnpicklingError):
            with contextlib.suppress(subprocess.TimeoutExpired):  # it closed its pipe and continued
                self._process.wait(END_SECONDS)
            return self._end()
        if isinstance(message, WorkerReady):
            self.is_ready = True
            self.failed_starts = 0
        if isinstance(message, Reply):
            self.is_busy = False
        if self.is_free:
            self._deadline = math.inf
        return message

    def check(self) -> WorkerDeath | None:
        """Kill a process beyond a limit. Return its death, also after it ended by itself."""
        has_ended = self._process.poll() is not None
        if self.connection.poll():  # what it sent comes first
            return None
        # A program that it started may hold its pipe open.
        if has_ended:
            return self._end()
        if self.is_busy and self._memory() > self._max_bytes:
            return self._end("memory")
        if time.monotonic() > self._deadline:
            return self._end("time")
        return None

    def restart(self) -> None:
        """Replace the process by a new one."""
        self.close()
        self._start()

    def kill(self) -> None:
        """Kill the process, from any thread. Its death is received as any other."""
        self._process.kill()

    def interrupt(self) -> None:
        """Ask the process to clean up and end."""
        if self.is_ready:
            self._process.send_signal(signal.SIGINT)

    def close(self, seconds: float = 0.0) -> None:
        """End the process and its descendants. seconds: grace period before a kill."""
        self.connection.close()
        if self.is_ready:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        kill_group(self._process)
        self._output.close()

    def _start(self) -> None:
        self.connection, child_end = Pipe()
        self.is_ready = False
        self.is_busy = False
        self.task_count: int = 0  # of this process
        self._submit_time = time.monotonic()
        self._deadline = self._submit_time + self._start_seconds
        # It is read where the process ends, so it is open as long as the process is.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        # While this copy of the child's end is open, its death would go unnoticed.
        with child_end:
            self._process: subprocess.Popen[bytes] = start_module(
                __name__,
                [str(child_end.fileno()), self.target],
                stdout=self._output,
                stderr=None if self._show_output else self._output,
                variables=self._variables,
                pass_fds=(child_end.fileno(),),
            )
        self.pid = self._process.pid
        self._send(self._setup)

    def _send(self, message: object) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def _end(self, limit: Literal["time", "memory"] | None = None) -> WorkerDeath:
        kill_group(self._process)
        if not self.is_ready:
            self.failed_starts += 1
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        last_line = error_line(lines[-1])[:MAX_OUTPUT_CHARS] if lines else ""
        return WorkerDeath(self._process.returncode, limit, last_line)

    def _memory(self) -> int:
        """Return the memory of the process, regularly with its descendants', in bytes."""
        if self._max_bytes == math.inf:
            return 0
        own = memory_bytes(self.pid, "rss")
        if time.monotonic() < self._family_poll_time or own > self._max_bytes:
            return own
        self._family_poll_time = time.monotonic() + FAMILY_POLL_SECONDS
        family = [self.pid, *descendants(self.pid)]
        total = sum(memory_bytes(pid, "rss") for pid in family)
        # What a fork shares with its parent is counted for both. Counting by shares takes longer.
        if total > self._max_bytes:
            total = sum(memory_bytes(pid, "pss") for pid in family)
        return total


W = TypeVar("W", bound=WorkerProcess)


class WorkerPool(Generic[W]):
    """Worker processes, started on demand.

    Args:
        start: starts the worker with a number.
        size: maximal number of workers.
        end_seconds: that busy workers have at the end, to leave nothing half-written.
    """

    def __init__(self, start: Callable[[int], W], size: int, end_seconds: float = 0.0) -> None:
        self.workers: list[W] = []
        self.size = size
        self._start = start
        self._end_seconds = end_seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """End every process."""
        self.close()

    def grow(self, count: int) -> None:
        """Start workers until there are `count`, or the pool's size."""
        for number in range(len(self.workers), min(self.size, count)):
            self.workers.append(self._start(number))

    def wait(self, seconds: float) -> Iterator[tuple[W, object]]:
        """Yield the messages and deaths of workers, after a timeout in seconds at most."""
        if not self.workers:
            time.sleep(seconds)
        # A pipe is readable also when its other end has died.
        readable = wait([worker.connection for worker in self.workers], seconds)
        for worker in [*self.workers]:
            message = worker.receive() if worker.connection in readable else worker.check()
            if message is not None:
                yield worker, message

    def close(self) -> None:
        """End every process."""
        # All share one deadline, so that ten workers do not take ten times as long.
        end = time.monotonic() + self._end_seconds
        try:
            if self._end_seconds:
                for worker in self.workers:
                    if worker.is_busy:
                        worker.interrupt()
        finally:
            while self.workers:
                worker = self.workers.pop()
                worker.close(max(0.0, end - time.monotonic()))


def descendants(pid: int) -> list[int]:
    """Return the child processes of a process, recursively."""
    # A system that is asked about all its processes.
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():
        with contextlib.suppress(psutil.NoSuchProcess):
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        return []
    # The list grows while it is read: each process adds its children.
    processes = [pid]
    for process in processes:
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread has ended
                processes += map(int, children.read_text().split())
    return processes[1:]


def memory_bytes(pid: int, kind: Literal["rss", "pss"]) -> int:
    """Return the memory of a process, 0 after its end. pss: its share of shared pages, where known."""
    try:
        process = psutil.Process(pid)
        whole: int = process.memory_info().rss
        if kind == "rss":
            return whole
        return int(getattr(process.memory_full_info(), "pss", whole))
    except psutil.Error:
        return 0


def serve(pipe: int, target: str) -> None:
    """Run the tasks from a pipe until the parent closes it."""
    began = time.monotonic()
    os.set_inheritable(pipe, False)
    # The parent passes Ctrl-C on. A process in the background would ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    connection = Connection(pipe)
    lock = threading.Lock()  # of several threads that send

    def send(message: object) -> None:
        with lock:
            connection.send(message)

    try:
        setup = connection.recv()
        run = pkgutil.resolve_name(target)(setup, send)
        send(WorkerReady(time.monotonic() - began, time.process_time()))
        while True:
            send(Reply(run(connection.recv())))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_EXIT_CODE)


if __name__ == "__main__":
    # Messages are classes of the module, not of the program.
    from stepline.workers import serve as serve_as_module

    serve_as_module(int(sys.argv[1]), sys.argv[2])
