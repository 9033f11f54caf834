"""The title of a video, its author and its date, and where the title is from.

The title is from the user, the page of a link, the file's metadata, what is said at the beginning,
or the file's name.
"""

import re
from typing import TYPE_CHECKING

from stepline.outputs.text import one_line, sentence_case, shorten
from stepline.pipeline.request import Request
from stepline.records import TitleSource

if TYPE_CHECKING:
    from stepline.media import MediaInfo
    from stepline.writing.extractive.reading import NarrationReading

MAX_TITLE_CHARS = 200
# what stands for a space in a name: not the hyphens and points between two digits (2024-05-06)
NAME_JOINT_PATTERN = re.compile(r"_+|(?<!\d)[-.]+|[-.]+(?!\d)")


def choose_title(
    request: Request, info: "MediaInfo", narration: "NarrationReading | None"
) -> tuple[str, TitleSource]:
    """Return the title of a video and its source, the first that has one: user, link, file, speech,
    name."""
    # Titles that people or files give.
    candidates: dict[TitleSource, str | None] = {
        "user": request.title,
        "link": request.origin.title if request.origin else None,
        "file": info.title,
    }
    for source, text in candidates.items():
        title = one_line(text or "")
        if any(letter.isalnum() for letter in title):
            return shorten(title, MAX_TITLE_CHARS), source
    # Else what is said, and last the file's name.
    if narration is not None:
        from stepline.writing.extractive.titles import narration_title

        spoken = narration_title(narration)
        if spoken is not None:
            return shorten(spoken, MAX_TITLE_CHARS), "speech"
    return readable_name(request.path.stem) or request.id, "name"


def find_author(request: Request, info: "MediaInfo") -> str | None:
    """Return who made a video, as the page of its link says, or the file's metadata."""
    author = info.author
    origin = request.origin
    if origin is not None and origin.uploader is not None:
        author = origin.uploader
    if author is None:
        return None
    return one_line(author)


def find_publication_date(request: Request, info: "MediaInfo") -> str | None:
    """Return the day on which a video was published, as YYYY-MM-DD, from the same sources."""
    origin = request.origin
    if origin is not None and origin.upload_date is not None:
        return origin.upload_date
    return info.publication_date


def readable_name(stem: str) -> str:
    """Return the name of a file as a title: "my_lemonade-v2" is "My lemonade v2"."""
    words = one_line(NAME_JOINT_PATTERN.sub(" ", stem))
    return shorten(sentence_case(words), MAX_TITLE_CHARS)
