"""`stepline train`: a network from records and features."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.group import Group

if TYPE_CHECKING:
    from stepline.nasva.run import Prepared
    from stepline.training import Progress


@click.group(cls=Group)
def train() -> None:
    """Train a network; under torchrun, several processes, GPUs or nodes train as one."""


@train.command()
@click.option("--features", type=click.Path(path_type=Path), required=True, help="Store of the videos' features.")
@click.option("--narrations", metavar="SOURCE", help="What is said: records, DATASET:PATH, or a store with times.")
@click.option("--steps", metavar="SOURCE", help="Steps and their places: the same kinds of source.")
@click.option("--narration-vectors", metavar="VECTORS", help="A store of text features, minilm, conse or clip:FOLDER.")
@click.option("--step-vectors", metavar="VECTORS", help="The same, of the steps.")
@click.option("--exclude", multiple=True, type=click.Path(path_type=Path), help="A list of evaluation videos.")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Folder of the run.")
@click.option("--start", type=click.Path(path_type=Path), help="Network to train on: ours, or the authors' .pth.")
@click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="A TOML file of settings.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, e.g. train.epochs=3.")
@click.option("--tensorboard", is_flag=True, help="Write curves for TensorBoard as well.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def nasva(out: Path, settings_file: Path | None, overrides: tuple[str, ...], **options: Any) -> None:
    """Train the grounding network (NaSVA) on narrations, on steps, or on both, each a sample a video and epoch.

    A run that was stopped goes on when the same command is given again. Under torchrun, the processes share each batch:
    torchrun --nproc-per-node 4 -m stepline train nasva ...

    \b
    Example:
      stepline train nasva --features store --steps howtostep:HowToStep.tar.gz --out run --set train.bf16=true
    """
    from stepline.nasva.run import Sources, train_run
    from stepline.nasva.run_settings import RunSettings
    from stepline.settings import load_settings
    from stepline.training import Curves, end_processes, is_first

    settings = load_settings(RunSettings, settings_file, overrides)
    names = ("features", "narrations", "steps", "narration_vectors", "step_vectors")
    sources = Sources(**{name: options[name] for name in names}, excluded=tuple(options["exclude"]))
    curves = Curves(out / "events") if options["tensorboard"] else None
    seen: list[Progress] = []
    with shown_steps(curves) as report:

        def watch(progress: "Progress") -> None:
            seen[:] = [progress]
            report(progress)

        told = partial(_tell, excluding=bool(sources.excluded))
        train_run(sources, out, settings, start=options["start"], report=watch, told=told)
    if is_first():
        _conclude(out, seen[0] if seen else None, as_json=options["as_json"])
    end_processes()


def _tell(prepared: "Prepared", *, excluding: bool) -> None:
    """Say what is trained on, and what is left out; also that nothing was, where lists of videos were to be."""
    from stepline.nasva.samples import EXCLUDED
    from stepline.training import is_first

    if not is_first():
        return
    samples = prepared.samples
    told = f"{len(samples)} samples of {len(samples.videos)} videos, {len(prepared.held_out)} more held out"
    click.echo(f"{told}; {samples.labelled} of {samples.texts} texts have a label", err=True)
    for reason, count in samples.reasons().items():
        click.echo(f"left out {count}: {reason}", err=True)
    if excluding and EXCLUDED not in samples.reasons():
        click.echo("warning: no video of the sources is in the lists of --exclude", err=True)


def _conclude(out: Path, last: "Progress | None", *, as_json: bool) -> None:
    from stepline.nasva.run import BEST, FINAL
    from stepline.training import peak_memory

    files = [str(out / name) for name in (FINAL, BEST) if (out / name).exists()]
    if as_json:
        known = {} if last is None else {"steps": last.steps, "loss": last.loss, "seconds": round(last.seconds, 1)}
        waited = {} if last is None else {"waited": round(last.waited, 1)}
        click.echo(json.dumps({"files": files, "peak_bytes": peak_memory(), **known, **waited}))
        return
    if last is None:
        click.echo("the run was finished before", err=True)
    else:
        share = last.waited / max(last.seconds, 1e-9)
        told = f"{last.steps} steps, loss {last.loss:.3f}, {last.seconds:.1f} s, {share:.1%} of it waiting for features"
        click.echo(f"{told}, at most {peak_memory() / 2**30:.2f} GiB", err=True)
    for file in files:
        click.echo(file)


@contextmanager
def shown_steps(curves: Any) -> Iterator[Callable[["Progress"], None]]:
    """Yield what shows each step: a bar on a terminal, else a line an epoch's end; and TensorBoard's curves."""
    from stepline.cli.progress import training_bar
    from stepline.training import is_first

    with training_bar() as bar:

        def report(progress: "Progress") -> None:
            if not is_first():
                return
            bar(progress)
            if curves is not None:
                curves.write(progress)

        try:
            yield report
        finally:
            if curves is not None:
                curves.close()
