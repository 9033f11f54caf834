"""`stepline steps`: the main job.

`stepline transcribe`: what is said.

`stepline ground`: where a video shows the user's own lines, by a trained network.

`stepline judge`: is what is said shown?

`stepline describe`: the steps of videos without a word.

`stepline summarize`: the seconds of a video that are worth watching.
"""

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.common import chosen_settings, complain, progress_bars, settings_options
from stepline.errors import SettingsError, SteplineError

if TYPE_CHECKING:
    from stepline.pipeline.batch import Done, Wanted
    from stepline.pipeline.request import Request, StepsSettings
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
      stepline steps stepline/demo/demo.mp4 --out out
    """
    from stepline.pipeline.batch import Wanted, find_videos, name_videos, read_lines
    from stepline.pipeline.request import Request

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
    from stepline.pipeline.batch import run

    with progress_bars() as progress:
        done = run(request, settings, wanted, progress)
    for warning in done.record.warnings:
        click.echo(f"warning: {request.path.name}: {warning}", err=True)
    if done.earlier:
        click.echo(f"{request.path}: done before with the same settings (--force does it again)", err=True)
    return done


def _say_why_no_chapters(record: "Record") -> None:
    from stepline.outputs import plan_chapters

    reason = plan_chapters(record).reason
    if reason is not None:
        click.echo(f"no chapters: {reason}", err=True)


def printed(record: "Record", *, as_json: bool, alone: bool) -> str:
    """Return what stdout gets of a video: its table, or its JSON, on one line where others follow."""
    from stepline.outputs import step_table
    from stepline.storage import to_json

    if not as_json:
        return step_table(record)
    text = to_json(record)
    return text if alone else json.dumps(json.loads(text), ensure_ascii=False) + "\n"


@click.command()
@click.argument("video", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "json", "srt", "vtt"]), default="text", show_default=True)
@settings_options
def transcribe(video: Path, form: str, **options: Any) -> None:
    """Print what is said in VIDEO; with --captions, what they say, cleaned and in sentences.

    \b
    Example:
      stepline transcribe stepline/demo/demo.mp4 --format srt
    """
    from stepline.outputs import TRANSCRIPTS
    from stepline.pipeline.batch import listen

    with progress_bars() as progress:
        record = listen(video, options["captions"], chosen_settings(options), progress)
    for item in record.dropped:
        click.echo(f"left out: {item.text!r} ({item.reason})", err=True)
    for warning in record.warnings:
        click.echo(f"warning: {warning}", err=True)
    if record.transcript and record.transcript.language:
        click.echo(f"language: {record.transcript.language}", err=True)
    click.echo(TRANSCRIPTS[form](record), nl=False)


ORDERS = ("none", "given")


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--texts", required=True, type=click.Path(path_type=Path), help="The lines to find, one a line.")
@click.option("--aligner", required=True, type=click.Path(path_type=Path), help="The trained network: file or folder.")
@click.option("--mode", type=click.Choice(["step", "narration"]), help="Steps, or what is spoken, in its order.")
@click.option("--order", help="none; given: as the lines stand; or a JSON table of P(line i comes before line j).")
@click.option("--text-features", type=click.Path(path_type=Path), help="Ready vectors of the lines.")
@click.option("--backbone", type=click.Choice(["conse", "clip", "s3d"]), help="What sees a video.")
@click.option("--weights", help="The backbone's checkpoint.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="A TOML file of settings.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting.")
def ground(source: Path, **options: Any) -> None:
    """Find lines of text in SOURCE, a video or a file of ready features: the seconds in which each is shown, if any.

    \b
    Example:
      stepline ground lemonade.mp4 --texts recipe.txt --aligner trained --order given
    """
    from stepline.outputs import step_table
    from stepline.pipeline.batch import read_lines
    from stepline.pipeline.ground_texts import find_lines, read_order
    from stepline.storage import to_json

    table = None if options["order"] in (None, *ORDERS) else Path(options["order"])
    settings = chosen_settings({**options, "order": None if table else options["order"]})
    lines = read_lines(options["texts"])
    before = read_order(table, len(lines)) if table else None
    record = find_lines(source, lines, settings, vectors=options["text_features"], before=before)
    for warning in record.warnings:
        click.echo(f"warning: {source.name}: {warning}", err=True)
    click.echo(to_json(record) if options["as_json"] else step_table(record), nl=False)


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
      stepline judge stepline/demo/demo.mp4 --out out
    """
    from stepline.pipeline.batch import Wanted, name_videos, run
    from stepline.pipeline.request import Request

    given = [f"judge.detector={json.dumps(detector)}"] if detector is not None else []
    settings = chosen_settings({**options, "overrides": [*options["overrides"], *given]})
    ((identity, path),) = name_videos([video], out).items()
    with progress_bars() as progress:
        record = run(Request(path, identity, options["captions"]), settings, Wanted(out, ("json",)), progress).record
    for warning in record.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"judged by: {record.models.get('judge') or _nobody(record)}", err=True)
    click.echo(_judgement_json(record) if as_json else _judgement_table(record), nl=False)


