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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
MIN_CHANGE = 28  # of 255: smallest change of a cell, above the noise of a codec
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
    """How still and flat the frames of a video are, medians from 0 to 1.

    Attributes:
        still: fraction of the cells that do not change from frame to frame.
        flat: fraction of the pixels that equal their neighbours.
    """

    still: float
    flat: float

    @property
    def is_candidate(self) -> bool:
        """Whether the video may be a screen recording. `has_screen_text` decides."""
        return self.still >= MIN_STILL_FRACTION and self.flat >= MIN_FLAT_FRACTION


class ScreenMeter:
    """Measures the still and the flat part of the frames of a video, one frame at a time."""

    def __init__(self) -> None:
        self._last: Images | None = None
        self._still: list[float] = []
        self._flat: list[float] = []
        self._frames = 0

    def add(self, frame: "Frame") -> None:
        """Measure the next frame."""
        green = frame.image[..., 1]
        if self._last is not None and self._last.shape == green.shape:
            is_still = cell_changes(self._last, green, CELL_PIXELS) <= STILL_CHANGE
            self._still.append(float(is_still.mean()))
        if self._frames % FRAMES_PER_FLATNESS_SAMPLE == 0:
            self._flat.append(flat_fraction(green))
        self._last = green
        self._frames += 1

    def finish(self) -> ScreenStatistics:
        """Return the median stillness and flatness of the video, 0 for a single frame."""
        if not self._still:
            return ScreenStatistics(0.0, 0.0)
        still = float(np.median(self._still))
        return ScreenStatistics(still, float(np.median(self._flat)))


def cell_changes(before: Images, after: Images, side: int) -> Images:
    """Return the largest change in each cell of `side` x `side` pixels of a channel (H, W), 0 to 255."""
    # bytes have no negative numbers
    change = np.maximum(before, after) - np.minimum(before, after)
    height, width = change.shape
    rows = np.arange(0, height, side)
    columns = np.arange(0, width, side)
    by_row = np.maximum.reduceat(change, rows, axis=0)
    cells: Images = np.maximum.reduceat(by_row, columns, axis=1)
    return cells


def flat_fraction(channel: Images) -> float:
    """Return the fraction of the pixels (H, W) that equal the neighbours below and to the right."""
    # Differences of bytes would wrap around.
    grey = channel.astype(np.int16)
    across = np.abs(np.diff(grey, axis=1))
    down = np.abs(np.diff(grey, axis=0))
    is_flat = across[:-1] <= FLAT_CHANGE
    is_flat &= down[:, :-1] <= FLAT_CHANGE
    return float(is_flat.mean())


