"""Text recognition on a screen, change by change. Only the changed area is recognised again.

Source: a change of more than a fifth of the text is a new scene (MONDAY, 2505.12632). Differs: the
fraction is of letters, between the screens before and after a change. Text that moves is the same.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
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
    enclosing_box,
    median_statistics,
)
from stepline.networks.weights import find_weights
from stepline.processes import trim_memory
from stepline.records import Span
from stepline.vision.encode import Images
from stepline.vision.on_screen_text import (
    LINE_HEIGHT,
    MIN_BOX_IOU,
    Box,
    Floats,
    box_iou,
    line_boxes,
    load_text_networks,
    resize,
)

if TYPE_CHECKING:
    from stepline.media import MediaInfo
    from stepline.media.settings import MediaSettings
    from stepline.vision.encode import Images


MARGIN_FRACTION = 0.03  # of the picture's shorter side, around a changed area
MIN_WINDOW_PIXELS = 160  # smallest side of a recognised area, since the detector needs context
MIN_DETECTOR_PIXELS = 64  # smallest side of the detector's input
# scale of the detector's input, which halves memory. Lines are recognised in full size. Of 698 lines
# of 24 recordings 688 stay the same, and no click changes
DETECTOR_SCALE = 0.7
MIN_MISREAD_LETTERS = 5  # letters of a text in which one letter may be wrong
SAME_PLACE_IOU = 0.2  # above which two boxes of one screen are the same line
MIN_COVERED_RATIO = 0.75  # similarity of a line with the same line under a cursor
MIN_LINE_PIXELS = 8  # height of a line; smaller letters are not recognised
MAX_LINE_ASPECT_RATIO = 40  # width / height
MIN_READ_PROBABILITY = 0.7  # mean over the letters of a line
MAX_LINE_CHANGE = 0.02  # mean change of a line's pixels, 0 to 1, of an unchanged line
MAX_CACHED_LINES = 2000  # size of the cache of a video
log = logging.getLogger(__name__)
READ_FRAMES_PER_SECOND = 5.0  # frames per second that are compared
MAX_SIDE = 1080  # shorter side of a frame in pixels
NEW_SCENE_FRACTION = 0.2  # of the letters on the screen: a larger change is a new scene (MONDAY)
MAX_TYPING_PAUSE_SECONDS = 1.0  # between letters of a line that is typed
MIN_TYPED_LETTERS = 3  # common first letters of a line before and after a letter is typed
MIN_SCREEN_LINES = 4  # lines of text in the median sample of a screen recording
SAMPLED_PAIR_COUNT = 10  # pairs of frames, spread over a video that is not decoded otherwise
PAIR_INTERVAL_SECONDS = 0.34  # between the frames of a pair
SAMPLED_PAIR_PIXELS = 256  # shorter side of these frames
TEXT_SAMPLE_PIXELS = 960  # width of a frame whose lines are counted
MAX_TEXT_SAMPLE_LINES = 12  # lines that are recognised per sample
CHANGES_PER_TRIM = 2  # changes between two releases of freed memory (saves 300 MiB)
TEXT_SAMPLE_COUNT = 6  # frames, spread over the video, whose lines are counted


@dataclass(frozen=True)
class ScreenLine:
    """A line of text on the screen.

    Attributes:
        text: the words of the line.
        box: (left, top, right, bottom) in pixels.
    """

    text: str
    box: Box


class ScreenLineReader:
    """Recognises the lines of text in frames of a screen recording.

    Lines are cached, so that a line that stays or returns is recognised once.
    """

    def __init__(self, folder: Path) -> None:
        self._detect, self._read = load_text_networks(folder)
        self._cache: list[tuple[Box, Floats, ScreenLine | None]] = []

    def read(
        self,
        picture: Images,
        patches: Sequence[Box] = (),
        lines_before: Sequence[ScreenLine] = (),
        *,
        max_lines: int | None = None,
    ) -> tuple[ScreenLine, ...]:
        """Return all lines of text in a frame, sorted from top to bottom.

        Args:
            picture: the frame, (H, W, 3) uint8 RGB.
            patches: boxes in pixels that changed since the last frame. (): the whole frame is recognised.
            lines_before: lines of the last frame. Those outside of the patches are kept.
            max_lines: maximal number of lines that are recognised. None: all.
        """
        height, width = picture.shape[:2]
        window: Box = (0, 0, width, height)
        lines: list[ScreenLine] = []
        if patches:
            window = _area_to_read(enclosing_box(patches), lines_before, width, height)
            lines = [line for line in lines_before if not _overlaps(line.box, patches)]
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
            # A line outside of the patches does not change, even if it is recognised only now.
            is_unchanged = patches and not _overlaps(box, patches)
            if is_unchanged or _overlaps(box, unchanged_lines, SAME_PLACE_IOU):
                continue
            line = self._recognise_line(picture, box)
            if line is not None:
                lines.append(_restore_covered(line, lines_before))
        return tuple(sorted(lines, key=lambda line: (line.box[1], line.box[0])))

    def _recognise_line(self, picture: Images, box: Box) -> ScreenLine | None:
        """Return the line of text in a box of a frame, None if it is too small or not readable.

        A line with the same pixels in the same position is taken from the cache.
        """
        x, y, end_x, end_y = box
        height = end_y - y
        if height < MIN_LINE_PIXELS or end_x - x > MAX_LINE_ASPECT_RATIO * height:
            return None
        crop = np.ascontiguousarray(picture[y:end_y, x:end_x])
        pixels = resize(crop, 2 * LINE_HEIGHT, LINE_HEIGHT)
        for place, before, line in reversed(self._cache):
            is_same_place = box_iou(place, box) > MIN_BOX_IOU
            if is_same_place and np.abs(before - pixels).mean() < MAX_LINE_CHANGE:
                return line
        text, probability = self._read(crop)
        line = None
        if probability >= MIN_READ_PROBABILITY and any(letter.isalnum() for letter in text):
            line = ScreenLine(text, box)
        self._cache = [*self._cache[1 - MAX_CACHED_LINES :], (box, pixels, line)]
        return line


def _overlaps(box: Box, others: Sequence[Box], min_iou: float = 0.0) -> bool:
    """Return whether the intersection over union with any other box is above `min_iou`."""
    return any(box_iou(box, other) > min_iou for other in others)


def _area_to_read(area: Box, lines_before: Sequence[ScreenLine], width: int, height: int) -> Box:
    """Return the box of a frame in which text is recognised again.

    It contains the changed area and all lines of the last frame that touch it, with a margin.

    Args:
        area: box around the changed area, in pixels.
        lines_before: lines of the last frame.
        width: width of the frame in pixels.
        height: height of the frame in pixels.
    """
    margin = round(MARGIN_FRACTION * min(width, height))
    window = _expanded(area, margin, width, height)
    outside = list(lines_before)
    while touched_lines := [line for line in outside if box_iou(line.box, window) > 0]:
        for line in touched_lines:
            whole_line = _expanded(line.box, margin // 2, width, height)
            window = enclosing_box([window, whole_line])
        outside = [line for line in outside if line not in touched_lines]
    return window


def _expanded(box: Box, margin: int, width: int, height: int) -> Box:
    """Return a box with a margin, at least 160 pixels wide and high, clipped to the frame.

    Args:
        box: (left, top, right, bottom) in pixels.
        margin: pixels that are added on each side.
        width: width of the frame in pixels.
        height: height of the frame in pixels.
    """
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


def is_same_text(text: str, other: str) -> bool:
    """Return whether two texts have the same letters and digits, without case.

    One wrong letter is allowed in texts of 5 letters or more.
    """
    first = lower_letters(text)
    second = lower_letters(other)
    if len(first) != len(second) or len(first) < MIN_MISREAD_LETTERS:
        return first == second
    return sum(a != b for a, b in zip(first, second, strict=True)) <= 1


def lower_letters(text: str) -> str:
    """Return the letters, digits and underscores of a text, in lower case."""
    return re.sub(r"\W", "", text).lower()


def _restore_covered(line: ScreenLine, lines_before: Sequence[ScreenLine]) -> ScreenLine:
    """Return the earlier line that a cursor now covers in part, the line itself if there is none.

    Args:
        line: a line of the current frame.
        lines_before: lines of the last frame.
    """
    if not lower_letters(line.text):
        return line
    for before in lines_before:
        if box_iou(line.box, before.box) > 0 and len(line.text) < len(before.text):
            ratio = SequenceMatcher(None, line.text, before.text).ratio()
            if ratio >= MIN_COVERED_RATIO:
                return before
    return line


@dataclass(frozen=True)
class ScreenEvent:
    """A change of the screen, with the text before and after it.

    Attributes:
        start: second at which the change begins.
        end: second at which the screen is still again.
        patches: boxes (left, top, right, bottom) around the changed areas, in pixels.
        cursor: (x, y) of the cursor in pixels when the change begins, None if it is unknown.
        before: all lines of text before the change.
        after: all lines of text after the change.
        appeared: lines that are new after the change.
        vanished: lines that are gone after the change.
        scene: whether more than a fifth of the letters changed, so that it is a new scene.
    """

    start: float
    end: float
    patches: tuple[Box, ...]
    cursor: Point | None
    before: tuple[ScreenLine, ...]
    after: tuple[ScreenLine, ...]
    appeared: tuple[ScreenLine, ...]
    vanished: tuple[ScreenLine, ...]
    scene: bool


@dataclass(frozen=True)
class ScreenReading:
    """The changes of a screen recording, with the text on the screen.

    Attributes:
        width: width of the frames in pixels, after scaling.
        height: height of the frames in pixels, after scaling.
        events: the changes, sorted by time.
    """

    width: int
    height: int
    events: tuple[ScreenEvent, ...]

    @property
    def scenes(self) -> tuple[float, ...]:
        """Seconds at which a new scene begins: more than a fifth of the letters change."""
        return tuple(event.start for event in self.events if event.scene)


def sampled_screen_statistics(
    path: Path, start: float, duration: float, media: "MediaSettings"
) -> ScreenStatistics:
    """Return how still and how flat a part of a video is, from 10 pairs of frames spread over it.

    Args:
        path: path of the video.
        start: second at which the part begins.
        duration: duration of the part in seconds.
        media: settings of decoding.
    """
    from stepline.media import read_frames_at

    firsts = [
        start + (pair + 0.5) * duration / SAMPLED_PAIR_COUNT for pair in range(SAMPLED_PAIR_COUNT)
    ]
    times = [first + gap for first in firsts for gap in (0.0, PAIR_INTERVAL_SECONDS)]
    pairs: dict[int, ScreenMeter] = {}
    for frame in read_frames_at(path, times, settings=media, shorter=SAMPLED_PAIR_PIXELS):
        pair = int((frame.time - start) * SAMPLED_PAIR_COUNT / duration)
        pairs.setdefault(pair, ScreenMeter()).add_frame(frame)
    return median_statistics([meter.finish() for meter in pairs.values()])


def has_screen_text(path: Path, seconds: Sequence[float]) -> bool:
    """Return whether the sampled frames have enough text for a screen recording.

    The median frame must have 4 lines of text or more.

    Args:
        path: path of the video.
        seconds: seconds of the frames that are sampled.
    """
    from stepline.media import read_frames_at

    reader = ScreenLineReader(find_weights("pp-ocr"))
    counts: list[int] = []
    for frame in read_frames_at(path, seconds, TEXT_SAMPLE_PIXELS):
        counts.append(len(reader.read(frame.image, max_lines=MAX_TEXT_SAMPLE_LINES)))

        # Once most frames agree, the others cannot change the result.
        enough_count = sum(count >= MIN_SCREEN_LINES for count in counts)
        if max(enough_count, len(counts) - enough_count) > len(seconds) / 2:
            break
    log.info("%s: lines of text in %d pictures: %s", path, len(counts), counts)
    return bool(counts) and float(np.median(counts)) >= MIN_SCREEN_LINES


def read_screen(
    path: Path, info: "MediaInfo", media: "MediaSettings", part: Span | None = None
) -> ScreenReading:
    """Return the changes of the screen in a video, with the text before and after each.

    Args:
        path: path of the video.
        info: duration and size of the video.
        media: settings of decoding.
        part: span of the video that is read, in seconds. None: the whole video.

    Raises MediaError if the video cannot be decoded, ModelError if the weights of text recognition are
    missing.
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
    shape: tuple[int, ...] = (info.height, info.width)

    def changes() -> Iterator[ScreenChange]:
        nonlocal shape
        finder = ChangeFinder(frame_rate=READ_FRAMES_PER_SECOND)
        for frame in reader:
            if isinstance(frame, Frame):
                shape = frame.image.shape
                yield from finder.add(frame)
        yield from finder.finish()

    events = _read_events(changes(), ScreenLineReader(find_weights("pp-ocr")))
    height, width = shape[:2]
    return ScreenReading(width, height, tuple(events))


