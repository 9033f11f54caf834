"""Visual features, motion and cuts of a live video, with bounded work per second."""

from collections import deque
from dataclasses import dataclass
from threading import Lock

import numpy as np

from stepline.media.frames import Frame
from stepline.records import FeatureSequence, Matrix
from stepline.vision import Activity, ActivityMeter, Backbone, VideoEncoder
from stepline.vision.settings import VisionSettings

# after which a new meter measures motion, since reading a meter takes longer the more it has seen
METER_SECONDS = 120.0
# of frames that the new meter sees again. Of the first half the old meter's values stay
METER_OVERLAP_SECONDS = 8.0
THUMBNAIL_WIDTH = 192  # values per thumbnail, 8 x 8 x 3
# per row: motion, peak of motion, thumbnail
MEASUREMENT_WIDTH = 2 + THUMBNAIL_WIDTH
FIRST_ROWS = 1024  # capacity before memory grows


@dataclass(frozen=True)
class LiveEvidence:
    """The visual evidence of a span of a live video.

    Attributes:
        start: second of the video at which the span starts. Rows and cuts are counted from there.
        end: second of the video at which the span ends.
        features: T feature rows (T, D), None before the first frame.
        activity: motion, cuts and thumbnails of the same rows, None before the first frame.
    """

    start: float
    end: float
    features: FeatureSequence | None
    activity: Activity | None


class LiveVision:
    """Encodes the frames of a live video in one thread, while another thread reads the features.

    Memory holds all rows until `drop_before` drops them.
    """

    def __init__(self, backbone: Backbone, settings: VisionSettings) -> None:
        """Start at second 0 of the source.

        Args:
            backbone: network that encodes the frames.
            settings: settings of the pictures, with the number of rows per second.
        """
        self._settings = settings
        self._backbone = backbone
        self._encoder = VideoEncoder(backbone, rate=settings.rate, batch=1)
        self._lock = Lock()
        self._values = _GrowingRows(backbone.dim)
        self._measurements = _GrowingRows(MEASUREMENT_WIDTH)
        self._begin = 0.0  # second of the first row in memory
        self._cuts: tuple[float, ...] = ()
        self._meter = ActivityMeter(rate=self._settings.rate)
        self._meter_start = 0.0  # second from which the meter counts
        self._valid_from = 0.0  # second from which the meter's values count
        self._recent: deque[Frame] = deque()

    def add(self, frame: Frame) -> None:
        """Add the next frame of the source.

        A feature row is complete when the first frame of the next row is added.
        """
        self._encoder.add(frame)
        rows, values = self._encoder.take_rows()
        # Another thread reads the rows while this one adds to them.
        with self._lock:
            for row, value in zip(rows, values, strict=True):
                self._values.set(row, value[None])
            self._measure(frame)

    def _measure(self, frame: Frame) -> None:
        self._recent.append(frame)
        while self._recent[0].time < frame.time - METER_OVERLAP_SECONDS:
            self._recent.popleft()

        # a new meter sees the last seconds again, since motion is measured between pictures
        new_frames = [frame]
        if frame.time >= self._meter_start + METER_SECONDS:
            self._store_measurements()
            rate = self._settings.rate
            # It begins at the start of a row, so that its rows match those of the old meter.
            self._meter_start = int(self._recent[0].time * rate) / rate
            self._valid_from = self._meter_start + METER_OVERLAP_SECONDS / 2
            self._meter = ActivityMeter(rate=self._settings.rate)
            new_frames = list(self._recent)
        for new_frame in new_frames:
            self._meter.add(Frame(new_frame.time - self._meter_start, new_frame.image))

    def _store_measurements(self) -> None:
        """Copy the meter's values so far into the rows."""
        activity = self._meter.finish()
        rate = self._settings.rate
        skip = max(0, round((self._valid_from - self._meter_start) * rate))
        first = round(self._meter_start * rate) + skip

        # rows before that keep the values of the old meter
        measured = np.column_stack([activity.motion, activity.peak_changes, activity.thumbnails])
        self._measurements.set(first, measured[skip:])
        old_cuts = [cut for cut in self._cuts if cut < self._valid_from]
        new_cuts = [cut + self._meter_start for cut in activity.cuts]
        self._cuts = (*old_cuts, *(cut for cut in new_cuts if cut >= self._valid_from))

    def restore(self, values: Matrix, begin: float = 0.0) -> None:
        """Begin with the features of an earlier run, whose motion is unknown.

        Args:
            values: T feature rows (T, D).
            begin: second of the source at which the first row starts.
        """
        # Motion is not kept on disk: the pictures count as still, the rest as not measured.
        measured = np.full((len(values), MEASUREMENT_WIDTH), np.nan, np.float32)
        measured[:, 0] = 0.0
        self.drop_before(begin)
        first = self._values.first
        with self._lock:
            self._values.set(first, values)
            self._measurements.set(first, measured)

    def drop_before(self, begin: float) -> None:
        """Drop the rows and cuts before second `begin` of the source."""
        first = round(begin * self._settings.rate)
        with self._lock:
            self._values.forget(first)
            self._measurements.forget(first)
            self._cuts = tuple(cut for cut in self._cuts if cut >= begin)
            self._begin = begin

    @property
    def width(self) -> int:
        """Number D of values per feature row."""
        return self._backbone.dim

    @property
    def known_end(self) -> float:
        """Second of the source up to which features are known."""
        return self._values.count / self._settings.rate

    def snapshot(self) -> LiveEvidence:
        """Return the visual evidence so far.

        Its arrays are views of rows in memory, which frames added later do not change.
        """
        with self._lock:
            rate = self._settings.rate
            until = self.known_end
            if not self._values.count:
                return LiveEvidence(0.0, 0.0, None, None)
            # Motion has to reach as far as the features do.
            if self._recent:
                self._store_measurements()

            # as many rows as have features
            values = self._values.rows
            measured = self._measurements.rows[: len(values)]
            cuts = tuple(cut - self._begin for cut in self._cuts if cut < until)
            activity = Activity(measured[:, 0], cuts, rate, measured[:, 1], measured[:, 2:])
            features = FeatureSequence(values, rate, self._backbone.name)
            return LiveEvidence(self._begin, until, features, activity)


class _GrowingRows:
    """A growing matrix (T, D) float32 of rows `first` to `count` - 1.

    A row that was never set repeats the row before it.

    Attributes:
        first: number of the first row in memory.
        count: number of the last row + 1.
    """

    def __init__(self, width: int) -> None:
        """width: number D of values per row."""
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
        """Set rows, the first of them at number `first`. values: the rows (N, D)."""
        # rows that were forgotten are not set again
        values = values[max(0, self.first - first) :]
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
