"""A record for video editors, players and annotation tools: chapters, OpenTimelineIO, Label Studio.

OpenTimelineIO      https://opentimelineio.readthedocs.io, schemas Timeline.1, Clip.2, Marker.2
Label Studio        https://labelstud.io/tags/timelinelabels, ranges of frames of a Video, and a TextArea per region
"""

import json
from pathlib import Path

from pydantic import JsonValue

from stepline.errors import escape_control_characters
from stepline.outputs.text import (
    WARNING_MARK,
    one_line,
    sentence_case,
    shown_span,
    step_line,
    title,
)
from stepline.outputs.verdict import VERDICT_TEXTS, Verdict, step_verdict
from stepline.outputs.web_addresses import media_link
from stepline.records import Record, Span, Step
from stepline.version import __version__

JsonObject = dict[str, JsonValue]

INTRO_TITLE = "Intro"
MIN_CHAPTER_SECONDS = 1.0  # a step that starts sooner after the last chapter joins it
# names of OpenTimelineIO's marker colours
MARKER_COLOURS: dict[Verdict, str] = {"seen": "GREEN", "doubtful": "YELLOW"}
PLACED_COLOUR = "CYAN"
CANDIDATE_LABEL = "candidate"  # label of a further span, which may be right instead of the best
LABEL_STUDIO_RATE = 24  # frames/s of its Video tag by default. Times are counted in them
TIME_BASE = 1000  # units of a second in OpenTimelineIO's times


def file_chapters(record: Record) -> list[tuple[Span, str]]:
    """Return the span and title of each chapter of a media file.

    A chapter lasts from the start of a seen or placed step to the start of the next one, with an
    intro before the first. Unlike YouTube's chapters, there may be few and short ones.
    """
    starts: list[float] = []
    texts: list[str] = []
    for span, step in sorted(_shown_steps(record), key=lambda row: row[0].start):
        text = step_line(step)
        if starts and span.start - starts[-1] < MIN_CHAPTER_SECONDS:
            texts[-1] = f"{texts[-1]}; {text}"
        else:
            starts.append(span.start)
            texts.append(text)
    if not starts:
        return []

    # what comes before the first step
    if starts[0] >= MIN_CHAPTER_SECONDS:
        starts.insert(0, 0.0)
        texts.insert(0, INTRO_TITLE)
    else:
        starts[0] = 0.0

    last_ends = (span.end for span, _ in _shown_steps(record))
    ends = [*starts[1:], max(record.video.duration or 0.0, *last_ends)]
    return list(zip(map(Span, starts, ends), texts, strict=True))


def opentimelineio(record: Record, media: str | None = None, start: float = 0.0) -> str:
    """Return a timeline of the whole video with a marker per seen or placed step, as OpenTimelineIO's JSON.

    All times are in the media's own time code, as editors expect.

    Args:
        record: the steps of the video.
        media: link to the video. None: the timeline does not refer to a video file.
        start: seconds that the media's time code shows at its first frame.
    """
    markers: list[JsonValue] = []
    end = max(record.video.duration or 0.0, 1 / TIME_BASE)
    for span, step in _shown_steps(record):
        markers.append(_marker(span, step, start))
        end = max(end, span.end)
    whole = _time_range(Span(start, start + end))
    reference: JsonObject = {"OTIO_SCHEMA": "MissingReference.1", "available_range": whole}
    if media is not None:
        reference["OTIO_SCHEMA"] = "ExternalReference.1"
        reference["target_url"] = media_link(media)
        reference["name"] = media.rpartition("/")[2]

    # the timeline, from the clip outwards
    clip: JsonObject = {
        "OTIO_SCHEMA": "Clip.2",
        "name": title(record),
        "source_range": whole,
        "markers": markers,
        "media_references": {"DEFAULT_MEDIA": reference},
        "active_media_reference_key": "DEFAULT_MEDIA",
    }
    track: JsonObject = {
        "OTIO_SCHEMA": "Track.1",
        "name": "V1",
        "kind": "Video",
        "children": [clip],
    }
    stack: JsonObject = {"OTIO_SCHEMA": "Stack.1", "name": "tracks", "children": [track]}
    timeline: JsonObject = {"OTIO_SCHEMA": "Timeline.1", "name": title(record), "tracks": stack}
    return _to_json(timeline)