def _read_events(changes: Iterable[ScreenChange], reader: ScreenLineReader) -> list[ScreenEvent]:
    """Return the changes with the text before and after each.

    Args:
        changes: changes of the screen, sorted by time.
        reader: recogniser of text, with an empty cache.
    """
    events: list[ScreenEvent] = []
    for change in changes:
        before = events[-1].after if events else reader.read(change.before)
        after = reader.read(change.after, change.patches, before)
        events.append(_make_event(change, before, after))
        # The areas have many sizes, so freed memory is rarely used again.
        if len(events) % CHANGES_PER_TRIM == 0:
            trim_memory()
    return events


def _make_event(
    change: ScreenChange, before: tuple[ScreenLine, ...], after: tuple[ScreenLine, ...]
) -> ScreenEvent:
    appeared = _new_lines(after, before)
    vanished = _new_lines(before, after)
    letters = _letter_count(before) + _letter_count(after)
    new_letters = _letter_count(lines_with_new_text(after, before))
    changed_letters = new_letters + _letter_count(lines_with_new_text(before, after))
    changed_fraction = changed_letters / max(1, letters)
    return ScreenEvent(
        change.start,
        change.end,
        change.patches,
        change.cursor,
        before,
        after,
        appeared,
        vanished,
        changed_fraction > NEW_SCENE_FRACTION,
    )


