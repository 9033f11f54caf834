"""One training step of the NaSVA aligner and of a small ProcX on random data, which quick.py times."""

import numpy as np
import torch
from torch import nn

from stepline.models.nasva.loss import grounding_loss
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.settings import AlignerLossSettings, AlignerNetworkSettings
from stepline.models.procx.batch import StepBatch, StepSample
from stepline.models.procx.batch import collate as collate_steps
from stepline.models.procx.losses import compute_weighted_losses
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import (
    AttentionSettings,
    CaptionerSettings,
    LossSettings,
    ModelSettings,
)
from stepline.models.procx.vocabulary import HALF_BYTES, MARK_TOKENS, Vocabulary
from stepline.models.training.batches import Batch, Sample, collate

FEATURE_WIDTH = 768
TEXT_SECONDS = 8  # for which each text of a random video is shown
STEP_COUNTS = (8, 6, 9, 7, 8, 10, 5, 9)  # of the videos of a ProcX batch; YouCook2's mean is 7.7
WORD_COUNT = 9_981  # 10,000 tokens with marks and half bytes
VIDEO_SECONDS = 300
SMALL_PROCX = ModelSettings(
    attention=AttentionSettings(width=64, heads=4),
    encoder_layers=2,
    decoder_layers=2,
    feed_forward=128,
    queries=20,
    captioner=CaptionerSettings(
        width=64, heads=4, text_layers=1, joint_layers=1, feed_forward=128, projection=32
    ),
)


def nasva_sample(seconds: int, texts: int, seed: int) -> Sample:
    """Return a random video with random texts."""
    rng = np.random.default_rng(seed)
    positive = np.zeros((texts, seconds), bool)
    starts = rng.integers(0, seconds - TEXT_SECONDS, texts)
    for row, start in zip(positive, starts, strict=True):
        row[start : start + TEXT_SECONDS] = True
    rows = rng.standard_normal((seconds + texts, FEATURE_WIDTH), dtype=np.float32)
    return Sample(str(seed), rows[:seconds], rows[seconds:], positive, ordered=True)


def nasva_batch(size: int, seconds: int, texts: int) -> Batch:
    """Return a batch of random videos whose lengths are 80 to 100 % of `seconds`."""
    lengths = [round(seconds * share) for share in np.linspace(0.8, 1.0, size)]
    return collate([nasva_sample(length, texts, seed) for seed, length in enumerate(lengths)])


class NasvaTrainer:
    """An aligner with fresh weights and its optimizer, warmed up by one step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Aligner(AlignerNetworkSettings()).train()
        weights = self.model.parameters()
        self.optimizer = torch.optim.AdamW(weights, lr=1e-4, weight_decay=5e-5, fused=True)
        self.train(nasva_batch(2, 50, 9))

    def train(self, data: Batch) -> None:
        """Take one step: forward, loss, backward, clip, update."""
        loss = grounding_loss(self.model(data), data, AlignerLossSettings(form="release")).mean
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def procx_batch(vocabulary: Vocabulary) -> StepBatch:
    """Return a random video for each of `STEP_COUNTS`, its steps evenly spaced."""
    rng = np.random.default_rng(0)
    words = vocabulary.tokens[len(MARK_TOKENS) + len(HALF_BYTES) :]
    samples = []
    for count in STEP_COUNTS:
        shape = (VIDEO_SECONDS, SMALL_PROCX.features)
        values = rng.standard_normal(shape).astype(np.float32)
        seconds = VIDEO_SECONDS / count
        spans = tuple((seconds * step, seconds * (step + 0.8)) for step in range(count))
        texts = tuple(" ".join(rng.choice(words, rng.integers(5, 14))) for _ in range(count))
        samples.append(StepSample("video", values, float(VIDEO_SECONDS), spans, texts))
    return collate_steps(samples, vocabulary, SMALL_PROCX)


class ProcxTrainer:
    """A small ProcX with fresh weights, its optimizer, and a batch."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        words = [f"w{number}" for number in range(WORD_COUNT)]
        vocabulary = Vocabulary((*MARK_TOKENS, *HALF_BYTES, *words))
        self.model = ProcX(SMALL_PROCX, len(vocabulary)).train()
        weights = self.model.parameters()
        self.optimizer = torch.optim.AdamW(weights, lr=1e-4, weight_decay=1e-3, fused=True)
        self.batch = procx_batch(vocabulary)

    def step(self) -> None:
        """Take one step: forward, losses, backward, clip, update."""
        parts = compute_weighted_losses(self.model, self.batch, LossSettings())
        torch.stack([part.mean for part in parts]).sum().backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        self.optimizer.zero_grad()
