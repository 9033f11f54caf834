"""The scheduler: which task runs next, for which video and on which worker.

Each video's tasks run in order, several videos side by side, so that no worker is idle. Both
engines use it: the local one (local.py) with all videos and all workers, an actor of Ray's
(ray.py) with a few and one worker.

    Scheduler.add: opens a video, whose files are fetched (FileDownloader). Scheduler.step: asks each
    for its next task (VideoInProgress), submits that to a free worker (TaskPool), and records its outcome
    in OUT (store/results.py).

`TaskPool` has the worker processes: task requests go in, outcomes come out. What dies is replaced.

A worker has a deadline and a limit of memory for each task. It is a fresh interpreter (no fork: the
driver may hold threads) with one thread for every library.

A crash or too much memory counts only where a fresh process comes to the same end. So no video is
lost by what an earlier one left behind, and the outcome does not depend on which worker had it. A
task whose worker was killed from outside (kill -9, the system short of memory) is done again, a few
times at most.

A file of this machine is used where it is. How many videos are open (engine.ahead) bounds the files.
"""

import itertools
import shutil
import signal
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from stepline.curate.execution.worker import (
    TaskReply,
    TaskRequest,
    WorkerSetup,
    disk_is_full,
    remove_paths_from_reason,
)
from stepline.curate.plan import KEYED_VERSIONS, Plan, StageTask
from stepline.curate.stage import FailureKind, StageFailure, VideoItem, input_files
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.curate.store.run_log import RunLog
from stepline.errors import SteplineError
from stepline.files.remote import RemotePath
from stepline.files.remote.retry import OutOfReachError
from stepline.files.remote.settings import BYTES_PER_MIB, RemoteSettings
from stepline.processes import thread_limit_variables
from stepline.workers import Reply, WorkerDeath, WorkerPool, WorkerProcess, WorkerReady

PARALLEL_FETCHES = 2  # files fetched at the same time
MAX_SUFFIX_CHARS = 16  # of an address, that the copy's name keeps


def file_urls(item: VideoItem) -> dict[str, str]:
    """Return the URLs of the files of a video by kind: "media", "captions", "features"."""
    urls = {"media": item.video, "captions": item.captions, "features": item.features}
    return {name: url for name, url in urls.items() if url is not None}


