"""The local engine: worker processes of this machine."""

import os
from collections.abc import Iterable
from pathlib import Path

from stepline.curate.engines.fetching import Fetcher
from stepline.curate.engines.work import Round, Task
from stepline.curate.items import Item
from stepline.curate.ledger.folders import Folders
from stepline.curate.ledger.timings import Journal
from stepline.curate.workers.order import Setup
from stepline.curate.workers.team import Team

MIB = 2**20


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def setup_of(task: Task) -> Setup:
    """Return what workers are told, with the folders of dataset stages that their units need on this machine."""
    plan = task.plan
    stages = {name: stage for name, stage in plan.stages.items() if stage.kind == "video"}
    needed = {need for name in task.stages for need in stages[name].needs if need in plan.dataset_keys}
    folders = Folders(task.cells.place)
    brought = {need: folders.here(need, plan.dataset_keys[need]) for need in sorted(needed)}
    return Setup(plan.recipe, stages, task.cells.place.url, brought)


def work_through(task: Task, items: Iterable[Item], size: int, scratch: Path, journal: Journal) -> None:
    """Do the stages of a task for all items with `size` worker processes.

    Raises SteplineError where the run must end; what was finished is kept.
    """
    engine = task.plan.recipe.engine
    fetcher = Fetcher(scratch, engine.cache * MIB, task.plan.recipe.places)
    team = Team(setup_of(task), size, journal, scratch)
    try:
        Round(task, team, fetcher, iter(items), engine.ahead * size).run()
    finally:
        team.close()
        fetcher.close()
