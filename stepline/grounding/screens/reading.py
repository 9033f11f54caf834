"""What is on the screen, change by change: lines are read where something changed, and only then.

Source: a change of more than a fifth of the text is a new scene (MONDAY, 2505.12632). Differs: the
share is counted in letters, with their places, between the screens before and after a change.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepline.grounding.screens.changes import ChangeFinder, Point, ScreenChange
from stepline.grounding.screens.detector import ScreenLikeness, ScreenMeter
from stepline.grounding.screens.lines import ScreenLine, ScreenLineReader, around, is_same_text
from stepline.networks.weights import find_weights
from stepline.processes import trim_memory
from stepline.records import Span
from stepline.vision.faces import box_iou
from stepline.vision.on_screen_text import MIN_BOX_IOU, Box

if TYPE_CHECKING:
    from stepline.media import MediaInfo
    from stepline.media.settings import MediaSettings
    from stepline.vision.encode import Pictures

log = logging.getLogger(__name__)

READ_RATE = 5.0  # frames per second that are compared
MAX_SIDE = 1080  # px of the shorter side of what is read
SCENE_SHARE = 0.2  # of the letters on screen: a greater change is a new scene (MONDAY)
TYPED_PAUSE = 1.0  # s between letters of a line that is typed
TYPED_LETTERS = 3  # with which it begins before and after
MIN_LINES = 4  # of the median screen, from which a still video is a screen recording
PAIR_LOOKS = 10  # pairs of pictures, spread over a video that is not decoded otherwise
PAIR_SECONDS = 0.34  # s between the pictures of a pair, as between those of the usual look
PAIR_SIDE = 256  # px of their shorter side
LOOK_WIDTH = 960  # px across of a picture whose lines are counted
MAX_LOOK_LINES = 12  # that are tried in each
CHANGES_PER_TRIM = 2  # that are read before freed memory goes back: 300 MiB for some CPU time
TEXT_LOOKS = 6  # screens, spread over the video, in which they are counted


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


def sampled_likeness(
    path: Path, start: float, duration: float, media: "MediaSettings"
) -> ScreenLikeness:
    """Return how like a screen recording a video is, by pairs of pictures of its seconds."""
    from stepline.media import read_frames_at

    times = []
    for pair in range(PAIR_LOOKS):
        first = start + (pair + 0.5) * duration / PAIR_LOOKS
        times.append(first)
        times.append(first + PAIR_SECONDS)
    pairs: dict[int, ScreenMeter] = {}
    for frame in read_frames_at(path, times, settings=media, shorter=PAIR_SIDE):
        pair = int((frame.time - start) * PAIR_LOOKS / duration)
        pairs.setdefault(pair, ScreenMeter()).add(frame)
    if not pairs:
        return ScreenLikeness(0.0, 0.0)
    still = []
    flat = []
    for meter in pairs.values():
        likeness = meter.finish()
        still.append(likeness.still)
        flat.append(likeness.flat)
    return ScreenLikeness(float(np.median(still)), float(np.median(flat)))


def has_screen_text(path: Path, seconds: Sequence[float]) -> bool:
    """Whether a still video shows as much text as a screen does, in the median of its seconds."""
    from stepline.media import read_frames_at

    reader = ScreenLineReader(find_weights("pp-ocr"))
    counts: list[int] = []
    for frame in read_frames_at(path, seconds, LOOK_WIDTH):
        lines = reader.read(frame.image, most=MAX_LOOK_LINES)
        counts.append(len(lines))

        # Once most pictures agree, the others cannot move the median across the limit.
        full = sum(count >= MIN_LINES for count in counts)
        agreeing = max(full, len(counts) - full)
        if agreeing > len(seconds) / 2:
            break
    log.info("%s: lines of text in %d pictures: %s", path, len(counts), counts)
    return bool(counts) and float(np.median(counts)) >= MIN_LINES


def read_screen(
    path: Path, info: "MediaInfo", media: "MediaSettings", part: Span | None = None
) -> ScreenReading:
    """Return what is on the screen of a video, or of a part of it, and when it changes.

    Raises MediaError where it cannot be decoded, ModelError without the weights that read.
    """
    from stepline.media import Frame, MediaReader

    size = min(MAX_SIDE, info.width, info.height)
    reader = MediaReader(
        path, frame_rate=READ_RATE, frame_size=size, sound=False, settings=media, part=part
    )
    finder = ChangeFinder(frame_rate=READ_RATE)
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
        _area(change.box, change.after),
        share > SCENE_SHARE,
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
    if event.start - before.end > TYPED_PAUSE:
        return False
    (written,) = before.appeared
    (later,) = event.appeared
    begins_alike = later.text[:TYPED_LETTERS] == written.text[:TYPED_LETTERS]
    grows = len(later.text) > len(written.text) and begins_alike
    return grows and box_iou(written.box, later.box) > 0


def _joined(before: ScreenEvent, event: ScreenEvent) -> ScreenEvent:
    """Return two changes as one."""
    return replace(
        before,
        end=event.end,
        box=around(before.box, event.box),
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


def _area(box: Box, picture: "Pictures") -> float:
    """Return the share of a picture that a box covers."""
    height, width = picture.shape[:2]
    across = (box[2] - box[0]) / width
    down = (box[3] - box[1]) / height
    return float(across * down)
