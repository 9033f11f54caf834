"""The worker processes of curate: task requests go in, outcomes come out. What dies is replaced.

A worker has a deadline and a limit of memory for each task. It is a fresh interpreter (no fork: the
driver may hold threads) with one thread for every library.

A crash or too much memory counts only where a fresh process comes to the same end. So no video is
lost by what an earlier one left behind, and the outcome does not depend on which worker had it. A
task whose worker was killed from outside (kill -9, the system short of memory) is done again, a few
times at most.
"""

import signal
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace

from stepline.curate.execution.worker import TaskReply, TaskRequest, WorkerSetup
from stepline.curate.plan import StageTask
from stepline.curate.stage import FailureKind, StageFailure
from stepline.curate.store.run_log import RunLog
from stepline.errors import SteplineError
from stepline.files.remote.settings import BYTES_PER_MIB
from stepline.processes import thread_limit_variables
from stepline.workers import Reply, WorkerDeath, WorkerPool, WorkerProcess, WorkerReady

START_SECONDS = 180.0  # that a process may take to start
MAX_KILLED_STARTS = 5  # times in a row that one may be killed while it starts
POLL_SECONDS = 0.1  # between two looks at memory and deadlines
# Exit codes that no process gives itself. The second comes as a machine goes down.
OUTSIDE_CODES = (-signal.SIGKILL, -signal.SIGTERM)
MAX_OUTSIDE_KILLS = 5  # of a task's worker, before the task counts as failed


