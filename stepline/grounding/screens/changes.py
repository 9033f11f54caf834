"""When the screen changes, and where. A cursor that only moves changes nothing.

    finder = ChangeFinder(shape)
    for frame in frames: yield from finder.add(frame)
    yield from finder.finish()

The screen has changed once it is still again, or once only something as small as a cursor moves.
What was there before is compared with what is there then.

`ScreenMeter` says whether a video may be a screen recording at all: most of a screen is still, and
most of it is flat. A film has noise and moving hands in nearly every part of each picture. Held
photographs are as still as a screen is, so `reading.has_screen_text` counts lines of text too.
Thresholds: read off 31 films and 3 screens (docs/results/screencasts.md). Between the two kinds
there is .1 of stillness or more, or no text.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.vision.encode import Images
from stepline.vision.on_screen_text import Box, connected_runs

if TYPE_CHECKING:
    from stepline.media import Frame


PART_PIXELS = 8  # side of a part of the picture
STILL_CHANGE = 8  # of 255: greatest change of grey in a part that stands still
FLAT_CHANGE = 1  # of 255: greatest difference of grey between neighbours that are flat
MIN_STILL_FRACTION = 0.85  # of the parts, in the median of all pairs of frames
MIN_FLAT_FRACTION = 0.45  # of the pixels, in the median frame
FRAMES_PER_FLATNESS_SAMPLE = 3  # flatness is counted in every third frame
Flags = npt.NDArray[np.bool_]
Point = tuple[float, float]  # x, y in pixels
MIN_CHANGE = 28  # of 255: change in a part, above what a codec does to a still picture
MAX_CURSOR_FRACTION = 1 / 14  # of the picture's shorter side: a cursor is not larger
STILL_FRAME_COUNT = 2  # without any change, after which the screen stands still
MAX_RUN_SECONDS = 2.0  # s of small changes, typing or a cursor, after which the screen is compared
MIN_CALM_SECONDS = 0.5  # s without a large change after which small ones do not matter
MIN_CURSOR_HOP_PARTS = 5  # that a cursor moves between two frames where it is first noticed
CURSOR_MEMORY_SECONDS = 4.0  # s after its last move in which a cursor says where a click is
MIN_SHARED_PARTS = 4  # of a patch that holds both the old place of a cursor and the new one
ONSET_FRACTION = 0.25  # of the greatest change of a run, from which on the change has begun


@dataclass(frozen=True)
class ScreenStatistics:
    """still: share of the parts that do not change from frame to frame. flat: share of the pixels
    that are like their neighbours. Medians over the video, 0 to 1."""

    still: float
    flat: float

    @property
    def is_candidate(self) -> bool:
        """Whether the video may be a screen recording. Its text decides."""
        return self.still >= MIN_STILL_FRACTION and self.flat >= MIN_FLAT_FRACTION


class ScreenMeter:
    """Collects small frames one at a time. Keeps the last one, and two numbers per frame."""

    def __init__(self) -> None:
        self._last: Images | None = None
        self._still: list[float] = []
        self._flat: list[float] = []
        self._frames = 0

    def add(self, frame: "Frame") -> None:
        """Compare one frame with the one before it."""
        green = frame.image[..., 1]
        if self._last is not None and self._last.shape == green.shape:
            is_still = part_changes(self._last, green, PART_PIXELS) <= STILL_CHANGE
            self._still.append(float(is_still.mean()))
        if self._frames % FRAMES_PER_FLATNESS_SAMPLE == 0:
            self._flat.append(flat_share(green))
        self._last = green
        self._frames += 1

    def finish(self) -> ScreenStatistics:
        """Return the median stillness and flatness of the video, 0 for a single frame."""
        if not self._still:
            return ScreenStatistics(0.0, 0.0)
        still = float(np.median(self._still))
        return ScreenStatistics(still, float(np.median(self._flat)))


def part_changes(before: Images, after: Images, side: int) -> Images:
    """Return the greatest change in each part of `side` x `side` pixels of a channel (H, W), 0 to
    255."""
    # The greater less the smaller, since bytes have no negative numbers.
    greater = np.maximum(before, after)
    change = greater - np.minimum(before, after)
    height, width = change.shape
    rows = np.arange(0, height, side)
    columns = np.arange(0, width, side)
    high = np.maximum.reduceat(change, rows, axis=0)
    parts: Images = np.maximum.reduceat(high, columns, axis=1)
    return parts


def flat_share(channel: Images) -> float:
    """Return the share of the pixels (H, W) that differ from neither neighbour, below nor right."""
    # Differences of bytes would wrap around.
    grey = channel.astype(np.int16)
    across = np.abs(np.diff(grey, axis=1))
    down = np.abs(np.diff(grey, axis=0))
    is_flat = across[:-1] <= FLAT_CHANGE
    is_flat &= down[:, :-1] <= FLAT_CHANGE
    return float(is_flat.mean())


@dataclass(frozen=True)
class ScreenChange:
    """What changed on the screen. start, end: s, when it began and when the screen was still again.

    patches: boxes around what changed, in pixels. `box`: around them all.
    cursor: where a cursor was when it began, None where none was seen
    before, after: pictures (H, W, 3)
    """

    start: float
    end: float
    patches: tuple[Box, ...]
    cursor: Point | None
    before: Images
    after: Images

    @property
    def box(self) -> Box:
        """The box around all patches."""
        x, y, end_x, end_y = zip(*self.patches, strict=True)
        return (min(x), min(y), max(end_x), max(end_y))


@dataclass(frozen=True)
class _Difference:
    """Between two neighbouring frames: the parts that changed, and the patches that they make."""

    time: float  # s at which the later frame came
    parts: Flags
    patches: Sequence[Box]  # in parts
    cursor: Point | None


@dataclass
class _Run:
    """Differences since the screen was still last."""

    differences: list[_Difference] = field(default_factory=list)
    large: float | None = None  # s of the last difference larger than a cursor's

    def is_calm(self, time: float, *, if_none: bool) -> bool:
        """Whether the last large difference was some time ago. if_none: what holds without any."""
        if self.large is None:
            return if_none
        return time - self.large > MIN_CALM_SECONDS


class ChangeFinder:
    """Collects frames one at a time. Yields each change once it is over."""

    def __init__(self, *, frame_rate: float) -> None:
        """frame_rate: frames per second that will come."""
        self._lag = 0.5 / frame_rate  # s by which a frame comes after its change, on average
        self._settled: Frame | None = None
        self._last: Frame | None = None
        self._run = _Run()
        self._still = 0  # frames without a change, up to now
        self._track = CursorTrack()
        self._cursor: Point | None = None  # when the screen was still last

    def add(self, frame: "Frame") -> Iterator[ScreenChange]:
        """Add the next frame and yield the changes that are over."""
        if self._settled is None or self._last is None:
            self._settled = frame
            self._last = frame
            return

        # a frame without a change
        difference = self._compare(self._last, frame)
        if difference is None:
            self._still += 1
            if self._still >= STILL_FRAME_COUNT and self._run.differences:
                yield from self._close(frame)
            self._last = frame
            return

        # a change, of this run or a new one
        self._still = 0
        is_large = not _all_small(difference.patches, self._cursor_parts(frame))
        run = self._run
        # After a calm a large change begins a run of its own.
        if is_large and run.is_calm(frame.time, if_none=False):
            yield from self._close(self._last)
            run = self._run
        run.differences.append(difference)
        if is_large:
            run.large = frame.time
        # Small changes that go on, as of typing, are compared now and then.
        run_seconds = frame.time - run.differences[0].time
        if run_seconds > MAX_RUN_SECONDS and run.is_calm(frame.time, if_none=True):
            yield from self._close(frame)
        self._last = frame

    def finish(self) -> Iterator[ScreenChange]:
        """Yield the last change, if it had not settled."""
        if self._run.differences and self._last is not None:
            yield from self._close(self._last)

    def _compare(self, before: "Frame", after: "Frame") -> _Difference | None:
        """Return what changed between two frames, None where nothing did."""
        if after.image is before.image:
            return None
        parts = changed_parts(before.image, after.image)
        if not parts.any():
            return None
        boxes = patches(parts)
        cursor = self._track.recent_position(after.time)
        self._track.add(boxes, self._cursor_parts(after), after.time)
        return _Difference(after.time, parts, boxes, cursor)

    @staticmethod
    def _cursor_parts(frame: "Frame") -> int:
        """Return how many parts a cursor is wide or high at most."""
        shorter = float(min(frame.image.shape[:2]))
        return max(2, round(shorter * MAX_CURSOR_FRACTION / PART_PIXELS))

    def _close(self, frame: "Frame") -> Iterator[ScreenChange]:
        """Yield the change from the last still screen to that of a frame, if there is one."""
        assert self._settled is not None
        settled_frame = self._settled
        run = self._run
        cursor = self._cursor
        self._settled = frame
        self._run = _Run()
        self._cursor = self._track.position

        # what changed besides the cursor
        parts = changed_parts(settled_frame.image, frame.image)
        places = [place for place in (cursor, self._cursor) if place is not None]
        _clear_cursor(parts, places, self._cursor_parts(frame))
        if not parts.any():
            return
        onset_difference = _onset(run.differences, parts)
        height, width = frame.image.shape[:2]
        boxes = []
        for x, y, end_x, end_y in patches(parts):
            right_edge = min(width, end_x * PART_PIXELS)
            bottom = min(height, end_y * PART_PIXELS)
            boxes.append((x * PART_PIXELS, y * PART_PIXELS, right_edge, bottom))
        start = max(0.0, onset_difference.time - self._lag)
        yield ScreenChange(
            start,
            frame.time,
            tuple(boxes),
            onset_difference.cursor,
            settled_frame.image,
            frame.image,
        )


class CursorTrack:
    """Where a cursor is: a small patch that goes in one place and comes in another, twice at
    least."""

    def __init__(self) -> None:
        self.position: Point | None = None
        self._moved = -math.inf  # s at which it moved last
        self._hop: tuple[Point, Point] | None = None  # the last two small patches

    def recent_position(self, time: float) -> Point | None:
        """Return where the cursor is, if it moved a short time ago."""
        if time - self._moved > CURSOR_MEMORY_SECONDS:
            return None
        return self.position

    def add(self, boxes: Sequence[Box], limit: int, time: float) -> None:
        """Take the patches (in parts) that changed between two frames, up to `time`. limit: parts
        of a cursor."""
        before = self.position
        self._follow(boxes, limit)
        if self.position != before:
            self._moved = time

    def _follow(self, boxes: Sequence[Box], limit: int) -> None:
        small = [box for box in boxes if _all_small([box], limit)]
        old = []
        if self.position is not None:
            old = [box for box in small if _is_near(self.position, box)]

        # of more than two, others are a codec's, or a button's
        if len(small) > 2 and len(old) == 1:
            alike = [box for box in small if box not in old and _is_as_large(box, old[0])]
            small = []
            if len(alike) == 1:
                small = [*old, *alike]
        if len(small) == 2:
            self._follow_hop(small)
        elif len(small) == 1 and self.position is not None and _is_near(self.position, small[0]):
            self._move_within(small[0], self.position)

    def _move_within(self, box: Box, last: Point) -> None:
        """Follow the cursor inside one patch that holds its old place and its new one. The new one
        is as far from its middle as the old one."""
        x, y, end_x, end_y = box
        if max(end_x - x, end_y - y) < MIN_SHARED_PARTS:
            return
        middle_x, middle_y = _middle(box)
        last_x, last_y = last
        # Mirrored at the middle of the patch.
        self.position = (2 * middle_x - last_x, 2 * middle_y - last_y)

    def _follow_hop(self, boxes: Sequence[Box]) -> None:
        """Follow the cursor from one of two patches to the other."""
        first = _middle(boxes[0])
        second = _middle(boxes[1])
        places = (first, second)
        distance = max(abs(first[0] - second[0]), abs(first[1] - second[1]))
        before: tuple[Point, ...] = ()
        if self._hop is not None:
            before = self._hop
        self._hop = None
        if distance >= MIN_CURSOR_HOP_PARTS * PART_PIXELS:
            self._hop = places

        # from where it was, to the other patch
        if self.position is not None:
            start = self.position
            for number, box in enumerate(boxes):
                if _is_near(start, box):
                    self.position = places[1 - number]
                    return

        # else from a patch of the last hop, to the one that is new
        for number, box in enumerate(boxes):
            other = boxes[1 - number]
            comes_from = any(_is_near(place, box) for place in before)
            if comes_from and not any(_is_near(place, other) for place in before):
                self.position = places[1 - number]


def changed_parts(before: Images, after: Images) -> Flags:
    """Return which parts of two pictures (H, W, 3) differ, those alone that touch another one."""
    red = part_changes(before[..., 0], after[..., 0], PART_PIXELS)
    green = part_changes(before[..., 1], after[..., 1], PART_PIXELS)
    flags: Flags = np.maximum(red, green) > MIN_CHANGE
    _clear_specks(flags)
    return flags


def patches(parts: Flags) -> list[Box]:
    """Return the boxes (left, top, right, bottom, in parts) around parts that touch."""
    if not parts.any():
        return []
    boxes = []
    for runs in connected_runs(parts):
        rows, firsts, ends = runs.T
        x = int(firsts.min())
        y = int(rows[0])
        end_x = int(ends.max())
        end_y = int(rows[-1]) + 1
        boxes.append((x, y, end_x, end_y))
    return boxes


def _clear_cursor(parts: Flags, places: Sequence[Point], limit: int) -> None:
    """Take out of the changed parts what a cursor does in the places where it was and is.

    Where it was may not be known: a single other patch as large as it is that.
    """
    boxes = [box for box in patches(parts) if _all_small([box], limit)]
    own = [box for box in boxes if any(_is_near(place, box) for place in places)]
    if len(places) == 1 and len(own) == 1:
        others = [box for box in boxes if box not in own and _is_as_large(box, own[0])]
        if len(others) == 1:
            own += others
    for x, y, end_x, end_y in own:
        parts[y:end_y, x:end_x] = False


def _clear_specks(parts: Flags) -> None:
    """Take out single parts, which a codec changes by itself."""
    for x, y, end_x, end_y in patches(parts):
        if end_x - x == 1 and end_y - y == 1:
            parts[y, x] = False


def _is_as_large(box: Box, other: Box) -> bool:
    """Whether two patches differ by a part across and down at most."""
    width = box[2] - box[0]
    height = box[3] - box[1]
    other_width = other[2] - other[0]
    other_height = other[3] - other[1]
    return max(abs(width - other_width), abs(height - other_height)) <= 1


def _all_small(boxes: Sequence[Box], limit: int) -> bool:
    """Whether a cursor alone may have moved: one or two patches, none larger than it."""
    if len(boxes) > 2:
        return False
    sizes = [max(box[2] - box[0], box[3] - box[1]) for box in boxes]
    return max(sizes, default=0) <= limit


def _middle(box: Box) -> Point:
    x, y, end_x, end_y = box
    across = (x + end_x) * PART_PIXELS / 2
    return across, (y + end_y) * PART_PIXELS / 2


def _is_near(place: Point, box: Box) -> bool:
    """Whether a place in pixels is in a box of parts, or next to it."""
    x = place[0] / PART_PIXELS
    y = place[1] / PART_PIXELS
    start_x, start_y, end_x, end_y = box
    return start_x - 1 <= x <= end_x + 1 and start_y - 1 <= y <= end_y + 1


def _onset(differences: Sequence[_Difference], parts: Flags) -> _Difference:
    """Return the difference with which the change of these parts began."""
    counts = []
    for difference in differences:
        common = difference.parts & parts
        counts.append(int(common.sum()))
    floor = max(1, ONSET_FRACTION * max(counts))
    first = next((n for n, count in enumerate(counts) if count >= floor), 0)
    return differences[first]
