"""`stepline curate`: many videos to a dataset."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.group import Group
from stepline.cli.progress import curation_bar

if TYPE_CHECKING:
    from stepline.curate.driver import Outcome
    from stepline.curate.recipe import Recipe
    from stepline.curate.run import Asked
    from stepline.curate.status import Status

NAMED = 5  # failures that are said one by one


class RunByDefault(Group):
    """A group whose first command stands for itself: `curate SOURCE` is `curate run SOURCE`."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Put the command's name before arguments that begin with none."""
        if arguments and arguments[0] not in {*self.commands, "-h", "--help"}:
            arguments = ["run", *arguments]
        return super().parse_args(context, arguments)


@click.group(cls=RunByDefault)
def curate() -> None:
    """Make a dataset of many videos; `curate SOURCE ...` is short for `curate run SOURCE ...`."""


@curate.command()
@click.argument("source")
@click.option("-r", "--recipe", default="howtostep", show_default=True, help="One that comes along, or a TOML file.")
@click.option("-o", "--out", required=True, help="Folder or URL.")
@click.option("--engine", type=click.Choice(["local", "ray"]), help="Processes of this machine, or a Ray cluster.")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes; one a core by default.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first videos by id.")
@click.option("--retry-failed", is_flag=True, help="Try again what failed before.")
@click.option("--dry-run", is_flag=True, help="Work on a sample, tell what the whole would take, and end.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, e.g. limits.seconds=600.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run(source: str, recipe: str, out: str, **options: Any) -> None:
    """Take every video of SOURCE through a recipe and write the dataset, its card and its report.

    SOURCE: a folder or bucket of videos, a list (.csv, .parquet, .jsonl), WebDataset tars, or HowTo100M's tables. Asked
    for again, a run that was stopped goes on where it was; what a changed setting decides is made anew.

    \b
    Example:
      stepline curate videos --recipe howtostep --out dataset --limit 20
    """
    from stepline.curate.run import Asked
    from stepline.curate.run import run as carry_out

    chosen = _recipe(recipe, options)
    asked = Asked(source, chosen, out, options["limit"], options["retry_failed"])
    if options["dry_run"]:
        _forecast(asked, options["as_json"])
        return
    with curation_bar() as report:
        outcome, place = carry_out(asked, report, lambda line: click.echo(line, err=True))
    _tell_failures(outcome)
    told = {"videos": outcome.videos, "failed": len(outcome.failures), "refused": len(outcome.refused)}
    dataset = f"{place.shown}/dataset" if "export" in chosen.stages else place.shown
    as_json = json.dumps({**told, "seconds": round(outcome.seconds, 1), "dataset": dataset})
    click.echo(as_json if options["as_json"] else dataset)


def _forecast(asked: "Asked", as_json: bool) -> None:
    from stepline.curate.forecast import dry_run, written
    from stepline.curate.forecast.written import as_json as to_json
    from stepline.curate.run import job_of, read

    with curation_bar() as report:
        job = job_of(asked, report, lambda line: click.echo(line, err=True))
        told = dry_run(job, list(read(asked)), asked.recipe.forecast)
    click.echo(to_json(told) if as_json else written(told))


def _recipe(name: str, options: dict[str, Any]) -> "Recipe":
    from stepline.curate.recipe import load_recipe

    engine = [f"engine.name={json.dumps(options['engine'])}"] if options["engine"] else []
    workers = [f"engine.workers={options['workers']}"] if options["workers"] else []
    return load_recipe(name, [*options["overrides"], *engine, *workers])


def _tell_failures(outcome: "Outcome") -> None:
    for one in outcome.refused[:NAMED]:
        click.echo(f"not taken: {one.id}: {one.reason}", err=True)
    for failure in outcome.failures[:NAMED]:
        click.echo(f"{failure.kind}: {failure.id}: {failure.stage}: {failure.reason}", err=True)
    kept = outcome.videos - len(outcome.failures)
    left = f"{len(outcome.failures)} left out or failed, {len(outcome.refused)} not taken"
    click.echo(f"{kept} of {outcome.videos} videos went through, {left}; {outcome.seconds:.0f} s", err=True)


@curate.command()
@click.argument("out")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every failure.")
def status(out: str, as_json: bool) -> None:
    """Tell what the run on OUT has come to: each stage's units, failures, rate and time left.

    \b
    Example:
      stepline curate status dataset
    """
    from stepline.curate.ledger.inventory import read_recipe
    from stepline.curate.places import Place
    from stepline.curate.stages import STAGES
    from stepline.curate.status import status as find

    place = Place(out)
    found = find(Place(out, read_recipe(place).places), STAGES)
    click.echo(json.dumps(asdict(found)) if as_json else _table(found))


def _table(found: "Status") -> str:
    """Return a status as a table, a row a stage."""
    lines = [f"{found.videos} videos, {found.refused} not taken; {found.worker or 'nobody works on it now'}"]
    lines.append(f"{'stage':<12}{'done':>9}{'failed':>9}{'waiting':>9}{'CPU s':>9}")
    for stage in found.stages:
        failed = sum(stage.failed.values())
        lines.append(f"{stage.name:<12}{stage.done:>9,}{failed:>9,}{stage.waiting:>9,}{stage.cpu:>9,.0f}")
    if found.left is not None and found.rate is not None:
        lines.append(f"{found.rate:,.0f} units an hour in the last run; {found.left / 3600:.1f} h left at this rate")
    lines += [f"{one.kind}: {one.id}: {one.stage}: {one.reason}" for one in found.failures[:NAMED]]
    if len(found.failures) > NAMED:
        lines.append(f"and {len(found.failures) - NAMED} more (--json lists them)")
    if found.others:
        held = f"{len(found.others)} folders of other recipes or videos hold {sum(found.others.values()) / 1e6:,.1f} MB"
        lines.append(f"{held}; those that no run shall come back to can be removed:")
        lines += [f"  {name}" for name in list(found.others)[:NAMED]]
    return "\n".join(lines)
