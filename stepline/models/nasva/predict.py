"""Localizes steps in a video by a trained network: spans, best seconds, and whether each step is
shown."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepline.errors import ShapeError
from stepline.grounding.fusion import (
    MAX_SAID_ONLY_PROBABILITY,
    UNCONFIRMED,
    picture_status,
    separate_overlapping_spans,
    without_place,
)
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
from stepline.records import Alignment, FeatureSequence, Matrix, Span, Step

log = logging.getLogger(__name__)

CALIBRATE_ADVICE = (
    "`stepline train calibrate` with ht-step or crosstask fits it to labelled videos that the "
    "network was not trained on"
)
UNCALIBRATED_NOTE = (
    f"the network's P(shown) is not calibrated, so no step counts as seen; {CALIBRATE_ADVICE}"
)
NOT_CALIBRATED = "placed by a network whose P(shown) is not calibrated"  # the doubt of a step


@dataclass(frozen=True)
class StepPlacement:
    """Localized steps of one video. K steps, T feature rows.

    Attributes:
        steps: K steps with span, best second, P(shown) as the score, and status. A step that is
            only said or not found has no span.
        alignment: (K, T) P(step k is being shown in row t).
        posterior: where, and whether, each step is shown, as probabilities.
        spans: the most likely span of each step in seconds, also for steps that are not shown.
            Benchmarks ask for these spans.
        at: the best second of each step, inside its span in `spans`.
        calibrated: True if P(shown) comes from a calibration of the network.
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
        aligner: SHA-256 of the network's file, in hexadecimal.
        calibrated: True if P(shown) comes from a calibration of the network.
    """

    aligner: str
    calibrated: bool

    @property
    def warnings(self) -> tuple[str, ...]:
        """A message to the user that P(shown) is not calibrated, or none."""
        return () if self.calibrated else (UNCALIBRATED_NOTE,)


@dataclass(frozen=True)
class AlignerGrounding:
    """Steps that a trained network localized. It has the fields of `Grounding`.

    Attributes:
        steps: K steps with span, best second, P(shown) as the score, and status.
        alignment: (K, T) P(step k is being shown in feature row t).
        report: the network, and whether its P(shown) is calibrated.
    """

    steps: tuple[Step, ...]
    alignment: Alignment
    report: AlignerReport


def place_steps(
    steps: Sequence[Step],
    text_scores: TextScores,
    calibration: Calibration | None = None,
    *,
    settings: AlignerSettings = AlignerSettings(),
    duration: float | None = None,
    order_probabilities: Array | None = None,
) -> StepPlacement:
    """Return where each step is shown in a video, by the network's scores and the times of speech.

    Args:
        steps: K steps. If `said` of a step is known, it counts with the weight `settings.speech`.
        text_scores: the network's scores of the K steps' texts, in the same order.
        calibration: regressions that turn the scores into P(shown). None, or none for the mode of
            the settings: every step is placed, with a doubt, and none counts as seen.
        settings: how texts compete, whether their order counts, and how long spans are. None: the
            defaults.
        duration: length of the video in seconds. None: the length of its feature rows.
        order_probabilities: (K, K) P(step i is shown before step j), 0.5 if it is not known. None: the order of
            the settings.

    Raises ShapeError if there is not one row of scores per step.
    """
    if len(text_scores.scores) != len(steps):
        raise ShapeError(
            f"{len(text_scores.scores)} rows of scores for {len(steps)} steps; give one row per step"
        )

    # whether each step is shown, by itself
    logistic = None if calibration is None else calibration.modes.get(settings.mode)
    p_shown = estimate_uncalibrated(text_scores)
    if logistic is not None:
        p_shown = logistic(compute_calibration_features(text_scores))

    # where and whether, with regard to the other steps
    prior = _compute_speech_prior(steps, text_scores)
    posterior = estimate_posterior(
        text_scores.scores, p_shown, settings, prior=prior, order_probabilities=order_probabilities
    )
    if duration is None:
        duration = text_scores.scores.shape[1] / text_scores.rate
    spans = extract_spans(posterior.row_probabilities, text_scores.rate, settings, end=duration)
    seconds = find_best_seconds(posterior.row_probabilities, spans, text_scores.rate, end=duration)
    rows = zip(steps, spans, seconds, posterior.p_shown.tolist(), strict=True)
    placed_steps = []
    for step, span, at, p in rows:
        is_low = logistic is not None and p < settings.shown_threshold
        if is_low and (step.said is None or p <= MAX_SAID_ONLY_PROBABILITY):
            placed_steps.append(without_place(step, p))
            continue
        doubt = NOT_CALIBRATED if logistic is None else UNCONFIRMED if is_low else None
        update = {"spans": (span,), "at": at, "score": p, **picture_status("network", doubt)}
        placed_steps.append(step.model_copy(update=update))

    # A step is shown at a second only if it is shown at all.
    alignment_scores = np.minimum(posterior.row_probabilities * posterior.p_shown[:, None], 1.0)
    texts = tuple(step.text for step in steps)
    alignment = Alignment(
        texts, alignment_scores.astype(np.float32), text_scores.rate, "probability"
    )
    count = sum(step.status == "seen" for step in placed_steps)
    log.info("aligner: %d of %d steps seen", count, len(placed_steps))
    return StepPlacement(
        tuple(placed_steps),
        alignment,
        posterior,
        tuple(spans),
        tuple(seconds),
        logistic is not None,
    )


def ground_by_aligner(
    steps: Sequence[Step],
    aligner: LoadedAligner,
    features: FeatureSequence,
    vectors: Matrix,
    *,
    settings: AlignerSettings,
    duration: float | None = None,
    order_probabilities: Array | None = None,
) -> AlignerGrounding:
    """Return the steps of a video with the spans in which a trained network finds them.

    A span that is grown around a peak ends where the next step's span begins. Spans of a fixed
    length may overlap.

    Args:
        steps: K steps.
        aligner: the network.
        features: feature rows of the video.
        vectors: (K, C) text vectors of the steps, by the network's text encoder.
        settings: settings of `place_steps`, and how long videos are split into windows. None: the
            defaults.
        duration: length of the video in seconds. None: the length of its feature rows.
        order_probabilities: (K, K) P(step i is shown before step j), 0.5 if it is not known. None: the order of
            the settings.

    Raises ModelError or ShapeError if the features or vectors do not fit the network.
    """
    aligner.check_features(features)
    text_scores = score_texts(aligner.network, features, vectors, settings)
    placement = place_steps(
        steps,
        text_scores,
        aligner.calibration,
        settings=settings,
        duration=duration,
        order_probabilities=order_probabilities,
    )
    placed_steps = placement.steps
    if settings.spans == "grown":
        placed_steps = separate_overlapping_spans(placed_steps)
    report = AlignerReport(aligner.sha256, placement.calibrated)
    return AlignerGrounding(placed_steps, placement.alignment, report)


def _compute_speech_prior(steps: Sequence[Step], text_scores: TextScores) -> Array | None:
    """Return (K, T) P(step k is shown in row t | when it is said), or None if no step has a time of
    speech."""
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
