"""`stepline train`: a network from records and features.

`stepline train procx`: the network that finds and describes the steps of silent videos.

`stepline train summarizer`: which seconds of a video matter, learnt from videos whose steps people marked.

`stepline refine`: where a dataset's steps are shown, by self-training.

`stepline train wys2` and `python -m research wys2-tables`: the detector of visual narrations.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.common import Group
from stepline.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepline.nasva.pseudo_labels import RoundReport
    from stepline.nasva.train import Prepared
    from stepline.procx.train import PreparedRun as ProcxPrepared
    from stepline.procx.train import SeedResult
    from stepline.records import Record
    from stepline.training.loop import Progress


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
    from stepline.nasva.network_settings import RunSettings
    from stepline.nasva.train import Sources, train_run
    from stepline.settings import load_settings
    from stepline.training.distributed import end_processes, is_first
    from stepline.training.loop import Curves

    settings = load_settings(RunSettings, settings_file, overrides)
    names = ("features", "narrations", "steps", "narration_vectors", "step_vectors")
    sources = Sources(**{name: options[name] for name in names}, excluded=tuple(options["exclude"]))
    curves = Curves(out / "events") if options["tensorboard"] else None
    seen: list[Progress] = []
    with shown_steps(curves) as report:

        def watch(progress: "Progress") -> None:
            seen[:] = [progress]
            report(progress)

        told = partial(_say_nasva_samples, excluding=bool(sources.excluded))
        train_run(sources, out, settings, start=options["start"], report=watch, told=told)
    if is_first():
        _conclude(out, seen[0] if seen else None, as_json=options["as_json"])
    end_processes()


def _say_nasva_samples(prepared: "Prepared", *, excluding: bool) -> None:
    """Say what is trained on, and what is left out; also that nothing was, where lists of videos were to be."""
    from stepline.training.distributed import is_first
    from stepline.training.gather import EXCLUDED

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
    from stepline.nasva.train import BEST, FINAL
    from stepline.training.distributed import peak_memory

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
    from stepline.cli.common import training_bar
    from stepline.training.distributed import is_first

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
    from stepline.procx.settings import ProcxRunSettings
    from stepline.procx.train import ProcxSources as ProcxSources
    from stepline.procx.train import train_procx_run
    from stepline.settings import load_settings
    from stepline.training.distributed import end_processes, is_first
    from stepline.training.loop import Curves

    settings = load_settings(ProcxRunSettings, settings_file, overrides)
    names = ("features", "steps", "subset", "words")
    sources = ProcxSources(**{name: options[name] for name in names}, excluded=tuple(options["exclude"]))
    curves = Curves(out / "events") if options["tensorboard"] else None
    with shown_steps(curves) as report:
        outcomes = train_procx_run(
            sources,
            out,
            settings,
            start=options["start"],
            seeds=options["seeds"],
            report=report,
            on_prepared=_say_procx_samples,
        )
    if is_first():
        _say_outcomes(outcomes, as_json=options["as_json"])
    end_processes()


def _say_procx_samples(prepared: "ProcxPrepared") -> None:
    """Say what is trained on, what is left out, and what the network cannot hold."""
    from stepline.training.distributed import is_first

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


def _say_outcomes(outcomes: "list[SeedResult]", *, as_json: bool) -> None:
    from stepline.procx.train import BEST, FINAL, seed_summary
    from stepline.training.distributed import peak_memory

    files = [str(one.folder / name) for one in outcomes for name in (FINAL, BEST) if (one.folder / name).exists()]
    found = seed_summary(outcomes)
    if as_json:
        click.echo(json.dumps({"files": files, "peak_bytes": peak_memory(), **found}))
        return
    for name, told in (("score", "held out, SODA-D"), ("loss", "loss")):
        if found[name] is not None:
            spread = f" ± {found[name]['spread']:.3f} over {len(outcomes)} seeds" if len(outcomes) > 1 else ""
            click.echo(f"{told} {found[name]['mean']:.3f}{spread}", err=True)
    for file in files:
        click.echo(file)


@click.command("summarizer")
@click.option("--features", type=click.Path(path_type=Path), required=True, help="Store of the videos' features.")
@click.option("--key-steps", metavar="SOURCE", help="Videos with key-steps: records or DATASET:PATH.")
@click.option("--frames", type=click.Path(path_type=Path), help="Instead: IV-Sum's annotations, 0 or 1 a frame, 8/s.")
@click.option("--narrations", metavar="SOURCE", help="What is said in them, where the key-steps' source does not tell.")
@click.option("--vectors", metavar="ENCODER", help="Use the speech: minilm, conse, clip:FOLDER or a folder makes its "
              "sentences vectors. Without it, pictures alone count.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Folder of the run.")
@click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="A TOML file of settings.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, e.g. train.epochs=40.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def train_summarizer(
    out: Path, settings_file: Path | None, overrides: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Train a summarizer (IV-Sum's form): how much does each second of a video matter?

    A fifth of the videos is withheld and scored: F, Kendall's tau and Spearman's rho of their seconds.

    \b
    Example:
      stepline train summarizer --features store --key-steps coin:COIN.json --out run
    """
    from stepline.cli.common import training_bar
    from stepline.features import FeatureStore
    from stepline.records import count_reasons
    from stepline.settings import load_settings
    from stepline.training.sources import text_encoder
    from stepline.wys2.run_files import SUMMARIZER
    from stepline.wys2.summarizer.settings import SummarizerRunSettings
    from stepline.wys2.summarizer.train import gather_summaries, train_summarizer_run

    settings = load_settings(SummarizerRunSettings, settings_file, overrides)
    records = _records(options["key_steps"], options["frames"])
    features, text = FeatureStore(options["features"]), options["vectors"]
    said = {record.video.id: record.transcript for record in _told(options["narrations"]) if record.transcript}
    encode = None if text is None else text_encoder(text)
    lessons = gather_summaries(records, features, encode, settings.summarizer, said)
    with training_bar() as bar:
        made = train_summarizer_run(lessons, out, settings, video=features.backbone, text=text or "", report=bar)
    for reason, count in count_reasons(lessons.omitted).items():
        click.echo(f"left out {count}: {reason}", err=True)
    click.echo(f"{made.videos} videos; on {made.scores.videos} withheld: {_scores(asdict(made.scores))}", err=True)
    path = str(out / SUMMARIZER)
    click.echo(json.dumps({"summarizer": path, "withheld": asdict(made.scores)}) if as_json else path)


