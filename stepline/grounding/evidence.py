"""Visual evidence: how well each second matches each step's words, (K, T), and how much that counts.

`center_similarity`    similarity of step and second, centred over time and over steps, because the similarity of a
                       weak backbone depends mostly on the video
`informative_seconds`  the seconds whose picture is not plain, noise, a still or a slide
`fit_weight`           the weight of the similarity, fitted to the speech of the video itself

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

# standard deviation over the parts of a thumbnail. Black, one colour and noise have less than .006,
# real pictures more than .026
MIN_PICTURE_DEVIATION = 0.015
# largest change of a spot between frames, below which a picture counts as unchanged
MAX_STILL_CHANGE = 0.01
# after a frame, in which its picture still counts. Files with rarer frames show stills
MAX_PICTURE_AGE_SECONDS = 3
# after the last frame, in which its picture still counts. The sound of most files is a bit longer
MAX_TAIL_SECONDS = 1
# without a change, from which a picture is a still. The longest such stretch of 34 real clips is a
# card of 20 s, and 14 s of cards that show a step
MIN_STILL_SECONDS = 25
MIN_INFORMATIVE_FRACTION = 0.5  # of the seconds; below it a warning says so
MAX_REPORTED_STRETCHES = 3  # first still stretches that a warning names
MAX_DEVIATIONS = 3.0  # evidence beyond is clipped, so that no single frame decides
WEIGHT_STEP = 0.1  # of the grid of weights
# a video whose picture never changes for this many seconds in a row, and mostly shows text, is slides
SLIDE_SECONDS = 3
SLIDE_TEXT_FRACTION = 0.75  # of the seconds of slides that show text
MIN_STANDARD_DEVIATION = 1e-6  # of the similarity; less is rounding error


class TimedText(Protocol):
    """A line of text in the picture, with the span in which it is visible."""

    @property
    def text(self) -> str:
        """The words of the line."""

    @property
    def span(self) -> Span:
        """The span in which the line is visible, in seconds."""


def similarity(features: FeatureSequence, step_vectors: Matrix, seconds: int) -> Array:
    """Return the cosine of each step and each second, (K, T), NaN in seconds without features.

    Args:
        features: feature rows of the pictures, width D.
        step_vectors: (K, D) text vectors of the steps, in the space of the features.
        seconds: T.

    Raises ShapeError if the vectors are not (K, D) with the width of the features.
    """
    width = features.values.shape[1]
    if step_vectors.ndim != 2 or step_vectors.shape[1] != width:
        raise ShapeError(
            f"step vectors must be (K, {width}) for features of {features.backbone!r}, not "
            f"{step_vectors.shape}"
        )
    pictures = unit_rows(mean_by_second(features, seconds))  # (T, D)
    texts = unit_rows(step_vectors.astype(np.float64))  # (K, D)
    return np.asarray(texts @ pictures.T)  # (K, T)


def mean_by_second(features: FeatureSequence, seconds: int) -> Array:
    """Return the mean feature row of each second, (T, D), NaN in seconds without a row.

    Args:
        features: feature rows of the pictures, width D.
        seconds: T.
    """
    values = np.full((seconds, features.values.shape[1]), np.nan)
    for t in range(seconds):
        second = Span(float(t), float(t + 1))
        rows = features.rows(second)
        if rows.start < rows.stop:
            values[t] = features.values[rows].mean(axis=0)
    return values


def center_similarity(scores: Array) -> Array:
    """Return similarity in standard deviations, (K, T), centred over steps and seconds.

    The mean of each step and then the mean of each second are subtracted. All steps share one standard
    deviation, so that a step which looks the same everywhere stays near 0. Values are clipped to 3.

    scores: (K, T) similarity of each step and second, NaN if unknown. The result is 0 there.
    """
    is_known = np.isfinite(scores).all(axis=0)
    if not is_known.any() or not len(scores):
        return np.zeros(scores.shape)
    z = np.where(is_known, scores, 0.0)
    means = z[:, is_known].mean(axis=1, keepdims=True)
    z = np.where(is_known, z - means, 0.0)
    # A single step would have nothing left.
    if len(z) > 1:
        z = z - z.mean(axis=0, keepdims=True)
    deviation = z[:, is_known].std()
    if deviation <= MIN_STANDARD_DEVIATION:
        return np.zeros(z.shape)
    return np.asarray(np.clip(z / deviation, -MAX_DEVIATIONS, MAX_DEVIATIONS))


def informative_seconds(
    activity: "Activity",
    seconds: int,
    on_screen: Sequence[TimedText] = (),
    *,
    is_screen: bool = False,
) -> Array:
    """Return which seconds have a picture that can show a step, (T,): 1 or 0.

    It is 0 for plain pictures, noise, stills and slides. The picture of a frame counts for 3 s.

    Args:
        activity: motion, cuts and thumbnails of the video.
        seconds: T.
        on_screen: lines of text in the picture.
        is_screen: True for a screen recording. Its plain pictures, stills and slides are informative.
    """
    thumbnails = known_mean_by_second(activity.thumbnails, activity.rate, seconds)
    has_frame = np.asarray(np.isfinite(thumbnails).all(axis=1), np.bool_)
    if has_frame.sum() == 1 and seconds > MAX_PICTURE_AGE_SECONDS:  # a cover picture
        return np.zeros(seconds)
    if not is_screen and _is_still_or_slides(activity, seconds, on_screen):
        return np.zeros(seconds)

    # plain pictures and noise
    parts = thumbnails.reshape(seconds, -1, 3)
    deviation = parts.std(axis=1).max(axis=1)  # NaN where no frame fell
    is_plain = (deviation < MIN_PICTURE_DEVIATION) & (not is_screen)
    informative = np.where(is_plain, 0.0, 1.0)

    # seconds without a frame, and stretches without a change
    informative[_seconds_since(has_frame) > MAX_PICTURE_AGE_SECONDS] = 0.0
    if has_frame.any():
        last = int(np.flatnonzero(has_frame)[-1])
        informative[last + 1 + MAX_TAIL_SECONDS :] = 0.0
    stretches = () if is_screen else still_stretches(activity, seconds)
    for start, end in stretches:
        informative[start + MAX_PICTURE_AGE_SECONDS : end] = 0.0
    return informative


def _is_still_or_slides(activity: "Activity", seconds: int, on_screen: Sequence[TimedText]) -> bool:
    """Return whether a video is one still picture, or slides: long still pictures with text.

    Args:
        activity: motion and cuts of the video.
        seconds: duration of the video in seconds, rounded up.
        on_screen: lines of text in the picture.
    """
    is_known = np.isfinite(activity.peak_changes)
    if is_known.sum() <= 1:
        return False
    changes = np.flatnonzero(is_known & (activity.peak_changes >= MAX_STILL_CHANGE))  # rows
    # One picture from the first frame to the last.
    if not len(changes) and not activity.cuts:
        return True
    # A run of seconds that all change is a film.
    runs = np.split(changes, np.flatnonzero(np.diff(changes) > 1) + 1)
    if max(map(len, runs)) >= SLIDE_SECONDS * activity.rate:
        return False
    # Slides show text most of the time.
    text_seconds: set[int] = set()
    for line in on_screen:
        text_seconds.update(range(int(line.span.start), math.ceil(line.span.end)))
    return len(text_seconds.intersection(range(seconds))) >= SLIDE_TEXT_FRACTION * seconds


def still_stretches(activity: "Activity", seconds: int) -> list[tuple[int, int]]:
    """Return the stretches [start, end) in seconds without any change, of 25 s or longer.

    Args:
        activity: motion and cuts of the video.
        seconds: end of the part that is searched.
    """
    # An unknown change counts as none.
    rows = np.flatnonzero(np.nan_to_num(activity.peak_changes) >= MAX_STILL_CHANGE)
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
    activity: "Activity", seconds: int, on_screen: Sequence[TimedText] = (), start: int = 0
) -> str | None:
    """Return a warning about pictures that can show no step, None if there are none.

    Such pictures are a single picture, slides, long still stretches, or pictures that end early.

    Args:
        activity: motion, cuts and thumbnails of the video.
        seconds: duration of the video in seconds, rounded up.
        on_screen: lines of text in the picture.
        start: second of the whole video at which these pictures begin.
    """
    rows = np.flatnonzero(np.isfinite(activity.thumbnails).all(axis=1))
    if not len(rows):
        return None
    # Nothing can count as shown.
    if len(rows) == 1 and seconds > MAX_PICTURE_AGE_SECONDS:
        return "the video has one picture for all of its sound, so no step counts as shown"
    informative = informative_seconds(activity, seconds, on_screen)
    if seconds > MAX_PICTURE_AGE_SECONDS and not informative.any():
        return "the picture is plain or hardly changes, so no step counts as shown"
    # Parts cannot count as shown.
    end = int((int(rows[-1]) + 1) / activity.rate)
    when = "later"
    reasons = []
    stretches = still_stretches(activity, min(end, seconds))
    if stretches:
        when = "there"
        times = [
            f"{_format_clock(start + first)} to {_format_clock(start + stop)}"
            for first, stop in stretches
        ]
        first_times = ", ".join(times[:MAX_REPORTED_STRETCHES])
        reasons.append(f"does not move from {first_times}")
    if seconds - end > MAX_PICTURE_AGE_SECONDS:
        reasons.append(f"ends at {start + end} s, before the sound")
    if not reasons and informative.mean() < MIN_INFORMATIVE_FRACTION:
        when = "then"
        reasons.append("is plain or hardly changes most of the time")
    if not reasons:
        return None
    return f"the picture {' and '.join(reasons)}; what is said {when} is not shown"


def _format_clock(second: int) -> str:
    return f"{second // 60}:{second % 60:02d}"


def _seconds_since(has_frame: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the seconds since the last second with a frame, (T,), 0 before the first one.

    has_frame: (T,) whether each second has a frame.
    """
    seconds = np.arange(len(has_frame))
    last = np.maximum.accumulate(np.where(has_frame, seconds, -1))
    return np.where(last < 0, 0, seconds - last)


