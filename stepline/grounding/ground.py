"""Grounding: when each step is shown, by its words, and by pictures where a network of the user's compares them.

Example: in a video of 60 s only "Drain the pasta and rinse it." is said, at 10 to 14 s. The step "drain
the pasta and rinse" is "placed" (9.5, 18), at 12.5, with a doubt: no picture was given. The step "slice
the bread" is "not_found".

A step is shown .7 s after the middle of its words, and from half a second before them to 4 s after, or
to where another step begins. On real clips no other rule places it better (docs/real_clips.md). With the features of
an image-text network, for step k at second t:

    P_k(t) = prior(t | said_k) exp(w z_k(t)) unclaimed_k(t) / sum   w fitted from the video itself
    P(shown_k) = pi B_k / (1 - pi + pi B_k)                          B_k: Bayes factor of "shown"

and if the similarity earns a weight w > 0, `fusion.fuse` places the steps. No model is trained.

    prior, pi   `speech_prior`         when and whether a step is shown, by where it is said
    z           `similarity_evidence`  similarity of the step and the second
    unclaimed   `fusion.fuse`          P(no other step is being shown then)
    statuses    `fusion.with_status`, `fusion.place_by_words`

Letters: K steps, T seconds, D width.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepline.grounding.correspondence import PICTURES_DO_NOT_FIT, TALK_WARNING
from stepline.grounding.evidence import TimedText, center_similarity, log_bayes_factor, similarity
from stepline.grounding.fusion import (
    SIMILARITY_PENALTY,
    WORDS_LAG_SECONDS,
    ShownPosterior,
    SpeechPrior,
    fuse,
    occupancy,
    separate_overlapping_spans,
    with_status,
    without_place,
)
from stepline.grounding.inputs import (
    GroundingInputs,
    GroundingWindow,
    VideoEvidence,
    cut_into_windows,
    to_video_time,
    video_evidence,
)
from stepline.grounding.said_to_shown import Array, load_prior
from stepline.grounding.settings import GroundSettings
from stepline.records import Alignment, FeatureSequence, Matrix, Span, Step, Transcript
from stepline.writing.types import is_conditional

if TYPE_CHECKING:
    from stepline.vision import Activity


# why a step may not be shown, as `Step.doubt`
NO_INSTRUCTION = "hardly any sentence of the video states a step"
LAST_CASE = "said last, and only for some cases"
PLACED_BY_WORDS = "steps are placed where they are said, and may not be shown"
log = logging.getLogger(__name__)
# P(the last step is shown), if it is said under a condition. In real clips 0 of 2 are
LAST_CASE_PROBABILITY = 0.5
# prior P(a step is shown), without visual evidence: of a step that is said (real clips: 0.92), and of
# one that is not (a guess)
SAID_SHOWN_PRIOR = 0.9
UNSAID_SHOWN_PRIOR = 0.3
# P(a user's line that counts as not said is shown where the sentences fit it best). YouCook2: 20 of 53
UNSAID_AT_PROBABILITY = 0.4
# P(the pictures belong to the speech) and P(the speech instructs) before any evidence, both guesses,
# and the log odds above which steps are placed without a doubt. 73 how-to transcripts all instruct by the second
BELONG_PRIOR = 0.95
MIN_BELONG_LOG_ODDS = 0.45
# below which the pictures speak against the words
MAX_FOREIGN_LOG_ODDS = -0.75
INSTRUCTS_PRIOR = 0.95
MIN_INSTRUCTS_LOG_ODDS = -1.6
MAX_LOG_ODDS = 50.0  # nats, against overflow


@dataclass(frozen=True)
class GroundReport:
    """Which evidence placed the steps of a video, and how reliable it is.

    Attributes:
        likeness: weight of the similarity of pictures and step texts, 0 if it is not used.
        shots: number of shots.
        note: one sentence on how the pictures changed the placement.
        correspondence: log odds that the pictures belong to the speech, None without evidence.
        earned: whether `correspondence` is high enough for steps without a doubt.
        instruction: log Bayes factor that the speech instructs, None for steps that a user wrote.
        instructs: whether `instruction` is high enough for steps without a doubt.
    """

    likeness: float
    shots: int
    note: str
    correspondence: float | None = None
    earned: bool = False
    instruction: float | None = None
    instructs: bool = True

    @property
    def doubt(self) -> str | None:
        """Why a step that the video says may not be shown, None without a reason."""
        if not self.instructs:
            return NO_INSTRUCTION
        return None if self.earned else PICTURES_DO_NOT_FIT

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings that the pictures do not fit the speech, or that the speech does not instruct."""
        warnings = []
        if self.correspondence is not None and self.correspondence < MAX_FOREIGN_LOG_ODDS:
            warnings.append(f"what is seen hardly fits what is said: {PLACED_BY_WORDS}")
        if not self.instructs:
            warnings.append(TALK_WARNING)
        return tuple(warnings)


