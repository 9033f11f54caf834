"""Fitting P(shown): to a benchmark's truth with its quality on other videos, or without any truth.
Letters: N texts, V videos, K texts of one, D width of the vectors.

Without truth (`calibrate_by_foreign_texts`): the video shows nothing of foreign texts
(`unshown_texts`), so their scores are those of texts that are not shown. A video's own texts are
a mixture of these and of shown ones. `rate` is the fraction of shown ones:

    P(shown | scores) = 1 - (1 - rate) p(scores | foreign) / p(scores | own)

The ratio of the two densities comes from a logistic regression that separates own from foreign
texts. It follows Elkan and Noto 2008, learning from positive and unlabelled examples, with the
roles turned. The rate comes from Storey's estimate of the fraction of true null hypotheses (2002).
It leans low where foreign texts are easier to refuse than own ones that are not shown. Own and
foreign texts are scored together. Otherwise what a text's rivals are would tell the two sets apart.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.calibration import (
    MIN_ITEMS,
    Flags,
    Logistic,
    calibration_error,
    fit_logistic,
)
from stepline.evaluate.ranking import roc_auc
from stepline.grounding.said_to_shown import Array
from stepline.models.nasva.align import TextScores
from stepline.models.nasva.benchmarks import (
    BENCHMARK_MODES,
    AlignmentQuestion,
    BenchmarkInputs,
    BenchmarkName,
    score_questions,
)
from stepline.models.nasva.calibration import (
    Calibration,
    calibration_features,
    calibration_path,
    shown_fraction,
    uncalibrated_probability,
    write_calibration,
)
from stepline.models.nasva.checkpoint import LoadedAligner
from stepline.models.nasva.settings import AlignerSettings, Mode
from stepline.numeric import unit_rows
from stepline.records import Matrix

MIN_VIDEOS = 4  # two to fit and two to judge, both ways


@dataclass(frozen=True)
class CalibrationQuality:
    """ECE and ROC-AUC of P(shown): what stands for it before a fit, and after one to the other half
    of the videos."""

    videos: int
    texts: int
    shown_share: float
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
    """Fit P(shown) to all videos, store it next to the network, and return its quality and why
    videos are missing.

    Raises DatasetError where the truth is hidden, and with too few texts of either kind in a half
    of the videos.
    """
    if any(question.truth is None for question in questions):
        raise DatasetError(
            f"the truth of these videos of {name} is hidden; calibrate on others, such as val_seen"
        )
    # How the texts of each video score, with the truth.
    settings = settings.model_copy(update={"mode": BENCHMARK_MODES[name]})
    answers = score_questions(questions, loaded, inputs, settings)
    looks = [
        (answers.by_id[question.id], np.array(question.truth, dtype=bool))
        for question in questions
        if question.id in answers.by_id
    ]
    if len(looks) < MIN_VIDEOS:
        count = f"{len(looks)} videos with features and texts"
        raise DatasetError(f"{count}; a calibration needs {MIN_VIDEOS} at least")
    quality = cross_validate(looks)

    # the other modes' regressions stay
    modes = dict(loaded.calibration.modes) if loaded.calibration else {}
    modes[settings.mode] = fit_logistic(*_evidence(looks))
    write_calibration(Calibration(loaded.sha256, modes), calibration_path(loaded.path))
    return quality, answers.missing


def cross_validate(looks: Sequence[tuple[TextScores, Flags]]) -> CalibrationQuality:
    """Return how good P(shown) is, each half of the videos judged by a fit to the other.

    Raises DatasetError with too few texts of either kind in a half.
    """
    first_half = looks[::2]
    second_half = looks[1::2]
    # Each half has texts of both kinds.
    for half in (first_half, second_half):
        _, flags = _evidence(half)
        count = int(flags.sum())
        absent = int((~flags).sum())
        if min(count, absent) < MIN_ITEMS:
            counts = f"{count} texts shown and {absent} not in a half of the videos"
            rule = f"each half, fitted to judge the other, needs {MIN_ITEMS} of each kind"
            raise DatasetError(f"{counts}; {rule}: add videos")

    # each half by a fit to the other
    after = []
    judged_truth = []
    for fitted, judged in ((first_half, second_half), (second_half, first_half)):
        logistic = fit_logistic(*_evidence(fitted))
        rows, flags = _evidence(judged)
        after.append(logistic(rows))
        judged_truth.append(flags)
    before = np.concatenate([uncalibrated_probability(fit) for fit, _ in looks])
    truth = np.concatenate([flags for _, flags in looks])
    p = np.concatenate(after)
    # Both in the order of the halves, unlike `before` and `truth`.
    truth_after = np.concatenate(judged_truth)
    return CalibrationQuality(
        videos=len(looks),
        texts=len(truth),
        shown_share=float(truth.mean()),
        error_before=calibration_error(truth, before),
        error_after=calibration_error(truth_after, p),
        area_before=roc_auc(truth.astype(np.float64), before),
        area_after=roc_auc(truth_after.astype(np.float64), p),
    )


def _evidence(looks: Sequence[tuple[TextScores, Flags]]) -> tuple[Array, Flags]:
    """Return the evidence (N, E) on all texts of videos, and whether each is shown (N,)."""
    rows = np.concatenate([calibration_features(fit) for fit, _ in looks])
    flags = np.concatenate([flags for _, flags in looks])
    return rows, flags


VERDICT_DRAWS = 16  # of each text's verdict; the regression is fitted to all of them
MAX_PROBABILITY = 0.999  # no text is surely own, or surely foreign


def calibrate_by_foreign_texts(
    loaded: LoadedAligner,
    fits: Iterable[tuple[TextScores, TextScores]],
    *,
    mode: Mode = "step",
    rate: float | None = None,
) -> tuple[Calibration, float]:
    """Return a calibration of the network and the share of own texts that it takes for shown.

    fits: how the texts of each video fit it alone, and together with foreign ones, which come after
    them. One video's are held at a time.
    rate: that share, where it is known.
    Raises DatasetError with too few texts, or where own texts fit no better than foreign ones.
    """
    alone = []
    own = []
    foreign = []
    for fit, fit_of_both in fits:
        # Foreign texts come after the video's own.
        rows = calibration_features(fit_of_both)
        count = len(fit.scores)
        alone.append(calibration_features(fit))
        own.append(rows[:count])
        foreign.append(rows[count:])
    logistic, share = fit_by_foreign_evidence(
        np.concatenate(alone), np.concatenate(own), np.concatenate(foreign), rate=rate
    )
    return Calibration(loaded.sha256, {mode: logistic}), share


def fit_by_foreign_evidence(
    alone: Array, own: Array, foreign: Array, *, rate: float | None = None
) -> tuple[Logistic, float]:
    """Return P(shown) of evidence (N, E) like `alone`, and the share of it that is taken for shown.

    own: (N, E) of the same texts, as it is distinguished from that of foreign ones (M, E).
    """
    # own texts or foreign ones
    both = np.concatenate([own, foreign])
    is_own = np.arange(len(both)) < len(own)
    own_or_foreign = fit_logistic(both, is_own)
    p_own = own_or_foreign(own)
    # The share of shown texts: as given, else by Storey's estimate.
    share = shown_fraction(p_own, own_or_foreign(foreign)) if rate is None else rate
    if not 0 < share < 1:
        reason = f"the share of shown texts comes out as {share:.2f}"
        raise DatasetError(f"{reason}, so P(shown) is unknown; give the rate, or train longer")

    # a regression on drawn verdicts
    p = shown_probability(p_own, len(own) / len(foreign), share)
    rng = np.random.default_rng(2008)
    verdicts = rng.random((VERDICT_DRAWS, len(p))) < p
    evidence = np.tile(alone, (VERDICT_DRAWS, 1))
    return fit_logistic(evidence, verdicts.ravel()), share


def shown_probability(own: Array, odds: float, rate: float) -> Array:
    """Return P(shown) (N,) of own texts from P(own). Mean near `rate`.

    odds: own texts to foreign ones in the fit.
    """
    own = np.clip(own, 1 - MAX_PROBABILITY, MAX_PROBABILITY)
    ratio = (1 - own) / own * odds  # p(evidence | foreign) / p(evidence | own)
    p = 1 - (1 - rate) * ratio
    return np.asarray(np.clip(p, 0.0, 1.0))


# videos among which the nearest is searched for where no task is known. All pairs would cost V
# squared
MAX_CANDIDATES = 1000

RowIndices: TypeAlias = npt.NDArray[np.int64]


def unshown_texts(
    tasks: Sequence[str | None], vectors_of: Callable[[int], Matrix]
) -> Iterator[tuple[int, RowIndices]]:
    """Yield for each of V videos another one, and which of its texts stand for what the video does
    not show: the half of a video of the same task that is least like its own texts, steps of the
    task that it skips.

    vectors_of: the vectors (K, D) of a video's texts. A video whose task is not known, or that
    alone has its task, takes the one whose texts are on average most like its own. Where there is
    no other video, it takes none of its own texts.
    """
    for index, other in enumerate(other_videos(tasks, vectors_of)):
        if other == index:
            yield other, np.zeros(0, np.int64)
        else:
            yield other, least_like(vectors_of(index), vectors_of(other))


def other_videos(tasks: Sequence[str | None], vectors_of: Callable[[int], Matrix]) -> list[int]:
    """Return for each of V videos the one whose texts are taken. It is itself where there is no
    other."""
    count = len(tasks)
    # The videos of each task.
    videos_of: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        if task is not None:
            videos_of.setdefault(task, []).append(index)

    # the next video of the same task
    others: dict[int, int] = {}
    for videos in videos_of.values():
        if len(videos) > 1:
            others.update(zip(videos, (*videos[1:], videos[0]), strict=True))

    # for those that have none, the one with the nearest texts
    alone = [index for index in range(count) if index not in others]
    if alone:
        means = [_mean(vectors_of(index)) for index in range(count)]
        others |= _nearest(alone, np.stack(means))
    return [others[index] for index in range(count)]


def least_like(own: Matrix, other: Matrix) -> RowIndices:
    """Return the half (at least one) of another video's texts (K', D) whose nearest own text (K, D)
    is farthest."""
    if not len(own) or not len(other):
        return np.arange(len(other))
    cosines = unit_rows(other) @ unit_rows(own).T  # (K', K)
    order = np.argsort(cosines.max(axis=1), kind="stable")
    return np.sort(order[: (len(other) + 1) // 2])


def _nearest(videos: Sequence[int], means: Matrix) -> dict[int, int]:
    """Return the video (of at most `MAX_CANDIDATES`) whose mean (V, D) is nearest to each one's. It
    is itself where there is no other."""
    rng = np.random.default_rng(0)
    nearest = {}
    numbers = np.arange(len(means))
    for index in videos:
        others = np.delete(numbers, index)
        if len(others) > MAX_CANDIDATES:
            others = rng.choice(others, MAX_CANDIDATES, replace=False)
        nearest[index] = index
        if len(others):
            nearest[index] = int(others[(means[others] @ means[index]).argmax()])
    return nearest


def _mean(vectors: Matrix) -> Matrix:
    """Return the direction (D,) of the mean of unit vectors, or 0 without vectors."""
    if not len(vectors):
        return np.zeros(vectors.shape[1], np.float32)
    means = unit_rows(vectors).mean(axis=0, keepdims=True)  # (1, D)
    mean: Matrix = unit_rows(means)[0]
    return mean