class TaskWorker(WorkerProcess):
    """Handle of a worker process, which runs one task at a time.

    setup: recipe, stages and device, which are sent to the process.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self.has_gpu = setup.device != "cpu"
        self.loaded_stages: set[str] = set()
        # Only the driver calls a stage's `settings` and `gpu`. Such functions may have no name by
        # which to be sent.
        stages = {}
        for name, stage in setup.stages.items():
            stages[name] = replace(stage, settings=None, gpu=False, libraries=None)
        super().__init__(
            "stepline.curate.execution.worker:start_worker",
            replace(setup, stages=stages),
            variables=thread_limit_variables(threads=1),
            max_bytes=setup.recipe.limits.memory * BYTES_PER_MIB,
            start_seconds=START_SECONDS,
        )

    def can_do(self, request: TaskRequest) -> bool:
        """Return whether the worker can run a task: it has a GPU, or the task needs none."""
        return self.has_gpu or not request.uses_gpu

    def restart(self) -> None:
        """Replace the process by a new one, which has loaded no models."""
        self.loaded_stages.clear()
        super().restart()


class TaskPool(WorkerPool[TaskWorker]):
    """The worker processes of one machine. Close the pool at the end.

    Args:
        setup: recipe, stages and output folder, which each worker gets at its start.
        size: maximal number of workers.
        run_log: log of the tasks.
        devices: torch devices of the first workers. The other workers run on the CPU.
    """

    def __init__(
        self, setup: WorkerSetup, size: int, run_log: RunLog, devices: Sequence[str] = ()
    ) -> None:
        self._run_log = run_log
        self._limits = setup.recipe.limits
        self._outside_kills: Counter[str] = Counter()  # by key of the task
        self._retries: deque[TaskRequest] = deque()  # for fresh processes
        setups = [replace(setup, device=device) for device in devices]
        setups += [setup] * size
        super().__init__(lambda number: TaskWorker(setups[number]), size)

    def free_workers(self, useful: int) -> list[TaskWorker]:
        """Return the idle workers, after more workers were started if there is work for them.

        useful: number of workers that could have a task.
        """
        self.grow(useful)
        for worker in self.workers:
            # Only the end of a process that did nothing before says what a task does.
            if worker.task_count == 0:
                self._submit_retry(worker)
        return [worker for worker in self.workers if worker.is_free]

    def _submit_retry(self, worker: TaskWorker) -> None:
        for request in self._retries:
            if worker.is_free and worker.can_do(request):
                self._retries.remove(request)
                self.submit(worker, request)
                return

    def submit(self, worker: TaskWorker, request: TaskRequest) -> None:
        """Send a task to an idle worker and log its start."""
        task = request.task
        self._run_log.write(
            "start", id=task.item.id, stage=task.stage, key=task.key, worker=worker.pid
        )
        worker.loaded_stages.add(task.stage)
        worker.submit(request, self._limits.seconds)

    def finished_tasks(
        self, seconds: float = POLL_SECONDS
    ) -> list[tuple[StageTask, StageFailure | None]]:
        """Wait for tasks to end. Return each with its failure, or None if its result is stored.

        Tasks that must run again in a fresh process are not returned.

        seconds: maximal time to wait for the first one.

        Raises SteplineError if the whole run must end: wrong settings, missing models, a full disk.
        """
        outcomes = []
        for worker, message in self.wait(seconds):
            ended = None
            if isinstance(message, WorkerReady):
                cpu = round(message.cpu_seconds, 4)
                wall = round(message.wall_seconds, 4)
                self._run_log.write("worker", worker=worker.pid, cpu=cpu, wall=wall)
            elif isinstance(message, Reply):
                ended = self._handle_reply(worker, message.value)
            elif isinstance(message, WorkerDeath):
                ended = self._handle_death(worker, message)
            if ended is None:
                continue
            task, reply = ended
            if reply.kind == "run":
                raise SteplineError(f"stage {task.stage}: {reply.reason}")
            failure = None
            if reply.kind != "done":
                failure = StageFailure(task.item.id, task.stage, reply.kind, reply.reason)
            outcomes.append((task, failure))
        return outcomes

    def _handle_reply(
        self, worker: TaskWorker, reply: TaskReply
    ) -> tuple[StageTask, TaskReply] | None:
        """Return the finished task and its outcome, or None if the task must run again.

        A task runs again in a fresh process if it lacked memory, as the models of other tasks may
        have used it.
        """
        request: TaskRequest = worker.task
        again = reply.kind == "memory" and worker.task_count > 1
        self._log_end(request, reply, again=again)
        if not again:
            return request.task, reply
        self._retries.append(request)
        worker.restart()
        return None

    def _handle_death(
        self, worker: TaskWorker, death: WorkerDeath
    ) -> tuple[StageTask, TaskReply] | None:
        """Restart a dead worker. Return its task and the failure that its death means.

        None if the worker had no task, or if its task must run again.
        """
        request: TaskRequest | None = worker.task if worker.is_busy else None
        is_fresh = worker.task_count == 1
        seconds = worker.seconds
        if not worker.is_ready:
            self._check_failed_start(worker, death)
        worker.restart()
        if request is None:
            return None
        reply = self._reply_for_death(death, request, seconds, is_fresh=is_fresh)
        self._log_end(request, reply or TaskReply("crash"), again=reply is None)
        if reply is not None:
            return request.task, reply
        self._retries.append(request)
        return None

    def _check_failed_start(self, worker: TaskWorker, death: WorkerDeath) -> None:
        """Raise SteplineError if worker processes cannot start."""
        if death.limit is not None:
            raise SteplineError(
                f"a worker process did not start within {START_SECONDS:.0f} s; "
                "is the machine overloaded?"
            )
        if death.code not in OUTSIDE_CODES or worker.failed_starts >= MAX_KILLED_STARTS:
            raise SteplineError(f"a worker process cannot start ({death.message})")

    def _reply_for_death(
        self, death: WorkerDeath, request: TaskRequest, seconds: float, *, is_fresh: bool
    ) -> TaskReply | None:
        """Return the failure that the death of a worker means for its task.

        None if the task must run again: too much memory or a crash counts only in a fresh process,
        and kills from outside count from the fifth.

        Args:
            death: how the process ended.
            request: the task.
            seconds: wall time since the task was sent.
            is_fresh: whether the process had run no other task.
        """
        # Time is the task's own. Memory or a crash counts only in a fresh process.
        if death.limit == "time":
            reason = f"it took more than {self._limits.seconds:g} s"
            return TaskReply("hang", reason, wall_seconds=seconds)
        kind: FailureKind = "memory"
        if death.limit == "memory":
            reason = f"it took more than {self._limits.memory} MiB of memory"
        elif death.code in OUTSIDE_CODES:
            key = request.task.key
            self._outside_kills[key] += 1
            is_fresh = self._outside_kills[key] >= MAX_OUTSIDE_KILLS
            reason = (
                f"its process was killed {MAX_OUTSIDE_KILLS} times from outside, "
                "as a system does that is short of memory"
            )
        else:
            kind = "crash"
            reason = f"its process ended with {death.cause}"
        return TaskReply(kind, reason, wall_seconds=seconds) if is_fresh else None

    def _log_end(self, request: TaskRequest, reply: TaskReply, *, again: bool) -> None:
        task = request.task
        self._run_log.write(
            "end",
            **{
                **reply.notes,
                "id": task.item.id,
                "stage": task.stage,
                "key": task.key,
                "ok": reply.kind == "done",
                "kind": reply.kind,
                "again": again,
                "first": reply.is_first_run,
                "cpu": round(reply.cpu_seconds, 4),
                "wall": round(reply.wall_seconds, 4),
                "peak_rss": reply.peak_rss,
                "bytes": reply.result_bytes,
            },
        )
