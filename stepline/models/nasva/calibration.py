"""Calibrated P(a text is shown at all): a logistic regression on features of the text's row of
scores.

The best cosine alone says little, because its level differs between texts and between trainings. It
says more how far the best row stands out, which is measured in six ways (`compute_calibration_features`).
One regression per mode is fitted on held-out videos whose truth is known (`fit_calibration`) and
stored next to the network's file. Letters: K texts, T feature rows.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.errors import ModelError
from stepline.evaluate.calibration import LogisticRegression, read_logistic
from stepline.files.atomic_files import write_atomic
from stepline.grounding.said_to_shown import Array
from stepline.limits import parse_json
from stepline.models.nasva.align import TextScores
from stepline.models.nasva.settings import Mode
from stepline.numeric import sigmoid, softmax

FEATURE_NAMES = ("best", "rise", "spread", "lead", "uncontested", "alignable")
SCORE_TEMPERATURE = 0.07  # NaSVA section 4.2
NEAR_ROWS = 8  # around the best one among which no second-best is sought; NaSVA's 8 s


@dataclass(frozen=True)
class Calibration:
    """Logistic regressions that turn calibration features into P(shown).

    Attributes:
        aligner_sha256: sha256 of the network's file that they were fitted on.
        modes: one regression for steps, one for narrations.
    """

    aligner_sha256: str
    modes: Mapping[Mode, LogisticRegression]


def compute_calibration_features(text_scores: TextScores) -> Array:
    """Return six features of each of K texts, (K, 6), from which a logistic regression predicts
    P(shown).

    best: the text's highest cosine
    rise: best minus the median of the text's cosines
    spread: entropy of the softmax over the text's cosines, scaled to 0 to 1
    lead: best minus the best cosine more than `NEAR_ROWS` rows away
    uncontested: best minus the best cosine of another text in the same feature row
    alignable: logit of the network's alignability head, 0 without a head

    text_scores: the network's cosines of K texts and T feature rows.
    """
    # How high the best row is, and how far above the median.
    scores = text_scores.scores.astype(np.float64)
    texts, rows = scores.shape
    at = scores.argmax(axis=1)
    text = np.arange(texts)
    best = scores[text, at]
    rise = best - np.median(scores, axis=1)

    # How spread out the row is. The maximum of the entropy is log T.
    p = softmax(scores / SCORE_TEMPERATURE)
    spread = -(p * np.log(p + 1e-12)).sum(axis=1) / max(1e-9, np.log(rows))

    # How far ahead of rows elsewhere. -1 is the least cosine.
    distance = np.abs(np.arange(rows) - at[:, None])
    lead = best - np.where(distance > NEAR_ROWS, scores, -1.0).max(axis=1)

    # How far ahead of the other texts in its best row.
    others = scores[:, at].copy()  # (K, K) others[j, k]: text j in the best row of text k
    others[text, text] = -1.0
    uncontested = best - others.max(axis=0, initial=-1.0)

    # What the network's own head says.
    alignable = (
        np.zeros(texts)
        if text_scores.alignability_logits is None
        else text_scores.alignability_logits.astype(np.float64)
    )
    return np.stack([best, rise, spread, lead, uncontested, alignable], axis=1)


def estimate_uncalibrated(text_scores: TextScores) -> Array:
    """Return a stand-in for P(shown) without a calibration, (K,): the probability of the
    alignability head, else the best cosine, at least 0."""
    if text_scores.alignability_logits is not None:
        return sigmoid(text_scores.alignability_logits.astype(np.float64))
    return np.asarray(np.clip(text_scores.scores.max(axis=1), 0.0, 1.0), dtype=np.float64)


def estimate_shown_fraction(
    own: npt.NDArray[np.floating], foreign: npt.NDArray[np.floating]
) -> float:
    """Return an estimate of the fraction of own texts that are shown, in [0, 1]: 1 - 2 P(a score of
    `own` < median of `foreign`).

    Args:
        own: scores of texts of the video.
        foreign: scores of texts of other videos, which are not shown.

    Source: Storey's estimate of the share of true null hypotheses (2002) with lambda 0.5.
    """
    return float(np.clip(1 - 2 * np.mean(own < np.median(foreign)), 0.0, 1.0))


def calibration_path(aligner: Path) -> Path:
    """Return the path of the calibration next to a network's file."""
    return aligner.with_name(f"{aligner.stem}.shown.json")


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration as JSON."""
    modes = {mode: asdict(logistic) for mode, logistic in calibration.modes.items()}
    tree = {
        "kind": "stepline.nasva.shown",
        "aligner": calibration.aligner_sha256,
        "evidence": FEATURE_NAMES,
        "modes": modes,
    }
    write_atomic(path, json.dumps(tree, indent=1) + "\n")


def read_calibration(path: Path, aligner_sha256: str) -> Calibration | None:
    """Return the calibration in a file, or None when there is no file.

    aligner_sha256: sha256 of the network's file. Raises ModelError for a damaged file, and for a
    calibration of another network.
    """
    if not path.exists():
        return None
    try:
        tree = parse_json(path.read_bytes())
        modes = {
            mode: read_logistic(part, len(FEATURE_NAMES)) for mode, part in tree["modes"].items()
        }
        if tuple(tree["evidence"]) != FEATURE_NAMES:
            raise ValueError(f"evidence {tree['evidence']}")
        calibration = Calibration(tree["aligner"], modes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{path}: not a calibration ({error}); fit it again with `stepline train calibrate`"
        ) from error
    if calibration.aligner_sha256 != aligner_sha256:
        other = calibration.aligner_sha256[:12]
        raise ModelError(
            f"{path}: fitted on another network, of sha256 {other}; fit it again with `stepline "
            "train calibrate`, or remove it"
        )
    return calibration
