"""Feature extraction: frames to one row per second, in one pass and bounded memory.

What every backbone offers: pictures and texts as vectors of one space.
"""

import logging
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from stepline.errors import SettingsError, ShapeError
from stepline.records import FeatureSequence, Matrix

if TYPE_CHECKING:
    from torch import Tensor

    from stepline.media import Frame

Pictures: TypeAlias = npt.NDArray[np.uint8]  # (B, H, W, 3) RGB
Clips: TypeAlias = npt.NDArray[np.uint8]  # (B, T, H, W, 3) RGB


class Backbone(Protocol):
    """An image-text space. Rows are unit vectors, so that dot products are cosines.

    s3d-mixed5c keeps the lengths of its rows, and no text is in their space. internvideo keeps
    them where vision.unit is false.
    """

    @property
    def name(self) -> str:
        """The name stored with its features."""

    @property
    def dim(self) -> int:
        """Width D of its vectors."""

    def encode_images(self, pictures: Pictures) -> Matrix:
        """Return (B, D) float32 unit rows for uint8 RGB pictures (B, H, W, 3)."""

    def encode_texts(self, texts: Sequence[str]) -> Matrix:
        """Return (K, D) float32 unit rows."""


@runtime_checkable
class VideoClipBackbone(Backbone, Protocol):
    """A backbone that sees movement: a row of features is a clip of `clip_frames` pictures, spread
    over the row."""

    @property
    def clip_frames(self) -> int:
        """Pictures per clip."""

    def encode_clips(self, clips: Clips) -> Matrix:
        """Return (B, D) float32 unit rows for uint8 RGB clips (B, T, H, W, 3)."""


def frames_per_row(backbone: Backbone) -> int:
    """Return how many pictures the backbone wants of every row."""
    return backbone.clip_frames if isinstance(backbone, VideoClipBackbone) else 1


def check_pictures(pictures: Pictures) -> None:
    """Raise ShapeError unless `pictures` is (B, H, W, 3) uint8."""
    shape = pictures.shape
    is_rgb = pictures.ndim == 4 and shape[3] == 3 and pictures.dtype == np.uint8
    if not is_rgb or 0 in shape[1:]:
        raise ShapeError(f"pictures must be (B, H, W, 3) uint8 RGB, not {shape} {pictures.dtype}")


def check_clips(clips: Clips, *, even: bool = False) -> None:
    """Raise ShapeError unless `clips` is (B, T, H, W, 3) uint8, T above 0, and even where asked."""
    if clips.ndim != 5 or not clips.shape[1] or (even and clips.shape[1] % 2):
        length = "an even T" if even else "T"
        raise ShapeError(f"clips must be (B, T, H, W, 3) with {length} above 0, not {clips.shape}")
    check_pictures(clips.reshape(-1, *clips.shape[2:]))


def still_clips(pictures: Pictures, frames: int) -> Clips:
    """Return clips of so many frames in which each picture is still."""
    check_pictures(pictures)
    return np.broadcast_to(pictures[:, None], (len(pictures), frames, *pictures.shape[1:]))


def square_clips(clips: "Tensor", square: int, side: int) -> "Tensor":
    """Return (B, 3, T, side, side) float, 0 to 255: the middle squares of uint8 clips
    (B, T, H, W, 3), of `square` px."""
    import torch.nn.functional as F

    b, t, height, width, _ = clips.shape
    y = (height - square) // 2
    x = (width - square) // 2
    middle = clips[:, :, y : y + square, x : x + square].flatten(0, 1)
    planes = middle.permute(0, 3, 1, 2)  # (B T, 3, square, square)
    if square != side:
        planes = F.interpolate(planes, (side, side), mode="bilinear", antialias=True)
    return planes.float().unflatten(0, (b, t)).transpose(1, 2)


logger = logging.getLogger(__name__)

ROW_SLACK = 1e-6  # s; a frame that rounding puts just before a row's start belongs to the row


def encode_video(
    frames: "Iterable[Frame]", backbone: Backbone, *, rate: float = 1.0, batch: int = 4
) -> FeatureSequence:
    """Return the features of a video: row t shows the frame nearest the middle of [t/rate,
    (t+1)/rate).

    A backbone of clips is shown `clip_frames` frames of each row, the nearest to the middles of as
    many equal parts.
    frames: in any order of sizes but sorted by time, at any rate from `rate` up (for clips,
    `clip_frames` times it). A row without a frame repeats the row before it, as a player shows it.
    The first row then repeats the row after it. A warning says how many did.
    """
    encoder = VideoEncoder(backbone, rate=rate, batch=batch)
    for frame in frames:
        encoder.add(frame)
    return encoder.finish()


