"""Documents of a record that people edit and print: Markdown, Word (docx) and PDF, a picture a
step."""

import gc
import io
import re
import sys
import unicodedata
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stepline.errors import ModelError, SettingsError
from stepline.outputs.html import media_link
from stepline.outputs.text import clock, material_text, needed_things, shown_span, step_line, title
from stepline.outputs.verdict import headline, step_time
from stepline.records import Material, Record

# what CommonMark, GitHub or Obsidian could read as markup
MARKUP_PATTERN = re.compile(r"([\\`*_{}\[\]<>#|~$&=^%])")
PICTURE_WIDTH = 100.0  # mm, of 170 between the margins of a page
# in every document, so that the same record gives the same bytes
WRITTEN_DATE = datetime(1980, 1, 1, tzinfo=UTC)
FONT_FILES = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "LiberationSans-Regular.ttf",
    "Arial Unicode.ttf",
    "arial.ttf",
    "NotoSansCJK-Regular.ttc",
    "msyh.ttc",
    "PingFang.ttc",
)
FONT_FOLDERS = (
    "/usr/share/fonts",
    "~/.local/share/fonts",
    "~/.fonts",
    "/Library/Fonts",
    "/System/Library/Fonts",
    "~/Library/Fonts",
    "C:/Windows/Fonts",
)


def markdown(record: Record, pictures: Mapping[str, str], media: str | None = None) -> str:
    """Return what is needed, and a heading a step, when it is shown, and its picture, in CommonMark;
    every text is escaped.

    pictures: the path of each step's picture as seen from the file, by the step's id; media: the
    video's.
    """
    blocks = [f"# {_escape(title(record))}"]
    for heading, things in needed_things(record):
        lines = [f"- {_escape(material_text(thing))} ({_moment(thing, media)})" for thing in things]
        blocks += [f"## {heading}", "\n".join(lines)]
    if record.steps:
        blocks.append(_escape(_summary(record)))
    for number, step in enumerate(record.steps, start=1):
        span, when, text = shown_span(step), step_time(step), _escape(step_line(step))
        if span is not None and media is not None:
            when = f"[{when}]({media_link(media)}#t={span.start:g},{span.end:g})"
        blocks += [f"## {number}. {text}", when]
        if step.id in pictures:
            blocks.append(f"![{text}]({media_link(pictures[step.id])})")
    return "\n\n".join(blocks) + "\n"


def _moment(thing: Material, media: str | None) -> str:
    """Return when a thing is named, as a link where there is a video."""
    when = clock(thing.at)
    return when if media is None else f"[{when}]({media_link(media)}#t={thing.at:g})"


def docx(record: Record, keyframes: Mapping[str, bytes]) -> bytes:
    """Return a Word document. Raises ModelError where python-docx is not installed."""
    # The parts of a document name each other, with up to 2 MB that only the collector frees. It
    # counts objects and no bytes, so a server would keep hundreds of documents for a while. Where
    # several threads make documents, parts of one grow old with another: all ages are collected.
    try:
        return _word_document(record, keyframes)
    finally:
        gc.collect()


def _word_document(record: Record, keyframes: Mapping[str, bytes]) -> bytes:
    try:
        from docx import Document
        from docx.shared import Mm
    except ImportError as error:
        raise _lacks("python-docx") from error
    document = Document()
    about = document.core_properties
    about.title, about.author, about.comments = _xml(title(record))[:255], "Stepline", ""
    about.created = about.modified = WRITTEN_DATE.replace(tzinfo=None)
    document.add_heading(_xml(title(record)), 0)
    for heading, things in needed_things(record):
        document.add_heading(heading, 2)
        for thing in things:
            document.add_paragraph(_xml(material_text(thing)), style="List Bullet")
    if record.steps:
        document.add_paragraph(_summary(record))
    for number, step in enumerate(record.steps, start=1):
        document.add_heading(f"{number}. {_xml(step_line(step))}", 2)
        document.add_paragraph(step_time(step))
        if step.id in keyframes:
            document.add_picture(io.BytesIO(keyframes[step.id]), width=Mm(PICTURE_WIDTH))
    written = io.BytesIO()
    document.save(written)
    return _dated(written.getvalue())


