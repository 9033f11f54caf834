"""What a second looks like next to each step's words, (K, T), and what that is worth in this video.

`contrast`     how like the step a second looks. Similarity of a weak backbone is mostly about the video, not about the
               second: it is centred over time and over steps.
`informative_seconds`  the seconds whose picture is not plain, noise, a still or a slide.
`fit_weight`   its weight, learned from the video itself: evidence that does not agree with the speech anywhere weighs
               nothing.

Letters: K steps, T seconds, D width, N rows of features or motion.
"""

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.grounding.said_to_shown import Array
from stepline.numeric import unit_rows
from stepline.records import FeatureSequence, Matrix, Span

if TYPE_CHECKING:
    from stepline.vision import Activity

# spread of the parts of a thumbnail: black, a colour, noise have less than .006, real pictures more
# than .026
MIN_PICTURE_SPREAD = 0.015
# change of the most changed spot. A film that nowhere changes more is one picture
MAX_STILL_CHANGE = 0.01
# that a picture counts as shown on after its last frame. Files whose frames come more rarely hold a
# picture still
MAX_PICTURE_AGE_SECONDS = 3
# after its last frame of all. In most files the sound is longer by parts of a second
MAX_TAIL_SECONDS = 1
# of a picture that does not change, from which it is a still. Of 34 real clips the longest such
# stretch is a card of 20 s, and 14 s of cards that show a step
MIN_STILL_SECONDS = 25
MAX_REPORTED_STRETCHES = 3  # of a warning; the first
MAX_DEVIATIONS = 3.0  # evidence beyond is clipped, one odd frame must not decide
WEIGHT_STEP = 0.1  # of the search for a weight
# what never changes for this number of seconds at a stretch, and bears text then, is slides
SLIDE_SECONDS = 3
SLIDE_TEXT_FRACTION = 0.75  # of its seconds in which text is on slides
MIN_SPREAD = 1e-6  # of similarity; what is below is rounding


class TimedText(Protocol):
    """A line of text in the picture and the seconds in which it is there."""

    @property
    def text(self) -> str:
        """The words of the line."""

    @property
    def span(self) -> Span:
        """The seconds in which the line is visible."""


def similarity(features: FeatureSequence, step_vectors: Matrix, seconds: int) -> Array:
    """Return the cosine (K, T) of each step and each second, NaN where the features do not reach.

    Raises ShapeError when the vectors are not (K, D) with the D of the features.
    """
    width = features.values.shape[1]
    if step_vectors.ndim != 2 or step_vectors.shape[1] != width:
        expected = f"(K, {width}) for features of {features.backbone!r}"
        raise ShapeError(f"step vectors must be {expected}, not {step_vectors.shape}")
    pictures = unit_rows(mean_by_second(features, seconds))  # (T, D)
    texts = unit_rows(step_vectors.astype(np.float64))  # (K, D)
    return np.asarray(texts @ pictures.T)  # (K, T)


def mean_by_second(features: FeatureSequence, seconds: int) -> Array:
    """Return (T, D): the mean of the rows of each second, NaN in seconds without a row."""
    width = features.values.shape[1]
    values = np.full((seconds, width), np.nan)
    for t in range(seconds):
        second = Span(float(t), float(t + 1))
        rows = features.rows(second)
        if rows.start < rows.stop:
            values[t] = features.values[rows].mean(axis=0)
    return values


def contrast(scores: Array) -> Array:
    """Return (K, T) evidence in standard deviations, 0 = nothing known, clipped to MAX_DEVIATIONS.

    Each step is measured against its own average over the video, each second against the average of
    all steps. All steps share one scale, so that a step that looks alike everywhere stays flat.
    """
    is_known = np.isfinite(scores).all(axis=0)
    if not is_known.any() or not len(scores):
        return np.zeros(scores.shape)
    z = np.where(is_known, scores, 0.0)
    # Each step less its own average: what it is like everywhere says nothing of when.
    averages = z[:, is_known].mean(axis=1, keepdims=True)
    z = np.where(is_known, z - averages, 0.0)
    # Each second less its average over steps. Of a single step nothing would be left.
    if len(z) > 1:
        z = z - z.mean(axis=0, keepdims=True)
    spread = z[:, is_known].std()
    if spread <= MIN_SPREAD:
        return np.zeros(z.shape)
    deviations = z / spread
    return np.asarray(np.clip(deviations, -MAX_DEVIATIONS, MAX_DEVIATIONS))


