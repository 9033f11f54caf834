"""Worker processes and the pool of them: task requests go in, outcomes come out. What dies is
replaced.

A worker process has a deadline and a limit of memory for each task. It is a fresh interpreter (no
fork: the driver may hold threads) with one thread for every library.

A crash or too much memory counts only where a fresh process comes to the same end. So no video is
lost by what an earlier one left behind, and the outcome does not depend on which worker had it. A
task whose worker was killed from outside (kill -9, the system short of memory) is done again, a few
times at most.
"""

import contextlib
import pickle
import signal
import subprocess
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Literal

import psutil
from pydantic import JsonValue

from stepline.curate.execution.messages import TaskReply, TaskRequest, WorkerReady, WorkerSetup
from stepline.curate.plan import StageTask
from stepline.curate.stage import FailureKind, StageFailure, never, no_libraries, no_settings
from stepline.curate.store.run_log import RunLog
from stepline.errors import SteplineError
from stepline.files.remote.settings import BYTES_PER_MIB
from stepline.processes import kill_group, start_module, worker_variables

START_SECONDS = 180.0  # that a process may take to start
MAX_KILLED_STARTS = 5  # times in a row that one may be killed while it starts
END_SECONDS = 5.0  # to wait for a process that closed its pipe
POLL_INTERVAL = 0.1  # seconds between looks at memory and deadlines
FAMILY_INTERVAL = 0.5  # seconds between looks at the memory of what a worker has started
# exit codes that no process gives itself. The second comes as a machine goes down
OUTSIDE_CODES = (-signal.SIGKILL, -signal.SIGTERM)
# times that a task's worker may be killed from outside before the task counts as failed
OUTSIDE_KILLS = 5


@dataclass(frozen=True)
class WorkerDeath:
    """How a worker ended without a reply. code: as of `subprocess`. limit: "time" or "memory",
    which it broke."""

    code: int
    limit: str | None


class WorkerProcess:
    """One worker process, at most one task at a time, or several of one stage together."""

    def __init__(self, setup: WorkerSetup, log: Path) -> None:
        self._setup = setup
        self._log = log
        self._limits = setup.recipe.limits
        self._max_bytes = self._limits.memory * BYTES_PER_MIB
        self.has_gpu = setup.device != "cpu"
        self.requests: Sequence[TaskRequest] = ()  # that it works on
        self.request_count = 0  # times that it got some since its process started
        self.stages_run: set[str] = set()  # whose models it has loaded
        self._failed_starts = 0
        self._began = 0.0
        self._family_at = 0.0  # when to look at the memory of what it has started, too
        self.pid = 0
        self._start()

    @property
    def is_free(self) -> bool:
        """Return whether it can take requests."""
        return self._ready and not self.requests

    @property
    def seconds(self) -> float:
        """How long the present requests have taken."""
        return time.monotonic() - self._began

    def can_do(self, request: TaskRequest) -> bool:
        """Return whether it has the GPU that a request may ask."""
        return self.has_gpu or not request.gpu

    def submit(self, requests: Sequence[TaskRequest]) -> None:
        """Send requests of one stage to a free worker. One that has died by then is noticed at
        `receive`."""
        self.requests = requests
        self.request_count += 1
        self.stages_run.add(requests[0].task.stage)
        self._began = time.monotonic()
        # Several videos together have as much time as each of them has alone.
        self._deadline = self._began + self._limits.seconds * len(requests)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(requests)

    def receive(self) -> WorkerReady | list[TaskReply] | WorkerDeath:
        """Return what came from the process: that it has started, a reply to each request, or its
        death."""
        # A broken pipe, or a message that was cut, is a death.
        with contextlib.suppress(EOFError, ConnectionResetError, pickle.UnpicklingError):
            message: object = self.connection.recv()
            if isinstance(message, WorkerReady):
                self._ready = True
                return message
            if isinstance(message, list):
                return message
        return self._end(None)

    def check_limits(self) -> WorkerDeath | None:
        """Kill a worker that is beyond its limits and return which. None where it is within
        them."""
        if self.connection.poll():  # the reply is there
            return None
        if self.requests:
            with contextlib.suppress(psutil.Error):  # it has ended, which `receive` returns
                if self._memory() > self._max_bytes:
                    return self._end("memory")
        if time.monotonic() > self._deadline and not self.is_free:
            return self._end("time")
        return None

    def _memory(self) -> int:
        """Return the bytes that the process holds. Now and then they include those of all that it
        has started."""
        own: int = self._usage.memory_info().rss
        # The family is looked at seldom, since that takes the system long.
        if time.monotonic() < self._family_at or own > self._max_bytes:
            return own
        self._family_at = time.monotonic() + FAMILY_INTERVAL
        family = [self.pid, *descendants(self.pid)]
        total = sum(memory_bytes(pid, "rss") for pid in family)
        # What a fork shares with its parent is counted for both: then by shares, which takes the
        # system longer to count.
        if total > self._max_bytes:
            total = sum(memory_bytes(pid, "pss") for pid in family)
        return total

    def restart(self) -> None:
        """Replace the process by a fresh one."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the process and all it started."""
        kill_group(self._process)
        self.connection.close()

    def _start(self) -> None:
        self.connection, theirs = Pipe()
        self.requests = ()
        self.request_count = 0
        self._ready = False
        self.stages_run = set()
        self._deadline = time.monotonic() + START_SECONDS
        with self._log.open("wb") as log:
            self._process = _start_process(theirs.fileno(), log)
        self._usage = psutil.Process(self._process.pid)
        self.pid = self._process.pid
        theirs.close()
        # Only the driver calls a stage's `settings` and `gpu`. Such functions may have no name by
        # which to be sent.
        stages = {}
        for name, stage in self._setup.stages.items():
            stages[name] = replace(stage, settings=no_settings, gpu=never, libraries=no_libraries)
        # it is noticed at `receive`
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(pickle.dumps(replace(self._setup, stages=stages)))

    def _end(self, limit: str | None) -> WorkerDeath:
        if limit is None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it closed its pipe and went on
                self._process.wait(END_SECONDS)
        code = self._process.poll()
        kill_group(self._process)
        # A process that ended while it started did no task, so nothing can be blamed on a video.
        if self._ready:
            self._failed_starts = 0
        else:
            self._failed_starts += 1
            if limit is not None:
                late = f"did not start within {START_SECONDS:.0f} s"
                raise SteplineError(f"a worker process {late}; is the machine overloaded?")
            if code not in OUTSIDE_CODES or self._failed_starts >= MAX_KILLED_STARTS:
                raise SteplineError(
                    f"a worker process cannot start (code {code}): {self._last_words()}"
                )
        if code is None:
            code = self._process.returncode
        return WorkerDeath(code, limit)

    def _last_words(self) -> str:
        """Return the last line that the process wrote."""
        text = ""
        if self._log.is_file():
            text = self._log.read_text(errors="replace")
        lines = [line for line in text.split("\n") if line.strip()]
        if not lines:
            return "it said nothing"
        return lines[-1]


