"""Frames to one feature row a second, in one pass and bounded memory."""

import logging
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from stepline.errors import SettingsError
from stepline.records import FeatureSequence, Matrix
from stepline.vision.backbone import Backbone, Pictures

if TYPE_CHECKING:
    from stepline.media import Frame

logger = logging.getLogger(__name__)

SLACK = 1e-6   # s; a frame that rounding puts just before a row's start belongs to the row


def encode_video(
    frames: "Iterable[Frame]", backbone: Backbone, *, rate: float = 1.0, batch: int = 4
) -> FeatureSequence:
    """Return the features of a video: row t shows the frame nearest the middle of [t/rate, (t+1)/rate).

    frames: in any order of sizes but sorted by time, at any rate from `rate` up. A row without a frame repeats the
    row before it (the first one, the row after it), as a player shows it; a warning says how many did.
    """
    encoder = VideoEncoder(backbone, rate=rate, batch=batch)
    for frame in frames:
        encoder.add(frame)
    return encoder.finish()


class VideoEncoder:
    """Collects frames one at a time; keeps at most `batch` pictures. `repeated`: rows that no frame fell into."""

    def __init__(self, backbone: Backbone, *, rate: float = 1.0, batch: int = 4) -> None:
        if not (math.isfinite(rate) and rate > 0):
            raise SettingsError(f"rate {rate}: give rows per second > 0")
        self.repeated: tuple[int, ...] = ()
        self._backbone = backbone
        self._rate = rate
        self._batch = batch
        self._candidate: tuple[int, float, Pictures] | None = None   # row, distance from its middle, image (H, W, 3)
        self._waiting: list[Pictures] = []
        self._rows: list[int] = []   # the row of every picture that was encoded or waits
        self._encoded: list[Matrix] = []

    def add(self, frame: "Frame") -> None:
        """Take one frame; it is kept only if it is the nearest to the middle of its row so far."""
        row = math.floor((frame.time + SLACK) * self._rate)
        distance = abs((row + 0.5) / self._rate - frame.time)
        if self._candidate is not None:
            if row < self._candidate[0] or (row == self._candidate[0] and distance >= self._candidate[1]):
                return   # a late frame (its row is closed), or one farther from the middle
            if row > self._candidate[0]:
                self._close_row()
        self._candidate = (row, distance, frame.image)

    def finish(self) -> FeatureSequence:
        """Return the features; no frame at all gives no row."""
        if self._candidate is not None:
            self._close_row()
        self._encode()
        if not self._rows:
            return FeatureSequence(np.empty((0, self._backbone.dim), np.float32), self._rate, self._backbone.name)
        wanted = np.arange(self._rows[-1] + 1)
        source = np.maximum(np.searchsorted(self._rows, wanted, side="right") - 1, 0)
        self.repeated = tuple(sorted(set(wanted.tolist()) - set(self._rows)))
        if self.repeated:
            logger.warning("%d of %d rows had no frame and repeat their neighbour", len(self.repeated), len(wanted))
        return FeatureSequence(np.concatenate(self._encoded)[source], self._rate, self._backbone.name)

    def _close_row(self) -> None:
        assert self._candidate is not None
        row, _, image = self._candidate
        if self._waiting and self._waiting[0].shape != image.shape:
            self._encode()   # a batch holds one size; a stream may change it
        self._rows.append(row)
        self._waiting.append(image)
        self._candidate = None
        if len(self._waiting) >= self._batch:
            self._encode()

    def _encode(self) -> None:
        if self._waiting:
            self._encoded.append(self._backbone.encode_images(np.stack(self._waiting)))
            self._waiting = []
