"""The scheduler: which task runs next, for which video and on which worker.

Each video's tasks run in order, several videos side by side, so that no worker is idle. Both
engines use it: the local one (local.py) with all videos and all workers, an actor of Ray's
(actors.py) with a few and one worker.

    Scheduler.add: opens a video, whose files are fetched (fetcher.py). Scheduler.step: asks each
    for its next task (VideoInProgress), submits that to a free worker (pool.py), and records its outcome
    in OUT (store/results.py).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepline.curate.execution.fetcher import FileDownloader, file_urls
from stepline.curate.execution.pool import POLL_SECONDS, TaskPool, TaskWorker
from stepline.curate.execution.worker import (
    TaskRequest,
    WorkerSetup,
    disk_is_full,
    remove_paths_from_reason,
)
from stepline.curate.plan import KEYED_VERSIONS, Plan, StageTask
from stepline.curate.stage import StageFailure, VideoItem, input_files
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.curate.store.run_log import RunLog
from stepline.errors import SteplineError
from stepline.files.remote import RemotePath
from stepline.files.remote.retry import OutOfReachError

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
