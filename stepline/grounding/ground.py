"""Where each step is shown: where it is said, times what the picture says, times its rivals for the same place.

    P_k(t) = prior(t | said_k) exp(w z_k(t)) free_k(t) / sum   w earned from the video itself
    P(shown_k) = pi B_k / (1 - pi + pi B_k)                          B_k: how well the evidence fits "shown"

in a long take, second by second (`fuse`); a video cut into at least as many shots as steps is matched to them instead,
one step a shot (`match`). z: two kinds of evidence, how like the step a second looks and how like doing anything it
moves (`doing`, `shots`); free: P(no other step is being shown then). No trained model. docs/grounding.md tells it in
plain words. Letters: K steps, T seconds, D width.
"""

import functools
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stepline.errors import ShapeError
from stepline.grounding import evidence
from stepline.grounding.evidence import Activity, doing
from stepline.grounding.fusion import Flags, Fused, best_lag, fuse, occupancy, placed
from stepline.grounding.said_to_shown import Array, load_prior
from stepline.grounding.settings import GroundSettings
from stepline.grounding.shots import Units, match, units
from stepline.grounding.windows import Window, cut_activity, cut_features, cut_steps, placed_back, windows
from stepline.records import Alignment, FeatureSequence, Matrix, Span, Step, Transcript
from stepline.text.visibility import predict_visibility as visible_by_wording

log = logging.getLogger(__name__)

MINILM = 384  # width of the vectors that wording is judged on
USUAL_WORDING = 0.15  # mean log odds that `visible` gives the step texts of COIN and CrossTask: how-to is not vlogs


@dataclass(frozen=True)
class GroundReport:
    """What the picture added: the weight that each kind of evidence earned (0 = nothing), and how many steps it moved.

    likeness: to the step's words; motion: of hands at work, 1 where steps are matched to shots. lag: seconds by
    which the pictures follow the words in this video. moved: steps whose likeliest second is more than 2 s from that of
    speech alone.
    """

    likeness: float
    motion: float
    lag: float
    moved: int
    shots: int
    note: str

    @property
    def doubts(self) -> tuple[str, ...]:
        """What the user should know before trusting the steps: nothing here, the weights tell all."""
        return ()


@dataclass(frozen=True)
class Grounding:
    """Steps with spans, at, score and status; alignment: P(step k is being shown at t), (K, T), one column a second."""

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
    activity: Activity | None = None,
    visible: Sequence[float] | None = None,
    settings: GroundSettings | None = None,
) -> Grounding:
    """Return the steps placed where they are shown; without features and activity, by speech alone.

    `said` of each step is where it is spoken, None where it is not; with a transcript, its `sources` say so more
    finely. step_vectors: (K, D) in the space of the features. visible: P(shown) of each step by its wording alone
    (`visible.visible`). A long video is grounded in windows. Raises ShapeError when arrays do not fit together.
    """
    settings = settings or GroundSettings()
    if step_vectors is not None and len(step_vectors) != len(steps):
        raise ShapeError(f"step vectors must have one row a step: {len(steps)}, not {len(step_vectors)}")
    if visible is not None and len(visible) != len(steps):
        raise ShapeError(f"visible must hold one probability a step: {len(steps)}, not {len(visible)}")
    given = _Given(tuple(steps), duration, transcript, features, step_vectors, activity, visible)
    parts = windows(steps, duration, settings)
    return _ground(given, settings) if len(parts) == 1 else _in_windows(given, parts, settings)


@dataclass(frozen=True)
class _Given:
    """What `ground` was given, of a whole video or of one window."""

    steps: Sequence[Step]
    duration: float
    transcript: Transcript | None
    features: FeatureSequence | None
    step_vectors: Matrix | None
    activity: Activity | None
    visible: Sequence[float] | None

    def within(self, window: Window) -> "_Given":
        """Return what belongs to one window, its times counted from the window's start."""
        rows = list(window.steps)
        steps, speech = cut_steps(self.steps, window, self.transcript)
        return _Given(
            steps,
            min(window.context.end, self.duration) - window.context.start,
            speech,
            cut_features(self.features, window),
            None if self.step_vectors is None else self.step_vectors[rows],
            cut_activity(self.activity, window),
            None if self.visible is None else [self.visible[row] for row in rows],
        )


