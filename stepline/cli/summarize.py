"""`stepline summarize`: the seconds of a video that are worth watching."""

import re
from pathlib import Path
from typing import Any

import click

from stepline.cli.options import chosen_settings, settings_options
from stepline.cli.progress import progress_bars
from stepline.errors import SettingsError


@click.command()
@click.argument("video", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out"), show_default=True, help="Folder.")
@click.option("--length", help="At most so long: 45 (seconds), 1:30 or 25%. Without it every shown step is kept.")
@click.option("--summarizer", type=click.Path(path_type=Path), help="What weighs the seconds: "
              "a network of `stepline train summarizer`, its file or folder.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@settings_options
def summarize(
    video: Path, out: Path, length: str | None, summarizer: Path | None, as_json: bool, **options: Any
) -> None:
    """Cut VIDEO down to the seconds that show its steps: an mp4 and a storyboard.

    The steps come from `stepline steps`, which is run first where OUT does not hold its result.

    \b
    Example:
      stepline summarize stepline/world/demo/demo.mp4 --out out --length 30
    """
    from stepline.jobs import Wanted, name_videos, run
    from stepline.pipeline import Request
    from stepline.summaries import load_summarizer, weigh, write_summary

    limits = read_length(length)
    settings = chosen_settings(options)
    loaded = None if summarizer is None else load_summarizer(summarizer, settings.vision)
    ((identity, path),) = name_videos([video], out).items()
    request = Request(path, identity, options["captions"])
    with progress_bars() as progress:
        record = run(request, settings, Wanted(out, ("json",)), progress).record
        importance = None if loaded is None else weigh(record, request, settings, loaded, progress)
    summary = write_summary(record, path, out, limits, importance)
    click.echo(_json(summary) if as_json else _table(summary), nl=False)
    for file in summary.files:
        click.echo(f"wrote {file}", err=True)


def read_length(text: str | None) -> Any:
    """Return the settings of a summary from "45", "1:30" or "25%". Raises SettingsError for anything else."""
    from stepline.wys2.summary_settings import SummarySettings

    if text is None:
        return SummarySettings()
    share = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    time = re.fullmatch(r"(?:(\d+):)?(\d+(?:\.\d+)?)", text)
    if share and 0 < float(share[1]) <= 100:
        return SummarySettings(share=float(share[1]) / 100)
    if time and (seconds := 60 * int(time[1] or 0) + float(time[2])) > 0:
        return SummarySettings(seconds=seconds)
    raise SettingsError(f"--length {text!r}: give seconds (45), minutes (1:30) or a share (25%)")


def _table(summary: Any) -> str:
    from stepline.show.plain import clock

    lines = [
        f"  {clock(segment.span.start)} – {clock(segment.span.end)}  {'; '.join(step.text for step in segment.steps)}\n"
        for segment in summary.segments
    ]
    count = len(summary.segments)
    return "".join((f"{summary.duration:.1f} s in {count} segment{'' if count == 1 else 's'}\n\n", *lines))


def _json(summary: Any) -> str:
    import json

    rows = [
        {
            "start": segment.span.start,
            "end": segment.span.end,
            "value": round(segment.value, 4),
            "steps": [{"id": step.id, "text": step.text} for step in segment.steps],
        }
        for segment in summary.segments
    ]
    return json.dumps({"seconds": round(summary.duration, 3), "segments": rows}, ensure_ascii=False, indent=2) + "\n"
