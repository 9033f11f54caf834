"""Grounding: when each step is shown, by speech prior and visual evidence, with competing steps.

Example: in a video of 60 s only "Drain the pasta and rinse it." is said, at 10 to 14 s. By speech alone the
step "drain the pasta and rinse" is "placed" (7, 20), at 13.5, score 0.89, with a doubt: no picture
fits the words. The step "slice the bread" is "not_found", score 0.30. For step k at second t:

    P_k(t) = prior(t | said_k) exp(w z_k(t)) unclaimed_k(t) / sum   w fitted from the video itself
    P(shown_k) = pi B_k / (1 - pi + pi B_k)                          B_k: Bayes factor of "shown"

`fusion.fuse` computes this for every second. In a video with at least as many shots as steps, some
steps are matched to shots instead (`shots.assign_to_shots`). No model is trained. docs/grounding.md
has the explanation.

    prior, pi   `speech_prior`         when and whether a step is shown, by where it is said
    z           `similarity_evidence`    similarity of the step and the second
    unclaimed   `fusion.fuse`          P(no other step is being shown then)
    shots       `place_by_shots`       the same for steps that are not said, or over a talking head
    statuses    `fusion.with_status`   spans, score, and "seen", "placed", "said_only" or "not_found"

Letters: K steps, T seconds, D width.
"""

import functools
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepline.grounding.correspondence import PICTURES_DO_NOT_FIT, TALK_WARNING
from stepline.grounding.evidence import TimedText, center_similarity, log_bayes_factor, similarity
from stepline.grounding.fusion import (
    Flags,
    ShownPosterior,
    SpeechPrior,
    fuse,
    occupancy,
    separate_overlapping_spans,
    similarity_penalty,
    with_status,
)
from stepline.grounding.inputs import (
    GroundingInputs,
    GroundingWindow,
    VideoEvidence,
    WeightedPassages,
    cut_into_windows,
    to_video_time,
    video_evidence,
)
from stepline.grounding.said_to_shown import Array, load_prior
from stepline.grounding.settings import GroundSettings
from stepline.grounding.shots import (
    USUAL_LAG_SECONDS,
    action_odds_by_appearance,
    assign_to_shots,
    shot_units,
    step_and_other_speech,
    talking_head_log_odds,
)
from stepline.numeric import logit, sigmoid
from stepline.records import Alignment, Basis, FeatureSequence, Matrix, Span, Step, Transcript
from stepline.text.visibility import predict_visibility
from stepline.writing.types import under_condition

if TYPE_CHECKING:
    from stepline.vision import Activity


# why a step may not be shown, as `Step.doubt`
NO_INSTRUCTION = "hardly any sentence of the video states a step"
LAST_CASE = "said last, and only for some cases"
PLACED_BY_WORDS = "steps are placed where they are said, and may not be shown"
log = logging.getLogger(__name__)
MINILM_WIDTH = 384  # of MiniLM vectors, which `predict_visibility` needs
# P(the last step is shown), if it is said under a condition. In real clips 0 of 2 are
LAST_CASE_PROBABILITY = 0.5
# mean log odds of `predict_visibility` for the step texts of COIN and CrossTask
MEAN_WORDING_LOG_ODDS = 0.15
# P(a step is shown) without visual evidence: of a step that is said (real clips: 0.92), of a step that
# is said over a talking head (drawn videos: 0.82), of a step that is not said (a guess)
SHOWN_RATE = 0.9
TALKING_HEAD_SHOWN_RATE = 0.81
UNSAID_SHOWN_RATE = 0.3
SHOT_SIMILARITY_WEIGHT = 0.4  # of visual similarity per standard deviation, where shots are matched
MIN_TALK_LOG_ODDS = 0.2  # nats of a talking head, from which shots may place its steps
# P(the pictures belong to the speech) and P(the speech instructs) before any evidence, both guesses,
# and the log odds above which steps are placed without a doubt. 73 how-to transcripts all instruct by the second
BELONG_PRIOR = 0.95
MIN_BELONG_LOG_ODDS = -0.75
INSTRUCTS_PRIOR = 0.95
MIN_INSTRUCTS_LOG_ODDS = -1.6
VISIBLE_MARGIN = 1e-3  # distance of P(shown) by wording from 0 and 1
MAX_LOG_ODDS = 50.0  # nats, against overflow
# duration of a user's line as a fraction of the mean distance of lines, within limits in seconds.
# The median of YouCook2's 2,441 steps is .42, of 27 short clips .69
LINE_FRACTION = 0.4
DEFAULT_LINE_SECONDS = 8.0  # of a single line; WhenAct's median of an action
MIN_LINE_SECONDS = 4.0
MAX_LINE_SECONDS = 20.0
MIN_MOVE_SECONDS = 2  # from the second by speech only, beyond which the pictures moved a step


