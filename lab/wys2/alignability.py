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
from stepline.models.training.batches import Mask, pad
from stepline.models.training.loop import Loss, Progress, TrainingTask, fit
from stepline.models.training.settings import TrainSettings
from stepline.models.wys2.clips import clip_text_pair, collate_pairs
from stepline.models.wys2.detector import Detector
from stepline.records import FeatureSequence, Matrix, Span

# of its own, for the paper gives none
HEAD_TRAINING = TrainSettings(epochs=8, batch=16, learning_rate=3e-3, weight_decay=1e-4)
HIDDEN_WIDTH = 64  # between the head's layers


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
        rows = self.video.shape
        sentences = self.text.shape
        labels = self.alignable.shape
        shapes = f"{rows}, {sentences} and {labels}"
        if len(rows) != 2 or len(sentences) != 2 or rows[1] != sentences[1]:
            raise ShapeError(
                f"{self.id}: rows and sentences must be (T, D) and (K, D) of one D, not {shapes}"
            )
        if rows[0] == 0 or sentences[0] == 0 or labels != sentences[:1]:
            raise ShapeError(
                f"{self.id}: need a row, a sentence and a label per sentence, not {shapes}"
            )


class AlignabilityHead(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """One score from a row and a sentence together, the highest over the video (softly) is the
    sentence's.

    TAN's head reads one token that has attended to all of the video. Here every row is read with
    the sentence.
    """

    def __init__(self, width: int, hidden: int = HIDDEN_WIDTH) -> None:
        super().__init__()
        self.clip = nn.Linear(width, hidden)
        self.text = nn.Linear(width, hidden, bias=False)
        self.both = nn.Linear(width, hidden, bias=False)
        self.out = nn.Linear(hidden, 1)

    def forward(self, video: Tensor, text: Tensor, video_pad: Tensor) -> Tensor:
        """Return logits (B, K) of sentences (B, K, D) in videos (B, T, D)."""
        width = self.clip.in_features
        if video.shape[-1] != width or text.shape[-1] != width:
            widths = f"{video.shape[-1]} and {text.shape[-1]}"
            raise ShapeError(f"rows and sentences are {widths} wide, the head {width}")
        video = F.layer_norm(video, video.shape[-1:])
        text = F.layer_norm(text, text.shape[-1:])
        product = self.both(video[:, None] * text[:, :, None])  # (B, K, T, hidden)
        clip_part = self.clip(video)[:, None]  # (B, 1, T, hidden)
        text_part = self.text(text)[:, :, None]  # (B, K, 1, hidden)
        hidden = torch.relu(clip_part + text_part + product)
        scores = self.out(hidden)[..., 0]  # (B, K, T)
        scores = scores.masked_fill(video_pad[:, None], -torch.inf)
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
    sentences = sum(len(sample.alignable) for sample in samples)
    alignable = sum(int(sample.alignable.sum()) for sample in samples)
    if alignable in (0, sentences):
        counts = f"{alignable} of {sentences} sentences are alignable"
        raise DatasetError(f"{counts}; give videos with both kinds")
    torch.manual_seed(settings.seed)  # of fresh weights
    head = AlignabilityHead(samples[0].video.shape[1])
    task = TrainingTask(samples, lambda sample: len(sample.video), lambda batch, _: batch, _losses)
    fit(head, task, settings, folder, report)
    return head


def _losses(head: nn.Module, samples: Sequence[AlignabilitySample]) -> list[Loss]:
    device = next(head.parameters()).device
    video, video_pad = pad([sample.video for sample in samples])  # (B, T, D), (B, T)
    text, text_pad = pad([sample.text for sample in samples])
    columns = [sample.alignable[:, None].astype(np.float32) for sample in samples]
    labels, _ = pad(columns)  # (B, K, 1)
    logits = head(video.to(device), text.to(device), video_pad.to(device))  # (B, K)
    targets = labels[..., 0].to(device)
    losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    is_sentence = (~text_pad).to(device)
    return [Loss((losses * is_sentence).sum(), is_sentence.sum().float())]


def predict_alignability(head: AlignabilityHead, video: Matrix, text: Matrix) -> Matrix:
    """Return the logit that a video (T, D) shows what each sentence (K, D) says, (K,)."""
    device = next(head.parameters()).device
    head.eval()
    with torch.inference_mode():
        rows = torch.from_numpy(video)[None].to(device)
        sentences = torch.from_numpy(text)[None].to(device)
        no_pad = torch.zeros(rows.shape[:2], dtype=torch.bool, device=device)
        scores: Matrix = head(rows, sentences, no_pad)[0].float().cpu().numpy()
    return scores


CLIP_SECONDS = 3.0  # of the clip around each second; WYS2, section 4


def embed_seconds(
    network: Detector, features: FeatureSequence, seconds: float = CLIP_SECONDS
) -> FeatureSequence:
    """Return (T, D) unit rows, one a feature row: what the video tower makes of the clip around its
    middle."""
    no_text = np.zeros((1, network.settings.text_width), dtype=np.float32)
    middles = (np.arange(len(features.values)) + 0.5) / features.rate
    pairs = []
    for middle in middles.tolist():
        clip = Span(max(0.0, middle - seconds / 2), middle + seconds / 2)
        pairs.append(clip_text_pair("", features, clip, no_text))
    device = next(network.parameters()).device
    batch = collate_pairs(pairs).to(device)
    network.eval()
    with torch.inference_mode():
        rows = network.encode_clips(batch)
    return FeatureSequence(_unit_rows(rows), features.rate, f"wys2 of {features.backbone}")


def embed_sentences(network: Detector, vectors: Matrix) -> Matrix:
    """Return (K, D) unit rows: what the text tower makes of the vectors (K, E) of sentences."""
    device = next(network.parameters()).device
    network.eval()
    with torch.inference_mode():
        rows = network.encode_texts(torch.from_numpy(vectors).to(device))
        return _unit_rows(rows)


def _unit_rows(rows: torch.Tensor) -> Matrix:
    unit: Matrix = F.normalize(rows.float(), dim=-1).cpu().numpy()
    return unit
