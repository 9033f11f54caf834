"""Pages that are one file each: templates that escape all they are given, and a policy that names
what may run."""

import base64
import functools
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from jinja2 import Template

# in every page, by which it is known again
PAGE_MARK = '<meta name="generator" content="Stepline">'
# C0 but tab and line feed, DEL, C1: no HTML may hold them
CONTROL_PATTERN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def policy(style: str, script: str | None = None, *, answers: bool = False) -> str:
    """Return a Content-Security-Policy: this script, this style, pictures inside the page, the
    video beside it.

    answers: the script may send to the server that gave the page, and to nobody else.
    """
    scripts = f"script-src '{_hash(script)}'; " if script is not None else ""
    connect = "connect-src 'self'; " if answers else ""
    return (
        f"default-src 'none'; {scripts}style-src '{_hash(style)}'; "
        f"{connect}img-src data:; media-src 'self' file: blob:; base-uri 'none'; form-action 'none'"
    )


def media_link(path: str) -> str:
    """Return a file's path as a link that can never be read as another scheme or host."""
    return Path(path).as_uri() if path.startswith("/") else quote(path, safe="/")


def picture_link(jpeg: bytes) -> str:
    """Return a JPEG as a link that holds it."""
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()


@functools.cache
def template(text: str) -> "Template":
    """Return a template that escapes everything, drops control characters and refuses unknown
    names."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_without_controls,
    )
    return environment.from_string(text)


def _without_controls(value: object) -> object:
    # not Markup, which is Stepline's own
    return CONTROL_PATTERN.sub("", value) if type(value) is str else value


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