def join_typed_changes(events: Sequence[ScreenEvent]) -> list[ScreenEvent]:
    """Return the changes of the screen, with those that type one line joined to one change.

    events: changes, sorted by time. A line that is typed grows from one change to the next.
    """
    joined: list[ScreenEvent] = []
    for event in events:
        if joined and _continues_typing(joined[-1], event):
            event = _join_events(joined.pop(), event)
        joined.append(event)
    return joined


def _continues_typing(before: ScreenEvent, event: ScreenEvent) -> bool:
    """Return whether a change adds letters to the line that appeared in the change before."""
    if len(before.appeared) != 1 or len(event.appeared) != 1:
        return False
    if event.start - before.end > MAX_TYPING_PAUSE_SECONDS:
        return False
    (earlier,) = before.appeared
    (later,) = event.appeared
    begins_alike = later.text[:MIN_TYPED_LETTERS] == earlier.text[:MIN_TYPED_LETTERS]
    grows = len(later.text) > len(earlier.text) and begins_alike
    return grows and box_iou(earlier.box, later.box) > 0


def _join_events(before: ScreenEvent, event: ScreenEvent) -> ScreenEvent:
    """Return two consecutive changes as one change."""
    return replace(
        before,
        end=event.end,
        patches=(*before.patches, *event.patches),
        after=event.after,
        appeared=_new_lines(event.after, before.before),
        vanished=_new_lines(before.before, event.after),
        scene=before.scene or event.scene,
    )


def _new_lines(lines: Sequence[ScreenLine], others: Sequence[ScreenLine]) -> tuple[ScreenLine, ...]:
    """Return the lines that have no line with the same text in the same position among `others`."""

    def stays(line: ScreenLine) -> bool:
        return any(
            box_iou(line.box, other.box) > MIN_BOX_IOU and is_same_text(line.text, other.text)
            for other in others
        )

    return tuple(line for line in lines if not stays(line))


def lines_with_new_text(
    lines: Sequence[ScreenLine], others: Sequence[ScreenLine]
) -> tuple[ScreenLine, ...]:
    """Return the lines whose text is nowhere among `others`. A line that moved is not among them."""
    return tuple(
        line for line in lines if not any(is_same_text(line.text, other.text) for other in others)
    )


def _letter_count(lines: Iterable[ScreenLine]) -> int:
    return sum(len(line.text) for line in lines)
