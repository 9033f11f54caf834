"""A schema.org HowTo or Recipe as JSON-LD, with a Clip of the video for every step that is
shown.

Fields are those of https://developers.google.com/search/docs/appearance/structured-data/recipe and
.../video. None is made up. Times and the yield are there where they are said. Author and dates are
there where the page of a link or the file's metadata has them.
"""

import json
from typing import Final

from pydantic import JsonValue

from stepline.outputs.text import amount_text, material_text, one_line, shown_span, step_line, title
from stepline.outputs.web_addresses import RecordLinks
from stepline.records import Record, Step, TimeKind

# JSON says the same, HTML cannot be left
UNSAFE_CHARACTERS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}
RECIPE_TIMES: Final[dict[TimeKind, str]] = {
    "total": "totalTime",
    "preparation": "prepTime",
    "cooking": "cookTime",
}
HOWTO_TIMES: Final[dict[TimeKind, str]] = RECIPE_TIMES | {"cooking": "performTime"}
NO_LINKS = RecordLinks()


def jsonld(record: Record, links: RecordLinks = NO_LINKS) -> str:
    """Return the HowTo as JSON, safe inside a `<script type="application/ld+json">`.

    Offsets are seconds. A step that is not shown carries no clip, and without links no file path
    leaves the machine.
    """
    video = _video_object(record, links)
    clips: list[JsonValue] = []
    steps: list[JsonValue] = []
    for number, step in enumerate(record.steps, start=1):
        entry = _step_entry(step, number, links)
        if step.kind == "avoid":  # schema.org: a tip may say "what should not be done"
            tip: JsonValue = {"@type": "HowToTip", "text": step_line(step)}
            entry["itemListElement"] = [tip]
        clip = _clip(step, number, links)
        if clip is not None:
            entry["video"] = {"@id": clip["@id"]}
            clips.append(clip)
        steps.append(entry)

    # the tree, in the order in which it is read
    video["hasPart"] = clips
    tree: dict[str, JsonValue] = {
        "@context": "https://schema.org",
        "@type": "HowTo",
        "name": title(record),
    }
    tree |= _origin(record, links)
    tree |= _times(record, HOWTO_TIMES)
    if record.yields:
        tree["yield"] = material_text(record.yields[0])
    tree |= _supplies_and_tools(record)
    tree |= {"video": video, "step": steps}
    return _script_safe(tree | _language(record))


def recipe_jsonld(record: Record, links: RecordLinks = NO_LINKS) -> str:
    """Return a schema.org Recipe, as recipe managers import it: an image and a clip of the video
    for each step.

    Ingredients, times and yield are what the speaker says. `recipe_gaps` says what search engines
    miss in it.
    """
    # The work as a whole.
    tree: dict[str, JsonValue] = {
        "@context": "https://schema.org",
        "@type": "Recipe",
        "name": title(record),
    }
    tree |= _origin(record, links)
    tree |= _times(record, RECIPE_TIMES)
    if record.yields:
        tree["recipeYield"] = material_text(record.yields[0])
    # The steps, and a clip of each that is shown.
    clips: list[JsonValue] = []
    steps: list[JsonValue] = []
    for number, step in enumerate(record.steps, start=1):
        entry = _step_entry(step, number, links)
        clip = _clip(step, number, links)
        if clip is not None:
            entry["video"] = clip
            clips.append(clip)
        steps.append(entry)
    # without a file or address there is no video to name
    if links.video is not None:
        video = _video_object(record, links)
        video["hasPart"] = clips
        tree["video"] = video
    # What is needed, and what is done.
    ingredients: list[JsonValue] = []
    for thing in record.materials:
        ingredients.append(material_text(thing))
    tree["recipeIngredient"] = ingredients
    tree["recipeInstructions"] = steps
    tree |= _tools(record)
    return _script_safe(tree | _language(record))


