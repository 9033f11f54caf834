"""Fitting P(shown) to a benchmark's truth, and how good it is on videos that it was not fitted to. Letters: N texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stepline.errors import DatasetError
from stepline.evaluate.calibration import LEAST, Flags, Logistic, calibration_error, fit_logistic
from stepline.evaluate.ranking import roc_auc
from stepline.nasva.aligner_settings import AlignerSettings, Mode
from stepline.nasva.infer.align import Fit
from stepline.nasva.infer.benchmarks import MODES, Asked, BenchmarkName, Given, fits
from stepline.nasva.infer.load import Loaded
from stepline.nasva.infer.shown import Calibration, calibration_path, evidence, uncalibrated, write_calibration
from stepline.nasva.prior import Array

FEWEST = 4  # videos: two to fit and two to judge, both ways


@dataclass(frozen=True)
class Quality:
    """ECE and ROC-AUC of P(shown): what stands for it before a fit, and after one to the other half of the videos."""

    videos: int
    texts: int
    shown: float
    error_before: float
    error_after: float
    area_before: float
    area_after: float


def calibrate(
    name: BenchmarkName, asked: Sequence[Asked], loaded: Loaded, given: Given, settings: AlignerSettings
) -> tuple[Quality, dict[str, str]]:
    """Fit P(shown) to all videos, store it beside the network, and return its quality and why videos are missing.

    Raises DatasetError with too few texts of either kind in a half of the videos.
    """
    settings = settings.model_copy(update={"mode": MODES[name]})
    missing: dict[str, str] = {}
    looks = [(fit, np.array(one.shown, dtype=bool)) for one, fit in fits(asked, loaded, given, settings, missing)]
    if len(looks) < FEWEST:
        raise DatasetError(f"{len(looks)} videos with features and texts; a calibration needs {FEWEST} at least")
    quality = judge(looks)
    modes: Mapping[Mode, Logistic] = loaded.calibration.modes if loaded.calibration else {}
    calibration = Calibration(loaded.sha256, {**modes, settings.mode: _fitted(looks)})
    write_calibration(calibration, calibration_path(loaded.path))
    return quality, missing


def judge(looks: Sequence[tuple[Fit, Flags]]) -> Quality:
    """Return how good P(shown) is, each half of the videos judged by a fit to the other.

    Raises DatasetError with too few texts of either kind in a half.
    """
    halves = looks[::2], looks[1::2]
    for half in halves:
        _check_half(half)
    after = [_stated(judged, _fitted(fitted)) for fitted, judged in (halves, halves[::-1])]
    before = np.concatenate([uncalibrated(fit) for fit, _ in looks])
    truth = np.concatenate([shown for _, shown in looks])
    p, known = (np.concatenate(parts) for parts in zip(*after, strict=True))
    return Quality(
        videos=len(looks),
        texts=len(truth),
        shown=float(truth.mean()),
        error_before=calibration_error(truth, before),
        error_after=calibration_error(known.astype(bool), p),
        area_before=roc_auc(truth.astype(np.float64), before),
        area_after=roc_auc(known, p),
    )


def _check_half(looks: Sequence[tuple[Fit, Flags]]) -> None:
    """Raise DatasetError where a half of the videos has too few texts of either kind for a fit."""
    known = np.concatenate([shown for _, shown in looks])
    shown, absent = int(known.sum()), int((~known).sum())
    if min(shown, absent) < LEAST:
        counts = f"{shown} texts shown and {absent} not in a half of the videos"
        raise DatasetError(f"{counts}; each half, fitted to judge the other, needs {LEAST} of each kind: add videos")


def _fitted(looks: Sequence[tuple[Fit, Flags]]) -> Logistic:
    return fit_logistic(np.concatenate([evidence(fit) for fit, _ in looks]), np.concatenate([s for _, s in looks]))


def _stated(looks: Sequence[tuple[Fit, Flags]], logistic: Logistic) -> tuple[Array, Array]:
    p = np.concatenate([logistic(evidence(fit)) for fit, _ in looks])
    return p, np.concatenate([shown for _, shown in looks]).astype(np.float64)