class FileDownloader:
    """Downloads the files of videos into a scratch folder, in background threads.

    Args:
        scratch: folder for downloaded files.
        settings: limits and retries of downloads.
    """

    def __init__(self, scratch: Path, settings: RemoteSettings) -> None:
        self._scratch = scratch
        self._settings = settings
        self._files: dict[str, dict[str, Future[Path]]] = {}  # by id of the video and kind
        self._folders: dict[str, Path] = {}  # by id of the video
        self._numbers = itertools.count(1)  # of the folders
        self._threads = ThreadPoolExecutor(PARALLEL_FETCHES, thread_name_prefix="fetch")

    def start_downloads(self, item: VideoItem, kinds: Collection[str]) -> None:
        """Start to download files of a video in background threads. Local files are used where they
        are.

        Args:
            item: the video with the URLs of its files.
            kinds: kinds of the files: "media", "captions", "features".
        """
        folder = self._scratch / f"video-{next(self._numbers)}"
        self._folders[item.id] = folder
        files: dict[str, Future[Path]] = {}
        for name in sorted(kinds):
            source = RemotePath(file_urls(item)[name], self._settings)
            if source.local is not None:
                files[name] = Future()
                files[name].set_result(source.local)
            else:
                # Readers need the suffix of its own name. The rest may be anything.
                suffix = Path(source.name).suffix[:MAX_SUFFIX_CHARS]
                files[name] = self._threads.submit(_fetch, source, folder / f"{name}{suffix}")
        self._files[item.id] = files

    def local_files(self, item: VideoItem, kinds: Collection[str]) -> dict[str, Path] | None:
        """Return the local paths of files of a video by kind. None while one is being downloaded.

        kinds: kinds of the files, all of which were opened.

        Raises SteplineError if a download failed.
        """
        files = self._files.get(item.id, {})
        if not all(files[kind].done() for kind in kinds):
            return None
        return {kind: files[kind].result() for kind in kinds}

    def delete_files(self, item: VideoItem) -> None:
        """Delete the downloaded files of a video."""
        for fetch in self._files.pop(item.id, {}).values():
            if not fetch.cancel():
                fetch.exception()  # waits for one that would write into the folder
        shutil.rmtree(self._folders.pop(item.id, self._scratch / "none"), ignore_errors=True)

    def close(self) -> None:
        """Stop all downloads. The downloaded files stay."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def _fetch(source: RemotePath, target: Path) -> Path:
    source.fetch(target)
    return target


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

    def finished_tasks(self, seconds: float) -> list[tuple[StageTask, StageFailure | None]]:
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


FILE_POLL_SECONDS = 0.02  # to wait while a file is on its way and every worker is free


class VideoInProgress:
    """A video in progress, with the tasks that remain to be run for it.

    Attributes:
        item: the video.
        tasks: the remaining tasks in the order of the recipe. Empty once the video is finished.
        failure: the first failure of the finished video in the order of the recipe, None without
            one.
        ran_any_task: whether a task of the video was run since it was opened.

    Args:
        plan: stages, settings and keys.
        results: stored results and failures.
        item: the video.
        stages: names of the stages to run. The results of all other stages that they need are
            stored.
        retry: whether failed tasks run again, up to the number of attempts in the recipe.
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
        self.tasks: list[StageTask] = []
        self.failure: StageFailure | None = None
        self.ran_any_task = False
        self._is_running = False
        self._plan = plan
        for task in plan.tasks_of(item):
            stage = plan.stages[task.stage]
            if task.stage not in stages or results.has_result(stage, task.key):
                continue
            failure = results.find_failure(stage, task.key)
            if failure is not None:
                may_retry = retry and failure.kind != "left out"
                if not may_retry or failure.attempts >= plan.recipe.limits.attempts:
                    # What comes after it never runs.
                    self.failure = failure
                    break
            self.tasks.append(task)

    def next_task(self) -> StageTask | None:
        """Return the task to run next. None if the previous one is still running, or no task remains."""
        return self.tasks[0] if self.tasks and not self._is_running else None

    def mark_running(self) -> None:
        """Note that the first remaining task has been given to a worker."""
        self._is_running = self.ran_any_task = True

    def record_outcome(self, failure: StageFailure | None) -> None:
        """Remove the first remaining task, which has ended. After a failure, no task remains.

        failure: why the task has no result. None if its result is stored.
        """
        self._is_running = False
        self.tasks.pop(0)
        if failure is not None:
            self.failure = failure
            self.tasks.clear()

    def required_files(self) -> frozenset[str]:
        """Return the kinds of files that the remaining tasks read, such as "media"."""
        return frozenset().union(*map(self.files_of_task, self.tasks))

    def files_of_task(self, task: StageTask) -> frozenset[str]:
        """Return the kinds of files that a task reads, such as "media"."""
        return input_files(self._plan.stages[task.stage], self.item)


@dataclass(frozen=True)
class FinishedVideo:
    """A video whose tasks are all done, or one of whose tasks failed.

    Attributes:
        item: the video.
        failure: its first failure in the order of the recipe, None without one.
        ran_any_task: whether a task of the video was run in this run.
    """

    item: VideoItem
    failure: StageFailure | None
    ran_any_task: bool


