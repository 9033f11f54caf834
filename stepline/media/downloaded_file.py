"""Whether a file that a server sent is a medium: servers answer with pages and error texts, too."""

import codecs
from pathlib import Path

from stepline.errors import MediaError
from stepline.limits import MAX_SECOND
from stepline.media.container import open_media
from stepline.media.settings import MediaSettings

# How texts begin that servers send in place of a video, in small letters. No medium begins so.
TEXT_STARTS = (
    (b"<!doctype html", "a web page (HTML)"),
    (b"<html", "a web page (HTML)"),
    (b"<head", "a web page (HTML)"),
    (b"<?xml", "an XML text"),
    (b"<error", "an XML text"),
    (b"{", "a JSON text"),
    (b"[", "a JSON text"),
    (b"#extm3u", "a playlist (HLS)"),
)
TEXT_START_BYTES = 1024
# whether a file is a medium at all. What of it is too large, its reader says
ANY_SIZE = MediaSettings(
    max_bytes=2**40, max_duration=MAX_SECOND, max_streams=1000, max_pixels=10**9
)


def text_kind(path: Path) -> str | None:
    """Return what kind of text a file begins as. None for one that may be a medium."""
    with path.open("rb") as file:
        begin = file.read(TEXT_START_BYTES).removeprefix(codecs.BOM_UTF8).lstrip().lower()
    for start, kind in TEXT_STARTS:
        if begin.startswith(start):
            return kind
    return None


def remove_other_files(path: Path) -> None:
    """Do nothing to a medium. Remove any other file, and raise MediaError with what it is."""
    kind = text_kind(path)
    if kind is not None:
        path.unlink()
        cure = "open the address in a browser, and give that of the video itself"
        raise MediaError(f"what came is {kind}, no video; {cure}")
    try:
        with open_media(path, ANY_SIZE):
            return
    except MediaError as error:
        reason = str(error).removeprefix(f"{path}: ")
        path.unlink()
        raise MediaError(reason) from error
