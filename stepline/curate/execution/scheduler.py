"""The scheduler: which task runs next, for which video and on which worker.

Each video's tasks run in order, several videos side by side, so that no worker is idle. Both
engines use it: the local one (local.py) with all videos and all workers, an actor of Ray's
(actors.py) with a few and one worker.

    Scheduler.add: opens a video, whose files are fetched (fetcher.py). Scheduler.step: asks each
    for its next task (OpenVideo), submits that to a free worker (pool.py), and records what came of
    it in OUT (store/results.py).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Literal, TypeAlias

from stepline.curate.execution.fetcher import Fetcher, file_urls
from stepline.curate.execution.pool import POLL_SECONDS, TaskPool, TaskWorker
from stepline.curate.execution.worker import TaskRequest, WorkerSetup, disk_is_full, portable_reason
from stepline.curate.plan import KEYED_VERSIONS, Plan, StageTask
from stepline.curate.stage import StageFailure, VideoItem, files_read
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.curate.store.run_log import RunLog
from stepline.errors import SteplineError
from stepline.files.remote import RemotePath
from stepline.files.remote.retry import OutOfReachError
from stepline.files.remote.settings import BYTES_PER_MIB

FILE_POLL_SECONDS = 0.02  # seconds to wait while a file is on its way and every worker is free

TaskState: TypeAlias = Literal["waiting", "running", "done", "failed"]


class OpenVideo:
    """A video under way: its tasks in some stages, and which of them may run next. The stages
    before them are done.

    retry: try again what failed before, as long as its attempts are fewer than the recipe's limit.
    """

    def __init__(
        self,
        plan: Plan,
        results: ResultStore,
        item: VideoItem,
        stages: Sequence[str],
        *,
        retry: bool = False,
    ) -> None:
        self.item = item
        self.tasks = [task for task in plan.tasks(item) if task.stage in stages]
        self._plan = plan
        self.failures: dict[str, StageFailure] = {}
        self.states: dict[str, TaskState] = {}
        for task in self.tasks:
            self.states[task.stage] = self._state_before(results, task, retry)
        self.worked = False  # a task of it ran
        self.withdrawn = False  # another one does it: no further task is begun

    def _state_before(self, results: ResultStore, task: StageTask, retry: bool) -> TaskState:
        """Return the state of a task after earlier runs. One that the recipe itself left out is
        never retried."""
        # What is in the store needs no work.
        stage = self._plan.stages[task.stage]
        if results.has(stage, task.key):
            return "done"
        failure = results.failure(stage, task.key)
        if failure is None:
            return "waiting"
        may_retry = retry and failure.kind != "left out"
        if may_retry and failure.attempts < self._plan.recipe.limits.attempts:
            return "waiting"
        self.failures[task.stage] = failure
        return "failed"

    def next_task(self, *, ahead: bool = False) -> StageTask | None:
        """Return the task that may run now. ahead: also one whose turn has not come, but whose
        needs are done."""
        if self.withdrawn:
            return None
        # In the recipe's order, the first task that is not done.
        for task in self.tasks:
            state = self.states[task.stage]
            if state == "done":
                continue
            if state == "failed":
                return None
            if state == "waiting" and self._needs_done(task):
                return task
            if not ahead:
                return None
        return None

    def _needs_done(self, task: StageTask) -> bool:
        for need in task.needs:
            state = self.states.get(need, "done")
            if state != "done":
                return False
        return True

    def start(self, task: StageTask) -> None:
        """Note that a task runs."""
        self.states[task.stage] = "running"
        self.worked = True

    def record(self, task: StageTask, failure: StageFailure | None) -> None:
        """Note what became of a task."""
        if failure is None:
            self.states[task.stage] = "done"
        else:
            self.states[task.stage] = "failed"
            self.failures[task.stage] = failure

    @property
    def failure(self) -> StageFailure | None:
        """The first failure in the recipe's order, once all before it is done."""
        # A failure counts only where nothing before it is still open.
        for task in self.tasks:
            if self.states[task.stage] != "done":
                return self.failures.get(task.stage)
        return None

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        states = set(self.states.values())
        if "running" in states:
            return False
        return self.withdrawn or self.failure is not None or states <= {"done"}

    def files(self) -> frozenset[str]:
        """Return what must be at hand for the tasks that may still run."""
        files: set[str] = set()
        for task in self.tasks:
            state = self.states[task.stage]
            if state in ("waiting", "running"):
                files |= self.files_of(task)
        return frozenset(files)

    def files_of(self, task: StageTask) -> frozenset[str]:
        """Return the files that a task reads."""
        stage = self._plan.stages[task.stage]
        return files_read(stage, self.item)


