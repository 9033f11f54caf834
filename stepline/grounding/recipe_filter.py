"""Following a recipe: which line is being shown, which comes next, which were skipped; a Bayesian
filter over lines.

A hidden Markov model of one state a second: the set of lines that are done, and the line that is
being shown, or none.

    P(x_t | x_{t-1})   a line goes on with 1 - 1/typical; then, or out of a pause, line j begins with
                       rate_j exp(-sum_{i done} c_ji - sum_{i not done} rate_i c_ij) REPEAT_ODDS^[j done] / sum,
                       raised by what the words say: exp(b_j(t)), b the log prior of beginning at t against any time
    P(e_t | x_t)       exp(e_k(t)) of line k, 1 of none: log likelihood ratios of the pictures
    c_ij               nats that it costs to show j before i: log odds of their order, at most MAX_ORDER_NATS

rate: P(line is shown at all). c is what depends on what: the order given, or that of other videos
of the task (`order_from_videos`). Forward over the likeliest HYPOTHESES states, backward over the
last seconds for a fixed lag.
Source of the setting: BaGLM (Bayesian filtering of steps with dependencies; NeurIPS 2025). Differs:
the set of done lines is part of the state, no language model. Letters: K lines, T seconds, N
hypotheses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.grounding.evidence import MAX_DEVIATIONS
from stepline.grounding.fusion import Flags, likeness_weight
from stepline.grounding.said_to_shown import Array
from stepline.grounding.settings import GroundSettings
from stepline.numeric import logit, sigmoid, softmax, sum_to_one

HYPOTHESES = 512  # states kept a second; with 64 what was cut off decided what a lag answers
PAUSE_SECONDS = 25.0  # without a line; CrossTask: 29, YouCook2: 9.4
BEGIN_PROBABILITY = 0.3  # of the next line as one ends
# odds of a line that is done already, against one that is not; CrossTask: .24 of the segments
REPEAT_ODDS = 0.2
# seconds before that middle; real clips: 1.0 before the middle of the words, 104 labelled steps
BEGIN_SECONDS = 2
MAX_ORDER_NATS = 2.5  # that one pair out of order costs
ORDER_MARGIN = 1e-6  # of the probability of an order, from 0 and 1
# seconds of this video that the usual likeness of other videos counts for
USUAL_SECONDS = 200.0
MIN_LINE_PROBABILITY = 0.2  # P(now) from which a line is reported; words alone rarely say more
LEARNING_SECONDS = 20.0  # of a video after which its own likeness counts half
MAX_LINES = 50  # of a recipe; sets of done lines are bits of one integer
MIN_PRIOR = 1e-12  # against the logarithm of zero
MIN_VARIANCE = 1e-12  # of similarity; what is below is rounding
MIN_WEIGHT = 1e-300  # against a division by zero

Integers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RecipeState:
    """Of one second: P(shown now), P(done), P(next), (K,). line: the likeliest one, None where none
    is likely.

    skipped: lines that are not shown yet, though one that belongs after them was.
    """

    now: Array
    done: Array
    next: Array
    line: int | None
    skipped: tuple[int, ...]


@dataclass(frozen=True)
class _Second:
    """done: (N,) bits; line: (N,) 0..K, K = none; weight: (N,) posterior. follow: (N', K+1) where
    each state of the second before went, -1 where it was dropped; chance: (N', K+1) the
    unnormalised P of going there."""

    done: Integers
    line: Integers
    weight: Array
    follow: Integers
    chance: Array


class RecipeFilter:
    """Forward pass over the lines of a recipe; keeps the last `lag` seconds for smoothing."""

    def __init__(
        self,
        lines: int,
        settings: GroundSettings | None = None,
        *,
        before: Array | None = None,
        lag: int = 0,
    ) -> None:
        """before: (K, K) P(line i is shown before line j); the order of the lines costs
        `settings.order` without it.

        Raises ShapeError for another shape, and for more than MAX_LINES lines.
        """
        self._settings = settings or GroundSettings()
        if before is None:
            # the lines in their order
            sign = np.sign(np.arange(lines) - np.arange(lines)[:, None])
            before = sigmoid(self._settings.order * sign)
        if before.shape != (lines, lines):
            raise ShapeError(
                f"`before` must be ({lines}, {lines}), a row and a column a line, not {before.shape}"
            )
        if lines > MAX_LINES:
            raise ShapeError(
                f"{lines} lines: a recipe is followed by at most {MAX_LINES}; give it in parts"
            )
        self._cost = np.clip(
            logit(before, ORDER_MARGIN), 0.0, MAX_ORDER_NATS
        )  # (K, K) of j before i
        self._later = before > 0.5  # (K, K) j belongs after i
        self._bits = 1 << np.arange(lines, dtype=np.int64)
        self._count = lines
        self._lag = lag
        start = _Second(
            done=np.zeros(1, np.int64),
            line=np.full(1, lines),
            weight=np.ones(1),
            follow=np.zeros((0, lines + 1), np.int64),
            chance=np.zeros((0, lines + 1)),
        )
        self._history = [start]
        self.seconds = 0  # taken so far

    def update(
        self, evidence: Array, rate: Array, begins: Array | None = None, *, start: int | None = None
    ) -> None:
        """Take the seconds from `start` on, the next one where it is not given; seconds taken
        already are taken again.

        evidence: (K, n) log likelihood ratio of a line being shown in a second, against none. rate:
        (K,) P(shown at all). begins: (K, n) log of how much likelier than usual a line begins in a
        second, as its words say. Raises ShapeError where `start` is before what is kept.
        """
        back = 0 if start is None else self.seconds - start
        if not 0 <= back < len(self._history) or evidence.shape[0] != self._count:
            raise ShapeError(
                f"evidence {evidence.shape} from second {start}: {self._count} lines, {self._lag} s kept"
            )
        self._history = self._history[: len(self._history) - back]
        self.seconds -= back
        if begins is None:
            begins = np.zeros(evidence.shape)
        for column, begin in zip(evidence.T, begins.T, strict=True):
            second = self._forward(column, begin, rate)
            self._history = [*self._history, second][-self._lag - 1 :]
            self.seconds += 1

    def state(self, lag: int = 0, rate: Array | None = None) -> RecipeState:
        """Return what is known by now of the second `lag` seconds before the last one, as far as it
        is kept."""
        # backward: how well each state explains what came since
        back = min(lag, len(self._history) - 1)
        second = self._history[-1 - back]
        weight = second.weight
        if back:
            likelihood = np.ones(len(self._history[-1].weight))
            for following in reversed(self._history[-back:]):
                reached = np.where(following.follow >= 0, likelihood[following.follow], 0.0)
                likelihood = (following.chance * reached).sum(axis=1)
                likelihood = likelihood / max(likelihood.max(), MIN_WEIGHT)
            weight = likelihood * second.weight
        weight = weight / weight.sum()

        # over all states
        done = self._done(second.done)  # (N, K)
        shown = second.line[:, None] == np.arange(self._count)
        now = weight @ shown
        likely = int(now.argmax()) if self._count else None
        if likely is not None and now[likely] < MIN_LINE_PROBABILITY:
            likely = None
        if rate is None:
            rate = np.ones(self._count)
        past = (done | shown).astype(np.float64)
        overtaken = past @ self._later.T.astype(np.float64) > 0  # (N, K) a later one came
        skipped = weight @ (overtaken & ~done & ~shown)
        return RecipeState(
            now,
            weight @ done,
            weight @ self._begin(done | shown, rate),
            likely,
            tuple(np.flatnonzero(skipped > 0.5).tolist()),
        )

    def _forward(self, evidence: Array, begins: Array, rate: Array) -> _Second:
        """Return the second after the last one: P(x_t | x_{t-1}), then P(e_t | x_t)."""
        last, count = self._history[-1], self._count
        shows = last.line < count
        done = self._done(last.done)  # (N, K)
        shown = last.line[:, None] == np.arange(count)
        leave = 1 / self._settings.typical
        begin = np.where(shows, leave * BEGIN_PROBABILITY, 1 / PAUSE_SECONDS)
        chance = np.empty((len(last.line), count + 1))
        chance[:, :count] = begin[:, None] * self._begin(done | shown, rate) * np.exp(begins)
        chance[:, count] = np.where(shows, leave * (1 - BEGIN_PROBABILITY), 1 - 1 / PAUSE_SECONDS)
        chance[np.flatnonzero(shows), last.line[shows]] += 1 - leave
        chance = sum_to_one(chance)
        chance *= np.exp(np.append(evidence, 0.0) - max(0.0, float(evidence.max(initial=0.0))))

        # states that are the same from here on become one; the likeliest stay
        ended = np.append(self._bits, 0)[last.line]
        lines = np.broadcast_to(np.arange(count + 1), chance.shape)
        goes_on = lines == last.line[:, None]
        bits = np.where(goes_on, last.done[:, None], (last.done | ended)[:, None])
        states, index = np.unique((bits * (count + 1) + lines).ravel(), return_inverse=True)
        total = np.bincount(index, weights=(last.weight[:, None] * chance).ravel())
        likeliest = np.argsort(-total, kind="stable")[:HYPOTHESES]
        number = np.full(len(states), -1)
        number[likeliest] = np.arange(len(likeliest))
        return _Second(
            states[likeliest] // (count + 1),
            states[likeliest] % (count + 1),
            total[likeliest] / total[likeliest].sum(),
            number[index].reshape(chance.shape),
            chance,
        )

    def _begin(self, shown: Flags, rate: Array) -> Array:
        """Return P(line j is the one that begins), (N, K); shown: (N, K) the lines that are done,
        or shown now."""
        late = shown.astype(np.float64) @ self._cost.T  # what was shown though j comes before it
        skips = (~shown * rate) @ self._cost  # what comes before j and is still likely to be shown
        again = np.where(shown, math.log(REPEAT_ODDS), 0.0)
        return softmax(np.log(rate) - late - skips + again)

    def _done(self, bits: Integers) -> Flags:
        return np.asarray((bits[:, None] & self._bits) > 0)


def order_from_videos(orders: Sequence[Sequence[int]], lines: int) -> Array:
    """Return (K, K) P(line i is shown before line j), from the lines that other videos of the task
    show, in order.

    By when each is shown first, with one video more that has either order, so that what nobody
    showed counts 0.5.
    """
    counts = np.ones((lines, lines))
    for order in orders:
        first = list(dict.fromkeys(order))
        for rank, line in enumerate(first, start=1):
            counts[line, first[rank:]] += 1
    return np.asarray(counts / (counts + counts.T))


def line_evidence(
    prior: Array,
    similarity: Array,
    said: Flags,
    penalty: float,
    settings: GroundSettings,
    *,
    usual: tuple[float, float] | None = None,
) -> Array:
    """Return (K, T): log likelihood ratio of each line being shown in a second, against none, by
    its looks.

    prior: (K, T) P(shown at t | said). similarity: (K, T) cosines, NaN where nothing is seen.
    usual: mean and spread of similarity in other videos. Pictures weigh what they earn where lines
    are said, as in `fuse`.
    """
    z = standardised(similarity, usual)
    weight = likeness_weight(prior, z, said, penalty, settings)
    if usual is None:  # the first seconds are measured against themselves alone
        seconds = float(np.isfinite(similarity).all(axis=0).sum())
        weight *= seconds / (seconds + LEARNING_SECONDS)
    return np.asarray(weight * z - np.where(z.any(axis=0), weight**2 / 2, 0.0))


def begin_evidence(prior: Array, said: Flags) -> Array:
    """Return (K, T): log of how much likelier than at any time a line begins in a second, as its
    words say.

    prior: (K, T) P(the middle of its showing is t | said); it begins BEGIN_SECONDS earlier.
    """
    usual = np.maximum(prior.mean(axis=1, keepdims=True), MIN_PRIOR)
    middle = np.log(np.maximum(prior, MIN_PRIOR) / usual)
    back = min(BEGIN_SECONDS, prior.shape[1] - 1)
    begin = np.concatenate([middle[:, back:], np.repeat(middle[:, -1:], back, axis=1)], axis=1)
    return np.where(said[:, None], np.clip(begin, -MAX_DEVIATIONS, MAX_DEVIATIONS), 0.0)


def standardised(similarity: Array, usual: tuple[float, float] | None = None) -> Array:
    """Return similarity (K, T) in standard deviations above each line's mean so far, clipped to
    MAX_DEVIATIONS; NaN is 0.

    usual: mean and spread in other videos, which count like USUAL_SECONDS of this one.
    """
    known = np.isfinite(similarity).all(axis=0)
    if not known.any() or not len(similarity):
        return np.zeros(similarity.shape)
    past = similarity[:, known]
    mean, spread = usual or (float(past.mean()), float(past.std()))
    extra = USUAL_SECONDS if usual else 0.0
    seconds = past.shape[1] + extra
    centre = (past.sum(axis=1, keepdims=True) + extra * mean) / seconds  # (K, 1)
    variance = (((past - centre) ** 2).mean(axis=0).sum() + extra * spread**2) / seconds
    if variance <= MIN_VARIANCE:
        return np.zeros(similarity.shape)
    z = np.where(known, np.nan_to_num(similarity) - centre, 0.0)
    return np.clip(z / math.sqrt(variance), -MAX_DEVIATIONS, MAX_DEVIATIONS)
