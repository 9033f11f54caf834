"""A schema.org HowTo or Recipe as JSON-LD, with a Clip of the video for every step that is
shown.

Fields are those of https://developers.google.com/search/docs/appearance/structured-data/recipe and
.../video. None is made up. Times and the yield are there where they are said. Author and dates are
there where the page of a link or the file's metadata has them.
"""

import json

from pydantic import JsonValue

from stepline.outputs.text import (
    amount_text,
    material_text,
    one_line,
    published_line,
    shown_span,
    title,
)
from stepline.outputs.web_addresses import RecordLinks
from stepline.records import Record, Step, TimeKind

JsonObject = dict[str, JsonValue]

# escaped in JSON, so that no text can end the script element of a page
UNSAFE_CHARACTERS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}
RECIPE_TIMES: dict[TimeKind, str] = {
    "total": "totalTime",
    "preparation": "prepTime",
    "cooking": "cookTime",
}
HOWTO_TIMES: dict[TimeKind, str] = RECIPE_TIMES | {"cooking": "performTime"}
NO_LINKS = RecordLinks()


def jsonld(record: Record, links: RecordLinks = NO_LINKS) -> str:
    """Return a schema.org HowTo as JSON, safe inside a `<script type="application/ld+json">`.

    A step that is not shown has no clip.

    Args:
        record: the steps of the video.
        links: links to the page, video and pictures. By default the JSON names no path of this
            machine.
    """
    steps, clips = _steps_and_clips(record, links, is_howto=True)
    tree = _work_properties(record, links, "HowTo", HOWTO_TIMES, "yield")
    supplies: list[JsonValue] = []
    for thing in record.materials:
        supply: JsonObject = {"@type": "HowToSupply", "name": one_line(thing.name)}
        if thing.amounts:
            supply["requiredQuantity"] = " + ".join(map(amount_text, thing.amounts))
        supplies.append(supply)
    if supplies:
        tree["supply"] = supplies
    tree |= _tool_property(record)
    tree["video"] = _video_object(record, links) | {"hasPart": clips}
    tree["step"] = steps
    return _to_script_json(tree | _language_property(record))


def recipe_jsonld(record: Record, links: RecordLinks = NO_LINKS) -> str:
    """Return a schema.org Recipe as JSON, with an image and a clip of the video for each step.

    Recipe managers can import it. Ingredients, times and yield are those that the speaker says.

    Args:
        record: the steps and ingredients of the video.
        links: links to the page, video and pictures.
    """
    steps, clips = _steps_and_clips(record, links, is_howto=False)
    tree = _work_properties(record, links, "Recipe", RECIPE_TIMES, "recipeYield")
    # without a file or address there is no video to name
    if links.video is not None:
        tree["video"] = _video_object(record, links) | {"hasPart": clips}
    tree["recipeIngredient"] = list(map(material_text, record.materials))
    tree["recipeInstructions"] = steps
    tree |= _tool_property(record)
    return _to_script_json(tree | _language_property(record))


def missing_recipe_fields(record: Record, links: RecordLinks) -> list[str]:
    """Return a phrase for each missing field that Google requires of a Recipe with a video."""
    gaps = []
    if links.image is None:
        gaps.append("image (no step has a picture)")
    if links.video is not None and record.video.publication_date is None:
        gaps.append("uploadDate (neither a page nor the file's metadata names it)")
    if not links.is_absolute:
        gaps.append("absolute addresses (--base-url and --media-url give them)")
    return gaps


