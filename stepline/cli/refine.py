"""`stepline refine`: where a dataset's steps are shown, by self-training."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepline.nasva.rounds import RoundReport
    from stepline.training import Progress

COLUMNS = ("kept", "alignable", "moved", "iou", "agreement", "inside", "shown")


@click.command()
@click.argument("dataset")
@click.option("--features", type=click.Path(path_type=Path), required=True, help="Store of the videos' features.")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Folder of the run.")
@click.option("--step-vectors", metavar="VECTORS", default="minilm", show_default=True,
              help="A store of text features, minilm, conse or clip:FOLDER.")  # fmt: skip
@click.option("--narrations", metavar="SOURCE", help="What is said: the final network learns it too (W + S).")
@click.option("--narration-vectors", metavar="VECTORS", help="The same; else their own, or the steps' encoder.")
@click.option("--exclude", multiple=True, type=click.Path(path_type=Path), help="A list of evaluation videos.")
@click.option("--rounds", type=click.IntRange(min=0, max=20), help="Times that labels are made anew.  [default: 1]")
@click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="A TOML file of settings.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, e.g. rounds.teachers=1.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def refine(dataset: str, features: Path, out: Path, settings_file: Path | None, **options: Any) -> None:
    """Place the steps of DATASET (records, or NAME:PATH of a public one) where they are shown, by self-training.

    First labels are where the steps are said. Networks learn them, stop early and label all videos anew; the last
    labels are written as records (refined.parquet), beside a network that was trained on them (aligner.safetensors).
    A run that was stopped goes on, round by round, when the same command is given again.

    \b
    Example:
      stepline refine howtostep:HowToStep.tar.gz --features store --out refined --set rounds.teachers=3
    """
    from stepline.nasva.refine_settings import RefineRunSettings
    from stepline.nasva.refining import REFINED, RefineSources, refine_dataset
    from stepline.settings import load_settings

    given = [] if options["rounds"] is None else [f"rounds.rounds={options['rounds']}"]
    settings = load_settings(RefineRunSettings, settings_file, [*options["overrides"], *given])
    names = ("step_vectors", "narrations", "narration_vectors")
    given_sources = {name: options[name] for name in names}
    sources = RefineSources(dataset, features, **given_sources, excluded=tuple(options["exclude"]))
    done = refine_dataset(sources, out, settings, _shown())
    for one in done.omitted[:3]:
        click.echo(f"left out {one.video}: {one.reason} {one.value}".rstrip(), err=True)
    click.echo(f"{done.videos} videos refined, {len(done.omitted)} left out", err=True)
    files = [str(out / REFINED), str(out / "aligner.safetensors")]
    if options["as_json"]:
        click.echo(json.dumps({"rounds": [asdict(one) for one in done.trained.rounds], "files": files}))
        return
    click.echo(_table(done.trained.rounds), nl=False)
    for file in files:
        click.echo(f"wrote {file}", err=True)


def _table(rounds: "tuple[RoundReport, ...]") -> str:
    """Return a line a round; shares in per cent, seconds, - where it is not known."""
    lines: list[tuple[str, ...]] = [("round", "texts", *COLUMNS)]
    for one in rounds:
        values = [getattr(one, name) for name in COLUMNS]
        lines.append((str(one.number), str(one.texts), *(_cell(*pair) for pair in zip(COLUMNS, values, strict=True))))
    return "".join("  ".join(f"{cell:>9}" for cell in line) + "\n" for line in lines)


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f} s" if name == "moved" else f"{100 * value:.1f}"


def _shown() -> "Callable[[str, Progress], None]":
    """Return what tells, a training at a time, how it ended."""

    def report(name: str, progress: "Progress") -> None:
        if progress.step == progress.steps:
            click.echo(f"{name}: {progress.steps} steps, loss {progress.loss:.3f}, {progress.seconds:.1f} s", err=True)

    return report
