"""The design that all HTML pages share: head, name and mark, colours, type, space, light and dark.

    text = page_html(template_text, style=own_style, title="Soup")

A page is a template that begins with `{% extends "layout.html" %}` and fills its blocks (title,
head, body_attributes, body, footer). Templates escape all they are given, and a policy names what
may run and load.
"""

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from jinja2 import Template

# C0 but tab and line feed, DEL, C1: no HTML may hold them
CONTROL_PATTERN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
BASE_STYLE = files(__name__) / "base.css"  # the style sheet that all pages share
FOOTER_TEXT = "Made by Stepline on this machine. This page loads nothing from the network."


def page_html(
    text: str,
    *,
    style: str | None,
    script: str | None = None,
    language: str | None = None,
    answers: bool = False,
    sheets: Sequence[str] = (),
    footer: str = FOOTER_TEXT,
    **values: Any,
) -> str:
    """Return a page as HTML text, rendered from a Jinja template.

    Args:
        text: the template.
        style: CSS of the page, added to the shared style sheet. None for a page that a server sends
            with style sheets and policy of its own.
        script: the only JavaScript of the page, None for none.
        language: language code of the texts, None if unknown.
        answers: whether the script may send requests to the server of the page.
        sheets: URLs of the style sheets of a page from a server.
        footer: text of the last line, "" for none.
        values: variables of the template.
    """
    from markupsafe import Markup

    # A page in a file carries its style and its policy. A server sends both.
    own_policy = None
    if style is not None:
        style = base_style() + style
        own_policy = content_security_policy(style, script, answers=answers)
    return template(text).render(
        style=None if style is None else Markup(style),
        script=None if script is None else Markup(script),
        policy=own_policy,
        language=language,
        sheets=sheets,
        footer=footer,
        **values,
    )


def base_style() -> str:
    """Return the CSS that all pages share."""
    return BASE_STYLE.read_text(encoding="utf-8")


def content_security_policy(style: str, script: str | None = None, *, answers: bool = False) -> str:
    """Return the Content-Security-Policy of a page.

    It allows the given script and style, images inside the page, and video files next to the page.

    Args:
        style: CSS of the page.
        script: JavaScript of the page, None for none.
        answers: whether the script may send requests to the server of the page.
    """
    # Nothing is allowed but what follows.
    directives = ["default-src 'none'"]
    if script is not None:
        directives.append(f"script-src '{_hash(script)}'")
    directives.append(f"style-src '{_hash(style)}'")
    if answers:
        directives.append("connect-src 'self'")
    directives += [
        "img-src data:",
        "media-src 'self' file: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(directives)


@functools.cache
def mark_link() -> str:
    """Return Stepline's logo as a data URL of an SVG image."""
    return "data:image/svg+xml," + quote(_file("mark.svg").strip(), safe=" =':/")


@functools.cache
def template(text: str) -> "Template":
    """Return a Jinja template that escapes all values.

    It removes control characters from them, and raises an error for unknown variables.
    """
    from jinja2 import DictLoader, Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=DictLoader({"layout.html": _file("layout.html")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_without_controls,
    )
    environment.globals |= {"mark": Markup(_file("mark.svg").strip()), "mark_link": mark_link()}
    return environment.from_string(text)


@functools.cache
def _file(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _without_controls(value: object) -> object:
    # not Markup, which is Stepline's own
    if type(value) is str:
        return CONTROL_PATTERN.sub("", value)
    return value


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
