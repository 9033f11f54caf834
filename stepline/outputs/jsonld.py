"""A schema.org HowTo or Recipe as JSON-LD, with a Clip of the video for every step that is
shown."""

import json
from collections.abc import Mapping

from pydantic import JsonValue

from stepline.outputs.html import media_link
from stepline.outputs.text import amount_text, material_text, one_line, shown_span, step_line, title
from stepline.records import Record

# JSON says the same, HTML cannot be left
UNSAFE_CHARACTERS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


def jsonld(record: Record) -> str:
    """Return the HowTo as JSON, safe inside a `<script type="application/ld+json">`.

    Offsets are seconds. A step that is not shown carries no clip, and no file path leaves the
    machine.
    """
    name = title(record)
    video: dict[str, JsonValue] = {
        "@type": "VideoObject",
        "name": name,
        "identifier": record.video.id,
    }
    if record.video.duration is not None:
        # ISO 8601
        video["duration"] = f"PT{record.video.duration:.3f}".rstrip("0").rstrip(".") + "S"
    clips: list[JsonValue] = []
    steps: list[JsonValue] = []
    for number, step in enumerate(record.steps, start=1):
        text, span, address = step_line(step), shown_span(step), f"#step-{number}"  # as in the page
        entry: dict[str, JsonValue] = {
            "@type": "HowToStep",
            "position": number,
            "name": text,
            "text": text,
        }
        if step.kind == "avoid":  # schema.org: a tip may say "what should not be done"
            entry["itemListElement"] = [{"@type": "HowToTip", "text": text}]
        if span is not None:
            entry["video"] = {"@id": address}
            offsets = {"startOffset": round(span.start, 3), "endOffset": round(span.end, 3)}
            clips.append({"@type": "Clip", "@id": address, "name": text, **offsets})
        steps.append(entry)
    video["hasPart"] = clips
    tree: dict[str, JsonValue] = {"@context": "https://schema.org", "@type": "HowTo", "name": name}
    tree |= _supplies_and_tools(record)
    tree |= {"video": video, "step": steps}
    if record.transcript is not None and record.transcript.language is not None:
        tree["inLanguage"] = record.transcript.language
    return _script_safe(tree)


def recipe_jsonld(record: Record, pictures: Mapping[str, str], media: str | None = None) -> str:
    """Return a schema.org Recipe, as recipe managers import it: an image and a clip of the video
    for each step.

    pictures: the link of each step's picture, by the step's id; media: the video's. Ingredients are
    what the speaker says goes into it; how many it serves is not known, so no yield is claimed.
    """
    name, steps = title(record), []
    for number, step in enumerate(record.steps, start=1):
        text, span = step_line(step), shown_span(step)
        entry: dict[str, JsonValue] = {
            "@type": "HowToStep",
            "position": number,
            "name": text,
            "text": text,
        }
        if step.id in pictures:
            entry["image"] = media_link(pictures[step.id])
        if span is not None:
            start, end = round(span.start, 3), round(span.end, 3)
            clip: dict[str, JsonValue] = {
                "@type": "Clip",
                "name": text,
                "startOffset": start,
                "endOffset": end,
            }
            entry["video"] = (
                clip
                if media is None
                else {**clip, "url": f"{media_link(media)}#t={start:g},{end:g}"}
            )
        steps.append(entry)
    tree: dict[str, JsonValue] = {"@context": "https://schema.org", "@type": "Recipe", "name": name}
    if pictures:
        # the last step's comes nearest to the dish
        tree["image"] = media_link(list(pictures.values())[-1])
    if media is not None:
        tree["video"] = {"@type": "VideoObject", "name": name, "contentUrl": media_link(media)}
    ingredients: list[JsonValue] = [material_text(thing) for thing in record.materials]
    tree |= {"recipeIngredient": ingredients, "recipeInstructions": list[JsonValue](steps)}
    tree |= _tools(record)
    if record.transcript is not None and record.transcript.language is not None:
        tree["inLanguage"] = record.transcript.language
    return _script_safe(tree)


def _supplies_and_tools(record: Record) -> dict[str, JsonValue]:
    """Return the supplies of a HowTo, each with how much of it, and its tools; those that are
    named."""
    supplies: list[JsonValue] = []
    for thing in record.materials:
        supply: dict[str, JsonValue] = {"@type": "HowToSupply", "name": one_line(thing.name)}
        if thing.amounts:
            supply["requiredQuantity"] = " + ".join(map(amount_text, thing.amounts))
        supplies.append(supply)
    entries: dict[str, JsonValue] = {"supply": supplies} if supplies else {}
    return entries | _tools(record)


def _tools(record: Record) -> dict[str, JsonValue]:
    tools: list[JsonValue] = [
        {"@type": "HowToTool", "name": one_line(tool.name)} for tool in record.tools
    ]
    return {"tool": tools} if tools else {}


def _script_safe(tree: dict[str, JsonValue]) -> str:
    return (
        json.dumps(tree, ensure_ascii=False, indent=2, allow_nan=False).translate(UNSAFE_CHARACTERS)
        + "\n"
    )
