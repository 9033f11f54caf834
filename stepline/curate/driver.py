"""A run from its source to its dataset: the videos through their stages, then the stages over all of them.

    OUT/run.json, items.jsonl, refused.jsonl        what is done with what
    OUT/cells, failures                             results of units of work, and why there are none
    OUT/stages/STAGE/KEY/                           what a dataset stage made
    OUT/timings/*.jsonl, driver.json                what it took; who works on it
    OUT/dataset/                                    what the export stage publishes

Everything is found again by its name, so that a run goes on where an earlier one ended, however that ended.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import JsonValue

from stepline import __version__
from stepline.curate.engines.local import cores, work_through
from stepline.curate.engines.scratch import scratch_folder
from stepline.curate.engines.work import Finished, Task
from stepline.curate.gathering import run_dataset_stage
from stepline.curate.items import Collection, Item, Refused
from stepline.curate.ledger.cells import Cells
from stepline.curate.ledger.folders import STAGES
from stepline.curate.ledger.inventory import write_inventory
from stepline.curate.ledger.lock import sole_driver
from stepline.curate.ledger.timings import Journal
from stepline.curate.places import Place
from stepline.curate.plan import Plan, fate
from stepline.curate.progress import Progress, Report
from stepline.curate.recipe import Recipe, chosen_stages
from stepline.curate.stage import Failure, Stages
from stepline.curate.units import CELLS, FAILURES
from stepline.errors import DatasetError
from stepline.store import PARTIAL, check_writable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """One run. stages: the table that the recipe's names are looked up in. source: as it was named.
    limit: only the first videos by id.

    report: called as videos finish; say: called with a line now and then.
    """

    recipe: Recipe
    out: str
    stages: Stages
    source: str = ""
    limit: int | None = None
    retry_failed: bool = False
    report: Report = lambda progress: None  # noqa: ARG005
    say: Callable[[str], None] = log.info


@dataclass(frozen=True)
class Outcome:
    """What a run came to. failures: of each video that has one, the first in the recipe's order."""

    videos: int
    failures: tuple[Failure, ...]
    refused: tuple[Refused, ...]
    plan: Plan
    seconds: float


def curate(job: Job, source: Iterable[Item | Refused], last: Callable[[Outcome], None] | None = None) -> Outcome:
    """Take every video of a source through the recipe and return what came of it.

    last: what is done with that while no other driver may touch OUT.
    Raises SettingsError where the recipe does not hold together or another driver has OUT, DatasetError where the
    source is empty or names a video twice, and what ends a run: missing models, a full disk.
    """
    began, cpu = time.monotonic(), time.process_time()
    out = place_of(job)
    plan = Plan.of(job.recipe, chosen_stages(job.recipe, job.stages))
    if out.local is not None:
        check_writable(out.local)
    with sole_driver(out) as killed, scratch_folder() as scratch:
        if killed and out.local is not None:
            _sweep(out.local)
        collection = collected(source, job.limit)
        write_inventory(out, job.recipe, collection, job.source)
        journal = Journal(out)
        try:
            started: dict[str, JsonValue] = {"version": __version__, "engine": job.recipe.engine.name, "cores": cores()}
            journal.write("run", **started, videos=len(collection.items), seconds=time.monotonic() - began)
            plan = _carried_out(job, plan, Cells(out), collection, journal, scratch)
            took = {"seconds": round(time.monotonic() - began, 3), "cpu": round(time.process_time() - cpu, 3)}
            journal.write("ended", **took)
        finally:
            journal.close()
        failures = tuple(_failures(plan, Cells(out), collection.items))
        refused, seconds = tuple(collection.refused), time.monotonic() - began
        outcome = Outcome(len(collection.items), failures, refused, plan, seconds)
        if last is not None:
            last(outcome)
    return outcome


def _sweep(out: Path) -> None:
    """Remove the files that a killed driver's workers left half-written; nobody else ever reads them."""
    for folder in ("", f"{CELLS}/*/*/", f"{FAILURES}/*/", f"{STAGES}/*/"):
        for partial in out.glob(f"{folder}.*{PARTIAL}*"):
            partial.unlink(missing_ok=True)


def place_of(job: Job) -> Place:
    """Return OUT, which workers with another working folder must find, too."""
    place = Place(job.out, job.recipe.places)
    return place if place.local is None else Place(os.path.abspath(place.local), job.recipe.places)


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


def _carried_out(job: Job, plan: Plan, cells: Cells, collection: Collection, journal: Journal, scratch: Path) -> Plan:
    """Run the phases of a recipe: stages of each video, stages over all, and so on."""
    for phase in plan.phases():
        if phase[0].kind == "dataset":
            for stage in phase:
                plan = run_dataset_stage(stage, plan, cells, collection, journal, job.say)
            continue
        names = tuple(stage.name for stage in phase)
        progress = Progress(len(collection.items), names)
        task = Task(plan, cells, names, job.retry_failed, _counting(progress, job.report))
        items = _unfailed(plan, cells, collection.items, plan.before(phase[0]))
        job.report(progress)
        if job.recipe.engine.name == "ray":
            from stepline.curate.engines.ray_data import work_on_ray

            work_on_ray(task, items)
            cells = Cells(cells.place)  # what is known of a store was listed before other machines wrote to it
        else:
            work_through(task, items, job.recipe.engine.workers or cores(), scratch, journal)
    return plan


def _counting(progress: Progress, report: Report) -> Callable[[Finished], None]:
    def told(finished: Finished) -> None:
        progress.count(finished.failure, earlier=not finished.worked)
        report(progress)

    return told


def _unfailed(plan: Plan, cells: Cells, items: Sequence[Item], before: tuple[str, ...]) -> Iterator[Item]:
    """Yield the videos that nothing has failed for so far."""
    for item in items:
        found = fate(plan, cells, item, before) if before else None
        if found is None or found.failure is None:
            yield item


def _failures(plan: Plan, cells: Cells, items: Sequence[Item]) -> Iterator[Failure]:
    stages = tuple(name for name, stage in plan.stages.items() if stage.kind == "video")
    for item in items:
        found = fate(plan, cells, item, stages)
        if found is not None and found.failure is not None:
            yield found.failure
