"""`stepline predict` and `stepline calibrate`: a trained network on a benchmark."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from stepline.cli.options import chosen_settings
from stepline.errors import StoreError

F = TypeVar("F", bound=Callable[..., Any])

BENCHMARKS = ("htm-align", "ht-step", "crosstask")
NAMED = 5   # missing videos that the terminal names; all are in the file


def benchmark_options(command: F) -> F:
    """Add what both commands take."""
    options = [
        click.argument("benchmark", type=click.Choice(BENCHMARKS)),
        click.option("--aligner", required=True, type=click.Path(path_type=Path), help="The trained network."),
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
@benchmark_options
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Written: JSON, or .csv for ht-step.")
@click.option("--order", type=click.Choice(["none", "given"]), help="given: the texts' order counts.")
@click.option("--allow-missing", is_flag=True, help="Exit 0 although videos are missing.")
def predict(benchmark: Any, out: Path, allow_missing: bool, **options: Any) -> None:
    """Answer a BENCHMARK with a trained network, in its official form, which `stepline evaluate` reads.

    Videos without features, or with broken ones, are named, listed in OUT.missing.json, and end with exit code 1.

    \b
    Example:
      stepline predict ht-step --aligner trained --features features --reference htstep --out result.json
    """
    from stepline.nasva.infer.benchmarks import predict as answer

    settings = chosen_settings(options).nasva.aligner
    asked, loaded, given = _inputs(benchmark, options)
    answered = answer(benchmark, asked, loaded, given, out, settings)
    click.echo(f"wrote {out}: {answered.count} of {len(asked)} videos", err=True)
    _tell_missing(answered.missing, out)
    if answered.missing and not allow_missing:
        count = f"{len(answered.missing)} of {len(asked)} videos"
        raise StoreError(f"{count} are not in {out}; add what they lack, or --allow-missing")


@click.command()
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
    for reason, count in questions.reasons().items():
        click.echo(f"not asked: {count} videos of the reference: {reason}", err=True)
    return questions.asked, loaded, given


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