@dataclass(frozen=True)
class Phase:
    """Consecutive video stages of a recipe, which run together over all videos.

    Attributes:
        plan: stages, settings and keys.
        results: stored results and failures.
        stages: names of the stages.
        retry: whether failed tasks run again.
        on_finished: called with each finished video.
        failures_in_a_row: number of failures of each stage since its last success.
    """

    plan: Plan
    results: ResultStore
    stages: Sequence[str]
    retry: bool = False
    on_finished: Callable[[FinishedVideo], None] = lambda finished: None  # noqa: ARG005
    failures_in_a_row: Counter[str] = field(default_factory=Counter)

    def count_failures_in_a_row(self, stage: str, failure: StageFailure | None) -> None:
        """Count the outcome of a task.

        Args:
            stage: name of the stage of the task.
            failure: the failure of the task, None if it is done.

        Raises SteplineError if the stage failed for `limits.in_a_row` videos in a row, such as when
        its server is down.
        """
        # A video that the recipe leaves out does not point to a fault.
        if failure is None or failure.kind == "left out":
            self.failures_in_a_row[stage] = 0
            return
        self.failures_in_a_row[stage] += 1
        count = self.failures_in_a_row[stage]
        if count >= self.plan.recipe.limits.in_a_row:
            raise SteplineError(
                f"stage {stage} failed for {count} videos in a row, "
                f"the last with: {failure.reason}; "
                "cure it and give --retry-failed, or raise limits.in_a_row"
            )


def make_worker_setup(phase: Phase) -> WorkerSetup:
    """Return what each worker process of a phase gets at its start.

    Result folders of dataset stages that the phase reads are downloaded if the output folder is
    remote.
    """
    plan = phase.plan
    out = phase.results.out
    needs: set[str] = set()
    versions: dict[str, str] = {}
    for name in phase.stages:
        stage = plan.stages[name]
        needs.update(stage.needs)
        # By the plan, which another machine may have made.
        versions |= {
            library: KEYED_VERSIONS.get(library, "") for library in stage.library_names(plan.recipe)
        }
        versions |= plan.libraries.get(name, {})
    return WorkerSetup(
        plan.recipe,
        {stage.name: stage for stage in plan.video_stages},
        out.url,
        StageFolders(out).local_folders(plan.dataset_keys, sorted(needs)),
        versions=dict(sorted(versions.items())),
    )


