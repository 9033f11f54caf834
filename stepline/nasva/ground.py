"""Where each step is shown: where it is said, times what the picture says, times its rivals for the same seconds.

    P_k(t) = prior(t | said_k) exp(w z_k(t)) / sum        w learned from the video, 0 when the picture does not help
    P(shown_k) = pi B_k / (1 - pi + pi B_k)               B_k = how much likelier the evidence is if it is shown

No trained model. Letters: K steps, T seconds, D width.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.nasva import evidence
from stepline.nasva.decode import occupancy, placed
from stepline.nasva.prior import Array, load_prior
from stepline.nasva.settings import GroundSettings
from stepline.records import Alignment, FeatureSequence, Matrix, Span, Step, Transcript

log = logging.getLogger(__name__)

ROUNDS = 20   # of the competition for seconds; it settles in fewer


@dataclass(frozen=True)
class Activity:
    """What moves: motion (T,) one value a second, larger is more; cuts, the seconds at which a new shot starts."""

    motion: npt.NDArray[np.float32]
    cuts: Sequence[float]


@dataclass(frozen=True)
class GroundReport:
    """What the picture added. vision_weight: w, 0 = nothing; moved: how many `at` differ from speech alone by > 2 s."""

    vision_weight: float
    moved: int
    shots: int
    note: str


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
    settings: GroundSettings | None = None,
) -> Grounding:
    """Return the steps placed where they are shown; without features, by speech alone.

    `said` of each step is where it is spoken, None where it is not; with a transcript, its `sources` say so more
    finely. step_vectors: (K, D) in the space of the features. Raises ShapeError when arrays do not fit together.
    """
    settings = settings or GroundSettings()
    seconds = math.ceil(duration)
    shots = evidence.shot_slices(activity.cuts if activity else (), seconds)
    prior = np.array([load_prior().over(_spoken(s, transcript, duration), seconds) for s in steps]).reshape(-1, seconds)
    said = np.array([step.said is not None for step in steps], dtype=bool)
    z = _seen(features, step_vectors, shots, prior.shape, settings)
    weight = _weight(prior, z, said, settings)
    score = _scores(prior, z, weight, said, settings)
    speech = occupancy(_compete(prior, score, settings), settings.typical)
    rows = occupancy(_compete(prior * np.exp(weight * z), score, settings), settings.typical)
    grounded = tuple(
        placed(step, row, float(p), shots, duration, settings) for step, row, p in zip(steps, rows, score, strict=True)
    )
    values = (rows * score[:, None]).astype(np.float32)
    alignment = Alignment(tuple(step.text for step in steps), values, 1.0, "probability")
    return Grounding(grounded, alignment, _report(weight, speech, rows, len(shots), features is not None))


def _spoken(step: Step, transcript: Transcript | None, duration: float) -> list[Span]:
    """Return the passages that say the step, inside the video: its sentences where known, else `said`."""
    if step.said is None:
        return []
    spans = [transcript.sentences[n].span for n in step.sources] if transcript else []
    passages = [_common(span, step.said) for span in spans if span.overlap(step.said) > 0] or [step.said]
    inside = [Span(p.start, min(p.end, duration)) for p in passages if p.start < duration]
    return inside or [Span(max(0.0, duration - 1), duration)]   # said after the last frame: the end is nearest


def _common(a: Span, b: Span) -> Span:
    return Span(max(a.start, b.start), min(a.end, b.end))


def _seen(
    features: FeatureSequence | None,
    vectors: Matrix | None,
    shots: Sequence[slice],
    shape: tuple[int, ...],
    settings: GroundSettings,
) -> Array:
    """Return the evidence of the picture (K, T), zero where there is none."""
    if features is None or vectors is None or not shape[0]:
        return np.zeros(shape)
    if len(vectors) != shape[0]:
        raise ShapeError(f"step vectors must have one row a step: {shape[0]}, not {len(vectors)}")
    return evidence.contrast(evidence.similarity(features, vectors, shape[1]), shots, settings.smooth)


def _weight(prior: Array, z: Array, said: npt.NDArray[np.bool_], settings: GroundSettings) -> float:
    """Return the weight of vision: earned against speech, or the setting where nothing is said."""
    if not z.any():
        return 0.0
    if not said.any():
        return settings.vision_alone
    return evidence.earned_weight(prior[said], z[said], penalty=settings.vision_penalty, limit=settings.vision_limit)


def _scores(prior: Array, z: Array, weight: float, said: npt.NDArray[np.bool_], settings: GroundSettings) -> Array:
    """Return P(shown), (K,)."""
    base = np.where(said, settings.shown_rate, settings.unsaid_rate)
    factor = evidence.bayes_factors(prior, z, weight, said)
    return np.asarray(base * factor / (1 - base + base * factor))


def _compete(likely: Array, score: Array, settings: GroundSettings) -> Array:
    """Return (K, T) rows that sum to 1: seconds that several steps claim become dear, until one step a second is left.

    Each round divides a step's claim by what all steps together claim of the second, where that is more than one.
    """
    rows = likely / likely.sum(axis=1, keepdims=True)
    price = np.ones(likely.shape[1])
    for _ in range(ROUNDS if len(rows) > 1 else 0):
        claimed = (occupancy(rows, settings.typical) * score[:, None]).sum(axis=0)
        price = np.asarray(np.sqrt(price * np.maximum(1.0, price * claimed)))
        rows = likely / price**settings.compete
        rows = rows / rows.sum(axis=1, keepdims=True)
    return np.asarray(rows)


def _report(weight: float, speech: Array, fused: Array, shots: int, looked: bool) -> GroundReport:
    moved = int((np.abs(speech.argmax(axis=1) - fused.argmax(axis=1)) > 2).sum()) if fused.size else 0
    if not looked:
        note = "speech alone: no picture features were given"
    elif weight == 0:
        note = "speech alone: the picture features do not agree with the speech anywhere, so they weigh nothing"
    else:
        note = f"vision weighs {weight:.2f} and moved {moved} of {len(fused)} steps by more than 2 s"
    log.info("grounding: %s", note)
    return GroundReport(weight, moved, shots, note)
