"""Motion energy second by second, and shot boundaries, by frame differences and colour histograms.
No network is used."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.errors import SettingsError
from stepline.records import Matrix
from stepline.vision.encode import ROW_SLACK, Pictures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepline.media import Frame

SMALL_SIDE = 32  # px of the small picture that motion is measured on
# per side of each part of the small picture. All the pixels of 720p would take 9 ms per frame.
PART_SAMPLES = 4
COLOUR_LEVELS = 4  # of each colour channel in the histogram: 64 bins
CUT_RATIO = 4.0  # a cut changes colour so much more than its neighbours do
CUT_FLOOR = 0.2  # and at least this fraction of the pixels
CUT_NEIGHBOURS = 4  # frame changes on each side that a cut is compared with
THUMBNAIL_SIDE = 8  # px of the thumbnail by which shots that look alike are found
PEAK_PARTS = 8  # of the 1024 parts: the most changed ones, about a hand
MIN_PART_CHANGE = 0.05  # change of grey of a part that is visible at all
JUMP_FLOOR = 0.25  # fraction of the parts that change at a cut between shots of the same colours
JUMP_RATIO = 1.4  # times the greatest fraction among the neighbours
LOOK_WIDTH = 3 * THUMBNAIL_SIDE**2  # numbers of a thumbnail

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Activity:
    """motion: (T,) float32, mean change of grey between neighbouring frames, 0 to 1, 0 where no
    frame fell.

    cuts: seconds at which a new shot starts, ascending
    rate: rows per second
    peaks: (T,) float32, the same change where it is greatest, NaN where nothing but a cut was
        measured
    looks: (T, 192) float32, 8 x 8 RGB thumbnails in [0, 1], NaN where no frame fell

    `peaks` and `looks` may be empty: not measured.
    """

    motion: Matrix
    cuts: tuple[float, ...]
    rate: float
    peaks: Matrix = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    looks: Matrix = field(default_factory=lambda: np.zeros((0, LOOK_WIDTH), dtype=np.float32))


def measure_activity(frames: "Iterable[Frame]", *, rate: float = 1.0) -> Activity:
    """Return motion and cuts of a video whose frames come sorted by time."""
    meter = ActivityMeter(rate=rate)
    for frame in frames:
        meter.add(frame)
    return meter.finish()


class ActivityMeter:
    """Collects frames one at a time. Keeps the last one, made small, five numbers per frame, and a
    thumbnail per row."""

    def __init__(self, *, rate: float = 1.0) -> None:
        if not (math.isfinite(rate) and rate > 0):
            raise SettingsError(f"rate {rate}: give rows per second > 0")
        self._rate = rate
        self._last: tuple[Matrix, Matrix] | None = None  # grey and colours of the last frame
        # of each frame after the first: time, mean, peak and fraction of parts that changed,
        # fraction of colours that changed
        self._changes: list[tuple[float, float, float, float, float]] = []
        self._looks: dict[int, tuple[Matrix, int]] = {}  # of a row: sum and count of thumbnails

    def add(self, frame: "Frame") -> None:
        """Compare one frame with the one before it."""
        small = _shrink(frame.image)  # (32, 32, 3)
        grey = small.mean(2)
        colours = _histogram(small)
        # What changed since the frame before, in grey and in colours.
        if self._last is not None:
            last_grey, last_colours = self._last
            change = np.abs(grey - last_grey).ravel()
            peak = np.partition(change, -PEAK_PARTS)[-PEAK_PARTS:].mean()
            jump = (change > MIN_PART_CHANGE).mean()
            recoloured = np.abs(colours - last_colours).sum() / 2
            self._changes.append((frame.time, change.mean(), peak, jump, recoloured))
        self._last = (grey, colours)

        # the thumbnail of its row
        side = SMALL_SIDE // THUMBNAIL_SIDE
        parts = small.reshape(THUMBNAIL_SIDE, side, THUMBNAIL_SIDE, side, 3)
        thumbnail = parts.mean((1, 3))
        row = self._row(frame.time)
        total, count = self._looks.get(row, (0, 0))
        self._looks[row] = (total + thumbnail, count + 1)

    def finish(self) -> Activity:
        """Return the motion, cuts and thumbnails measured so far."""
        length = max(self._looks, default=-1) + 1
        times, motions, peaks, jumps, changes = np.array(self._changes).reshape(-1, 5).T
        row_numbers = [self._row(time) for time in times]
        rows = np.array(row_numbers, dtype=np.int64)
        # Cuts between other colours, and between shots of the same ones.
        by_colour = find_cuts(changes, ratio=CUT_RATIO, floor=CUT_FLOOR)
        by_jump = find_cuts(jumps, ratio=JUMP_RATIO, floor=JUMP_FLOOR, typical_change=np.max)
        cuts = sorted({*by_colour, *by_jump})
        looks = np.full((length, LOOK_WIDTH), np.nan, dtype=np.float32)
        for row, (total, count) in self._looks.items():
            looks[row] = (total / count).ravel()
        is_steady = np.setdiff1d(np.arange(len(rows)), cuts)  # at a cut the peak is the cut's
        return Activity(
            motion=_row_means(motions, rows, length, empty=0.0),
            cuts=tuple(times[cuts].tolist()),
            rate=self._rate,
            peaks=_row_means(peaks[is_steady], rows[is_steady], length, empty=np.nan),
            looks=looks,
        )

    def _row(self, time: float) -> int:
        return math.floor((time + ROW_SLACK) * self._rate)


def _row_means(values: Floats, rows: npt.NDArray[np.int64], length: int, *, empty: float) -> Matrix:
    """Return the mean of the values of each row, (length,). A row without values gets `empty`."""
    count = np.bincount(rows, minlength=length)
    means = np.bincount(rows, weights=values, minlength=length) / np.maximum(count, 1)
    means = np.where(count > 0, means, empty)
    return np.asarray(means, dtype=np.float32)


def find_cuts(
    changes: Floats,
    *,
    ratio: float,
    floor: float,
    typical_change: "Callable[[Floats], np.floating]" = np.median,
) -> list[int]:
    """Return the indices where `changes` (N,) is at least `floor`, and `ratio` times the usual
    around it."""
    cuts = []
    for index in np.flatnonzero(changes >= floor).tolist():
        first = max(0, index - CUT_NEIGHBOURS)
        end = index + 1 + CUT_NEIGHBOURS
        # A cut stands out from its neighbours, a fast movement does not.
        neighbours = np.delete(changes[first:end], index - first)
        if not len(neighbours) or changes[index] >= ratio * typical_change(neighbours):
            cuts.append(index)
    return cuts


def _shrink(image: Pictures) -> Matrix:
    """Return the picture as (32, 32, 3) float32 in [0, 1]: each part the mean of about 4 x 4
    samples."""
    samples = SMALL_SIDE * PART_SAMPLES
    height, width = image.shape[:2]
    image = image[:: max(1, height // samples), :: max(1, width // samples)]
    height, width = image.shape[:2]
    if min(height, width) < SMALL_SIDE:
        # Where there are fewer pixels than parts, pixels are repeated.
        places = np.arange(SMALL_SIDE)
        rows = places * height // SMALL_SIDE
        small: Matrix = image[rows][:, places * width // SMALL_SIDE].astype(np.float32)
    else:
        row_pixels = height // SMALL_SIDE  # px of a part
        column_pixels = width // SMALL_SIDE
        parts = image[: SMALL_SIDE * row_pixels, : SMALL_SIDE * column_pixels]
        parts = parts.reshape(SMALL_SIDE, row_pixels, SMALL_SIDE, column_pixels, 3)
        small = parts.mean((1, 3), dtype=np.float32)
    small /= 255
    return small


def _histogram(small: Matrix) -> Matrix:
    """Return the fraction of the pixels in each of the 64 colour bins."""
    levels = (small * COLOUR_LEVELS).astype(np.int64)
    levels = np.minimum(levels, COLOUR_LEVELS - 1)
    # Three digits of base 4, one per colour.
    place_values = COLOUR_LEVELS ** np.array([2, 1, 0])
    bins = (levels @ place_values).ravel()
    counts = np.bincount(bins, minlength=COLOUR_LEVELS**3)
    fractions: Matrix = (counts / bins.size).astype(np.float32)
    return fractions