@dataclass(frozen=True)
class GroundReport:
    """Which evidence placed the steps of a video, and how reliable it is.

    Attributes:
        likeness: weight of the similarity of pictures and step texts, 0 if it is not used.
        motion: 1 if shots placed at least one step, so that motion is used, else 0.
        lag: seconds by which the pictures of those shots follow the words.
        moved: number of steps that the pictures moved by more than 2 s.
        shots: number of shots.
        note: one sentence on how the pictures changed the placement.
        correspondence: log odds that the pictures belong to the speech, None without evidence.
        earned: whether `correspondence` is high enough for steps without a doubt.
        instruction: log Bayes factor that the speech instructs, None for steps that a user wrote.
        instructs: whether `instruction` is high enough for steps without a doubt.
    """

    likeness: float
    motion: float
    lag: float
    moved: int
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
        if self.correspondence is not None and not self.earned:
            warnings.append(f"what is seen hardly fits what is said: {PLACED_BY_WORDS}")
        if not self.instructs:
            warnings.append(TALK_WARNING)
        return tuple(warnings)


def merge_reports(reports: Sequence[GroundReport]) -> GroundReport:
    """Return one report of all windows, with mean weights and summed counts."""
    log_odds = [report.correspondence for report in reports if report.correspondence is not None]
    return GroundReport(
        likeness=float(np.mean([report.likeness for report in reports])),
        motion=float(np.mean([report.motion for report in reports])),
        lag=float(np.mean([report.lag for report in reports])),
        moved=sum(report.moved for report in reports),
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

    def select(self, rows: Sequence[int]) -> "Grounding":
        """Return the grounding of some of the steps. rows: their indices."""
        steps = tuple(self.steps[row] for row in rows)
        texts = tuple(self.alignment.texts[row] for row in rows)
        scores = self.alignment.scores[list(rows)]
        alignment = replace(self.alignment, texts=texts, scores=scores)
        return replace(self, steps=steps, alignment=alignment)


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
    visible: Sequence[float] | None = None,
    written: bool = True,
    tellings: Array | None = None,
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
        visible: (K,) P(shown) by the wording alone (`text.visibility`).
        written: whether the steps are all that the transcript says, not a user's own lines.
        tellings: (K, S) P(the sentence describes the step), for a user's own lines.
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
        visible=visible,
        written=written,
        sentence_probabilities=tellings,
        instruction=instruction,
    )
    return ground_inputs(inputs, settings or GroundSettings())


def ground_inputs(inputs: GroundingInputs, settings: GroundSettings) -> Grounding:
    """Return the grounding of a whole video: its steps placed where they are shown.

    A long video is grounded in windows.
    """
    video = video_evidence(inputs)
    if inputs.sentence_probabilities is not None and inputs.steps:
        settings = settings.model_copy(update={"typical": line_seconds(inputs)})
    windows = cut_into_windows(inputs.steps, inputs.duration, settings)
    if len(windows) == 1:
        grounding = ground_window(inputs, video, settings)
    else:
        grounding = _ground_windows(inputs, video, windows, settings)
    log.info("grounding: %s", grounding.report.note)
    grounding = replace(grounding, steps=separate_overlapping_spans(grounding.steps))
    if inputs.lines is not None:
        grounding = grounding.select(inputs.lines)
    return replace(grounding, steps=doubt_conditional_last_step(grounding.steps))


