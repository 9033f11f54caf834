"""Motion energy second by second, and shot boundaries, by frame differences and colour histograms.

No network is used.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stepline.errors import SettingsError
from stepline.media import KeyFrame
from stepline.media.frames import Frame
from stepline.media.reader import LATER_PICTURE_SECONDS
from stepline.records import Matrix
from stepline.vision.encode import ROW_SLACK, Images

SMALL_SIDE = 32  # px of the small image that motion is measured on
# per side of each cell of the small image. All the pixels of 720p would take 9 ms per frame.
CELL_SAMPLES = 4
COLOUR_LEVELS = 4  # of each colour channel in the histogram: 64 bins
CUT_RATIO = 4.0  # by which a cut changes colours more than its neighbours do
CUT_FLOOR = 0.2  # fraction of the pixels that change colour at a cut, at least
CUT_NEIGHBOURS = 4  # frame changes on each side that a cut is compared with
THUMBNAIL_SIDE = 8  # px of the thumbnail by which similar shots are found
PEAK_CELLS = 8  # of the 1024 cells: the most changed ones, about the size of a hand
MIN_CELL_CHANGE = 0.05  # change of grey of a cell that is visible at all
JUMP_FLOOR = 0.25  # fraction of the cells that change at a cut between shots of the same colours
JUMP_RATIO = 1.4  # times the greatest fraction among the neighbours
THUMBNAIL_WIDTH = 3 * THUMBNAIL_SIDE**2  # numbers of a thumbnail

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Activity:
    """Motion, shot boundaries and thumbnails of a video, in T rows of 1 / `rate` seconds.

    Attributes:
        motion: (T,) float32, mean change in grey value between neighbouring frames, 0 to 1. It is 0
            for a row without a frame.
        cuts: seconds at which a new shot starts, ascending.
        rate: rows per second.
        peak_changes: (T,) float32, change in grey value of the most changed cells of the frame, 0
            to 1. NaN for a row without a change other than a cut. Empty if it was not measured.
        thumbnails: (T, 192) float32, 8 x 8 RGB thumbnails in [0, 1]. NaN for a row without a frame.
            Empty if they were not measured.
    """

    motion: Matrix
    cuts: tuple[float, ...]
    rate: float
    peak_changes: Matrix = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    thumbnails: Matrix = field(
        default_factory=lambda: np.zeros((0, THUMBNAIL_WIDTH), dtype=np.float32)
    )


class ActivityMeter:
    """Measures motion, shot boundaries and thumbnails of frames that are added one at a time.

    Memory holds a small copy of the last frame, five numbers per frame and a thumbnail per row.
    """

    def __init__(self, *, rate: float = 1.0) -> None:
        """Start without frames. rate: rows per second of the result."""
        if not (math.isfinite(rate) and rate > 0):
            raise SettingsError(f"rate {rate}: give rows per second > 0")
        self._rate = rate
        self._last: tuple[Matrix, Matrix] | None = None  # grey and histogram of the last frame
        # of each frame after the first: time, mean, peak and fraction of cells that changed,
        # fraction of pixels whose colour changed
        self._changes: list[tuple[float, float, float, float, float]] = []
        self._thumbnails: dict[int, tuple[Matrix, int]] = {}  # sum and count by row

    def add(self, frame: "Frame") -> None:
        """Add a frame and measure its change from the previous frame."""
        small = _shrink(frame.image)  # (32, 32, 3)
        grey = small.mean(2)
        histogram = _colour_histogram(small)
        if self._last is not None:
            last_grey, last_histogram = self._last
            change = np.abs(grey - last_grey).ravel()
            peak = np.partition(change, -PEAK_CELLS)[-PEAK_CELLS:].mean()
            jump = (change > MIN_CELL_CHANGE).mean()
            recoloured = np.abs(histogram - last_histogram).sum() / 2
            self._changes.append((frame.time, change.mean(), peak, jump, recoloured))
        self._last = (grey, histogram)

        cell_side = SMALL_SIDE // THUMBNAIL_SIDE
        cells = small.reshape(THUMBNAIL_SIDE, cell_side, THUMBNAIL_SIDE, cell_side, 3)
        row = self._row(frame.time)
        total, count = self._thumbnails.get(row, (0, 0))
        self._thumbnails[row] = (total + cells.mean((1, 3)), count + 1)

    def finish(self) -> Activity:
        """Return motion, shot boundaries and thumbnails of all frames added."""
        length = max(self._thumbnails, default=-1) + 1
        times, motions, peaks, jumps, recoloured = np.array(self._changes).reshape(-1, 5).T
        rows = np.array([self._row(time) for time in times], dtype=np.int64)
        # Cuts between shots of other colours, and between shots of the same ones.
        by_colour = find_cuts(recoloured, ratio=CUT_RATIO, floor=CUT_FLOOR)
        by_jump = find_cuts(jumps, ratio=JUMP_RATIO, floor=JUMP_FLOOR, typical_change=np.max)
        cuts = sorted({*by_colour, *by_jump})
        looks = np.full((length, THUMBNAIL_WIDTH), np.nan, dtype=np.float32)
        for row, (total, count) in self._thumbnails.items():
            looks[row] = (total / count).ravel()
        is_no_cut = np.setdiff1d(np.arange(len(rows)), cuts)  # at a cut the peak is the cut's
        return Activity(
            motion=_row_means(motions, rows, length, empty_value=0.0),
            cuts=tuple(times[cuts].tolist()),
            rate=self._rate,
            peak_changes=_row_means(peaks[is_no_cut], rows[is_no_cut], length, empty_value=np.nan),
            thumbnails=looks,
        )

    def _row(self, time: float) -> int:
        return math.floor((time + ROW_SLACK) * self._rate)


class KeyFrameMeter(ActivityMeter):
    """Measures motion and thumbnails of key frames: the picture of each holds until the next one.

    Motion is that of the key frames with a later picture. Cuts between key frames are not found.
    """

    def __init__(self, *, rate: float = 1.0) -> None:
        super().__init__(rate=rate)
        self._pairs: list[int] = []  # numbers of the changes from a key frame to its later picture
        self._row_count = 0

    def add_key(self, key: KeyFrame) -> None:
        """Add the next key frame."""
        self.add(Frame(key.time, key.image))
        if key.later is not None:
            self._pairs.append(len(self._changes))
            self.add(Frame(key.time + LATER_PICTURE_SECONDS, key.later))
        last_row = max(self._thumbnails)
        self._row_count = max(math.ceil(key.end * self._rate), last_row + 1)

    def finish(self) -> Activity:
        """Return motion and thumbnails of all key frames added."""
        motion = np.full((self._row_count, 1), np.nan, dtype=np.float32)
        peaks = motion.copy()
        for n in self._pairs:
            time, mean_change, peak, _, _ = self._changes[n]
            row = self._row(time)
            motion[row], peaks[row] = mean_change, peak
        thumbnails = np.full((self._row_count, THUMBNAIL_WIDTH), np.nan, dtype=np.float32)
        for row, (total, count) in self._thumbnails.items():
            thumbnails[row] = (total / count).ravel()
        motion, peaks, thumbnails = map(_hold, (motion, peaks, thumbnails))
        return Activity(np.nan_to_num(motion[:, 0]), (), self._rate, peaks[:, 0], thumbnails)


def _hold(rows: Matrix) -> Matrix:
    """Return rows (T, P) in which an unknown one, of NaN, repeats the one before, else the first."""
    known = np.flatnonzero(np.isfinite(rows).all(axis=1))
    if not len(known):
        return rows
    before = np.searchsorted(known, np.arange(len(rows)), side="right") - 1
    return rows[known[np.maximum(before, 0)]]


def _row_means(
    values: Floats, rows: npt.NDArray[np.int64], row_count: int, *, empty_value: float
) -> Matrix:
    """Return the mean value of each row, (row_count,).

    Args:
        values: (N,) the values.
        rows: (N,) row index of each value.
        row_count: number of rows.
        empty_value: result for a row without values.
    """
    counts = np.bincount(rows, minlength=row_count)
    means = np.bincount(rows, weights=values, minlength=row_count) / np.maximum(counts, 1)
    return np.asarray(np.where(counts > 0, means, empty_value), np.float32)


def find_cuts(
    changes: Floats,
    *,
    ratio: float,
    floor: float,
    typical_change: "Callable[[Floats], np.floating]" = np.median,
) -> list[int]:
    """Return the indices of shot boundaries: changes much larger than the changes around them.

    Args:
        changes: (N,) change from each frame to the next, 0 to 1.
        ratio: minimal ratio of a cut to the typical change around it.
        floor: minimal change of a cut.
        typical_change: returns the typical change from the changes around a cut.
    """
    cuts = []
    for index in np.flatnonzero(changes >= floor).tolist():
        first = max(0, index - CUT_NEIGHBOURS)
        end = index + CUT_NEIGHBOURS + 1
        # A cut stands out from its neighbours, a fast movement does not.
        neighbours = np.delete(changes[first:end], index - first)
        if not len(neighbours) or changes[index] >= ratio * typical_change(neighbours):
            cuts.append(index)
    return cuts


def _shrink(image: Images) -> Matrix:
    """Return an image as (32, 32, 3) float32 in [0, 1].

    A cell is the mean of about 4 x 4 samples. Frames must have sides of at least 32 px.
    """
    samples = SMALL_SIDE * CELL_SAMPLES
    height, width = image.shape[:2]
    image = image[:: max(1, height // samples), :: max(1, width // samples)]
    cell_height, cell_width = (side // SMALL_SIDE for side in image.shape[:2])
    cells = image[: SMALL_SIDE * cell_height, : SMALL_SIDE * cell_width]
    cells = cells.reshape(SMALL_SIDE, cell_height, SMALL_SIDE, cell_width, 3)
    return np.asarray(cells.mean((1, 3), dtype=np.float32) / np.float32(255))


def _colour_histogram(small: Matrix) -> Matrix:
    """Return the colour histogram of a small image (32, 32, 3): the fraction of pixels in each of
    64 bins, (64,)."""
    levels = np.minimum((small * COLOUR_LEVELS).astype(np.int64), COLOUR_LEVELS - 1)
    # Three digits of base 4, one per colour channel.
    bins = (levels @ COLOUR_LEVELS ** np.array([2, 1, 0])).ravel()
    counts = np.bincount(bins, minlength=COLOUR_LEVELS**3)
    return np.asarray(counts / bins.size, np.float32)
