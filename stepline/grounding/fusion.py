"""The posterior of each step by speech and pictures: P(shown at t) and P(shown), spans and a verdict.

Example: "drain the pasta" is said. P(shown at t) is 0.2 and 0.6 in seconds 8 and 9, then there is a
cut. Seconds 10 to 14 have 0.9, 1.0, 0.9, 0.6 and 0.2:

    P(shown) 0.8  ->  "placed" (10, 14), at 11.5. It begins at the cut and ends below half the peak
    P(shown) 0.1  ->  "placed" by its words, with a doubt
    neighbours (8, 20) at 12.5 and (15, 24) at 19.5  ->  (8, 16) and (16, 24)

`fuse`          the prior of speech times the likelihood of the picture, while steps compete for seconds
`with_status`   spans, the most likely second, and "seen", "placed", "said_only" or "not_found"
`separate_overlapping_spans`  no two best spans overlap

Letters: K steps, T seconds.
"""

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.grounding.evidence import fit_weight
from stepline.grounding.said_to_shown import Array
from stepline.grounding.settings import GroundSettings
from stepline.grounding.speech import grow_window
from stepline.numeric import sum_to_one
from stepline.records import Basis, Span, Status, Step

SIMILARITY_PENALTY = 2.0  # nats per unit of the weight of similarity
MAX_VISION_WEIGHT = 2.0  # per standard deviation of similarity
UNSAID_VISION_WEIGHT = 2.0  # where no step is said, so that no weight can be fitted
FUSION_ROUNDS = 20  # damped iterations of the competition for seconds; fewer suffice to converge
MIN_UNCLAIMED_PROBABILITY = 1e-3  # of a second, even if a step is certainly shown then
# below it, the product of probabilities is computed in logarithms, against underflow
MIN_PRODUCT = 1e-200
# standard deviation of the logarithm of a shown duration, within one video. WhenAct, over all: 1.0
LOG_LENGTH_DEVIATION = 0.5
MIN_MASS = 1e-12  # against a division by zero
# P(shown) of a calibrated network, up to which a step is only said: eight of ten such claims hold
MAX_SAID_ONLY_PROBABILITY = 0.2
UNCONFIRMED = "what compares the pictures does not find it"  # the doubt of a step
# from the middle of a step's words to the second that shows it. Real clips: the least mean distance to
# the seconds that are marked, for 203 steps, written and given. WhenAct: 1.0
WORDS_LAG_SECONDS = 0.7
# a step begins before its words and ends after them, or where another step is more likely. On real clips
# 3 to 5 s give the same, and an end at cuts fewer spans with an IoU of .5
BEFORE_WORDS_SECONDS = 0.5
AFTER_WORDS_SECONDS = 4.0

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SpeechPrior:
    """When and whether each of K steps is shown in T seconds, by where it is said.

    Attributes:
        prior: (K, T) P(step k is shown in second t | its passages in the speech).
        shown_prior: (K,) P(shown) before any visual evidence.
        is_said: (K,) whether the step is said.
        past_seconds: how many of the T seconds are in the past, None if all are.
    """

    prior: Array
    shown_prior: Array
    is_said: Flags
    past_seconds: int | None = None


@dataclass(frozen=True)
class ShownPosterior:
    """When and whether each of K steps is shown in T seconds, by speech and pictures.

    Attributes:
        occupancy: (K, T) P(the step is being shown at t | it is shown).
        score: (K,) P(shown).
        weight: weight of the visual similarity.
    """

    occupancy: Array
    score: Array
    weight: float

    @property
    def shown_at(self) -> Array:
        """P(step k is being shown in second t), (K, T)."""
        return np.asarray(self.occupancy * self.score[:, None])

    def masked(self, informative: Array) -> "ShownPosterior":
        """Return the posterior with no step shown in some seconds.

        informative: (T,) 1 for a second whose picture can show a step, else 0.
        """
        if informative.all():
            return self
        rows = self.occupancy * informative
        mass = self.occupancy.sum(axis=1)
        # P(shown) falls by the fraction that the row loses.
        fraction = rows.sum(axis=1) / np.maximum(mass, MIN_MASS)
        return ShownPosterior(rows, self.score * fraction, self.weight)

    @property
    def best_seconds(self) -> npt.NDArray[np.int64]:
        """The most likely second of each step, (K,)."""
        if not self.occupancy.size:
            return np.zeros(len(self.occupancy), dtype=np.int64)
        return np.asarray(self.occupancy.argmax(axis=1))


