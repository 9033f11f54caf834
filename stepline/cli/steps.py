"""`stepline steps`: the main job."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.group import complain
from stepline.cli.options import chosen_settings, settings_options
from stepline.cli.progress import progress_bars
from stepline.errors import SettingsError, SteplineError

if TYPE_CHECKING:
    from stepline.jobs import Done, Wanted
    from stepline.pipeline import Request, StepsSettings
    from stepline.records import Record

BACKBONES = ("conse", "clip", "s3d", "precomputed", "none")
FORMATS = ("json", "html", "vtt", "srt", "chapters", "jsonld")


@click.command()
@click.argument("videos", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out"), show_default=True, help="Folder.")
@click.option("--texts", type=click.Path(path_type=Path), help="Your own lines to find, one a line (a recipe).")
@click.option("--writer", type=click.Choice(["extractive", "llm"]), help="Who writes the steps.")
@click.option("--backbone", type=click.Choice(BACKBONES), help="What sees the picture.")
@click.option("--weights", help="The backbone's checkpoint or feature file.")
@click.option("--aligner", type=click.Path(path_type=Path), help="A trained network that places the steps.")
@click.option("--describe", "describer", type=click.Path(path_type=Path), help="A network of `stepline train procx`, "
              "which tells the steps where speech tells none.")  # fmt: skip
@click.option("--format", "formats", type=click.Choice(FORMATS), multiple=True, help="Only this output, and the JSON.")
@click.option("--clips", is_flag=True, help="Cut an mp4 of every step that is shown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, of several videos a line each, not a table.")
@click.option("--force", is_flag=True, help="Do again what is done.")
@settings_options
def steps(videos: tuple[Path, ...], **options: Any) -> None:
    """Find the steps of VIDEOS (files or folders): what to do, and the seconds in which it is shown.

    \b
    Example:
      stepline steps stepline/world/demo/demo.mp4 --out out
    """
    from stepline.jobs import Wanted, find_videos, name_videos, read_lines
    from stepline.pipeline import Request

    settings = chosen_settings(options)
    wanted = Wanted(
        out=options["out"],
        formats=tuple(dict.fromkeys((*(options["formats"] or FORMATS), "json"))),
        clips=options["clips"],
        force=options["force"],
    )
    texts = read_lines(options["texts"]) if options["texts"] else ()
    paths = find_videos(videos)
    _refuse_shared_inputs(len(paths), options)
    failed = 0
    for identity, path in name_videos(paths, wanted.out).items():
        request = Request(path, identity, options["captions"], texts)
        try:
            done = _run_one(request, settings, wanted)
        except SteplineError as error:
            complain(error)
            failed += 1
            continue
        click.echo(printed(done.record, as_json=options["as_json"], alone=len(paths) == 1), nl=False)
        for file in done.files:
            click.echo(f"wrote {file}", err=True)
        if "chapters" in options["formats"]:
            _say_why_no_chapters(done.record)
    if len(paths) > 1:
        click.echo(f"{len(paths) - failed} of {len(paths)} videos done, {failed} failed", err=True)
    sys.exit(1 if failed else 0)


def _refuse_shared_inputs(count: int, options: dict[str, Any]) -> None:
    if count > 1 and options["captions"] is not None:
        raise SettingsError("--captions is for one video; run each video with its own captions file")
    if count > 1 and options["weights"] is not None and options["backbone"] == "precomputed":
        raise SettingsError("--backbone precomputed is for one video; run each video with its own feature file")


def _run_one(request: "Request", settings: "StepsSettings", wanted: "Wanted") -> "Done":
    """Run one video and say what there is to know of the run."""
    from stepline.jobs import run

    with progress_bars() as progress:
        done = run(request, settings, wanted, progress)
    for warning in done.record.warnings:
        click.echo(f"warning: {request.path.name}: {warning}", err=True)
    if done.earlier:
        click.echo(f"{request.path}: done before with the same settings (--force does it again)", err=True)
    return done


def _say_why_no_chapters(record: "Record") -> None:
    from stepline.show import plan_chapters

    reason = plan_chapters(record).reason
    if reason is not None:
        click.echo(f"no chapters: {reason}", err=True)


def printed(record: "Record", *, as_json: bool, alone: bool) -> str:
    """Return what stdout gets of a video: its table, or its JSON, on one line where others follow."""
    from stepline.show import step_table
    from stepline.store import to_json

    if not as_json:
        return step_table(record)
    text = to_json(record)
    return text if alone else json.dumps(json.loads(text), ensure_ascii=False) + "\n"
