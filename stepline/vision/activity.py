"""How much a picture moves, second by second, and where the shots change; no network, one pass."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.errors import SettingsError
from stepline.records import Matrix
from stepline.vision.backbone import Pictures

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepline.media import Frame

SIDE = 32   # px of the small picture that motion is measured on
SAMPLES = 4   # a side of each part of the small picture; all the pixels of 720p would take 9 ms a frame
LEVELS = 4   # of each colour channel in the histogram: 64 bins
NEIGHBOURS = 4   # frame changes on each side that a cut is compared with
SLACK = 1e-6   # s; as in encode.py


@dataclass(frozen=True)
class Activity:
    """motion: (T,) float32, mean change of grey between neighbouring frames, 0 to 1, 0 where no frame fell.

    cuts: seconds at which a new shot starts, ascending. rate: rows per second.
    """

    motion: Matrix
    cuts: tuple[float, ...]
    rate: float


def measure_activity(frames: "Iterable[Frame]", *, rate: float = 1.0) -> Activity:
    """Return motion and cuts of a video whose frames come sorted by time."""
    meter = ActivityMeter(rate=rate)
    for frame in frames:
        meter.add(frame)
    return meter.finish()


class ActivityMeter:
    """Collects frames one at a time; keeps only the last one, made small, and three numbers a frame."""

    def __init__(self, *, rate: float = 1.0, cut_ratio: float = 4.0, cut_floor: float = 0.2) -> None:
        """cut_ratio, cut_floor: a cut changes at least `cut_floor` of the colours, `cut_ratio` times its neighbours."""
        if not (math.isfinite(rate) and rate > 0):
            raise SettingsError(f"rate {rate}: give rows per second > 0")
        self._rate, self._ratio, self._floor = rate, cut_ratio, cut_floor
        self._last: tuple[Matrix, Matrix] | None = None
        self._times: list[float] = []   # s, of the later frame of each pair
        self._motions: list[float] = []
        self._changes: list[float] = []   # share of the colours that changed, 0 to 1
        self._rows = 0

    def add(self, frame: "Frame") -> None:
        """Compare one frame with the one before it."""
        small = _small(frame.image)   # (32, 32, 3)
        grey, colours = small.mean(2), _histogram(small)
        if self._last is not None:
            self._times.append(frame.time)
            self._motions.append(float(np.abs(grey - self._last[0]).mean()))
            self._changes.append(float(np.abs(colours - self._last[1]).sum() / 2))
        self._last = (grey, colours)
        self._rows = max(self._rows, self._row(frame.time) + 1)

    def finish(self) -> Activity:
        """Return what was measured so far."""
        rows = np.array([self._row(time) for time in self._times], dtype=np.int64)
        count = np.bincount(rows, minlength=self._rows)
        total = np.bincount(rows, weights=self._motions, minlength=self._rows)
        motion = np.divide(total, count, out=np.zeros(self._rows), where=count > 0).astype(np.float32)
        cuts = find_cuts(np.array(self._changes), ratio=self._ratio, floor=self._floor)
        return Activity(motion, tuple(self._times[place] for place in cuts), self._rate)

    def _row(self, time: float) -> int:
        return math.floor((time + SLACK) * self._rate)


def find_cuts(changes: npt.NDArray[np.float64], *, ratio: float, floor: float) -> list[int]:
    """Return the places where `changes` (N,) stands out: at least `floor`, and `ratio` times the median around it."""
    cuts = []
    for place in np.flatnonzero(changes >= floor):
        before, after = changes[max(0, place - NEIGHBOURS) : place], changes[place + 1 : place + 1 + NEIGHBOURS]
        near = np.concatenate((before, after))
        if not len(near) or changes[place] >= ratio * np.median(near):
            cuts.append(int(place))
    return cuts


def _small(image: Pictures) -> Matrix:
    """Return the picture as (32, 32, 3) float32 in [0, 1]: each part the mean of about 4 x 4 samples."""
    image = image[:: max(1, image.shape[0] // (SIDE * SAMPLES)), :: max(1, image.shape[1] // (SIDE * SAMPLES))]
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
    """Return the share of the pixels in each of the 64 colour bins."""
    levels = np.minimum((small * LEVELS).astype(np.int64), LEVELS - 1)
    bins = (levels[..., 0] * LEVELS + levels[..., 1]) * LEVELS + levels[..., 2]
    share: Matrix = (np.bincount(bins.ravel(), minlength=LEVELS**3) / bins.size).astype(np.float32)
    return share
