"""Works through videos with a team: each video's units in order, several videos side by side, no worker idle.

Both engines come through here: the local one with all videos and all workers, Ray's actors with a few videos and one.

A video under way: which of its units are done, which may run next, when there is nothing left to do.

Files of videos on this machine's disk, fetched while others are worked on, within a bound, and removed after.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from stepline.curate.execution.messages import TaskRequest, plain
from stepline.curate.execution.pool import LOOK, WorkerPool
from stepline.curate.execution.supervisor import WorkerProcess
from stepline.curate.execution.worker import full
from stepline.curate.plan import Plan
from stepline.curate.remote import RemotePath
from stepline.curate.settings import RemoteSettings
from stepline.curate.stage import Item, StageFailure, StageTask, files_read
from stepline.curate.store.results import ResultStore
from stepline.errors import SteplineError

State: TypeAlias = Literal["waiting", "running", "done", "failed"]


class OpenVideo:
    """The units of one video in some stages; those before them are done.

    retry: try again what failed before, as long as its attempts are fewer than the recipe's limit.
    """

    def __init__(
        self, plan: Plan, cells: ResultStore, item: Item, stages: Sequence[str], *, retry: bool = False
    ) -> None:
        self.item = item
        self.units = tuple(unit for unit in plan.units(item) if unit.stage in stages)
        self._plan = plan
        self.failures: dict[str, StageFailure] = {}
        self.states: dict[str, State] = {unit.stage: self._found(cells, unit, retry) for unit in self.units}
        self.worked = False  # a unit of it ran

    def _found(self, cells: ResultStore, unit: StageTask, retry: bool) -> State:
        stage = self._plan.stages[unit.stage]
        if cells.has(stage, unit.key):
            return "done"
        failure = cells.failure(stage, unit.key)
        if failure is None or (retry and may_retry(failure, self._plan.recipe.limits.attempts)):
            return "waiting"
        self.failures[unit.stage] = failure
        return "failed"

    def next_unit(self, *, ahead: bool = False) -> StageTask | None:
        """Return the unit that may run now. ahead: also one whose turn has not come, but whose needs are done."""
        for unit in self.units:
            state = self.states[unit.stage]
            if state == "failed" or (state == "running" and not ahead):
                return None
            if state == "waiting" and all(self.states.get(need, "done") == "done" for need in unit.needs):
                return unit
            if state == "waiting" and not ahead:
                return None
        return None

    def start(self, unit: StageTask) -> None:
        """Note that a unit runs."""
        self.states[unit.stage] = "running"
        self.worked = True

    def settle(self, unit: StageTask, failure: StageFailure | None) -> None:
        """Note what became of a unit."""
        self.states[unit.stage] = "failed" if failure else "done"
        if failure is not None:
            self.failures[unit.stage] = failure

    @property
    def failure(self) -> StageFailure | None:
        """The first failure in the recipe's order, once all that stands before it is done."""
        for unit in self.units:
            if self.states[unit.stage] != "done":
                return self.failures.get(unit.stage)
        return None

    @property
    def finished(self) -> bool:
        """Tell whether there is nothing left to do."""
        if "running" in self.states.values():
            return False
        return self.failure is not None or all(state == "done" for state in self.states.values())

    def files(self) -> frozenset[str]:
        """Return what must be at hand for the units that may still run."""
        left = (unit for unit in self.units if self.states[unit.stage] in ("waiting", "running"))
        return frozenset(name for unit in left for name in files_read(self._plan.stages[unit.stage], self.item))

    def files_of(self, unit: StageTask) -> frozenset[str]:
        """Return which files a unit reads."""
        return files_read(self._plan.stages[unit.stage], self.item)


def may_retry(failure: StageFailure, attempts: int) -> bool:
    """Tell whether a failure may be tried again; what the recipe itself leaves out may not."""
    return failure.kind != "left out" and failure.attempts < attempts


def urls(item: Item) -> Mapping[str, str]:
    """Return where the files of an item are."""
    named = {"media": item.video, "captions": item.captions, "features": item.features}
    return {name: url for name, url in named.items() if url is not None}


