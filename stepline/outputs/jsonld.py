"""A schema.org HowTo as JSON-LD, with a Clip of the video for every step that is shown."""

import json

from pydantic import JsonValue

from stepline.outputs.text import one_line, sentence_case, shown_span
from stepline.records import Record

UNSAFE = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}  # JSON says the same, HTML cannot be left


def jsonld(record: Record) -> str:
    """Return the HowTo as JSON, safe inside a `<script type="application/ld+json">`.

    Offsets are seconds. A step that is not shown carries no clip, and no file path leaves the machine.
    """
    name = one_line(record.video.title or record.video.task or "") or record.video.id
    video: dict[str, JsonValue] = {"@type": "VideoObject", "name": name, "identifier": record.video.id}
    if record.video.duration is not None:
        video["duration"] = f"PT{record.video.duration:.3f}".rstrip("0").rstrip(".") + "S"  # ISO 8601
    clips: list[JsonValue] = []
    steps: list[JsonValue] = []
    for number, step in enumerate(record.steps, start=1):
        text, span, address = sentence_case(one_line(step.text)), shown_span(step), f"#step-{number}"  # as in the page
        entry: dict[str, JsonValue] = {"@type": "HowToStep", "position": number, "name": text, "text": text}
        if span is not None:
            entry["video"] = {"@id": address}
            offsets = {"startOffset": round(span.start, 3), "endOffset": round(span.end, 3)}
            clips.append({"@type": "Clip", "@id": address, "name": text, **offsets})
        steps.append(entry)
    video["hasPart"] = clips
    tree: dict[str, JsonValue] = {"@context": "https://schema.org", "@type": "HowTo", "name": name}
    tree |= {"video": video, "step": steps}
    if record.transcript is not None and record.transcript.language is not None:
        tree["inLanguage"] = record.transcript.language
    return json.dumps(tree, ensure_ascii=False, indent=2, allow_nan=False).translate(UNSAFE) + "\n"
