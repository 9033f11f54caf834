"""Training the grounding network: what `stepline.training.fit` learns here (NaSVA, sections 3.3 and 4.2)."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from stepline.batches import Sample, collate
from stepline.nasva.loss import alignability_loss, grounding_loss
from stepline.nasva.model import Aligner
from stepline.nasva.model_settings import LossSettings, ModelSettings
from stepline.training import Judge, Progress, Task, fit
from stepline.training.loss import Loss
from stepline.training_settings import TrainSettings


def train_aligner(
    samples: Sequence[Sample],
    folder: Path,
    *,
    model: ModelSettings | None = None,
    loss: LossSettings | None = None,
    settings: TrainSettings | None = None,
    start: Aligner | None = None,
    report: Callable[[Progress], None] | None = None,
    judge: Judge | None = None,
    device: str | torch.device = "cpu",
) -> Aligner:
    """Return a network trained on the samples, from fresh weights or on from those of `start`, at rest.

    A run in `folder` that was killed is taken up. Raises ShapeError when there is nothing to train on.
    """
    settings = settings or TrainSettings()
    torch.manual_seed(settings.seed)  # of fresh weights
    network = start or Aligner(model or ModelSettings())
    network.to(device)
    fit(network, aligner_task(samples, loss or LossSettings()), settings, folder, report, judge=judge)
    return network


def aligner_task(samples: Sequence[Sample], settings: LossSettings) -> Task[Sample]:
    """Return what training learns: samples by the length of their videos, texts in order or not by a drawn chance."""

    def losses(network: nn.Module, chosen: Sequence[Sample]) -> list[Loss]:
        batch = collate(chosen).to(next(network.parameters()).device)
        aligned = network(batch)
        parts = [grounding_loss(aligned, batch, settings)]
        if aligned.alignable is not None:
            head = alignability_loss(aligned, batch, settings.alignability)
            parts.append(head.weighted(settings.alignability_weight))
        return parts

    def draw(chosen: Sequence[Sample], chance: np.random.Generator) -> list[Sample]:
        return draw_order(chosen, settings, chance)

    lengths = samples.lengths if hasattr(samples, "lengths") else None  # known without reading the samples
    return Task(samples, lambda sample: len(sample.video), draw, losses, lengths)


def draw_order(samples: Sequence[Sample], settings: LossSettings, chance: np.random.Generator) -> list[Sample]:
    """Return the samples, some with their texts shuffled and so marked; supplement 6.3: half, whatever the source."""
    draws = chance.random(len(samples) if settings.drawn == "sample" else 1)
    lost = np.broadcast_to(draws < settings.shuffled, len(samples))
    return [one.shuffled(chance) if shuffle else one for one, shuffle in zip(samples, lost, strict=True)]
