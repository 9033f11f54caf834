"""Pseudo-labels (WYS2, section 3.1): a detector labels unlabelled clips, and a new one is trained
on all clips.

For instance, `choose_threshold` by best F1, of 4 validation clips sorted by score:

    score    label       F1 if clips from here up count as positive
    0.9      positive    2 x 1 / (1 + 2) = 0.67
    0.7      other       2 x 1 / (2 + 2) = 0.5
    0.6      positive    2 x 2 / (3 + 2) = 0.8      the best, so the threshold is 0.6
    0.4      other       2 x 2 / (4 + 2) = 0.67
    unlabelled clips with 0.8 and 0.5: the first is kept as positive, the second is not

The paper leaves open when V(v, t) = 1. Here the threshold is the score that best separates labelled
validation clips, or the one that keeps a fraction of the unlabelled clips. Letters: N validation
clips, U unlabelled clips.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from stepline.errors import DatasetError
from stepline.evaluate.ranking import roc_auc
from stepline.models.training.batches import Mask, join_samples
from stepline.models.wys2.clips import ClipTextPair, count_clip_rows
from stepline.models.wys2.detector import Detector, score_pairs
from stepline.models.wys2.settings import PseudoSettings
from stepline.models.wys2.unlabelled import References, UnlabelledClips
from stepline.records import Matrix

log = logging.getLogger(__name__)

# pairs and round, 0 without pseudo-labels
TrainOnPairs: TypeAlias = Callable[[Sequence[ClipTextPair], int], Detector]


@dataclass(frozen=True)
class ValidationClips:
    """Clips that no network is trained on.

    Attributes:
        pairs: N clips with their own texts.
        positive: (N,) whether the label of each is positive.
    """

    pairs: Sequence[ClipTextPair]
    positive: Mask

    def compute_auc(self, network: Detector) -> float:
        """Return the ROC-AUC of a network's scores on the labels."""
        return roc_auc(self.positive.astype(np.float64), score_pairs(network, self.pairs))


@dataclass(frozen=True)
class TrainingRound:
    """Report of a round of training.

    Attributes:
        number: of the round. Round 0 has no pseudo-labels.
        pairs: number of clips that it was trained on.
        pseudo_labelled: how many of them have a pseudo-label.
        of: number of unlabelled clips.
        threshold: score from which a clip got a pseudo-label. None: round 0.
        auc: ROC-AUC on the validation clips.
        precision: of the pseudo-labels, where the truth is known.
    """

    number: int
    pairs: int
    pseudo_labelled: int
    of: int
    threshold: float | None
    auc: float
    precision: float | None = None

    def as_row(self) -> dict[str, float | None]:
        """Return the round as run.json has it."""
        return {
            "number": self.number,
            "pairs": self.pairs,
            "kept": self.pseudo_labelled,
            "of": self.of,
            "threshold": self.threshold,
            "auc": self.auc,
            "precision": self.precision,
        }


@dataclass(frozen=True)
class TrainedDetector:
    """A detector in evaluation mode after the last round, and the report of every round."""

    detector: Detector
    rounds: tuple[TrainingRound, ...]


def train_with_pseudo_labels(
    labelled: Sequence[ClipTextPair],
    unlabelled: UnlabelledClips | None,
    validation: ValidationClips,
    train: TrainOnPairs,
    settings: PseudoSettings | None = None,
    truth: Mask | None = None,
) -> TrainedDetector:
    """Train a detector on labelled clips, then in rounds on labelled and pseudo-labelled ones.

    Args:
        labelled: positive clips.
        unlabelled: clips without labels, which each round reads once. None: no round is made.
        validation: clips that choose the threshold and score each round.
        train: trains a detector on pairs, given the number of the round.
        settings: number of rounds, and how the threshold is chosen.
        truth: (U,) bool, which of U unlabelled clips in memory are positive, for the report only.

    Raises DatasetError when there is no unlabelled clip, when all validation clips have one label,
    or when no clip reaches the threshold.
    """
    settings = settings or PseudoSettings()
    count = 0 if unlabelled is None else len(unlabelled)
    if unlabelled is not None and not count:
        raise DatasetError("no unlabelled clip; pseudo-labels need videos without key-steps")
    positive_count = int(validation.positive.sum())
    if unlabelled is None and positive_count in (0, len(validation.positive)):
        raise DatasetError(
            f"all {len(validation.positive)} validation clips are of one class; "
            "give more videos, or other labels"
        )
    # Round 0: the labelled clips alone.
    network = train(labelled, 0)
    rounds = [TrainingRound(0, len(labelled), 0, count, None, validation.compute_auc(network))]
    if unlabelled is None:
        return TrainedDetector(network, tuple(rounds))
    # The last network labels clips, and a new one is trained on all.
    for number in range(1, settings.rounds + 1):
        threshold, positive = choose_clips(network, unlabelled, validation, settings)
        if not len(positive):
            cure = "take pseudo.threshold=share"
            raise DatasetError(f"none of {count} unlabelled clips reaches {threshold:.3g}; {cure}")
        log.info("round %d: %d of %d unlabelled clips kept", number, len(positive), count)
        pairs = join_samples(labelled, unlabelled.get_pairs(positive), count_clip_rows)
        network = train(pairs, number)
        precision = None if truth is None else float(truth[positive].mean())
        auc = validation.compute_auc(network)
        rounds.append(
            TrainingRound(number, len(pairs), len(positive), count, threshold, auc, precision)
        )
    return TrainedDetector(network, tuple(rounds))


def choose_clips(
    network: Detector, clips: UnlabelledClips, validation: ValidationClips, settings: PseudoSettings
) -> tuple[float, References]:
    """Return the threshold, and the references of the unlabelled clips that reach it."""
    by_share = settings.threshold == "share"
    validation_scores = score_pairs(network, validation.pairs)
    scores = np.zeros(0, np.float32)  # of unlabelled clips
    threshold = -np.inf
    # The best F1 needs validation clips only.
    if not by_share:
        threshold = choose_threshold(scores, validation_scores, validation.positive, settings)
    # One pass over the unlabelled clips.
    parts = []
    for block, pairs in clips.iterate_blocks():
        block_scores = score_pairs(network, pairs)
        high = block_scores >= threshold
        parts.append((block_scores[high], block[high]))
    scores, references = (np.concatenate(column) for column in zip(*parts, strict=True))
    if by_share:
        threshold = choose_threshold(scores, validation_scores, validation.positive, settings)
    return threshold, references[scores >= threshold]


def choose_threshold(
    scores: Matrix, validation: Matrix, positive: Mask, settings: PseudoSettings
) -> float:
    """Return the score from which a clip counts as positive.

    Args:
        scores: (U,) of unlabelled clips.
        validation: (N,) scores of validation clips.
        positive: (N,) whether their labels are positive.
        settings: which rule is used.
    """
    if settings.threshold == "share":
        return float(np.quantile(scores, 1 - settings.share))
    if not positive.any() or positive.all():
        what = "nothing but a" if positive.any() else "no"
        clips = f"{len(positive)} validation clips"
        raise DatasetError(f"{what} positive among {clips}; a threshold needs both classes")
    # F1 where the clips down to each one are positive: 2 hits / (selected + positive).
    order = np.argsort(-validation, kind="stable")
    ranked = validation[order]
    hits = np.cumsum(positive[order])
    f1 = 2 * hits / (np.arange(1, len(ranked) + 1) + positive.sum())
    # of equal scores, all are above the threshold or none
    last_of_equals = np.append(np.diff(ranked) != 0, True)
    return float(ranked[int(np.where(last_of_equals, f1, -1.0).argmax())])
