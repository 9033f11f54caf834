"""What every backbone offers: pictures and texts as vectors of one space."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.records import Matrix

Pictures: TypeAlias = npt.NDArray[np.uint8]  # (B, H, W, 3) RGB
Clips: TypeAlias = npt.NDArray[np.uint8]  # (B, T, H, W, 3) RGB


class Backbone(Protocol):
    """An image-text space; rows are unit vectors, so that dot products are cosines."""

    @property
    def name(self) -> str:
        """What features of it are labelled with."""

    @property
    def dim(self) -> int:
        """Width D of its vectors."""

    def encode_images(self, pictures: Pictures) -> Matrix:
        """Return (B, D) float32 unit rows for uint8 RGB pictures (B, H, W, 3)."""

    def encode_texts(self, texts: Sequence[str]) -> Matrix:
        """Return (K, D) float32 unit rows."""


@runtime_checkable
class VideoClipBackbone(Backbone, Protocol):
    """A backbone that sees movement: a row of features is a clip of `clip_frames` pictures, spread over the row."""

    @property
    def clip_frames(self) -> int:
        """Pictures a clip."""

    def encode_clips(self, clips: Clips) -> Matrix:
        """Return (B, D) float32 unit rows for uint8 RGB clips (B, T, H, W, 3)."""


def frames_per_row(backbone: Backbone) -> int:
    """Return how many pictures the backbone wants of every row."""
    return backbone.clip_frames if isinstance(backbone, VideoClipBackbone) else 1


def check_pictures(pictures: Pictures) -> None:
    """Raise ShapeError unless `pictures` is (B, H, W, 3) uint8."""
    if pictures.ndim != 4 or pictures.shape[3] != 3 or pictures.dtype != np.uint8 or 0 in pictures.shape[1:]:
        raise ShapeError(f"pictures must be (B, H, W, 3) uint8 RGB, not {pictures.shape} {pictures.dtype}")
