"""Detection of changes of the screen. The motion of a cursor is no change.

    finder = ChangeFinder(shape)
    for frame in frames: yield from finder.add(frame)
    yield from finder.finish()

A change is complete once the screen is still again, or once only something as small as a cursor
moves. The frames before and after it are compared.

`ScreenMeter` decides whether a video may be a screen recording: most of a screen is still, and most of
it is flat. A film has noise or moving hands in nearly every part of each frame. Slide shows of
photographs are as still as a screen, so `reading.has_screen_text` also counts lines of text. The
thresholds are from 31 films and 3 screens (docs/results/screencasts.md), which differ by .1 of
stillness or more, or by text.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.vision.encode import Images
from stepline.vision.on_screen_text import Box, connected_runs

if TYPE_CHECKING:
    from stepline.media import Frame


CELL_PIXELS = 8  # side of a cell of the picture
STILL_CHANGE = 8  # of 255: largest change of grey in a still cell
FLAT_CHANGE = 1  # of 255: largest difference of grey between neighbouring pixels of a flat area
MIN_STILL_FRACTION = 0.85  # of the cells of a screen, in the median pair of frames
MIN_FLAT_FRACTION = 0.45  # of the pixels of a screen, in the median frame
FRAMES_PER_FLATNESS_SAMPLE = 3  # flatness is measured in every third frame
Flags = npt.NDArray[np.bool_]
Point = tuple[float, float]  # x, y in pixels
MIN_CHANGE = 28  # of 255: smallest change of a pixel in a cell
# A key frame encodes a still screen again: pixels at edges change by up to 70 of 255, averages of
# blocks by up to 20 (H.264, CRF 36). A caret, a tick or another letter changes an average by 47.
BLOCK_PIXELS = 4  # side of a block
MIN_BLOCK_CHANGE = 24  # of 255: smallest change of the average of a block in a patch
MAX_CURSOR_FRACTION = 1 / 14  # size of a cursor, as a fraction of the picture's shorter side
STILL_FRAME_COUNT = 2  # frames without a change, after which the screen is still
MAX_RUN_SECONDS = 2.0  # of small changes (typing or a cursor), after which the screen is compared
MIN_CALM_SECONDS = 0.5  # without a large change, after which small changes do not matter
MIN_CURSOR_HOP_CELLS = 5  # motion of a cursor between two frames, when it is first detected
CURSOR_MEMORY_SECONDS = 4.0  # after its last motion, in which a cursor tells where a click is
MIN_SHARED_CELLS = 4  # size of a patch that holds both the old and the new position of a cursor
ONSET_FRACTION = 0.25  # of the largest difference of a run: the change begins with the first such


@dataclass(frozen=True)
class ScreenStatistics:
    """How still and how flat the frames of a video are, both from 0 to 1.

    Attributes:
        still: median fraction of the cells of 8 x 8 pixels that do not change from one frame to the next.
        flat: median fraction of the pixels that equal their neighbours.
    """

    still: float
    flat: float

    @property
    def is_candidate(self) -> bool:
        """Whether the video is still and flat enough to be a screen recording."""
        return self.still >= MIN_STILL_FRACTION and self.flat >= MIN_FLAT_FRACTION


class ScreenMeter:
    """Measures how still and how flat the frames of a video are.

    Frames are added one at a time with `add_frame`. `finish` returns the medians.
    """

    def __init__(self) -> None:
        self._last: Images | None = None
        self._still: list[float] = []
        self._flat: list[float] = []
        self._frames = 0

    def add_frame(self, frame: "Frame") -> None:
        """Add the next frame of the video: measure how much it changed since the last frame, and
        how flat its colours are."""
        green = frame.image[..., 1]
        if self._last is not None and self._last.shape == green.shape:
            is_still = cell_changes(self._last, green) <= STILL_CHANGE
            self._still.append(float(is_still.mean()))
        if self._frames % FRAMES_PER_FLATNESS_SAMPLE == 0:
            self._flat.append(flat_fraction(green))
        self._last = green
        self._frames += 1

    def finish(self) -> ScreenStatistics:
        """Return the medians over the frames so far. Both are 0 for fewer than two frames."""
        if not self._still:
            return ScreenStatistics(0.0, 0.0)
        return ScreenStatistics(median(self._still), median(self._flat))


def median_statistics(statistics: Sequence[ScreenStatistics]) -> ScreenStatistics:
    """Return the medians over pairs of frames. Both are 0 without any."""
    if not statistics:
        return ScreenStatistics(0.0, 0.0)
    still = median(item.still for item in statistics)
    return ScreenStatistics(still, median(item.flat for item in statistics))


def cell_changes(before: Images, after: Images) -> Images:
    """Return the largest change of a pixel in each cell of 8 x 8 pixels, 0 to 255, (H / 8, W / 8).

    Sizes are rounded up.

    Args:
        before: one colour channel of the earlier frame, (H, W) uint8.
        after: the same channel of the later frame.
    """
    # bytes have no negative numbers
    change = np.maximum(before, after) - np.minimum(before, after)
    height, width = change.shape
    rows = np.arange(0, height, CELL_PIXELS)
    columns = np.arange(0, width, CELL_PIXELS)
    by_row = np.maximum.reduceat(change, rows, axis=0)
    cells: Images = np.maximum.reduceat(by_row, columns, axis=1)
    return cells


def flat_fraction(channel: Images) -> float:
    """Return the fraction of the pixels that equal their neighbours below and to the right.

    Equal means a difference of at most 1 of 255. channel: one colour channel of a frame, (H, W) uint8.
    """
    # Differences of bytes would wrap around.
    grey = channel.astype(np.int16)
    across = np.abs(np.diff(grey, axis=1))
    down = np.abs(np.diff(grey, axis=0))
    is_flat = across[:-1] <= FLAT_CHANGE
    is_flat &= down[:, :-1] <= FLAT_CHANGE
    return float(is_flat.mean())


@dataclass(frozen=True)
class ScreenChange:
    """A change of the screen from one still picture to the next.

    Attributes:
        start: second at which the change begins.
        end: second at which the screen is still again.
        patches: boxes (left, top, right, bottom) around the changed areas, in pixels.
        cursor: (x, y) of the cursor in pixels when the change begins, None if it is unknown.
        before: frame before the change, (H, W, 3) uint8 RGB.
        after: frame after the change, (H, W, 3) uint8 RGB.
    """

    start: float
    end: float
    patches: tuple[Box, ...]
    cursor: Point | None
    before: Images
    after: Images


def enclosing_box(boxes: Iterable[Box]) -> Box:
    """Return the smallest box (left, top, right, bottom) that contains all the boxes."""
    x, y, end_x, end_y = zip(*boxes, strict=True)
    return (min(x), min(y), max(end_x), max(end_y))


@dataclass(frozen=True)
class _Difference:
    """The difference between two consecutive frames."""

    time: float  # second of the later frame
    changed_cells: Flags
    patches: Sequence[Box]  # boxes around changed cells, in cells
    cursor: Point | None


@dataclass
class _Run:
    """The differences between frames since the screen was last still."""

    differences: list[_Difference] = field(default_factory=list)
    last_large_change: float | None = None  # second of the last difference larger than a cursor

    def is_calm(self, time: float, *, if_none: bool) -> bool:
        """Return whether the last large change is more than 0.5 s ago.

        Args:
            time: the current second.
            if_none: result if there was no large change in this run.
        """
        if self.last_large_change is None:
            return if_none
        return time - self.last_large_change > MIN_CALM_SECONDS


class ChangeFinder:
    """Finds the changes of the screen in the frames of a recording.

    Frames are added one at a time. The motion of a cursor is not a change.
    """

    def __init__(self, *, frame_rate: float) -> None:
        """Start without frames. frame_rate: frames per second that will be added."""
        self._lag = 0.5 / frame_rate  # mean seconds from a change to its first frame
        self._settled: Frame | None = None
        self._last: Frame | None = None
        self._run = _Run()
        self._still_count = 0  # consecutive frames without a change
        self._track = CursorTrack()
        self._cursor: Point | None = None  # its position when the screen was last still

    def add(self, frame: "Frame") -> Iterator[ScreenChange]:
        """Add the next frame, and yield the changes of the screen that it completes."""
        if self._settled is None or self._last is None:
            self._settled = frame
            self._last = frame
            return

        # a frame without a change
        difference = self._compare(self._last, frame)
        if difference is None:
            self._still_count += 1
            if self._still_count >= STILL_FRAME_COUNT and self._run.differences:
                yield from self._end_run(frame)
            self._last = frame
            return

        # a change, of this run or a new one
        self._still_count = 0
        is_large = not _fits_cursor(difference.patches, self._max_cursor_cells(frame))
        # After some time without one, a large change begins a new run.
        if is_large and self._run.is_calm(frame.time, if_none=False):
            yield from self._end_run(self._last)
        run = self._run
        run.differences.append(difference)
        if is_large:
            run.last_large_change = frame.time
        # Small changes that continue, such as typing, end a run from time to time.
        run_seconds = frame.time - run.differences[0].time
        if run_seconds > MAX_RUN_SECONDS and run.is_calm(frame.time, if_none=True):
            yield from self._end_run(frame)
        self._last = frame

    def finish(self) -> Iterator[ScreenChange]:
        """Yield the change that is not complete at the last frame, if there is one."""
        if self._run.differences and self._last is not None:
            yield from self._end_run(self._last)

    def _compare(self, before: "Frame", after: "Frame") -> _Difference | None:
        """Return the difference between two consecutive frames, None if nothing changed."""
        if after.image is before.image:
            return None
        cells = changed_cells(before.image, after.image)
        if not cells.any():
            return None
        boxes = patches(cells)
        cursor = self._track.recent_position(after.time)
        self._track.add(boxes, self._max_cursor_cells(after), after.time)
        return _Difference(after.time, cells, boxes, cursor)

    @staticmethod
    def _max_cursor_cells(frame: "Frame") -> int:
        """Return the largest width or height of a cursor, in cells of 8 pixels."""
        shorter = float(min(frame.image.shape[:2]))
        return max(2, round(shorter * MAX_CURSOR_FRACTION / CELL_PIXELS))

    def _end_run(self, frame: "Frame") -> Iterator[ScreenChange]:
        """Yield the change between the last still screen and a frame, if there is one.

        The frame becomes the last still screen.
        """
        assert self._settled is not None
        settled_frame = self._settled
        run = self._run
        cursor = self._cursor
        self._settled = frame
        self._run = _Run()
        self._cursor = self._track.position

        # what changed, without the cursor
        cells = changed_cells(settled_frame.image, frame.image)
        positions = [position for position in (cursor, self._cursor) if position is not None]
        _clear_cursor(cells, positions, self._max_cursor_cells(frame))
        if not cells.any():
            return
        onset_difference = _onset_difference(run.differences, cells)
        height, width = frame.image.shape[:2]
        boxes = []
        for x, y, end_x, end_y in patches(cells):
            right_edge = min(width, end_x * CELL_PIXELS)
            bottom = min(height, end_y * CELL_PIXELS)
            boxes.append((x * CELL_PIXELS, y * CELL_PIXELS, right_edge, bottom))
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
    """Tracks the position of a cursor by the changes between frames.

    A cursor is a small patch that vanishes in one place and appears in another, at least twice.

    Attributes:
        position: (x, y) of the cursor in pixels, None until it is found.
    """

    def __init__(self) -> None:
        self.position: Point | None = None
        self._last_move = -math.inf  # second of the last motion
        self._hop: tuple[Point, ...] = ()  # the last two small patches, if they were far apart

    def recent_position(self, time: float) -> Point | None:
        """Return (x, y) of the cursor in pixels, None if it has not moved for 4 s.

        time: the current second.
        """
        if time - self._last_move > CURSOR_MEMORY_SECONDS:
            return None
        return self.position

    def add(self, boxes: Sequence[Box], limit: int, time: float) -> None:
        """Update the position of the cursor by the difference between two frames.

        Args:
            boxes: boxes (left, top, right, bottom) around the changed areas, in cells of 8 pixels.
            limit: largest width or height of a cursor, in cells.
            time: second of the later frame.
        """
        before = self.position
        self._update_position(boxes, limit)
        if self.position != before:
            self._last_move = time

    def _update_position(self, boxes: Sequence[Box], limit: int) -> None:
        last = self.position
        small = [box for box in boxes if _fits_cursor([box], limit)]
        old = [box for box in small if last is not None and _is_near(last, box)]

        # of more than two patches, the others are noise of a codec, or a button
        if len(small) > 2 and len(old) == 1:
            similar = [box for box in small if box not in old and _has_same_size(box, old[0])]
            small = [*old, *similar] if len(similar) == 1 else []
        if len(small) == 2:
            self._follow_hop(small)
        elif (
            last is not None
            and len(small) == len(old) == 1
            and not _fits_cursor(small, MIN_SHARED_CELLS - 1)
        ):
            # One large patch holds both positions, which mirror each other at its middle.
            middle_x, middle_y = _center_pixels(small[0])
            self.position = (2 * middle_x - last[0], 2 * middle_y - last[1])

    def _follow_hop(self, boxes: Sequence[Box]) -> None:
        """Update the position by two small patches: the cursor left one and is now in the other."""
        first = _center_pixels(boxes[0])
        second = _center_pixels(boxes[1])
        positions = (first, second)
        distance = max(abs(first[0] - second[0]), abs(first[1] - second[1]))
        before = self._hop
        self._hop = positions if distance >= MIN_CURSOR_HOP_CELLS * CELL_PIXELS else ()

        # from its position to the other patch
        if self.position is not None:
            start = self.position
            for number, box in enumerate(boxes):
                if _is_near(start, box):
                    self.position = positions[1 - number]
                    return

        # else from a patch of the last hop to the new patch
        for number, box in enumerate(boxes):
            other = boxes[1 - number]
            was_here = any(_is_near(position, box) for position in before)
            if was_here and not any(_is_near(position, other) for position in before):
                self.position = positions[1 - number]


def changed_cells(before: Images, after: Images) -> Flags:
    """Return which cells of 8 x 8 pixels differ between two frames, boolean (H / 8, W / 8).

    A changed cell without changed neighbours counts as noise and is False, and so does a patch in
    which no average of a block of 4 x 4 pixels changes by more than 24 of 255.

    Args:
        before: the earlier frame, (H, W, 3) uint8 RGB.
        after: the later frame, of the same shape.
    """
    red = cell_changes(before[..., 0], after[..., 0])
    green = cell_changes(before[..., 1], after[..., 1])
    flags: Flags = np.maximum(red, green) > MIN_CHANGE
    for x, y, end_x, end_y in patches(flags):
        rows = slice(y * CELL_PIXELS, end_y * CELL_PIXELS)
        columns = slice(x * CELL_PIXELS, end_x * CELL_PIXELS)
        is_one_cell = end_x - x == 1 and end_y - y == 1
        block_change = max_block_change(before[rows, columns], after[rows, columns])
        if is_one_cell or block_change <= MIN_BLOCK_CHANGE:
            flags[y:end_y, x:end_x] = False  # noise of a codec
    return flags


def max_block_change(before: Images, after: Images) -> float:
    """Return the largest change of the average red or green of a block of 4 x 4 pixels, 0 to 255.

    before, after: an area of two frames, (H, W, 3) uint8 RGB.
    """
    change = after[..., :2].astype(np.int16) - before[..., :2]
    height, width = change.shape[:2]
    by_row = np.add.reduceat(change, np.arange(0, height, BLOCK_PIXELS), axis=0)
    sums = np.add.reduceat(by_row, np.arange(0, width, BLOCK_PIXELS), axis=1)
    return float(np.abs(sums).max()) / BLOCK_PIXELS**2


def patches(cells: Flags) -> list[Box]:
    """Return a box around each group of connected changed cells.

    Boxes are (left, top, right, bottom) in cells. cells: boolean (rows, columns), True where changed.
    """
    if not cells.any():
        return []
    boxes = []
    for runs in connected_runs(cells):
        rows, firsts, ends = runs.T
        x = int(firsts.min())
        y = int(rows[0])
        end_x = int(ends.max())
        boxes.append((x, y, end_x, int(rows[-1]) + 1))
    return boxes


def _clear_cursor(cells: Flags, positions: Sequence[Point], limit: int) -> None:
    """Set the cells that changed only because the cursor moved to False, in place.

    If one position is known, the only other patch of the same size is taken as the other position.

    Args:
        cells: boolean (rows, columns), True where the screen changed.
        positions: known (x, y) of the cursor before and after the change, in pixels.
        limit: largest width or height of a cursor, in cells.
    """
    boxes = [box for box in patches(cells) if _fits_cursor([box], limit)]
    cursor_boxes = [box for box in boxes if any(_is_near(point, box) for point in positions)]
    if len(positions) == 1 and len(cursor_boxes) == 1:
        others = [
            box for box in boxes if box not in cursor_boxes and _has_same_size(box, cursor_boxes[0])
        ]
        if len(others) == 1:
            cursor_boxes += others
    for x, y, end_x, end_y in cursor_boxes:
        cells[y:end_y, x:end_x] = False


def _has_same_size(box: Box, other: Box) -> bool:
    """Return whether the widths and heights of two boxes differ by at most one cell."""
    width = box[2] - box[0]
    height = box[3] - box[1]
    other_width = other[2] - other[0]
    other_height = other[3] - other[1]
    return max(abs(width - other_width), abs(height - other_height)) <= 1


def _fits_cursor(boxes: Sequence[Box], limit: int) -> bool:
    """Return whether a moving cursor explains the patches: at most two, each at most `limit` cells."""
    if len(boxes) > 2:
        return False
    sizes = [max(box[2] - box[0], box[3] - box[1]) for box in boxes]
    return max(sizes, default=0) <= limit


def _center_pixels(box: Box) -> Point:
    x, y, end_x, end_y = box
    return (x + end_x) * CELL_PIXELS / 2, (y + end_y) * CELL_PIXELS / 2


def _is_near(point: Point, box: Box) -> bool:
    """Return whether a point (x, y) in pixels is inside a box in cells, or at most one cell beside it."""
    x = point[0] / CELL_PIXELS
    y = point[1] / CELL_PIXELS
    start_x, start_y, end_x, end_y = box
    return start_x - 1 <= x <= end_x + 1 and start_y - 1 <= y <= end_y + 1


def _onset_difference(differences: Sequence[_Difference], cells: Flags) -> _Difference:
    """Return the difference between two frames at which a change of the screen begins: the first in
    which a large part of the change is visible.

    A large part is at least a quarter of the cells that the largest difference shares with the
    change.

    Args:
        differences: differences between consecutive frames during the change, sorted by time.
        cells: boolean (rows, columns), True where the change changed the screen.
    """
    counts = [int((difference.changed_cells & cells).sum()) for difference in differences]
    floor = max(1, ONSET_FRACTION * max(counts))
    first = next((n for n, count in enumerate(counts) if count >= floor), 0)
    return differences[first]
