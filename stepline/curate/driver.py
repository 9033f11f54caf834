"""A run from its source to its dataset: the videos through their stages, then the stages over all of them.

    OUT/run.json, items.jsonl, refused.jsonl        what is done with what
    OUT/cells, failures                             results of units of work, and why there are none
    OUT/stages/STAGE/KEY/                           what a dataset stage made
    OUT/timings/*.jsonl, driver.json                what it took; who works on it
    OUT/dataset/                                    what the export stage publishes

Everything is found again by its name, so that a run goes on where an earlier one ended, however that ended.

How far a run is: what the driver counts while it goes on, and what `status` counts from OUT's files.
"""

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from pydantic import JsonValue

from stepline import __version__
from stepline.curate.dataset_stages import run_dataset_stage
from stepline.curate.execution.local import cores, scratch_folder, work_through
from stepline.curate.execution.scheduler import FinishedVideo, Phase
from stepline.curate.plan import Plan, video_status
from stepline.curate.remote import RemotePath
from stepline.curate.stage import (
    CELLS,
    FAILURES,
    Collection,
    Item,
    Recipe,
    Refused,
    StageFailure,
    StageTable,
    resolve_stages,
)
from stepline.curate.store.lock import lock_output
from stepline.curate.store.results import STAGES, ResultStore
from stepline.curate.store.run_log import RunLog, write_inventory
from stepline.errors import DatasetError
from stepline.storage import PARTIAL, check_writable

log = logging.getLogger(__name__)


@dataclass
class Progress:
    """Videos of one phase. earlier: finished before the run began; kinds: how the failed ones failed, by kind.

    reasons: (stage, kind) -> videos.
    """

    total: int
    stages: tuple[str, ...] = ()
    done: int = 0
    earlier: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)

    def count(self, failure: StageFailure | None, *, earlier: bool) -> None:
        """Count one finished video. earlier: it took no work in this run."""
        self.done += 1
        self.earlier += earlier
        if failure is not None:
            self.kinds[failure.kind] += 1
            self.reasons[failure.stage, failure.kind] += 1

    @property
    def failed(self) -> int:
        """Videos that failed; those that the recipe leaves out are none of them."""
        return sum(count for kind, count in self.kinds.items() if kind != "left out")

    @property
    def seconds(self) -> float:
        """Since the phase began."""
        return time.monotonic() - self.began

    @property
    def rate(self) -> float | None:
        """Videos an hour that this run has worked on; None before the first."""
        worked = self.done - self.earlier
        return worked / max(self.seconds, 1e-9) * 3600 if worked else None

    @property
    def left(self) -> float | None:
        """Seconds to the end at this rate; None while it is not known."""
        return None if not self.rate else (self.total - self.done) / self.rate * 3600


Report: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True)
class Job:
    """One run. stages: the table that the recipe's names are looked up in. source: as it was named.
    limit: only the first videos by id.

    report: called as videos finish; say: called with a line now and then.
    """

    recipe: Recipe
    out: str
    stages: StageTable
    source: str = ""
    limit: int | None = None
    retry_failed: bool = False
    report: Report = lambda progress: None  # noqa: ARG005
    say: Callable[[str], None] = log.info


@dataclass(frozen=True)
class RunOutcome:
    """What a run came to. failures: of each video that has one, the first in the recipe's order."""

    videos: int
    failures: tuple[StageFailure, ...]
    refused: tuple[Refused, ...]
    plan: Plan
    seconds: float


