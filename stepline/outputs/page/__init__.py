"""One self-contained HTML page of a record: player, steps, timeline, alignment, transcript.

Everything is inside the file but the video, which it links to. A strict Content-Security-Policy
names the page's one script and one style sheet by their hashes. So text that slipped past the
escaping would still not run, and nothing can be fetched. The page is readable without its script.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any

from stepline.outputs.jsonld import jsonld
from stepline.outputs.page.timeline import alignment_picture, timeline
from stepline.outputs.page.view import page_view
from stepline.pages.layout import page_html
from stepline.records import Alignment, Record
from stepline.storage import to_json

__all__ = ["page"]

MAX_PICTURED_STEPS = 500  # above it a page has no pictures; 12 kB each
LIST_FIELDS = ("steps", "captions", "reference", "dropped")  # lists of a record that a page shows
MAX_PAGE_LINES = 5_000  # items of each list that a page holds. Some 1 kB each


def record_digest(record: Record) -> str:
    """Return the hex sha256 of a record's JSON, by which its page is recognised."""
    return hashlib.sha256(to_json(record).encode()).hexdigest()


def page(
    record: Record,
    alignment: Alignment | None = None,
    *,
    media: str | None = None,
    keyframes: Mapping[str, bytes] | None = None,
    linked_data: Callable[[Record], str] = jsonld,
    digest: str | None = None,
) -> str:
    """Return a record as one self-contained HTML page.

    Args:
        record: the steps, sentences and materials to show.
        alignment: P(each text is shown in each second), drawn as an image with a row per text.
            None: no image.
        media: link to the video. None: the page has no player.
        keyframes: step id -> JPEG of the step. None: no pictures.
        linked_data: function that returns the JSON-LD of a record. It gets the part that the page
            shows.
        digest: hex digest in the page, by which a later run recognises the page. None:
            `record_digest`.
    """
    digest = record_digest(record) if digest is None else digest
    if len(record.steps) > MAX_PICTURED_STEPS:
        keyframes = None

    record, alignment = _cut_to_page(record, alignment)
    view = page_view(record, alignment, keyframes or {})

    # pictures that several steps have, once in the style sheet
    style = _read_asset("style.css")
    for number, link in enumerate(view["pictures"]):
        selector = f".step .thumb.picture-{number}"
        background = f"background: url({link}) center / contain no-repeat"
        style += f"{selector} {{ {background}; print-color-adjust: exact; }}\n"
    picture = None
    if alignment is not None and alignment.scores.size:
        picture = alignment_picture(alignment, view)
    return page_html(
        _read_asset("page.html"),
        style=style,
        script=_read_asset("script.js"),
        language=view["language"],
        view=view,
        timeline=timeline(record, view["total"]),
        picture=picture,
        media=media,
        jsonld=linked_data(record),
        record_digest=digest,
    )


def _cut_to_page(record: Record, alignment: Alignment | None) -> tuple[Record, Alignment | None]:
    """Return a record cut to the size of a page, with warnings about the omitted parts."""
    warnings = list(record.warnings)
    count = len(record.steps)
    if count > MAX_PICTURED_STEPS:
        warnings.append(
            f"the page holds no pictures: the steps are {count}, more than {MAX_PICTURED_STEPS}"
        )
    # Each list is counted by itself.
    lengths = [len(getattr(record, name)) for name in LIST_FIELDS]
    longest = max(len(record.sentences), *lengths)
    if longest > MAX_PAGE_LINES:
        warnings.append(
            f"the page holds the first {MAX_PAGE_LINES} of {longest} lines; the JSON next to it "
            "has all"
        )
        record = _first_lines(record)
        if alignment is not None:
            alignment = replace(
                alignment,
                texts=alignment.texts[:MAX_PAGE_LINES],
                scores=alignment.scores[:MAX_PAGE_LINES],
            )
    return record.model_copy(update={"warnings": tuple(warnings)}), alignment


def _first_lines(record: Record) -> Record:
    """Return a record with the first MAX_PAGE_LINES items of each list."""
    update: dict[str, Any] = {name: getattr(record, name)[:MAX_PAGE_LINES] for name in LIST_FIELDS}
    # A step may cite only sentences that are on the page.
    steps = []
    for step in update["steps"]:
        sources = tuple(number for number in step.sources if number < MAX_PAGE_LINES)
        steps.append(step.model_copy(update={"sources": sources}))
    update["steps"] = tuple(steps)
    transcript = record.transcript
    if transcript is not None:
        sentences = transcript.sentences[:MAX_PAGE_LINES]
        update["transcript"] = transcript.model_copy(update={"sentences": sentences})
    return record.model_copy(update=update)


def _read_asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
