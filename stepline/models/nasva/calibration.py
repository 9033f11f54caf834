"""P(a text is shown at all), calibrated: a logistic regression on features of its row of scores.

The best cosine alone says little: it differs from text to text, and from one training to the next.
What says more is how far the best row stands out, measured in six ways (`calibration_features`).
The regression is fitted on held-out videos whose truth is known, one a mode (`fit_calibration`),
and stored next to the network that it belongs to. Letters: K texts, T rows, N texts of many videos.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.errors import ModelError
from stepline.evaluate.calibration import Logistic, read_logistic
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
    """One logistic regression per mode. aligner: sha256 of the network's file that they were fitted
    on."""

    aligner: str
    modes: Mapping[Mode, Logistic]


def calibration_features(fit: TextScores) -> Array:
    """Return what the regression reads of each text's row of scores, (K, 6).

    best: its highest cosine.
    rise: of that above the median.
    spread: entropy of the softmax, 0 to 1.
    lead: of the best over the best more than `NEAR_ROWS` rows off.
    uncontested: of the best over other texts' scores in the same row.
    alignable: the head's logit, 0 without one.
    """
    # How high the best row is, and how far above the median.
    scores = fit.scores.astype(np.float64)
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
    alignable = np.zeros(texts) if fit.alignable is None else fit.alignable.astype(np.float64)
    return np.stack([best, rise, spread, lead, uncontested, alignable], axis=1)


def uncalibrated_probability(fit: TextScores) -> Array:
    """Return what stands for P(shown) where nothing was fitted: the head's, else the best cosine,
    none below 0."""
    if fit.alignable is not None:
        return sigmoid(fit.alignable.astype(np.float64))
    return np.asarray(np.clip(fit.scores.max(axis=1), 0.0, 1.0), dtype=np.float64)


def shown_fraction(own: npt.NDArray[np.floating], foreign: npt.NDArray[np.floating]) -> float:
    """Return 1 - 2 P(an own text's number < median of the foreign ones'), in [0, 1].

    Source: Storey's estimate of the share of true null hypotheses (2002) with lambda 0.5.
    """
    below = np.mean(own < np.median(foreign))
    return float(np.clip(1 - 2 * below, 0.0, 1.0))


def calibration_path(aligner: Path) -> Path:
    """Return where the calibration of a network's file lies."""
    return aligner.with_name(f"{aligner.stem}.shown.json")


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration as JSON."""
    modes = {mode: asdict(logistic) for mode, logistic in calibration.modes.items()}
    tree = {
        "kind": "stepline.nasva.shown",
        "aligner": calibration.aligner,
        "evidence": FEATURE_NAMES,
        "modes": modes,
    }
    write_atomic(path, json.dumps(tree, indent=1) + "\n")


def read_calibration(path: Path, aligner: str) -> Calibration | None:
    """Return the calibration in a file, None where there is no file.

    aligner: sha256 of the network's file. Raises ModelError for damage, or one fitted on another
    network.
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
    if calibration.aligner != aligner:
        other = calibration.aligner[:12]
        cure = "fit it again with `stepline train calibrate`, or remove it"
        raise ModelError(f"{path}: fitted on another network, of sha256 {other}; {cure}")
    return calibration