@dataclass(frozen=True)
class ScreenChange:
    """A change of the screen.

    Attributes:
        start: second at which it began.
        end: second at which the screen was still again.
        patches: boxes around the changed areas, in pixels.
        cursor: position of the cursor at the start, None without one.
        before: picture (H, W, 3) before the change.
        after: picture (H, W, 3) after the change.
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
    """The difference between two consecutive frames."""

    time: float  # second of the later frame
    cells: Flags  # which cells changed
    patches: Sequence[Box]  # boxes around changed cells, in cells
    cursor: Point | None


@dataclass
class _Run:
    """The differences since the screen was last still."""

    differences: list[_Difference] = field(default_factory=list)
    last_large: float | None = None  # second of the last difference larger than a cursor

    def is_calm(self, time: float, *, if_none: bool) -> bool:
        """Whether the last large difference was some time ago. if_none: the result without any."""
        if self.last_large is None:
            return if_none
        return time - self.last_large > MIN_CALM_SECONDS


class ChangeFinder:
    """Finds the changes of a screen in a sequence of frames."""

    def __init__(self, *, frame_rate: float) -> None:
        """frame_rate: of the sequence, in frames per second."""
        self._lag = 0.5 / frame_rate  # mean seconds from a change to its first frame
        self._settled: Frame | None = None
        self._last: Frame | None = None
        self._run = _Run()
        self._still_count = 0  # consecutive frames without a change
        self._track = CursorTrack()
        self._cursor: Point | None = None  # its position when the screen was last still

    def add(self, frame: "Frame") -> Iterator[ScreenChange]:
        """Add the next frame, and yield the changes that are complete."""
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
        run = self._run
        # After some time without one, a large change begins a new run.
        if is_large and run.is_calm(frame.time, if_none=False):
            yield from self._end_run(self._last)
            run = self._run
        run.differences.append(difference)
        if is_large:
            run.last_large = frame.time
        # Small changes that continue, such as typing, end a run from time to time.
        run_seconds = frame.time - run.differences[0].time
        if run_seconds > MAX_RUN_SECONDS and run.is_calm(frame.time, if_none=True):
            yield from self._end_run(frame)
        self._last = frame

    def finish(self) -> Iterator[ScreenChange]:
        """Yield the last change, if it is not complete."""
        if self._run.differences and self._last is not None:
            yield from self._end_run(self._last)

    def _compare(self, before: "Frame", after: "Frame") -> _Difference | None:
        """Return the difference between two frames, None where nothing changed."""
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
        """Return the largest width or height of a cursor in cells."""
        shorter = float(min(frame.image.shape[:2]))
        return max(2, round(shorter * MAX_CURSOR_FRACTION / CELL_PIXELS))

    def _end_run(self, frame: "Frame") -> Iterator[ScreenChange]:
        """Yield the change from the last still screen to a frame, if there is one."""
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
    """Tracks a cursor: a small patch that vanishes in one place and appears in another, at least twice."""

    def __init__(self) -> None:
        self.position: Point | None = None
        self._last_move = -math.inf  # second of the last motion
        self._hop: tuple[Point, Point] | None = None  # the last two small patches

    def recent_position(self, time: float) -> Point | None:
        """Return the position of the cursor, None if it has not moved for a while."""
        if time - self._last_move > CURSOR_MEMORY_SECONDS:
            return None
        return self.position

    def add(self, boxes: Sequence[Box], limit: int, time: float) -> None:
        """Update the position by the changes between two frames.

        Args:
            boxes: patches that changed, in cells.
            limit: largest size of a cursor, in cells.
            time: second of the later frame.
        """
        before = self.position
        self._update_position(boxes, limit)
        if self.position != before:
            self._last_move = time

    def _update_position(self, boxes: Sequence[Box], limit: int) -> None:
        small = [box for box in boxes if _fits_cursor([box], limit)]
        old = []
        if self.position is not None:
            old = [box for box in small if _is_near(self.position, box)]

        # of more than two patches, the others are noise of a codec, or a button
        if len(small) > 2 and len(old) == 1:
            similar = [box for box in small if box not in old and _has_same_size(box, old[0])]
            small = []
            if len(similar) == 1:
                small = [*old, *similar]
        if len(small) == 2:
            self._follow_hop(small)
        elif len(small) == 1 and self.position is not None and _is_near(self.position, small[0]):
            self._move_within(small[0], self.position)

    def _move_within(self, box: Box, last: Point) -> None:
        """Update the position inside a patch that holds both the old and the new position.

        The new position mirrors the old one at the middle of the patch.
        """
        x, y, end_x, end_y = box
        if max(end_x - x, end_y - y) < MIN_SHARED_CELLS:
            return
        middle_x, middle_y = _center_pixels(box)
        last_x, last_y = last
        self.position = (2 * middle_x - last_x, 2 * middle_y - last_y)

    def _follow_hop(self, boxes: Sequence[Box]) -> None:
        """Update the position by a motion from one of two patches to the other."""
        first = _center_pixels(boxes[0])
        second = _center_pixels(boxes[1])
        positions = (first, second)
        distance = max(abs(first[0] - second[0]), abs(first[1] - second[1]))
        before: tuple[Point, ...] = ()
        if self._hop is not None:
            before = self._hop
        self._hop = None
        if distance >= MIN_CURSOR_HOP_CELLS * CELL_PIXELS:
            self._hop = positions

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
    """Return which cells of two pictures (H, W, 3) differ, without single cells."""
    red = cell_changes(before[..., 0], after[..., 0], CELL_PIXELS)
    green = cell_changes(before[..., 1], after[..., 1], CELL_PIXELS)
    flags: Flags = np.maximum(red, green) > MIN_CHANGE
    _clear_single_cells(flags)
    return flags


def patches(cells: Flags) -> list[Box]:
    """Return the boxes (left, top, right, bottom, in cells) around connected cells."""
    if not cells.any():
        return []
    boxes = []
    for runs in connected_runs(cells):
        rows, firsts, ends = runs.T
        x = int(firsts.min())
        y = int(rows[0])
        end_x = int(ends.max())
        end_y = int(rows[-1]) + 1
        boxes.append((x, y, end_x, end_y))
    return boxes


def _clear_cursor(cells: Flags, positions: Sequence[Point], limit: int) -> None:
    """Clear the changed cells at the old and the new position of a cursor.

    If only one position is known, a single other patch of the same size is the other one.
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


def _clear_single_cells(cells: Flags) -> None:
    """Clear single changed cells, which are noise of a codec."""
    for x, y, end_x, end_y in patches(cells):
        if end_x - x == 1 and end_y - y == 1:
            cells[y, x] = False


def _has_same_size(box: Box, other: Box) -> bool:
    """Whether the sizes of two patches differ by at most a cell."""
    width = box[2] - box[0]
    height = box[3] - box[1]
    other_width = other[2] - other[0]
    other_height = other[3] - other[1]
    return max(abs(width - other_width), abs(height - other_height)) <= 1


def _fits_cursor(boxes: Sequence[Box], limit: int) -> bool:
    """Whether a moving cursor explains the patches: at most two, none larger than a cursor."""
    if len(boxes) > 2:
        return False
    sizes = [max(box[2] - box[0], box[3] - box[1]) for box in boxes]
    return max(sizes, default=0) <= limit


def _center_pixels(box: Box) -> Point:
    x, y, end_x, end_y = box
    across = (x + end_x) * CELL_PIXELS / 2
    return across, (y + end_y) * CELL_PIXELS / 2


def _is_near(point: Point, box: Box) -> bool:
    """Whether a point in pixels is in a box in cells, or adjacent to it."""
    x = point[0] / CELL_PIXELS
    y = point[1] / CELL_PIXELS
    start_x, start_y, end_x, end_y = box
    return start_x - 1 <= x <= end_x + 1 and start_y - 1 <= y <= end_y + 1


def _onset_difference(differences: Sequence[_Difference], cells: Flags) -> _Difference:
    """Return the difference with which the change of these cells began."""
    counts = [int((difference.cells & cells).sum()) for difference in differences]
    floor = max(1, ONSET_FRACTION * max(counts))
    first = next((n for n, count in enumerate(counts) if count >= floor), 0)
    return differences[first]
