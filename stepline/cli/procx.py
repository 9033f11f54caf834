"""`stepline train procx`: the network that finds and describes the steps of silent videos."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from stepline.procx.run import Outcome, Prepared


@click.command("procx")
@click.option("--features", type=click.Path(path_type=Path), required=True, help="Store of the videos' features.")
@click.option("--steps", metavar="SOURCE", required=True, help="Videos with steps: records or DATASET:PATH.")
@click.option("--subset", help="Only this split of the dataset.")
@click.option("--words", metavar="SOURCE", multiple=True, help="Further texts that the vocabulary is to hold.")
@click.option("--exclude", multiple=True, type=click.Path(path_type=Path), help="A list of evaluation videos.")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Folder of the run.")
@click.option("--start", type=click.Path(path_type=Path), help="Network to train on: fine-tuning.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Trainings; mean and spread.")
@click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="A TOML file of settings.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, e.g. train.epochs=3.")
@click.option("--tensorboard", is_flag=True, help="Write curves for TensorBoard as well.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def train_procx(out: Path, settings_file: Path | None, overrides: tuple[str, ...], **options: Any) -> None:
    """Train the network that finds and describes the steps of silent videos (ProcX).

    Pre-train on what `stepline sieve-swap` made, then fine-tune with --start. A run that was stopped goes on when the
    same command is given again. Under torchrun, the processes share each batch.

    \b
    Example:
      stepline train procx --features store --steps youcook2:yc2_train.json --start pretrained --out run
    """
    from stepline.cli.train import shown_steps
    from stepline.procx.run import Sources, train_run
    from stepline.procx.run_settings import ProcxRunSettings
    from stepline.settings import load_settings
    from stepline.training import Curves, end_processes, is_first

    settings = load_settings(ProcxRunSettings, settings_file, overrides)
    names = ("features", "steps", "subset", "words")
    sources = Sources(**{name: options[name] for name in names}, excluded=tuple(options["exclude"]))
    curves = Curves(out / "events") if options["tensorboard"] else None
    with shown_steps(curves) as report:
        outcomes = train_run(
            sources, out, settings, start=options["start"], seeds=options["seeds"], report=report, told=_tell
        )
    if is_first():
        _conclude(outcomes, as_json=options["as_json"])
    end_processes()


def _tell(prepared: "Prepared") -> None:
    """Say what is trained on, what is left out, and what the network cannot hold."""
    from stepline.training import is_first

    if not is_first():
        return
    samples, queries = prepared.samples, prepared.settings.model.queries
    told = f"{sum(samples.counts)} steps of {len(samples)} videos, {len(prepared.held_out)} more held out"
    click.echo(f"{told}; a vocabulary of {len(prepared.vocabulary)} tokens", err=True)
    for reason, count in samples.reasons().items():
        click.echo(f"left out {count}: {reason}", err=True)
    if prepared.crowded:
        cure = "those that fit best are learned; raise model.queries"
        click.echo(f"warning: {prepared.crowded} videos have more steps than {queries} queries: {cure}", err=True)


def _conclude(outcomes: "list[Outcome]", *, as_json: bool) -> None:
    from stepline.procx.run import BEST, FINAL, summary
    from stepline.training import peak_memory

    files = [str(one.folder / name) for one in outcomes for name in (FINAL, BEST) if (one.folder / name).exists()]
    found = summary(outcomes)
    if as_json:
        click.echo(json.dumps({"files": files, "peak_bytes": peak_memory(), **found}))
        return
    for name, told in (("score", "held out, SODA-D"), ("loss", "loss")):
        if found[name] is not None:
            spread = f" ± {found[name]['spread']:.3f} over {len(outcomes)} seeds" if len(outcomes) > 1 else ""
            click.echo(f"{told} {found[name]['mean']:.3f}{spread}", err=True)
    for file in files:
        click.echo(file)