class _Candidate(NamedTuple):
    """The frame of a part so far. distance: seconds from the part's middle. image: (H, W, 3)."""

    part: int
    distance: float
    image: Pictures


class VideoEncoder:
    """Collects frames one at a time. Keeps at most `batch` rows. `repeated`: rows that no frame
    fell into.

    A row is divided into as many parts as the backbone wants pictures. Each takes the frame nearest
    its middle.
    """

    def __init__(self, backbone: Backbone, *, rate: float = 1.0, batch: int = 4) -> None:
        if not (math.isfinite(rate) and rate > 0):
            raise SettingsError(f"rate {rate}: give rows per second > 0")
        self.repeated: tuple[int, ...] = ()
        self._backbone = backbone
        self._rate = rate
        self._batch = batch
        self._parts = frames_per_row(backbone)
        self._candidate: _Candidate | None = None  # of the part that is open
        # the pictures of the row that is open, by their part of it
        self._row: dict[int, Pictures] = {}
        self._waiting: list[Pictures] = []  # rows: pictures (H, W, 3), or clips (T, H, W, 3)
        self._rows: list[int] = []  # the row of everything that was encoded or waits
        self._encoded: list[Matrix] = []

    def add(self, frame: "Frame") -> None:
        """Add a frame. It is kept if it is the nearest to the middle of its part so far."""
        # Parts are numbered through the whole video.
        rate = self._rate * self._parts
        part = math.floor((frame.time + ROW_SLACK) * rate)
        distance = abs((part + 0.5) / rate - frame.time)
        best = self._candidate
        if best is not None and part < best.part:
            return  # too late: its part is closed
        if best is not None and part == best.part and distance >= best.distance:
            return
        # A later part ends the one before, and its row if that is over.
        if best is not None and part > best.part:
            self._close_part(best)
            if part // self._parts > self._rows[-1]:
                self._close_row()
        self._candidate = _Candidate(part, distance, frame.image)

    def finish(self) -> FeatureSequence:
        """Return the features. No frame at all gives no row."""
        if self._candidate is not None:
            self._close_part(self._candidate)
            self._close_row()
            self._candidate = None
        self._encode()
        rows, values = self.take_rows()
        # A row without a frame repeats the one before, at the beginning the one after.
        if rows:
            numbers = np.arange(rows[-1] + 1)
            self.repeated = tuple(np.setdiff1d(numbers, rows).tolist())
            last_before = np.searchsorted(rows, numbers, side="right") - 1
            values = values[np.maximum(last_before, 0)]
        if self.repeated:
            logger.warning(
                "%d of %d rows had no frame and repeat their neighbour",
                len(self.repeated),
                len(values),
            )
        return FeatureSequence(values, self._rate, self._backbone.name)

    def take_rows(self) -> tuple[list[int], Matrix]:
        """Return the rows encoded since the last call, their numbers and (N, D) values, and forget
        them."""
        nothing = np.empty((0, self._backbone.dim), np.float32)
        values = np.concatenate([nothing, *self._encoded])
        self._encoded = []
        # Rows are encoded in order, so those that are done come first.
        count = len(values)
        rows = self._rows[:count]
        self._rows = self._rows[count:]
        return rows, values

    def _close_part(self, best: _Candidate) -> None:
        """Keep the best frame as its part's picture. One of another size than its row's starts the
        row again."""
        row, part = divmod(best.part, self._parts)
        # A row is noted with its first picture, while it is still open.
        if not self._rows or self._rows[-1] != row:
            self._rows.append(row)
        for picture in self._row.values():
            if picture.shape != best.image.shape:
                self._row = {}
                break
        self._row[part] = best.image

    def _close_row(self) -> None:
        """Queue the open row for encoding."""
        pictures = []
        # A part without a picture has the nearest of its row.
        for part in range(self._parts):
            nearest = min(self._row, key=lambda other: abs(other - part))
            pictures.append(self._row[nearest])
        self._row = {}
        row = pictures[0]
        if isinstance(self._backbone, VideoClipBackbone):
            row = np.stack(pictures)
        if self._waiting and self._waiting[0].shape != row.shape:
            self._encode()  # a batch holds one size; a stream may change it
        self._waiting.append(row)
        if len(self._waiting) >= self._batch:
            self._encode()

    def _encode(self) -> None:
        """Encode the queued rows. `self._rows` may also hold the open row."""
        if not self._waiting:
            return
        rows = np.stack(self._waiting)
        self._waiting = []
        if isinstance(self._backbone, VideoClipBackbone):
            self._encoded.append(self._backbone.encode_clips(rows))
        else:
            self._encoded.append(self._backbone.encode_images(rows))
