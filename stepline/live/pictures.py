"""Visual features, motion and cuts of a live video, with bounded work per second."""

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

# after which a new meter measures motion, since reading a meter takes longer the more it has seen
METER_SECONDS = 120.0
# of frames that the new meter sees again. Of the first half the old meter's values stay
MARGIN_SECONDS = 8.0
THUMBNAIL_WIDTH = 192  # values per thumbnail, 8 x 8 x 3
FIRST_ROWS = 1024  # capacity before memory grows


@dataclass(frozen=True)
class LivePicture:
    """The visual evidence of a span of a live video.

    Attributes:
        begin: first second, from which rows and cuts count.
        until: last second.
        features: (T, D), None without a picture.
        activity: motion and cuts, None without a picture.
    """

    begin: float
    until: float
    features: FeatureSequence | None
    activity: Activity | None


class LiveVision:
    """Encodes the frames of a live video in one thread, while another thread reads the results.

    Memory holds all rows until `forget`.
    """

    def __init__(self, backbone: "Backbone", settings: VisionSettings) -> None:
        self._settings = settings
        self._backbone = backbone
        self._encoder = VideoEncoder(backbone, rate=settings.rate, batch=1)
        self._lock = Lock()
        self._values = _GrowingRows(backbone.dim)
        self._motion = _GrowingRows(1)
        self._peaks = _GrowingRows(1)
        self._looks = _GrowingRows(THUMBNAIL_WIDTH)
        self._begin = 0.0  # second of the first row in memory
        self._cuts: tuple[float, ...] = ()
        self._meter = ActivityMeter(rate=self._settings.rate)
        self._meter_start = 0.0  # second from which the meter counts
        self._valid_from = 0.0  # second from which the meter's values count
        self._recent: deque[Frame] = deque()

    def add(self, frame: Frame) -> None:
        """Add the next frame. A feature row is complete at the first frame of the next row."""
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

        # a new meter sees the last seconds again, since motion is measured between pictures
        new_frames = [frame]
        if frame.time >= self._meter_start + METER_SECONDS:
            self._store_measurements()
            rate = self._settings.rate
            # It begins at the start of a row, so that its rows match those of the old meter.
            row = int(self._recent[0].time * rate)
            self._meter_start = row / rate
            self._valid_from = self._meter_start + MARGIN_SECONDS / 2
            self._meter = ActivityMeter(rate=self._settings.rate)
            new_frames = list(self._recent)
        for new_frame in new_frames:
            time = new_frame.time - self._meter_start
            self._meter.add(Frame(time, new_frame.image))

    def _store_measurements(self) -> None:
        """Copy the meter's values so far into the rows."""
        activity = self._meter.finish()
        rate = self._settings.rate
        invalid_seconds = self._valid_from - self._meter_start
        skip = max(0, round(invalid_seconds * rate))
        first = round(self._meter_start * rate) + skip

        # rows before that keep the values of the old meter
        motion = activity.motion[skip:, None]  # (T, 1)
        peaks = activity.peaks[skip:, None]  # (T, 1)
        frame_looks = activity.looks[skip:]
        self._motion.set(first, motion)
        self._peaks.set(first, peaks)
        self._looks.set(first, frame_looks)
        cuts = [cut for cut in self._cuts if cut < self._valid_from]
        for meter_cut in activity.cuts:
            cut = meter_cut + self._meter_start
            if cut >= self._valid_from:
                cuts.append(cut)
        self._cuts = tuple(cuts)

    def restore(self, values: Matrix, begin: float = 0.0) -> None:
        """Begin with the features of an earlier run, whose motion is unknown.

        Args:
            values: (T, D) feature rows.
            begin: second of the first row.
        """
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
        """Width D of a feature row."""
        return self._backbone.dim

    @property
    def until(self) -> float:
        """The second up to which features are known."""
        return self._values.count / self._settings.rate

    def snapshot(self) -> LivePicture:
        """Return the visual evidence so far. Its arrays are views that never change below `until`."""
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
    """Growing rows (T, D) float32 from row number `first` on. A missing row repeats the one before."""

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
        """Set the rows from number `first` on."""
        # rows that were forgotten are not set again
        forgotten_count = max(0, self.first - first)
        values = values[forgotten_count:]
        if not len(values):
            return
        start = max(0, first - self.first)
        end = start + len(values)
        # Doubled, so that growing costs little per row.
        while end > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])

        # rows that were left out repeat the one before
        row_count = self.count - self.first
        if start > row_count:
            self._rows[row_count:start] = self._rows[row_count - 1] if row_count else values[0]
        self._rows[start:end] = values
        self.count = max(self.count, self.first + end)