def similarity_weight(prior: Array, evidence: Array, is_said: Flags) -> float:
    """Return the weight of the visual similarity, per standard deviation.

    It is fitted to the steps that are said. It is 2 if none is said and 0 without evidence.

    Args:
        prior: (K, T) P(step k is shown in second t | where it is said).
        evidence: (K, T) similarity of step and second, in standard deviations.
        is_said: (K,) whether each step is said.
    """
    if is_said.any():
        return fit_weight(prior[is_said], evidence[is_said], SIMILARITY_PENALTY, MAX_VISION_WEIGHT)
    if evidence.any():
        return UNSAID_VISION_WEIGHT
    return 0.0


def fuse(speech: SpeechPrior, evidence: Array, settings: GroundSettings) -> ShownPosterior:
    """Return when and whether each step is shown, by speech and visual similarity.

    The steps compete for the seconds.

    Args:
        speech: when and whether each step is shown, by the speech only.
        evidence: (K, T) similarity of step and second, in standard deviations.
        settings: settings of grounding.
    """
    prior = speech.prior
    shown_prior = speech.shown_prior
    weight = similarity_weight(prior, evidence, speech.is_said)
    likelihood = np.exp(weight * evidence)
    # How much higher the similarity peaks than noise of unit variance would. A step that is not said
    # has a flat prior, so that it cannot be compared with its own average.
    noise_correction = np.ones(len(prior))
    if evidence.any():
        noise = math.exp(weight**2 / 2)
        past_only = likelihood[:, : speech.past_seconds]
        noise_correction = past_only.mean(axis=1) / noise

    # steps compete for the seconds, in damped iterations
    score = shown_prior
    centers = sum_to_one(prior * likelihood)
    shown_at = occupancy(centers, settings.typical)
    for _ in range(FUSION_ROUNDS):
        # the prior, less the seconds of other steps
        unclaimed = prior * probability_unclaimed(shown_at, score)
        # by chance: the mean likelihood, over all steps, in seconds where they are not shown
        absent = np.maximum(1 - shown_at, MIN_UNCLAIMED_PROBABILITY)
        elsewhere = float((likelihood * absent).sum() / absent.sum()) if absent.size else 1.0
        # P(shown) by Bayes: the prior odds times the likelihood ratio against chance
        if_shown = (sum_to_one(unclaimed) * likelihood).sum(axis=1)
        likelihood_ratio = if_shown / elsewhere  # (K,)
        odds = shown_prior * np.where(speech.is_said, likelihood_ratio, noise_correction)
        score = (score + odds / (1 - shown_prior + odds)) / 2
        centers = sum_to_one(unclaimed * likelihood)
        shown_at = (shown_at + occupancy(centers, settings.typical)) / 2
    return ShownPosterior(shown_at, score, weight)


def probability_unclaimed(shown_at: Array, score: Array) -> Array:
    """Return P(no other step is being shown in second t), (K, T).

    With thousands of steps the product may underflow. Then each row is scaled by a factor.

    Args:
        shown_at: (K, T) P(step k is being shown in second t | it is shown).
        score: (K,) P(shown).
    """
    claimed = shown_at * score[:, None]
    absent = np.maximum(1 - claimed, MIN_UNCLAIMED_PROBABILITY)
    product = absent.prod(axis=0)
    if product.size and product.min() < MIN_PRODUCT:
        # In logarithms, each row scaled to its maximum.
        logarithm = np.log(absent)
        others = logarithm.sum(axis=0) - logarithm
        greatest = others.max(axis=1, keepdims=True)
        return np.asarray(np.exp(others - greatest))
    # The product over all other steps is the product over all, divided by the step's own factor.
    return np.asarray(product / absent)


