"""The detector: a tower for clips, a tower for texts, and how alike what they give is (WYS2, section 3.2).

Letters: B clips, R feature rows, C width of a row, M texts, D width of the space shared by clips and texts.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.wys2.pairs import PairBatch
from stepline.wys2.settings import DetectorSettings


class Detector(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Scores every clip of a batch with every text: higher means likelier that the clip shows what the text says."""

    def __init__(self, settings: DetectorSettings) -> None:
        super().__init__()
        self.settings = settings
        width = settings.text_width if settings.text == "frozen" else settings.width
        self.text: nn.Module = nn.Identity() if settings.text == "frozen" else _head(settings.text_width, settings)
        self.video: nn.Module = Frames(width) if settings.video == "s3d" else Rows(settings, width)
        self.joint = Joint(width, settings.hidden) if settings.score == "joint" else None

    def forward(self, batch: PairBatch) -> Tensor:
        """Return scores (B, B, P): of clip i with candidate p of clip j; -inf for candidates that are padding."""
        b, p, _ = batch.text.shape
        texts = self.encode_texts(batch.text.flatten(0, 1))  # (B P, D)
        scores = self.compare(self.encode_clips(batch), texts).view(b, b, p)
        return scores.masked_fill(batch.text_pad[None], -torch.inf)

    def own(self, batch: PairBatch) -> Tensor:
        """Return (B,): the score of every clip with its own text, the first candidate."""
        clips, texts = self.encode_clips(batch), self.encode_texts(batch.text[:, 0])
        if self.joint is not None:
            return cast(Tensor, self.joint(clips[:, None], texts[:, None])[:, 0, 0])
        return torch.einsum("bd,bd->b", *self._scaled(clips, texts))

    def encode_clips(self, batch: PairBatch) -> Tensor:
        """Return (B, D), not normalised."""
        if (batch.video_pad is None) != (self.settings.video == "s3d"):
            want = "frames" if self.settings.video == "s3d" else "feature rows"
            raise ShapeError(f"this detector takes clips as {want}; detector.video={self.settings.video} says so")
        return cast(Tensor, self.video(batch))

    def encode_texts(self, texts: Tensor) -> Tensor:
        """Return (M, D), not normalised."""
        if texts.shape[-1] != self.settings.text_width:
            raise ShapeError(f"texts are {texts.shape[-1]} wide, the detector takes {self.settings.text_width}")
        return cast(Tensor, self.text(texts))

    def compare(self, clips: Tensor, texts: Tensor) -> Tensor:
        """Return (B, M) scores of clips (B, D) with texts (M, D)."""
        if self.joint is not None:
            return cast(Tensor, self.joint(clips[:, None], texts[None])[..., 0])
        clips, texts = self._scaled(clips, texts)
        return clips @ texts.T

    def _scaled(self, clips: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Return vectors whose dot product is the score."""
        if self.settings.score == "dot":
            return clips, texts
        return F.normalize(clips, dim=-1) / self.settings.temperature, F.normalize(texts, dim=-1)


class Rows(nn.Module):  # type: ignore[misc]
    """Ready features: the mean of a clip's rows, through two layers."""

    def __init__(self, settings: DetectorSettings, width: int) -> None:
        super().__init__()
        self.width = settings.video_width
        self.head = _head(settings.video_width, settings, width)

    def forward(self, batch: PairBatch) -> Tensor:
        """Return (B, width)."""
        if batch.video.shape[2] != self.width or batch.video_pad is None:
            raise ShapeError(f"feature rows are {batch.video.shape[2]} wide, the detector takes {self.width}")
        kept = (~batch.video_pad).to(batch.video.dtype)  # (B, R)
        mean = torch.einsum("brc,br->bc", batch.video, kept) / kept.sum(1, keepdim=True)
        return cast(Tensor, self.head(mean))


class Frames(nn.Module):  # type: ignore[misc]
    """S3D on uint8 frames, trained end to end; `s3d` may be given released weights before training."""

    def __init__(self, width: int) -> None:
        from stepline.vision.s3d.network import JOINT, S3D

        super().__init__()
        self.s3d = S3D()
        self.project: nn.Module = nn.Identity() if width == JOINT else nn.Linear(JOINT, width)

    def forward(self, batch: PairBatch) -> Tensor:
        """Return (B, width)."""
        clips = (batch.video.float() / 255).permute(0, 4, 1, 2, 3)  # (B, 3, T, H, W)
        return cast(Tensor, self.project(self.s3d(clips)))


class Joint(nn.Module):  # type: ignore[misc]
    """One score from clip and text together, as TAN's alignability head: no space in which they could be compared."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.clip, self.text = nn.Linear(width, hidden), nn.Linear(width, hidden, bias=False)
        self.out = nn.Linear(hidden, 1)

    def forward(self, clips: Tensor, texts: Tensor) -> Tensor:
        """Return (..., 1) for clips and texts (..., D) whose leading dimensions go together."""
        return cast(Tensor, self.out(torch.relu(self.clip(clips) + self.text(texts))))


def _head(inputs: int, settings: DetectorSettings, width: int | None = None) -> nn.Module:
    """Return two layers on rows of spread 1: rows of length 1 hold numbers too small for the first layer's bias."""
    return nn.Sequential(
        nn.LayerNorm(inputs, elementwise_affine=False),
        nn.Linear(inputs, settings.hidden),
        nn.ReLU(),
        nn.Dropout(settings.dropout),
        nn.Linear(settings.hidden, width or settings.width),
    )