def line_seconds(inputs: GroundingInputs) -> float:
    """Return the typical duration in seconds of a user's line, by the seconds between the steps.

    The steps may fill a part of the video, so the duration of the video does not count.
    """
    starts = sorted(step.said.start for step in inputs.steps if step.said is not None)
    if len(starts) < 2 or starts[0] == starts[-1]:
        return DEFAULT_LINE_SECONDS
    seconds = LINE_FRACTION * (starts[-1] - starts[0]) / (len(starts) - 1)
    return min(MAX_LINE_SECONDS, max(MIN_LINE_SECONDS, seconds))


def doubt_conditional_last_step(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps, with a doubt of the last one if it is placed and has a condition.

    Its score is halved. "If it gets worse, see a doctor" is often said over unrelated pictures.
    """
    if len(steps) < 2:
        return steps
    *others, last = steps
    if last.status != "placed" or last.doubt is not None or not under_condition(last.text):
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
    speech = speech_prior(inputs, settings)
    evidence = similarity_evidence(inputs)
    penalty = similarity_penalty(inputs.features)

    # second by second, by speech alone and with the picture
    speech_posterior = fuse(speech, np.zeros(evidence.shape), 0.0, settings)
    posterior = fuse(speech, evidence, penalty, settings) if evidence.any() else speech_posterior

    # shot by shot, for the steps whose words are over no picture of them
    posterior, by_shots, lag = place_by_shots(inputs, speech, evidence, posterior, settings)
    future = np.ones(inputs.ahead)  # what is yet to come may show anything
    posterior = posterior.masked(np.concatenate([video.informative, future]))

    # whether the pictures of the whole video belong to the speech, and whether it instructs
    log_odds = video.correspondence_log_odds
    if posterior.weight and speech.is_said.any():
        agreement = log_bayes_factor(
            speech.prior[speech.is_said], posterior.weight * evidence[speech.is_said]
        )
        log_odds = (log_odds or 0.0) + (agreement - penalty * posterior.weight)
    probability = 1.0  # that a step which is said can be shown at all
    if log_odds is not None:
        probability = _posterior(BELONG_PRIOR, log_odds)
    if video.instruction is not None:
        probability *= _posterior(INSTRUCTS_PRIOR, video.instruction)

    moved = int(
        (np.abs(speech_posterior.best_seconds - posterior.best_seconds) > MIN_MOVE_SECONDS).sum()
    )
    report = GroundReport(
        likeness=posterior.weight,
        motion=float(by_shots.any()),
        lag=lag,
        moved=moved,
        shots=len(inputs.shots),
        note=_picture_note(inputs, posterior.weight, int(by_shots.sum()), moved),
        correspondence=log_odds,
        earned=log_odds is not None and log_odds > MIN_BELONG_LOG_ODDS,
        instruction=video.instruction,
        instructs=video.instruction is None or video.instruction > MIN_INSTRUCTS_LOG_ODDS,
    )
    steps = []
    by_similarity: Basis | None = "image_text" if posterior.weight > 0 else None
    for step, row, score, is_by_shots in zip(
        inputs.steps, posterior.occupancy, posterior.score.tolist(), by_shots, strict=True
    ):
        placed = with_status(
            step,
            row,
            score,
            inputs.shots,
            inputs.end,
            settings,
            basis="shots" if is_by_shots else by_similarity,
            probability=probability,
            doubt=report.doubt,
        )
        steps.append(placed)
    p_possible = np.where(speech.is_said, probability, 1.0)  # (K,)
    shown_at = posterior.shown_at * p_possible[:, None]  # (K, T)
    return Grounding(tuple(steps), _alignment(inputs, shown_at.astype(np.float32)), report)


def _picture_note(inputs: GroundingInputs, weight: float, by_shots: int, moved: int) -> str:
    """Return a sentence for the report: how the pictures changed the placement.

    Args:
        inputs: steps, speech and visual evidence.
        weight: weight of the similarity of pictures and step texts.
        by_shots: number of steps placed by shots.
        moved: number of steps that the pictures moved by more than 2 s.
    """
    if inputs.features is None and inputs.activity is None:
        return "speech alone: no pictures were given"
    if not weight and not by_shots:
        return (
            "speech alone: the pictures do not show where anything is done, so they weigh nothing"
        )
    return (
        f"likeness weighs {weight:.1f}, {by_shots} of {len(inputs.steps)} steps are placed by "
        f"shots; {moved} moved by more than 2 s"
    )


def speech_prior(inputs: GroundingInputs, settings: GroundSettings) -> SpeechPrior:
    """Return when and whether each step is shown, as predicted from the speech only."""
    return SpeechPrior(
        prior=shown_time_prior(inputs.weighted_passages, USUAL_LAG_SECONDS, inputs.seconds),
        shown_prior=shown_before_evidence(inputs.is_said, SHOWN_RATE, inputs.visible, settings),
        is_said=inputs.is_said,
        past_seconds=inputs.past_seconds,
    )


def shown_time_prior(passages: Sequence[WeightedPassages], lag: float, seconds: int) -> Array:
    """Return P(step k is shown in second t), (K, T), by where the speech says the step.

    Args:
        passages: for each of K steps, the spans of the speech that may say it, with probabilities.
        lag: seconds by which the video shows steps later than the speech says them.
        seconds: T, number of seconds.
    """
    rows = []
    for item in passages:
        row = load_prior().distribution(item.spans, seconds, weights=item.weights, lag=lag)
        rows.append(row)
    return np.array(rows).reshape(-1, seconds)


def shown_before_evidence(
    is_said: Flags, rate: float, visible: Array | Sequence[float] | None, settings: GroundSettings
) -> Array:
    """Return P(step k is shown) before any visual evidence, (K,).

    Args:
        is_said: (K,) whether each step is said.
        rate: P(shown) of a step that is said.
        visible: (K,) P(shown) by the wording of the steps. None: unknown.
        settings: settings of grounding, with the weight of the wording.
    """
    # The rate of steps that are said, changed by their wording.
    rate_log_odds = logit(np.asarray(rate, dtype=np.float64))
    log_odds = np.full(len(is_said), rate_log_odds)
    if visible is not None:
        wording = logit(np.asarray(visible, dtype=np.float64), VISIBLE_MARGIN)
        log_odds = log_odds + settings.wording * (wording - MEAN_WORDING_LOG_ODDS)
    return np.where(is_said, sigmoid(log_odds), UNSAID_SHOWN_RATE)


def similarity_evidence(inputs: GroundingInputs) -> Array:
    """Return the similarity of each step and second in standard deviations, (K, T), 0 if unknown.

    It is centred over steps and seconds (`center_similarity`).
    """
    features = inputs.features
    vectors = inputs.step_vectors
    if features is None or vectors is None or not inputs.steps:
        return np.zeros((len(inputs.steps), inputs.seconds))
    cosines = similarity(features, vectors, inputs.seconds)
    return center_similarity(cosines)


def place_by_shots(
    inputs: GroundingInputs,
    speech: SpeechPrior,
    evidence: Array,
    posterior: ShownPosterior,
    settings: GroundSettings,
) -> tuple[ShownPosterior, Flags, float]:
    """Assign steps to shots where the speech does not tell when they are shown: steps that are not
    said, or that are said over a talking head.

    Returns three values: the posterior of all K steps, (K,) True for the steps that were assigned
    to shots, and the seconds by which the video shows steps later than the speech says them.

    Args:
        inputs: steps, speech and visual evidence.
        speech: when and whether each step is shown, by the speech only.
        evidence: (K, T) similarity of step and second, in standard deviations.
        posterior: when and whether each step is shown, second by second, before the assignment.
        settings: settings of grounding.
    """
    activity = inputs.activity
    shots = inputs.shots
    steps = inputs.steps
    unmoved = (posterior, np.zeros(len(steps), dtype=bool), USUAL_LAG_SECONDS)
    if activity is None or not inputs.has_thumbnails or not 0 < len(steps) <= len(shots):
        return unmoved

    # which steps: those whose words do not tell when they are shown
    _, other_speech = step_and_other_speech(steps, inputs.transcript, inputs.seconds)
    appearance = action_odds_by_appearance(activity, shots, speech.prior, other_speech)
    talk = talking_head_log_odds(appearance, shots)
    placed_by_shots = ~speech.is_said | _is_said_over_talking_head(talk, inputs.passages)
    if not placed_by_shots.any():
        return unmoved

    # where: all steps compete for the shots, each in the middle of a shot
    visible: Array | Sequence[float] | None = inputs.visible
    if visible is None:
        visible = _visibility_of_wording(inputs)
    units = shot_units(activity, shots, appearance, inputs.features)
    pairs, p_shown, lag = assign_to_shots(
        functools.partial(shown_time_prior, inputs.weighted_passages, seconds=inputs.seconds),
        steps,
        SHOT_SIMILARITY_WEIGHT * evidence,
        shown_before_evidence(speech.is_said, TALKING_HEAD_SHOWN_RATE, visible, settings),
        units,
        settings,
    )
    centers = np.zeros(evidence.shape)
    for column, unit in zip(pairs.T, units.slices, strict=True):
        centers[:, (unit.start + unit.stop - 1) // 2] = column
    centers /= centers.sum(axis=1, keepdims=True)
    in_shots = occupancy(centers, units.slices, settings.typical)
    moved = ShownPosterior(
        np.where(placed_by_shots[:, None], in_shots, posterior.occupancy),
        np.where(placed_by_shots, p_shown, posterior.score),
        posterior.weight,
    )
    return moved, placed_by_shots, lag


def _is_said_over_talking_head(talk: Array, passages: Sequence[Sequence[Span]]) -> Flags:
    """Return whether the video shows a talking head while each of K steps is said, (K,).

    Args:
        talk: (T,) log odds of an action against a talking head in each second, <= 0, from
            `talking_head_log_odds`.
        passages: for each of K steps, the spans of the speech that say the step.
    """
    flags = np.zeros(len(passages), dtype=bool)
    for k, spans in enumerate(passages):
        if spans:
            during = [talk[int(span.start) : math.ceil(span.end)] for span in spans]
            flags[k] = float(np.concatenate(during).mean()) < -MIN_TALK_LOG_ODDS
    return flags


def _visibility_of_wording(inputs: GroundingInputs) -> Array | None:
    """Return P(shown) by the wording of each step, (K,), None if its vectors are not of MiniLM."""
    features = inputs.features
    vectors = inputs.step_vectors
    if features is None or vectors is None or features.backbone != "conse":
        return None
    if vectors.shape[-1:] != (MINILM_WIDTH,):
        return None
    return predict_visibility(vectors)


def _posterior(prior: float, log_odds: float) -> float:
    """Return the posterior probability of a hypothesis.

    Args:
        prior: probability before the evidence, above 0.
        log_odds: log Bayes factor of the evidence, in nats.
    """
    likelihood = math.exp(min(log_odds, MAX_LOG_ODDS))
    return prior * likelihood / (prior * likelihood + 1 - prior)
