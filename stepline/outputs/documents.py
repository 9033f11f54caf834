"""Documents of a record that people edit and print: Markdown and Word (docx), a picture per step."""

import gc
import io
import re
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime

from stepline.errors import ModelError
from stepline.outputs.text import (
    clock,
    material_text,
    needed_things,
    shown_span,
    step_lengths,
    step_line,
    title,
    total_times,
)
from stepline.outputs.verdict import headline, step_time
from stepline.outputs.web_addresses import media_link
from stepline.records import Material, Record

# what CommonMark, GitHub or Obsidian could read as markup
MARKUP_PATTERN = re.compile(r"([\\`*_{}\[\]<>#|~$&=^%])")
PICTURE_WIDTH = 100.0  # mm, of 170 between the margins of a page
# in every document, so that the same record gives the same bytes
WRITTEN_DATE = datetime(1980, 1, 1, tzinfo=UTC)


def markdown(record: Record, pictures: Mapping[str, str], media: str | None = None) -> str:
    """Return a record as CommonMark: materials, then each step with its time and picture.

    Args:
        record: the steps and materials of a video. Markdown syntax in their texts is escaped.
        pictures: step id -> path of the step's picture, relative to the Markdown file.
        media: path of the video, relative to the Markdown file. None: times are not links.
    """
    blocks = [f"# {_escape_markdown(title(record))}"]
    for heading, items in needed_things(record):
        lines = [
            f"- {_escape_markdown(material_text(item))} ({_time_link(item, media)})"
            for item in items
        ]
        blocks += [f"## {heading}", "\n".join(lines)]
    if record.steps:
        blocks.append(_escape_markdown(_verdict_summary(record)))
    for number, step in enumerate(record.steps, start=1):
        span = shown_span(step)
        when = step_time(step)
        if span is not None and media is not None:
            when = f"[{when}]({media_link(media)}#t={span.start:g},{span.end:g})"
        lengths = _escape_markdown(step_lengths(step))
        when += f" · {lengths}" if lengths else ""
        text = _escape_markdown(step_line(step))
        blocks += [f"## {number}. {text}", when]
        if step.id in pictures:
            blocks.append(f"![{text}]({media_link(pictures[step.id])})")
    return "\n\n".join(blocks) + "\n"


def _time_link(item: Material, media: str | None) -> str:
    """Return the time at which an item is named, as a link if there is a video."""
    when = clock(item.at)
    if media is None:
        return when
    return f"[{when}]({media_link(media)}#t={item.at:g})"


def docx(record: Record, keyframes: Mapping[str, bytes]) -> bytes:
    """Return a record as a Word document, with a picture per step.

    Args:
        record: the steps and materials of a video.
        keyframes: step id -> JPEG of the step.

    Raises ModelError if python-docx is not installed.
    """
    # The parts of a document refer to each other, with up to 2 MB that only the garbage collector
    # frees. It counts objects, not bytes, so a server would keep hundreds of documents for a while.
    try:
        return _word_document(record, keyframes)
    finally:
        gc.collect()


def _word_document(record: Record, keyframes: Mapping[str, bytes]) -> bytes:
    try:
        from docx import Document
        from docx.shared import Mm
    except ImportError as error:
        raise ModelError(
            "python-docx is not installed; pip install -c constraints.txt 'stepline[documents]'"
        ) from error
    document = Document()

    # the properties of the file
    name = _xml_text(title(record))
    date = WRITTEN_DATE.replace(tzinfo=None)
    properties = document.core_properties
    properties.title = name[:255]
    properties.author = "Stepline"
    properties.comments = ""
    properties.created = date
    properties.modified = date

    # materials and tools
    document.add_heading(name, 0)
    for heading, items in needed_things(record):
        document.add_heading(heading, 2)
        for item in items:
            document.add_paragraph(_xml_text(material_text(item)), style="List Bullet")

    # the steps
    if record.steps:
        document.add_paragraph(_verdict_summary(record))
    for number, step in enumerate(record.steps, start=1):
        document.add_heading(f"{number}. {_xml_text(step_line(step))}", 2)
        lengths = _xml_text(step_lengths(step))
        document.add_paragraph(step_time(step) + (f", {lengths}" if lengths else ""))
        if step.id in keyframes:
            document.add_picture(io.BytesIO(keyframes[step.id]), width=Mm(PICTURE_WIDTH))
    buffer = io.BytesIO()
    document.save(buffer)
    return _with_fixed_dates(buffer.getvalue())


def _verdict_summary(record: Record) -> str:
    """Return the number of steps, how many there are of each verdict, and how long they are."""
    count = len(record.steps)
    times = total_times(record)
    return f"{count} step{'' if count == 1 else 's'}: {headline(record.steps)}" + (
        f"; {times}" if times else ""
    )


def _escape_markdown(text: str) -> str:
    return MARKUP_PATTERN.sub(r"\\\1", text)


def _xml_text(text: str) -> str:
    """Return the text without the code points that XML cannot hold."""
    # Lone surrogates, and two code points that XML leaves out.
    return re.sub("[\ud800-\udfff\ufffe\uffff]", "", text)


def _with_fixed_dates(archive: bytes) -> bytes:
    """Return a zip archive whose members all carry one date."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(archive)) as old,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            # A ZipInfo without a date is of 1980.
            new.writestr(zipfile.ZipInfo(name), old.read(name), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
