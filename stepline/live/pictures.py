"""Visual features, motion and cuts of a live picture, row by row, in bounded
work a second."""

from collections import deque
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from stepline.media.frames import Frame
from stepline.records import FeatureSequence, Matrix
from stepline.vision import Activity, ActivityMeter, VideoEncoder
from stepline.vision.settings import VisionSettings

if TYPE_CHECKING:
    from stepline.vision import Backbone

# after which motion is measured by a fresh meter: its answer takes time with all it has seen
METER_SECONDS = 120.0
# that the fresh meter sees again. The first half of them is left to the one before
MARGIN_SECONDS = 8.0
THUMBNAIL_WIDTH = 192  # numbers of a thumbnail
FIRST_ROWS = 1024  # that memory holds before it grows


@dataclass(frozen=True)
class LivePicture:
    """What was shown from second `begin` to `until`: features (T, D) and activity, None without a
    picture.

    Rows and cuts count from `begin`.
    """

    begin: float
    until: float
    features: FeatureSequence | None
    activity: Activity | None


class LiveVision:
    """Takes frames from one thread, and reports to another what they show. Holds a row per second,
    until `forget`."""

    def __init__(self, backbone: "Backbone", settings: VisionSettings) -> None:
        self._settings = settings
        self._backbone = backbone
        self._encoder = VideoEncoder(backbone, rate=settings.rate, batch=1)
        self._lock = Lock()
        self._values = _GrowingRows(backbone.dim)
        self._motion = _GrowingRows(1)
        self._peaks = _GrowingRows(1)
        self._looks = _GrowingRows(THUMBNAIL_WIDTH)
        self._begin = 0.0  # s that the rows begin with
        self._cuts: tuple[float, ...] = ()
        self._meter = self._new_meter()
        self._base = 0.0  # s that the meter counts from
        self._valid = 0.0  # s from which its numbers count
        self._recent: deque[Frame] = deque()

    def _new_meter(self) -> ActivityMeter:
        settings = self._settings
        return ActivityMeter(rate=settings.rate)

    def add(self, frame: Frame) -> None:
        """Take the next frame. What a row shows is known when the first frame of the next one
        comes."""
        self._encoder.add(frame)
        rows, values = self._encoder.take_rows()
        # Another thread reads the rows while this one adds to them.
        with self._lock:
            for row, value in zip(rows, values, strict=True):
                self._values.set(row, value[None])
            self._measure(frame)

    def _measure(self, frame: Frame) -> None:
        self._recent.append(frame)
        while self._recent[0].time < frame.time - MARGIN_SECONDS:
            self._recent.popleft()

        # a fresh meter sees the last seconds again, since motion is measured between pictures
        next_row = [frame]
        if frame.time >= self._base + METER_SECONDS:
            self._store_measurements()
            rate = self._settings.rate
            # It begins with a row, so that its rows fall on those of the meter before.
            row = int(self._recent[0].time * rate)
            self._base = row / rate
            self._valid = self._base + MARGIN_SECONDS / 2
            self._meter = self._new_meter()
            next_row = list(self._recent)
        for recent in next_row:
            time = recent.time - self._base
            self._meter.add(Frame(time, recent.image))

    def _store_measurements(self) -> None:
        """Store the meter's measurements so far."""
        activity = self._meter.finish()
        rate = self._settings.rate
        invalid_seconds = self._valid - self._base
        skip = max(0, round(invalid_seconds * rate))
        first = round(self._base * rate) + skip

        # the rows that the meter before knows better are left to it
        motion = activity.motion[skip:, None]  # (T, 1)
        peaks = activity.peaks[skip:, None]  # (T, 1)
        frame_looks = activity.looks[skip:]
        self._motion.set(first, motion)
        self._peaks.set(first, peaks)
        self._looks.set(first, frame_looks)
        cuts = [cut for cut in self._cuts if cut < self._valid]
        for meter_cut in activity.cuts:
            cut = meter_cut + self._base
            if cut >= self._valid:
                cuts.append(cut)
        self._cuts = tuple(cuts)

    def restore(self, values: Matrix, begin: float = 0.0) -> None:
        """Begin with the features of an earlier run, (T, D), from second `begin`. No motion is
        known of them."""
        rows = len(values)
        # Motion is not kept on disk: the pictures count as still, the rest as not measured.
        still = np.zeros((rows, 1), np.float32)
        missing_peaks = np.full((rows, 1), np.nan, np.float32)
        no_looks = np.full((rows, THUMBNAIL_WIDTH), np.nan, np.float32)
        self.forget(begin)
        first = self._values.first
        with self._lock:
            self._values.set(first, values)
            self._motion.set(first, still)
            self._peaks.set(first, missing_peaks)
            self._looks.set(first, no_looks)

    def forget(self, begin: float) -> None:
        """Drop the rows before second `begin`."""
        first = round(begin * self._settings.rate)
        with self._lock:
            for rows in (self._values, self._motion, self._peaks, self._looks):
                rows.forget(first)
            self._cuts = tuple(cut for cut in self._cuts if cut >= begin)
            self._begin = begin

    @property
    def width(self) -> int:
        """Width D of a row of features."""
        return self._backbone.dim

    @property
    def until(self) -> float:
        """Seconds whose features are known."""
        return self._values.count / self._settings.rate

    def snapshot(self) -> LivePicture:
        """Return all that is known now. The arrays are views of what grows, and never change below
        `until`."""
        with self._lock:
            rate = self._settings.rate
            until = self.until
            if not self._values.count:
                return LivePicture(0.0, 0.0, None, None)
            # Motion has to reach as far as the features do.
            if self._recent:
                self._store_measurements()

            # as many rows as have features
            values = self._values.rows
            count = len(values)
            motion = self._motion.rows[:count, 0]  # (T,)
            peaks = self._peaks.rows[:count, 0]  # (T,)
            frame_looks = self._looks.rows[:count]
            cuts = [cut - self._begin for cut in self._cuts if cut < until]
            activity = Activity(motion, tuple(cuts), rate, peaks, frame_looks)
            features = FeatureSequence(values, rate, self._backbone.name)
            return LivePicture(self._begin, until, features, activity)


class _GrowingRows:
    """Rows (T, D) float32, number `first` on, that grow in place. One that was left out repeats the
    one before."""

    def __init__(self, width: int) -> None:
        self._rows = np.zeros((FIRST_ROWS, width), np.float32)
        self.first = 0
        self.count = 0

    @property
    def rows(self) -> Matrix:
        return self._rows[: self.count - self.first]

    def forget(self, first: int) -> None:
        """Drop the rows before row `first`. Views of them stay valid."""
        # A new array, since another thread may still read views of the old one.
        remaining = self.rows[first - self.first :]
        self._rows = np.zeros_like(self._rows)
        self._rows[: len(remaining)] = remaining
        self.first = first
        self.count = max(self.count, first)

    def set(self, first: int, values: Matrix) -> None:
        """Put rows at number `first` and behind it."""
        # rows that were forgotten stay so
        forgotten = max(0, self.first - first)
        values = values[forgotten:]
        if not len(values):
            return
        start = max(0, first - self.first)
        end = start + len(values)
        # Doubled, so that growing costs little per row.
        while end > len(self._rows):
            free = np.zeros_like(self._rows)
            self._rows = np.concatenate([self._rows, free])

        # rows that were left out repeat the one before
        old = self.count - self.first
        if start > old:
            last = self._rows[old - 1] if old else values[0]
            self._rows[old:start] = last
        self._rows[start:end] = values
        self.count = max(self.count, self.first + end)
