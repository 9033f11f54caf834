"""One self-contained HTML page of a record: player, steps, timeline, alignment, transcript.

Everything is inside the file but the video, which it links to. A strict Content-Security-Policy names the page's one
script and one style sheet by their hashes, so text that slipped past the escaping would still not run, and nothing
can be fetched. The page is readable without its script.
"""

import hashlib
from collections.abc import Mapping
from importlib.resources import files

from stepline.outputs.html import media_link, policy, template
from stepline.outputs.jsonld import jsonld
from stepline.outputs.page.timeline import alignment_picture, timeline
from stepline.outputs.page.view import page_view
from stepline.records import Alignment, Record
from stepline.storage import to_json

__all__ = ["page"]


def record_digest(record: Record) -> str:
    """Return what the page of exactly this record holds and no other page: a digest of its JSON."""
    return hashlib.sha256(to_json(record).encode()).hexdigest()


def page(
    record: Record,
    alignment: Alignment | None = None,
    *,
    media: str | None = None,
    keyframes: Mapping[str, bytes] | None = None,
) -> str:
    """Return the page as HTML.

    alignment: drawn as a picture, row = text. media: the video's path as seen from the page's folder; without it the
    page has no player. keyframes: a JPEG for a step's id.
    """
    style, script = _file("style.css"), _file("script.js")
    shown = page_view(record, alignment, keyframes or {})
    style += "".join(
        f".step .thumb.picture-{number} {{ background: url({link}) center / cover; print-color-adjust: exact; }}\n"
        for number, link in enumerate(shown.pictures)
    )
    return template(_file("page.html")).render(
        view=shown,
        timeline=timeline(record, shown.total),
        picture=alignment_picture(alignment, shown) if alignment is not None and alignment.scores.size else None,
        media=media_link(media) if media is not None else None,
        policy=policy(style, script),
        style=style,
        script=script,
        jsonld=jsonld(record),
        record_digest=record_digest(record),
    )


def _file(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
