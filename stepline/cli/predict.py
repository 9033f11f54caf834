"""`stepline predict` and `stepline calibrate`: a trained network on a benchmark."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from stepline.cli.options import chosen_settings
from stepline.errors import SettingsError, StoreError

F = TypeVar("F", bound=Callable[..., Any])

BENCHMARKS = ("htm-align", "ht-step", "crosstask")
DENSE = ("youcook2", "tasty")  # what a network that describes answers
NAMED = 5  # missing videos that the terminal names; all are in the file


def benchmark_options(command: F) -> F:
    """Add what both commands take."""
    options = [
        click.option("--features", required=True, type=click.Path(path_type=Path), help="Videos' features: a folder."),
        click.option("--reference", required=True, type=click.Path(path_type=Path), help="The benchmark's own files."),
        click.option("--texts", type=click.Path(path_type=Path), help="Text vectors; else the network's encoder."),
        click.option("--subset", help="Only this split of the reference."),
        click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="A TOML file of settings."),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("benchmark", type=click.Choice((*BENCHMARKS, *DENSE)))
@click.option("--aligner", type=click.Path(path_type=Path), help="A trained network that places texts.")
@click.option("--model", type=click.Path(path_type=Path), help="youcook2, tasty: a network that describes.")
@benchmark_options
@click.option("--transcripts", metavar="SOURCE", help="youcook2, tasty: records of what is said, to be read as well.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Written: JSON, or .csv for ht-step.")
@click.option("--order", type=click.Choice(["none", "given"]), help="given: the texts' order counts.")
@click.option("--allow-missing", is_flag=True, help="Exit 0 although videos are missing.")
def predict(benchmark: Any, out: Path, allow_missing: bool, **options: Any) -> None:
    """Answer a BENCHMARK with a trained network, in its official form, which `stepline evaluate` reads.

    An --aligner answers htm-align, ht-step and crosstask, a --model youcook2 and tasty. Videos without features, or
    with broken ones, are named, listed in OUT.missing.json, and end with exit code 1.

    \b
    Example:
      stepline predict ht-step --aligner trained --features features --reference htstep --out result.json
    """
    wanted, other = ("model", "aligner") if benchmark in DENSE else ("aligner", "model")
    if options[wanted] is None or options[other] is not None:
        raise SettingsError(f"{benchmark} is answered by --{wanted}; give it, and leave --{other} out")
    count, missing = (_described if benchmark in DENSE else _placed)(benchmark, out, options)
    click.echo(f"wrote {out}: {count} of {count + len(missing)} videos", err=True)
    _tell_missing(missing, out)
    if missing and not allow_missing:
        lacking = f"{len(missing)} of {count + len(missing)} videos"
        raise StoreError(f"{lacking} are not in {out}; add what they lack, or --allow-missing")


def _placed(benchmark: Any, out: Path, options: dict[str, Any]) -> tuple[int, dict[str, str]]:
    """Answer with a network that places texts; return how many videos are in the file, and why others are not."""
    from stepline.nasva.infer.benchmarks import predict as answer

    settings = chosen_settings({**options, "model": None}).nasva.aligner
    asked, loaded, given = _inputs(benchmark, options)
    answered = answer(benchmark, asked, loaded, given, out, settings)
    return answered.count, answered.missing


def _described(benchmark: str, out: Path, options: dict[str, Any]) -> tuple[int, dict[str, str]]:
    """Answer with a network that describes; return how many videos are in the file, and why others are not."""
    from stepline.nasva.infer.sources import Features
    from stepline.procx.benchmark import asked_by
    from stepline.procx.benchmark import predict as answer
    from stepline.procx.checkpoint import load_model
    from stepline.procx.sources import Source

    if options["texts"] is not None or options["order"] is not None:
        raise SettingsError(f"{benchmark} asks for no texts; leave --texts and --order out")
    settings = chosen_settings({**options, "model": None}).procx
    loaded, features = load_model(options["model"]), Features(options["features"])
    spoken = None
    if options["transcripts"]:
        settings = settings.model_copy(update={"speech": True})
        records = Source(options["transcripts"]).records()
        spoken = {record.video.id: record.transcript for record in records if record.transcript is not None}
    questions = asked_by(benchmark, options["reference"], options["subset"])
    _tell_unasked(questions.reasons())
    answered = answer(questions.asked, loaded, features, out, settings, spoken=spoken)
    click.echo(f"{answered.steps} steps are told", err=True)
    return answered.count, answered.missing


@click.command()
@click.argument("benchmark", type=click.Choice(BENCHMARKS))
@click.option("--aligner", required=True, type=click.Path(path_type=Path), help="The trained network.")
@benchmark_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def calibrate(benchmark: Any, as_json: bool, **options: Any) -> None:
    """Fit a network's P(shown) to a BENCHMARK's truth, and store it beside the network.

    Use videos that it was not trained on, nor is to be scored on. Printed is how good P(shown) was before, and after a
    fit to the other half of the videos.

    \b
    Example:
      stepline calibrate ht-step --aligner trained --features features --reference htstep --subset val_seen
    """
    from dataclasses import asdict

    from stepline.nasva.infer.calibrate import calibrate as fit

    settings = chosen_settings(options).nasva.aligner
    asked, loaded, given = _inputs(benchmark, options)
    quality, missing = fit(benchmark, asked, loaded, given, settings)
    _tell_missing(missing, None)
    if as_json:
        click.echo(json.dumps(asdict(quality)))
        return
    click.echo(f"{quality.texts} texts of {quality.videos} videos, {quality.shown:.1%} shown")
    click.echo(f"calibration error  {quality.error_before:.3f} before, {quality.error_after:.3f} after")
    click.echo(f"ROC-AUC            {quality.area_before:.3f} before, {quality.area_after:.3f} after")


def _inputs(benchmark: Any, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return what is asked, the network, and what stands for the encoders; a wrong path is told before any work."""
    from stepline.nasva.infer import load
    from stepline.nasva.infer.benchmarks import Given, asked_by
    from stepline.nasva.infer.sources import Features, Vectors

    loaded = load(options["aligner"])
    given = Given(Features(options["features"]), Vectors(options["texts"], loaded))
    questions = asked_by(benchmark, options["reference"], options["subset"])
    _tell_unasked(questions.reasons())
    return questions.asked, loaded, given


def _tell_unasked(reasons: dict[str, int]) -> None:
    for reason, count in reasons.items():
        click.echo(f"not asked: {count} videos of the reference: {reason}", err=True)


def _tell_missing(missing: dict[str, str], out: Path | None) -> None:
    from stepline.store import remove, write_atomic

    for id, reason in list(missing.items())[:NAMED]:
        click.echo(f"missing: {id}: {reason}", err=True)
    if len(missing) > NAMED:
        click.echo(f"missing: {len(missing) - NAMED} more", err=True)
    if out is None:
        return
    file = out.with_name(f"{out.name}.missing.json")
    if missing:
        write_atomic(file, json.dumps(missing, indent=1, ensure_ascii=False) + "\n")
        click.echo(f"wrote {file}", err=True)
    else:
        remove(file)
