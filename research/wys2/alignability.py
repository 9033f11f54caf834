"""Alignability: does a video show anywhere what a sentence says? A head on ready features (WYS2,
section 4.3).

And a detector as a backbone: embeddings of every second and of every sentence (sections 4.3 and
4.4). Letters: B videos, T feature rows, K sentences, D width of both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import DatasetError, ShapeError
from stepline.records import FeatureSequence, Matrix, Span
from stepline.training.batches import Mask, pad
from stepline.training.loop import Loss, Progress, TrainingTask, fit
from stepline.training.settings import TrainSettings
from stepline.wys2.clips import clip_text_pair, collate_pairs
from stepline.wys2.detector import Detector

HEAD_TRAINING = TrainSettings(
    epochs=8, batch=16, learning_rate=3e-3, weight_decay=1e-4
)  # its own; the paper gives none
HIDDEN = 64  # between the head's layers


@dataclass(frozen=True)
class AlignabilitySample:
    """A video's rows (T, D), its sentences (K, D) in the same space, and which of them it shows
    anywhere, (K,) bool.

    Raises ShapeError when the arrays do not fit together or are empty.
    """

    id: str
    video: Matrix
    text: Matrix
    alignable: Mask

    def __post_init__(self) -> None:
        shapes = f"{self.video.shape}, {self.text.shape} and {self.alignable.shape}"
        if self.video.ndim != 2 or self.text.ndim != 2 or self.video.shape[1] != self.text.shape[1]:
            raise ShapeError(
                f"{self.id}: rows and sentences must be (T, D) and (K, D) of one D, not {shapes}"
            )
        if not len(self.video) or not len(self.text) or self.alignable.shape != (len(self.text),):
            raise ShapeError(
                f"{self.id}: need a row, a sentence and a label a sentence, not {shapes}"
            )


class AlignabilityHead(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """One score from a row and a sentence together, the highest over the video (softly) is the
    sentence's.

    TAN's head reads one token that has attended to all of the video. Here every row is read with
    the sentence.
    """

    def __init__(self, width: int, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.clip, self.text = nn.Linear(width, hidden), nn.Linear(width, hidden, bias=False)
        self.both = nn.Linear(width, hidden, bias=False)
        self.out = nn.Linear(hidden, 1)

    def forward(self, video: Tensor, text: Tensor, video_pad: Tensor) -> Tensor:
        """Return logits (B, K) of sentences (B, K, D) in videos (B, T, D)."""
        width = self.clip.in_features
        if video.shape[-1] != width or text.shape[-1] != width:
            raise ShapeError(
                f"rows and sentences are {video.shape[-1]} and {text.shape[-1]} wide, the head {width}"
            )
        video, text = (F.layer_norm(each, each.shape[-1:]) for each in (video, text))
        product = self.both(video[:, None] * text[:, :, None])  # (B, K, T, hidden)
        hidden = torch.relu(self.clip(video)[:, None] + self.text(text)[:, :, None] + product)
        scores = self.out(hidden)[..., 0].masked_fill(video_pad[:, None], -torch.inf)  # (B, K, T)
        rows = (~video_pad).sum(1, keepdim=True)  # (B, 1)
        return cast(Tensor, scores.logsumexp(-1) - rows.log())


def train_head(
    samples: Sequence[AlignabilitySample],
    folder: Path,
    *,
    settings: TrainSettings = HEAD_TRAINING,
    report: Callable[[Progress], None] | None = None,
) -> AlignabilityHead:
    """Return a head trained on the samples. Raises DatasetError where no sentence is alignable, or
    every one."""
    known = (
        np.concatenate([sample.alignable for sample in samples])
        if samples
        else np.zeros(0, dtype=np.bool_)
    )
    if known.all() or not known.any():
        raise DatasetError(
            f"{int(known.sum())} of {len(known)} sentences are alignable; give videos with both kinds"
        )
    torch.manual_seed(settings.seed)  # of fresh weights
    head = AlignabilityHead(samples[0].video.shape[1])
    fit(
        head,
        TrainingTask(samples, lambda one: len(one.video), lambda chosen, _: chosen, _losses),
        settings,
        folder,
        report,
    )
    return head


def _losses(head: nn.Module, chosen: Sequence[AlignabilitySample]) -> list[Loss]:
    device = next(head.parameters()).device
    video, video_pad = pad([one.video for one in chosen])  # (B, T, D), (B, T)
    text, text_pad = pad([one.text for one in chosen])
    known, _ = pad([one.alignable[:, None].astype(np.float32) for one in chosen])  # (B, K, 1)
    logits = head(video.to(device), text.to(device), video_pad.to(device))  # (B, K)
    each = F.binary_cross_entropy_with_logits(logits, known[..., 0].to(device), reduction="none")
    kept = (~text_pad).to(device)
    return [Loss((each * kept).sum(), kept.sum().float())]


def predict_alignability(head: AlignabilityHead, video: Matrix, text: Matrix) -> Matrix:
    """Return the logit that a video (T, D) shows what each sentence (K, D) says, (K,)."""
    device = next(head.parameters()).device
    head.eval()
    with torch.inference_mode():
        rows, sentences = (torch.from_numpy(values)[None].to(device) for values in (video, text))
        free = torch.zeros(rows.shape[:2], dtype=torch.bool, device=device)
        scores: Matrix = head(rows, sentences, free)[0].float().cpu().numpy()
    return scores


SECONDS = 3.0  # of the clip around each second; WYS2, section 4


def embed_seconds(
    network: Detector, features: FeatureSequence, seconds: float = SECONDS
) -> FeatureSequence:
    """Return (T, D) unit rows, one a feature row: what the video tower makes of the clip around its
    middle."""
    nothing = np.zeros((1, network.settings.text_width), dtype=np.float32)
    middles = (np.arange(len(features.values)) + 0.5) / features.rate
    clips = [
        Span(max(0.0, middle - seconds / 2), middle + seconds / 2) for middle in middles.tolist()
    ]
    batch = collate_pairs([clip_text_pair("", features, clip, nothing) for clip in clips])
    network.eval()
    with torch.inference_mode():
        rows = network.encode_clips(batch.to(next(network.parameters()).device))
    return FeatureSequence(_unit_rows(rows), features.rate, f"wys2 of {features.backbone}")


def embed_sentences(network: Detector, vectors: Matrix) -> Matrix:
    """Return (K, D) unit rows: what the text tower makes of the vectors (K, E) of sentences."""
    network.eval()
    with torch.inference_mode():
        return _unit_rows(
            network.encode_texts(torch.from_numpy(vectors).to(next(network.parameters()).device))
        )


def _unit_rows(rows: torch.Tensor) -> Matrix:
    unit: Matrix = F.normalize(rows.float(), dim=-1).cpu().numpy()
    return unit
