"""`stepline curate workflow`: videos to a reviewed data set, with networks where it carries some."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.errors import print_data, print_message
from stepline.cli.options import (
    PATH_TYPE,
    device_option,
    json_option,
    serve_until_stopped,
    set_option,
)
from stepline.cli.progress import curation_bar
from stepline.cli.weights import offer_weights

if TYPE_CHECKING:
    from stepline.curate.workflow.run import StageLine, WorkflowOutcome, WorkflowRequest

DEFAULT_RECIPE = "review"
NETWORK_NAMES = ("nasva", "procx", "wys2")
RECOMMENDED_NETWORKS = "recommended"  # of --train: those that the data carry


@click.command()
@click.argument("source")
@click.option("-o", "--out", type=PATH_TYPE, required=True, help="Folder of the whole workflow.")
@click.option(
    "-r",
    "--recipe",
    default=DEFAULT_RECIPE,
    show_default=True,
    help="A recipe of Stepline, or a TOML file.",
)
@click.option("--dry-run", is_flag=True, help="Work on a sample, forecast the whole, and end.")
@click.option("--review", is_flag=True, help="Serve the clips that wait for an answer.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="For --review. 0: any.")
@click.option("--partly", is_flag=True, help="Go on with the answers so far.")
@click.option(
    "--train",
    "networks",
    multiple=True,
    type=click.Choice([*NETWORK_NAMES, RECOMMENDED_NETWORKS]),
    help="A network to train and measure (repeatable).",
)
@click.option("--licence", help="Licence that you give the data set: an SPDX name.")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes, one per core.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first videos by id.")
@set_option("One setting, e.g. workflow.clips=300.")
@device_option
@json_option
def workflow(out: Path, **options: Any) -> None:
    """Make a data set that people have reviewed.

    \b
    Example:
      stepline curate workflow videos --out evening --review

    Forecasts, curates, and asks people about the least sure clips. Reports how well they agree and
    which networks the data are enough for. Trains those of --train, measures them on held-out
    videos, and publishes the data set in OUT/published.

    Each stage prints one line, with what to do next. The same command goes on where it was.
    """
    from stepline.curate.workflow.run import WORKFLOW_FOLDER, run_workflow
    from stepline.files.atomic_files import check_writable
    from stepline.files.locks import LOCK_NAME, lock_output

    home = out / WORKFLOW_FOLDER
    check_writable(home)
    # One workflow at a time works in a folder.
    with lock_output(home / LOCK_NAME, out), curation_bar() as bar:
        request = _request(out, bar, options)
        offer_weights()
        outcome = run_workflow(request)
        # Answers change what comes next, so the stages are gone through again.
        if options["review"] and outcome.open_clips:
            _serve_review(request, options["port"])
            outcome = run_workflow(request)
    if options["review"] and not outcome.open_clips:
        print_message("no clip waits for an answer")
    if options["as_json"]:
        print_data(_to_json(outcome))


def _request(out: Path, bar: Any, options: dict[str, Any]) -> "WorkflowRequest":
    from stepline.curate.driver import RunRequest
    from stepline.curate.execution.local import gpus_a_worker
    from stepline.curate.stage import load_recipe
    from stepline.curate.stages import STAGE_TABLE
    from stepline.curate.workflow.run import WorkflowRequest
    from stepline.curate.workflow.settings import WorkflowRecipe

    # the recipe, as the options change it
    overrides = list(options["overrides"])
    if options["workers"] is not None:
        overrides.append(f"engine.workers={options['workers']}")
    if options["licence"] is not None:
        overrides.append(f"export.licence={json.dumps(options['licence'])}")
    recipe = load_recipe(options["recipe"], overrides, kind=WorkflowRecipe)
    gpus = gpus_a_worker(recipe.engine.gpus)
    recipe = recipe.model_copy(update={"engine": recipe.engine.model_copy(update={"gpus": gpus})})

    # the curation, and what comes after it
    run = RunRequest(
        recipe.curation,
        str(out),
        STAGE_TABLE,
        options["source"],
        options["limit"],
        on_progress=bar,
        say=print_message,
    )
    # Named twice, a network is trained once.
    names = options["networks"]
    networks = tuple(dict.fromkeys(names))
    return WorkflowRequest(
        run,
        recipe,
        networks=None if RECOMMENDED_NETWORKS in names else networks,
        partly=options["partly"],
        only_forecast=options["dry_run"],
        options=_repeated_options(options),
        report=_print_to_stderr if options["as_json"] else _print_to_stdout,
    )


def _repeated_options(options: dict[str, Any]) -> tuple[str, ...]:
    """Return the options that the next call of the same workflow must have, too."""
    words: list[str] = []
    if options["recipe"] != DEFAULT_RECIPE:
        words += ["--recipe", options["recipe"]]
    for network in options["networks"]:
        words += ["--train", network]
    for name in ("licence", "workers", "limit"):
        if options[name] is not None:
            words += [f"--{name}", str(options[name])]
    for override in options["overrides"]:
        words += ["--set", override]
    return tuple(words)


def _print_to_stdout(line: "StageLine") -> None:
    print_data(str(line))


def _print_to_stderr(line: "StageLine") -> None:
    print_message(str(line))


def _serve_review(request: "WorkflowRequest", port: int) -> None:
    """Serve the open clips until Ctrl-C."""
    from stepline.annotate.server import serve
    from stepline.curate.workflow.run import annotation_queue

    queue = annotation_queue(request)
    with tempfile.TemporaryDirectory(prefix="stepline-") as folder:
        serve_until_stopped(
            lambda: serve(queue, Path(folder), port),
            port,
            notice="{address} (Ctrl-C ends the review; every answer is kept)",
            goodbye="the review ends here",
        )


def _to_json(outcome: "WorkflowOutcome") -> str:
    """Return an outcome as JSON."""
    published = outcome.published
    recommendations = []
    for each in outcome.recommendations:
        recommendations.append({**asdict(each), "is_enough": each.is_enough})
    tree = {
        "stages": [asdict(line) for line in outcome.lines],
        "open_clips": outcome.open_clips,
        "recommendations": recommendations,
        "measures": [{**asdict(each), "is_better": each.is_better} for each in outcome.measures],
        "published": None if published is None else str(published),
    }
    return json.dumps(tree)
