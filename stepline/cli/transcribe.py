"""`stepline transcribe`: what is said."""

from pathlib import Path
from typing import Any

import click

from stepline.cli.options import chosen_settings, settings_options
from stepline.cli.progress import progress_bars


@click.command()
@click.argument("video", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "json", "srt", "vtt"]), default="text", show_default=True)
@settings_options
def transcribe(video: Path, form: str, **options: Any) -> None:
    """Print what is said in VIDEO; with --captions, what they say, cleaned and in sentences.

    \b
    Example:
      stepline transcribe stepline/world/demo/demo.mp4 --format srt
    """
    from stepline.jobs import listen
    from stepline.show import TRANSCRIPTS

    with progress_bars() as progress:
        record = listen(video, options["captions"], chosen_settings(options), progress)
    for item in record.dropped:
        click.echo(f"left out: {item.text!r} ({item.reason})", err=True)
    for warning in record.warnings:
        click.echo(f"warning: {warning}", err=True)
    if record.transcript and record.transcript.language:
        click.echo(f"language: {record.transcript.language}", err=True)
    click.echo(TRANSCRIPTS[form](record), nl=False)
