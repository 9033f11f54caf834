"""Links of pages to files, and pictures inside them."""

import base64
from pathlib import Path
from urllib.parse import quote

# in every page, by which it is known again
PAGE_MARK = '<meta name="generator" content="Stepline">'


def media_link(path: str) -> str:
    """Return a file's path as a link that can never be read as another scheme or host."""
    if path.startswith("/"):
        return Path(path).as_uri()
    return quote(path, safe="/")


def picture_link(jpeg: bytes) -> str:
    """Return a JPEG as a link that holds it."""
    text = base64.b64encode(jpeg).decode()
    return f"data:image/jpeg;base64,{text}"
