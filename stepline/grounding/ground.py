"""Where each step is shown: where it is said, times what the picture says, times its rivals for the
same place.

    P_k(t) = prior(t | said_k) exp(w z_k(t)) free_k(t) / sum   w earned from the video itself
    P(shown_k) = pi B_k / (1 - pi + pi B_k)                          B_k: how well the evidence fits "shown"

in a long take, second by second (`fusion.fuse`); a video cut into at least as many shots as steps
is matched to them instead, one step a shot (`shots.assign_to_shots`). z: two kinds of evidence, how
like the step a second looks and how like doing anything it moves (`evidence`, `shots`); free: P(no
other step is being shown then). No trained model. docs/grounding.md tells it in plain words.
Letters: K steps, T seconds, D width.
"""

import functools
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepline.errors import ShapeError
from stepline.grounding.correspondence import HARDLY_FIT, correspondence, instruction_log_bayes
from stepline.grounding.evidence import (
    TimedText,
    contrast,
    log_bayes_factor,
    pictured,
    shot_slices,
    similarity,
)
from stepline.grounding.fusion import (
    Flags,
    ShownPosterior,
    fuse,
    occupancy,
    part_neighbours,
    with_verdict,
)
from stepline.grounding.said_to_shown import Array, load_prior
from stepline.grounding.settings import GroundSettings
from stepline.grounding.shots import (
    LookOdds,
    assign_to_shots,
    odds_by_look,
    shot_units,
    talking_heads,
    told_and_chat,
)
from stepline.grounding.windows import (
    GroundingWindow,
    cut_activity,
    cut_features,
    cut_into_windows,
    cut_steps,
    to_video_time,
)
from stepline.records import Alignment, FeatureSequence, Matrix, Sentence, Span, Step, Transcript
from stepline.text.visibility import predict_visibility as visible_by_wording
from stepline.writing.types import under_condition

if TYPE_CHECKING:
    from stepline.vision import Activity

log = logging.getLogger(__name__)

MINILM = 384  # width of the vectors that wording is judged on
# P(the case is shown) of a step told last and under a condition; both of real clips are not
LAST_CASE = 0.5
# mean log odds that `visible` gives the step texts of COIN and CrossTask: how-to is not vlogs
USUAL_WORDING = 0.15


@dataclass(frozen=True)
class GroundReport:
    """What the picture added: the weight that each kind of evidence earned (0 = nothing), and how
    many steps it moved.

    likeness: to the step's words; motion: 1 where some step is placed by shots, whose hands at work
    then count, else 0.
    lag: seconds by which the pictures of those shots follow the words. moved: steps whose likeliest
    second is more than 2 s from that of speech alone. correspondence: log odds that the pictures
    belong to the speech, None where nothing tells; earned: whether that is enough to call steps
    shown. instruction: log Bayes factor that the speech instructs, None where the steps are not
    from it; instructs: whether that is enough to call steps shown.
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
    def unclear(self) -> str:
        """Why a step is "unclear", in plain words."""
        if not self.instructs:
            return "hardly a sentence of the video tells a step"
        return "told last, and only for some case" if self.earned else HARDLY_FIT

    @property
    def doubts(self) -> tuple[str, ...]:
        """What the user should know before trusting the steps: two films, or no how-to video."""
        found = []
        if self.correspondence is not None and not self.earned:
            found.append(
                "what is seen hardly fits what is said: steps stand where they are said, and may not be shown"
            )
        if not self.instructs:
            found.append(
                "hardly a sentence tells a step, as in a talk: steps stand where they are said, and may not be shown"
            )
        return tuple(found)


@dataclass(frozen=True)
class Grounding:
    """Steps with spans, at, score and status; alignment: P(step k is being shown at t), (K, T), one
    column a second."""

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
    visible: Sequence[float] | None = None,
    written: bool = True,
    settings: GroundSettings | None = None,
) -> Grounding:
    """Return the steps placed where they are shown; without features and activity, by speech alone.

    `said` of each step is where it is spoken, None where it is not; with a transcript, its
    `sources` say so more finely. step_vectors: (K, D), sentence_vectors: (S, D) in the space of the
    features. on_screen: what is written in the picture. visible: P(shown) of each step by its
    wording alone (`text.visibility`). written: whether the steps are all that the transcript tells,
    not a user's own lines; then how many sentences tell one says whether it instructs at all. A
    long video is grounded in windows. Raises ShapeError when arrays do not fit together.
    """
    settings = settings or GroundSettings()
    given, belong = gather_inputs(
        steps,
        duration=duration,
        transcript=transcript,
        features=features,
        step_vectors=step_vectors,
        activity=activity,
        sentence_vectors=sentence_vectors,
        on_screen=on_screen,
        visible=visible,
        written=written,
    )
    windows = cut_into_windows(steps, duration, settings)
    grounding = (
        ground_window(given, belong, settings)
        if len(windows) == 1
        else _ground_windows(given, windows, belong, settings)
    )
    log.info("grounding: %s", grounding.report.note)
    return replace(grounding, steps=_doubt_last_case(part_neighbours(grounding.steps)))


def gather_inputs(
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
) -> "tuple[GroundingInputs, float | None]":
    """Return what the windows of a video share, and the log odds that its pictures belong to its
    speech, if known.

    The arguments are those of `ground`. Raises ShapeError when arrays do not fit together.
    """
    if step_vectors is not None and len(step_vectors) != len(steps):
        raise ShapeError(
            f"step vectors must have one row a step: {len(steps)}, not {len(step_vectors)}"
        )
    if visible is not None and len(visible) != len(steps):
        raise ShapeError(
            f"visible must hold one probability a step: {len(steps)}, not {len(visible)}"
        )
    possible = np.ones(math.ceil(duration))
    if activity is not None and len(activity.looks) > 0:
        possible = pictured(activity, len(possible), on_screen)
    told = {source for step in steps for source in step.sources}
    heard = len(transcript.sentences) if transcript and written and told else 0
    instruction = round(instruction_log_bayes(len(told), heard), 3) if heard else None
    given = GroundingInputs(
        tuple(steps),
        duration,
        transcript,
        features,
        step_vectors,
        activity,
        visible,
        possible,
        instruction,
    )
    belong = None
    if features is not None or activity is not None:
        said = (Sentence(text=step.text, span=step.said) for step in steps if step.said is not None)
        cuts = activity.cuts if activity else ()
        tie = correspondence(
            transcript.sentences if transcript else tuple(said),
            duration,
            cuts=cuts,
            features=features,
            sentence_vectors=sentence_vectors,
            on_screen=on_screen,
        )
        belong = round(tie.log_odds(), 3) if tie.known else None
    return given, belong


def _doubt_last_case(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps, the last of them "unclear" where it holds only in some case, which a video
    need not bring.

    "If it gets worse, see a doctor" ends a video whose pictures have gone back to the start, or to
    the presenter.
    """
    if (
        len(steps) < 2
        or steps[-1].status != "shown"
        or steps[-1].said is None
        or not under_condition(steps[-1].text)
    ):
        return tuple(steps)
    return *steps[:-1], steps[-1].model_copy(
        update={"status": "unclear", "score": LAST_CASE * (steps[-1].score or 0.0)}
    )


