"""`stepline judge`: is what is said shown?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.options import chosen_settings, settings_options
from stepline.cli.progress import progress_bars

if TYPE_CHECKING:
    from stepline.records import Record


@click.command()
@click.argument("video", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out"), show_default=True, help="Folder.")
@click.option("--detector", help="A detector that `stepline train wys2` made: its file or folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@settings_options
def judge(video: Path, out: Path, detector: str | None, as_json: bool, **options: Any) -> None:
    """Say of every sentence of VIDEO how likely the picture shows what is said, while it is said.

    Without --detector the wording and what is seen in the picture decide; the main job's record in OUT is used or made.

    \b
    Example:
      stepline judge stepline/world/demo/demo.mp4 --out out
    """
    from stepline.jobs import Wanted, name_videos, run
    from stepline.pipeline import Request

    given = [f"judge.detector={json.dumps(detector)}"] if detector is not None else []
    settings = chosen_settings({**options, "overrides": [*options["overrides"], *given]})
    ((identity, path),) = name_videos([video], out).items()
    with progress_bars() as progress:
        record = run(Request(path, identity, options["captions"]), settings, Wanted(out, ("json",)), progress).record
    for warning in record.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"judged by: {record.models.get('judge') or _nobody(record)}", err=True)
    click.echo(_json(record) if as_json else _table(record), nl=False)


def _nobody(record: "Record") -> str:
    """Return why no sentence was judged."""
    if record.transcript is None or not record.transcript.sentences:
        return "nobody: nothing is said"
    language = record.transcript.language
    foreign = language is not None and not language.lower().startswith("en")
    return "nobody: not English, and no --detector" if foreign else "nobody: there is no picture"


def _table(record: "Record") -> str:
    from stepline.show.plain import clock

    rows = []
    for sentence in record.transcript.sentences if record.transcript else ():
        shown = "  – " if sentence.shown is None else f"{sentence.shown:4.0%}"
        rows.append(f"  {clock(sentence.span.start):>7}  {shown}  {sentence.text}\n")
    return "".join(rows)


def _json(record: "Record") -> str:
    sentences = record.transcript.sentences if record.transcript else ()
    rows = [{"text": one.text, "start": one.span.start, "end": one.span.end, "shown": one.shown} for one in sentences]
    judged = {"id": record.id, "judge": record.models.get("judge"), "sentences": rows}
    return json.dumps(judged, ensure_ascii=False, indent=2) + "\n"
