"""Parser of TTML and DFXP captions: paragraphs, line breaks and the times of spans."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from stepline.errors import CaptionError
from stepline.limits import MAX_DEPTH
from stepline.speech.caption_text import strip_speaker_marks
from stepline.speech.shown_captions import ShownCaption, SubtitleFile, TimedText
from stepline.speech.subtitles import clock_seconds

TTML_START = re.compile(r"\s*(?:<\?xml[^>]*\?>|<!--.*?-->|\s)*<(?:\w+:)?tt[\s>]", re.DOTALL)
ENTITY_DECLARATION = re.compile(r"<!(?:DOCTYPE|ENTITY)", re.IGNORECASE)
CLOCK_TIME = re.compile(r"(\d{1,6}):(\d{1,4}):(\d{1,2})(?:[.,](\d{1,18})|:(\d{1,4})(?:\.\d+)?)?$")
OFFSET_TIME = re.compile(r"(\d{1,12}(?:\.\d{1,18})?)(h|ms|m|s|f|t)$")
POSITIVE_NUMBER = re.compile(r"0*[1-9]\d{0,8}(?:\.\d{1,9})?")
DEFAULT_FRAME_RATE = 30.0  # frames/s, of the standard
METADATA_TAGS = ("title", "desc", "copyright")


def is_ttml(text: str) -> bool:
    """Return whether a text starts like a TTML file."""
    return TTML_START.match(text) is not None


def parse_ttml(text: str, file_name: str) -> SubtitleFile:
    """Return the content of a TTML file. Raises CaptionError for invalid XML."""
    # Entities can grow without end, and no caption needs any.
    if ENTITY_DECLARATION.search(text):
        raise CaptionError(f"{file_name}: XML with declarations of its own; take its DOCTYPE out")
    # The parser refuses a declaration that is behind blank lines.
    without_declaration = re.sub(r"^\s*<\?xml[^>]*\?>", "", text)
    try:
        root = ElementTree.fromstring(without_declaration)
    except ElementTree.ParseError as error:
        raise CaptionError(f"{file_name}: not valid XML ({error}); correct that place") from error
    reader = _TtmlReader(root, file_name)
    reader.read_container(root, None, None, 0)
    return reader.file


class _TtmlReader:
    """Reads the elements of a TTML file, from the outer ones to the inner ones."""

    def __init__(self, root: ElementTree.Element, file_name: str) -> None:
        self.file = SubtitleFile()
        self._file_name = file_name
        frame_rate = _rate_attribute(root, "frameRate")
        tick_rate = _rate_attribute(root, "tickRate") or frame_rate or 1.0
        frame_rate = frame_rate or DEFAULT_FRAME_RATE
        self._unit_seconds = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
        self._unit_seconds |= {"f": 1 / frame_rate, "t": 1 / tick_rate}

    def read_container(
        self,
        element: ElementTree.Element,
        outer_start: float | None,
        outer_end: float | None,
        depth: int,
    ) -> None:
        """Read an element around paragraphs, and its children.

        Args:
            element: of the file, such as its body.
            outer_start: seconds at which the parent starts, None where it has no time.
            outer_end: seconds at which the parent ends.
            depth: number of elements around it.
        """
        self._check_depth(depth)
        start, end = self._times(element, outer_start, outer_end)
        tag = _tag(element)
        is_outside = tag in ("body", "div")
        if is_outside:
            self._add_outside_text(element.text)
        elif tag in METADATA_TAGS and (words := (element.text or "").split()):
            self.file.notes.append(" ".join(words))
        for child in element:
            if _tag(child) == "p":
                self._read_paragraph(child, *self._times(child, start, end))
            else:
                self.read_container(child, start, end, depth + 1)
            if is_outside:
                self._add_outside_text(child.tail)

    def _check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise CaptionError(
                f"{self._file_name}: nested deeper than {MAX_DEPTH}; write it flatter"
            )

    def _add_outside_text(self, text: str | None) -> None:
        words = (text or "").split()
        if words:
            self.file.text_outside_captions.append(" ".join(words))

    def _times(
        self, element: ElementTree.Element, outer_start: float | None, outer_end: float | None
    ) -> tuple[float | None, float | None]:
        """Return an element's start and end in seconds. Its times count from its parent's start."""
        base = outer_start or 0.0
        begin, end, duration = (self._seconds(element.get(key)) for key in ("begin", "end", "dur"))
        start = outer_start if begin is None else base + begin
        if duration is not None:
            return start, (start or 0.0) + duration
        return start, outer_end if end is None else base + end

    def _seconds(self, value: str | None) -> float | None:
        """Return a TTML time expression in seconds, None for no value or an invalid one."""
        text = (value or "").strip()
        if clock := CLOCK_TIME.match(text):
            # 00:00:01.5, or with frames 00:00:01:12
            *parts, frames = clock.groups()
            return clock_seconds(parts) + int(frames or 0) * self._unit_seconds["f"]
        # 1.5s, 36f, 15000t
        if offset := OFFSET_TIME.match(text):
            return float(offset[1]) * self._unit_seconds[offset[2]]
        return None

    def _read_paragraph(
        self, element: ElementTree.Element, start: float | None, end: float | None
    ) -> None:
        lines: list[list[TimedText]] = [[]]
        spans = []
        for text, span_start, span_end in self._texts(element, start, end, 0):
            if text is None:
                lines.append([])
                continue
            if span_start is not None and span_end is not None:
                spans.append((span_start, span_end))
            # A span that begins with its paragraph adds no time.
            text_start = None if span_start == start else span_start
            lines[-1].append(TimedText(re.sub(r"[ \t\n]+", " ", text), text_start))
        # A paragraph without times has those of its spans.
        if start is None:
            start = min((span_start for span_start, _ in spans), default=None)
        if end is None:
            end = max((span_end for _, span_end in spans), default=None)
        for line in filter(None, lines):
            line[0] = line[0]._replace(text=strip_speaker_marks(line[0].text))
        self.file.captions.append(ShownCaption(start, end, lines))

    def _texts(
        self, element: ElementTree.Element, start: float | None, end: float | None, depth: int
    ) -> Iterator[tuple[str | None, float | None, float | None]]:
        """Yield each text of a paragraph or span, with the times of its innermost timed span.

        A line break is None.
        """
        self._check_depth(depth)
        is_timed_span = depth > 0 and element.get("begin") is not None
        times = (start, end) if is_timed_span else (None, None)
        if element.text:
            yield element.text, *times
        for child in element:
            if _tag(child) == "br":
                yield None, None, None
            elif _tag(child) == "span":
                yield from self._texts(child, *self._times(child, start, end), depth + 1)
            else:
                self.read_container(child, start, end, depth + 1)
            if child.tail:
                yield child.tail, *times


def _tag(element: ElementTree.Element) -> str:
    """Return the name of an element without its namespace, "" for a comment."""
    return "" if not isinstance(element.tag, str) else element.tag.rpartition("}")[2]


def _rate_attribute(root: ElementTree.Element, name: str) -> float | None:
    """Return a rate in an attribute of any namespace, None where it is missing or invalid."""
    for key, value in root.attrib.items():
        if key.rpartition("}")[2] == name and POSITIVE_NUMBER.fullmatch(value):
            return float(value)
    return None
