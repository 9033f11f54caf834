"""Motion energy second by second, and shot boundaries, by frame differences and colour histograms;
no network."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.errors import SettingsError
from stepline.records import Matrix
from stepline.vision.encode import SLACK, Pictures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepline.media import Frame

SIDE = 32  # px of the small picture that motion is measured on
# a side of each part of the small picture; all the pixels of 720p would take 9 ms a frame
SAMPLES = 4
LEVELS = 4  # of each colour channel in the histogram: 64 bins
NEIGHBOURS = 4  # frame changes on each side that a cut is compared with
GRID = 8  # a side of the thumbnail that tells shots apart by look
MOST_CHANGED = 8  # of the 1024 parts: the most changed ones, about a hand
CHANGED = 0.05  # change of grey of a part that shows at all
JUMP_FLOOR = 0.25  # fraction of the parts that show a change at a cut between like-coloured shots
JUMP_RATIO = 1.4  # times the greatest fraction among the neighbours


@dataclass(frozen=True)
class Activity:
    """motion: (T,) float32, mean change of grey between neighbouring frames, 0 to 1, 0 where no
    frame fell.

    cuts: seconds at which a new shot starts, ascending. rate: rows per second. peaks: (T,) float32,
    the same change where it is greatest, NaN where nothing but a cut was measured. looks: (T, 192)
    float32, 8 x 8 RGB thumbnails in [0, 1], NaN where no frame fell. Both may be empty: not
    measured.
    """

    motion: Matrix
    cuts: tuple[float, ...]
    rate: float
    peaks: Matrix = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    looks: Matrix = field(default_factory=lambda: np.zeros((0, 3 * GRID * GRID), dtype=np.float32))


def measure_activity(frames: "Iterable[Frame]", *, rate: float = 1.0) -> Activity:
    """Return motion and cuts of a video whose frames come sorted by time."""
    meter = ActivityMeter(rate=rate)
    for frame in frames:
        meter.add(frame)
    return meter.finish()


class ActivityMeter:
    """Collects frames one at a time; keeps the last one, made small, five numbers a frame, a
    thumbnail a row."""

    def __init__(
        self, *, rate: float = 1.0, cut_ratio: float = 4.0, cut_floor: float = 0.2
    ) -> None:
        """cut_ratio, cut_floor: a cut changes at least `cut_floor` of the colours, `cut_ratio`
        times its neighbours."""
        if not (math.isfinite(rate) and rate > 0):
            raise SettingsError(f"rate {rate}: give rows per second > 0")
        self._rate, self._ratio, self._floor = rate, cut_ratio, cut_floor
        self._last: tuple[Matrix, Matrix] | None = None
        self._times: list[float] = []  # s, of the later frame of each pair
        self._motions: list[float] = []
        self._changes: list[float] = []  # fraction of the colours that changed, 0 to 1
        self._peaks: list[float] = []
        self._jumps: list[float] = []  # fraction of the parts that changed, 0 to 1
        self._looks: list[tuple[Matrix, int]] = []  # a row: the sum of its thumbnails, and how many
        self._rows = 0

    def add(self, frame: "Frame") -> None:
        """Compare one frame with the one before it."""
        small = _shrink(frame.image)  # (32, 32, 3)
        grey, colours = small.mean(2), _histogram(small)
        if self._last is not None:
            self._times.append(frame.time)
            moved = np.abs(grey - self._last[0]).ravel()
            self._motions.append(float(moved.mean()))
            self._peaks.append(float(np.partition(moved, -MOST_CHANGED)[-MOST_CHANGED:].mean()))
            self._jumps.append(float((moved > CHANGED).mean()))
            self._changes.append(float(np.abs(colours - self._last[1]).sum() / 2))
        self._last = (grey, colours)
        row = self._row(frame.time)
        self._rows = max(self._rows, row + 1)
        self._looks += [(np.zeros((GRID, GRID, 3), dtype=np.float32), 0)] * (
            self._rows - len(self._looks)
        )
        total, count = self._looks[row]
        # (8, 8, 3)
        thumbnail = small.reshape(GRID, SIDE // GRID, GRID, SIDE // GRID, 3).mean((1, 3))
        self._looks[row] = (total + thumbnail, count + 1)

    def finish(self) -> Activity:
        """Return what was measured so far."""
        rows = np.array([self._row(time) for time in self._times], dtype=np.int64)
        motion = _row_means(np.array(self._motions), rows, self._rows, 0.0)
        jumps = find_cuts(np.array(self._jumps), ratio=JUMP_RATIO, floor=JUMP_FLOOR, usual=np.max)
        cuts = sorted(
            {*find_cuts(np.array(self._changes), ratio=self._ratio, floor=self._floor), *jumps}
        )
        times = tuple(self._times[index] for index in cuts)
        looks = [
            (total / count if count else total * np.nan).ravel() for total, count in self._looks
        ]
        values = np.array(looks, dtype=np.float32).reshape(-1, 3 * GRID * GRID)
        kept = np.setdiff1d(np.arange(len(rows)), cuts)  # at a cut the peak is the cut's
        peaks = _row_means(np.array(self._peaks)[kept], rows[kept], self._rows, np.nan)
        return Activity(motion, times, self._rate, peaks, values)

    def _row(self, time: float) -> int:
        return math.floor((time + SLACK) * self._rate)


def _row_means(
    values: npt.NDArray[np.float64], rows: npt.NDArray[np.int64], length: int, empty: float
) -> Matrix:
    """Return the mean of the values of each row, (length,); `empty` where there is none."""
    count = np.bincount(rows, minlength=length)
    total = np.bincount(rows, weights=values, minlength=length)
    means: Matrix = np.where(count > 0, total / np.maximum(count, 1), empty).astype(np.float32)
    return means


def find_cuts(
    changes: npt.NDArray[np.float64],
    *,
    ratio: float,
    floor: float,
    usual: "Callable[..., np.floating]" = np.median,
) -> list[int]:
    """Return the indices where `changes` (N,) stands out: at least `floor`, and `ratio` times the
    usual around it."""
    cuts = []
    for index in np.flatnonzero(changes >= floor):
        before, after = (
            changes[max(0, index - NEIGHBOURS) : index],
            changes[index + 1 : index + 1 + NEIGHBOURS],
        )
        near = np.concatenate((before, after))
        if not len(near) or changes[index] >= ratio * usual(near):
            cuts.append(int(index))
    return cuts


def _shrink(image: Pictures) -> Matrix:
    """Return the picture as (32, 32, 3) float32 in [0, 1]: each part the mean of about 4 x 4
    samples."""
    image = image[
        :: max(1, image.shape[0] // (SIDE * SAMPLES)), :: max(1, image.shape[1] // (SIDE * SAMPLES))
    ]
    height, width = image.shape[:2]
    if min(height, width) < SIDE:
        rows, columns = np.arange(SIDE) * height // SIDE, np.arange(SIDE) * width // SIDE
        small: Matrix = image[rows][:, columns].astype(np.float32)
    else:
        step_y, step_x = height // SIDE, width // SIDE
        parts = image[: SIDE * step_y, : SIDE * step_x].reshape(SIDE, step_y, SIDE, step_x, 3)
        small = parts.mean((1, 3), dtype=np.float32)
    small /= 255
    return small


def _histogram(small: Matrix) -> Matrix:
    """Return the fraction of the pixels in each of the 64 colour bins."""
    levels = np.minimum((small * LEVELS).astype(np.int64), LEVELS - 1)
    bins = (levels[..., 0] * LEVELS + levels[..., 1]) * LEVELS + levels[..., 2]
    fractions: Matrix = (np.bincount(bins.ravel(), minlength=LEVELS**3) / bins.size).astype(
        np.float32
    )
    return fractions