class Scheduler:
    """Runs video stages over videos with worker processes of this machine. Close it at the end.

    Args:
        phase: the stages, and where their results are stored.
        workers: maximal number of worker processes.
        scratch: folder for downloaded files.
        run_log: log of the tasks.
        devices: torch devices of the first workers. If empty, every stage runs on the CPU.
    """

    def __init__(
        self,
        phase: Phase,
        workers: int,
        scratch: Path,
        run_log: RunLog,
        devices: Sequence[str] = (),
    ) -> None:
        recipe = phase.plan.recipe
        stages = phase.plan.stages
        # Stages that use a GPU wait for the workers that have one.
        self._gpu_stages = {n for n in phase.stages if devices and stages[n].uses_gpu(recipe)}
        self._phase = phase
        self._max_open = recipe.engine.ahead * workers
        self._open: dict[str, VideoInProgress] = {}
        self._awaits_file = False
        self._fetcher = FileDownloader(scratch, recipe.remote)
        self._pool = TaskPool(make_worker_setup(phase), workers, run_log, devices)

    def run(self, items: Iterable[VideoItem]) -> None:
        """Run all tasks of all videos, the oldest videos first.

        Raises SteplineError if the run cannot continue. Finished results are kept.
        """
        for item in items:
            self.add(item)
            # A bound on open videos is a bound on files that are here.
            while len(self._open) >= self._max_open:
                self.run_once()
        while self._open:
            self.run_once()

    def add(self, item: VideoItem) -> None:
        """Open a video and start to download its files.

        A video without remaining tasks is finished.
        """
        phase = self._phase
        video = VideoInProgress(phase.plan, phase.results, item, phase.stages, retry=phase.retry)
        self._open[item.id] = video
        if not self._close_if_finished(video):
            self._fetcher.start_downloads(item, video.required_files())

    def run_once(self) -> None:
        """Submit tasks to idle workers, wait briefly, and record the outcomes of finished tasks."""
        self._submit_tasks()
        seconds = FILE_POLL_SECONDS if self._awaits_file else POLL_SECONDS
        for task, failure in self._pool.finished_tasks(seconds):
            self._record_outcome(task, failure)

    def close(self) -> None:
        """End the worker processes and the downloads."""
        self._pool.close()
        self._fetcher.close()

    def _submit_tasks(self) -> None:
        """Give a task to each idle worker, and note whether a task waits for a download."""
        self._awaits_file = False
        for worker in self._pool.free_workers(len(self._open)):
            request = self._choose_request(worker)
            if request is not None:
                self._open[request.task.item.id].mark_running()
                self._pool.submit(worker, request)

    def _choose_request(self, worker: TaskWorker) -> TaskRequest | None:
        """Return a task for a worker, or None if none can run.

        A worker with a GPU prefers stages that use a GPU, other workers prefer stages whose models
        they have loaded. Among these, and without any, the oldest video comes first.
        """
        # A stage whose models are loaded costs less than another one.
        preferred = self._gpu_stages if worker.has_gpu else worker.loaded_stages
        oldest = None
        for request in self._possible_requests(worker):
            if request.task.stage in preferred:
                return request
            oldest = oldest or request
        return oldest

    def _possible_requests(self, worker: TaskWorker) -> Iterator[TaskRequest]:
        """Yield the tasks that a worker can run now, the oldest video first."""
        for video in list(self._open.values()):
            task = video.next_task()
            if task is None:
                continue
            files = self._find_local_files(video, task)
            if files is None:
                continue
            request = TaskRequest(task, files, task.stage in self._gpu_stages)
            if worker.can_do(request):
                yield request

    def _find_local_files(self, video: VideoInProgress, task: StageTask) -> dict[str, Path] | None:
        """Return the local paths of the files of a task by kind.

        None while one is being downloaded. A failed download is recorded as a failure of the task,
        and gives None too.

        Raises SteplineError if the disk is full or an object store cannot be reached.
        """
        item = video.item
        try:
            files = self._fetcher.local_files(item, video.files_of_task(task))
        except SteplineError as error:
            addresses = [RemotePath(url).display_url for url in file_urls(item).values()]
            # A store that is out of reach is not a fault of the video. On the web each may have a
            # host of its own.
            on_the_web = any(address.startswith("http") for address in addresses)
            out_of_reach = isinstance(error, OutOfReachError) and not on_the_web
            if out_of_reach or disk_is_full(error):
                raise
            reason = remove_paths_from_reason(str(error), addresses, item.id)
            self._record_outcome(task, StageFailure(item.id, task.stage, "error", reason))
            return None
        if files is None:
            self._awaits_file = True
        return files

    def _record_outcome(self, task: StageTask, failure: StageFailure | None) -> None:
        """Store the failure of a task, or note its result. Finish its video if no task remains."""
        phase = self._phase
        video = self._open[task.item.id]
        stage = phase.plan.stages[task.stage]
        if failure is None:
            phase.results.add_key(stage, task.key)
        else:
            failure = phase.results.add_failure(stage, task.key, failure)
        phase.count_failures_in_a_row(task.stage, failure)
        video.record_outcome(failure)
        self._close_if_finished(video)
        # Its files go as soon as no task can need them.
        if not video.required_files():
            self._fetcher.delete_files(video.item)

    def _close_if_finished(self, video: VideoInProgress) -> bool:
        """Report a video without remaining tasks as finished. Return whether it is finished."""
        if not video.tasks:
            del self._open[video.item.id]
            self._fetcher.delete_files(video.item)
            self._phase.on_finished(FinishedVideo(video.item, video.failure, video.ran_any_task))
        return not video.tasks
