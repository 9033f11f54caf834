"""Edits of a video as a whole: its title, its tags and its metadata.

    video = edited_video(video, TagEdit(do="tag", tag="Safety"))

These edits touch no step, so they hold for every record of the video, also one that is made again.
Tags, and the names of metadata, that differ by the case of their letters alone are the same.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from stepline.errors import StoreError
from stepline.outputs.text import one_line
from stepline.records import FrozenModel, Video

MAX_TITLE_CHARS = 200
MAX_TAG_CHARS = 60
MAX_NAME_CHARS = 60  # of metadata
MAX_VALUE_CHARS = 300
MAX_TAGS = 30  # of a video
MAX_METADATA = 30  # names of a video

Tag = Annotated[str, Field(max_length=MAX_TAG_CHARS, pattern=r"\S")]
MetadataName = Annotated[str, Field(max_length=MAX_NAME_CHARS, pattern=r"\S")]
MetadataValue = Annotated[str, Field(max_length=MAX_VALUE_CHARS, pattern=r"\S")]


class TitleEdit(FrozenModel):
    """Change of the video's title to `title`."""

    do: Literal["title"]
    title: Annotated[str, Field(max_length=MAX_TITLE_CHARS, pattern=r"\S")]


class TagEdit(FrozenModel):
    """Addition of the tag `tag` to the video."""

    do: Literal["tag"]
    tag: Tag


class UntagEdit(FrozenModel):
    """Removal of the tag `tag` from the video."""

    do: Literal["untag"]
    tag: Tag


class MetadataEdit(FrozenModel):
    """New value of the name `name` in the video's metadata. The value None removes the name."""

    do: Literal["metadata"]
    name: MetadataName
    value: MetadataValue | None = None


VideoEdit = TitleEdit | TagEdit | UntagEdit | MetadataEdit


def apply_video_edit(video: Video, edit: VideoEdit) -> Video:
    """Return the video with an edit applied to its title, tags or metadata.

    Raises StoreError for a text without a visible character, and for too many tags or names.
    """
    match edit:
        # A title of the user's own takes the place of every other source.
        case TitleEdit():
            title = _check_visible_text(edit.title, "title")
            return video.model_copy(update={"title": title, "title_source": "user"})
        case TagEdit() | UntagEdit():
            return video.model_copy(update={"tags": _edited_tags(video.tags, edit)})
        case MetadataEdit():
            return video.model_copy(update={"metadata": _edited_metadata(video.metadata, edit)})


def edited_field(edit: VideoEdit) -> str:
    """Return the field that an edit changes: "title", "tag safety" or "metadata author"."""
    match edit:
        case TitleEdit():
            return "title"
        case TagEdit() | UntagEdit():
            return f"tag {text_key(edit.tag)}"
        case MetadataEdit():
            return f"metadata {text_key(edit.name)}"


def text_key(text: str) -> str:
    """Return a text case-folded and on one line, to compare texts without regard to case."""
    return one_line(text).casefold()


def _edited_tags(tags: Sequence[str], edit: TagEdit | UntagEdit) -> tuple[str, ...]:
    tag = _check_visible_text(edit.tag, "tag")
    key = text_key(tag)
    # A tag that differs by case alone is replaced.
    edited = [other for other in tags if text_key(other) != key]
    if isinstance(edit, TagEdit):
        edited.append(tag)
    _check_count(len(edited), MAX_TAGS, "tags")
    # so that the order in which people added them does not matter
    edited.sort(key=text_key)
    return tuple(edited)


def _edited_metadata(metadata: Mapping[str, str], edit: MetadataEdit) -> dict[str, str]:
    name = _check_visible_text(edit.name, "name")
    key = text_key(name)
    values = {other: value for other, value in metadata.items() if text_key(other) != key}
    if edit.value is not None:
        values[name] = _check_visible_text(edit.value, "value")
    _check_count(len(values), MAX_METADATA, "names of metadata")
    return {other: values[other] for other in sorted(values, key=text_key)}


def _check_visible_text(text: str, noun: str) -> str:
    line = one_line(text)
    # neither spaces nor control, format or unknown characters
    if all(unicodedata.category(letter)[0] in "CZ" for letter in line):
        raise StoreError(f"{noun} {text!r}: holds no visible character; write a word")
    return line


def _check_count(count: int, max_count: int, noun: str) -> None:
    if count > max_count:
        raise StoreError(f"a video has at most {max_count} {noun}; remove one first")