def known_mean_by_second(rows: Matrix | Array, rate: float, seconds: int) -> Array:
    """Return the mean of the complete rows in each second, (T, P), NaN in seconds without one.

    A complete row has no NaN.

    Args:
        rows: (N, P), sorted by time.
        rate: rows per second.
        seconds: T.
    """
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
    """Return the shots of a video as slices of whole seconds that cover it.

    Args:
        cuts: times of cuts in seconds.
        seconds: duration of the video in seconds, rounded up.
    """
    inside = {round(cut) for cut in cuts if 0 < round(cut) < seconds}
    boundaries = sorted({0, seconds} | inside)
    return [slice(start, end) for start, end in itertools.pairwise(boundaries)]


def fit_weight(prior: Array, evidence: Array, penalty: float, limit: float) -> float:
    """Return the weight w of the visual evidence, from 0 to `limit`, that fits the speech best.

    It maximises, over a grid with steps of 0.1,

        sum_k log( sum_t prior_k(t) exp(w z_k(t)) / mean_t exp(w z_k(t)) ) - penalty w

    so evidence z that is not higher where the steps are probably shown gets weight 0.

    Args:
        prior: (K, T) P(step k is shown in second t), by the speech.
        evidence: z, (K, T) similarity of step and second, in standard deviations.
        penalty: cost per unit of weight, in nats.
        limit: largest weight.
    """
    if not evidence.any():
        return 0.0
    # The half step includes `limit` itself.
    weights = np.arange(0.0, limit + WEIGHT_STEP / 2, WEIGHT_STEP)
    gains = [log_bayes_factor(prior, w * evidence) - penalty * w for w in weights]
    return round(float(weights[int(np.argmax(gains))]), 2)


def log_bayes_factor(prior: Array, evidence: Array) -> float:
    """Return the log Bayes factor of the visual evidence, summed over the steps: each is shown where
    the prior says, against anywhere.

    Args:
        prior: (K, T) P(step k is shown in second t), by the speech.
        evidence: (K, T) log likelihood ratios of step k being shown in second t.
    """
    likelihood = np.exp(evidence)
    if_shown = (prior * likelihood).sum(axis=1)
    return float(np.log(if_shown / likelihood.mean(axis=1)).sum())
