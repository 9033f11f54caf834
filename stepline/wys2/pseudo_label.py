"""Pseudo-labels: the detector labels clips that nobody labelled and is trained anew on all (WYS2, section 3.1).

The paper leaves open when V(v, t) = 1; here the threshold is the one that tells labelled validation clips apart best,
or a share of the unlabelled clips.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from stepline.batches import Flags
from stepline.errors import DatasetError
from stepline.evaluate.ranking import roc_auc
from stepline.records import Matrix
from stepline.wys2.model import Detector
from stepline.wys2.pairs import Pair
from stepline.wys2.settings import PseudoSettings
from stepline.wys2.train import score_pairs

log = logging.getLogger(__name__)

Trainer: TypeAlias = Callable[[Sequence[Pair], int], Detector]  # the pairs and the round, 0 without pseudo-labels


@dataclass(frozen=True)
class Validation:
    """Clips kept back: positive as their labels say, the rest not known to be. positive: (N,) bool."""

    pairs: Sequence[Pair]
    positive: Flags


@dataclass(frozen=True)
class Round:
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
class Labelled:
    """The last detector, and the report of every round."""

    detector: Detector
    rounds: tuple[Round, ...]


def pseudo_label(
    labelled: Sequence[Pair],
    unlabelled: Sequence[Pair],
    validation: Validation,
    train: Trainer,
    settings: PseudoSettings | None = None,
    truth: Flags | None = None,
) -> Labelled:
    """Return the detector trained on labelled and pseudo-labelled pairs, after `settings.rounds` rounds.

    truth: (len(unlabelled),) bool, for the report alone. Raises DatasetError without unlabelled clips, when the
    validation clips are of one class, or when no clip reaches the threshold.
    """
    settings = settings or PseudoSettings()
    if not unlabelled:
        raise DatasetError("no unlabelled clip; pseudo-labels need videos without key-steps")
    network = train(labelled, 0)
    rounds = [Round(0, len(labelled), 0, len(unlabelled), None, _auc(network, validation))]
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
        rounds.append(Round(number, len(labelled) + len(kept), len(kept), len(unlabelled), threshold, auc, precision))
    return Labelled(network, tuple(rounds))


def choose_threshold(scores: Matrix, held: Matrix, positive: Flags, settings: PseudoSettings) -> float:
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


def _auc(network: Detector, validation: Validation) -> float:
    return roc_auc(validation.positive.astype(np.float64), score_pairs(network, validation.pairs))
