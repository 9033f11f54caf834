"""Feature extraction: frames to one row per second, in one pass and bounded memory.

`Backbone` is what every image-text network offers: images and texts as vectors of one space.
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

Images: TypeAlias = npt.NDArray[np.uint8]  # (B, H, W, 3) RGB
Clips: TypeAlias = npt.NDArray[np.uint8]  # (B, T, H, W, 3) RGB

log = logging.getLogger(__name__)

ROW_SLACK = 1e-6  # s. A frame that rounding puts just before a row's start belongs to the row


class Backbone(Protocol):
    """An image-text network. Its vectors are unit vectors, so that dot products are cosines.

    s3d-mixed5c keeps the lengths of its vectors, and no text is in their space. internvideo keeps
    them where vision.unit is false.
    """

    @property
    def name(self) -> str:
        """The name stored with its features."""

    @property
    def dim(self) -> int:
        """Width D of its vectors."""

    def encode_images(self, images: Images) -> Matrix:
        """Return (B, D) float32 unit rows for uint8 RGB images (B, H, W, 3)."""

    def encode_texts(self, texts: Sequence[str]) -> Matrix:
        """Return (K, D) float32 unit rows."""


@runtime_checkable
class VideoClipBackbone(Backbone, Protocol):
    """A backbone that sees movement: each row of features is a clip of `clip_frames` frames."""

    @property
    def clip_frames(self) -> int:
        """Frames per clip, spread over the seconds of the row."""

    def encode_clips(self, clips: Clips) -> Matrix:
        """Return (B, D) float32 unit rows for uint8 RGB clips (B, T, H, W, 3)."""


def frames_per_row(backbone: Backbone) -> int:
    """Return the number of frames that the backbone needs for each row of features."""
    return backbone.clip_frames if isinstance(backbone, VideoClipBackbone) else 1


def check_images(images: Images) -> None:
    """Raise ShapeError unless the images are (B, H, W, 3) uint8."""
    shape = images.shape
    is_rgb = images.ndim == 4 and shape[3] == 3 and images.dtype == np.uint8
    if not is_rgb or 0 in shape[1:]:
        raise ShapeError(f"pictures must be (B, H, W, 3) uint8 RGB, not {shape} {images.dtype}")


def check_clips(clips: Clips, *, even: bool = False) -> None:
    """Raise ShapeError unless the clips are (B, T, H, W, 3) uint8. even: whether T must be even."""
    if clips.ndim != 5 or not clips.shape[1] or (even and clips.shape[1] % 2):
        length = "an even T" if even else "T"
        raise ShapeError(f"clips must be (B, T, H, W, 3) with {length} above 0, not {clips.shape}")
    check_images(clips.reshape(-1, *clips.shape[2:]))


def still_clips(images: Images, frame_count: int) -> Clips:
    """Return clips (B, frame_count, H, W, 3) of which each repeats one image."""
    check_images(images)
    return np.broadcast_to(images[:, None], (len(images), frame_count, *images.shape[1:]))


def square_clips(clips: "Tensor", crop_side: int, side: int) -> "Tensor":
    """Return the central squares of clips, resized, (B, 3, T, side, side) float from 0 to 255.

    Args:
        clips: (B, T, H, W, 3) uint8.
        crop_side: pixels of the central square.
        side: pixels that the square is resized to.
    """
    import torch.nn.functional as F

    b, t, height, width, _ = clips.shape
    y = (height - crop_side) // 2
    x = (width - crop_side) // 2
    crops = clips[:, :, y : y + crop_side, x : x + crop_side].flatten(0, 1)
    planes = crops.permute(0, 3, 1, 2)  # (B T, 3, crop_side, crop_side)
    if crop_side != side:
        planes = F.interpolate(planes, (side, side), mode="bilinear", antialias=True)
    return planes.float().unflatten(0, (b, t)).transpose(1, 2)


def encode_video(
    frames: "Iterable[Frame]", backbone: Backbone, *, rate: float = 1.0, batch: int = 4
) -> FeatureSequence:
    """Return the features of a video: row t is of the frame nearest the middle of [t/rate,
    (t+1)/rate).

    For a backbone of clips, it is of the `clip_frames` frames nearest the middles of as many equal
    parts of those seconds. A row without a frame repeats the row before it, as a player shows it.
    The first row then repeats the row after it. A warning counts such rows.

    Args:
        frames: sorted by time, at least `rate` (for clips, `clip_frames` times `rate`) per second.
        backbone: encodes the frames.
        rate: rows per second.
        batch: rows that are encoded together.
    """
    encoder = VideoEncoder(backbone, rate=rate, batch=batch)
    for frame in frames:
        encoder.add(frame)
    return encoder.finish()


class _Candidate(NamedTuple):
    """The best frame of a part so far. distance: seconds from the part's middle."""

    part: int
    distance: float
    image: Images  # (H, W, 3)