@dataclass(frozen=True)
class FinishedVideo:
    """A video that nothing is left to do for. failure: the first. worked: it took work in this run.

    withdrawn: it was given up before its end, since another actor does it.
    """

    item: VideoItem
    failure: StageFailure | None
    worked: bool
    withdrawn: bool = False


@dataclass(frozen=True)
class Phase:
    """Some stages over some videos. retry: also what failed before. on_finished: called as each
    video is finished.

    failures_in_a_row: of each stage since its last success.
    """

    plan: Plan
    results: ResultStore
    stages: Sequence[str]
    retry: bool = False
    on_finished: Callable[[FinishedVideo], None] = lambda finished: None  # noqa: ARG005
    failures_in_a_row: Counter[str] = field(default_factory=Counter)

    def count_in_a_row(self, stage: str, failure: StageFailure | None) -> None:
        """Raise SteplineError where a stage fails for video after video, as when a server it asks
        is down."""
        # A video that the recipe leaves out does not point to a fault.
        if failure is None or failure.kind == "left out":
            self.failures_in_a_row[stage] = 0
            return
        self.failures_in_a_row[stage] += 1
        count = self.failures_in_a_row[stage]
        if count >= self.plan.recipe.limits.in_a_row:
            what = f"stage {stage} failed for {count} videos in a row"
            cure = "cure it and give --retry-failed, or raise limits.in_a_row"
            raise SteplineError(f"{what}, the last with: {failure.reason}; {cure}")


def worker_setup(phase: Phase) -> WorkerSetup:
    """Return what workers get, with the folders of dataset stages that their tasks need on this
    machine."""
    plan = phase.plan
    out = phase.results.out
    stages = {stage.name: stage for stage in plan.video_stages}
    # What the stages of this phase need, and by which versions.
    needs: set[str] = set()
    versions: dict[str, str] = {}
    for name in phase.stages:
        stage = stages[name]
        needs.update(stage.needs)
        # By the plan, which another machine may have made.
        other_versions = plan.libraries.get(name, {})
        for library in stage.libraries(plan.recipe):
            usual = KEYED_VERSIONS.get(library, "")
            versions[library] = other_versions.get(library, usual)
    folders = StageFolders(out).local_folders(plan.dataset_keys, sorted(needs))
    in_order = dict(sorted(versions.items()))
    return WorkerSetup(plan.recipe, stages, out.url, folders, versions=in_order)