def _records(key_steps: str | None, frames: Path | None) -> "Iterable[Record]":
    from stepline.training.sources import read_records
    from stepline.wys2.summarizer.model import read_frame_labels

    if (key_steps is None) == (frames is None):
        raise SettingsError("give --key-steps or --frames: one of them says what belongs in a summary")
    return read_records(key_steps) if key_steps is not None else read_frame_labels(Path(str(frames)))


def _told(narrations: str | None) -> "Iterator[Record]":
    from stepline.training.sources import read_records

    if narrations is not None:
        yield from read_records(narrations)


def _scores(scores: dict[str, Any]) -> str:
    said = {"f": "F", "tau": "tau", "rho": "rho"}
    return ", ".join(f"{said[key]} {'–' if scores[key] is None else format(scores[key], '.3f')}" for key in said)


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
    from stepline.nasva.network_settings import RefineRunSettings
    from stepline.nasva.refine import REFINED, RefineSources, refine_dataset
    from stepline.settings import load_settings

    given = [] if options["rounds"] is None else [f"rounds.rounds={options['rounds']}"]
    settings = load_settings(RefineRunSettings, settings_file, [*options["overrides"], *given])
    names = ("step_vectors", "narrations", "narration_vectors")
    given_sources = {name: options[name] for name in names}
    sources = RefineSources(dataset, features, **given_sources, excluded=tuple(options["exclude"]))
    done = refine_dataset(sources, out, settings, _shown())
    for one in done.omitted[:3]:
        click.echo(f"left out {one.id}: {one.reason} {one.value}".rstrip(), err=True)
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


@click.command("wys2")
@click.option("--features", type=click.Path(path_type=Path), required=True, help="Store of the videos' features.")
@click.option("--key-steps", metavar="SOURCE", required=True, help="Videos with key-steps: records or DATASET:PATH.")
@click.option("--narrations", metavar="SOURCE", help="What is said in them, where the key-steps' source does not tell.")
@click.option("--unlabelled", metavar="SOURCE", help="Narrated videos without key-steps, for pseudo-labels.")
@click.option("--vectors", metavar="ENCODER", default="minilm", show_default=True,
              help="What turns sentences into vectors: minilm, conse, clip:FOLDER or a folder.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Folder of the run.")
@click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="A TOML file of settings.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, e.g. labels.kind=vr.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def train_wys2(
    out: Path, settings_file: Path | None, overrides: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Train the detector of visual narrations (WYS2): does the picture show what is said?

    A fifth of the videos is withheld, the rest split 80:20 for training and validation.

    \b
    Example:
      stepline train wys2 --features store --key-steps coin:COIN.json --narrations records --out run
    """
    from stepline.cli.common import training_bar
    from stepline.features import FeatureStore
    from stepline.settings import load_settings
    from stepline.training.sources import read_records, text_encoder
    from stepline.wys2.dataset import gather_clips
    from stepline.wys2.run import train_detector_run
    from stepline.wys2.run_files import DETECTOR
    from stepline.wys2.settings import Wys2Settings

    settings = load_settings(Wys2Settings, settings_file, overrides)
    features, encode = FeatureStore(options["features"]), text_encoder(options["vectors"])
    said = read_records(options["narrations"]) if options["narrations"] else ()
    transcripts = {record.video.id: record.transcript for record in said if record.transcript is not None}
    labelled = gather_clips(read_records(options["key_steps"]), features, encode, settings.clips, transcripts)
    further = None
    if options["unlabelled"]:
        further = gather_clips(read_records(options["unlabelled"]), features, encode, settings.clips, transcripts)
    backbone = features.backbone
    with training_bar() as bar:
        made = train_detector_run(labelled, further, out, settings, video=backbone, text=options["vectors"], report=bar)
    for one in made.rounds:
        kept = f", {one.kept} of {one.of} unlabelled ones" if one.of else ""
        click.echo(f"round {one.number}: {one.pairs} clips{kept}; ROC-AUC on validation {one.auc:.3f}", err=True)
    click.echo(made.told, err=True)
    rounds = [{"number": one.number, "pairs": one.pairs, "kept": one.kept, "auc": one.auc} for one in made.rounds]
    error = None if made.calibrated is None else made.calibrated.error
    path = str(out / DETECTOR)
    click.echo(json.dumps({"detector": path, "rounds": rounds, "calibration_error": error}) if as_json else path)