def merge_reports(reports: Sequence[GroundReport]) -> GroundReport:
    """Return one report of all windows, with mean weights and summed counts."""
    log_odds = [report.correspondence for report in reports if report.correspondence is not None]
    return GroundReport(
        likeness=float(np.mean([report.likeness for report in reports])),
        shots=sum(report.shots for report in reports),
        note=f"{len(reports)} windows; in the first: {reports[0].note}",
        correspondence=float(np.mean(log_odds)) if log_odds else None,
        earned=any(report.earned for report in reports),
        # The speech is weighed for the whole video, so all windows have the same.
        instruction=reports[0].instruction,
        instructs=reports[0].instructs,
    )


@dataclass(frozen=True)
class Grounding:
    """The result of grounding.

    Attributes:
        steps: K steps with the time spans in which they are shown, a score and a status.
        alignment: (K, T) P(step k is being shown at t), one column per second.
        report: which evidence placed the steps.
    """

    steps: tuple[Step, ...]
    alignment: Alignment
    report: GroundReport


def ground(
    steps: Sequence[Step],
    *,
    duration: float,
    transcript: Transcript | None = None,
    features: FeatureSequence | None = None,
    step_vectors: Matrix | None = None,
    activity: "Activity | None" = None,
    sentence_vectors: Matrix | None = None,
    on_screen: Sequence[TimedText] = (),
    written: bool = True,
    instruction: float | None = None,
    settings: GroundSettings | None = None,
) -> Grounding:
    """Return the steps with the spans in which they are shown, by speech and pictures.

    A long video is grounded in windows. Without features and activity, only the speech counts.

    Args:
        steps: K steps. `said` of each is where it is said, None where it is not.
        duration: duration of the video in seconds.
        transcript: S sentences, which the `sources` of the steps index.
        features: feature vectors of the pictures, width D. None: no pictures are compared.
        step_vectors: (K, D) text vectors of the steps, in the space of the features.
        activity: motion, cuts and thumbnails of the pictures.
        sentence_vectors: (S, D) text vectors of the sentences, in the space of the features.
        on_screen: lines of text in the picture.
        written: True if the steps were written from the transcript, False for a user's own lines.
        instruction: log Bayes factor that the speech instructs, by a scorer of its sentences
            (`writing.extractive.writer.narration_instruction`). None: by the number of sentences
            that written steps cite.
        settings: settings of grounding.

    Raises ShapeError when arrays do not fit together.
    """
    inputs = GroundingInputs(
        tuple(steps),
        duration,
        transcript=transcript,
        features=features,
        step_vectors=step_vectors,
        activity=activity,
        sentence_vectors=sentence_vectors,
        on_screen=on_screen,
        written=written,
        instruction=instruction,
    )
    return ground_inputs(inputs, settings or GroundSettings())


def ground_inputs(inputs: GroundingInputs, settings: GroundSettings) -> Grounding:
    """Return the grounding of a whole video: its steps placed where they are shown.

    A long video is grounded in windows.
    """
    video = video_evidence(inputs)
    windows = cut_into_windows(inputs.steps, inputs.duration, settings)
    if len(windows) == 1:
        grounding = ground_window(inputs, video, settings)
    else:
        grounding = _ground_windows(inputs, video, windows, settings)
    log.info("grounding: %s", grounding.report.note)
    steps = separate_overlapping_spans(grounding.steps)
    return replace(grounding, steps=doubt_conditional_last_step(steps))


