"""P(a text is shown at all), calibrated: a logistic regression on what its row of scores looks like.

The best cosine alone says little: it differs from text to text, and from one training to the next. What tells more is
how far the best row stands out, measured in six ways (`evidence`). It is fitted on held-out videos whose truth is
known, one a mode, and kept beside the network that it belongs to. Letters: K texts, T rows, N texts of many videos.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError, ModelError
from stepline.nasva.aligner_settings import Mode
from stepline.nasva.infer.align import Fit
from stepline.nasva.infer.order import softmax
from stepline.nasva.prior import Array
from stepline.store import write_atomic

NAMES = ("best", "rise", "spread", "lead", "uncontested", "alignable")
TEMPERATURE = 0.07   # NaSVA section 4.2
NEAR = 8             # rows around the best one that are no second place; NaSVA's 8 s
RIDGE = 1.0          # of the weights, in standard deviations; keeps them finite where a feature separates all
STEPS = 50           # of Newton's method; it ends in ten
LEAST = 20           # texts of each kind that a fit needs

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Logistic:
    """P = 1 / (1 + exp(-(bias + weights . (x - mean) / deviation)))."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float

    def __call__(self, rows: Array) -> Array:
        """Return P(shown) (N,) of evidence (N, 6)."""
        scaled = (rows - np.array(self.mean)) / np.array(self.deviation)
        return np.asarray(1 / (1 + np.exp(-(self.bias + scaled @ np.array(self.weights)))))


@dataclass(frozen=True)
class Calibration:
    """One logistic regression a mode; aligner: sha256 of the network's file that they were fitted on."""

    aligner: str
    modes: Mapping[Mode, Logistic]


def evidence(fit: Fit) -> Array:
    """Return what each row of scores looks like, (K, 6).

    best: its highest cosine; rise: of that above the median; spread: entropy of the softmax, 0 to 1; lead: of the best
    over the best more than `NEAR` rows off; uncontested: of the best over other texts' scores in the same row;
    alignable: the head's logit, 0 without one.
    """
    scores = fit.scores.astype(np.float64)
    texts, rows = scores.shape
    at, place = scores.argmax(axis=1), np.arange(texts)
    best = scores[place, at]
    p = softmax(scores / TEMPERATURE)
    spread = -(p * np.log(p + 1e-12)).sum(axis=1) / max(1e-9, np.log(rows))
    far = np.abs(np.arange(rows) - at[:, None]) > NEAR
    second = np.where(far, scores, -1.0).max(axis=1)
    others = scores[:, at].copy()   # (K, K) others[j, k]: text j in the best row of text k
    others[place, place] = -1.0
    alignable = np.zeros(texts) if fit.alignable is None else fit.alignable.astype(np.float64)
    rival = others.max(axis=0, initial=-1.0)
    return np.stack([best, best - np.median(scores, axis=1), spread, best - second, best - rival, alignable], axis=1)


def uncalibrated(fit: Fit) -> Array:
    """Return what stands for P(shown) where nothing was fitted: the head's, else the best cosine, none below 0."""
    if fit.alignable is not None:
        return np.asarray(1 / (1 + np.exp(-fit.alignable.astype(np.float64))))
    return np.asarray(np.clip(fit.scores.max(axis=1), 0.0, 1.0), dtype=np.float64)


def fit_calibration(rows: Array, shown: Flags) -> Logistic:
    """Return the regression fitted to texts with evidence (N, 6) and known truth (N,).

    Raises DatasetError with fewer than `LEAST` texts of either kind.
    """
    kinds = int(shown.sum()), int((~shown).sum())
    if min(kinds) < LEAST:
        counts = f"{kinds[0]} texts shown and {kinds[1]} not"
        raise DatasetError(f"{counts}; a calibration needs {LEAST} of each: add videos")
    mean, deviation = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-6)
    scaled = np.column_stack([(rows - mean) / deviation, np.ones(len(rows))])   # (N, 7), the last is the bias
    weights = np.zeros(scaled.shape[1])
    ridge = np.diag([RIDGE] * (scaled.shape[1] - 1) + [0.0])
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-(scaled @ weights)))
        slope = scaled.T @ (shown - p) - ridge @ weights
        curve = (scaled * (p * (1 - p))[:, None]).T @ scaled + ridge
        step = np.linalg.solve(curve + 1e-9 * np.eye(len(weights)), slope)
        weights = weights + step
        if np.abs(step).max() < 1e-8:
            break
    return Logistic(_plain(mean), _plain(deviation), _plain(weights[:-1]), float(weights[-1]))


def calibration_error(shown: Flags, p: Array, bins: int = 10) -> float:
    """Return ECE: mean distance of stated P from how often it was so, over equal bins of P, weighted by their texts."""
    bin_of = np.minimum((p * bins).astype(np.int64), bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    gap = np.bincount(bin_of, weights=p - shown, minlength=bins)
    return float(np.abs(gap).sum() / max(1, count.sum()))


def calibration_path(aligner: Path) -> Path:
    """Return where the calibration of a network's file lies."""
    return aligner.with_name(f"{aligner.stem}.shown.json")


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration as JSON."""
    modes = {mode: asdict(logistic) for mode, logistic in calibration.modes.items()}
    tree = {"kind": "stepline.nasva.shown", "aligner": calibration.aligner, "evidence": NAMES, "modes": modes}
    write_atomic(path, json.dumps(tree, indent=1) + "\n")


def read_calibration(path: Path, aligner: str) -> Calibration | None:
    """Return the calibration in a file, None where there is no file.

    aligner: sha256 of the network's file. Raises ModelError for damage, or one fitted on another network.
    """
    if not path.exists():
        return None
    try:
        tree = json.loads(path.read_bytes())
        modes = {mode: _logistic(part) for mode, part in tree["modes"].items()}
        if tuple(tree["evidence"]) != NAMES:
            raise ValueError(f"evidence {tree['evidence']}")
        calibration = Calibration(tree["aligner"], modes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: not a calibration ({error}); fit it again with `stepline calibrate`") from error
    if calibration.aligner != aligner:
        cure = "fit it again with `stepline calibrate`, or remove it"
        raise ModelError(f"{path}: fitted on another network, of sha256 {calibration.aligner[:12]}; {cure}")
    return calibration


def _logistic(tree: Mapping[str, Sequence[float] | float]) -> Logistic:
    columns = [np.asarray(tree[name], dtype=np.float64) for name in ("mean", "deviation", "weights", "bias")]
    sizes = [column.shape for column in columns]
    if sizes != [(len(NAMES),)] * 3 + [()] or not all(np.isfinite(column).all() for column in columns):
        raise ValueError(f"numbers of shapes {sizes}")
    return Logistic(_plain(columns[0]), _plain(columns[1]), _plain(columns[2]), float(columns[3]))


def _plain(values: Array) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
