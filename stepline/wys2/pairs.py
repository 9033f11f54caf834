"""Clips with texts as arrays: what the detector learns from and scores.

Letters: B clips, R feature rows, C width of a row, P candidate texts, D width of a text vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepline.batches import pad
from stepline.errors import ShapeError
from stepline.records import FeatureSequence, Matrix, Span


@dataclass(frozen=True)
class Pair:
    """A clip, float32 rows (R, C) or uint8 RGB frames (T, H, W, 3), and its texts (P, D) float32, its own first.

    Raises ShapeError when an array has another form, no row, or holds NaN or infinity.
    """

    id: str
    video: Matrix | npt.NDArray[np.uint8]
    text: Matrix

    def __post_init__(self) -> None:
        frames = self.video.dtype == np.uint8 and self.video.ndim == 4 and self.video.shape[3] == 3
        rows = self.video.dtype == np.float32 and self.video.ndim == 2
        if not (frames or rows) or not len(self.video):
            form = f"{self.video.dtype} {self.video.shape}"
            raise ShapeError(f"{self.id}: a clip must be float32 (R, C) or uint8 (T, H, W, 3), R and T > 0, not {form}")
        if self.text.dtype != np.float32 or self.text.ndim != 2 or not len(self.text):
            raise ShapeError(f"{self.id}: texts must be float32 (P, D), P > 0, not {self.text.dtype} {self.text.shape}")
        if not np.isfinite(self.text).all() or (rows and not np.isfinite(self.video).all()):
            raise ShapeError(f"{self.id}: features hold NaN or infinity; extract them again")


@dataclass(frozen=True)
class PairBatch:
    """video (B, R, C) with video_pad (B, R), or frames (B, T, H, W, 3) without; text (B, P, D) with text_pad (B, P)."""

    video: Tensor
    video_pad: Tensor | None
    text: Tensor
    text_pad: Tensor

    def to(self, device: str | torch.device) -> "PairBatch":
        """Return the batch on another device."""
        pads = None if self.video_pad is None else self.video_pad.to(device)
        return PairBatch(self.video.to(device), pads, self.text.to(device), self.text_pad.to(device))


def collate_pairs(pairs: Sequence[Pair]) -> PairBatch:
    """Return the pairs as one batch. Raises ShapeError without any, or when their widths or frames differ."""
    if not pairs:
        raise ShapeError("a batch needs at least one clip, not 0")
    text, text_pad = pad([pair.text for pair in pairs])
    if pairs[0].video.dtype == np.float32:
        video, video_pad = pad([pair.video.astype(np.float32, copy=False) for pair in pairs])
        return PairBatch(video, video_pad, text, text_pad)
    shapes = {pair.video.shape for pair in pairs}
    if len(shapes) > 1:
        raise ShapeError(f"clips of one batch must have one shape, not {sorted(shapes)}; cut them alike")
    return PairBatch(torch.from_numpy(np.stack([pair.video for pair in pairs])), None, text, text_pad)


def pair_of(id: str, features: FeatureSequence, span: Span, text: Matrix) -> Pair:
    """Return the feature rows of a clip with its texts; a clip past the last row takes that one."""
    rows = features.rows(span)
    first = min(rows.start, max(0, len(features.values) - 1))
    return Pair(id, features.values[first : max(rows.stop, first + 1)], text)