def doubt_conditional_last_step(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps, with a doubt of the last one if it is placed and has a condition.

    Its score is halved. "If it gets worse, see a doctor" is often said over unrelated pictures.
    """
    if len(steps) < 2:
        return steps
    *others, last = steps
    if last.status != "placed" or last.doubt is not None or not is_conditional(last.text):
        return steps
    score = LAST_CASE_PROBABILITY * (last.score or 0.0)
    return *others, last.model_copy(update={"doubt": LAST_CASE, "score": score})


def _ground_windows(
    inputs: GroundingInputs,
    video: VideoEvidence,
    windows: Sequence[GroundingWindow],
    settings: GroundSettings,
) -> Grounding:
    """Return the grounding of a long video. The spans of each step are from one window.

    Args:
        inputs: steps, speech and visual evidence of the whole video.
        video: evidence that all windows share.
        windows: windows of the video. Each step is decided in one of them.
        settings: settings of grounding.
    """
    scores = np.zeros((len(inputs.steps), inputs.past_seconds), dtype=np.float32)
    steps = list(inputs.steps)
    reports = []
    for window in windows:
        grounding = ground_window(inputs.cut(window), video.cut(window), settings)
        reports.append(grounding.report)
        start = int(window.context.start)
        width = grounding.alignment.scores.shape[1]
        for row, step, score in zip(
            window.steps, grounding.steps, grounding.alignment.scores, strict=True
        ):
            if row in window.decided_steps:
                steps[row] = to_video_time(step, inputs.steps[row], window)
                scores[row, start : start + width] = score
    return Grounding(tuple(steps), _alignment(inputs, scores), merge_reports(reports))


def _alignment(inputs: GroundingInputs, scores: Matrix) -> Alignment:
    return Alignment(tuple(step.text for step in inputs.steps), scores, 1.0, "probability")


def ground_window(
    inputs: GroundingInputs, video: VideoEvidence, settings: GroundSettings
) -> Grounding:
    """Return the grounding of one window, or of a whole short video.

    Args:
        inputs: steps, speech and visual evidence of the window.
        video: evidence of the whole video, cut to the window.
        settings: settings of grounding.
    """
    speech = speech_prior(inputs)
    evidence = similarity_evidence(inputs)

    # second by second, by speech alone and, if a network compares them, with the pictures
    by_words = ShownPosterior(occupancy(speech.prior, settings.typical), speech.shown_prior, 0.0)
    posterior = fuse(speech, evidence, settings) if evidence.any() else by_words
    by_similarity = posterior.weight > 0
    if not by_similarity:
        posterior = by_words
    future = np.ones(inputs.ahead)  # what is yet to come may show anything
    mask = np.concatenate([video.informative, future])
    posterior, by_words = posterior.masked(mask), by_words.masked(mask)

    # whether the pictures of the whole video belong to the speech, and whether it instructs
    log_odds = video.correspondence_log_odds
    if by_similarity and speech.is_said.any():
        agreement = log_bayes_factor(
            speech.prior[speech.is_said], posterior.weight * evidence[speech.is_said]
        )
        log_odds = (log_odds or 0.0) + (agreement - SIMILARITY_PENALTY * posterior.weight)
    probability = 1.0  # that a step which is said can be shown at all
    if log_odds is not None:
        probability = _posterior(BELONG_PRIOR, log_odds)
    if video.instruction is not None:
        probability *= _posterior(INSTRUCTS_PRIOR, video.instruction)

    report = GroundReport(
        likeness=posterior.weight,
        shots=len(inputs.shots),
        note="the pictures place steps" if by_similarity else "the words place the steps",
        correspondence=log_odds,
        earned=log_odds is not None and log_odds > MIN_BELONG_LOG_ODDS,
        instruction=video.instruction,
        instructs=video.instruction is None or video.instruction > MIN_INSTRUCTS_LOG_ODDS,
    )
    steps = []
    scores = zip(posterior.score.tolist(), by_words.score.tolist(), strict=True)
    for step, row, (score, words_score) in zip(
        inputs.steps, posterior.occupancy, scores, strict=True
    ):
        # said while the picture shows nothing, and seen nowhere else
        if step.said is not None and max(score, words_score) < settings.shown_threshold:
            steps.append(without_place(step, probability * score))
            continue
        placed = with_status(
            step,
            row,
            score,
            inputs.shots,
            inputs.end,
            settings,
            basis="image_text" if by_similarity else None,
            probability=probability,
            doubt=step.doubt or report.doubt,
        )
        steps.append(placed)
    p_possible = np.where(speech.is_said, probability, 1.0)  # (K,)
    shown_at = posterior.shown_at * p_possible[:, None]  # (K, T)
    return Grounding(tuple(steps), _alignment(inputs, shown_at.astype(np.float32)), report)


def speech_prior(inputs: GroundingInputs) -> SpeechPrior:
    """Return when and whether each step is shown, as predicted from the speech only."""
    prior = load_prior()
    rows = []
    for step, spans in zip(inputs.steps, inputs.passages, strict=True):
        weights = None
        if step.said is None and step.at is not None:
            spans = [Span(step.at, step.at + 1.0)]
            weights = np.array([UNSAID_AT_PROBABILITY])
        rows.append(
            prior.distribution(spans, inputs.seconds, weights=weights, lag=WORDS_LAG_SECONDS)
        )
    return SpeechPrior(
        prior=np.array(rows).reshape(-1, inputs.seconds),
        shown_prior=np.where(inputs.is_said, SAID_SHOWN_PRIOR, UNSAID_SHOWN_PRIOR),
        is_said=inputs.is_said,
        past_seconds=inputs.past_seconds,
    )


def similarity_evidence(inputs: GroundingInputs) -> Array:
    """Return the similarity of each step and second in standard deviations, (K, T), 0 if unknown.

    It is centred over steps and seconds (`center_similarity`). The similarity of ConSE is not used: it
    moves no step of the real clips.
    """
    features = inputs.features
    vectors = inputs.step_vectors
    if features is None or vectors is None or not inputs.steps or features.backbone == "conse":
        return np.zeros((len(inputs.steps), inputs.seconds))
    return center_similarity(similarity(features, vectors, inputs.seconds))


def _posterior(prior: float, log_odds: float) -> float:
    """Return the posterior probability of a hypothesis.

    Args:
        prior: probability before the evidence, above 0.
        log_odds: log Bayes factor of the evidence, in nats.
    """
    likelihood = math.exp(min(log_odds, MAX_LOG_ODDS))
    return prior * likelihood / (prior * likelihood + 1 - prior)
