"""Localizes steps in a video by a trained network: spans, best seconds, and whether each step is
shown."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepline.errors import ShapeError
from stepline.grounding.fusion import separate_overlapping_spans
from stepline.grounding.said_to_shown import Array, load_prior
from stepline.models.nasva.align import (
    Posterior,
    TextScores,
    estimate_posterior,
    extract_spans,
    find_best_seconds,
    score_texts,
)
from stepline.models.nasva.calibration import (
    Calibration,
    compute_calibration_features,
    estimate_uncalibrated,
)
from stepline.models.nasva.checkpoint import LoadedAligner
from stepline.models.nasva.settings import AlignerSettings
from stepline.records import Alignment, FeatureSequence, Matrix, Span, Status, Step

log = logging.getLogger(__name__)

UNCALIBRATED_NOTE = (
    "P(shown) is not calibrated, so every step counts as shown; "
    "`stepline train calibrate` fits it to a truth"
)


@dataclass(frozen=True)
class StepPlacement:
    """Localized steps of one video. K steps, T feature rows.

    Attributes:
        steps: with spans, at, score and status. A step that is not shown has no span.
        alignment: (K, T) P(step k is being shown in row t).
        posterior: of where and whether each step is shown.
        spans: the most likely span of each step, shown or not, as benchmarks ask for it.
        at: the best second in each of these spans.
        calibrated: whether P(shown) is calibrated.
    """

    steps: tuple[Step, ...]
    alignment: Alignment
    posterior: Posterior
    spans: tuple[Span, ...]
    at: tuple[float, ...]
    calibrated: bool


@dataclass(frozen=True)
class AlignerReport:
    """Which network localized the steps.

    Attributes:
        aligner: sha256 of the network's file.
        calibrated: whether its P(shown) is calibrated.
    """

    aligner: str
    calibrated: bool

    @property
    def warnings(self) -> tuple[str, ...]:
        """Messages for the user about P(shown)."""
        return () if self.calibrated else (UNCALIBRATED_NOTE,)


@dataclass(frozen=True)
class AlignerGrounding:
    """Steps that a trained network localized, in the form that `ground` returns without one.

    Attributes:
        steps: with spans, at, score and status.
        alignment: (K, T) P(step k is being shown in row t).
        report: which network it was.
    """

    steps: tuple[Step, ...]
    alignment: Alignment
    report: AlignerReport


def place_steps(
    steps: Sequence[Step],
    text_scores: TextScores,
    calibration: Calibration | None = None,
    *,
    settings: AlignerSettings | None = None,
    duration: float | None = None,
    before: Array | None = None,
) -> StepPlacement:
    """Localize steps by their scores and by when they are said.

    Args:
        steps: K steps. Where `said` is known, it weighs in by `settings.speech`.
        text_scores: scores of the steps' texts, in the same order.
        calibration: of the network. None: every step counts as shown.
        settings: how texts compete, whether their order counts, and how long spans are.
        duration: seconds of the video. None: that of the feature rows.
        before: (K, K) P(step i is shown before step j), 0.5 where it is not known.

    Raises ShapeError where scores and steps differ in number.
    """
    settings = settings or AlignerSettings()
    if len(text_scores.scores) != len(steps):
        raise ShapeError(
            f"{len(text_scores.scores)} rows of scores for {len(steps)} steps; give one row per step"
        )

    # whether each step is shown, by itself
    logistic = None if calibration is None else calibration.modes.get(settings.mode)
    p_shown = estimate_uncalibrated(text_scores)
    min_probability = 0.0
    if logistic is not None:
        p_shown = logistic(compute_calibration_features(text_scores))
        min_probability = settings.shown_threshold

    # where and whether, with regard to the other steps
    prior = _compute_speech_prior(steps, text_scores)
    posterior = estimate_posterior(
        text_scores.scores, p_shown, settings, prior=prior, before=before
    )
    if duration is None:
        duration = text_scores.scores.shape[1] / text_scores.rate
    spans = extract_spans(posterior.row_probabilities, text_scores.rate, settings, end=duration)
    seconds = find_best_seconds(posterior.row_probabilities, spans, text_scores.rate, end=duration)
    rows = zip(steps, spans, seconds, posterior.p_shown.tolist(), strict=True)
    placed_steps = [_add_verdict(*row, min_probability) for row in rows]

    # A step is shown at a second only if it is shown at all.
    alignment_scores = np.minimum(posterior.row_probabilities * posterior.p_shown[:, None], 1.0)
    texts = tuple(step.text for step in steps)
    alignment = Alignment(
        texts, alignment_scores.astype(np.float32), text_scores.rate, "probability"
    )
    count = sum(step.status == "shown" for step in placed_steps)
    log.info("aligner: %d of %d steps shown", count, len(placed_steps))
    calibrated = logistic is not None
    return StepPlacement(
        tuple(placed_steps), alignment, posterior, tuple(spans), tuple(seconds), calibrated
    )


def ground_by_aligner(
    steps: Sequence[Step],
    loaded: LoadedAligner,
    features: FeatureSequence,
    vectors: Matrix,
    *,
    settings: AlignerSettings | None = None,
    duration: float | None = None,
    before: Array | None = None,
) -> AlignerGrounding:
    """Localize steps in a video by a trained network. It returns what `ground` returns without a
    network.

    Spans that grow around a peak end where the next step's span begins. Spans of a fixed length may
    overlap.

    Args:
        steps: K steps.
        loaded: the network.
        features: of the video.
        vectors: (K, C) text vectors of the steps, by the network's text encoder.
        settings: as `place_steps` takes them, and how long videos are split.
        duration: seconds of the video. None: that of the feature rows.
        before: (K, K) P(step i is shown before step j), 0.5 where it is not known.

    Raises ModelError or ShapeError where the features or vectors do not fit the network.
    """
    settings = settings or AlignerSettings()
    loaded.check_features(features)
    text_scores = score_texts(loaded.aligner, features, vectors, settings)
    placement = place_steps(
        steps, text_scores, loaded.calibration, settings=settings, duration=duration, before=before
    )
    grown = settings.spans == "grown"
    placed_steps = separate_overlapping_spans(placement.steps) if grown else placement.steps
    report = AlignerReport(loaded.sha256, placement.calibrated)
    return AlignerGrounding(placed_steps, placement.alignment, report)


def _add_verdict(step: Step, span: Span, at: float, p: float, min_probability: float) -> Step:
    """Return the step with span and score. Below `min_probability` it counts as not shown and has
    no span."""
    if p >= min_probability:
        return step.model_copy(update={"spans": (span,), "at": at, "score": p, "status": "shown"})
    status: Status = "not found" if step.said is None else "said"
    return step.model_copy(update={"spans": (), "at": None, "score": p, "status": status})


def _compute_speech_prior(steps: Sequence[Step], text_scores: TextScores) -> Array | None:
    """Return (K, T) P(step k is shown in row t | when it is said), or None where no step is
    said."""
    if all(step.said is None for step in steps):
        return None
    rows = np.arange(text_scores.scores.shape[1])
    second = (rows / text_scores.rate).astype(np.int64)  # (T,)
    seconds = int(second[-1]) + 1
    curves = []
    for step in steps:
        spans = []
        if step.said is not None:
            # where it is in the video. If it is said after the last row, its end is nearest
            start = min(step.said.start, seconds - 1.0)
            end = max(step.said.end, step.said.start + 1e-3)
            spans = [Span(start, min(end, float(seconds)))]
        # From seconds to rows, since a second may have several.
        curve = load_prior().distribution(spans, seconds)[second]
        curves.append(curve / curve.sum())
    return np.array(curves)
