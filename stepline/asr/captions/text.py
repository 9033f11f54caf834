"""From bytes to text, and from a cue's text to what is said in it."""

import codecs
import html
import re
from pathlib import Path

from stepline.errors import CaptionError

LARGEST = 256 * 2**20  # bytes of a caption file that are read
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
TAG = re.compile(r"</?[A-Za-z0-9][^<>]{0,200}>|\{\\[^{}]{0,80}\}")  # <i>, <v Anna>, <c.red>, <00:01.000>, {\an8}
SQUARE = re.compile(r"\[[^\[\]]{0,120}\]|♪[^♪]{0,200}♪|[♪♫]")
ROUND = re.compile(
    r"\((?:[^()]{0,40}\b)?(?:music|applause|laugh\w*|cheer\w*|sigh\w*|cough\w*|silence|inaudible|beep\w*)\b[^()]{0,40}\)",
    re.IGNORECASE,
)
SPEAKER = re.compile(r"^(?:\s*(?:>>+|-|–|—)\s+)+", re.MULTILINE)


def read_text(path: Path) -> str:
    """Return a caption file as text: UTF-8, UTF-16 or UTF-32 by their mark, else UTF-8, else Windows-1252.

    Raises CaptionError for what cannot be read, is too large or is no text.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise CaptionError(f"{path}: larger than {LARGEST >> 20} MiB; cut this video's part out of it")
        data = path.read_bytes()
    except OSError as error:
        raise CaptionError(f"{path}: cannot be read ({error.strerror}); give a caption file") from error
    text = _decoded(path, data)
    if "\0" in text:
        raise CaptionError(f"{path}: holds zero bytes, so it is no caption text; give srt, vtt, csv or json")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decoded(path: Path, data: bytes) -> str:
    marked = next((name for mark, name in MARKS if data.startswith(mark)), None)
    if marked is None:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return data.decode("cp1252", errors="replace")
    try:
        return data.decode(marked)
    except UnicodeDecodeError as error:
        place = f"begins as {marked} but is damaged at byte {error.start}"
        raise CaptionError(f"{path}: {place}; save it as UTF-8") from error


def without_tags(text: str) -> str:
    """Return the text of a subtitle without its markup, entities resolved, speaker dashes left out."""
    return SPEAKER.sub("", html.unescape(TAG.sub("", text)))


def without_sounds(text: str) -> str:
    """Return the text without "[Music]", "(applause)" and notes; line breaks stay."""
    return ROUND.sub(" ", SQUARE.sub(" ", text))
