"""The scheduler: which task of which video runs next, on which worker.

Each video's tasks run in order, several videos side by side, so that no worker is idle. Both
engines come through here: the local one (local.py) with all videos and all workers, an actor of
Ray's (actors.py) with a few and one worker.

    Scheduler.add: opens a video, whose files are fetched (Fetcher). Scheduler.step: asks each for
    its next task (OpenVideo), submits that to a free worker (pool.py), and records what came of it
    in OUT (store/results.py).
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Literal, TypeAlias

from stepline.curate.execution.messages import TaskRequest, WorkerSetup, portable_reason
from stepline.curate.execution.pool import POLL_INTERVAL, WorkerPool, WorkerProcess
from stepline.curate.execution.worker import disk_is_full
from stepline.curate.plan import KEYED_VERSIONS, Plan, StageTask
from stepline.curate.stage import StageFailure, VideoItem, files_read
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.curate.store.run_log import RunLog
from stepline.errors import SteplineError
from stepline.remote import RemotePath
from stepline.remote.retry import OutOfReachError
from stepline.remote.settings import MIB, RemoteSettings

FILE_POLL_INTERVAL = 0.02  # seconds to wait while a file is on its way and every worker is free
PARALLEL_FETCHES = 2  # files fetched at the same time

TaskState: TypeAlias = Literal["waiting", "running", "done", "failed"]


class OpenVideo:
    """A video under way: its tasks in some stages, and which of them may run next; the stages
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
        self.tasks = tuple(task for task in plan.tasks(item) if task.stage in stages)
        self._plan = plan
        self.failures: dict[str, StageFailure] = {}
        self.states: dict[str, TaskState] = {
            task.stage: self._stored(results, task, retry) for task in self.tasks
        }
        self.worked = False  # a task of it ran
        self.withdrawn = False  # another one does it: no further task is begun

    def _stored(self, results: ResultStore, task: StageTask, retry: bool) -> TaskState:
        """Return the state of a task after earlier runs; one that the recipe itself left out is
        never retried."""
        stage = self._plan.stages[task.stage]
        if results.has(stage, task.key):
            return "done"
        failure = results.failure(stage, task.key)
        attempts = self._plan.recipe.limits.attempts
        if failure is None or (
            retry and failure.kind != "left out" and failure.attempts < attempts
        ):
            return "waiting"
        self.failures[task.stage] = failure
        return "failed"

    def next_task(self, *, ahead: bool = False) -> StageTask | None:
        """Return the task that may run now. ahead: also one whose turn has not come, but whose
        needs are done."""
        for task in () if self.withdrawn else self.tasks:
            state = self.states[task.stage]
            if state == "failed" or (state == "running" and not ahead):
                return None
            if state == "waiting" and all(
                self.states.get(need, "done") == "done" for need in task.needs
            ):
                return task
            if state == "waiting" and not ahead:
                return None
        return None

    def start(self, task: StageTask) -> None:
        """Note that a task runs."""
        self.states[task.stage] = "running"
        self.worked = True

    def record(self, task: StageTask, failure: StageFailure | None) -> None:
        """Note what became of a task."""
        self.states[task.stage] = "failed" if failure else "done"
        if failure is not None:
            self.failures[task.stage] = failure

    @property
    def failure(self) -> StageFailure | None:
        """The first failure in the recipe's order, once all that stands before it is done."""
        for task in self.tasks:
            if self.states[task.stage] != "done":
                return self.failures.get(task.stage)
        return None

    @property
    def finished(self) -> bool:
        """Tell whether there is nothing left to do."""
        if "running" in self.states.values():
            return False
        return (
            self.withdrawn
            or self.failure is not None
            or all(state == "done" for state in self.states.values())
        )

    def files(self) -> frozenset[str]:
        """Return what must be at hand for the tasks that may still run."""
        left = (task for task in self.tasks if self.states[task.stage] in ("waiting", "running"))
        return frozenset(name for task in left for name in self.files_of(task))

    def files_of(self, task: StageTask) -> frozenset[str]:
        """Return which files a task reads."""
        return files_read(self._plan.stages[task.stage], self.item)


@dataclass
class VideoFiles:
    """The files of one open video on this machine: those that are here, those on their way."""

    folder: Path
    here: dict[str, Path] = field(default_factory=dict)
    pending: "dict[str, Future[Path]]" = field(default_factory=dict)
    size: int = 0  # bytes of what was fetched


