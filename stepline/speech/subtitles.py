"""Parsers of SubRip, WebVTT (also joined HLS segments) and SubViewer subtitle files.

All text between two timings belongs to the first of them, also after an empty line. Other text is
listed separately.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from stepline.errors import CaptionError
from stepline.speech.caption_text import strip_markup, strip_speaker_marks
from stepline.speech.shown_captions import ShownCaption, ShownLine, SubtitleFile, TimedText

# 00:00:01,500, also as programs for translation leave it: 00: 00: 01, 500 or with full-width marks
CLOCK_PATTERN = (
    r"((?<![-–—−])[-−])?(?:(\d{1,6})\s?[:：]\s?)?(\d{1,4})\s?[:：]\s?(\d{1,2})"
    r"(?:\s?[.,，]\s?(\d{1,9}))?"
)
ANY_CLOCK = re.compile(CLOCK_PATTERN)
ARROWHEAD = re.compile(r"&gt;|[>＞\u2190-\u21ff\u2794-\u27be]")
# Two clocks with an arrow of any kind. Two with a fraction need no arrowhead between them.
TIMING_PATTERN = re.compile(
    rf"\s*{CLOCK_PATTERN}((?:&gt;|[^\w.,:，：]){{0,12}}?){CLOCK_PATTERN}(?:\s(.*))?$"
)
SBV_CLOCK = CLOCK_PATTERN.replace("[.,，]", "[.]")
SBV_TIMING_PATTERN = re.compile(rf"\s*{SBV_CLOCK}(\s*,\s*){SBV_CLOCK}()\s*$")
# a timing with a fault: words have no clock on either side of an arrow
FAULTY_CLOCK = r"[-−]?\d{1,9}\s?(?:[:：;]|[.,]\s?\d{1,9}\s?[.,])(?:\S{0,20}|[\d\s:：;.,，−-]{0,20})"
BROKEN_TIMING_PATTERN = re.compile(
    rf"\s*{FAULTY_CLOCK}[^\w:：]{{0,12}}?(?:{ARROWHEAD.pattern})\s{{0,9}}{FAULTY_CLOCK}(?:\s.*)?$"
)
WEBVTT_LINE = re.compile(r"WEBVTT(?:[ \t].*)?$")
COMMENT_LINE = re.compile(r"(?:NOTE(?:[ \t].*)?|STYLE|REGION)[ \t]*$")
HEADER_FIELD = re.compile(r"[A-Za-z][\w-]*\s*[:=]|::cue|##$|[^{]*\{|\s*\}")
INLINE_TIME = re.compile(rf"<{CLOCK_PATTERN}>")
# {\an7} to {\an9}, {\a5} to {\a11}, {\pos(10,10)}: above the lowest third of the frame, or anywhere
TITLE_OVERRIDE = re.compile(r"\{[^{}]*\\(?:an[4-9]|a(?:[5-79]|1[01])|pos|move)[^{}]*\}")
LINE_SETTING = re.compile(r"(?:^|\s)line:(\d+(?:\.\d+)?)(%?)")
MAX_TITLE_LINE = 8  # of some 15 in WebVTT, counted from the top
MAX_TITLE_PERCENT = 50.0
TAG_WITH_BREAK = re.compile(r"<[^<>]{0,200}>")
MPEGTS_RATE = 90_000  # ticks per second of MPEG-TS
MPEGTS_WRAP_SECONDS = 2**33 / MPEGTS_RATE  # after which its clock starts over


class _Timing(NamedTuple):
    """A line of a subtitle file that holds the times of a caption.

    Attributes:
        line: index of the line in the file, from 0.
        start: start of the caption in seconds.
        end: end of the caption in seconds.
        settings: WebVTT's settings after the times, such as "line:0", or "".
    """

    line: int
    start: float
    end: float
    settings: str


def has_timing(text: str) -> bool:
    """Return whether a line of a text is a timing of any kind, also one with a fault."""
    return any(
        SBV_TIMING_PATTERN.match(line) or _match_timing(line) or _is_faulty_timing(line)
        for line in text.split("\n")
    )


def parse_subtitles(text: str, file_name: str) -> SubtitleFile:
    """Return the content of an srt, vtt or sbv file.

    Args:
        text: the text in the file.
        file_name: name of the file in messages.

    Raises CaptionError, with the line, for an invalid timing, and for a file without timings.
    """
    lines = [line.removeprefix("\ufeff") for line in text.split("\n")]
    is_webvtt = text.lstrip().startswith("WEBVTT")
    timings = _find_timings(lines, file_name)
    if not timings and not is_webvtt:
        raise CaptionError(
            f"{file_name}: holds no cue; write 00:00:01,000 --> 00:00:02,500 and the text below it"
        )
    chunk_ends = [*(timing.line for timing in timings), len(lines)]
    chunks = [lines[start + 1 : end] for start, end in pairwise(chunk_ends)]
    has_names = is_webvtt and all(map(_may_end_in_name, [lines[: chunk_ends[0]], *chunks[:-1]]))
    reader = _SubtitleReader(is_webvtt, has_names)
    # Text before the first timing belongs to no caption.
    reader.read_chunk(None, lines[: chunk_ends[0]], has_next=bool(timings))
    for timing, chunk in zip(timings, chunks, strict=True):
        reader.read_chunk(timing, chunk, has_next=timing is not timings[-1])
    return reader.file


def _may_end_in_name(chunk: list[str]) -> bool:
    """Return whether the last of the lines above a timing, below other text, can name its cue."""
    *above, last = chunk or [""]
    return bool(last.strip()) and not last.strip().isdecimal() and any(map(str.strip, above))


def _find_timings(lines: list[str], file_name: str) -> list[_Timing]:
    timings = []
    sbv_timings = []  # They count only in a file without arrows.
    for number, line in enumerate(lines):
        if match := SBV_TIMING_PATTERN.match(line):
            sbv_timings.append(_make_timing(number, match))
        elif match := _match_timing(line):
            timings.append(_make_timing(number, match))
        elif _is_faulty_timing(line):
            raise CaptionError(
                f"{file_name}, line {number + 1}: {line.strip()[:60]!r} is not a timing; write "
                "00:00:01,000 --> 00:00:02,500"
            )
    return timings or sbv_timings


def _match_timing(line: str) -> re.Match[str] | None:
    """Match a line of two clocks that have an arrow between them, or a fraction each."""
    match = TIMING_PATTERN.match(line)
    if match is None or ARROWHEAD.search(match[6]) or (match[5] and match[11]):
        return match
    return None


def _is_faulty_timing(line: str) -> bool:
    """Return whether a line is like a timing: faulty clocks, or a clock and an arrow alone."""
    if not ARROWHEAD.search(line):
        return False
    is_wordless = not any(map(str.isalpha, line.replace("&gt;", ">")))
    return bool(BROKEN_TIMING_PATTERN.match(line) or (is_wordless and ANY_CLOCK.search(line)))


def _make_timing(line_number: int, match: re.Match[str]) -> _Timing:
    start, arrow, end = match.groups()[:5], match[6], list(match.groups()[6:11])
    if not ARROWHEAD.search(arrow):
        end[0] = None  # This minus is the arrow.
    return _Timing(line_number, clock_seconds(start), clock_seconds(end), match[12] or "")


def clock_seconds(parts: Sequence[str | None]) -> float:
    """Return the seconds of a time given as minus, hours, minutes, seconds and fraction digits.

    A part that is None counts as 0.

    parts: the minus and the four numbers as text.
    """
    minus, *numbers = parts
    hours, minutes, seconds, fraction = (number or "0" for number in numbers)
    total = int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction}")
    return -total if minus else total


class _SubtitleReader:
    """Reads the lines below each timing of a subtitle file, in file order."""

    def __init__(self, is_webvtt: bool, has_names: bool) -> None:
        """Start at the first line.

        Args:
            is_webvtt: whether the file is WebVTT.
            has_names: whether each cue has a name, also directly below the text of the cue before.
        """
        self.file = SubtitleFile()
        self._is_webvtt = is_webvtt
        self._has_names = has_names
        self._last_number: int | None = None  # of the captions so far
        self._first_offset: float | None = None  # s, added by the first HLS segment
        self._shift = 0.0  # s by which this segment is later than the first one

    def read_chunk(self, timing: _Timing | None, chunk: list[str], *, has_next: bool) -> None:
        """Read the lines between two timings, as a caption or as text outside captions.

        Args:
            timing: the timing above the lines. None for the lines above the first timing.
            chunk: the lines.
            has_next: whether a timing follows the lines.
        """
        shift = self._shift
        chunk = self._without_number(chunk, has_next=has_next)
        body = self._webvtt_text(chunk, has_next=has_next) if self._is_webvtt else chunk
        if timing is None:
            for paragraph in _paragraphs(body):
                self._add_outside_text(strip_markup("\n".join(paragraph)))
            return
        text = "\n".join(body).strip("\n")
        self.file.captions.append(
            ShownCaption(
                start=timing.start + shift,
                end=timing.end + shift,
                lines=tuple(_shown_lines(text, shift)),
                is_title=_is_title(timing.settings, text),
            )
        )

    def _add_outside_text(self, text: str) -> None:
        words = text.split()
        if words:
            self.file.text_outside_captions.append(" ".join(words))

    def _without_number(self, chunk: list[str], *, has_next: bool) -> list[str]:
        """Return the lines without a last line that numbers the next caption.

        Numbers in the text are kept.

        Args:
            chunk: the lines between two timings.
            has_next: whether a timing follows the lines.
        """
        while chunk and not has_next and not chunk[-1].strip():
            chunk = chunk[:-1]
        if not chunk or not chunk[-1].strip().isdecimal():
            return chunk
        # The line above a timing may be its number.
        number = int(chunk[-1].strip()[:18])
        is_next_number = self._last_number is not None and number == self._last_number + 1
        is_after_blank = len(chunk) == 1 or not chunk[-2].strip()
        if has_next and (is_after_blank or is_next_number):
            self._last_number = number
            return chunk[:-1]
        # the number of a caption that is cut off
        if not has_next and is_after_blank and is_next_number:
            self._add_outside_text(chunk[-1])
            return chunk[:-1]
        return chunk

    def _webvtt_text(self, chunk: list[str], *, has_next: bool) -> list[str]:
        """Return the WebVTT lines without headers, comments and the identifier of the next caption.

        Args:
            chunk: the lines between two timings.
            has_next: whether a timing follows the lines.
        """
        text_lines: list[str] = []
        paragraphs = list(_paragraphs(chunk))
        for number, paragraph in enumerate(paragraphs):
            headers = [line for line, text in enumerate(paragraph) if WEBVTT_LINE.match(text)]
            if headers:
                text_lines += paragraph[: headers[0]]
                self._read_header(paragraph[headers[0] :])
                continue
            first = paragraph[0]
            is_after_blank = number > 0 or not chunk[0]
            is_last = number == len(paragraphs) - 1
            is_above_timing = is_last and has_next and bool(chunk[-1].strip())
            if is_after_blank and COMMENT_LINE.match(first):
                note = " ".join(" ".join(paragraph).split()).removeprefix("NOTE").strip()
                if note and not first.startswith(("STYLE", "REGION")):
                    self.file.notes.append(note)
                continue
            is_lone = is_after_blank and len(paragraph) == 1
            if is_above_timing and (is_lone or self._has_names):
                # an identifier. One of several words may be text that lost its place
                name = paragraph.pop()
                if " " in name.strip():
                    self._add_outside_text(name)
            if paragraph:
                text_lines += [*paragraph, ""]
        return text_lines

    def _read_header(self, lines: list[str]) -> None:
        title = lines[0].removeprefix("WEBVTT").strip(" \t-")
        if title:
            self.file.notes.append(title)
        for line in lines[1:]:
            if line.startswith("X-TIMESTAMP-MAP"):
                self._read_timestamp_map(line)
            elif not HEADER_FIELD.match(line):
                self._add_outside_text(line)

    def _read_timestamp_map(self, line: str) -> None:
        """Set the time shift of an HLS segment from its header line X-TIMESTAMP-MAP."""
        ticks = re.search(r"MPEGTS:(\d{1,12})", line)
        local = re.search(rf"LOCAL:{CLOCK_PATTERN}", line)
        if ticks is None or local is None:
            self._add_outside_text(line)
            return
        offset = int(ticks[1]) / MPEGTS_RATE - clock_seconds(local.groups())
        if self._first_offset is None:
            self._first_offset = offset
        self._shift = offset - self._first_offset
        if self._shift < -MPEGTS_WRAP_SECONDS / 2:
            self._shift += MPEGTS_WRAP_SECONDS


def _paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """Yield the paragraphs: runs of lines that are not empty."""
    # YouTube has lines of one space within a caption, which are not empty.
    for has_text, paragraph in groupby(lines, key=bool):
        if has_text:
            yield list(paragraph)


def _shown_lines(text: str, shift: float) -> Iterator[ShownLine]:
    """Yield the lines of a caption text, as sequences of timed parts.

    shift: seconds to add to the times of the words.
    """
    joined_tags = TAG_WITH_BREAK.sub(lambda tag: tag.group().replace("\n", " "), text)
    for line in joined_tags.replace("[br]", "\n").split("\n"):
        # text, then again and again five parts of a clock and text
        parts = INLINE_TIME.split(line)
        first, *others = map(strip_markup, parts[::6])
        shown_line = [TimedText(strip_speaker_marks(first))]
        for number, word in enumerate(others):
            clock = parts[6 * number + 1 : 6 * number + 6]
            shown_line.append(TimedText(word, clock_seconds(clock) + shift))
        yield shown_line


def _is_title(settings: str, text: str) -> bool:
    """Return whether a caption is a title in the picture, by its style override or position.

    Args:
        settings: WebVTT's settings. A line in the upper half of the picture means a title.
        text: text of the caption with its overrides.
    """
    if TITLE_OVERRIDE.search(text):
        return True
    line = LINE_SETTING.search(settings)
    return line is not None and float(line[1]) < (MAX_TITLE_PERCENT if line[2] else MAX_TITLE_LINE)