@dataclass(frozen=True)
class GroundingInputs:
    """What `ground` was given, of a whole video or of one window."""

    steps: Sequence[Step]
    duration: float
    transcript: Transcript | None
    features: FeatureSequence | None
    step_vectors: Matrix | None
    activity: "Activity | None"
    visible: Sequence[float] | None
    possible: Array  # (T,), 0 in the seconds that can show nothing
    instruction: float | None  # log Bayes factor of the whole video
    # seconds yet to come after `duration`, of a video that still runs: a step may be shown there
    # too
    ahead: int = 0

    def cut(self, window: GroundingWindow) -> "GroundingInputs":
        """Return what belongs to one window, its times counted from the window's start."""
        rows = list(window.steps)
        steps, speech = cut_steps(self.steps, window, self.transcript)
        return GroundingInputs(
            steps,
            min(window.context.end, self.duration) - window.context.start,
            speech,
            cut_features(self.features, window),
            None if self.step_vectors is None else self.step_vectors[rows],
            cut_activity(self.activity, window),
            None if self.visible is None else [self.visible[row] for row in rows],
            self.possible[int(window.context.start) : int(window.context.end)],
            self.instruction,
            self.ahead,
        )


def _ground_windows(
    given: GroundingInputs,
    windows: Sequence[GroundingWindow],
    belong: float | None,
    settings: GroundSettings,
) -> Grounding:
    """Ground every step in the window that decides it."""
    scores = np.zeros((len(given.steps), math.ceil(given.duration)), dtype=np.float32)
    steps = list(given.steps)
    reports = []
    for window in windows:
        grounding = ground_window(given.cut(window), belong, settings)
        reports.append(grounding.report)
        start, width = int(window.context.start), grounding.alignment.scores.shape[1]
        for row, step, score in zip(
            window.steps, grounding.steps, grounding.alignment.scores, strict=True
        ):
            if row in window.decides:
                steps[row] = to_video_time(step, given.steps[row], window)
                scores[row, start : start + width] = score
    alignment = Alignment(tuple(step.text for step in steps), scores, 1.0, "probability")
    return Grounding(tuple(steps), alignment, _merge_reports(reports))