def informative_seconds(
    activity: "Activity", seconds: int, on_screen: Sequence[TimedText] = ()
) -> Array:
    """Return a mask (T,): 0 in seconds whose picture is plain, noise, a still or a slide, else 1.

    on_screen: what is written in the picture. A second in which no frame fell counts as the frame
    before it, for MAX_PICTURE_AGE_SECONDS. After that nothing is seen. Where the picture ends before the
    sound, nothing is seen from its end on.
    """
    thumbnails = known_mean_by_second(activity.looks, activity.rate, seconds)
    has_frame = np.asarray(np.isfinite(thumbnails).all(axis=1), np.bool_)
    if has_frame.sum() == 1 and seconds > MAX_PICTURE_AGE_SECONDS:  # a cover
        return np.zeros(seconds)
    if _is_still_or_slides(activity, seconds, on_screen):
        return np.zeros(seconds)

    # plain pictures and noise
    parts = thumbnails.reshape(seconds, -1, 3)
    spread = parts.std(axis=1).max(axis=1)  # NaN where no frame fell
    informative = np.where(spread < MIN_PICTURE_SPREAD, 0.0, 1.0)

    # seconds without a frame, and stretches without a change
    informative[_seconds_since(has_frame) > MAX_PICTURE_AGE_SECONDS] = 0.0
    if has_frame.any():
        last = int(np.flatnonzero(has_frame)[-1])
        informative[last + 1 + MAX_TAIL_SECONDS :] = 0.0
    for start, end in still_stretches(activity, seconds):
        informative[start + MAX_PICTURE_AGE_SECONDS : end] = 0.0
    return informative


def _is_still_or_slides(activity: "Activity", seconds: int, on_screen: Sequence[TimedText]) -> bool:
    """Return whether a film is one picture, or mostly long still pictures with text."""
    is_known = np.isfinite(activity.peaks)
    if is_known.sum() <= 1:
        return False
    changes = np.flatnonzero(is_known & (activity.peaks >= MAX_STILL_CHANGE))  # rows
    # One picture from the first frame to the last.
    if not len(changes) and not activity.cuts:
        return True
    # A stretch that keeps changing is a film.
    gaps = np.flatnonzero(np.diff(changes) > 1)
    runs = np.split(changes, gaps + 1)
    if max(map(len, runs)) >= SLIDE_SECONDS * activity.rate:
        return False
    # Slides keep still and bear text for most of their time.
    with_text: set[int] = set()
    for line in on_screen:
        first = int(line.span.start)
        end = math.ceil(line.span.end)
        with_text.update(range(first, end))
    return len(with_text.intersection(range(seconds))) >= SLIDE_TEXT_FRACTION * seconds


def still_stretches(activity: "Activity", seconds: int) -> list[tuple[int, int]]:
    """Return the stretches (first second, the one after the last) of MIN_STILL_SECONDS or longer in
    which the picture does not change and no shot begins."""
    # An unknown change counts as none.
    rows = np.flatnonzero(np.nan_to_num(activity.peaks) >= MAX_STILL_CHANGE)
    changes = {int(row / activity.rate) for row in rows}
    changes |= {int(cut) for cut in activity.cuts}
    before_end = [second for second in sorted(changes) if second < seconds]
    boundaries = [-1, *before_end, seconds]
    stretches = []
    for before, after in itertools.pairwise(boundaries):
        length = after - before - 1
        if length >= MIN_STILL_SECONDS:
            stretches.append((before + 1, after))
    return stretches