AT_ONCE = 2  # files fetched at the same time


@dataclass
class VideoFiles:
    """The files of one open video: those that are here, those on their way."""

    folder: Path
    here: dict[str, Path] = field(default_factory=dict)
    coming: "dict[str, Future[Path]]" = field(default_factory=dict)
    size: int = 0  # bytes of what was fetched


class Fetcher:
    """Brings what is elsewhere; what is on this machine is used where it is.

    bound: bytes that fetched files may take before the next one waits; one is always fetched, however large.
    """

    def __init__(self, scratch: Path, bound: int, settings: RemoteSettings) -> None:
        self._scratch, self._bound, self._settings = scratch, bound, settings
        self._held: dict[str, VideoFiles] = {}
        self._made = 0
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fetch")

    def want(self, item: Item, names: Iterable[str]) -> None:
        """Have files of an item brought, as far as the bound allows; asking again costs nothing."""
        held = self._of(item)
        for name in names:
            if name in held.here or name in held.coming:
                continue
            place = RemotePath(urls(item)[name], self._settings)
            if place.local is not None:
                held.here[name] = place.local
            elif self._room(held):
                # Its own name's ending tells readers what it is; the rest may be anything.
                target = held.folder / f"{name}{Path(place.name).suffix[:16]}"
                held.coming[name] = self._threads.submit(_fetched, place, target)

    def ready(self, item: Item, names: Iterable[str]) -> dict[str, Path] | None:
        """Return where files of an item are; None while one is on its way. Raises SteplineError where one failed."""
        held = self._of(item)
        wanted = list(names)
        for name in wanted:
            coming = held.coming.get(name)
            if coming is not None and coming.done():
                path = coming.result()
                del held.coming[name]
                held.here[name] = path
                held.size += path.stat().st_size
        return {name: held.here[name] for name in wanted} if all(name in held.here for name in wanted) else None

    def release(self, item: Item) -> None:
        """Remove what was fetched for an item."""
        held = self._held.pop(item.id, None)
        if held is not None:
            for coming in held.coming.values():
                if not coming.cancel():
                    coming.exception()  # waits for one that is under way, which would write into the folder
            shutil.rmtree(held.folder, ignore_errors=True)

    def close(self) -> None:
        """Stop fetching and remove everything."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for held in self._held.values():
            shutil.rmtree(held.folder, ignore_errors=True)

    def _of(self, item: Item) -> VideoFiles:
        if item.id not in self._held:
            self._made += 1
            self._held[item.id] = VideoFiles(self._scratch / f"video-{self._made}")
        return self._held[item.id]

    def _room(self, held: VideoFiles) -> bool:
        """Tell whether one more file may be fetched; a video that has begun gets all it needs, or it would wait."""
        coming = sum(len(other.coming) for other in self._held.values())
        taken = sum(other.size for other in self._held.values())
        return bool(held.size or held.coming) or (taken < self._bound and coming < 2 * AT_ONCE)


def _fetched(place: RemotePath, target: Path) -> Path:
    place.fetch(target)
    return target


SOON = 0.02  # seconds to wait while a file is on its way and every worker is free


@dataclass(frozen=True)
class FinishedVideo:
    """A video that nothing is left to do for. failure: the first; worked: it took work in this run."""

    item: Item
    failure: StageFailure | None
    worked: bool


@dataclass(frozen=True)
class Phase:
    """Some stages over some videos. retry: also what failed before. told: called as each video is finished.

    row: failures of each stage since its last success.
    """

    plan: Plan
    cells: ResultStore
    stages: Sequence[str]
    retry: bool = False
    told: Callable[[FinishedVideo], None] = lambda finished: None  # noqa: ARG005
    row: Counter[str] = field(default_factory=Counter)


class Scheduler:
    """Videos being worked on, the oldest first; at most `most` are open at once."""

    def __init__(self, task: Phase, team: WorkerPool, fetcher: Fetcher, items: Iterator[Item], most: int) -> None:
        self._task, self._team, self._fetcher, self._items, self._most = task, team, fetcher, items, most
        self._coming = False
        self._open: dict[str, OpenVideo] = {}
        self._more = True

    def run(self) -> None:
        """Work until every video is finished."""
        while True:
            self._admit()
            if not self._open and not self._more:
                return
            coming = self._hand_out()
            for outcome in self._team.wait(SOON if coming else LOOK):
                self._settle(outcome.order.unit, outcome.failure)

    def _admit(self) -> None:
        """Open videos up to the bound; those with nothing to do are finished at once."""
        while self._more and len(self._open) < self._most:
            item = next(self._items, None)
            if item is None:
                self._more = False
                return
            task = self._task
            video = OpenVideo(task.plan, task.cells, item, task.stages, retry=task.retry)
            if video.finished:
                task.told(FinishedVideo(video.item, video.failure, video.worked))
            else:
                self._open[item.id] = video

    def _hand_out(self) -> bool:
        """Give every free worker a unit, as far as there are any; tell whether one still waits for a file."""
        self._coming = False
        for video in list(self._open.values()):
            self._fetcher.want(video.item, sorted(video.files()))
        for ahead in (False, True):
            for worker in self._team.free(len(self._open)):
                order = self._order_for(worker, ahead=ahead)
                if order is not None:
                    self._open[order.unit.item.id].start(order.unit)
                    self._team.give(worker, order)
        return self._coming

    def _order_for(self, worker: WorkerProcess, *, ahead: bool) -> TaskRequest | None:
        """Return a unit whose files are here: of a stage that the worker has models of, else of the oldest video."""
        found: TaskRequest | None = None
        for video in list(self._open.values()):
            unit = video.next_unit(ahead=ahead)
            files = self._files(video, unit) if unit else None
            if unit is None or files is None:
                continue
            if unit.stage in worker.loaded:
                return TaskRequest(unit, files)
            found = found or TaskRequest(unit, files)
        return found

    def _files(self, video: OpenVideo, unit: StageTask) -> dict[str, Path] | None:
        """Return where the files of a unit are; None while they come, or where they cannot, which ends the video."""
        try:
            files = self._fetcher.ready(video.item, video.files_of(unit))
        except SteplineError as error:
            if full(error):  # no fault of the video
                raise
            self._settle(unit, StageFailure(video.item.id, unit.stage, "error", _plain(error, video.item)))
            return None
        self._coming = self._coming or files is None
        return files

    def _settle(self, unit: StageTask, failure: StageFailure | None) -> None:
        """Keep what became of a unit, and finish its video where nothing is left to do."""
        task, video = self._task, self._open[unit.item.id]
        stage = task.plan.stages[unit.stage]
        if failure is None:
            task.cells.note(stage, unit.key)
        else:
            failure = task.cells.fail(stage, unit.key, failure)
        self._refuse_a_row(unit, failure)
        video.settle(unit, failure)
        if video.finished:
            del self._open[unit.item.id]
            task.told(FinishedVideo(video.item, video.failure, video.worked))
        if video.finished or not video.files():
            self._fetcher.release(video.item)

    def _refuse_a_row(self, unit: StageTask, failure: StageFailure | None) -> None:
        """Raise SteplineError where a stage fails for video after video, as when a server it asks is down."""
        row = self._task.row
        if failure is None or failure.kind == "left out":
            row[unit.stage] = 0
            return
        row[unit.stage] += 1
        if row[unit.stage] >= self._task.plan.recipe.limits.in_a_row:
            what = f"stage {unit.stage} failed for {row[unit.stage]} videos in a row, the last with: {failure.reason}"
            raise SteplineError(f"{what}; cure it and give --retry-failed, or raise limits.in_a_row")


def _plain(error: SteplineError, item: Item) -> str:
    """Return why files of an item cannot be fetched, in one line, without where they are."""
    return plain(str(error), [RemotePath(url).shown for url in urls(item).values()], item.id)