def _nobody(record: "Record") -> str:
    """Return why no sentence was judged."""
    if record.transcript is None or not record.transcript.sentences:
        return "nobody: nothing is said"
    language = record.transcript.language
    foreign = language is not None and not language.lower().startswith("en")
    return "nobody: not English, and no --detector" if foreign else "nobody: there is no picture"


def _judgement_table(record: "Record") -> str:
    from stepline.outputs.text import clock

    rows = []
    for sentence in record.transcript.sentences if record.transcript else ():
        shown = "  – " if sentence.shown is None else f"{sentence.shown:4.0%}"
        rows.append(f"  {clock(sentence.span.start):>7}  {shown}  {sentence.text}\n")
    return "".join(rows)


def _judgement_json(record: "Record") -> str:
    sentences = record.transcript.sentences if record.transcript else ()
    rows = [{"text": one.text, "start": one.span.start, "end": one.span.end, "shown": one.shown} for one in sentences]
    judged = {"id": record.id, "judge": record.models.get("judge"), "sentences": rows}
    return json.dumps(judged, ensure_ascii=False, indent=2) + "\n"


@click.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", "describer", required=True, type=click.Path(path_type=Path), help="A network of "
              "`stepline train procx`: its file or folder.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("described"), show_default=True,
              help="Folder.")  # fmt: skip
@click.option("--speech", is_flag=True, help="Read what is said as well, for a network that was trained with speech.")
@click.option("--captions", type=click.Path(path_type=Path), help="With --speech: captions instead of recognition.")
@click.option("--count", type=click.IntRange(min=0), help="Steps to tell, instead of as many as the network counts.")
@click.option("--backbone", type=click.Choice(BACKBONES[:-1]), help="What sees the picture: as in training.")
@click.option("--weights", help="The backbone's checkpoint or feature file.")
@click.option("--format", "formats", type=click.Choice(FORMATS), multiple=True, help="This output beside the JSON.")
@click.option("--clips", is_flag=True, help="Cut an mp4 of every step; videos only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, of several sources a line each, not a table.")
@click.option("--force", is_flag=True, help="Do again what is done.")
@click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="A TOML file of settings.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, e.g. procx.choose=apart.")
def describe(sources: tuple[Path, ...], **options: Any) -> None:
    """Find the steps of SOURCES and say what is done in each, from the pictures alone.

    SOURCES: videos, folders of them, or files of ready features.

    \b
    Example:
      stepline describe silent.mp4 --model run --format html
    """
    from stepline.pipeline.batch import Wanted, find_videos, name_videos
    from stepline.pipeline.describe import are_features
    from stepline.pipeline.request import Request

    settings = _settings(options)
    formats = tuple(dict.fromkeys((*options["formats"], "json")))
    wanted = Wanted(options["out"], formats, clips=options["clips"], force=options["force"])
    ready = [path for path in sources if are_features(path)]
    rest = find_videos(path for path in sources if path not in ready)
    named = name_videos(rest, wanted.out) | {path.name.split(".")[0]: path for path in ready}
    if len(named) < len(rest) + len(ready):
        raise SettingsError("two sources have the same name; give each a folder of its own with --out")
    if len(named) > 1 and options["captions"] is not None:
        raise SettingsError("--captions is for one video; run each video with its own captions file")
    if options["captions"] is not None and not settings.procx.speech:
        raise SettingsError("--captions is read only with --speech; add that, or leave --captions out")
    if ready and options["clips"]:
        raise SettingsError(f"--clips: {ready[0]} holds features, no picture to cut; leave --clips out")
    failed = 0
    for identity, path in named.items():
        try:
            record = _one(Request(path, identity, options["captions"]), settings, wanted, ready=path in ready)
        except SteplineError as error:
            complain(error)
            failed += 1
            continue
        click.echo(printed(record, as_json=options["as_json"], alone=len(named) == 1), nl=False)
    if len(named) > 1:
        click.echo(f"{len(named) - failed} of {len(named)} sources done, {failed} failed", err=True)
    sys.exit(1 if failed else 0)


