"""Fits P(shown): to the truth of a benchmark, with its quality on other videos, or without any
truth. Letters: N texts of all videos, E calibration features, V videos, K texts of one video, D
width of a text vector.

Without truth (`calibrate_on_foreign_texts`): a video shows nothing of foreign texts
(`choose_foreign_texts`), so their scores are those of texts that are not shown. The scores of a
video's own texts are a mixture of such scores and those of shown texts. `rate` is the fraction of
shown texts:

    P(shown | scores) = 1 - (1 - rate) p(scores | foreign) / p(scores | own)

The ratio of the two densities comes from a logistic regression that separates own from foreign
texts (Elkan and Noto 2008, learning from positive and unlabelled examples, with the roles
exchanged). The rate comes from Storey's estimate of the fraction of true null hypotheses (2002). It
is low where foreign texts are easier to refuse than own texts that are not shown. Own and foreign
texts are scored together, because otherwise their rivals would tell the two sets apart.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Flags
from stepline.evaluate.calibration import (
    MIN_ITEMS,
    LogisticRegression,
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
    calibration_path,
    compute_calibration_features,
    estimate_shown_fraction,
    estimate_uncalibrated,
    write_calibration,
)
from stepline.models.nasva.checkpoint import LoadedAligner
from stepline.models.nasva.settings import AlignerSettings, Mode
from stepline.numeric import unit_rows
from stepline.records import Matrix

MIN_VIDEOS = 4  # two to fit and two to judge, both ways


@dataclass(frozen=True)
class CalibrationQuality:
    """Quality of P(shown) before a fit, and after a fit to the other half of the videos.

    Attributes:
        videos: number of videos.
        texts: number of their texts.
        shown_fraction: fraction of the texts that are shown.
        ece_before: expected calibration error (ECE) of the uncalibrated P(shown).
        ece_after: ECE of the fitted P(shown).
        roc_auc_before: ROC-AUC of the uncalibrated P(shown).
        roc_auc_after: ROC-AUC of the fitted P(shown).
    """

    videos: int
    texts: int
    shown_fraction: float
    ece_before: float
    ece_after: float
    roc_auc_before: float
    roc_auc_after: float


def calibrate(
    name: BenchmarkName,
    questions: Sequence[AlignmentQuestion],
    aligner: LoadedAligner,
    inputs: BenchmarkInputs,
    settings: AlignerSettings,
) -> tuple[CalibrationQuality, dict[str, str]]:
    """Fit P(shown) to a benchmark's truth, and store the regression next to the network. Return its
    quality, and by video id why videos are missing.

    Args:
        name: name of the benchmark.
        questions: videos with their texts, and whether each is shown.
        aligner: the network.
        inputs: features of the videos and vectors of the texts.
        settings: how the network scores texts.

    Raises DatasetError where the truth is hidden, or where a half of the videos has too few shown
    or too few unshown texts.
    """
    if any(question.truth is None for question in questions):
        raise DatasetError(
            f"the truth of these videos of {name} is hidden; calibrate on others, such as val_seen"
        )
    # How the texts of each video score, with the truth.
    settings = settings.model_copy(update={"mode": BENCHMARK_MODES[name]})
    answers = score_questions(questions, aligner, inputs, settings)
    scored_videos = [
        (answers.by_id[question.id], np.array(question.truth, dtype=bool))
        for question in questions
        if question.id in answers.by_id
    ]
    if len(scored_videos) < MIN_VIDEOS:
        raise DatasetError(
            f"{len(scored_videos)} videos with features and texts; a calibration needs "
            f"{MIN_VIDEOS} at least, and in each half of them {MIN_ITEMS} texts of each kind"
        )
    quality = cross_validate(scored_videos)

    # the other modes' regressions stay
    modes = dict(aligner.calibration.modes) if aligner.calibration else {}
    modes[settings.mode] = fit_logistic(*_stack_features(scored_videos))
    write_calibration(Calibration(aligner.sha256, modes), calibration_path(aligner.path))
    return quality, answers.missing


def cross_validate(scored_videos: Sequence[tuple[TextScores, Flags]]) -> CalibrationQuality:
    """Return the quality of P(shown) when each half of the videos is judged by a regression fitted
    to the other half.

    scored_videos: for each video, the network's scores of its K texts, and flags (K,), True for a
    text that the video shows.

    Raises DatasetError where a half has too few shown or too few unshown texts.
    """
    first_half = scored_videos[::2]
    second_half = scored_videos[1::2]
    # Each half has texts of both kinds.
    for half in (first_half, second_half):
        _, flags = _stack_features(half)
        count = int(flags.sum())
        absent = int((~flags).sum())
        if min(count, absent) < MIN_ITEMS:
            raise DatasetError(
                f"{count} texts shown and {absent} not in a half of the videos; each half, fitted "
                f"to judge the other, needs {MIN_ITEMS} of each kind: add videos"
            )

    # each half by a fit to the other
    after = []
    judged_truth = []
    for fitted, judged in ((first_half, second_half), (second_half, first_half)):
        logistic = fit_logistic(*_stack_features(fitted))
        rows, flags = _stack_features(judged)
        after.append(logistic(rows))
        judged_truth.append(flags)
    before = np.concatenate([estimate_uncalibrated(scores) for scores, _ in scored_videos])
    truth = np.concatenate([flags for _, flags in scored_videos])
    p = np.concatenate(after)
    # Both in the order of the halves, unlike `before` and `truth`.
    truth_after = np.concatenate(judged_truth)
    return CalibrationQuality(
        videos=len(scored_videos),
        texts=len(truth),
        shown_fraction=float(truth.mean()),
        ece_before=calibration_error(truth, before),
        ece_after=calibration_error(truth_after, p),
        roc_auc_before=roc_auc(truth.astype(np.float64), before),
        roc_auc_after=roc_auc(truth_after.astype(np.float64), p),
    )


def _stack_features(scored_videos: Sequence[tuple[TextScores, Flags]]) -> tuple[Array, Flags]:
    """Return the calibration features (N, 6) of the N texts of all videos, and whether each text is
    shown (N,).

    scored_videos: for each video, the network's scores of its K texts, and flags (K,), True for a
    text that the video shows. N is the sum of all K.
    """
    rows = np.concatenate([compute_calibration_features(scores) for scores, _ in scored_videos])
    flags = np.concatenate([flags for _, flags in scored_videos])
    return rows, flags


VERDICT_DRAWS = 16  # of each text's verdict; the regression is fitted to all of them
MAX_PROBABILITY = 0.999  # no text is surely own, or surely foreign


def calibrate_on_foreign_texts(
    aligner: LoadedAligner,
    score_pairs: Iterable[tuple[TextScores, TextScores]],
    *,
    mode: Mode = "step",
    shown_fraction: float | None = None,
) -> tuple[Calibration, float]:
    """Return a calibration that is fitted without truth, and the fraction of own texts that count
    as shown.

    Args:
        aligner: the network.
        score_pairs: for each video, the scores of its own texts, and of its own texts followed by foreign
            ones. They are read one video at a time.
        mode: of the texts.
        shown_fraction: the fraction of own texts that are shown. None: it is estimated.

    Raises DatasetError with too few texts, or where own texts fit no better than foreign ones.
    """
    alone = []
    own = []
    foreign = []
    for own_scores, joint_scores in score_pairs:
        # Foreign texts come after the video's own.
        rows = compute_calibration_features(joint_scores)
        count = len(own_scores.scores)
        alone.append(compute_calibration_features(own_scores))
        own.append(rows[:count])
        foreign.append(rows[count:])
    logistic, share = fit_on_foreign_texts(
        np.concatenate(alone),
        np.concatenate(own),
        np.concatenate(foreign),
        shown_fraction=shown_fraction,
    )
    return Calibration(aligner.sha256, {mode: logistic}), share


def fit_on_foreign_texts(
    own_alone_features: Array,
    own_joint_features: Array,
    foreign_features: Array,
    *,
    shown_fraction: float | None,
) -> tuple[LogisticRegression, float]:
    """Return a logistic regression for P(shown), and the fraction of own texts that count as shown.

    It tells texts of the video from texts of other videos. Foreign texts are not shown, own ones
    are in part.

    Args:
        own_alone_features: (N, 6) calibration features of own texts that are scored by themselves.
            The regression is for such features.
        own_joint_features: (N, 6) features of the same texts, scored together with foreign ones.
        foreign_features: (M, 6) features of the foreign texts.
        shown_fraction: the fraction of own texts that are shown. None: it is estimated.
    """
    # own texts or foreign ones
    both = np.concatenate([own_joint_features, foreign_features])
    is_own = np.arange(len(both)) < len(own_joint_features)
    own_or_foreign = fit_logistic(both, is_own)
    p_own = own_or_foreign(own_joint_features)
    # The share of shown texts: as given, else by Storey's estimate.
    share = (
        estimate_shown_fraction(p_own, own_or_foreign(foreign_features))
        if shown_fraction is None
        else shown_fraction
    )
    if not 0 < share < 1:
        raise DatasetError(
            f"the share of shown texts comes out as {share:.2f}, so P(shown) is unknown; give the "
            "rate, or train longer"
        )

    # a regression on drawn verdicts
    p = compute_shown_probability(p_own, len(own_joint_features) / len(foreign_features), share)
    verdicts = np.random.default_rng(2008).random((VERDICT_DRAWS, len(p))) < p
    evidence = np.tile(own_alone_features, (VERDICT_DRAWS, 1))
    return fit_logistic(evidence, verdicts.ravel()), share


def compute_shown_probability(
    own_probabilities: Array, prior_odds: float, shown_fraction: float
) -> Array:
    """Return P(shown) (N,) of own texts, whose mean is near `shown_fraction`.

    Args:
        own_probabilities: (N,) P(a text belongs to the video) by the regression.
        prior_odds: number of own texts divided by that of foreign texts in the fit.
        shown_fraction: fraction of own texts that are shown.
    """
    own_probabilities = np.clip(own_probabilities, 1 - MAX_PROBABILITY, MAX_PROBABILITY)
    ratio = (
        (1 - own_probabilities) / own_probabilities * prior_odds
    )  # p(evidence | foreign) / p(evidence | own)
    return np.asarray(np.clip(1 - (1 - shown_fraction) * ratio, 0.0, 1.0))


# videos among which the nearest is searched for where no task is known. All pairs would cost V
# squared
MAX_CANDIDATES = 1000

RowIndices = npt.NDArray[np.int64]


def choose_foreign_texts(
    tasks: Sequence[str | None], read_vectors: Callable[[int], Matrix]
) -> Iterator[tuple[int, RowIndices]]:
    """Yield for each of V videos the index of another video, and the rows of its texts that the
    video surely does not show.

    Taken is the half of the other video's texts that is least similar to the video's own texts. If
    both videos are of one task, these are steps that the first one skips.

    Args:
        tasks: task of each video. A video without a known task, or alone in its task, is paired with the
            video of the most similar texts.
        read_vectors: returns the text vectors (K, D) of a video.
    """
    for index, other in enumerate(choose_other_videos(tasks, read_vectors)):
        if other == index:
            yield other, np.zeros(0, np.int64)
        else:
            yield other, find_least_similar(read_vectors(index), read_vectors(other))


def choose_other_videos(
    tasks: Sequence[str | None], read_vectors: Callable[[int], Matrix]
) -> list[int]:
    """Return for each of V videos the index of the video that gives it foreign texts: one of the
    same task, else the one with the most similar texts. It is the video's own index if there is
    no other video.

    Args:
        tasks: task of each video, None if it is unknown.
        read_vectors: returns the text vectors (K, D) of the video with an index.
    """
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
        means = [_compute_mean_direction(read_vectors(index)) for index in range(count)]
        others |= _find_nearest_videos(alone, np.stack(means))
    return [others[index] for index in range(count)]


def find_least_similar(own: Matrix, other: Matrix) -> RowIndices:
    """Return the half (at least one) of another video's texts (K', D) whose most similar own text
    (K, D) is least similar."""
    if not len(own) or not len(other):
        return np.arange(len(other))
    cosines = unit_rows(other) @ unit_rows(own).T  # (K', K)
    order = np.argsort(cosines.max(axis=1), kind="stable")
    return np.sort(order[: (len(other) + 1) // 2])


def _find_nearest_videos(videos: Sequence[int], means: Matrix) -> dict[int, int]:
    """Return for each given video the index of the other video with the most similar texts.

    Args:
        videos: indices of the given videos.
        means: (V, D) mean text vector of each video.
    """
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


def _compute_mean_direction(vectors: Matrix) -> Matrix:
    """Return the unit vector (D,) in the direction of the mean of unit vectors, or 0 without
    vectors."""
    if not len(vectors):
        return np.zeros(vectors.shape[1], np.float32)
    means = unit_rows(vectors).mean(axis=0, keepdims=True)  # (1, D)
    mean: Matrix = unit_rows(means)[0]
    return mean
