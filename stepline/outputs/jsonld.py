"""A schema.org HowTo as JSON-LD, with a Clip of the video for every step that is shown."""

import json

from pydantic import JsonValue

from stepline.outputs.text import one_line, sentence_case, shown_span
from stepline.records import Record, Span, Step

UNSAFE = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}  # JSON says the same, HTML cannot be left


def jsonld(record: Record) -> str:
    """Return the HowTo as JSON, safe inside a `<script type="application/ld+json">`.

    Offsets are seconds. A step that is not shown carries no clip, and no file path leaves the machine.
    """
    spans = [(number, step, shown_span(step)) for number, step in enumerate(record.steps, start=1)]
    clips: list[JsonValue] = [_clip(number, step, span) for number, step, span in spans if span is not None]
    tree: dict[str, JsonValue] = {
        "@context": "https://schema.org",
        "@type": "HowTo",
        "name": _name(record),
        "video": _video(record, clips),
        "step": [_step(number, step) for number, step in enumerate(record.steps, start=1)],
    }
    if record.transcript is not None and record.transcript.language is not None:
        tree["inLanguage"] = record.transcript.language
    return json.dumps(tree, ensure_ascii=False, indent=2, allow_nan=False).translate(UNSAFE) + "\n"


def _name(record: Record) -> str:
    return one_line(record.video.title or record.video.task or "") or record.video.id


def _video(record: Record, clips: list[JsonValue]) -> dict[str, JsonValue]:
    video: dict[str, JsonValue] = {"@type": "VideoObject", "name": _name(record), "identifier": record.video.id}
    if record.video.duration is not None:
        video["duration"] = f"PT{record.video.duration:.3f}".rstrip("0").rstrip(".") + "S"  # ISO 8601
    video["hasPart"] = clips
    return video


def _step(number: int, step: Step) -> dict[str, JsonValue]:
    text = sentence_case(one_line(step.text))
    tree: dict[str, JsonValue] = {"@type": "HowToStep", "position": number, "name": text, "text": text}
    if shown_span(step) is not None:
        tree["video"] = {"@id": _clip_id(number)}
    return tree


def _clip(number: int, step: Step, span: Span) -> dict[str, JsonValue]:
    return {
        "@type": "Clip",
        "@id": _clip_id(number),
        "name": sentence_case(one_line(step.text)),
        "startOffset": round(span.start, 3),
        "endOffset": round(span.end, 3),
    }


def _clip_id(number: int) -> str:
    return f"#step-{number}"  # the page's anchor of the same step
