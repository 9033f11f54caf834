"""What is on the screen, change by change: lines are read where something changed, and only then.

Source: a change of more than a fifth of the text is a new scene (MONDAY, 2505.12632). Differs: the
share is counted in letters, with their places, between the screens before and after a change.
"""

import functools
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepline.grounding.screens.changes import (
    ChangeFinder,
    Point,
    ScreenChange,
    ScreenMeter,
    ScreenStatistics,
)
from stepline.networks.weights import find_weights
from stepline.processes import trim_memory
from stepline.records import Span
from stepline.vision.encode import Images
from stepline.vision.faces import box_iou, resize
from stepline.vision.on_screen_text import (
    LINE_HEIGHT,
    MIN_BOX_IOU,
    Box,
    Floats,
    line_boxes,
    load_text_networks,
)

if TYPE_CHECKING:
    from stepline.media import MediaInfo
    from stepline.media.settings import MediaSettings
    from stepline.vision.encode import Images


MARGIN_FRACTION = 0.03  # of the picture's shorter side, around what changed
MIN_WINDOW_PIXELS = (
    160  # px that are read at least, across and down: the detector needs surroundings
)
MIN_DETECTOR_PIXELS = 64  # px of what the detector sees at least
# The detector sees a picture this many times its size, which takes half the memory. Lines are read
# in full size. Of 698 lines of 24 recordings it leaves 688 as they are, and no click changes.
DETECTOR_SCALE = 0.7
MIN_MISREAD_LETTERS = 5  # of a text in which one letter may be misread
SAME_PLACE_IOU = 0.2  # above which two lines of one screen are one: they have margins that touch
MIN_COVERED_RATIO = 0.75  # of the letters that a line has left under a cursor
MIN_LINE_PIXELS = 8  # px; smaller letters are not read
MAX_LINE_ASPECT_RATIO = 40  # times as wide as high
MIN_READ_PROBABILITY = 0.7  # mean of the letters, from which a line counts
MAX_LINE_CHANGE = 0.02  # mean change of a line's pixels, 0 to 1, below which it is the same line
MAX_CACHED_LINES = 2000  # that are remembered of one video
log = logging.getLogger(__name__)
READ_FRAMES_PER_SECOND = 5.0  # frames per second that are compared
MAX_SIDE = 1080  # px of the shorter side of what is read
NEW_SCENE_FRACTION = 0.2  # of the letters on screen: a greater change is a new scene (MONDAY)
MAX_TYPING_PAUSE_SECONDS = 1.0  # s between letters of a line that is typed
MIN_TYPED_LETTERS = 3  # with which it begins before and after
MIN_SCREEN_LINES = 4  # of the median screen, from which a still video is a screen recording
SAMPLED_PAIRS = 10  # pairs of pictures, spread over a video that is not decoded otherwise
PAIR_SECONDS = 0.34  # s between the pictures of a pair, as between those of the usual look
SAMPLED_PAIR_PIXELS = 256  # px of their shorter side
TEXT_SAMPLE_PIXELS = 960  # px across of a picture whose lines are counted
MAX_TEXT_SAMPLE_LINES = 12  # that are tried in each
CHANGES_PER_TRIM = 2  # that are read before freed memory goes back: 300 MiB for some CPU time
TEXT_SAMPLES = 6  # screens, spread over the video, in which they are counted


@dataclass(frozen=True)
class ScreenLine:
    """A line of text and its place: left, top, right, bottom, in pixels."""

    text: str
    box: Box