def _work_properties(
    record: Record,
    links: RecordLinks,
    type_name: str,
    time_fields: dict[TimeKind, str],
    yield_field: str,
) -> JsonObject:
    """Return the known properties that HowTo and Recipe share: title, image, author, times, yield.

    If the speaker says a range of time, the longer time is given, and the description says both.

    Args:
        record: the title, author, times and yields of the video.
        links: links to the page and pictures.
        type_name: schema.org type, "HowTo" or "Recipe".
        time_fields: kind of time -> name of its property.
        yield_field: name of the property that holds the yield.
    """
    tree: JsonObject = {"@context": "https://schema.org", "@type": type_name, "name": title(record)}
    if links.page:
        tree["url"] = links.page
    if links.image is not None:
        tree["image"] = links.image
    if record.video.author is not None:
        tree["author"] = {"@type": "Person", "name": one_line(record.video.author)}
    if record.video.publication_date is not None:
        tree["datePublished"] = record.video.publication_date
    for time in record.times:
        tree[time_fields[time.kind]] = iso_duration(time.high)
    ranges = [
        f"{time.kind} time: {time.low / 60:g} to {time.high / 60:g} minutes"
        for time in record.times
        if time.low < time.high
    ]
    if ranges:
        tree["description"] = "; ".join(ranges)
    if record.yields:
        tree[yield_field] = material_text(record.yields[0])
    return tree


def _video_object(record: Record, links: RecordLinks) -> JsonObject:
    """Return the VideoObject without its clips."""
    video: JsonObject = {
        "@type": "VideoObject",
        "name": title(record),
        "identifier": record.video.id,
    }
    if links.image is not None:
        video["thumbnailUrl"] = links.image
    if record.video.publication_date is not None:
        video["uploadDate"] = record.video.publication_date
    if links.video is not None:
        video["contentUrl"] = links.video
    if record.video.duration is not None:
        seconds = f"{record.video.duration:.3f}".rstrip("0").rstrip(".")
        video["duration"] = f"PT{seconds}S"  # ISO 8601
    return video


def _steps_and_clips(
    record: Record, links: RecordLinks, *, is_howto: bool
) -> tuple[list[JsonValue], list[JsonValue]]:
    """Return a HowToStep for each step, and a Clip for each that is seen or placed.

    Args:
        record: the steps of the video.
        links: links to the page, video and pictures.
        is_howto: True for a HowTo, whose steps refer to their clips by id. False for a Recipe,
            whose steps contain their clips.
    """
    steps: list[JsonValue] = []
    clips: list[JsonValue] = []
    for number, step in enumerate(record.steps, start=1):
        text = published_line(step)
        entry: JsonObject = {"@type": "HowToStep", "position": number, "name": text, "text": text}
        address = links.step_link(number)
        if address is not None:
            entry["url"] = address
        if step.id in links.pictures:
            entry["image"] = links.pictures[step.id]
        if is_howto and step.kind == "avoid":
            # schema.org: a tip may say "what should not be done"
            entry["itemListElement"] = [{"@type": "HowToTip", "text": text}]
        clip = _clip(step, number, links)
        if clip is not None:
            entry["video"] = {"@id": clip["@id"]} if is_howto else clip
            clips.append(clip)
        steps.append(entry)
    return steps, clips


def _clip(step: Step, number: int, links: RecordLinks) -> JsonObject | None:
    """Return the schema.org Clip of a step, None if the step is not shown."""
    span = shown_span(step)
    if span is None:
        return None
    start = round(span.start, 3)
    end = round(span.end, 3)
    clip: JsonObject = {
        "@type": "Clip",
        "@id": f"#step-{number}",
        "name": published_line(step),
        "startOffset": start,
        "endOffset": end,
    }
    address = links.time_link(start, end)
    if address is not None:
        clip["url"] = address
    return clip


def iso_duration(seconds: float) -> str:
    """Return a duration in the form of ISO 8601, such as PT1H30M."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    parts = [(hours, "H"), (minute, "M"), (second, "S")]
    text = "".join(f"{number}{letter}" for number, letter in parts if number)
    return f"PT{text or '0S'}"


def _tool_property(record: Record) -> JsonObject:
    tools: list[JsonValue] = [
        {"@type": "HowToTool", "name": one_line(tool.name)} for tool in record.tools
    ]
    return {"tool": tools} if tools else {}


def _language_property(record: Record) -> JsonObject:
    if record.transcript is None or record.transcript.language is None:
        return {}
    return {"inLanguage": record.transcript.language}


def _to_script_json(tree: JsonObject) -> str:
    text = json.dumps(tree, ensure_ascii=False, indent=2, allow_nan=False)
    return text.translate(UNSAFE_CHARACTERS) + "\n"