class Scheduler:
    """Takes videos through a phase with some workers of this machine. Close it at the end, however
    that comes."""

    def __init__(
        self,
        phase: Phase,
        workers: int,
        scratch: Path,
        run_log: RunLog,
        devices: Sequence[str] = (),
    ) -> None:
        """devices: of workers that have a GPU. Without any, every stage runs on the CPU."""
        recipe = phase.plan.recipe
        engine = recipe.engine
        # Stages that use a GPU wait for the workers that have one.
        self._on_gpu = set()
        for name in phase.stages:
            stage = phase.plan.stages[name]
            if devices and stage.gpu(recipe):
                self._on_gpu.add(name)
        self._phase = phase
        self._most_open = engine.ahead * workers  # videos open together
        self._open: dict[str, OpenVideo] = {}
        self._awaits_file = False
        cache_bytes = engine.cache * BYTES_PER_MIB
        self._fetcher = Fetcher(scratch, cache_bytes, recipe.remote)
        setup = worker_setup(phase)
        self._pool = TaskPool(setup, workers, run_log, devices)

    def run(self, items: Iterable[VideoItem]) -> None:
        """Work until every video is finished, the oldest first.

        Raises SteplineError where the run must end. What was finished is kept.
        """
        for item in items:
            self.add(item)
            # A bound on open videos is a bound on files that are here.
            while len(self._open) >= self._most_open:
                self.step()
        while self._open:
            self.step()

    @property
    def is_busy(self) -> bool:
        """Whether a video is open."""
        return bool(self._open)

    def add(self, item: VideoItem) -> None:
        """Open a video. One with nothing to do is finished immediately."""
        phase = self._phase
        video = OpenVideo(phase.plan, phase.results, item, phase.stages, retry=phase.retry)
        if video.finished:
            finished = FinishedVideo(video.item, video.failure, video.worked)
            phase.on_finished(finished)
        else:
            self._open[item.id] = video

    def withdraw(self, identity: str, *, begun: bool) -> None:
        """Give up a video that another actor does, after its present task. begun: also where a task
        of it ran."""
        video = self._open.get(identity)
        if video is not None and (begun or not video.worked):
            video.withdrawn = True
            self._close_if_finished(video)

    def step(self) -> None:
        """Submit the tasks that can be, wait a little, and record those that came to an end."""
        self._submit_tasks()
        poll_interval = POLL_SECONDS
        if self._awaits_file:
            poll_interval = FILE_POLL_SECONDS
        for task, failure in self._pool.finished_tasks(poll_interval):
            self._record(task, failure)

    def close(self) -> None:
        """End the workers and remove what was fetched."""
        self._pool.close()
        self._fetcher.close()

    def _submit_tasks(self) -> None:
        """Give every free worker a task, as far as there are any. Note whether one still waits for
        a file."""
        self._awaits_file = False
        # Files are fetched for all open videos, before anyone waits for them.
        for video in list(self._open.values()):
            files = sorted(video.files())
            self._fetcher.prefetch(video.item, files)
        # First the next task of each video. Only idle workers take one ahead.
        for ahead in (False, True):
            for worker in self._pool.free_workers(len(self._open)):
                requests = self._requests_for(worker, ahead=ahead)
                for request in requests:
                    video = self._open[request.task.item.id]
                    video.start(request.task)
                if requests:
                    self._pool.submit(worker, requests)

    def _requests_for(self, worker: TaskWorker, *, ahead: bool) -> list[TaskRequest]:
        """Return a task: of a stage that the worker has models of, else of the oldest video.
        Return none where none can run.

        A worker with a GPU takes the stages that use one first, and several of one that does many
        together. Others take none of them.
        """
        # A stage whose models are loaded costs less than another one.
        preferred = worker.loaded_stages
        if worker.has_gpu:
            preferred = self._on_gpu
        possible = self._possible_requests(worker, ahead=ahead)
        passed: list[TaskRequest] = []
        for request in possible:
            passed.append(request)
            if request.task.stage in preferred:
                break
        else:
            if not passed:
                return []
            request = passed[0]  # the oldest video's
        # A GPU does several videos of a stage together.
        plan = self._phase.plan
        name = request.task.stage
        if not request.gpu or plan.stages[name].run_many is None:
            return [request]
        alike = (other for other in chain(passed, possible) if other.task.stage == name)
        batch = islice(alike, plan.recipe.engine.batch)
        return list(batch)

    def _possible_requests(self, worker: TaskWorker, *, ahead: bool) -> Iterator[TaskRequest]:
        """Yield the tasks that may run on a worker and whose files are here, the oldest video's
        first."""
        # The oldest first, so that videos are finished and not only begun.
        for video in list(self._open.values()):
            task = video.next_task(ahead=ahead)
            if task is None:
                continue
            files = self._files(video, task)
            if files is None:
                continue
            on_gpu = task.stage in self._on_gpu
            request = TaskRequest(task, files, on_gpu)
            if worker.can_do(request):
                yield request

    def _files(self, video: OpenVideo, task: StageTask) -> dict[str, Path] | None:
        """Return where the files of a task are, or None while they come, or where they cannot,
        which ends the video."""
        try:
            files = self._fetcher.local_files(video.item, video.files_of(task))
        except SteplineError as error:
            item = video.item
            urls = file_urls(item).values()
            addresses = [RemotePath(url).display_url for url in urls]
            # A store that is out of reach is not a fault of the video. On the web each may have a
            # host of its own.
            on_the_web = any(address.startswith("http") for address in addresses)
            out_of_reach = isinstance(error, OutOfReachError) and not on_the_web
            if out_of_reach or disk_is_full(error):
                raise
            reason = portable_reason(str(error), addresses, item.id)
            failure = StageFailure(item.id, task.stage, "error", reason)
            self._record(task, failure)
            return None
        if files is None:
            self._awaits_file = True
        return files

    def _record(self, task: StageTask, failure: StageFailure | None) -> None:
        """Keep what became of a task, and finish its video where nothing is left to do."""
        phase = self._phase
        video = self._open[task.item.id]
        stage = phase.plan.stages[task.stage]
        if failure is None:
            phase.results.add_key(stage, task.key)
        else:
            failure = phase.results.add_failure(stage, task.key, failure)
        phase.count_in_a_row(task.stage, failure)
        video.record(task, failure)
        self._close_if_finished(video)
        # Its files go as soon as no task can need them.
        if not video.files():
            self._fetcher.release(video.item)

    def _close_if_finished(self, video: OpenVideo) -> None:
        """Pass on a video where nothing is left to do, and let its files go."""
        if not video.finished:
            return
        item = video.item
        failure = video.failure
        del self._open[item.id]
        self._fetcher.release(item)
        # It was given up with work left, so its end is another actor's to report.
        unfinished = failure is None and "waiting" in video.states.values()
        withdrawn = video.withdrawn and unfinished
        finished = FinishedVideo(item, failure, video.worked, withdrawn)
        self._phase.on_finished(finished)