def ground_window(
    given: GroundingInputs, belong: float | None, settings: GroundSettings
) -> Grounding:
    """Ground the steps of one window, or of a whole short video.

    belong: log odds, of the whole video, that the pictures belong to the speech; None where nothing
    tells.
    """
    steps, duration, activity = given.steps, given.duration, given.activity
    known = math.ceil(duration)
    seconds, end = known + given.ahead, duration + given.ahead
    passages = [spoken_passages(step, given.transcript, end) for step in steps]
    said = np.array([step.said is not None for step in steps], dtype=bool)
    prior = prior_of(passages, settings.lag_usual, seconds)
    base = shown_before_evidence(said, settings.shown_rate, given.visible, settings)
    speech = fuse(prior, np.zeros(prior.shape), said, base, 0.0, settings, seen=known)
    cuts = activity.cuts if activity else ()
    # what comes looks like nothing known
    shots = shot_slices((*cuts, known) if given.ahead else cuts, seconds)
    likeness = _likeness(given.features, given.step_vectors, shots, prior.shape, settings)
    conse = given.features is not None and given.features.backbone == "conse"
    penalty = settings.likeness_penalty_conse if conse else settings.likeness_penalty
    posterior = (
        fuse(prior, likeness, said, base, penalty, settings, seen=known)
        if likeness.any()
        else speech
    )
    lag, sent = settings.lag_usual, np.zeros(len(steps), dtype=bool)
    if activity is not None and len(activity.looks) > 0 and 0 < len(steps) <= len(shots):
        _, chat = told_and_chat(steps, given.transcript, seconds)
        by_look = odds_by_look(activity, shots, prior, chat)
        sent = ~said | _said_over_talk(talking_heads(by_look, shots), passages, settings)
        if sent.any():
            moved, lag = _by_shots(given, likeness, passages, by_look, shots, settings)
            rows = np.where(sent[:, None], moved.occupancy, posterior.occupancy)
            posterior = ShownPosterior(
                rows, np.where(sent, moved.score, posterior.score), posterior.weight
            )
    if posterior.weight and said.any():
        agreed = (
            log_bayes_factor(prior[said], posterior.weight * likeness[said])
            - penalty * posterior.weight
        )
        belong = (belong or 0.0) + agreed
    earned = belong is not None and belong > settings.belong_least
    posterior = posterior.within(np.pad(given.possible, (0, given.ahead), constant_values=1.0))
    instructs = given.instruction is None or given.instruction > settings.instructs_least
    likely = 1.0 if belong is None else _posterior(settings.belong_rate, belong)
    if given.instruction is not None:
        likely *= _posterior(settings.instructs_rate, given.instruction)
    grounded = tuple(
        with_verdict(
            step,
            row,
            float(score),
            shots,
            end,
            settings,
            belong=likely,
            earned=earned and instructs,
        )
        for step, row, score in zip(steps, posterior.occupancy, posterior.score, strict=True)
    )
    expected = posterior.expected * np.where(said, likely, 1.0)[:, None]
    alignment = Alignment(
        tuple(step.text for step in steps), expected.astype(np.float32), 1.0, "probability"
    )
    looked = given.features is not None or activity is not None
    report = _report(speech, posterior, lag, sent, len(shots), looked)
    return Grounding(
        grounded,
        alignment,
        replace(
            report,
            correspondence=belong,
            earned=earned,
            instruction=given.instruction,
            instructs=instructs,
        ),
    )


def _said_over_talk(
    talk: Array, passages: Sequence[Sequence[Span]], settings: GroundSettings
) -> Flags:
    """Return (K,): the picture shows a talking head while the step is said; talk: (T,) log odds
    against doing."""
    flags = np.zeros(len(passages), dtype=bool)
    for k, spans in enumerate(passages):
        during = [talk[int(span.start) : math.ceil(span.end)] for span in spans]
        flags[k] = bool(during) and float(np.concatenate(during).mean()) < -settings.talk
    return flags


