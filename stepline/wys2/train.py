"""Training the detector: what `stepline.training.fit` learns here (WYS2, section 3.2).

Pseudo-labels: the detector labels clips that nobody labelled and is trained anew on all (WYS2, section 3.1).

The paper leaves open when V(v, t) = 1; here the threshold is the one that tells labelled validation clips apart best,
or a share of the unlabelled clips.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from stepline.errors import DatasetError
from stepline.evaluate.ranking import roc_auc
from stepline.records import Matrix
from stepline.training.batches import Mask
from stepline.training.loop import Loss, Progress, TrainingTask, fit
from stepline.training.settings import TrainSettings
from stepline.wys2.clips import ClipTextPair, collate_pairs
from stepline.wys2.detector import Detector, contrastive_loss
from stepline.wys2.settings import TRAINING, ContrastSettings, DetectorSettings, PseudoSettings

log = logging.getLogger(__name__)

AT_ONCE = 512  # pairs that are scored together


def train_detector(
    pairs: Sequence[ClipTextPair],
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


def detector_task(pairs: Sequence[ClipTextPair], settings: ContrastSettings) -> TrainingTask[ClipTextPair]:
    """Return what training learns; a batch that is left with one pair, the last of an epoch, teaches nothing."""

    def losses(network: nn.Module, chosen: Sequence[ClipTextPair]) -> list[Loss]:
        batch = collate_pairs(chosen).to(next(network.parameters()).device)
        scores = network(batch)
        if len(chosen) < 2:
            return [Loss(0 * batch_sum(scores), torch.tensor(0.0))]
        return [contrastive_loss(scores, settings)]

    def augment(chosen: Sequence[ClipTextPair], rng: np.random.Generator) -> list[ClipTextPair]:
        return [chosen[index] for index in rng.permutation(len(chosen))]

    return TrainingTask(pairs, lambda pair: len(pair.video), augment, losses)


def batch_sum(scores: torch.Tensor) -> torch.Tensor:
    """Return the sum of what is not padding, so that its gradient is finite."""
    return scores[scores.isfinite()].sum()


def score_pairs(network: Detector, pairs: Sequence[ClipTextPair], *, at_once: int = AT_ONCE) -> Matrix:
    """Return (N,): the score of each clip with its own text; how many are scored together changes nothing."""
    device = next(network.parameters()).device
    network.eval()
    scores: list[Matrix] = [np.empty(0, dtype=np.float32)]
    with torch.inference_mode():
        for first in range(0, len(pairs), at_once):
            batch = collate_pairs(pairs[first : first + at_once]).to(device)
            scores.append(network.own(batch).float().cpu().numpy())
    return np.concatenate(scores)


TrainOnPairs: TypeAlias = Callable[
    [Sequence[ClipTextPair], int], Detector
]  # the pairs and the round, 0 without pseudo-labels


@dataclass(frozen=True)
class ValidationClips:
    """Clips kept back: positive as their labels say, the rest not known to be. positive: (N,) bool."""

    pairs: Sequence[ClipTextPair]
    positive: Mask


@dataclass(frozen=True)
class TrainingRound:
    """What one training saw and gave.

    pairs: how many it was trained on; kept: of these, pseudo-labelled; of: unlabelled clips; threshold: None in round
    0; auc: on the validation clips' labels; precision: of the pseudo-labels, where the truth is known.
    """

    number: int
    pairs: int
    kept: int
    of: int
    threshold: float | None
    auc: float
    precision: float | None = None


@dataclass(frozen=True)
class TrainedDetector:
    """The last detector, and the report of every round."""

    detector: Detector
    rounds: tuple[TrainingRound, ...]


def train_with_pseudo_labels(
    labelled: Sequence[ClipTextPair],
    unlabelled: Sequence[ClipTextPair],
    validation: ValidationClips,
    train: TrainOnPairs,
    settings: PseudoSettings | None = None,
    truth: Mask | None = None,
) -> TrainedDetector:
    """Return the detector trained on labelled and pseudo-labelled pairs, after `settings.rounds` rounds.

    truth: (len(unlabelled),) bool, for the report alone. Raises DatasetError without unlabelled clips, when the
    validation clips are of one class, or when no clip reaches the threshold.
    """
    settings = settings or PseudoSettings()
    if not unlabelled:
        raise DatasetError("no unlabelled clip; pseudo-labels need videos without key-steps")
    network = train(labelled, 0)
    rounds = [TrainingRound(0, len(labelled), 0, len(unlabelled), None, _auc(network, validation))]
    for number in range(1, settings.rounds + 1):
        scores = score_pairs(network, unlabelled)
        threshold = choose_threshold(scores, score_pairs(network, validation.pairs), validation.positive, settings)
        kept = np.flatnonzero(scores >= threshold).tolist()
        if not len(kept):
            raise DatasetError(
                f"none of {len(unlabelled)} unlabelled clips reaches {threshold:.3g}; take pseudo.threshold=share"
            )
        log.info("round %d: %d of %d unlabelled clips kept", number, len(kept), len(unlabelled))
        network = train([*labelled, *(unlabelled[row] for row in kept)], number)
        precision = None if truth is None else float(truth[kept].mean())
        auc = _auc(network, validation)
        rounds.append(
            TrainingRound(number, len(labelled) + len(kept), len(kept), len(unlabelled), threshold, auc, precision)
        )
    return TrainedDetector(network, tuple(rounds))


def choose_threshold(scores: Matrix, held: Matrix, positive: Mask, settings: PseudoSettings) -> float:
    """Return the score from which a clip counts as positive.

    scores: (U,) of unlabelled clips; held: (N,) of validation clips, labelled by `positive`.
    """
    if settings.threshold == "share":
        return float(np.quantile(scores, 1 - settings.share))
    if not positive.any() or positive.all():
        only = "no" if not positive.any() else "nothing but a"
        raise DatasetError(f"{only} positive among {len(positive)} validation clips; a threshold needs both classes")
    order = np.argsort(-held, kind="stable")
    right = np.cumsum(positive[order])
    f1 = 2 * right / (np.arange(1, len(held) + 1) + positive.sum())
    last = np.append(np.diff(held[order]) != 0, True)  # of equal scores, all are above the threshold or none
    return float(held[order][int(np.where(last, f1, -1.0).argmax())])


def _auc(network: Detector, validation: ValidationClips) -> float:
    return roc_auc(validation.positive.astype(np.float64), score_pairs(network, validation.pairs))