def curate(job: Job, source: Iterable[Item | Refused], last: Callable[[RunOutcome], None] | None = None) -> RunOutcome:
    """Take every video of a source through the recipe and return what came of it.

    last: what is done with that while no other driver may touch OUT.
    Raises SettingsError where the recipe does not hold together or another driver has OUT, DatasetError where the
    source is empty or names a video twice, and what ends a run: missing models, a full disk.
    """
    began, cpu = time.monotonic(), time.process_time()
    out = place_of(job)
    plan = Plan.of(job.recipe, resolve_stages(job.recipe, job.stages))
    if out.local is not None:
        check_writable(out.local)
    with lock_output(out) as killed, scratch_folder() as scratch:
        if killed and out.local is not None:
            _sweep(out.local)
        collection = collected(source, job.limit)
        write_inventory(out, job.recipe, collection, job.source)
        journal = RunLog(out)
        try:
            started: dict[str, JsonValue] = {"version": __version__, "engine": job.recipe.engine.name, "cores": cores()}
            journal.write("run", **started, videos=len(collection.items), seconds=time.monotonic() - began)
            plan = _carried_out(job, plan, ResultStore(out), collection, journal, scratch)
            took = {"seconds": round(time.monotonic() - began, 3), "cpu": round(time.process_time() - cpu, 3)}
            journal.write("ended", **took)
        finally:
            journal.close()
        failures = tuple(_failures(plan, ResultStore(out), collection.items))
        refused, seconds = tuple(collection.refused), time.monotonic() - began
        outcome = RunOutcome(len(collection.items), failures, refused, plan, seconds)
        if last is not None:
            last(outcome)
    return outcome


def _sweep(out: Path) -> None:
    """Remove the files that a killed driver's workers left half-written; nobody else ever reads them."""
    for folder in ("", f"{CELLS}/*/*/", f"{FAILURES}/*/", f"{STAGES}/*/"):
        for partial in out.glob(f"{folder}.*{PARTIAL}*"):
            partial.unlink(missing_ok=True)


def place_of(job: Job) -> RemotePath:
    """Return OUT, which workers with another working folder must find, too."""
    place = RemotePath(job.out, job.recipe.places)
    return place if place.local is None else RemotePath(os.path.abspath(place.local), job.recipe.places)


def collected(source: Iterable[Item | Refused], limit: int | None) -> Collection:
    """Return a source's videos, sorted by id, and what it refused. limit: only the first so many."""
    items: list[Item] = []
    refused: list[Refused] = []
    for one in source:
        (items if isinstance(one, Item) else refused).append(one)  # type: ignore[arg-type]
    items.sort(key=lambda item: item.id)
    for earlier, item in zip(items, islice(items, 1, None), strict=False):
        if earlier.id == item.id:
            raise DatasetError(f"{item.id}: the source names two videos so; give each its own id")
    if not items:
        raise DatasetError(f"the source holds no video to work on ({len(refused)} refused); name another")
    return Collection(items[:limit], sorted(refused, key=lambda one: one.id))


def _carried_out(
    job: Job, plan: Plan, cells: ResultStore, collection: Collection, journal: RunLog, scratch: Path
) -> Plan:
    """Run the phases of a recipe: stages of each video, stages over all, and so on."""
    for phase in plan.phases():
        if phase[0].kind == "dataset":
            for stage in phase:
                plan = run_dataset_stage(stage, plan, cells, collection, journal, job.say)
            continue
        names = tuple(stage.name for stage in phase)
        progress = Progress(len(collection.items), names)
        task = Phase(plan, cells, names, job.retry_failed, _counting(progress, job.report))
        items = _unfailed(plan, cells, collection.items, plan.before(phase[0]))
        job.report(progress)
        if job.recipe.engine.name == "ray":
            from stepline.curate.execution.ray import work_on_ray

            work_on_ray(task, items)
            cells = ResultStore(cells.place)  # what is known of a store was listed before other machines wrote to it
        else:
            work_through(task, items, job.recipe.engine.workers or cores(), scratch, journal)
    return plan


def _counting(progress: Progress, report: Report) -> Callable[[FinishedVideo], None]:
    def told(finished: FinishedVideo) -> None:
        progress.count(finished.failure, earlier=not finished.worked)
        report(progress)

    return told


def _unfailed(plan: Plan, cells: ResultStore, items: Sequence[Item], before: tuple[str, ...]) -> Iterator[Item]:
    """Yield the videos that nothing has failed for so far."""
    for item in items:
        found = video_status(plan, cells, item, before) if before else None
        if found is None or found.failure is None:
            yield item


def _failures(plan: Plan, cells: ResultStore, items: Sequence[Item]) -> Iterator[StageFailure]:
    stages = tuple(name for name, stage in plan.stages.items() if stage.kind == "video")
    for item in items:
        found = video_status(plan, cells, item, stages)
        if found is not None and found.failure is not None:
            yield found.failure
