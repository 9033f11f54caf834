"""What every plot stands on: the SVG element, and names cut to fit."""

from html import escape

NOTHING = "<p>Nothing to draw.</p>"


def canvas(width: float, height: float, label: str, body: str) -> str:
    """Return an SVG picture of width x height pixels; label: what a screen reader says of it."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f'<svg {size} role="img" aria-label="{escape(label)}">{body}</svg>'


def short(name: str, longest: int = 40) -> str:
    """Return the name, cut at `longest` characters."""
    return name if len(name) <= longest else name[: longest - 1] + "…"
