"""`stepline train summarizer`: which seconds of a video matter, learnt from videos whose steps people marked."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.errors import SettingsError

if TYPE_CHECKING:
    from stepline.records import Record


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
    from stepline.cli.progress import training_bar
    from stepline.features import FeatureStore
    from stepline.nasva.text_vectors import text_encoder
    from stepline.settings import load_settings
    from stepline.wys2.run_files import SUMMARIZER
    from stepline.wys2.summarizer.run import gather_lessons, train_summarizer_run
    from stepline.wys2.summarizer.settings import SummarizerRunSettings

    settings = load_settings(SummarizerRunSettings, settings_file, overrides)
    records = _records(options["key_steps"], options["frames"])
    features, text = FeatureStore(options["features"]), options["vectors"]
    said = {record.video.id: record.transcript for record in _told(options["narrations"]) if record.transcript}
    encode = None if text is None else text_encoder(text)
    lessons = gather_lessons(records, features, encode, settings.summarizer, said)
    with training_bar() as bar:
        made = train_summarizer_run(lessons, out, settings, video=features.backbone, text=text or "", report=bar)
    for reason, count in lessons.omitted.items():
        click.echo(f"left out {count}: {reason}", err=True)
    click.echo(f"{made.videos} videos; on {made.scores.videos} withheld: {_scores(asdict(made.scores))}", err=True)
    path = str(out / SUMMARIZER)
    click.echo(json.dumps({"summarizer": path, "withheld": asdict(made.scores)}) if as_json else path)


def _records(key_steps: str | None, frames: Path | None) -> "Iterable[Record]":
    from stepline.nasva.told import read_records
    from stepline.wys2.summarizer.frames import read_frames

    if (key_steps is None) == (frames is None):
        raise SettingsError("give --key-steps or --frames: one of them says what belongs in a summary")
    return read_records(key_steps) if key_steps is not None else read_frames(Path(str(frames)))


def _told(narrations: str | None) -> "Iterator[Record]":
    from stepline.nasva.told import read_records

    if narrations is not None:
        yield from read_records(narrations)


def _scores(scores: dict[str, Any]) -> str:
    said = {"f": "F", "tau": "tau", "rho": "rho"}
    return ", ".join(f"{said[key]} {'–' if scores[key] is None else format(scores[key], '.3f')}" for key in said)