def pdf(record: Record, keyframes: Mapping[str, bytes]) -> bytes:
    """Return a PDF of A4 pages; a step and its picture stay on one page.

    Raises ModelError where fpdf2 is not installed, SettingsError where no font here holds a text's
    letters.
    """
    try:
        from fpdf import FPDF
    except ImportError as error:
        raise _lacks("fpdf2") from error
    document = FPDF(format="A4")
    document.set_creation_date(WRITTEN_DATE)
    document.set_title(title(record))
    document.set_margin(20)
    document.set_auto_page_break(True, margin=20)
    texts = [title(record), *map(step_line, record.steps), *map(step_time, record.steps)]
    texts += [material_text(thing) for _, things in needed_things(record) for thing in things]
    family = _choose_font(document, "".join(texts))
    document.add_page()

    def line(page: Any, text: str, size: float) -> None:
        page.set_font(family, size=size)
        page.multi_cell(0, size * 0.5, text, new_x="LMARGIN", new_y="NEXT")

    line(document, title(record), 20)
    for heading, things in needed_things(record):
        document.ln(4)
        line(document, heading, 13)
        for thing in things:
            line(document, f"- {material_text(thing)}", 10)
    if record.steps:
        line(document, _summary(record), 10)
    for number, step in enumerate(record.steps, start=1):
        with document.unbreakable() as part:
            part.ln(4)
            line(part, f"{number}. {step_line(step)}", 13)
            line(part, step_time(step), 10)
            if step.id in keyframes:
                part.image(io.BytesIO(keyframes[step.id]), w=PICTURE_WIDTH)
    return bytes(document.output())


def _summary(record: Record) -> str:
    """Return the number of steps, and the verdicts on them."""
    count = len(record.steps)
    return f"{count} step{'' if count == 1 else 's'}: {headline(record.steps)}"


def _escape(text: str) -> str:
    return MARKUP_PATTERN.sub(r"\\\1", text)


def _xml(text: str) -> str:
    """Return the text without the code points that XML cannot hold."""
    return "".join(
        letter
        for letter in text
        if unicodedata.category(letter) != "Cs" and letter not in "\ufffe\uffff"
    )


def _lacks(package: str) -> ModelError:
    return ModelError(f"{package} is not installed; pip install 'stepline[documents]'")


def _dated(archive: bytes) -> bytes:
    """Return a zip archive whose members all carry one date."""
    written = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(archive)) as old,
        zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(zipfile.ZipInfo(name), old.read(name), zipfile.ZIP_DEFLATED)
    return written.getvalue()


def _choose_font(document: Any, text: str) -> str:
    """Return the family in which every letter can be shown: Helvetica, else the first such font of
    this machine."""
    try:
        text.encode("latin-1")
        return "helvetica"
    except UnicodeEncodeError:
        letters = {ord(letter) for letter in text if not letter.isspace()}
    from fontTools.ttLib import TTFont

    for path in _font_files():
        with TTFont(path, fontNumber=0, lazy=True) as font:
            lacking = letters - font.getBestCmap().keys()
        if not lacking:
            document.add_font("text", fname=path)
            return "text"
    shown = " ".join(f"U+{letter:04X}" for letter in sorted(letters)[-3:])
    cure = "install a font that does (DejaVu Sans, Noto Sans), or write --format docx"
    raise SettingsError(
        f"--format pdf: no font found here holds all letters of the steps ({shown}); {cure}"
    )


def _font_files() -> list[Path]:
    folders = [Path(folder).expanduser() for folder in FONT_FOLDERS] + [
        Path(sys.prefix, "share", "fonts")
    ]
    known = [
        path for folder in folders if folder.is_dir() for path in sorted(folder.rglob("*.tt[fc]"))
    ]
    return sorted(
        (path for path in known if path.name in FONT_FILES),
        key=lambda path: FONT_FILES.index(path.name),
    )
