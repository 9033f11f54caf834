"""The commands on one video: transcribe, ground, judge, summarize."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.errors import print_data, print_message
from stepline.cli.options import (
    ADDRESS_TYPE,
    PluginChoice,
    device_options,
    json_option,
    out_option,
    parse_time,
    part_from_options,
    path_option,
    settings_from_options,
    settings_options,
    speech_options,
)
from stepline.cli.progress import progress_bars
from stepline.cli.results import open_single_video, print_corrections_of, print_warnings
from stepline.cli.weights import offer_weights
from stepline.errors import SettingsError

if TYPE_CHECKING:
    from stepline.models.wys2.settings import SummarySettings
    from stepline.pipeline.output_files import WrittenSummary
    from stepline.pipeline.request import Request, StepsSettings
    from stepline.pipeline.sources import VideoArgument
    from stepline.records import Record


@click.command()
@click.argument("video", type=ADDRESS_TYPE)
@click.option("--format", "form", type=click.Choice(["text", "json", "srt", "vtt"]), default="text")
@speech_options
def transcribe(video: "VideoArgument", form: str, **options: Any) -> None:
    """Print what is said in a video.

    \b
    Example:
      stepline transcribe stepline/cli/demo/demo.mp4 --format srt

    With --captions, print what they say, cleaned and in sentences.
    """
    from stepline.outputs import TRANSCRIPT_FORMATS
    from stepline.pipeline import batch

    settings = settings_from_options(options)
    offer_weights()
    part = part_from_options(options)
    # what is said, as text on stdout and all else on stderr
    with (
        open_single_video(video, settings, captions=options["captions"]) as request,
        progress_bars() as progress,
    ):
        record = batch.transcribe(
            request.path, captions=request.captions, settings=settings, part=part, progress=progress
        )
    print_message(*(f"left out: {item.text!r} ({item.reason})" for item in record.dropped))
    print_warnings(record)
    if record.transcript and record.transcript.language:
        print_message(f"language: {record.transcript.language}")
    print_data(TRANSCRIPT_FORMATS[form](record), end="")


@click.command()
@click.argument("source", type=ADDRESS_TYPE)
@path_option(
    "--texts",
    required=True,
    help="The lines to find, one per line, or comparison.json of `stepline compare`.",
)
@path_option("--aligner", required=True, help="The trained network: file or folder.")
@click.option(
    "--mode",
    type=click.Choice(["step", "narration"]),
    help="Steps, or what is spoken, in its order.",
)
@click.option(
    "--order",
    help="none, given (as in the file), compared (as the videos of comparison.json do them), or "
    "a JSON table of P(line i comes before line j).",
)
@path_option("--text-features", help="Ready vectors of the lines.")
@click.option(
    "--backbone",
    type=PluginChoice("backbones", without=("precomputed", "none")),
    help="Encoder of the pictures.",
)
@click.option("--weights", help="The backbone's checkpoint.")
@json_option
@settings_options("One setting.")
@device_options
def ground(source: "VideoArgument", **options: Any) -> None:
    """Find when each line of a text is shown in a video.

    \b
    Example:
      stepline ground lemonade.mp4 --texts recipe.txt --aligner trained --order given

    SOURCE is a video or a file of ready features.
    """
    import numpy as np

    from stepline.compare.task_graph import read_lines_to_find
    from stepline.outputs import step_table
    from stepline.pipeline.ground_texts import ground_texts, read_order_matrix
    from stepline.storage import to_json

    # the settings, and the order of the lines
    order = options["order"]
    is_setting = order in (None, "none", "given")
    settings = settings_from_options({**options, "order": order if is_setting else None})
    texts, graph = read_lines_to_find(options["texts"])
    order_probabilities = None
    if order == "compared":
        if graph is None:
            raise SettingsError(
                f"--order compared: {options['texts']} is not a comparison; give --texts the "
                "comparison.json that `stepline compare` wrote"
            )
        order_probabilities = np.array(graph.before)
    elif not is_setting:
        order_probabilities = read_order_matrix(Path(order), len(texts))

    # the lines, placed
    with open_single_video(source, settings) as request:
        record = ground_texts(
            request.path,
            texts,
            settings,
            vectors=options["text_features"],
            order_probabilities=order_probabilities,
            graph=graph,
        )
    print_warnings(record, f"{request.path.name}: ")
    print_data(to_json(record) if options["as_json"] else step_table(record), end="")


@click.command()
@click.argument("video", type=ADDRESS_TYPE)
@out_option("Folder for the results.", default="out")
@click.option("--detector", help="A detector that `stepline train wys2` made: its file or folder.")
@json_option
@speech_options
def judge(video: "VideoArgument", out: Path, as_json: bool, **options: Any) -> None:
    """Say of each sentence whether the picture shows it.

    \b
    Example:
      stepline judge stepline/cli/demo/demo.mp4 --out out

    A sentence has the verdict of the steps that rest on it. With --detector, the detector decides
    where it is sure. The record that `stepline steps` wrote to OUT is used, or made first.
    """
    _, record = _load_or_find_steps(video, out, settings_from_options(options), options)
    print_warnings(record)
    rows = _judge_rows(record)
    if as_json:
        judgement = {"id": record.id, "judge": record.models.get("judge"), "sentences": rows}
        print_data(json.dumps(judgement, ensure_ascii=False, indent=2))
    else:
        print_data(_judgement_table(rows), end="")


def _judge_rows(record: "Record") -> list[dict[str, Any]]:
    """Return what is judged of each sentence, as JSON."""
    from stepline.outputs.page.view import citing_steps
    from stepline.outputs.verdict import most_certain
    from stepline.pipeline.placing import detected_status

    rows = []
    for sentence, citing in zip(record.sentences, citing_steps(record), strict=True):
        span = sentence.span
        row = {"text": sentence.text, "start": span.start, "end": span.end}
        step = most_certain(citing.values())
        row |= dict.fromkeys(("status", "basis", "doubt"))
        if step is not None:
            row |= step.model_dump(include={"status", "basis", "doubt"})
        elif sentence.shown is not None:
            row["status"] = detected_status(sentence.shown)
            row["basis"] = "network" if row["status"] == "seen" else None
        rows.append(
            {**row, "shown": sentence.shown, "steps": [each.id for each in citing.values()]}
        )
    return rows


def _judgement_table(rows: list[dict[str, Any]]) -> str:
    from stepline.outputs.terminal import MARKS_LEGEND, VERDICT_MARKS
    from stepline.outputs.text import clock
    from stepline.outputs.verdict import verdict

    lines = []
    for row in rows:
        mark = VERDICT_MARKS[verdict(row["status"], row["doubt"])]
        lines.append(f"  {mark} {clock(row['start']):>7}  {row['text']}")
    return "\n".join([*lines, "", f"{MARKS_LEGEND}  · no step", ""])


def _load_or_find_steps(
    video: "VideoArgument", out: Path, settings: "StepsSettings", options: dict[str, Any]
) -> "tuple[Request, Record]":
    """Return the request of a video, and its record. The record is read from OUT or made now."""
    from stepline.pipeline.batch import run_video
    from stepline.pipeline.output_files import OutputOptions

    # A result that is there is taken, so that asking again costs nothing.
    offer_weights()
    opened = open_single_video(
        video, settings, out, options["captions"], part_from_options(options)
    )
    outputs = OutputOptions(out, ("json",))
    with opened as request, progress_bars() as progress:
        return request, run_video(request, settings, outputs, progress=progress).record


@click.command()
@click.argument("video", type=ADDRESS_TYPE)
@out_option("Folder for the results.", default="out")
@click.option(
    "--length",
    help="Longest summary: 45 (seconds), 1:30 or 25%. Default: every seen or placed step.",
)
@json_option
@speech_options
def summarize(
    video: "VideoArgument", out: Path, length: str | None, as_json: bool, **options: Any
) -> None:
    """Cut a video down to the seconds of its steps.

    \b
    Example:
      stepline summarize stepline/cli/demo/demo.mp4 --out out --length 30

    Writes the mp4, and prints which seconds it holds and their steps. These come from `stepline
    steps`, which is run first where OUT does not hold its result.
    """
    from stepline.pipeline.output_files import write_summary

    limits = parse_length(length)
    request, record = _load_or_find_steps(video, out, settings_from_options(options), options)
    summary = write_summary(record, request.path, out, limits)
    print_data(_summary_json(summary) if as_json else _summary_table(summary, record))
    print_message(f"wrote {summary.file}")
    print_corrections_of(out, [record.id])


def parse_length(text: str | None) -> "SummarySettings":
    """Return the settings of a summary from "45", "1:30" or "25%".

    Raises SettingsError for any other text.
    """
    from stepline.models.wys2.settings import SummarySettings

    if text is None:
        return SummarySettings()
    # A share, seconds, or minutes and seconds, but no hours.
    fraction = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    seconds = parse_time(text) if text.count(":") < 2 else None
    if fraction and 0 < float(fraction[1]) <= 100:
        return SummarySettings(share=float(fraction[1]) / 100)
    if seconds:
        return SummarySettings(seconds=seconds)
    raise SettingsError(f"--length {text!r}: give seconds (45), minutes (1:30) or a share (25%)")


def _summary_table(summary: "WrittenSummary", record: "Record") -> str:
    from stepline.outputs.text import clock, step_line

    count = sum(len(segment.steps) for segment in summary.segments)
    lines = [f"{summary.duration:.1f} s with {count} of {len(record.steps)} steps", ""]
    for segment in summary.segments:
        texts = "; ".join(step_line(step) for step in segment.steps)
        lines.append(f"  {clock(segment.span.start)} – {clock(segment.span.end)}  {texts}")
    return "\n".join(lines)


def _summary_json(summary: "WrittenSummary") -> str:
    rows = []
    for segment in summary.segments:
        steps = [{"id": step.id, "text": step.text, "kind": step.kind} for step in segment.steps]
        row = {
            "start": segment.span.start,
            "end": segment.span.end,
            "value": round(segment.p_shown, 4),
            "steps": steps,
        }
        rows.append(row)
    tree = {"seconds": round(summary.duration, 3), "segments": rows}
    return json.dumps(tree, ensure_ascii=False, indent=2)
