"""`stepline train wys2` and `stepline experiment wys2-tables`: the detector of visual narrations."""

import json
from pathlib import Path
from typing import Any

import click


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
