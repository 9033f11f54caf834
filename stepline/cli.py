"""The command line: a thin command a verb. Data on stdout, talk on stderr; exit 0 done, 1 an error, 2 wrong usage."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

# A waiting OpenMP thread must sleep, not spin: on a busy machine spinning makes a run 6x slower. Set before torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from stepline import __version__
from stepline.errors import SettingsError, SteplineError
from stepline.evaluate.command import evaluate

if TYPE_CHECKING:
    from stepline.jobs import Done, Wanted
    from stepline.pipeline import Request, StepsSettings
    from stepline.records import Record
    from stepline.watching import Progress

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("json", "html", "vtt", "srt", "chapters", "jsonld")


class Group(click.Group):
    """A group whose commands end with one line and exit code 1 on a SteplineError."""

    def invoke(self, context: click.Context) -> Any:
        """Run the command; say what is wrong in one line."""
        try:
            return super().invoke(context)
        except SteplineError as error:
            complain(error)
            sys.exit(1)
        except KeyboardInterrupt:
            click.echo("stepline: stopped; what was finished is kept", err=True)
            sys.exit(130)


def complain(error: SteplineError) -> None:
    """Print an error as one line on stderr."""
    click.echo(f"stepline: {' '.join(str(error).split())}", err=True)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="stepline")
@click.option("-v", "--verbose", is_flag=True, help="Say what each stage does.")
def main(verbose: bool) -> None:
    """Turn narrated how-to videos into clean, time-aligned steps."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(levelname).1s %(name)s: %(message)s"
    )
    if not verbose:
        logging.getLogger("faster_whisper").setLevel(logging.ERROR)


def settings_options(command: F) -> F:
    """Add the options that choose settings."""
    options = [
        click.option(
            "--settings",
            "settings_file",
            type=click.Path(path_type=Path),
            help="A TOML file of settings (docs/settings.md).",
        ),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, e.g. asr.beam=5."),
        click.option("--model", help="Recogniser: whisper-tiny.en, whisper-base or a CTranslate2 folder."),
        click.option("--captions", type=click.Path(path_type=Path), help="Captions to use instead of recognition."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@main.command()
@click.argument("videos", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out"), show_default=True, help="Folder.")
@click.option("--texts", type=click.Path(path_type=Path), help="Your own lines to find, one a line (a recipe).")
@click.option("--writer", type=click.Choice(["extractive", "llm"]), help="Who writes the steps.")
@click.option("--backbone", type=click.Choice(["conse", "clip", "precomputed", "none"]), help="What sees the picture.")
@click.option("--weights", help="The backbone's checkpoint or feature file.")
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

    settings = _settings(options)
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
        click.echo(_result(done.record, as_json=options["as_json"], alone=len(paths) == 1), nl=False)
        for file in done.files:
            click.echo(f"wrote {file}", err=True)
        if "chapters" in options["formats"]:
            _say_why_no_chapters(done.record)
    if len(paths) > 1:
        click.echo(f"{len(paths) - failed} of {len(paths)} videos done, {failed} failed", err=True)
    sys.exit(1 if failed else 0)


@main.command()
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
        record = listen(video, options["captions"], _settings(options), progress)
    for item in record.dropped:
        click.echo(f"left out: {item.text!r} ({item.reason})", err=True)
    for warning in record.warnings:
        click.echo(f"warning: {warning}", err=True)
    if record.transcript and record.transcript.language:
        click.echo(f"language: {record.transcript.language}", err=True)
    click.echo(TRANSCRIPTS[form](record), nl=False)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Say what is installed, which models are found, what is missing and how to get it.

    \b
    Example:
      stepline doctor
    """
    from stepline import doctor as examination

    findings = examination.examine()
    click.echo(examination.as_json(findings) if as_json else examination.as_text(findings))
    sys.exit(1 if any(finding.needed and not finding.found for finding in findings) else 0)


@main.command()
@click.argument("name", required=False)
def datasets(name: str | None) -> None:
    """List the public datasets that can be read; of NAME, tell where to get it and what is read.

    \b
    Example:
      stepline datasets youcook2
    """
    from stepline.datasets import describe

    click.echo(describe(name), nl=False)


main.add_command(evaluate)


def _settings(options: dict[str, Any]) -> "StepsSettings":
    """Return the settings from file, --set and the shorthand options, which win."""
    from stepline.pipeline import StepsSettings
    from stepline.settings import load_settings

    shorthand = {
        "asr.model": options.get("model"),
        "writing.writer": options.get("writer"),
        "vision.backbone": options.get("backbone"),
        "vision.path": options.get("weights"),
    }
    given = [f"{key}={_toml_string(value)}" for key, value in shorthand.items() if value is not None]
    return load_settings(StepsSettings, options["settings_file"], [*options["overrides"], *given])


def _toml_string(value: str) -> str:
    import json

    return json.dumps(value)


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


def _result(record: "Record", *, as_json: bool, alone: bool) -> str:
    """Return what stdout gets of a video: its table, or its JSON, on one line where others follow."""
    import json

    from stepline.show import step_table
    from stepline.store import to_json

    if not as_json:
        return step_table(record)
    text = to_json(record)
    return text if alone else json.dumps(json.loads(text), ensure_ascii=False) + "\n"


@contextmanager
def progress_bars() -> Iterator["Progress | None"]:
    """Yield a callback that draws a bar a stage on stderr; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, second: float, duration: float) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=duration or None)
            bars.update(tasks[stage], completed=second)

        yield report
