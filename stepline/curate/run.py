"""`stepline curate` as one call: a source, a recipe, a dataset and its report."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stepline.curate.driver import Job, Report, RunOutcome, curate, place_of
from stepline.curate.remote import RemotePath
from stepline.curate.stage import DATASET, Item, Recipe, Refused
from stepline.curate.store.results import StageFolders


@dataclass(frozen=True)
class Asked:
    """What a run is asked for. source, out: URLs or paths. limit: only the first videos by id."""

    source: str
    recipe: Recipe
    out: str
    limit: int | None = None
    retry_failed: bool = False


def run(asked: Asked, report: Report, say: Callable[[str], None]) -> tuple[RunOutcome, RemotePath]:
    """Make the dataset that a recipe makes of a source, and its report; return what came of it and where it is.

    Raises a SteplineError in one line for what ends a run; whatever was finished is kept for the next one.
    """
    from stepline.curate.export import publish
    from stepline.curate.report import write_report

    job = job_of(asked, report, say)
    out = place_of(job)

    def show(outcome: RunOutcome) -> None:
        if "export" in asked.recipe.stages:
            publish(StageFolders(out).here("export", outcome.plan.dataset_keys["export"]), out / DATASET)
            write_report(out, asked.recipe.report)

    return curate(job, read(asked), show), out


def job_of(asked: Asked, report: Report, say: Callable[[str], None]) -> Job:
    """Return what is asked for as a job of the driver's, with the stages that come along."""
    from stepline.curate.stages import STAGES

    return Job(asked.recipe, asked.out, STAGES, asked.source, asked.limit, asked.retry_failed, report, say)


def read(asked: Asked) -> Iterator[Item | Refused]:
    """Yield the videos of the source, and what it refuses."""
    from stepline.curate.sources import read_source

    return read_source(asked.source, asked.recipe.source, asked.recipe.places)
