"""Parsers of SubRip, WebVTT (also joined HLS segments) and SubViewer subtitle files.

All text between two timings belongs to the first of them, also after an empty line. Other text is
listed separately.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stepline.errors import CaptionError
from stepline.speech.caption_text import strip_markup, strip_speaker_marks
from stepline.speech.shown_captions import ShownCaption, ShownLine, SubtitleFile, TimedText

CLOCK_PATTERN = r"(?:(\d{1,6}):)?(\d{1,4}):(\d{1,2})(?:[.,](\d{1,9}))?"
TIMING_PATTERN = re.compile(rf"\s*{CLOCK_PATTERN}\s*-->\s*{CLOCK_PATTERN}(?:\s(.*))?$")
SBV_TIMING_PATTERN = re.compile(
    rf"\s*{CLOCK_PATTERN.replace('[.,]', '[.]')}\s*,\s*{CLOCK_PATTERN.replace('[.,]', '[.]')}()\s*$"
)
# a timing with a fault: words have no clock on either side of an arrow
BROKEN_TIMING_PATTERN = re.compile(r"\s*\d+:\S*\s*-->\s*\d+:\S*(?:\s.*)?$")
WEBVTT_LINE = re.compile(r"WEBVTT(?:[ \t].*)?$")
COMMENT_LINE = re.compile(r"(?:NOTE(?:[ \t].*)?|STYLE|REGION)[ \t]*$")
HEADER_FIELD = re.compile(r"[A-Za-z][\w-]*\s*[:=]|::cue|##$|[^{]*\{|\s*\}")
INLINE_TIME = re.compile(rf"<{CLOCK_PATTERN}>")
# {\an7} to {\an9}, {\a5} to {\a11}, {\pos(10,10)}: above the lowest third of the picture, or anywhere
TITLE_OVERRIDE = re.compile(r"\{[^{}]*\\(?:an[4-9]|a(?:[5-79]|1[01])|pos|move)[^{}]*\}")
LINE_SETTING = re.compile(r"(?:^|\s)line:(\d+(?:\.\d+)?)(%?)")
MAX_TITLE_LINE = 8  # of some 15 in WebVTT, counted from the top
MAX_TITLE_PERCENT = 50.0
TAG_WITH_BREAK = re.compile(r"<[^<>]{0,200}>")
CLOCK_RATE = 90_000  # of MPEG-TS: ticks a second
CLOCK_WRAP = 2**33


class _Timing(NamedTuple):
    line: int  # its number from 0
    start: float
    end: float
    settings: str


def has_sbv_timing(text: str) -> bool:
    """Return whether a line is a timing of SubViewer: 0:00:01.000,0:00:03.000."""
    return any(SBV_TIMING_PATTERN.match(line) for line in text.split("\n"))


def parse_subtitles(text: str, name: str) -> SubtitleFile:
    """Return the content of an srt, vtt or sbv file.

    Raises CaptionError with the line of an invalid timing, and for a file without any timing.
    """
    lines = [line.removeprefix("\ufeff") for line in text.split("\n")]
    is_webvtt = text.lstrip().startswith("WEBVTT")
    timings = _timings(lines, name)
    if not timings and not is_webvtt:
        raise CaptionError(
            f"{name}: holds no cue; write 00:00:01,000 --> 00:00:02,500 and the text below it"
        )
    reader = _SubtitleReader(is_webvtt)
    chunk_ends = [*(timing.line for timing in timings), len(lines)]
    # What is before the first timing belongs to no caption.
    reader.read_chunk(None, lines[: chunk_ends[0]], has_next=bool(timings))
    for timing, end in zip(timings, chunk_ends[1:], strict=True):
        reader.read_chunk(timing, lines[timing.line + 1 : end], has_next=timing is not timings[-1])
    return reader.file


def _timings(lines: list[str], name: str) -> list[_Timing]:
    arrows = []
    broken_timings = []  # SubViewer's, which count only in a file without arrows
    for number, line in enumerate(lines):
        if match := SBV_TIMING_PATTERN.match(line):
            broken_timings.append(_timing(number, match))
        if "-->" not in line:
            continue
        if match := TIMING_PATTERN.match(line):
            arrows.append(_timing(number, match))
        elif BROKEN_TIMING_PATTERN.match(line):
            broken_line = f"{name}, line {number + 1}: {line.strip()[:60]!r} is not a timing"
            raise CaptionError(f"{broken_line}; write 00:00:01,000 --> 00:00:02,500")
    return arrows or broken_timings


def _timing(number: int, match: re.Match[str]) -> _Timing:
    groups = match.groups()
    return _Timing(number, clock_seconds(groups[:4]), clock_seconds(groups[4:8]), groups[8] or "")


def clock_seconds(parts: Sequence[str | None]) -> float:
    """Return the seconds of (hours, minutes, seconds, digits of a fraction)."""
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction}")


class _SubtitleReader:
    """Parses the text below each timing, in order."""

    def __init__(self, is_webvtt: bool) -> None:
        self.file = SubtitleFile()
        self._is_webvtt = is_webvtt
        self._number: int | None = None  # of the caption before
        self._first_offset: float | None = None  # s: what the first segment of HLS adds
        self._offset = 0.0  # s: what this segment adds to the first

    def read_chunk(self, timing: _Timing | None, chunk: list[str], *, has_next: bool) -> None:
        """Read the lines below a timing, or before the first. has_next: whether another timing
        follows.
        """
        shift = self._offset
        chunk = self._without_number(chunk, has_next=has_next)
        body = self._webvtt_body(chunk, has_next=has_next) if self._is_webvtt else chunk
        if timing is None:
            for paragraph in _paragraphs(body):
                text = " ".join(strip_markup("\n".join(paragraph)).split())
                if text:
                    self.file.text_outside_captions.append(text)
            return
        body_text = "\n".join(body).strip("\n")
        caption = ShownCaption(
            start=timing.start + shift,
            end=timing.end + shift,
            lines=tuple(_shown_lines(body_text, shift)),
            title=_is_title(timing.settings, body_text),
        )
        self.file.captions.append(caption)

    def _without_number(self, chunk: list[str], *, has_next: bool) -> list[str]:
        """Return a chunk without the number of the next caption. Numbers in the text stay."""
        while chunk and not has_next and not chunk[-1].strip():
            chunk = chunk[:-1]
        if not chunk:
            return chunk
        # The line above a timing may be its number.
        last = chunk[-1].strip()
        if not last.isdecimal():
            return chunk
        number = int(last[:18])
        is_next_number = self._number is not None and number == self._number + 1
        is_after_blank = len(chunk) == 1 or not chunk[-2].strip()
        if has_next and (is_after_blank or is_next_number):
            self._number = number
            return chunk[:-1]
        # A number at the end, of a caption that never comes.
        if not has_next and is_after_blank and is_next_number:
            self.file.text_outside_captions.append(last)
            return chunk[:-1]
        return chunk

    def _webvtt_body(self, chunk: list[str], *, has_next: bool) -> list[str]:
        """Return the lines of text of a chunk, without headers, notes and names of captions."""
        body: list[str] = []
        paragraphs = list(_paragraphs(chunk))
        for number, paragraph in enumerate(paragraphs):
            headers = [line for line, text in enumerate(paragraph) if WEBVTT_LINE.match(text)]
            if headers:
                body += paragraph[: headers[0]]
                self._read_header(paragraph[headers[0] :])
                continue
            first = paragraph[0]
            is_behind_blank = number > 0 or not chunk[0]
            is_last = number == len(paragraphs) - 1
            is_before_timing = is_last and has_next and bool(chunk[-1].strip())
            is_name = len(paragraph) == 1 and is_before_timing
            if is_behind_blank and COMMENT_LINE.match(first):
                note = " ".join(" ".join(paragraph).split()).removeprefix("NOTE").strip()
                if note and not first.startswith(("STYLE", "REGION")):
                    self.file.notes.append(note)
            elif is_behind_blank and is_name:
                # a name of several words may be text that lost its place
                name = first.strip()
                if " " in name:
                    self.file.text_outside_captions.append(name)
            else:
                body += paragraph
                body.append("")
        return body

    def _read_header(self, lines: list[str]) -> None:
        title = lines[0].removeprefix("WEBVTT").strip(" \t-")
        if title:
            self.file.notes.append(title)
        for line in lines[1:]:
            if line.startswith("X-TIMESTAMP-MAP"):
                self._read_map(line)
            elif not HEADER_FIELD.match(line):
                self.file.text_outside_captions.append(line.strip())

    def _read_map(self, line: str) -> None:
        """Set the time offset of an HLS segment (X-TIMESTAMP-MAP), relative to the first segment."""
        ticks = re.search(r"MPEGTS:(\d{1,12})", line)
        local = re.search(rf"LOCAL:{CLOCK_PATTERN}", line)
        if ticks is None or local is None:
            self.file.text_outside_captions.append(line.strip())
            return
        offset = int(ticks[1]) / CLOCK_RATE - clock_seconds(local.groups())
        if self._first_offset is None:
            self._first_offset = offset
        shift = offset - self._first_offset
        wrap = CLOCK_WRAP / CLOCK_RATE
        # The clock of MPEG-TS has 33 bits, and starts over.
        if shift < -wrap / 2:
            shift += wrap
        self._offset = shift


def _paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """Yield runs of lines between empty lines."""
    paragraph: list[str] = []
    for line in [*lines, ""]:
        # YouTube has lines of one space within a caption
        if line:
            paragraph.append(line)
        elif paragraph:
            yield paragraph
            paragraph = []


def _shown_lines(body: str, shift: float) -> Iterator[ShownLine]:
    """Yield the lines of a caption. shift: seconds to subtract from its word times."""
    text = TAG_WITH_BREAK.sub(lambda tag: tag.group().replace("\n", " "), body)
    for line in text.replace("[br]", "\n").split("\n"):
        # text, then four clock parts and text again and again
        parts = INLINE_TIME.split(line)
        texts = [strip_markup(text) for text in parts[::5]]
        pieces = [TimedText(strip_speaker_marks(texts[0]))]
        for number, text in enumerate(texts[1:]):
            clock = parts[5 * number + 1 : 5 * number + 5]
            pieces.append(TimedText(text, clock_seconds(clock) + shift))
        yield pieces


def _is_title(settings: str, body: str) -> bool:
    """Return whether a caption is a title: by an override, or in the upper half of a WebVTT
    picture.
    """
    if TITLE_OVERRIDE.search(body):
        return True
    line = LINE_SETTING.search(settings)
    if line is None:
        return False
    limit = MAX_TITLE_PERCENT if line[2] else MAX_TITLE_LINE
    return float(line[1]) < limit