class Fetcher:
    """Fetches files of videos while others are worked on, within a bound; what is on this machine
    is used where it is.

    bound: bytes that fetched files may take before the next one waits; one is always fetched,
    however large.
    """

    def __init__(self, scratch: Path, bound: int, settings: RemoteSettings) -> None:
        self._scratch, self._bound, self._settings = scratch, bound, settings
        self._videos: dict[str, VideoFiles] = {}
        self._folder_count = 0
        self._threads = ThreadPoolExecutor(PARALLEL_FETCHES, thread_name_prefix="fetch")

    def prefetch(self, item: VideoItem, names: Iterable[str]) -> None:
        """Have files of an item fetched, as far as the bound allows; asking again costs nothing."""
        files = self._files_of(item)
        for name in names:
            if name in files.here or name in files.pending:
                continue
            source = RemotePath(file_urls(item)[name], self._settings)
            if source.local is not None:
                files.here[name] = source.local
            elif self._has_room(files):
                # Its own name's ending tells readers what it is; the rest may be anything.
                target = files.folder / f"{name}{Path(source.name).suffix[:16]}"
                files.pending[name] = self._threads.submit(_fetch, source, target)

    def local_files(self, item: VideoItem, names: Iterable[str]) -> dict[str, Path] | None:
        """Return where files of an item are; None while one is on its way. Raises SteplineError
        where one failed."""
        files = self._files_of(item)
        wanted = list(names)
        for name in wanted:
            fetch = files.pending.get(name)
            if fetch is not None and fetch.done():
                files.here[name] = fetch.result()
                del files.pending[name]
                files.size += files.here[name].stat().st_size
        return (
            {name: files.here[name] for name in wanted}
            if all(name in files.here for name in wanted)
            else None
        )

    def release(self, item: VideoItem) -> None:
        """Remove what was fetched for an item."""
        files = self._videos.pop(item.id, None)
        if files is not None:
            for fetch in files.pending.values():
                if not fetch.cancel():
                    # waits for one that is under way, which would write into the folder
                    fetch.exception()
            shutil.rmtree(files.folder, ignore_errors=True)

    def close(self) -> None:
        """Stop fetching and remove everything."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for files in self._videos.values():
            shutil.rmtree(files.folder, ignore_errors=True)

    def _files_of(self, item: VideoItem) -> VideoFiles:
        if item.id not in self._videos:
            self._folder_count += 1
            self._videos[item.id] = VideoFiles(self._scratch / f"video-{self._folder_count}")
        return self._videos[item.id]

    def _has_room(self, files: VideoFiles) -> bool:
        """Tell whether one more file may be fetched; a video that has begun gets all it needs, or
        it would wait."""
        pending = sum(len(other.pending) for other in self._videos.values())
        taken = sum(other.size for other in self._videos.values())
        return bool(files.size or files.pending) or (
            taken < self._bound and pending < 2 * PARALLEL_FETCHES
        )


def _fetch(source: RemotePath, target: Path) -> Path:
    source.fetch(target)
    return target


def file_urls(item: VideoItem) -> Mapping[str, str]:
    """Return where the files of an item are."""
    named = {"media": item.video, "captions": item.captions, "features": item.features}
    return {name: url for name, url in named.items() if url is not None}


@dataclass(frozen=True)
class FinishedVideo:
    """A video that nothing is left to do for. failure: the first; worked: it took work in this run.

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
        if failure is None or failure.kind == "left out":
            self.failures_in_a_row[stage] = 0
            return
        self.failures_in_a_row[stage] += 1
        if (count := self.failures_in_a_row[stage]) >= self.plan.recipe.limits.in_a_row:
            what = (
                f"stage {stage} failed for {count} videos in a row, the last with: {failure.reason}"
            )
            raise SteplineError(
                f"{what}; cure it and give --retry-failed, or raise limits.in_a_row"
            )


