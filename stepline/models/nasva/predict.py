"""Steps placed by a trained network: scores and posterior (`nasva.align`), spans, and a verdict for
each step."""

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
    best_seconds,
    posterior,
    posterior_spans,
    score_texts,
)
from stepline.models.nasva.calibration import (
    Calibration,
    calibration_features,
    uncalibrated_probability,
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
    """Steps with spans, at, score and status.

    alignment: P(step k is being shown at t), (K, T).
    calibrated: whether P(shown) is.

    A step that is not shown has no spans. The field `spans` holds the best guess for every one, as
    benchmarks ask for, and `at` the best second in it. The best of all seconds, which benchmarks
    ask for too, is `chances.best`.
    """

    steps: tuple[Step, ...]
    alignment: Alignment
    chances: Posterior
    spans: tuple[Span, ...]
    at: tuple[float, ...]
    calibrated: bool


@dataclass(frozen=True)
class AlignerReport:
    """Which trained network placed the steps, by the sha256 of its file. calibrated: whether its
    P(shown) is."""

    aligner: str
    calibrated: bool

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know before trusting P(shown)."""
        return () if self.calibrated else (UNCALIBRATED_NOTE,)


@dataclass(frozen=True)
class AlignerGrounding:
    """What `ground` gives, by a trained network: steps, alignment (K, T) P(step k is being shown at
    t), a report."""

    steps: tuple[Step, ...]
    alignment: Alignment
    report: AlignerReport


def place_steps(
    steps: Sequence[Step],
    fit: TextScores,
    calibration: Calibration | None = None,
    *,
    settings: AlignerSettings | None = None,
    duration: float | None = None,
    before: Array | None = None,
) -> StepPlacement:
    """Return the steps placed where the network, and what is said when, show them.

    fit: of the steps' texts, in their order. `said` of a step weighs in by `settings.speech`.
    duration: seconds, where the last row covers less than a whole one. before: (K, K) P(step i
    comes before step j). Raises ShapeError.
    """
    settings = settings or AlignerSettings()
    if len(fit.scores) != len(steps):
        raise ShapeError(
            f"{len(fit.scores)} rows of scores for {len(steps)} steps; give one row per step"
        )

    # whether each step is shown, by itself
    logistic = None if calibration is None else calibration.modes.get(settings.mode)
    p_shown = uncalibrated_probability(fit)
    floor = 0.0
    if logistic is not None:
        p_shown = logistic(calibration_features(fit))
        floor = settings.shown_threshold

    # where and whether, with regard to the other steps
    prior = _prior(steps, fit)
    chances = posterior(fit.scores, p_shown, settings, prior=prior, before=before)
    if duration is None:
        duration = fit.scores.shape[1] / fit.rate
    spans = posterior_spans(chances.at, fit.rate, settings, end=duration)
    seconds = best_seconds(chances.at, spans, fit.rate, end=duration)
    rows = zip(steps, spans, seconds, chances.p_shown.tolist(), strict=True)
    placed_steps = [_placed(*row, floor) for row in rows]

    # A step is shown at a second only if it is shown at all.
    at = np.minimum(chances.at * chances.p_shown[:, None], 1.0)
    texts = tuple(step.text for step in steps)
    alignment = Alignment(texts, at.astype(np.float32), fit.rate, "probability")
    count = sum(step.status == "shown" for step in placed_steps)
    log.info("aligner: %d of %d steps shown", count, len(placed_steps))
    calibrated = logistic is not None
    return StepPlacement(
        tuple(placed_steps), alignment, chances, tuple(spans), tuple(seconds), calibrated
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
    """Return steps placed in a video by a trained network, as `ground` does without one.

    Spans that grow end where the next step's begin. Those of a fixed length, the paper's, stay.
    vectors: (K, C) of the steps, of the network's own space.
    Raises ModelError, ShapeError where something does not fit it.
    """
    settings = settings or AlignerSettings()
    loaded.check_features(features)
    fit = score_texts(loaded.aligner, features, vectors, settings)
    placing = place_steps(
        steps, fit, loaded.calibration, settings=settings, duration=duration, before=before
    )
    grown = settings.spans == "grown"
    placed_steps = separate_overlapping_spans(placing.steps) if grown else placing.steps
    report = AlignerReport(loaded.sha256, placing.calibrated)
    return AlignerGrounding(placed_steps, placing.alignment, report)


def _placed(step: Step, span: Span, at: float, p: float, floor: float) -> Step:
    """Return the step with its verdict. One that is not shown, with P(shown) below the floor, has
    no spans."""
    if p >= floor:
        return step.model_copy(update={"spans": (span,), "at": at, "score": p, "status": "shown"})
    status: Status = "not found" if step.said is None else "said"
    return step.model_copy(update={"spans": (), "at": None, "score": p, "status": status})


def _prior(steps: Sequence[Step], fit: TextScores) -> Array | None:
    """Return (K, T) P(shown in a row | when the step is said), or None where no step is said."""
    if all(step.said is None for step in steps):
        return None
    rows = np.arange(fit.scores.shape[1])
    second = (rows / fit.rate).astype(np.int64)  # (T,)
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
