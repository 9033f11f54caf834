"""`stepline curate`: a data set of many videos, its report, and the audit of a sample by people."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.errors import Group, print_data, print_message, reject_removed_command
from stepline.cli.options import (
    device_option,
    json_option,
    port_option,
    preset_option,
    serve_until_stopped,
    set_option,
)
from stepline.cli.progress import curation_progress
from stepline.cli.weights import offer_weights
from stepline.errors import SettingsError

if TYPE_CHECKING:
    from stepline.curate.audit import AuditSample
    from stepline.curate.driver import RunOutcome
    from stepline.curate.settings import ReportSettings
    from stepline.curate.stage import StageFailure
    from stepline.curate.status import RunStatus
    from stepline.files.remote import RemotePath
    from stepline.review import AnswerLog

MAX_NAMED_FAILURES = 5  # failures that are printed one by one


class DefaultCommandGroup(Group):
    """A group whose first command may be left out: `curate SOURCE` is `curate run SOURCE`."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Insert "run" if the first argument names no command."""
        if arguments and arguments[0] not in {*self.commands, "-h", "--help"}:
            reject_removed_command(context, arguments[0])
            arguments = ["run", *arguments]
        return super().parse_args(context, arguments)


@click.group(cls=DefaultCommandGroup)
def curate() -> None:
    """Make a data set of many videos.

    `curate SOURCE ...` is short for `curate run SOURCE ...`.
    """


