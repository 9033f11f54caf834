"""The PDF of a record: A4 pages in the colours of the page. A row has a picture and its words.
There are two columns from `MAX_ONE_COLUMN` steps on.

Lengths are in mm, sizes of type in points.
"""

import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from stepline.errors import SettingsError
from stepline.outputs.text import material_text, needed_things, step_line, title
from stepline.outputs.verdict import step_time
from stepline.records import Record, Step

PAGE_WIDTH = 210.0
PAGE_HEIGHT = 297.0
PAGE_MARGIN = 16.0
COLUMN_GAP = 8.0
ROW_GAP = 3.5
TEXT_GAP = 4.0  # between a picture and its words
LINE_HEIGHT = 0.46  # mm of a line for each point of its type
MAX_ONE_COLUMN = 8  # steps that are below each other in one column
# RGB, as the page has them
TEXT_COLOR = (27, 34, 38)
MUTED_COLOR = (90, 101, 108)
ACCENT_COLOR = (13, 110, 103)
# Fonts of many scripts, the usual ones first.
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
# Where Linux, macOS and Windows have them.
FONT_FOLDERS = (
    "/usr/share/fonts",
    "~/.local/share/fonts",
    "~/.fonts",
    "/Library/Fonts",
    "/System/Library/Fonts",
    "~/Library/Fonts",
    "C:/Windows/Fonts",
)


@dataclass(frozen=True)
class RowForm:
    """How the rows are set.

    The number of columns, the size of the words (points), the box of a picture (mm, no width where
    no step has one).
    """

    columns: int
    size: float
    picture_width: float
    picture_height: float

    @property
    def width(self) -> float:
        """Return the width of a column, mm."""
        gaps = COLUMN_GAP * (self.columns - 1)
        return (PAGE_WIDTH - 2 * PAGE_MARGIN - gaps) / self.columns

    @property
    def indent(self) -> float:
        """Return how far from the left of its column a row's text begins, mm."""
        if self.picture_width:
            return self.picture_width + TEXT_GAP
        return 0.0


class PrintPages:
    """The pages while they are written: a head, then rows, column by column."""

    def __init__(self, record: Record, *, date: datetime) -> None:
        from fpdf import FPDF

        self._document = FPDF(format="A4")
        self._document.set_creation_date(date)
        self._document.set_title(title(record))
        self._document.set_margin(PAGE_MARGIN)
        self._document.set_auto_page_break(True, margin=PAGE_MARGIN)
        texts = [title(record), *map(step_line, record.steps), *map(step_time, record.steps)]
        texts += [material_text(thing) for _, things in needed_things(record) for thing in things]
        self._family = choose_font(self._document, "".join(texts))
        # A font of the machine is added in one weight only.
        self._has_bold = self._family == "helvetica"
        self._document.add_page()
        self._column = 0
        self._top = PAGE_MARGIN  # of the columns of this page

    def write_head(self, record: Record, summary: str) -> None:
        """Write the title, the summary, and what the work needs."""
        self._write(title(record), 20, TEXT_COLOR, bold=True)
        if summary:
            self._write(summary, 10, MUTED_COLOR)
        for heading, things in needed_things(record):
            self._document.ln(3)
            self._write(heading, 11, TEXT_COLOR, bold=True)
            self._write("\n".join(f"- {material_text(thing)}" for thing in things), 9.5, TEXT_COLOR)
        self._document.ln(3)

    def write_steps(self, steps: tuple[Step, ...], keyframes: Mapping[str, bytes]) -> None:
        """Write a row per step. A row that fits a page stays on one."""
        form = _row_form(steps, keyframes)
        self._top = self._document.get_y()
        for number, step in enumerate(steps, start=1):
            # The words, and a line for the time.
            words = f"{number}. {step_line(step)}"
            height = self._text_height(words, form) + form.size * LINE_HEIGHT
            if step.id in keyframes:
                height = max(height, form.picture_height)

            # a step that no page holds goes on across pages
            if height > PAGE_HEIGHT - 2 * PAGE_MARGIN:
                self._write_long(words, step_time(step))
                continue
            self._make_room(height, form)
            self._write_row(words, step_time(step), keyframes.get(step.id), form)
            self._document.set_y(self._row_top + height + ROW_GAP)

    def finish(self) -> bytes:
        """Return the file."""
        return bytes(self._document.output())

    def _make_room(self, height: float, form: RowForm) -> None:
        """Go to the next column, or page, where a row does not fit below the last one."""
        if self._document.get_y() + height > PAGE_HEIGHT - PAGE_MARGIN:
            self._column += 1
            if self._column >= form.columns:
                self._next_page()
            self._document.set_y(self._top)
        self._row_top = self._document.get_y()

    def _next_page(self) -> None:
        self._document.add_page()
        self._column = 0
        self._top = PAGE_MARGIN

    def _write_row(self, words: str, time: str, picture: bytes | None, form: RowForm) -> None:
        document = self._document
        edge = PAGE_MARGIN + self._column * (form.width + COLUMN_GAP)
        if picture is not None:
            document.image(
                io.BytesIO(picture),
                x=edge,
                y=self._row_top,
                w=form.picture_width,
                h=form.picture_height,
                keep_aspect_ratio=True,
            )
        # multi_cell alone would go on at the page's edge, and break pages where a row may not
        document.set_auto_page_break(False)
        document.set_xy(edge + form.indent, self._row_top)
        width = form.width - form.indent
        self._write(words, form.size, TEXT_COLOR, bold=True, width=width)
        document.set_x(edge + form.indent)
        self._write(time, form.size - 1.5, ACCENT_COLOR, width=width)
        document.set_auto_page_break(True, margin=PAGE_MARGIN)

    def _write_long(self, words: str, time: str) -> None:
        """Write a step whose words are longer than a page over as many as they need."""
        self._next_page()
        self._write(words, 10, TEXT_COLOR)
        self._write(time, 9, ACCENT_COLOR)
        self._top = self._document.get_y() + ROW_GAP
        self._document.set_y(self._top)

    def _text_height(self, words: str, form: RowForm) -> float:
        self._document.set_font(self._family, style=self._style(bold=True), size=form.size)
        height = self._document.multi_cell(
            form.width - form.indent,
            form.size * LINE_HEIGHT,
            words,
            align="L",
            dry_run=True,
            output="HEIGHT",
        )
        return float(height)

    def _write(
        self,
        text: str,
        size: float,
        colour: tuple[int, int, int],
        *,
        bold: bool = False,
        width: float = 0.0,
    ) -> None:
        page: Any = self._document
        page.set_font(self._family, style=self._style(bold=bold), size=size)
        page.set_text_color(*colour)
        page.multi_cell(width, size * LINE_HEIGHT, text, align="L", new_x="LMARGIN", new_y="NEXT")

    def _style(self, *, bold: bool) -> Any:
        if bold and self._has_bold:
            return "B"
        return ""


