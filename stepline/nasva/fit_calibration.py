"""Fitting P(shown): to a benchmark's truth with its quality on other videos, or without any truth.
Letters: N texts.

Without truth (`calibrate_by_foreign_texts`): the video shows nothing of foreign texts
(`unshown_texts.py`), so their scores are those of texts that are not shown. A video's own texts are
a mixture of these and of shown ones, of which `rate` is the fraction:

    P(shown | scores) = 1 - (1 - rate) p(scores | foreign) / p(scores | own)

The ratio of the two densities comes from a logistic regression that tells own from foreign texts
(Elkan and Noto 2008, learning from positive and unlabelled examples, with the roles turned), the
rate from Storey's estimate of the fraction of true null hypotheses (2002). It leans low where
foreign texts are easier to refuse than own ones that are not shown. Own and foreign texts are
scored beside each other: what a text's rivals are would else tell the two sets apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stepline.errors import DatasetError
from stepline.evaluate.calibration import LEAST, Flags, Logistic, calibration_error, fit_logistic
from stepline.evaluate.ranking import roc_auc
from stepline.grounding.said_to_shown import Array
from stepline.nasva.align import TextScores
from stepline.nasva.benchmarks import (
    MODES,
    AlignmentQuestion,
    BenchmarkInputs,
    BenchmarkName,
    score_questions,
)
from stepline.nasva.calibration import (
    Calibration,
    calibration_features,
    calibration_path,
    uncalibrated_probability,
    write_calibration,
)
from stepline.nasva.checkpoint import LoadedAligner
from stepline.nasva.settings import AlignerSettings, Mode

FEWEST_VIDEOS = 4  # videos: two to fit and two to judge, both ways


@dataclass(frozen=True)
class CalibrationQuality:
    """ECE and ROC-AUC of P(shown): what stands for it before a fit, and after one to the other half
    of the videos."""

    videos: int
    texts: int
    shown: float
    error_before: float
    error_after: float
    area_before: float
    area_after: float


def calibrate(
    name: BenchmarkName,
    questions: Sequence[AlignmentQuestion],
    loaded: LoadedAligner,
    inputs: BenchmarkInputs,
    settings: AlignerSettings,
) -> tuple[CalibrationQuality, dict[str, str]]:
    """Fit P(shown) to all videos, store it beside the network, and return its quality and why
    videos are missing.

    Raises DatasetError where the truth is hidden, and with too few texts of either kind in a half
    of the videos.
    """
    if any(question.shown is None for question in questions):
        raise DatasetError(
            f"the truth of these videos of {name} is hidden; calibrate on others, such as val_seen"
        )
    settings = settings.model_copy(update={"mode": MODES[name]})
    answers = score_questions(questions, loaded, inputs, settings)
    looks = []
    for question in questions:
        if question.id in answers.by_id:
            looks.append((answers.by_id[question.id], np.array(question.shown, dtype=bool)))
    if len(looks) < FEWEST_VIDEOS:
        raise DatasetError(
            f"{len(looks)} videos with features and texts; a calibration needs {FEWEST_VIDEOS} at least"
        )
    quality = cross_validate(looks)
    modes: Mapping[Mode, Logistic] = loaded.calibration.modes if loaded.calibration else {}
    calibration = Calibration(loaded.sha256, {**modes, settings.mode: _fitted(looks)})
    write_calibration(calibration, calibration_path(loaded.path))
    return quality, answers.missing


def cross_validate(looks: Sequence[tuple[TextScores, Flags]]) -> CalibrationQuality:
    """Return how good P(shown) is, each half of the videos judged by a fit to the other.

    Raises DatasetError with too few texts of either kind in a half.
    """
    halves = looks[::2], looks[1::2]
    for half in halves:
        flags = np.concatenate([shown for _, shown in half])
        count, absent = int(flags.sum()), int((~flags).sum())
        if min(count, absent) < LEAST:
            counts = f"{count} texts shown and {absent} not in a half of the videos"
            raise DatasetError(
                f"{counts}; each half, fitted to judge the other, needs {LEAST} of each kind: add videos"
            )
    after = []
    for fitted, judged in (halves, halves[::-1]):
        logistic = _fitted(fitted)
        after += [
            (logistic(calibration_features(fit)), shown.astype(np.float64)) for fit, shown in judged
        ]
    before = np.concatenate([uncalibrated_probability(fit) for fit, _ in looks])
    truth = np.concatenate([shown for _, shown in looks])
    p, known = (np.concatenate(parts) for parts in zip(*after, strict=True))
    return CalibrationQuality(
        videos=len(looks),
        texts=len(truth),
        shown=float(truth.mean()),
        error_before=calibration_error(truth, before),
        error_after=calibration_error(known.astype(bool), p),
        area_before=roc_auc(truth.astype(np.float64), before),
        area_after=roc_auc(known, p),
    )


def _fitted(looks: Sequence[tuple[TextScores, Flags]]) -> Logistic:
    return fit_logistic(
        np.concatenate([calibration_features(fit) for fit, _ in looks]),
        np.concatenate([s for _, s in looks]),
    )


VERDICT_DRAWS = 16  # of each text's verdict; the regression is fitted to all of them
SUREST = 0.999  # no text is surely own, or surely foreign


def calibrate_by_foreign_texts(
    loaded: LoadedAligner,
    fits: Iterable[tuple[TextScores, TextScores]],
    *,
    mode: Mode = "step",
    rate: float | None = None,
) -> tuple[Calibration, float]:
    """Return a calibration of the network and the share of own texts that it takes for shown.

    fits: how the texts of each video fit it alone, and beside foreign ones, which stand behind
    them; one video's are held at a time. rate: that share, where it is known.
    Raises DatasetError with too few texts, or where own texts fit no better than foreign ones.
    """
    alone, beside, foreign = [], [], []
    for own, both in fits:
        count, rows = len(own.scores), calibration_features(both)
        alone.append(calibration_features(own))
        beside.append(rows[:count])
        foreign.append(rows[count:])
    evidence = (np.concatenate(rows) for rows in (alone, beside, foreign))
    logistic, share = fit_by_foreign_evidence(*evidence, rate=rate)
    return Calibration(loaded.sha256, {mode: logistic}), share


def fit_by_foreign_evidence(
    alone: Array, own: Array, foreign: Array, *, rate: float | None = None
) -> tuple[Logistic, float]:
    """Return P(shown) of evidence (N, E) like `alone`, and the share of it that is taken for shown.

    own: (N, E) of the same texts, as it is told from that of foreign ones (M, E).
    """
    known = np.arange(len(own) + len(foreign)) < len(own)
    apart = fit_logistic(np.concatenate([own, foreign]), known)
    own_p, null_p = apart(own), apart(foreign)
    share = shown_fraction(own_p, null_p) if rate is None else rate
    if not 0 < share < 1:
        reason = f"the share of shown texts comes out as {share:.2f}"
        raise DatasetError(f"{reason}, so P(shown) cannot be told; give the rate, or train longer")
    p = shown_probability(own_p, len(own) / len(foreign), share)
    drawn = np.random.default_rng(2008).random((VERDICT_DRAWS, len(p))) < p
    return fit_logistic(np.tile(alone, (VERDICT_DRAWS, 1)), drawn.ravel()), share


def shown_fraction(own: Array, foreign: Array) -> float:
    """Return 1 - 2 P(an own text looks more foreign than half of the foreign ones do): Storey's,
    lambda 0.5."""
    return float(np.clip(1 - 2 * np.mean(own < np.median(foreign)), 0.0, 1.0))


def shown_probability(own: Array, odds: float, rate: float) -> Array:
    """Return P(shown) (N,) of own texts from P(own); odds: own texts to foreign ones in the fit.
    Mean near `rate`."""
    own = np.clip(own, 1 - SUREST, SUREST)
    ratio = (1 - own) / own * odds  # p(evidence | foreign) / p(evidence | own)
    return np.asarray(np.clip(1 - (1 - rate) * ratio, 0.0, 1.0))