@curate.command()
@click.argument("source")
@click.option("-r", "--recipe", default="howtostep", help="A recipe of Stepline, or a TOML file.")
@click.option("-o", "--out", required=True, help="Folder or URL for the results.")
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    help="Processes of this machine, or a Ray cluster.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="Worker processes. Default: one per core."
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the first videos by id.")
@click.option("--retry-failed", is_flag=True, help="Try again what failed before.")
@click.option("--dry-run", is_flag=True, hidden=True)
@preset_option("curate run")
@set_option("One setting, e.g. limits.seconds=600.")
@device_option
@json_option
def run(source: str, recipe: str, out: str, **options: Any) -> None:
    """Make a data set of many videos by a recipe.

    \b
    Example:
      stepline curate videos --recipe howtostep --out dataset --limit 20

    Writes the data set, its card and its report.

    SOURCE: a folder or bucket of videos, a list (.csv, .parquet, .jsonl), or HowTo100M's
    tables. The same command continues a run that was stopped. What depends on a
    changed setting is made again.
    """
    from stepline.curate.driver import RunRequest
    from stepline.curate.driver import curate as carry_out
    from stepline.curate.execution.local import gpus_per_worker
    from stepline.curate.stage import load_recipe
    from stepline.curate.stages import STAGE_TABLE

    if options["dry_run"]:
        raise SettingsError(
            "--dry-run: no longer an option; give --limit 24, "
            "and `stepline curate status OUT` shows the time that these videos took"
        )
    engine = {"name": options["engine"], "workers": options["workers"]}
    overrides = list(options["overrides"])
    overrides += [f"engine.{key}={json.dumps(value)}" for key, value in engine.items() if value]
    run_recipe = load_recipe(recipe, overrides, preset=options["preset"])
    offer_weights()
    # How much of a GPU each worker takes, by the recipe or by what is here.
    gpus = gpus_per_worker(run_recipe.engine.gpus)
    run_engine = run_recipe.engine.model_copy(update={"gpus": gpus})
    run_recipe = run_recipe.model_copy(update={"engine": run_engine})
    with _sigterm_as_interrupt(), curation_progress() as report:
        request = RunRequest(
            run_recipe,
            out,
            STAGE_TABLE,
            source,
            options["limit"],
            options["retry_failed"],
            report,
            print_message,
        )
        outcome, folder = carry_out(request)
    _print_failures(outcome)
    address = folder.display_url
    dataset = f"{address}/dataset" if "export" in run_recipe.stages else address
    if not options["as_json"]:
        print_data(dataset)
        return
    summary = {
        "videos": outcome.videos,
        "failed": len(outcome.failures),
        "refused": len(outcome.refused),
        "seconds": round(outcome.seconds, 1),
        "dataset": dataset,
    }
    print_data(json.dumps(summary))


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Make SIGTERM end a run as Ctrl-C does.

    Spot machines and batch systems announce their end by it.
    """
    usual = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)


def _print_failures(outcome: "RunOutcome") -> None:
    refused = [f"not taken: {video.id}: {video.reason}" for video in outcome.refused]
    print_message(*refused[:MAX_NAMED_FAILURES])
    print_message(*map(_failure_line, outcome.failures[:MAX_NAMED_FAILURES]))
    if len(outcome.failures) > MAX_NAMED_FAILURES:
        more = len(outcome.failures) - MAX_NAMED_FAILURES
        print_message(f"and {more} more (`stepline curate status --json` names them)")
    count = outcome.videos - len(outcome.failures)
    print_message(
        f"{count} of {outcome.videos} videos went through, {len(outcome.failures)} left out or "
        f"failed, {len(outcome.refused)} not taken; {outcome.seconds:.0f} s"
    )


def _failure_line(failure: "StageFailure") -> str:
    return f"{failure.kind}: {failure.id}: {failure.stage}: {failure.reason}"


@curate.command()
@click.argument("out")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every failure.")
def status(out: str, as_json: bool) -> None:
    """Show the progress of the run in OUT.

    \b
    Example:
      stepline curate status dataset

    For each stage: tasks, failures, rate and time left.
    """
    from stepline.curate.stages import STAGE_TABLE
    from stepline.curate.status import run_status
    from stepline.curate.store.run_log import read_recipe
    from stepline.files.remote import RemotePath

    recipe = read_recipe(RemotePath(out))
    state = run_status(RemotePath(out, recipe.remote), STAGE_TABLE)
    text = json.dumps(asdict(state)) if as_json else _status_table(state)
    print_data(text)


def _status_table(state: "RunStatus") -> str:
    """Return the status of a run as a table, a row per stage."""
    worker = state.worker or "no process works on it now"
    lines = [f"{state.videos} videos, {state.refused} not taken; {worker}"]

    # a row per stage
    lines.append(f"{'stage':<12}{'done':>9}{'failed':>9}{'waiting':>9}{'CPU s':>9}")
    for stage in state.stages:
        failed = sum(stage.failed.values())
        lines.append(
            f"{stage.name:<12}{stage.done:>9,}{failed:>9,}{stage.waiting:>9,}{stage.cpu_seconds:>9,.0f}"
        )

    # time left, and what the GPUs could not do
    if state.tasks_per_hour is not None:
        hours = (state.seconds_left or 0) / 3600
        lines.append(
            f"{state.tasks_per_hour:,.0f} tasks an hour in the last run; "
            f"{hours:.1f} h left at this rate"
        )
    if state.gpu_fallbacks:
        lines.append(
            f"{state.gpu_fallbacks:,} tasks were done on the CPU: their GPU was short of memory, "
            "or lost"
        )

    # what failed, and what other runs left here
    lines += map(_failure_line, state.failures[:MAX_NAMED_FAILURES])
    if len(state.failures) > MAX_NAMED_FAILURES:
        more = len(state.failures) - MAX_NAMED_FAILURES
        lines.append(f"and {more} more (--json lists them)")
    if state.unused_results:
        size = sum(state.unused_results.values()) / 1e6
        lines.append(
            f"{len(state.unused_results)} folders of other recipes or videos hold {size:,.1f} MB; "
            "remove those that no run will use again:"
        )
        lines += [f"  {name}" for name in list(state.unused_results)[:MAX_NAMED_FAILURES]]
    return "\n".join(lines)


@curate.command("report")
@click.argument("out")
@set_option("One setting, e.g. examples=30.")
@device_option
def report(out: str, overrides: tuple[str, ...]) -> None:
    """Write the report of a data set again.

    \b
    Example:
      stepline curate report dataset --set examples=30

    OUT/report.html then has the audit's verdicts so far, or follows other settings.
    """
    from stepline.curate.report.write import write_report

    # The recipe in OUT says how the report was made.
    folder, settings = _load_report_settings(out, overrides)
    write_report(folder, settings)
    print_data((folder / "report.html").display_url)


@curate.command("audit")
@click.argument("out")
@port_option(help="Local port. 0: any free one.")
@click.option("--open", "browse", is_flag=True, help="Open a browser.")
@click.option("--table", is_flag=True, help="Print the table and end. Nothing is served.")
@set_option("One setting, e.g. audit_videos=20.")
@device_option
def audit(out: str, port: int, browse: bool, table: bool, overrides: tuple[str, ...]) -> None:
    """Let people check a sample of a data set.

    \b
    Example:
      stepline curate audit dataset --port 8080

    Serves the report of OUT on this machine, and prints the table of the verdicts.

    Every verdict is in OUT/audit/verdicts.jsonl before the next text is shown. With verdicts of two
    people or more, each under their own name, the table also has their agreement.
    """
    from stepline.curate.audit import serve_audit_page
    from stepline.curate.report.page import render_page
    from stepline.curate.report.write import make_report, open_verdicts, write_report

    # the sample, and the verdicts so far
    folder, settings = _load_report_settings(out, overrides)
    verdicts = open_verdicts(folder)
    audit_report = make_report(folder, settings, with_audit=not table)
    sample = audit_report.sample

    def page() -> str:
        return render_page(audit_report, list(verdicts), with_audit=True)

    if not table:
        serve_until_stopped(
            lambda: serve_audit_page(page, sample, verdicts, port),
            port,
            notice="{address}#audit (Ctrl-C ends)",
            goodbye="stopped; every verdict is kept",
            browse=browse,
        )

    # the report, and how well they agree
    write_report(folder, settings, audit_report)
    _print_audit_table(sample, verdicts)


def _load_report_settings(
    out: str, overrides: tuple[str, ...]
) -> "tuple[RemotePath, ReportSettings]":
    """Return the folder OUT, and the report settings of its recipe, changed by --set."""
    from stepline.curate.report.write import read_report_recipe
    from stepline.files.remote import RemotePath
    from stepline.settings import load_settings

    # What --set gives is read after the recipe's own values, and changes them.
    recipe = read_report_recipe(RemotePath(out))
    tree = recipe.report.model_dump(mode="json", exclude_none=True)
    values = [f"{key}={json.dumps(value)}" for key, value in tree.items()]
    settings = load_settings(type(recipe.report), None, [*values, *overrides])
    return RemotePath(out, recipe.remote), settings


def _print_audit_table(sample: "AuditSample", verdicts: "AnswerLog") -> None:
    """Print the table of the manual check (NaSVA, Table 5) and the agreement of annotators."""
    from stepline.curate.audit import annotator_agreements, audit_table

    # Read once: people may answer while the table is made.
    verdict_list = list(verdicts)
    print_data(f"{'texts':<24}{'checked':>8}  {'alignable':<24}well aligned")
    for row in audit_table(sample, verdict_list):
        print_data(
            f"{row.name:<24}{row.alignable.texts:>8}  {row.alignable!s:<24}{row.well_aligned}"
        )
    agreements = annotator_agreements(sample, verdict_list)
    for agreement in agreements:
        people = ", ".join(agreement.annotators)
        print_data(
            f"{agreement.question}: {agreement.kappa_author} kappa {agreement} over "
            f"{agreement.texts} texts by {people}"
        )
    if not agreements:
        print_data("agreement: not known until two people have checked the same texts")