def _in_windows(given: _Given, parts: Sequence[Window], settings: GroundSettings) -> Grounding:
    """Ground every step in the window that decides it."""
    scores = np.zeros((len(given.steps), math.ceil(given.duration)), dtype=np.float32)
    steps = list(given.steps)
    reports = []
    for part in parts:
        one = _ground(given.within(part), settings)
        reports.append(one.report)
        start, width = int(part.context.start), one.alignment.scores.shape[1]
        for row, step, score in zip(part.steps, one.steps, one.alignment.scores, strict=True):
            if row in part.own:
                steps[row] = placed_back(step, given.steps[row], part)
                scores[row, start : start + width] = score
    alignment = Alignment(tuple(step.text for step in steps), scores, 1.0, "probability")
    return Grounding(tuple(steps), alignment, _together(reports))


def _ground(given: _Given, settings: GroundSettings) -> Grounding:
    """Ground the steps of one window, or of a whole short video."""
    steps, duration, transcript, activity = given.steps, given.duration, given.transcript, given.activity
    features, step_vectors, visible = given.features, given.step_vectors, given.visible
    seconds = math.ceil(duration)
    shots = evidence.shot_slices(activity.cuts if activity else (), seconds)
    passages = [_spoken(step, transcript, duration) for step in steps]
    said = np.array([step.said is not None for step in steps], dtype=bool)
    by_shots = activity is not None and len(activity.looks) > 0 and 0 < len(steps) <= len(shots)
    rate = settings.shown_rate_shots if by_shots else settings.shown_rate
    if by_shots and visible is None:  # not for one long take: its hands are seen whatever the words
        visible = _worded(features, step_vectors)
    base = _base(said, rate, visible, settings)
    speech = fuse(_prior(passages, 0.0, seconds), [], said, base, shots, settings)
    likeness = _match(features, step_vectors, shots, (len(steps), seconds), settings)
    prior_at = functools.partial(_prior, passages, seconds=seconds)
    if activity is not None and by_shots:
        places = units(activity, shots, prior_at(settings.lag_usual), _chat(steps, transcript, seconds), features)
        fused, lag = _by_shots(prior_at, steps, likeness, base, places, settings)
        shots = places.slices
    else:
        motion = evidence.motion_by_second(activity, seconds) if activity is not None else None
        parts = [likeness, doing(motion, shots, likeness.shape)]
        lag = best_lag(prior_at, parts, said, settings)
        fused = fuse(prior_at(lag), parts, said, base, shots, settings)
    grounded = tuple(
        placed(step, row, float(score), shots, duration, settings)
        for step, row, score in zip(steps, fused.held, fused.score, strict=True)
    )
    alignment = Alignment(tuple(step.text for step in steps), fused.expected.astype(np.float32), 1.0, "probability")
    looked = features is not None or activity is not None
    return Grounding(grounded, alignment, _report(speech, fused, lag, len(shots), looked))