class ScreenLineReader:
    """Reads the lines of a screen. What stays, or comes again in its place, is read once."""

    def __init__(self, folder: Path) -> None:
        self._detect, self._read = load_text_networks(folder)
        self._memory: list[tuple[Box, Floats, ScreenLine | None]] = []

    def read(
        self,
        picture: Images,
        patches: Sequence[Box] = (),
        lines_before: Sequence[ScreenLine] = (),
        *,
        max_lines: int | None = None,
    ) -> tuple[ScreenLine, ...]:
        """Return all lines of a picture (H, W, 3), from top to bottom.

        patches: what changed since the picture before. Those of its lines, `lines_before`, that no
            patch touches stay as they were: a cursor may cover them.
        max_lines: lines that are tried, from the top
        """
        height, width = picture.shape[:2]
        window: Box = (0, 0, width, height)
        lines: list[ScreenLine] = []
        if patches:
            window = _window(functools.reduce(enclosing_box, patches), lines_before, width, height)
            for before in lines_before:
                if not _overlaps(before.box, patches):
                    lines.append(before)
        unchanged_lines = [line.box for line in lines]
        window_x, window_y = window[:2]
        crop = np.ascontiguousarray(picture[window_y : window[3], window_x : window[2]])
        side = max(MIN_DETECTOR_PIXELS, round(DETECTOR_SCALE * min(crop.shape[:2])))
        letters = self._detect(crop, side)
        map_height, map_width = letters.shape
        high = crop.shape[0] / map_height
        boxes = line_boxes(letters, crop.shape[1] / map_width, high)
        for x, y, end_x, end_y in boxes[:max_lines]:
            box = (x + window_x, y + window_y, end_x + window_x, end_y + window_y)
            if _overlaps(box, unchanged_lines, SAME_PLACE_IOU):
                continue
            line = self._line(picture, box)
            if line is not None:
                lines.append(_uncovered(line, lines_before))
        lines.sort(key=lambda line: line.box[0])
        lines.sort(key=lambda line: line.box[1])
        return tuple(lines)

    def _line(self, picture: Images, box: Box) -> ScreenLine | None:
        """Return what a box says, from memory where it said that before, None where it cannot be
        read."""
        x, y, end_x, end_y = box
        height = end_y - y
        if height < MIN_LINE_PIXELS or end_x - x > MAX_LINE_ASPECT_RATIO * height:
            return None
        crop = np.ascontiguousarray(picture[y:end_y, x:end_x])
        pixels = resize(crop, 2 * LINE_HEIGHT, LINE_HEIGHT)
        for place, before, line in reversed(self._memory):
            is_same_place = box_iou(place, box) > MIN_BOX_IOU
            if is_same_place and np.abs(before - pixels).mean() < MAX_LINE_CHANGE:
                return line
        text, probability = self._read(crop)
        line = None
        if probability >= MIN_READ_PROBABILITY and any(letter.isalnum() for letter in text):
            line = ScreenLine(text, box)
        recent = self._memory[1 - MAX_CACHED_LINES :]
        self._memory = [*recent, (box, pixels, line)]
        return line


def _overlaps(box: Box, others: Sequence[Box], min_iou: float = 0.0) -> bool:
    """Whether a box has an IoU above `least` with any of the others."""
    return any(box_iou(box, other) > min_iou for other in others)