def worker_setup(phase: Phase) -> WorkerSetup:
    """Return what workers are told, with the folders of dataset stages that their tasks need on
    this machine."""
    plan, results = phase.plan, phase.results
    stages = {name: stage for name, stage in plan.stages.items() if stage.kind == "video"}
    needs = sorted({need for name in phase.stages for need in stages[name].needs})
    folders = StageFolders(results.out).local_folders(plan.dataset_keys, needs)
    used = {library for name in phase.stages for library in stages[name].libraries(plan.recipe)}
    # by the plan, which another machine may have made
    versions = {library: KEYED_VERSIONS.get(library, "") for library in sorted(used)}
    for named in plan.libraries.values():
        versions.update({library: version for library, version in named.items() if library in used})
    return WorkerSetup(plan.recipe, stages, results.out.url, folders, versions=versions)


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
        """devices: of workers that have a GPU; none: every stage runs on the CPU."""
        recipe, stages = phase.plan.recipe, phase.plan.stages
        engine = recipe.engine
        self._on_gpu = {name for name in phase.stages if devices and stages[name].gpu(recipe)}
        self._phase = phase
        self._most_open = engine.ahead * workers  # videos open at once
        self._open: dict[str, OpenVideo] = {}
        self._awaits_file = False
        self._fetcher = Fetcher(scratch, engine.cache * MIB, phase.plan.recipe.places)
        self._pool = WorkerPool(worker_setup(phase), workers, run_log, scratch, devices)

    def run(self, items: Iterable[VideoItem]) -> None:
        """Work until every video is finished, the oldest first.

        Raises SteplineError where the run must end; what was finished is kept.
        """
        left = iter(items)
        while True:
            while len(self._open) < self._most_open and (item := next(left, None)) is not None:
                self.add(item)
            if not self._open:
                return
            self.step()

    @property
    def is_busy(self) -> bool:
        """Tell whether a video is open."""
        return bool(self._open)

    def add(self, item: VideoItem) -> None:
        """Open a video; one with nothing to do is finished at once."""
        phase = self._phase
        video = OpenVideo(phase.plan, phase.results, item, phase.stages, retry=phase.retry)
        if video.finished:
            phase.on_finished(FinishedVideo(video.item, video.failure, video.worked))
        else:
            self._open[item.id] = video

    def withdraw(self, identity: str, *, begun: bool) -> None:
        """Give a video up that another actor does, after its present task. begun: also where a task
        of it ran."""
        video = self._open.get(identity)
        if video is not None and (begun or not video.worked):
            video.withdrawn = True
            self._close_if_finished(video)

    def step(self) -> None:
        """Submit the tasks that can be, wait a little, and record those that came to an end."""
        self._submit_tasks()
        for outcome in self._pool.wait(FILE_POLL_INTERVAL if self._awaits_file else POLL_INTERVAL):
            self._record(outcome.request.task, outcome.failure)

    def close(self) -> None:
        """End the workers and remove what was fetched."""
        self._pool.close()
        self._fetcher.close()

    def _submit_tasks(self) -> None:
        """Give every free worker a task, as far as there are any; note whether one still waits for
        a file."""
        self._awaits_file = False
        for video in list(self._open.values()):
            self._fetcher.prefetch(video.item, sorted(video.files()))
        for ahead in (False, True):
            for worker in self._pool.free_workers(len(self._open)):
                requests = self._requests_for(worker, ahead=ahead)
                for request in requests:
                    self._open[request.task.item.id].start(request.task)
                if requests:
                    self._pool.submit(worker, requests)

    def _requests_for(self, worker: WorkerProcess, *, ahead: bool) -> list[TaskRequest]:
        """Return a task: of a stage that the worker has models of, else of the oldest video; none
        where none can run.

        A worker with a GPU takes the stages that use one first, and several of one that does many
        at once; others none of them.
        """
        preferred = self._on_gpu if worker.has_gpu else worker.stages_run
        possible, seen = self._possible_requests(worker, ahead=ahead), []
        for request in possible:
            seen.append(request)
            if request.task.stage in preferred:
                break
        if not seen:
            return []
        chosen = seen[-1] if seen[-1].task.stage in preferred else seen[0]
        plan = self._phase.plan
        several = chosen.gpu and plan.stages[chosen.task.stage].run_many is not None
        alike = (
            request for request in chain(seen, possible) if request.task.stage == chosen.task.stage
        )
        return list(islice(alike, plan.recipe.engine.batch if several else 1))

    def _possible_requests(self, worker: WorkerProcess, *, ahead: bool) -> Iterator[TaskRequest]:
        """Yield the tasks that may run on a worker and whose files are here, the oldest video's
        first."""
        for video in list(self._open.values()):
            task = video.next_task(ahead=ahead)
            files = self._files(video, task) if task else None
            if task is None or files is None:
                continue
            request = TaskRequest(task, files, task.stage in self._on_gpu)
            if worker.can_do(request):
                yield request

    def _files(self, video: OpenVideo, task: StageTask) -> dict[str, Path] | None:
        """Return where the files of a task are; None while they come, or where they cannot, which
        ends the video."""
        try:
            files = self._fetcher.local_files(video.item, video.files_of(task))
        except SteplineError as error:
            addresses = [RemotePath(url).display_url for url in file_urls(video.item).values()]
            # each may have a host of its own
            on_the_web = any(address.startswith("http") for address in addresses)
            # no fault of the video
            if disk_is_full(error) or (isinstance(error, OutOfReachError) and not on_the_web):
                raise
            reason = portable_reason(str(error), addresses, video.item.id)
            self._record(task, StageFailure(video.item.id, task.stage, "error", reason))
            return None
        self._awaits_file = self._awaits_file or files is None
        return files

    def _record(self, task: StageTask, failure: StageFailure | None) -> None:
        """Keep what became of a task, and finish its video where nothing is left to do."""
        phase, video = self._phase, self._open[task.item.id]
        stage = phase.plan.stages[task.stage]
        if failure is None:
            phase.results.mark_done(stage, task.key)
        else:
            failure = phase.results.add_failure(stage, task.key, failure)
        phase.count_in_a_row(task.stage, failure)
        video.record(task, failure)
        self._close_if_finished(video)
        if not video.files():
            self._fetcher.release(video.item)

    def _close_if_finished(self, video: OpenVideo) -> None:
        """Tell of a video where nothing is left to do, and let its files go."""
        if video.finished:
            del self._open[video.item.id]
            self._fetcher.release(video.item)
            withdrawn = (
                video.withdrawn and video.failure is None and "waiting" in video.states.values()
            )
            self._phase.on_finished(
                FinishedVideo(video.item, video.failure, video.worked, withdrawn)
            )
