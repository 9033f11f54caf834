"""Feature extraction: frames to one row per second, in one pass and bounded memory.

`Backbone` is what every image-text network offers: images and texts as vectors of one space.
"""

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from stepline.errors import SettingsError, ShapeError
from stepline.media import Frame
from stepline.records import FeatureSequence, Matrix

if TYPE_CHECKING:
    from torch import Tensor

Images = npt.NDArray[np.uint8]  # (B, H, W, 3) RGB
Clips = npt.NDArray[np.uint8]  # (B, T, H, W, 3) RGB

log = logging.getLogger(__name__)

ROW_SLACK = 1e-6  # s. A frame that rounding puts just before a row's start belongs to the row


class Backbone(Protocol):
    """Interface of the image-text networks: images and texts as vectors of one space.

    The vectors have length 1, so that dot products are cosines. There are two exceptions. The
    vectors of s3d-mixed5c have other lengths, and no text has a vector in their space. Those of
    internvideo have other lengths if `vision.unit` is false.
    """

    @property
    def name(self) -> str:
        """Name of the backbone, which is stored with its features."""

    @property
    def dim(self) -> int:
        """Width D of the vectors."""

    def encode_images(self, images: Images) -> Matrix:
        """Return unit vectors (B, D) float32 of uint8 RGB images (B, H, W, 3)."""

    def encode_texts(self, texts: Sequence[str]) -> Matrix:
        """Return unit vectors (K, D) float32 of K texts."""


@runtime_checkable
class VideoClipBackbone(Backbone, Protocol):
    """Interface of the video-text networks: a feature row is a clip of `clip_frames` frames."""

    @property
    def clip_frames(self) -> int:
        """Number of frames per clip, evenly spread over the seconds of its feature row."""

    def encode_clips(self, clips: Clips) -> Matrix:
        """Return unit vectors (B, D) float32 of uint8 RGB clips (B, T, H, W, 3) of T frames."""


def frames_per_row(backbone: Backbone) -> int:
    """Return the number of frames that the backbone needs for each row of features."""
    return backbone.clip_frames if isinstance(backbone, VideoClipBackbone) else 1


def check_images(images: Images) -> None:
    """Raise ShapeError unless the images are a uint8 array (B, H, W, 3)."""
    shape = images.shape
    is_rgb = images.ndim == 4 and shape[3] == 3 and images.dtype == np.uint8
    if not is_rgb or 0 in shape[1:]:
        raise ShapeError(f"pictures must be (B, H, W, 3) uint8 RGB, not {shape} {images.dtype}")


def check_clips(clips: Clips, *, even: bool = False) -> None:
    """Raise ShapeError unless the clips are a uint8 array (B, T, H, W, 3).

    even: whether the number of frames T must be even.
    """
    if clips.ndim != 5 or not clips.shape[1] or (even and clips.shape[1] % 2):
        length = "an even T" if even else "T"
        raise ShapeError(f"clips must be (B, T, H, W, 3) with {length} above 0, not {clips.shape}")
    check_images(clips.reshape(-1, *clips.shape[2:]))


class StillClipEncoder:
    """A video-text network that sees an image as a clip that repeats it."""

    def encode_images(self: VideoClipBackbone, images: Images) -> Matrix:
        """Return the vectors (B, D) of images (B, H, W, 3), each repeated as a clip."""
        check_images(images)
        shape = (len(images), self.clip_frames, *images.shape[1:])
        return self.encode_clips(np.broadcast_to(images[:, None], shape))


def square_clips(clips: "Tensor", crop_side: int, side: int) -> "Tensor":
    """Return the central squares of clips, resized, (B, 3, T, side, side) float in [0, 255].

    Args:
        clips: (B, T, H, W, 3) uint8, B clips of T frames.
        crop_side: pixels of the central square that is cut out.
        side: pixels to which the square is resized.
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


class _Candidate(NamedTuple):
    """The best frame so far for a part of a row.

    Attributes:
        part: index of the part, counted from the start of the video.
        distance: seconds from the frame to the middle of the part.
        image: (H, W, 3) uint8 RGB.
    """

    part: int
    distance: float
    image: Images  # (H, W, 3)


class VideoEncoder:
    """Encodes the frames of a video that are added one at a time.

    Row t covers [t/rate, (t+1)/rate). It is divided into as many equal parts as the backbone needs
    frames, and a part takes the frame nearest its middle. A row without a frame repeats the row
    before it, or the next row at the start, with a warning. Memory holds the frames of at most
    `batch` rows.

    Attributes:
        repeated: number of rows without a frame, known after `finish`.
    """

    def __init__(self, backbone: Backbone, *, rate: float = 1.0, batch: int = 4) -> None:
        """Start without frames.

        Args:
            backbone: network that encodes the frames.
            rate: rows per second.
            batch: number of rows that are encoded together.
        """
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

    def add(self, frame: Frame) -> None:
        """Add a frame. It is kept if it is the nearest so far to the middle of its part."""
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
                self._keep_best_image(best)
                if part // self._parts_per_row > self._rows[-1]:
                    self._close_row()
        self._candidate = _Candidate(part, distance, frame.image)

    def finish(self) -> FeatureSequence:
        """Return the features of all frames. Without frames there are no rows."""
        if self._candidate is not None:
            self._keep_best_image(self._candidate)
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
        """Return the rows encoded since the last call, and remove them from memory.

        The result is N row indices and their features (N, D).
        """
        nothing = np.empty((0, self._backbone.dim), np.float32)
        values = np.concatenate([nothing, *self._encoded])
        self._encoded = []
        # Rows are encoded in order.
        rows, self._rows = self._rows[: len(values)], self._rows[len(values) :]
        return rows, values

    def _keep_best_image(self, best: _Candidate) -> None:
        """Keep the best image of a part of a feature row. The part gets no further images.

        If the size of the image differs from that of the row's other images, the row starts again.
        """
        row, part = divmod(best.part, self._parts_per_row)
        if not self._rows or self._rows[-1] != row:
            self._rows.append(row)
        if any(image.shape != best.image.shape for image in self._open_row.values()):
            self._open_row = {}
        self._open_row[part] = best.image

    def _close_row(self) -> None:
        """Queue the current row for encoding. A part without an image takes the nearest one."""
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