def _unless_of_memory(reply: TaskReply) -> TaskReply | None:
    """Return a reply, None where memory was short, which models of other tasks may have taken."""
    if reply.kind == "memory":
        return None
    return reply


def _start_process(pipe: int, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    return start_module(
        "stepline.curate.execution.worker",
        [str(pipe)],
        stdout=log,
        stderr=log,
        variables=worker_variables(threads=1),
        pass_fds=(pipe,),
    )


def descendants(pid: int) -> list[int]:
    """Return the processes that one has started, and those that they have."""
    # A system that is asked about all its processes.
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():
        with contextlib.suppress(psutil.NoSuchProcess):
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        return []
    # The list grows while it is read: each process adds its children.
    processes = [pid]
    for process in processes:  # which grows
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread has ended
                processes += map(int, children.read_text().split())
    return processes[1:]


def memory_bytes(pid: int, kind: Literal["rss", "pss"]) -> int:
    """Return the memory of a process, or 0 where it has ended. pss: of shared pages its share,
    where the system knows it."""
    try:
        process = psutil.Process(pid)
        whole: int = process.memory_info().rss
        if kind == "rss":
            return whole
        return int(getattr(process.memory_full_info(), "pss", whole))
    except psutil.Error:
        return 0


def _failure(task: StageTask, reply: TaskReply) -> StageFailure | None:
    """Return how a task failed, or None where it went well. Raises SteplineError where the whole
    run must end."""
    if reply.kind == "run":
        raise SteplineError(f"stage {task.stage}: {reply.reason}")
    if reply.kind == "done":
        return None
    return StageFailure(task.item.id, task.stage, reply.kind, reply.reason)


@dataclass(frozen=True)
class TaskOutcome:
    """What became of a request: its result is stored, or why not."""

    request: TaskRequest
    failure: StageFailure | None
    seconds: float


class WorkerPool:
    """Worker processes of one machine, all with the same setup. Close it at the end, however that
    comes.

    devices: of the workers, those with a GPU first. A worker without one is on the CPU.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        size: int,
        run_log: RunLog,
        scratch: Path,
        devices: Sequence[str] = (),
    ) -> None:
        self._run_log = run_log
        self._limits = setup.recipe.limits
        self._kills: Counter[str] = Counter()  # from outside, by key of the task
        # whose worker died of something else: for fresh processes
        self._retries: deque[TaskRequest] = deque()
        # whose worker died of several together, to be done one by one
        self._singles: deque[TaskRequest] = deque()
        self._setups = [replace(setup, device=device) for device in devices[:size]]
        self._setups += [setup] * (size - len(self._setups))
        self._scratch = scratch
        self._workers: list[WorkerProcess] = []

    def free_workers(self, useful: int) -> list[WorkerProcess]:
        """Return the workers that can take a request. useful: workers that would have something to
        do. More are started where there are fewer."""
        # Workers are started as there is work for them, not before.
        for number in range(len(self._workers), min(len(self._setups), useful)):
            log = self._scratch / f"worker-{number}.log"
            self._workers.append(WorkerProcess(self._setups[number], log))
        # First of all what is to be done again.
        for worker in self._workers:
            # Only the end of a process that did nothing before says what a task does.
            if worker.request_count == 0:
                self._submit_again(worker, self._retries)
            self._submit_again(worker, self._singles)
        return [worker for worker in self._workers if worker.is_free]

    def _submit_again(self, worker: WorkerProcess, waiting: deque[TaskRequest]) -> None:
        """Send the first of some requests that a worker can do, where it is free."""
        for request in waiting:
            if worker.is_free and worker.can_do(request):
                waiting.remove(request)
                self.submit(worker, [request])
                return

    def submit(self, worker: WorkerProcess, requests: Sequence[TaskRequest]) -> None:
        """Send requests of one stage to a free worker."""
        for request in requests:
            task = request.task
            self._run_log.write(
                "start", id=task.item.id, stage=task.stage, key=task.key, worker=worker.pid
            )
        worker.submit(requests)

    def wait(self, seconds: float = POLL_INTERVAL) -> list[TaskOutcome]:
        """Return the requests that came to an end within some seconds.

        Raises SteplineError where the whole run must end: wrong settings, no models, no room on the
        disk.
        """
        if not self._workers:  # every video still waits for its files
            time.sleep(seconds)
        # A pipe is readable also when its other end has died.
        readable = wait([worker.connection for worker in self._workers], seconds)
        speaking = [worker for worker in self._workers if worker.connection in readable]
        outcomes = []
        for worker in speaking:
            outcomes += self._outcomes_of(worker, worker.receive())
        for worker in self._workers:
            outcomes += self._outcomes_of(worker, worker.check_limits())
        return outcomes

    def close(self) -> None:
        """End every process."""
        for worker in self._workers:
            worker.close()

    def _outcomes_of(
        self, worker: WorkerProcess, message: WorkerReady | list[TaskReply] | WorkerDeath | None
    ) -> list[TaskOutcome]:
        """Return what a message means for the worker's requests that are over. Some may have to be
        done again."""
        if message is None:
            return []
        if isinstance(message, WorkerReady):
            cpu = round(message.cpu, 4)
            wall = round(message.wall, 4)
            self._run_log.write("worker", worker=worker.pid, cpu=cpu, wall=wall)
            return []
        requests = worker.requests
        seconds = worker.seconds
        # Whether the outcome is the fault of this task alone.
        single = len(requests) == 1  # of several, the fault of an end is unknown
        fresh = single and worker.request_count == 1

        # A reply to each request. None: it is to be done again.
        replies: list[TaskReply | None]
        if isinstance(message, list):
            worker.requests = ()
            ends = message
            replies = list(message)
            if not fresh:
                replies = [_unless_of_memory(reply) for reply in message]
            if None in replies:
                worker.restart()
        else:
            worker.restart()
            ends = [TaskReply("crash")] * len(requests)
            replies = [None] * len(requests)
            if single:
                replies = [self._reply_for_death(message, requests[0], fresh, seconds)]

        # What has a reply is over. What has none waits for a fresh process, or to be done alone.
        finished = []
        for request, reply, end in zip(requests, replies, ends, strict=True):
            self._log_end(request, reply or end, again=reply is None)
            if reply is not None:
                finished.append((request, reply))
            elif single:
                self._retries.append(request)
            else:
                self._singles.append(request)
        outcomes = []
        for request, reply in finished:
            failure = _failure(request.task, reply)
            outcomes.append(TaskOutcome(request, failure, seconds))
        return outcomes

    def _reply_for_death(
        self, death: WorkerDeath, request: TaskRequest, fresh: bool, seconds: float
    ) -> TaskReply | None:
        """Return what a worker's death means for its request, or None where it is to be done
        again."""
        # Time is the task's own. Memory or a crash counts only in a fresh process.
        kind: FailureKind = "crash"
        counts = fresh
        if death.limit == "time":
            kind = "hang"
            reason = f"it took more than {self._limits.seconds:g} s"
            counts = True
        elif death.limit == "memory":
            kind = "memory"
            reason = f"it took more than {self._limits.memory} MiB of memory"
        elif death.code in OUTSIDE_CODES:
            self._kills[request.task.key] += 1
            counts = self._kills[request.task.key] >= OUTSIDE_KILLS
            kind = "memory"
            times = f"{OUTSIDE_KILLS} times from outside"
            reason = f"its process was killed {times}, as a system does that is short of memory"
        elif death.code < 0:
            name = signal.Signals(-death.code).name
            reason = f"its process ended with signal {name}"
        else:
            reason = f"its process ended with exit code {death.code}"
        if not counts:
            return None
        return TaskReply(kind, reason, wall=seconds)

    def _log_end(self, request: TaskRequest, reply: TaskReply, *, again: bool) -> None:
        task = request.task
        fields: dict[str, JsonValue] = {
            **reply.notes,
            "id": task.item.id,
            "stage": task.stage,
            "key": task.key,
            "ok": reply.kind == "done",
            "kind": reply.kind,
            "again": again,
            "first": reply.first,
            "cpu": round(reply.cpu, 4),
            "wall": round(reply.wall, 4),
            "peak_rss": reply.peak_rss,
            "bytes": reply.bytes,
        }
        self._run_log.write("end", **fields)