def label_studio(record: Record, media: str | None = None) -> str:
    """Return a Label Studio task with the steps as predictions, one TimelineLabels region per span.

    The label of a step's best span is its verdict: "seen", "placed" or "placed?". Further
    spans of the step are labelled "candidate". A text area holds the step's text. Frames count from
    1, at LABEL_STUDIO_RATE frames per second. `stepline datasets label-studio` reads the task back.

    Args:
        record: the steps of the video.
        media: link to the video. None: the file name in the record, which may be a stranger's, so
            that no folder of a machine is named.
    """
    result: list[JsonValue] = []
    for number, step in enumerate(record.steps, start=1):
        if shown_span(step) is None:
            continue
        for rank, span in enumerate(step.spans):
            result += _region(f"{number}.{rank}", step, span, is_best=rank == 0)
    data: JsonObject = {
        "id": record.id,
        "video": media or Path(record.video.path or "").name or record.video.id,
        "frame_rate": LABEL_STUDIO_RATE,
        "duration": record.video.duration,
    }
    prediction: JsonObject = {"model_version": f"stepline {__version__}", "result": result}
    return _to_json([{"data": data, "predictions": [prediction]}])


def _region(id: str, step: Step, span: Span, *, is_best: bool) -> list[JsonValue]:
    """Return the two results of a region, for its label and for its text."""
    # What people marked has no status, and none of its spans is a second choice.
    label = VERDICT_TEXTS["placed"]
    if step.status is not None:
        label = VERDICT_TEXTS[step_verdict(step)] if is_best else CANDIDATE_LABEL
    first_frame = round(span.start * LABEL_STUDIO_RATE) + 1
    last_frame = max(first_frame, round(span.end * LABEL_STUDIO_RATE))
    ranges: list[JsonValue] = [{"start": first_frame, "end": last_frame}]
    base: JsonObject = {"id": id, "to_name": "video", "origin": "prediction"}
    label_result: JsonObject = {
        **base,
        "from_name": "status",
        "type": "timelinelabels",
        "value": {"ranges": ranges, "timelinelabels": [label]},
    }
    if step.kind == "avoid":
        # the text itself is read back as it is
        label_result["meta"] = {"text": [WARNING_MARK.strip()]}
    text_result: JsonObject = {
        **base,
        "from_name": "text",
        "type": "textarea",
        "value": {"ranges": ranges, "text": [sentence_case(one_line(step.text))]},
    }
    return [label_result, text_result]


def _marker(span: Span, step: Step, start: float) -> JsonObject:
    """Return the OpenTimelineIO marker of a step. start: time code of second 0, in seconds."""
    verdict = step_verdict(step)
    metadata: JsonObject = {"id": step.id, "verdict": VERDICT_TEXTS[verdict]}
    return {
        "OTIO_SCHEMA": "Marker.2",
        "name": step_line(step),
        "color": MARKER_COLOURS.get(verdict, PLACED_COLOUR),
        "marked_range": _time_range(Span(start + span.start, start + span.end)),
        "metadata": {"stepline": metadata},
    }


def _shown_steps(record: Record) -> list[tuple[Span, Step]]:
    spans = map(shown_span, record.steps)
    return [
        (span, step) for span, step in zip(spans, record.steps, strict=True) if span is not None
    ]


def _to_json(tree: JsonValue) -> str:
    text = json.dumps(tree, ensure_ascii=False, indent=2, allow_nan=False)
    return escape_control_characters(text) + "\n"


def _time_range(span: Span) -> JsonObject:
    return {
        "OTIO_SCHEMA": "TimeRange.1",
        "start_time": _rational_time(span.start),
        "duration": _rational_time(span.duration),
    }


def _rational_time(second: float) -> JsonObject:
    return {
        "OTIO_SCHEMA": "RationalTime.1",
        "rate": float(TIME_BASE),
        "value": float(round(second * TIME_BASE)),
    }