def occupancy(centers: Array, seconds: float) -> Array:
    """Return P(step k is being shown in second t), (K, T), by a lognormal duration.

    Args:
        centers: (K, T) P(the middle of step k is in second t).
        seconds: median duration of a step in seconds.
    """
    count = centers.shape[1]
    if not count:
        return np.zeros(centers.shape)
    # P(the duration is more than twice a distance from the center), (2 T - 1,)
    p_longer = np.ones(2 * count - 1)
    for distance in range(1, count):
        deviations = math.log(2 * distance / seconds) / (LOG_LENGTH_DEVIATION * math.sqrt(2))
        p_longer[[count - 1 - distance, count - 1 + distance]] = 0.5 * math.erfc(deviations)
    rows = [np.convolve(row, p_longer)[count - 1 : 2 * count - 1] for row in centers]
    return np.asarray(np.minimum(1.0, np.array(rows).reshape(centers.shape)))


def place_by_words(step: Step, duration: float) -> Step:
    """Return a step that is said with `spans` and `at`, by the time of its words.

    Args:
        step: the step. `at` may be the second around which it is said, else the middle of `said` is.
        duration: duration of the video in seconds.
    """
    assert step.said is not None
    center = step.said.center if step.at is None else step.at
    second = min(math.floor(center + WORDS_LAG_SECONDS), math.ceil(duration) - 1)
    at = min(second + 0.5, (second + duration) / 2)  # the last second may be a short one
    start = max(0.0, min(step.said.start - BEFORE_WORDS_SECONDS, second))
    end = min(duration, max(step.said.end + AFTER_WORDS_SECONDS, second + 1.0))
    return step.model_copy(update={"spans": (Span(start, end),), "at": at})


def with_status(
    step: Step,
    row: Array,
    score: float,
    shots: Sequence[slice],
    duration: float,
    settings: GroundSettings,
    *,
    basis: Basis | None,
    probability: float = 1.0,
    doubt: str | None = None,
) -> Step:
    """Return the step with spans, at, score and status. Its words place what no picture shows.

    Args:
        step: a step that is not placed yet.
        row: (T,) P(the step is being shown at t, if it is shown at all).
        score: P(the step is shown), if the pictures belong to the speech.
        shots: slices of whole seconds that cover the video. A span ends at a cut.
        duration: duration of the video in seconds.
        settings: thresholds of showing and of spans.
        basis: what compared the pictures and gave the score, which is not calibrated. None: nothing
            did, so that the step is not seen.
        probability: P(the pictures belong to the speech). It scales the score of a step that is said.
        doubt: why a step that is said may not be shown: the pictures may belong to other speech, or
            the speech may not instruct. Such a step is placed, whatever its basis. None: no doubt.
    """
    # The pictures may belong to another video, which matters for a step that is said.
    p_shown = probability * score if step.said is not None else score
    if basis is None or score < settings.shown_threshold:
        if step.said is None:
            return without_place(step, p_shown)
        doubt = doubt if basis is None else doubt or UNCONFIRMED
        status = picture_status(None, doubt)
        return place_by_words(step, duration).model_copy(update={"score": p_shown, **status})
    # its most likely second, and the spans around it
    best = int(row.argmax())
    spans = shown_spans(row, shots, duration, settings)
    update = {
        "spans": tuple(spans),
        "at": min(best + 0.5, (best + duration) / 2),  # the last second may be a short one
        "score": p_shown,
        **picture_status(basis, doubt if step.said is not None else None),
    }
    return step.model_copy(update=update)


def picture_status(basis: Basis | None, doubt: str | None = None) -> dict[str, str | None]:
    """Return the fields `status`, `basis` and `doubt` of a step that has spans.

    Args:
        basis: which pictures placed it, None for its words.
        doubt: why it may not be shown, None without a reason. A step with a doubt is not seen.
    """
    if basis is None or doubt is not None:
        return {"status": "placed", "basis": None, "doubt": doubt}
    return {"status": "seen", "basis": basis, "doubt": None}


