"""One self-contained HTML page of a record: player, steps, timeline, alignment, transcript.

Everything is inside the file but the video, which it links to. A strict Content-Security-Policy names the page's one
script and one style sheet by their hashes, so text that slipped past the escaping would still not run, and nothing
can be fetched. The page is readable without its script.
"""

import base64
import functools
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from stepline.records import Alignment, Record
from stepline.show.jsonld import jsonld
from stepline.show.page.picture import picture
from stepline.show.page.timeline import timeline
from stepline.show.page.view import view
from stepline.store import to_json

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["mark", "page"]


def mark(record: Record) -> str:
    """Return what the page of exactly this record holds and no other page: a digest of its JSON."""
    return hashlib.sha256(to_json(record).encode()).hexdigest()


def page(
    record: Record,
    *,
    alignment: Alignment | None = None,
    media: str | None = None,
    keyframes: Mapping[str, bytes] | None = None,
) -> str:
    """Return the page as HTML.

    alignment: drawn as a picture, row = text. media: the video's path as seen from the page's folder; without it the
    page has no player. keyframes: a JPEG for a step's id.
    """
    style, script = _file("style.css"), _file("script.js")
    shown = view(record, alignment, keyframes or {})
    return _template().render(
        view=shown,
        timeline=timeline(record, shown.total),
        picture=picture(alignment, shown) if alignment is not None and alignment.scores.size else None,
        media=media_link(media) if media is not None else None,
        policy=_policy(style, script),
        style=style,
        script=script,
        jsonld=jsonld(record),
        mark=mark(record),
    )


def media_link(path: str) -> str:
    """Return a file's path as a link that can never be read as another scheme or host."""
    if path.startswith("/"):
        return Path(path).as_uri()
    return quote(path, safe="/")


def _policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: this script, this style, pictures inside the page, the video beside it."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; media-src 'self' file: blob:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _file(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


@functools.cache
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(_file("page.html"))