def _by_shots(
    prior_at: Callable[[float], Array],
    steps: Sequence[Step],
    likeness: Array,
    base: Array,
    places: Units,
    settings: GroundSettings,
) -> tuple[Fused, float]:
    """Return the steps matched to the shots, and the lag. A step is likeliest in the middle of its shot."""
    weight = settings.likeness_shots if likeness.any() else 0.0
    matched = match(prior_at, steps, weight * likeness, base, places, settings)
    centers = np.zeros(likeness.shape)
    for chance, part in zip(matched.pairs.T, places.slices, strict=True):
        centers[:, (part.start + part.stop - 1) // 2] = chance
    held = occupancy(centers / centers.sum(axis=1, keepdims=True), places.slices, settings.typical)
    return Fused(held, matched.shown, (weight, 1.0)), matched.lag


def _chat(steps: Sequence[Step], transcript: Transcript | None, seconds: int) -> Array:
    """Return (T,): how long, within each second, something is said that no step rests on."""
    used = {source for step in steps for source in step.sources}
    chat = np.zeros(seconds)
    for n, sentence in enumerate(transcript.sentences if transcript and used else ()):
        if n not in used:
            for t in range(int(sentence.span.start), min(seconds, math.ceil(sentence.span.end))):
                chat[t] += Span(float(t), float(t + 1)).overlap(sentence.span)
    return chat


def _worded(features: FeatureSequence | None, vectors: Matrix | None) -> Sequence[float] | None:
    """Return P(shown) of each step by its wording, where the step vectors are of MiniLM, as conse's are."""
    if features is None or vectors is None or features.backbone != "conse" or vectors.shape[-1:] != (MINILM,):
        return None
    return [float(p) for p in visible_by_wording(vectors)]


def _prior(passages: Sequence[Sequence[Span]], lag: float, seconds: int) -> Array:
    """Return P(shown at t | said), (K, T), in a video whose pictures come `lag` seconds after the words."""
    rows = [load_prior().over(spans, seconds, lag=lag) for spans in passages]
    return np.array(rows).reshape(-1, seconds)


def _spoken(step: Step, transcript: Transcript | None, duration: float) -> list[Span]:
    """Return the passages that say the step, inside the video: its sentences where known, else `said`."""
    if step.said is None:
        return []
    spans = [transcript.sentences[n].span for n in step.sources] if transcript else []
    passages = [_common(span, step.said) for span in spans if span.overlap(step.said) > 0] or [step.said]
    inside = [Span(p.start, min(p.end, duration)) for p in passages if p.start < duration]
    return inside or [Span(max(0.0, duration - 1), duration)]  # said after the last frame: the end is nearest


def _common(a: Span, b: Span) -> Span:
    return Span(max(a.start, b.start), min(a.end, b.end))


def _base(said: Flags, rate: float, visible: Sequence[float] | None, settings: GroundSettings) -> Array:
    """Return P(shown) before any evidence, (K,)."""
    spoken = np.full(len(said), _logit(np.float64(rate)))
    if visible is not None:
        words = _logit(np.clip(np.asarray(visible, dtype=np.float64), 1e-3, 1 - 1e-3))
        spoken = spoken + settings.wording * (words - USUAL_WORDING)
    return np.where(said, 1 / (1 + np.exp(-spoken)), settings.unsaid_rate)


def _logit(p: Array) -> Array:
    return np.asarray(np.log(p / (1 - p)))


def _match(
    features: FeatureSequence | None,
    vectors: Matrix | None,
    shots: Sequence[slice],
    shape: tuple[int, ...],
    settings: GroundSettings,
) -> Array:
    """Return how like its step each second looks, contrasted: (K, T), zero where nothing is known."""
    if features is None or vectors is None or not shape[0]:
        return np.zeros(shape)
    return evidence.contrast(evidence.similarity(features, vectors, shape[1]), shots, settings.smooth)


def _together(reports: Sequence[GroundReport]) -> GroundReport:
    """Return one report of all windows: mean weights and lag, all that moved."""
    likeness, motion, lag = (
        float(np.mean([getattr(report, name) for report in reports])) for name in ("likeness", "motion", "lag")
    )
    moved, shots = sum(report.moved for report in reports), sum(report.shots for report in reports)
    note = f"{len(reports)} windows; in the first: {reports[0].note}"
    return GroundReport(likeness, motion, lag, moved, shots, note)


def _report(speech: Fused, fused: Fused, lag: float, shots: int, looked: bool) -> GroundReport:
    moved = int((np.abs(speech.best - fused.best) > 2).sum())
    likeness, motion = fused.weights
    if not looked:
        note = "speech alone: no pictures were given"
    elif not any(fused.weights):
        note = "speech alone: the pictures do not agree with the speech anywhere, so they weigh nothing"
    else:
        note = f"likeness weighs {likeness:.1f}, motion {motion:.1f}, pictures come {lag:+.0f} s after the words"
        note = f"{note}; {moved} of {len(fused.best)} steps moved by more than 2 s"
    log.info("grounding: %s", note)
    return GroundReport(likeness, motion, lag, moved, shots, note)
