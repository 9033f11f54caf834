"""`stepline train wys2` and `stepline experiment wys2-tables`: the detector of visual narrations."""

import json
from pathlib import Path
from typing import Any

import click

TABLES = ("labels", "baselines", "pseudo-labels", "options", "grid")
USES = ("summaries", "alignability")


@click.command("wys2-tables")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out/wys2-tables"), show_default=True,
              help="Folder; what it holds already is not trained again.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Worlds, splits and networks.")
@click.option("--table", "tables", type=click.Choice((*TABLES, *USES)), multiple=True, help="Only this table; grid, "
              "summaries and alignability come only when they are named.")  # fmt: skip
@click.option("--labelled", type=click.IntRange(min=10), help="Videos with key-steps, instead of 400.")
@click.option("--unlabelled", type=click.IntRange(min=1), help="Videos without, instead of 1500.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def wys2_tables(out: Path, seeds: int, tables: tuple[str, ...], **options: Any) -> None:
    """WYS2's labels, baselines, pseudo-labels, the supplement's grid, and uses, in the simulated world.

    Without --table it takes about five minutes of one CPU core; a run that was stopped goes on where it was.

    \b
    Example:
      stepline experiment wys2-tables --table labels --seeds 1 --out tables
    """
    from stepline.cli.progress import progress_bars
    from stepline.experiments.wys2_tables import Wys2Plan
    from stepline.experiments.wys2_trial import Wys2Size
    from stepline.experiments.wys2_uses import UsesPlan, UsesSize

    given = {name: options[name] for name in ("labelled", "unlabelled") if options[name] is not None}
    detectors, uses = ([table for table in tables if table in known] for known in (TABLES, USES))
    written = []
    with progress_bars() as show:
        report = (lambda done, count: show("trainings", done, count)) if show is not None else None
        if detectors or not tables:
            Wys2Plan(out, range(seeds), detectors, Wys2Size(**given), report).run()
            written.append("tables")
        if uses:
            size = UsesSize(**{name: value for name, value in given.items() if name == "labelled"})
            UsesPlan(out, range(seeds), uses, size, report).run()
            written.append("uses")
    for name in written:
        text = (out / f"{name}.{'json' if options['as_json'] else 'md'}").read_text(encoding="utf-8")
        click.echo(json.dumps(json.loads(text)) if options["as_json"] else text, nl=options["as_json"])
        click.echo(f"wrote {out / name}.json and {out / name}.md", err=True)


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
    from stepline.cli.progress import training_bar
    from stepline.features import FeatureStore
    from stepline.nasva.text_vectors import text_encoder
    from stepline.nasva.told import read_records
    from stepline.settings import load_settings
    from stepline.wys2.gather import gather
    from stepline.wys2.run import train_run
    from stepline.wys2.run_files import DETECTOR
    from stepline.wys2.settings import Wys2Settings

    settings = load_settings(Wys2Settings, settings_file, overrides)
    features, encode = FeatureStore(options["features"]), text_encoder(options["vectors"])
    said = read_records(options["narrations"]) if options["narrations"] else ()
    transcripts = {record.video.id: record.transcript for record in said if record.transcript is not None}
    labelled = gather(read_records(options["key_steps"]), features, encode, settings.clips, transcripts)
    further = None
    if options["unlabelled"]:
        further = gather(read_records(options["unlabelled"]), features, encode, settings.clips, transcripts)
    backbone = features.backbone
    with training_bar() as bar:
        made = train_run(labelled, further, out, settings, video=backbone, text=options["vectors"], report=bar)
    for one in made.rounds:
        kept = f", {one.kept} of {one.of} unlabelled ones" if one.of else ""
        click.echo(f"round {one.number}: {one.pairs} clips{kept}; ROC-AUC on validation {one.auc:.3f}", err=True)
    click.echo(made.told, err=True)
    rounds = [{"number": one.number, "pairs": one.pairs, "kept": one.kept, "auc": one.auc} for one in made.rounds]
    error = None if made.calibrated is None else made.calibrated.error
    path = str(out / DETECTOR)
    click.echo(json.dumps({"detector": path, "rounds": rounds, "calibration_error": error}) if as_json else path)