def picture_warning(
    activity: "Activity", seconds: int, on_screen: Sequence[TimedText] = ()
) -> str | None:
    """Return a warning about a still picture, long still stretches, slides or an early end, else None."""
    has_look = np.isfinite(activity.looks).all(axis=1)
    rows = np.flatnonzero(has_look)
    if not len(rows):
        return None
    # Nothing of it can count as shown.
    if len(rows) == 1 and seconds > MAX_PICTURE_AGE_SECONDS:
        return "the video has one picture for all of its sound, so no step counts as shown"
    if (
        seconds > MAX_PICTURE_AGE_SECONDS
        and not informative_seconds(activity, seconds, on_screen).any()
    ):
        return "the pictures are a still, slides or plain, so no step counts as shown"
    # Parts of it cannot.
    last_row = int(rows[-1])
    end = math.ceil((last_row + 1) / activity.rate)
    when = "later"
    reasons = []
    stretches = still_stretches(activity, min(end, seconds))
    if stretches:
        when = "there"
        times = [f"{_clock(start)} to {_clock(stop)}" for start, stop in stretches]
        first_times = ", ".join(times[:MAX_REPORTED_STRETCHES])
        reasons.append(f"does not move from {first_times}")
    if seconds - end > MAX_PICTURE_AGE_SECONDS:
        reasons.append(f"ends at {end} s, the sound at {seconds} s")
    if not reasons:
        return None
    return f"the picture {' and '.join(reasons)}; what is said {when} is not shown"


def _clock(second: int) -> str:
    return f"{second // 60}:{second % 60:02d}"


def _seconds_since(has_frame: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return (T,): seconds since the last True, 0 before the first."""
    seconds = np.arange(len(has_frame))
    marks = np.where(has_frame, seconds, -1)
    last = np.maximum.accumulate(marks)
    return np.where(last < 0, 0, seconds - last)


def known_mean_by_second(rows: Matrix | Array, rate: float, seconds: int) -> Array:
    """Return (T, P): the mean of the known rows (N, P) of each second, NaN without a known row."""
    means = np.full((seconds, rows.shape[1]), np.nan)
    for t in range(seconds):
        # Below one row per second, a second still has the row nearest to its start.
        first = round(t * rate)
        end = max(first + 1, round((t + 1) * rate))
        part = rows[first:end].astype(np.float64)
        is_known = np.isfinite(part).all(axis=1)
        if is_known.any():
            means[t] = part[is_known].mean(axis=0)
    return means


def shot_slices(cuts: Sequence[float], seconds: int) -> list[slice]:
    """Return the shots as slices of whole seconds that cover [0, seconds) without a gap. Cuts are
    rounded to the nearest."""
    boundaries = {0, seconds}
    for cut in cuts:
        second = round(cut)
        if 0 < second < seconds:
            boundaries.add(second)
    return [slice(start, end) for start, end in itertools.pairwise(sorted(boundaries))]


def fit_weight(prior: Array, evidence: Array, penalty: float, limit: float) -> float:
    """Return the weight w in [0, limit] that makes the evidence most likely, given where the steps
    are said.

    evidence: z, (K, T). Each step is explained as shown at a second drawn from `prior` (K, T),
    there favoured by exp(w z):

        sum_k log( sum_t prior_k(t) exp(w z_k(t)) / mean_t exp(w z_k(t)) ) - penalty w

    Evidence that is not higher where the steps are probably shown than elsewhere gets 0.
    """
    if not evidence.any():
        return 0.0
    # The half step keeps `limit` itself among the weights.
    weights = np.arange(0.0, limit + WEIGHT_STEP / 2, WEIGHT_STEP)
    gains = []
    for w in weights:
        gains.append(log_bayes_factor(prior, w * evidence) - penalty * w)
    best = int(np.argmax(gains))
    return round(float(weights[best]), 2)


def log_bayes_factor(prior: Array, evidence: Array) -> float:
    """Return the summed log Bayes factor of all steps. evidence: (K, T), logarithms."""
    factors = bayes_factors(prior, evidence)
    return float(np.log(factors).sum())


def bayes_factors(prior: Array, evidence: Array) -> Array:
    """Return (K,): how much more likely the evidence is if the step is shown than if it is anywhere
    in the video."""
    likelihood = np.exp(evidence)
    if_shown = (prior * likelihood).sum(axis=1)
    return np.asarray(if_shown / likelihood.mean(axis=1))
