"""Several worker processes: orders go in, outcomes come out; what dies is replaced, and its order judged.

A crash or too much memory counts only where a fresh process comes to the same end, so that no video is lost by what an
earlier one left behind, and the outcome does not depend on which worker had it. A worker that somebody else killed
(kill -9, the system short of memory) gives its order back, a few times at most.
"""

import signal
import time
from collections import Counter, deque
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from pydantic import JsonValue

from stepline.curate.execution.messages import TaskReply, TaskRequest, WorkerReady, WorkerSetup
from stepline.curate.execution.supervisor import WorkerDeath, WorkerProcess
from stepline.curate.stage import StageFailure
from stepline.curate.store.run_log import RunLog
from stepline.errors import SteplineError

LOOK = 0.1  # seconds between looks at memory and deadlines
KILLS = 5  # times that a unit's worker may be killed from outside before the unit counts as failed


@dataclass(frozen=True)
class TaskOutcome:
    """What became of an order: its cell is there, or why not."""

    order: TaskRequest
    failure: StageFailure | None
    seconds: float


class WorkerPool:
    """Workers of one machine, all with the same setup. Close it at the end, however that comes."""

    def __init__(self, setup: WorkerSetup, size: int, journal: RunLog, scratch: Path) -> None:
        self._journal = journal
        self._limits = setup.recipe.limits
        self._kills: Counter[str] = Counter()  # by key
        self._again: deque[TaskRequest] = deque()  # orders whose worker died of something else
        self._setup, self._size, self._scratch = setup, size, scratch
        self._workers: list[WorkerProcess] = []

    def free(self, useful: int) -> list[WorkerProcess]:
        """Return the workers that can take an order; start more where so many would be useful."""
        while len(self._workers) < min(self._size, useful):
            self._workers.append(WorkerProcess(self._setup, self._scratch / f"worker-{len(self._workers)}.log"))
        self._repeat()
        return [worker for worker in self._workers if worker.free]

    def give(self, worker: WorkerProcess, order: TaskRequest) -> None:
        """Give an order to a free worker."""
        unit = order.unit
        self._journal.write("start", id=unit.item.id, stage=unit.stage, key=unit.key, worker=worker.process)
        worker.give(order)

    def wait(self, seconds: float = LOOK) -> list[TaskOutcome]:
        """Return the orders that came to an end within some seconds.

        Raises SteplineError where the whole run must end: wrong settings, no models, no room on the disk.
        """
        if not self._workers:  # every video still waits for its files
            time.sleep(seconds)
        heard = wait([worker.connection for worker in self._workers], seconds)
        found = [self._judged(worker, worker.answer()) for worker in self._workers if worker.connection in heard]
        found += [self._judged(worker, worker.overrun()) for worker in self._workers]
        return [outcome for outcome in found if outcome is not None]

    def close(self) -> None:
        """End every process."""
        for worker in self._workers:
            worker.close()

    def _repeat(self) -> None:
        """Give orders that must be done again to fresh workers."""
        for worker in self._workers:
            if self._again and worker.free and worker.served == 0:
                self.give(worker, self._again.popleft())

    def _judged(
        self, worker: WorkerProcess, message: WorkerReady | TaskReply | WorkerDeath | None
    ) -> TaskOutcome | None:
        if isinstance(message, WorkerReady):
            took = {"cpu": round(message.cpu, 4), "wall": round(message.wall, 4)}
            self._journal.write("worker", worker=worker.process, **took)
        if message is None or isinstance(message, WorkerReady):
            return None
        order, seconds, fresh = worker.order, worker.seconds, worker.served == 1
        if isinstance(message, WorkerDeath):
            worker.restart()
            reply = self._of_death(message, order, fresh, seconds) if order else None
            if order is not None and reply is None:
                self._end(order, TaskReply("crash"), again=True)
                self._again.append(order)
            return self._outcome(order, reply, seconds) if order and reply else None
        worker.order = None
        if order is None:
            return None
        if message.became == "memory" and not fresh:
            worker.restart()
            self._end(order, message, again=True)
            self._again.append(order)
            return None
        return self._outcome(order, message, seconds)

    def _of_death(self, died: WorkerDeath, order: TaskRequest, fresh: bool, seconds: float) -> TaskReply | None:
        """Return what a worker's death says of its order; None where the order is to be done again."""
        if died.why == "time":
            return TaskReply("hang", f"it took more than {self._limits.seconds:g} s", wall=seconds)
        if died.why == "memory":
            reason = f"it took more than {self._limits.memory} MiB of memory"
            return TaskReply("memory", reason, wall=seconds) if fresh else None
        if died.code == -signal.SIGKILL:
            self._kills[order.unit.key] += 1
            often = self._kills[order.unit.key] >= KILLS
            reason = f"its process was killed {KILLS} times from outside, as a system does that is short of memory"
            return TaskReply("memory", reason, wall=seconds) if often else None
        how = f"signal {signal.Signals(-died.code).name}" if died.code < 0 else f"exit code {died.code}"
        return TaskReply("crash", f"its process ended with {how}", wall=seconds) if fresh else None

    def _outcome(self, order: TaskRequest, reply: TaskReply, seconds: float) -> TaskOutcome:
        self._end(order, reply)
        if reply.became == "run":
            raise SteplineError(f"stage {order.unit.stage}: {reply.reason}")
        if reply.became == "done":
            return TaskOutcome(order, None, seconds)
        unit = order.unit
        return TaskOutcome(order, StageFailure(unit.item.id, unit.stage, reply.became, reply.reason), seconds)

    def _end(self, order: TaskRequest, reply: TaskReply, *, again: bool = False) -> None:
        unit = order.unit
        known: dict[str, JsonValue] = dict(reply.notes)
        known |= {"id": unit.item.id, "stage": unit.stage, "key": unit.key, "ok": reply.became == "done"}
        known |= {"kind": reply.became, "again": again, "first": reply.first}
        known |= {"cpu": round(reply.cpu, 4), "wall": round(reply.wall, 4)}
        self._journal.write("end", **known, peak_rss=reply.peak_rss, bytes=reply.bytes)