def recipe_gaps(record: Record, links: RecordLinks) -> list[str]:
    """Return what Google requires of a Recipe with a video and this record cannot tell, a phrase
    each."""
    gaps = []
    if links.image is None:
        gaps.append("image (no step has a picture)")
    if links.video is not None and record.video.publication_date is None:
        gaps.append("uploadDate (neither a page nor the file's metadata names it)")
    if not links.is_absolute:
        gaps.append("absolute addresses (--base-url gives them)")
    return gaps


def _origin(record: Record, links: RecordLinks) -> dict[str, JsonValue]:
    """Return the image, author and date of the work, those that are known."""
    entries: dict[str, JsonValue] = {}
    if links.page:
        entries["url"] = links.page
    if links.image is not None:
        entries["image"] = links.image
    if record.video.author is not None:
        entries["author"] = {"@type": "Person", "name": one_line(record.video.author)}
    if record.video.publication_date is not None:
        entries["datePublished"] = record.video.publication_date
    return entries


def _video_object(record: Record, links: RecordLinks) -> dict[str, JsonValue]:
    """Return the VideoObject without its clips."""
    video: dict[str, JsonValue] = {
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


def _step_entry(step: Step, number: int, links: RecordLinks) -> dict[str, JsonValue]:
    """Return the HowToStep without its clip. number: from 1 on, as in the page."""
    text = step_line(step)
    entry: dict[str, JsonValue] = {
        "@type": "HowToStep",
        "position": number,
        "name": text,
        "text": text,
    }
    address = links.step(number)
    if address is not None:
        entry["url"] = address
    if step.id in links.pictures:
        entry["image"] = links.pictures[step.id]
    return entry


def _clip(step: Step, number: int, links: RecordLinks) -> dict[str, JsonValue] | None:
    """Return the Clip of a step. None where it is not shown."""
    span = shown_span(step)
    if span is None:
        return None
    start = round(span.start, 3)
    end = round(span.end, 3)
    clip: dict[str, JsonValue] = {
        "@type": "Clip",
        "@id": f"#step-{number}",
        "name": step_line(step),
        "startOffset": start,
        "endOffset": end,
    }
    address = links.moment(start, end)
    if address is not None:
        clip["url"] = address
    return clip


def _times(record: Record, fields: dict[TimeKind, str]) -> dict[str, JsonValue]:
    """Return the times that are said in ISO 8601. Of a range it is the longer time, which no field
    but one can hold."""
    times: dict[str, JsonValue] = {}
    for time in record.times:
        times[fields[time.kind]] = iso_duration(time.high)
    return times


def iso_duration(seconds: float) -> str:
    """Return a time as ISO 8601 has it, in hours, minutes and seconds: PT1H30M."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    parts = [(hours, "H"), (minute, "M"), (second, "S")]
    texts = [f"{number}{letter}" for number, letter in parts if number]
    text = "".join(texts) or "0S"
    return f"PT{text}"


def _supplies_and_tools(record: Record) -> dict[str, JsonValue]:
    """Return the supplies of a HowTo, each with how much of it, and its tools. Those that are
    named."""
    supplies: list[JsonValue] = []
    for thing in record.materials:
        name = one_line(thing.name)
        supply: dict[str, JsonValue] = {"@type": "HowToSupply", "name": name}
        if thing.amounts:
            amounts = map(amount_text, thing.amounts)
            supply["requiredQuantity"] = " + ".join(amounts)
        supplies.append(supply)
    entries: dict[str, JsonValue] = {}
    if supplies:
        entries["supply"] = supplies
    return entries | _tools(record)


def _tools(record: Record) -> dict[str, JsonValue]:
    tools: list[JsonValue] = []
    for tool in record.tools:
        name = one_line(tool.name)
        tools.append({"@type": "HowToTool", "name": name})
    return {} if not tools else {"tool": tools}


def _language(record: Record) -> dict[str, JsonValue]:
    if record.transcript is None or record.transcript.language is None:
        return {}
    return {"inLanguage": record.transcript.language}


def _script_safe(tree: dict[str, JsonValue]) -> str:
    text = json.dumps(tree, ensure_ascii=False, indent=2, allow_nan=False)
    return text.translate(UNSAFE_CHARACTERS) + "\n"