def _window(area: Box, lines_before: Sequence[ScreenLine], width: int, height: int) -> Box:
    """Return the box to read: whole lines, with a margin around the change."""
    margin = round(MARGIN_FRACTION * min(width, height))
    window = _expanded(area, margin, width, height)
    outside = list(lines_before)
    while touched_lines := [line for line in outside if box_iou(line.box, window) > 0]:
        for line in touched_lines:
            whole_line = _expanded(line.box, margin // 2, width, height)
            window = enclosing_box(window, whole_line)
        outside = [line for line in outside if line not in touched_lines]
    return window


def _expanded(box: Box, margin: int, width: int, height: int) -> Box:
    """Return a box with a margin, at least MIN_WINDOW_PIXELS px wide and high where the picture is."""
    x, y, end_x, end_y = box
    extra_width = MIN_WINDOW_PIXELS - (end_x - x)
    extra_height = MIN_WINDOW_PIXELS - (end_y - y)
    across = max(margin, extra_width // 2)
    down = max(margin, extra_height // 2)
    return (
        max(0, x - across),
        max(0, y - down),
        min(width, end_x + across),
        min(height, end_y + down),
    )


def enclosing_box(box: Box, other: Box) -> Box:
    """Return the smallest box around two boxes."""
    return (
        min(box[0], other[0]),
        min(box[1], other[1]),
        max(box[2], other[2]),
        max(box[3], other[3]),
    )


def is_same_text(text: str, other: str) -> bool:
    """Whether two readings are of one text: equal but for spaces and a letter misread."""
    first = _lower_letters(text)
    second = _lower_letters(other)
    if len(first) != len(second) or len(first) < MIN_MISREAD_LETTERS:
        return first == second
    misread = 0
    for letter, other_letter in zip(first, second, strict=True):
        misread += letter != other_letter
    return misread <= 1


def _lower_letters(text: str) -> str:
    return re.sub(r"\W", "", text).lower()


def _uncovered(line: ScreenLine, lines_before: Sequence[ScreenLine]) -> ScreenLine:
    """Return the line of the picture before that a cursor now covers, else the line itself."""
    for before in lines_before:
        if _is_covered(line, before):
            return before
    return line


def _is_covered(line: ScreenLine, before: ScreenLine) -> bool:
    """Whether a line is what a cursor leaves of the line that was there before."""
    overlap = box_iou(line.box, before.box) > 0
    letters = _lower_letters(line.text)
    shorter = len(line.text) < len(before.text)
    ratio = SequenceMatcher(None, line.text, before.text).ratio()
    return overlap and shorter and bool(letters) and ratio >= MIN_COVERED_RATIO


@dataclass(frozen=True)
class ScreenEvent:
    """A change of the screen, read.

    start, end: s
    box: around what changed, in pixels
    patches: boxes of its parts
    cursor: where it was, None where none was seen
    before, after: all lines when it began, and when it was over
    appeared, vanished: those that came and went
    area: share of the picture that changed
    scene: whether more than a fifth of the text is new
    """

    start: float
    end: float
    box: Box
    patches: tuple[Box, ...]
    cursor: Point | None
    before: tuple[ScreenLine, ...]
    after: tuple[ScreenLine, ...]
    appeared: tuple[ScreenLine, ...]
    vanished: tuple[ScreenLine, ...]
    area: float
    scene: bool


@dataclass(frozen=True)
class ScreenReading:
    """Every change of a screen recording, in order. width, height: px of its pictures."""

    width: int
    height: int
    events: tuple[ScreenEvent, ...]

    @property
    def scenes(self) -> tuple[float, ...]:
        """Seconds at which more than a fifth of the text changes."""
        return tuple(event.start for event in self.events if event.scene)


def sampled_screen_statistics(
    path: Path, start: float, duration: float, media: "MediaSettings"
) -> ScreenStatistics:
    """Return the screen statistics of a video, from pairs of frames sampled over it."""
    from stepline.media import read_frames_at

    times = []
    for pair in range(SAMPLED_PAIRS):
        first = start + (pair + 0.5) * duration / SAMPLED_PAIRS
        times.append(first)
        times.append(first + PAIR_SECONDS)
    pairs: dict[int, ScreenMeter] = {}
    for frame in read_frames_at(path, times, settings=media, shorter=SAMPLED_PAIR_PIXELS):
        pair = int((frame.time - start) * SAMPLED_PAIRS / duration)
        pairs.setdefault(pair, ScreenMeter()).add(frame)
    if not pairs:
        return ScreenStatistics(0.0, 0.0)
    still = []
    flat = []
    for meter in pairs.values():
        likeness = meter.finish()
        still.append(likeness.still)
        flat.append(likeness.flat)
    return ScreenStatistics(float(np.median(still)), float(np.median(flat)))


def has_screen_text(path: Path, seconds: Sequence[float]) -> bool:
    """Whether a still video shows as much text as a screen does, in the median of its seconds."""
    from stepline.media import read_frames_at

    reader = ScreenLineReader(find_weights("pp-ocr"))
    counts: list[int] = []
    for frame in read_frames_at(path, seconds, TEXT_SAMPLE_PIXELS):
        lines = reader.read(frame.image, max_lines=MAX_TEXT_SAMPLE_LINES)
        counts.append(len(lines))

        # Once most pictures agree, the others cannot move the median across the limit.
        full = sum(count >= MIN_SCREEN_LINES for count in counts)
        agreeing = max(full, len(counts) - full)
        if agreeing > len(seconds) / 2:
            break
    log.info("%s: lines of text in %d pictures: %s", path, len(counts), counts)
    return bool(counts) and float(np.median(counts)) >= MIN_SCREEN_LINES


def read_screen(
    path: Path, info: "MediaInfo", media: "MediaSettings", part: Span | None = None
) -> ScreenReading:
    """Return what is on the screen of a video, or of a part of it, and when it changes.

    Raises MediaError where it cannot be decoded, ModelError without the weights that read.
    """
    from stepline.media import Frame, MediaReader

    size = min(MAX_SIDE, info.width, info.height)
    reader = MediaReader(
        path,
        frame_rate=READ_FRAMES_PER_SECOND,
        frame_size=size,
        sound=False,
        settings=media,
        part=part,
    )
    finder = ChangeFinder(frame_rate=READ_FRAMES_PER_SECOND)
    events = _EventReader(ScreenLineReader(find_weights("pp-ocr")))
    shape: tuple[int, ...] = (info.height, info.width)
    for frame in reader:
        if not isinstance(frame, Frame):
            continue
        shape = frame.image.shape
        events.add(finder.add(frame))
    events.add(finder.finish())
    height, width = shape[:2]
    return ScreenReading(width, height, tuple(events.events))


class _EventReader:
    """Reads changes one after the other."""

    def __init__(self, reader: ScreenLineReader) -> None:
        self._reader = reader
        self._lines: tuple[ScreenLine, ...] | None = None  # of the screen that was still last
        self.events: list[ScreenEvent] = []

    def add(self, changes: "Iterable[ScreenChange]") -> None:
        """Read the screens before and after each change."""
        for change in changes:
            if self._lines is None:
                self._lines = self._reader.read(change.before)
            before = self._lines
            after = self._reader.read(change.after, change.patches, before)
            self._lines = after
            self.events.append(_event(change, before, after))
            # Windows have many sizes, so that what one freed rarely serves the next.
            if len(self.events) % CHANGES_PER_TRIM == 0:
                trim_memory()


def _event(
    change: ScreenChange, before: tuple[ScreenLine, ...], after: tuple[ScreenLine, ...]
) -> ScreenEvent:
    appeared = _new_lines(after, before)
    vanished = _new_lines(before, after)
    letters = _letters(before) + _letters(after)
    new_letters = _letters(appeared) + _letters(vanished)
    share = new_letters / max(1, letters)
    height, width = change.after.shape[:2]
    left, top, right, bottom = change.box
    across = (right - left) / width
    down = (bottom - top) / height
    return ScreenEvent(
        change.start,
        change.end,
        change.box,
        change.patches,
        change.cursor,
        before,
        after,
        appeared,
        vanished,
        float(across * down),
        share > NEW_SCENE_FRACTION,
    )


def join_typed(events: Sequence[ScreenEvent]) -> list[ScreenEvent]:
    """Return the changes with those joined that write one line, letter by letter."""
    joined: list[ScreenEvent] = []
    for event in events:
        if joined and _is_typed_on(joined[-1], event):
            event = _joined(joined.pop(), event)
        joined.append(event)
    return joined


def _is_typed_on(before: ScreenEvent, event: ScreenEvent) -> bool:
    """Whether a change goes on writing the line that the one before began."""
    if len(before.appeared) != 1 or len(event.appeared) != 1:
        return False
    if event.start - before.end > MAX_TYPING_PAUSE_SECONDS:
        return False
    (written,) = before.appeared
    (later,) = event.appeared
    begins_alike = later.text[:MIN_TYPED_LETTERS] == written.text[:MIN_TYPED_LETTERS]
    grows = len(later.text) > len(written.text) and begins_alike
    return grows and box_iou(written.box, later.box) > 0


def _joined(before: ScreenEvent, event: ScreenEvent) -> ScreenEvent:
    """Return two changes merged into one."""
    return replace(
        before,
        end=event.end,
        box=enclosing_box(before.box, event.box),
        patches=(*before.patches, *event.patches),
        after=event.after,
        appeared=_new_lines(event.after, before.before),
        vanished=_new_lines(before.before, event.after),
        scene=before.scene or event.scene,
    )


def _new_lines(lines: Sequence[ScreenLine], others: Sequence[ScreenLine]) -> tuple[ScreenLine, ...]:
    """Return the lines that are not among the others, in the same place."""

    def stays(line: ScreenLine) -> bool:
        return any(
            box_iou(line.box, other.box) > MIN_BOX_IOU and is_same_text(line.text, other.text)
            for other in others
        )

    return tuple(line for line in lines if not stays(line))


def _letters(lines: Iterable[ScreenLine]) -> int:
    return sum(len(line.text) for line in lines)
