"""Works through videos with a team: each video's units in order, several videos side by side, no worker idle.

Both engines come through here: the local one with all videos and all workers, Ray's actors with a few videos and one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepline.curate.engines.fetching import Fetcher
from stepline.curate.engines.open_video import OpenVideo, urls
from stepline.curate.items import Item
from stepline.curate.ledger.cells import Cells
from stepline.curate.places import Place
from stepline.curate.plan import Plan
from stepline.curate.stage import Failure
from stepline.curate.units import Unit
from stepline.curate.workers.bench import full
from stepline.curate.workers.order import Order
from stepline.curate.workers.reasons import plain
from stepline.curate.workers.supervise import Watched
from stepline.curate.workers.team import LOOK, Team
from stepline.errors import SteplineError

SOON = 0.02  # seconds to wait while a file is on its way and every worker is free


@dataclass(frozen=True)
class Finished:
    """A video that nothing is left to do for. failure: the first; worked: it took work in this run."""

    item: Item
    failure: Failure | None
    worked: bool


@dataclass(frozen=True)
class Task:
    """Some stages over some videos. retry: also what failed before. told: called as each video is finished.

    row: failures of each stage since its last success.
    """

    plan: Plan
    cells: Cells
    stages: Sequence[str]
    retry: bool = False
    told: Callable[[Finished], None] = lambda finished: None  # noqa: ARG005
    row: Counter[str] = field(default_factory=Counter)


class Round:
    """Videos being worked on, the oldest first; at most `most` are open at once."""

    def __init__(self, task: Task, team: Team, fetcher: Fetcher, items: Iterator[Item], most: int) -> None:
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
                task.told(Finished(video.item, video.failure, video.worked))
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

    def _order_for(self, worker: Watched, *, ahead: bool) -> Order | None:
        """Return a unit whose files are here: of a stage that the worker has models of, else of the oldest video."""
        found: Order | None = None
        for video in list(self._open.values()):
            unit = video.next_unit(ahead=ahead)
            files = self._files(video, unit) if unit else None
            if unit is None or files is None:
                continue
            if unit.stage in worker.loaded:
                return Order(unit, files)
            found = found or Order(unit, files)
        return found

    def _files(self, video: OpenVideo, unit: Unit) -> dict[str, Path] | None:
        """Return where the files of a unit are; None while they come, or where they cannot, which ends the video."""
        try:
            files = self._fetcher.ready(video.item, video.files_of(unit))
        except SteplineError as error:
            if full(error):  # no fault of the video
                raise
            self._settle(unit, Failure(video.item.id, unit.stage, "error", _plain(error, video.item)))
            return None
        self._coming = self._coming or files is None
        return files

    def _settle(self, unit: Unit, failure: Failure | None) -> None:
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
            task.told(Finished(video.item, video.failure, video.worked))
        if video.finished or not video.files():
            self._fetcher.release(video.item)

    def _refuse_a_row(self, unit: Unit, failure: Failure | None) -> None:
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
    return plain(str(error), [Place(url).shown for url in urls(item).values()], item.id)