def _settings(options: dict[str, Any]) -> "StepsSettings":
    given = ["procx.when=alone"]
    given += ["procx.speech=true"] if options["speech"] else []
    given += [f"procx.count={options['count']}"] if options["count"] is not None else []
    return chosen_settings({**options, "overrides": [*options["overrides"], *given]})


def _one(request: "Request", settings: "StepsSettings", wanted: "Wanted", *, ready: bool) -> "Record":
    """Describe one source, write its files, and say what there is to know."""
    from stepline.outputs import write_outputs
    from stepline.pipeline.batch import run
    from stepline.pipeline.describe import describe_features

    if ready:
        record = describe_features(request, settings)
        files = tuple(write_outputs(record, wanted.out, formats=wanted.formats))
    else:
        with progress_bars() as progress:
            done = run(request, settings, wanted, progress)
        record, files = done.record, done.files
    for warning in record.warnings:
        click.echo(f"warning: {request.path.name}: {warning}", err=True)
    for file in files:
        click.echo(f"wrote {file}", err=True)
    return record


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
      stepline summarize stepline/demo/demo.mp4 --out out --length 30
    """
    from stepline.pipeline.batch import Wanted, name_videos, run
    from stepline.pipeline.request import Request
    from stepline.pipeline.summary import load_summarizer, weigh, write_summary

    limits = read_length(length)
    settings = chosen_settings(options)
    loaded = None if summarizer is None else load_summarizer(summarizer, settings.vision)
    ((identity, path),) = name_videos([video], out).items()
    request = Request(path, identity, options["captions"])
    with progress_bars() as progress:
        record = run(request, settings, Wanted(out, ("json",)), progress).record
        importance = None if loaded is None else weigh(record, request, settings, loaded, progress)
    summary = write_summary(record, path, out, limits, importance)
    click.echo(_summary_json(summary) if as_json else _summary_table(summary), nl=False)
    for file in summary.files:
        click.echo(f"wrote {file}", err=True)


def read_length(text: str | None) -> Any:
    """Return the settings of a summary from "45", "1:30" or "25%". Raises SettingsError for anything else."""
    from stepline.wys2.settings import SummarySettings

    if text is None:
        return SummarySettings()
    share = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    time = re.fullmatch(r"(?:(\d+):)?(\d+(?:\.\d+)?)", text)
    if share and 0 < float(share[1]) <= 100:
        return SummarySettings(share=float(share[1]) / 100)
    if time and (seconds := 60 * int(time[1] or 0) + float(time[2])) > 0:
        return SummarySettings(seconds=seconds)
    raise SettingsError(f"--length {text!r}: give seconds (45), minutes (1:30) or a share (25%)")


def _summary_table(summary: Any) -> str:
    from stepline.outputs.text import clock

    lines = [
        f"  {clock(segment.span.start)} – {clock(segment.span.end)}  {'; '.join(step.text for step in segment.steps)}\n"
        for segment in summary.segments
    ]
    count = len(summary.segments)
    return "".join((f"{summary.duration:.1f} s in {count} segment{'' if count == 1 else 's'}\n\n", *lines))


def _summary_json(summary: Any) -> str:
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