class VideoEncoder:
    """Encodes frames that are added one at a time. Memory holds at most `batch` rows of frames.

    Each row is divided into as many parts as the backbone needs frames. A part takes the frame
    nearest its middle.

    Attributes:
        repeated: rows without a frame, known after `finish`.
    """

    def __init__(self, backbone: Backbone, *, rate: float = 1.0, batch: int = 4) -> None:
        """rate: rows per second. batch: rows that are encoded together."""
        if not (math.isfinite(rate) and rate > 0):
            raise SettingsError(f"rate {rate}: give rows per second > 0")
        self.repeated: tuple[int, ...] = ()
        self._backbone = backbone
        self._rate = rate
        self._batch = batch
        self._parts_per_row = frames_per_row(backbone)
        self._candidate: _Candidate | None = None  # of the open part
        self._open_row: dict[int, Images] = {}  # images by their part of the row
        self._waiting: list[Images] = []  # rows: images (H, W, 3), or clips (T, H, W, 3)
        self._rows: list[int] = []  # numbers of the rows that are encoded, wait or are open
        self._encoded: list[Matrix] = []

    def add(self, frame: "Frame") -> None:
        """Add a frame. It is kept if it is the nearest to the middle of its part so far."""
        # Parts are numbered through the whole video.
        rate = self._rate * self._parts_per_row
        part = math.floor((frame.time + ROW_SLACK) * rate)
        distance = abs((part + 0.5) / rate - frame.time)
        best = self._candidate
        if best is not None:
            is_nearer = part == best.part and distance < best.distance
            if part <= best.part and not is_nearer:
                return
            # A later part ends the one before, and its row if that is over.
            if part > best.part:
                self._close_part(best)
                if part // self._parts_per_row > self._rows[-1]:
                    self._close_row()
        self._candidate = _Candidate(part, distance, frame.image)

    def finish(self) -> FeatureSequence:
        """Return the features of all frames. Without any frame there is no row."""
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
            log.warning(
                "%d of %d rows had no frame and repeat their neighbour",
                len(self.repeated),
                len(values),
            )
        return FeatureSequence(values, self._rate, self._backbone.name)

    def take_rows(self) -> tuple[list[int], Matrix]:
        """Return the numbers (N) and features (N, D) of the rows encoded since the last call.

        These rows are then removed from memory.
        """
        nothing = np.empty((0, self._backbone.dim), np.float32)
        values = np.concatenate([nothing, *self._encoded])
        self._encoded = []
        # Rows are encoded in order.
        rows, self._rows = self._rows[: len(values)], self._rows[len(values) :]
        return rows, values

    def _close_part(self, best: _Candidate) -> None:
        """Keep a part's image. An image of another size than its row's starts the row again."""
        row, part = divmod(best.part, self._parts_per_row)
        if not self._rows or self._rows[-1] != row:
            self._rows.append(row)
        if any(image.shape != best.image.shape for image in self._open_row.values()):
            self._open_row = {}
        self._open_row[part] = best.image

    def _close_row(self) -> None:
        """Queue the open row for encoding. A part without an image has the nearest of its row."""
        images = []
        for part in range(self._parts_per_row):
            nearest = min(self._open_row, key=lambda other: abs(other - part))
            images.append(self._open_row[nearest])
        self._open_row = {}
        row = np.stack(images) if isinstance(self._backbone, VideoClipBackbone) else images[0]
        # A batch holds one size.
        if self._waiting and self._waiting[0].shape != row.shape:
            self._encode()
        self._waiting.append(row)
        if len(self._waiting) >= self._batch:
            self._encode()

    def _encode(self) -> None:
        if not self._waiting:
            return
        rows = np.stack(self._waiting)
        self._waiting = []
        if isinstance(self._backbone, VideoClipBackbone):
            self._encoded.append(self._backbone.encode_clips(rows))
        else:
            self._encoded.append(self._backbone.encode_images(rows))
