"""Parser of TTML and DFXP files: paragraphs, line breaks and the times of spans."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from stepline.errors import CaptionError
from stepline.limits import MAX_DEPTH
from stepline.speech.caption_text import strip_speaker_marks
from stepline.speech.shown_captions import ShownCaption, SubtitleFile, TimedPiece
from stepline.speech.subtitles import MAX_TITLE_PERCENT, clock_seconds

TTML_START = re.compile(r"\s*(?:<\?xml[^>]*\?>|<!--.*?-->|\s)*<(?:\w+:)?tt[\s>]", re.DOTALL)
ENTITY_DECLARATION = re.compile(r"<!(?:DOCTYPE|ENTITY)", re.IGNORECASE)
CLOCK_TIME = re.compile(r"(\d{1,6}):(\d{1,4}):(\d{1,2})(?:[.,](\d{1,18})|:(\d{1,4})(?:\.\d+)?)?$")
OFFSET_TIME = re.compile(r"(\d{1,12}(?:\.\d{1,18})?)(h|ms|m|s|f|t)$")
UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
PERCENT_PAIR = re.compile(r"[\d.]+%\s+([\d.]+)%")
XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
BLANK_RUN = re.compile(r"[ \t\n]+")


@dataclass(frozen=True)
class _Clock:
    """The frame rate and tick rate that the root of a TTML file declares."""

    frame_rate: float
    tick_rate: float

    def seconds(self, value: str | None) -> float | None:
        """Return a TTML time expression in seconds, None for no value or an invalid one."""
        text = (value or "").strip()
        if clock := CLOCK_TIME.match(text):
            # 00:00:01.5, or with frames 00:00:01:12
            *parts, frames = clock.groups()
            return clock_seconds(parts) + int(frames or 0) / self.frame_rate
        # 1.5s, 36f, 15000t
        if offset := OFFSET_TIME.match(text):
            number = float(offset[1])
            rates = {"f": self.frame_rate, "t": self.tick_rate}
            unit = offset[2]
            return number / rates[unit] if unit in rates else number * UNIT_SECONDS[unit]
        return None


@dataclass(frozen=True)
class _InheritedAttributes:
    """Inherited attributes of an element: its seconds, and whether it is a title."""

    start: float | None = None
    end: float | None = None
    title: bool = False


def is_ttml(text: str) -> bool:
    """Return whether a text starts like a TTML file."""
    return TTML_START.match(text) is not None


def parse_ttml(text: str, name: str) -> SubtitleFile:
    """Return the content of a TTML file. Raises CaptionError for invalid XML."""
    # Entities can grow without end, and no caption needs any.
    if ENTITY_DECLARATION.search(text):
        raise CaptionError(f"{name}: XML with declarations of its own; take its DOCTYPE out")
    # The parser refuses a declaration that is behind blank lines.
    without_declaration = re.sub(r"^\s*<\?xml[^>]*\?>", "", text)
    try:
        root = ElementTree.fromstring(without_declaration)
    except ElementTree.ParseError as error:
        raise CaptionError(f"{name}: not valid XML ({error}); correct that place") from error
    reader = _TtmlReader(root, name)
    for element in root:
        if _tag(element) == "body":
            reader.read_container(element, _InheritedAttributes(), 0)
        else:
            reader.read_metadata(element)
    return reader.file


class _TtmlReader:
    """Reads the elements of a TTML file, from the outer ones to the inner ones."""

    def __init__(self, root: ElementTree.Element, name: str) -> None:
        self.file = SubtitleFile()
        self._name = name
        self._clock = _clock(root)
        self._top_region_ids = _top_regions(root)

    def read_metadata(self, element: ElementTree.Element) -> None:
        """Note the title, description and rights of a file, which are not spoken."""
        for part in element.iter():
            if _tag(part) not in ("title", "desc", "copyright"):
                continue
            words = (part.text or "").split()
            if words:
                self.file.notes.append(" ".join(words))

    def read_container(
        self, element: ElementTree.Element, outer: _InheritedAttributes, depth: int
    ) -> None:
        """Read a body or division, and its children."""
        if depth > MAX_DEPTH:
            raise CaptionError(f"{self._name}: nested deeper than {MAX_DEPTH}; write it flatter")
        attributes = self._inherited_attributes(element, outer)
        self._note_text(element.text)
        is_sequential = element.get("timeContainer") == "seq"
        child_attributes = attributes
        for child in element:
            tag = _tag(child)
            if tag == "p":
                self._read_paragraph(child, self._inherited_attributes(child, child_attributes))
            elif tag in ("body", "div"):
                self.read_container(child, child_attributes, depth + 1)
            else:
                self.read_metadata(child)
            # In a sequence each child begins where the one before ends.
            if is_sequential:
                end = self._inherited_attributes(child, child_attributes).end
                child_attributes = replace(attributes, start=end)
            self._note_text(child.tail)

    def _note_text(self, text: str | None) -> None:
        words = (text or "").split()
        if words:
            self.file.text_outside_captions.append(" ".join(words))

    def _inherited_attributes(
        self, element: ElementTree.Element, outer: _InheritedAttributes
    ) -> _InheritedAttributes:
        """Return the inherited attributes of an element. Its times count from its parent's start."""
        begin = self._clock.seconds(element.get("begin"))
        duration = self._clock.seconds(element.get("dur"))
        end = self._clock.seconds(element.get("end"))
        base = outer.start or 0.0
        start = outer.start if begin is None else base + begin
        end = outer.end if end is None else base + end
        if duration is not None:
            end = (start or 0.0) + duration
        is_top = element.get("region") in self._top_region_ids or _is_top(element)
        return _InheritedAttributes(start, end, outer.title or is_top)

    def _read_paragraph(
        self, element: ElementTree.Element, attributes: _InheritedAttributes
    ) -> None:
        keeps_blanks = element.get(XML_SPACE) == "preserve"
        lines: list[list[TimedPiece]] = [[]]
        starts: list[float] = []
        ends: list[float] = []
        # Each text in its line, with the second of its span.
        for text, span in self._texts(element, attributes, 0):
            start = None
            if span is not None and span.start is not None:
                # A span that begins with its paragraph adds no time.
                if span.start != attributes.start:
                    start = span.start
                if span.end is not None:
                    starts.append(span.start)
                    ends.append(span.end)
            # XML folds blanks, unless it says to preserve them.
            if not keeps_blanks and text != "\n":
                text = BLANK_RUN.sub(" ", text)
            for number, part in enumerate(text.split("\n")):
                if number:
                    lines.append([])
                if part:
                    lines[-1].append(TimedPiece(part, start))
        # A paragraph without times has those of its spans.
        if attributes.start is None:
            attributes = replace(attributes, start=min(starts, default=None))
        if attributes.end is None:
            attributes = replace(attributes, end=max(ends, default=None))
        for line in filter(None, lines):
            line[0] = line[0]._replace(text=strip_speaker_marks(line[0].text))
        self.file.captions.append(
            ShownCaption(attributes.start, attributes.end, lines, attributes.title)
        )

    def _texts(
        self, element: ElementTree.Element, attributes: _InheritedAttributes, depth: int
    ) -> Iterator[tuple[str, _InheritedAttributes | None]]:
        """Yield the texts of a paragraph or span with the attributes of their innermost timed span."""
        if depth > MAX_DEPTH:
            raise CaptionError(f"{self._name}: nested deeper than {MAX_DEPTH}; write it flatter")
        span = attributes if element.get("begin") is not None and depth > 0 else None
        if element.text:
            yield element.text, span
        for child in element:
            tag = _tag(child)
            if tag == "br":
                yield "\n", None
            elif tag == "span":
                child_attributes = self._inherited_attributes(child, attributes)
                yield from self._texts(child, child_attributes, depth + 1)
            else:
                self.read_metadata(child)
            if child.tail:
                yield child.tail, span


