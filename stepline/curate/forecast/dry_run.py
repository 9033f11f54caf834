"""A sample of a run's videos worked on for real, beside the run's own OUT; the forecast that follows from it."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from stepline.curate.driver import Job, collected, curate
from stepline.curate.engines.local import cores
from stepline.curate.forecast.costs import read_costs
from stepline.curate.forecast.model import Forecast, forecast
from stepline.curate.forecast.sizes import sample, sizes
from stepline.curate.forecast_settings import ForecastSettings
from stepline.curate.items import Item, Refused
from stepline.curate.ledger.timings import read_timings
from stepline.curate.places import Place
from stepline.curate.recipe import chosen_stages
from stepline.curate.units import CELLS, FAILURES

FOLDER = "forecast"  # below OUT


def dry_run(job: Job, source: Sequence[Item | Refused], settings: ForecastSettings) -> Forecast:
    """Return what the job will take. What the sample made is left in OUT, where the run finds it done.

    A third of the sample goes through the whole recipe, then all of it, then another third: stages over the dataset
    are so seen at two sizes, with what only a first run pays apart.
    """
    collection = collected(source, job.limit)
    known = sizes(collection.items)
    chosen = sample(known.values, settings.sample, settings.seed)
    items = [collection.items[place] for place in chosen]
    beside = replace(job, out=_below(job, items), limit=None)
    third = max(2, -(-len(items) // 3))
    for part in (items[:third], items, items[third : 2 * third]):
        curate(beside, [*part, *collection.refused])
    lend(Place(beside.out, job.recipe.places), Place(job.out, job.recipe.places), _before_dataset(job), job.say)
    costs = read_costs(read_timings(Place(beside.out, job.recipe.places)), [item.id for item in items])
    engine = job.recipe.engine
    workers = engine.workers or cores()
    gpus = engine.gpus * workers
    return forecast(costs, known.values[chosen], known.values, settings, size=known.kind, workers=workers, gpus=gpus)


def _below(job: Job, items: Sequence[Item]) -> str:
    """Return a folder that only this recipe's forecast from these videos has, so that no other's times are read."""
    known = job.recipe.model_dump_json() + "".join(item.id + item.stamp for item in items)
    return f"{job.out.rstrip('/')}/{FOLDER}/{hashlib.sha256(known.encode()).hexdigest()[:12]}"


def _before_dataset(job: Job) -> list[str]:
    """Return the video stages whose results do not hang on which other videos there are."""
    names: list[str] = []
    for stage in chosen_stages(job.recipe, job.stages):
        if stage.kind == "video" and all(need in names for need in stage.needs):
            names.append(stage.name)
    return names


def lend(made: Place, out: Place, stages: Sequence[str], say: Callable[[str], None]) -> int:
    """Give the results of some stages below one place to another that lacks them; return how many."""
    count = 0
    for kind in (CELLS, FAILURES):
        for stage in stages:
            folder = made / f"{kind}/{stage}"
            if folder.local is not None and not folder.exists():
                continue
            for found in folder.list():
                source, target = folder / found.name, out / f"{kind}/{stage}/{found.name}"
                if not target.exists():
                    _copy(source, target)
                    count += 1
    say(f"{count} results of the sample are kept for the run")
    return count


def _copy(source: Place, target: Place) -> None:
    if source.local is not None and target.local is not None:
        target.local.parent.mkdir(parents=True, exist_ok=True)
        os.link(source.local, target.local)  # there whole or not at all
    else:
        target.write(source.read())