def _row_form(steps: tuple[Step, ...], keyframes: Mapping[str, bytes]) -> RowForm:
    """Return how that many steps are set. The first picture gives the shape of all."""
    from PIL import Image

    # One column of large rows, or two columns of small ones.
    columns, size, width, height = (1, 12.0, 48.0, 27.0)
    if len(steps) > MAX_ONE_COLUMN:
        columns, size, width, height = (2, 9.5, 30.0, 17.0)
    pictures = [keyframes[step.id] for step in steps if step.id in keyframes]
    if not pictures:
        return RowForm(columns, size, 0.0, 0.0)
    # A narrow picture leaves the rest of its box to the words.
    with Image.open(io.BytesIO(pictures[0])) as image:
        width = min(width, height * image.width / image.height)
    return RowForm(columns, size, width, height)


def choose_font(document: Any, text: str) -> str:
    """Return the family in which every letter can be shown: Helvetica, else the first such font of
    this machine.

    Raises SettingsError where no font here holds them all.
    """
    try:
        # The Helvetica that every reader has holds Latin-1 alone.
        text.encode("latin-1")
        return "helvetica"
    except UnicodeEncodeError:
        # the first font of this machine that holds every letter
        letters = {ord(letter) for letter in text if not letter.isspace()}
    from fontTools.ttLib import TTFont

    for path in _font_files():
        with TTFont(path, fontNumber=0, lazy=True) as font:
            lacking = letters - font.getBestCmap().keys()
        if not lacking:
            document.add_font("text", fname=path)
            return "text"
    examples = " ".join(f"U+{letter:04X}" for letter in sorted(letters)[-3:])
    cure = "install a font that does (DejaVu Sans, Noto Sans), or write --format docx"
    raise SettingsError(
        f"--format pdf: no font found here holds all letters of the steps ({examples}); {cure}"
    )


def _font_files() -> list[Path]:
    folders = [Path(folder).expanduser() for folder in FONT_FOLDERS]
    folders.append(Path(sys.prefix, "share", "fonts"))
    fonts = []
    for folder in folders:
        if folder.is_dir():
            fonts += [path for path in folder.rglob("*.tt[fc]") if path.name in FONT_FILES]
    # By preference, then by path, so that every run takes the same one.
    return sorted(fonts, key=lambda path: (FONT_FILES.index(path.name), path))
