"""Worker processes: Python child processes that do one task at a time.

    worker = WorkerProcess("stepline.llm.local_model:LoadedModel")
    result = worker.run(ModelFiles(...), seconds=60.0)  # a Reply, or a WorkerDeath

The target names a function of an importable module. The child calls it once, with the setup and a
function that sends a message. It returns the function that does a task. A worker has limits of time
and memory, and ends with its parent and all its descendants.
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
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

from stepline.errors import format_error_line
from stepline.processes import kill_group, start_module

Send = Callable[[object], None]

END_SECONDS = 5.0  # to wait for a process that closed its pipe
POLL_SECONDS = 0.5  # between two checks of a worker that sends nothing
FAMILY_POLL_SECONDS = 0.5  # between two measurements of the memory of a worker's descendant_pids
MAX_OUTPUT_CHARS = 400  # of the last line that a worker printed
INTERRUPTED_EXIT_CODE = 130  # as a shell reports a program that Ctrl-C ended


class WorkerReady(NamedTuple):
    """Message from a worker process that it has started and can take tasks.

    Attributes:
        wall_seconds: elapsed time of the start.
        cpu_seconds: CPU time of the start.
    """

    wall_seconds: float
    cpu_seconds: float


class Reply(NamedTuple):
    """Message from a worker process with the result of a task.

    Attributes:
        value: the result.
    """

    value: Any


class WorkerDeath(NamedTuple):
    """The end of a worker process before it replied.

    Attributes:
        code: exit code, or minus the number of the signal, as in `subprocess`.
        limit: the limit that the process exceeded and was killed for. None if it ended otherwise.
        last_line: last line that the process printed.
    """

    code: int
    limit: Literal["time", "memory"] | None = None
    last_line: str = ""

    @property
    def cause(self) -> str:
        """The signal or exit code of the process in words."""
        if self.code < 0:
            return f"signal {signal.Signals(-self.code).name}"
        return f"exit code {self.code}"

    @property
    def message(self) -> str:
        """The signal or exit code in words, with the last line that the process printed."""
        return f"{self.cause}: {self.last_line}" if self.last_line else self.cause


class WorkerProcess:
    """Handle of one worker process, used by its parent process.

    Attributes:
        target: "module:function" that the worker runs.
        task: the latest task.
        failed_starts: number of consecutive starts that failed.
        task_count: number of tasks sent to the current process.
        is_ready: whether the process has started.
        is_busy: whether the process is doing a task.
        connection: the parent's end of the pipe to the process.
        pid: process id.
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
        """Start the worker process.

        Args:
            target: "module:function" that the worker runs.
            setup: first argument of that function.
            variables: environment variables, in addition to those of `child_environment`.
            max_bytes: limit in bytes on the memory of the process and its descendants during a
                task.
            start_seconds: seconds that the start may take.
            show_output: whether the stderr of the worker goes to this process's stderr. If False,
                only the last line is kept, for `WorkerDeath`.
        """
        self.target = target
        self.task: Any = None
        self.failed_starts = 0
        self._setup = setup
        self._variables = variables
        self._max_bytes = max_bytes
        self._start_seconds = start_seconds
        self._show_output = show_output
        self._family_poll_time = 0.0
        self._start()

    @property
    def is_free(self) -> bool:
        """Whether the worker can take a task."""
        return self.is_ready and not self.is_busy

    @property
    def seconds(self) -> float:
        """Seconds since the latest task was submitted."""
        return time.monotonic() - self._submit_time

    def submit(self, task: object, seconds: float = math.inf) -> None:
        """Send a task to the worker without waiting for the result.

        Args:
            task: argument of the worker's function.
            seconds: time that the task may take.

        If the process is dead, `receive` reports it.
        """
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
        """Send a task to the worker, and return its result or the death of the process.

        Args:
            task: argument of the worker's function.
            seconds: time that the task may take.
            on_message: called with each message that the function sends during the task.
        """
        self.submit(task, seconds)
        while True:
            message = self.receive() if self.connection.poll(POLL_SECONDS) else self.check()
            if isinstance(message, Reply | WorkerDeath):
                return message
            if message is not None:
                on_message(message)

    def receive(self) -> object:
        """Return the next message of the worker.

        It is a WorkerReady, Reply or WorkerDeath, or an object that the worker's function sent.
        """
        try:
            message: object = self.connection.recv()
        # A pipe that ends, or a message that was truncated by a kill.
        except (EOFError, OSError, pickle.UnpicklingError):
            with contextlib.suppress(subprocess.TimeoutExpired):  # it closed its pipe and continued
                self._process.wait(END_SECONDS)
            return self._kill_group()
        if isinstance(message, WorkerReady):
            self.is_ready = True
            self.failed_starts = 0
        if isinstance(message, Reply):
            self.is_busy = False
        if self.is_free:
            self._deadline = math.inf
        return message

    def check(self) -> WorkerDeath | None:
        """Kill the process if it exceeds a limit of time or memory.

        Return its death. None if it exceeds no limit.
        """
        has_ended = self._process.poll() is not None
        if self.connection.poll():  # its messages come first
            return None
        # A program that it started may hold its pipe open.
        if has_ended:
            return self._kill_group()
        if self.is_busy and self._used_bytes() > self._max_bytes:
            return self._kill_group("memory")
        if time.monotonic() > self._deadline:
            return self._kill_group("time")
        return None

    def restart(self) -> None:
        """Replace the process by a new process for the same function."""
        self.close()
        self._start()

    def kill(self) -> None:
        """Kill the process, from any thread. `receive` returns its death."""
        self._process.kill()

    def interrupt(self) -> None:
        """Send SIGINT, so that the process cleans up and ends."""
        if self.is_ready:
            self._process.send_signal(signal.SIGINT)

    def close(self, seconds: float = 0.0) -> None:
        """End the process and its descendants.

        seconds: time that they have to end by themselves before they are killed.
        """
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
        self.task_count: int = 0
        self._submit_time = time.monotonic()
        self._deadline = self._submit_time + self._start_seconds
        # Read at the end of the process, so it is open as long as the process lives.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        # While this copy of the child's end is open, the child's death would go unnoticed.
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

    def _kill_group(self, limit: Literal["time", "memory"] | None = None) -> WorkerDeath:
        """Kill the process with its descendants and return its death."""
        kill_group(self._process)
        if not self.is_ready:
            self.failed_starts += 1
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        last_line = format_error_line(lines[-1])[:MAX_OUTPUT_CHARS] if lines else ""
        return WorkerDeath(self._process.returncode, limit, last_line)

    def _used_bytes(self) -> int:
        """Return the memory of the process in bytes.

        Every FAMILY_POLL_SECONDS the memory of its descendants is measured and added too.
        """
        if self._max_bytes == math.inf:
            return 0
        process_bytes = memory_bytes(self.pid, "rss")
        if time.monotonic() < self._family_poll_time or process_bytes > self._max_bytes:
            return process_bytes
        self._family_poll_time = time.monotonic() + FAMILY_POLL_SECONDS
        family = [self.pid, *descendant_pids(self.pid)]
        total = sum(memory_bytes(pid, "rss") for pid in family)
        # RSS counts pages that a fork shares with its parent twice. PSS takes longer.
        if total > self._max_bytes:
            total = sum(memory_bytes(pid, "pss") for pid in family)
        return total