def _tag(element: ElementTree.Element) -> str:
    """Return the name of an element without its namespace, "" for a comment."""
    return "" if not isinstance(element.tag, str) else element.tag.rpartition("}")[2]


def _attribute(element: ElementTree.Element, name: str) -> str:
    """Return an attribute by its name without the namespace, "" when it is missing."""
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return value
    return ""


def _clock(root: ElementTree.Element) -> _Clock:
    # The defaults of TTML: 30 frames, and a tick per frame or second.
    rate = _positive(_attribute(root, "frameRate"), 30.0)
    parts = _attribute(root, "frameRateMultiplier").replace(":", " ").split()
    if len(parts) == 2:
        rate *= _positive(parts[0], 1.0) / _positive(parts[1], 1.0)
    default_ticks = rate if _attribute(root, "frameRate") else 1.0
    tick_rate = _positive(_attribute(root, "tickRate"), default_ticks)
    return _Clock(rate, tick_rate)


def _positive(text: str, default: float) -> float:
    """Return a number of at most nine digits, the default for anything else."""
    if not re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", text):
        return default
    return float(text) or default


def _top_regions(root: ElementTree.Element) -> frozenset[str]:
    """Return the ids of the regions in the upper half of the picture."""
    regions = [element for element in root.iter() if _tag(element) == "region"]
    tops = [region for region in regions if any(_is_top(part) for part in region.iter())]
    return frozenset(_attribute(region, "id") for region in tops)


def _is_top(element: ElementTree.Element) -> bool:
    """Return whether an element is in the upper half: by its origin and height, or its alignment."""
    origin = PERCENT_PAIR.match(_attribute(element, "origin"))
    align = _attribute(element, "displayAlign")
    if origin is None:
        return False
    top = float(origin[1])
    if top >= MAX_TITLE_PERCENT:
        return False
    extent = PERCENT_PAIR.match(_attribute(element, "extent"))
    # Text at the foot of a region is as low as the region's end.
    if align in ("after", "center") and extent is not None:
        return top + float(extent[1]) <= MAX_TITLE_PERCENT
    return align != "after"