def _by_shots(
    given: GroundingInputs,
    likeness: Array,
    passages: Sequence[Sequence[Span]],
    by_look: LookOdds,
    shots: Sequence[slice],
    settings: GroundSettings,
) -> tuple[ShownPosterior, float]:
    """Return where every step is shown if shots are the places, and the lag of the video's
    pictures."""
    assert given.activity is not None
    steps, seconds = given.steps, likeness.shape[1]
    visible = given.visible
    if visible is None:
        visible = _visibility_of_wording(given.features, given.step_vectors)
    said = np.array([step.said is not None for step in steps], dtype=bool)
    base = shown_before_evidence(said, settings.shown_rate_shots, visible, settings)
    prior_at = functools.partial(prior_of, passages, seconds=seconds)
    units = shot_units(given.activity, shots, by_look, given.features)
    weight = settings.likeness_shots if likeness.any() else 0.0
    assignment = assign_to_shots(prior_at, steps, weight * likeness, base, units, settings)
    centers = np.zeros(likeness.shape)
    for column, unit in zip(assignment.pairs.T, units.slices, strict=True):
        # a step is likeliest in the middle of its shot
        centers[:, (unit.start + unit.stop - 1) // 2] = column
    rows = occupancy(centers / centers.sum(axis=1, keepdims=True), units.slices, settings.typical)
    return ShownPosterior(rows, assignment.shown, weight), assignment.lag


def _visibility_of_wording(
    features: FeatureSequence | None, vectors: Matrix | None
) -> Sequence[float] | None:
    """Return P(shown) of each step by its wording, where the step vectors are of MiniLM, as conse's
    are."""
    if (
        features is None
        or vectors is None
        or features.backbone != "conse"
        or vectors.shape[-1:] != (MINILM,)
    ):
        return None
    return [float(p) for p in visible_by_wording(vectors)]


def prior_of(passages: Sequence[Sequence[Span]], lag: float, seconds: int) -> Array:
    """Return P(shown at t | said), (K, T), in a video whose pictures come `lag` seconds after the
    words."""
    rows = [load_prior().distribution(spans, seconds, lag=lag) for spans in passages]
    return np.array(rows).reshape(-1, seconds)


def spoken_passages(step: Step, transcript: Transcript | None, duration: float) -> list[Span]:
    """Return the passages that say the step, inside the video: its sentences where known, else
    `said`."""
    if step.said is None:
        return []
    spans = [transcript.sentences[n].span for n in step.sources] if transcript else []
    said = step.said
    passages = [
        Span(max(span.start, said.start), min(span.end, said.end))
        for span in spans
        if span.overlap(said) > 0
    ] or [said]
    inside = [Span(p.start, min(p.end, duration)) for p in passages if p.start < duration]
    # said after the last frame: the end is nearest
    return inside or [Span(max(0.0, duration - 1), duration)]


def shown_before_evidence(
    said: Flags, rate: float, visible: Sequence[float] | None, settings: GroundSettings
) -> Array:
    """Return P(shown) before any evidence, (K,)."""
    spoken = np.full(len(said), _logit(np.asarray(rate, dtype=np.float64)))
    if visible is not None:
        words = _logit(np.clip(np.asarray(visible, dtype=np.float64), 1e-3, 1 - 1e-3))
        spoken = spoken + settings.wording * (words - USUAL_WORDING)
    return np.where(said, 1 / (1 + np.exp(-spoken)), settings.unsaid_rate)


def _posterior(prior: float, log_odds: float) -> float:
    """Return the probability after evidence in nats."""
    likelihood = math.exp(min(log_odds, 50.0))
    return prior * likelihood / (prior * likelihood + 1 - prior) if prior else 0.0


def _logit(p: Array) -> Array:
    return np.asarray(np.log(p / (1 - p)))


def _likeness(
    features: FeatureSequence | None,
    vectors: Matrix | None,
    shots: Sequence[slice],
    shape: tuple[int, ...],
    settings: GroundSettings,
) -> Array:
    """Return how like its step each second looks, contrasted: (K, T), zero where nothing is
    known."""
    if features is None or vectors is None or not shape[0]:
        return np.zeros(shape)
    return contrast(similarity(features, vectors, shape[1]), shots, settings.smooth)


def _merge_reports(reports: Sequence[GroundReport]) -> GroundReport:
    """Return one report of all windows: mean weights and lag, all that moved."""
    likeness, motion, lag = (
        float(np.mean([getattr(report, name) for report in reports]))
        for name in ("likeness", "motion", "lag")
    )
    moved, shots = sum(report.moved for report in reports), sum(report.shots for report in reports)
    note = f"{len(reports)} windows; in the first: {reports[0].note}"
    told = [report.correspondence for report in reports if report.correspondence is not None]
    earned = any(report.earned for report in reports)
    merged = GroundReport(
        likeness, motion, lag, moved, shots, note, float(np.mean(told)) if told else None, earned
    )
    return replace(merged, instruction=reports[0].instruction, instructs=reports[0].instructs)


def _report(
    speech: ShownPosterior,
    posterior: ShownPosterior,
    lag: float,
    sent: Flags,
    shots: int,
    looked: bool,
) -> GroundReport:
    moved = int((np.abs(speech.best - posterior.best) > 2).sum())
    if not looked:
        note = "speech alone: no pictures were given"
    elif not posterior.weight and not sent.any():
        note = (
            "speech alone: the pictures do not tell where anything is done, so they weigh nothing"
        )
    else:
        note = f"likeness weighs {posterior.weight:.1f}, {int(sent.sum())} of {len(sent)} steps are placed by shots"
        note = f"{note}; {moved} moved by more than 2 s"
    return GroundReport(posterior.weight, float(sent.any()), lag, moved, shots, note)
