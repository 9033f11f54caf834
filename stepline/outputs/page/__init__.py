"""One self-contained HTML page of a record: player, steps, timeline, alignment, transcript.

Everything is inside the file but the video, which it links to. A strict Content-Security-Policy
names the page's one script and one style sheet by their hashes, so text that slipped past the
escaping would still not run, and nothing can be fetched. The page is readable without its script.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.resources import files

from stepline.layout import page_html
from stepline.outputs.html import media_link
from stepline.outputs.jsonld import jsonld
from stepline.outputs.page.timeline import alignment_picture, timeline
from stepline.outputs.page.view import page_view
from stepline.records import Alignment, Record
from stepline.storage import to_json

__all__ = ["page"]

MAX_PICTURED_STEPS = 500  # steps that have pictures in the page; 12 kB each
MAX_PAGE_LINES = 5_000  # steps, and lines of any other list, that a page holds; some 1 kB each


def record_digest(record: Record) -> str:
    """Return what the page of exactly this record holds and no other page: a digest of its JSON."""
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
    """Return the page as HTML.

    alignment: drawn as a picture, row = text. media: the video's path as seen from the page's
    folder; without it the page has no player. keyframes: a JPEG for a step's id. linked_data: the
    JSON-LD of what the page holds of a record. digest: by which the page is recognised.
    """
    style, script = _file("style.css"), _file("script.js")
    if digest is None:
        digest = record_digest(record)
    if len(record.steps) > MAX_PICTURED_STEPS:
        keyframes = None
    record, alignment = _beginning(record, alignment)
    shown = page_view(record, alignment, keyframes or {})
    style += "".join(
        f".step .thumb.picture-{number} {{ background: url({link}) center / contain no-repeat; "
        "print-color-adjust: exact; }\n"
        for number, link in enumerate(shown.pictures)
    )
    return page_html(
        _file("page.html"),
        style=style,
        script=script,
        language=shown.language,
        view=shown,
        timeline=timeline(record, shown.total),
        picture=alignment_picture(alignment, shown)
        if alignment is not None and alignment.scores.size
        else None,
        media=media_link(media) if media is not None else None,
        jsonld=linked_data(record),
        record_digest=digest,
    )


def _beginning(record: Record, alignment: Alignment | None) -> tuple[Record, Alignment | None]:
    """Return what of a very long record fits a page, with warnings that say what does not."""
    count, warnings = len(record.steps), list(record.warnings)
    heard, parts = record.transcript, ("steps", "captions", "reference", "dropped")
    if count > MAX_PICTURED_STEPS:
        warnings.append(
            f"the page holds no pictures: the steps are {count}, more than {MAX_PICTURED_STEPS}"
        )
    longest = max(len(record.sentences), *(len(getattr(record, part)) for part in parts))
    if longest > MAX_PAGE_LINES:
        warnings.append(
            f"the page holds the first {MAX_PAGE_LINES} of {longest} lines; the JSON beside it has all"
        )
        record = record.model_copy(
            update={part: getattr(record, part)[:MAX_PAGE_LINES] for part in parts}
        )
        if heard is not None:
            heard = heard.model_copy(update={"sentences": heard.sentences[:MAX_PAGE_LINES]})
        told = [tuple(n for n in step.sources if n < MAX_PAGE_LINES) for step in record.steps]
        steps = tuple(
            s.model_copy(update={"sources": n}) for s, n in zip(record.steps, told, strict=True)
        )
        record = record.model_copy(update={"steps": steps, "transcript": heard})
        if alignment is not None:
            alignment = replace(
                alignment,
                texts=alignment.texts[:MAX_PAGE_LINES],
                scores=alignment.scores[:MAX_PAGE_LINES],
            )
    return record.model_copy(update={"warnings": tuple(warnings)}), alignment


def _file(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
