"""Training the detector: what `stepline.training.fit` learns here (WYS2, section 3.2)."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from stepline.errors import DatasetError
from stepline.records import Matrix
from stepline.training import Progress, Task, fit
from stepline.training.loss import Loss
from stepline.training_settings import TrainSettings
from stepline.wys2.losses import contrast
from stepline.wys2.model import Detector
from stepline.wys2.pairs import Pair, collate_pairs
from stepline.wys2.settings import TRAINING, ContrastSettings, DetectorSettings

AT_ONCE = 512  # pairs that are scored together


def train_detector(
    pairs: Sequence[Pair],
    folder: Path,
    *,
    detector: DetectorSettings,
    contrast: ContrastSettings | None = None,
    settings: TrainSettings = TRAINING,
    start: Detector | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Detector:
    """Return a detector trained on positive pairs, from fresh weights or on from those of `start`, at rest.

    A run in `folder` that was killed is taken up. Raises DatasetError for fewer than two pairs, which cannot be
    contrasted.
    """
    if len(pairs) < 2:
        raise DatasetError(f"{len(pairs)} positive clips; contrast needs two or more: loosen the labels, add videos")
    torch.manual_seed(settings.seed)  # of fresh weights
    network = start or Detector(detector)
    fit(network, detector_task(pairs, contrast or ContrastSettings()), settings, folder, report)
    return network


def detector_task(pairs: Sequence[Pair], settings: ContrastSettings) -> Task[Pair]:
    """Return what training learns; a batch that is left with one pair, the last of an epoch, teaches nothing."""

    def losses(network: nn.Module, chosen: Sequence[Pair]) -> list[Loss]:
        batch = collate_pairs(chosen).to(next(network.parameters()).device)
        scores = network(batch)
        if len(chosen) < 2:
            return [Loss(0 * batch_sum(scores), torch.tensor(0.0))]
        return [contrast(scores, settings)]

    def draw(chosen: Sequence[Pair], chance: np.random.Generator) -> list[Pair]:
        return [chosen[place] for place in chance.permutation(len(chosen))]

    return Task(pairs, lambda pair: len(pair.video), draw, losses)


def batch_sum(scores: torch.Tensor) -> torch.Tensor:
    """Return the sum of what is not padding, so that its gradient is finite."""
    return scores[scores.isfinite()].sum()


def score_pairs(network: Detector, pairs: Sequence[Pair], *, at_once: int = AT_ONCE) -> Matrix:
    """Return (N,): the score of each clip with its own text; how many are scored together changes nothing."""
    device = next(network.parameters()).device
    network.eval()
    scores: list[Matrix] = [np.empty(0, dtype=np.float32)]
    with torch.inference_mode():
        for first in range(0, len(pairs), at_once):
            batch = collate_pairs(pairs[first : first + at_once]).to(device)
            scores.append(network.own(batch).float().cpu().numpy())
    return np.concatenate(scores)