def without_place(step: Step, score: float) -> Step:
    """Return a step that is said only, or not found. score: P(it is shown)."""
    status: Status = "not_found" if step.said is None else "said_only"
    unplaced = {"spans": (), "at": None, "basis": None, "doubt": None}
    return step.model_copy(update={**unplaced, "status": status, "score": score})


def shown_spans(
    row: Array, shots: Sequence[slice], duration: float, settings: GroundSettings
) -> list[Span]:
    """Return the spans of a step around the peaks of P(shown at t), the best first.

    Args:
        row: (T,) P(the step is being shown at t).
        shots: slices of whole seconds. A span stays within a shot.
        duration: of the video, in seconds.
        settings: maximal number of spans, and how far they extend.
    """
    remaining = row.copy()
    spans: list[Span] = []
    while len(spans) < settings.alternatives:
        if not remaining.size or not remaining.max() > settings.grow * row.max():
            break
        peak = int(remaining.argmax())
        shot = next(s for s in shots if s.start <= peak < s.stop)
        first, last = grow_window(remaining[shot], peak - shot.start, settings.grow)
        start = first + shot.start
        end = last + shot.start
        spans.append(Span(float(start), min(float(end), duration)))
        # Adjacent seconds are removed too, so that the spans do not touch.
        remaining[max(0, start - 1) : end + 1] = 0
    return spans


def separate_overlapping_spans(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps with best spans that do not overlap.

    Two spans that overlap meet halfway between the most likely seconds of their steps, on a whole
    second, or as near to it as the overlap allows. Steps with the same most likely second keep their
    common span.
    """
    seconds = sorted({step.at for step in steps if step.spans and step.at is not None})
    separated = [_cut_at_neighbours(step, seconds) for step in steps]
    for first, second in itertools.pairwise(seconds):
        separated = _separate_pair(separated, first, second)
    return tuple(separated)


def _cut_at_neighbours(step: Step, seconds: Sequence[float]) -> Step:
    """Return a step whose best span excludes the most likely seconds of other steps.

    Args:
        step: a step with its spans and its most likely second.
        seconds: sorted most likely seconds of all steps.
    """
    if not step.spans or step.at is None:
        return step
    start = step.spans[0].start
    end = step.spans[0].end
    index = bisect.bisect_left(seconds, step.at)
    if index > 0 and seconds[index - 1] > start:
        start = _midpoint(seconds[index - 1], step.at)
    if index + 1 < len(seconds) and seconds[index + 1] < end:
        end = _midpoint(step.at, seconds[index + 1])
    return _with_best_span(step, start, end)


def _separate_pair(steps: Sequence[Step], first: float, second: float) -> list[Step]:
    """Return the steps, with the best spans of two groups cut so that they do not overlap.

    A group consists of all steps with the same most likely second.

    Args:
        steps: all steps.
        first: most likely second of the first group.
        second: most likely second of the second group, later than `first`.
    """
    end = first
    start = second
    for step in steps:
        if step.spans and step.at == first:
            end = max(end, step.spans[0].end)
        elif step.spans and step.at == second:
            start = min(start, step.spans[0].start)
    if end <= start:
        return list(steps)
    # They meet halfway, but inside the overlap.
    border = _midpoint(first, second)
    border = min(max(border, start), end)
    separated = []
    for step in steps:
        if step.spans:
            best = step.spans[0]
            if step.at == first:
                step = _with_best_span(step, best.start, min(best.end, border))
            elif step.at == second:
                step = _with_best_span(step, max(best.start, border), best.end)
        separated.append(step)
    return separated


def _midpoint(first: float, second: float) -> float:
    """Return the second at which two overlapping spans are separated.

    It is the first whole second from the middle on if that is before `second`, else the middle itself.

    Args:
        first: most likely second of the earlier step.
        second: most likely second of the later step.
    """
    middle = (first + second) / 2
    whole_second = float(math.ceil(middle))
    return whole_second if whole_second < second else middle


def _with_best_span(step: Step, start: float, end: float) -> Step:
    return step.model_copy(update={"spans": (Span(start, end), *step.spans[1:])})
