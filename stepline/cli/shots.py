"""The command that lists the shots of videos, with a picture of each."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.errors import is_quiet, print_data, print_error, print_message
from stepline.cli.options import (
    VIDEO_TYPE,
    json_option,
    out_option,
    settings_from_options,
    settings_options,
)
from stepline.cli.progress import folder_bar, progress_bars
from stepline.cli.sources import open_only_video
from stepline.errors import SteplineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepline.pipeline.request import StepsSettings
    from stepline.pipeline.sources import VideoArgument
    from stepline.progress import Progress
    from stepline.shots.shot_list import ShotList
    from stepline.shots.sources import ShotSource


@click.command()
@click.argument("source", type=VIDEO_TYPE)
@out_option("Folder for the lists and the pictures.", "out")
@click.option(
    "--size",
    type=click.IntRange(min=32, max=4096),
    default=320,
    show_default=True,
    help="Pixels of a picture's longer side.",
)
@json_option
@settings_options("One setting, e.g. vision.cut_floor=0.3.")
def shots(source: "VideoArgument", out: Path, size: int, as_json: bool, **options: Any) -> None:
    """List the shots of a video, with pictures.

    \b
    Example:
      stepline shots stepline/demo/demo.mp4 --out out

    SOURCE is a video, a record that `stepline steps` wrote, or a folder of them. For each shot the
    list has its start and end to the frame, and a picture of its middle. If OUT holds the video's
    record, the list also has the steps that the shot shows. It is written as CSV, as JSON and as a
    page.
    """
    from stepline.files.atomic_files import check_writable
    from stepline.shots.sources import ShotSource, find_sources

    check_writable(out)
    job = _ShotsJob(out, size, settings_from_options(options), as_json=as_json)
    # A link has no folder around it, so it is one video.
    if isinstance(source, str):
        with open_only_video(source, job.settings, out) as request:
            job.run_one(ShotSource(request.id, request.path))
        return
    sources = find_sources(source, out)
    if len(sources) == 1:
        job.run_one(sources[0])
    elif job.run_all(sources):
        raise click.exceptions.Exit(1)


class _ShotsJob:
    """Lists the shots of videos with the same options, and prints what becomes of them."""

    def __init__(self, out: Path, size: int, settings: "StepsSettings", *, as_json: bool) -> None:
        self.settings = settings
        self._out = out
        self._size = size
        self._as_json = as_json

    def run_one(self, source: "ShotSource | SteplineError") -> None:
        """List the shots of one video and print them."""
        with progress_bars() as progress:
            shot_list, paths = self._write(source, progress)
        _print_warnings(shot_list)
        if self._as_json:
            from stepline.shots.write import to_json

            print_data(to_json(shot_list), end="")
        else:
            print_data(_table(shot_list), end="")
        print_message(*(f"wrote {path}" for path in paths))

    def run_all(self, sources: "Sequence[ShotSource | SteplineError]") -> int:
        """List the shots of several videos, a line each, and return how many failed."""
        total = len(sources)
        with folder_bar(total) as bar:
            for source in sources:
                try:
                    shot_list, _ = self._write(source, bar.show)
                except SteplineError as error:
                    print_error(error)
                    bar.add(failed=True, earlier=False)
                else:
                    self._print_line(shot_list)
                    bar.add(failed=False, earlier=False)
                bar.show()
        print_message(f"{total - bar.failed:,} of {total:,} videos done, {bar.failed:,} failed")
        return bar.failed

    def _write(
        self, source: "ShotSource | SteplineError", progress: "Progress"
    ) -> "tuple[ShotList, list[Path]]":
        from stepline.shots.find import find_shots
        from stepline.shots.shot_list import list_shots
        from stepline.shots.write import write_shots

        # A source that could not be read is an error of its turn.
        if isinstance(source, SteplineError):
            raise source
        vision, media = self.settings.vision, self.settings.media
        video_shots = find_shots(source.path, vision, self._size, media, progress)
        shot_list = list_shots(source, video_shots)
        return shot_list, write_shots(shot_list, video_shots.pictures, self._out)

    def _print_line(self, shot_list: "ShotList") -> None:
        _print_warnings(shot_list)
        if self._as_json:
            print_data(shot_list.model_dump_json())
        elif not is_quiet():
            print_data(_headline(shot_list))


def _print_warnings(shot_list: "ShotList") -> None:
    for warning in shot_list.warnings:
        print_message(f"warning: {shot_list.id}: {warning}", urgent=True)


def _headline(shot_list: "ShotList") -> str:
    from stepline.outputs.text import clock
    from stepline.shots.write import count_text

    count = count_text(len(shot_list.shots), "shot")
    return f"{shot_list.title}: {count} in {clock(shot_list.duration)}"


def _table(shot_list: "ShotList") -> str:
    """Return a line for each shot: its number, its seconds, and what is shown in it."""
    from stepline.shots.write import STEP_SEPARATOR, precise_clock

    lines = [_headline(shot_list), ""]
    for shot in shot_list.shots:
        steps = STEP_SEPARATOR.join(step.text for step in shot.steps)
        times = f"{precise_clock(shot.start):>10} – {precise_clock(shot.end):>10}"
        lines.append(f"{shot.number:>5}  {times}  {steps}".rstrip())
    return "\n".join([*lines, ""])