W = TypeVar("W", bound=WorkerProcess)


class WorkerPool(Generic[W]):
    """A pool of worker processes, which are started on demand.

    Attributes:
        workers: the started workers.
        size: maximal number of workers.
    """

    def __init__(self, start: Callable[[int], W], size: int, end_seconds: float = 0.0) -> None:
        """Create a pool without workers.

        Args:
            start: starts the worker with the given index and returns it.
            size: maximal number of workers.
            end_seconds: seconds that busy workers have to finish when the pool closes.
        """
        self.workers: list[W] = []
        self.size = size
        self._start = start
        self._end_seconds = end_seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def grow(self, count: int) -> None:
        """Start workers until the pool has `count` of them, but not more than its size."""
        for number in range(len(self.workers), min(self.size, count)):
            self.workers.append(self._start(number))

    def wait(self, seconds: float) -> Iterator[tuple[W, object]]:
        """Yield (worker, message) for each message or death that arrives.

        seconds: how long to wait for the first message.
        """
        if not self.workers:
            time.sleep(seconds)
        # A pipe is readable also when its other end has died.
        readable = wait([worker.connection for worker in self.workers], seconds)
        for worker in [*self.workers]:
            message = worker.receive() if worker.connection in readable else worker.check()
            if message is not None:
                yield worker, message

    def close(self) -> None:
        """End all workers and their child processes.

        Busy workers get Ctrl-C, and have the pool's `end_seconds` to finish, all together. Workers
        that still run then are killed.
        """
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


def descendant_pids(pid: int) -> list[int]:
    """Return the process ids of all descendants of a process."""
    import psutil

    # Without /proc, psutil reads all processes of the system.
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
    """Return the memory of a process in bytes, 0 if it has ended.

    Args:
        pid: process id.
        kind: "rss" for the resident set size. "pss" for the proportional set size, which divides
            shared pages among the processes that share them.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        rss: int = process.memory_info().rss
        if kind == "rss":
            return rss
        return int(getattr(process.memory_full_info(), "pss", rss))
    except psutil.Error:
        return 0


def serve(pipe: int, target: str) -> None:
    """Run the tasks that arrive on a pipe until the parent closes it (the worker's main loop).

    Args:
        pipe: file descriptor of the pipe.
        target: "module:function" that does the tasks.
    """
    start_time = time.monotonic()
    os.set_inheritable(pipe, False)
    # The parent forwards Ctrl-C, which a background process would ignore.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    connection = Connection(pipe)
    lock = threading.Lock()  # several threads may send

    def send(message: object) -> None:
        with lock:
            connection.send(message)

    try:
        do_task = pkgutil.resolve_name(target)(connection.recv(), send)
        send(WorkerReady(time.monotonic() - start_time, time.process_time()))
        while True:
            send(Reply(do_task(connection.recv())))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_EXIT_CODE)


if __name__ == "__main__":
    # Messages must be classes of the imported module, not of __main__.
    from stepline.workers import serve as serve_as_module

    serve_as_module(int(sys.argv[1]), sys.argv[2])
