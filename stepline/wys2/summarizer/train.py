"""Training the summarizer: each segment's own importance, through `stepline.training.fit`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from stepline.batches import pad
from stepline.errors import ShapeError
from stepline.training import Progress, Task, fit
from stepline.training.loss import Loss
from stepline.training_settings import TrainSettings
from stepline.wys2.summarizer.model import Summarizer
from stepline.wys2.summarizer.segments import Segmented
from stepline.wys2.summarizer.settings import TRAINING, SummarizerSettings
from stepline.wys2.summary import Importance


def train_summarizer(
    samples: Sequence[Segmented],
    folder: Path,
    *,
    summarizer: SummarizerSettings,
    settings: TrainSettings = TRAINING,
    report: Callable[[Progress], None] | None = None,
) -> Summarizer:
    """Return a summarizer trained on the samples, at rest. A run in `folder` that was killed is taken up.

    Raises ShapeError when there is no sample, or when nothing or everything matters, which teaches nothing.
    """
    mean = float(np.mean([sample.matters.mean() for sample in samples])) if samples else 0.0
    if not 0.0 < mean < 1.0:
        raise ShapeError(f"{len(samples)} videos of which {mean:.0%} matters teach nothing; give reference steps")
    torch.manual_seed(settings.seed)  # of fresh weights
    network = Summarizer(summarizer)
    task = Task(samples, lambda sample: len(sample.seen), lambda chosen, _: chosen, _losses)
    fit(network, task, settings, folder, report)
    return network


def _losses(network: nn.Module, chosen: Sequence[Segmented]) -> list[Loss]:
    device = next(network.parameters()).device
    seen, missing = pad([sample.seen for sample in chosen])  # (B, S, C), (B, S)
    said, _ = pad([sample.said for sample in chosen])
    matters, _ = pad([sample.matters[:, None] for sample in chosen])
    logits = network(seen.to(device), said.to(device), missing.to(device))  # (B, S)
    kept = (~missing).to(device)
    each = F.binary_cross_entropy_with_logits(logits, matters[..., 0].to(device), reduction="none")
    return [Loss((each * kept).sum(), kept.sum().float())]


def importance(network: Summarizer, sample: Segmented) -> Importance:
    """Return how much each second of a video matters, in [0, 1], (ceil(S x seconds of a segment),)."""
    device = next(network.parameters()).device
    network.eval()
    with torch.inference_mode():
        inputs = (torch.from_numpy(values)[None].to(device) for values in (sample.seen, sample.said))
        free = torch.zeros(1, len(sample.seen), dtype=torch.bool, device=device)
        scores = network(*inputs, free).sigmoid()[0].float().cpu().numpy()  # (S,)
    length = network.settings.seconds
    seconds = np.arange(int(np.ceil(len(scores) * length - 1e-9))) + 0.5
    return np.asarray(scores[np.minimum((seconds / length).astype(int), len(scores) - 1)], dtype=np.float32)
