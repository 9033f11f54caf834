"""Following a recipe: which line is being shown, which comes next, which were skipped. A Bayesian
filter over lines.

A hidden Markov model of one state a second: the set of lines that are done, and the line that is
being shown, or none.

    P(x_t | x_{t-1})   a line goes on with 1 - 1/typical; then, or out of a pause, line j begins with
                       rate_j exp(-sum_{i done} c_ji - sum_{i not done} rate_i c_ij) REPEAT_ODDS^[j done] / sum,
                       raised by what the words say: exp(b_j(t)), b the log prior of beginning at t against any time
    P(e_t | x_t)       exp(e_k(t)) of line k, 1 of none: log likelihood ratios of the pictures
    c_ij               nats that it costs to show j before i: log odds of their order, at most MAX_ORDER_NATS

rate: P(line is shown at all). c is what depends on what: the order given, or that of other videos
of the task (`order_from_videos`). Forward over the most likely MAX_HYPOTHESES states, backward over
the last seconds for a fixed lag.
Source of the setting: BaGLM, NeurIPS 2025 (Bayesian filtering of steps with dependencies). Differs:
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

MAX_HYPOTHESES = 512  # states kept a second; with 64 what was cut off decided what a lag answers
PAUSE_SECONDS = 25.0  # without a line; CrossTask: 29, YouCook2: 9.4
BEGIN_PROBABILITY = 0.3  # of the next line as one ends
# odds of a line that is done already, against one that is not. CrossTask: .24 of the segments
REPEAT_ODDS = 0.2
# seconds before that middle. Real clips: 1.0 before the middle of the words, 104 labelled steps
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
    """Of one second: P(shown now), P(done), P(next), (K,).

    line: the most likely one, None where no line is likely.

    skipped: lines that are not shown yet, though one that belongs after them was.
    """

    now: Array
    p_done: Array
    next: Array
    line: int | None
    skipped: tuple[int, ...]


@dataclass(frozen=True)
class _Second:
    """The states of one second.

    done_bits: (N,).
    line: (N,) 0..K, K = none.
    weight: (N,) posterior.
    follow: (N', K+1) where each state of the second before went, -1 where it was dropped.
    chance: (N', K+1) the unnormalised P of going there.
    """

    done_bits: Integers
    line: Integers
    weight: Array
    follow: Integers
    chance: Array


class RecipeFilter:
    """Forward pass over the lines of a recipe. It keeps the last `lag` seconds for smoothing."""

    def __init__(
        self,
        lines: int,
        settings: GroundSettings | None = None,
        *,
        before: Array | None = None,
        lag: int = 0,
    ) -> None:
        """before: (K, K) P(line i is shown before line j). Without it the order of the lines costs
        `settings.order`.

        Raises ShapeError for another shape, and for more than MAX_LINES lines.
        """
        self._settings = settings or GroundSettings()
        numbers = np.arange(lines)
        if before is None:
            # the lines in their order
            sign = np.sign(numbers - numbers[:, None])
            before = sigmoid(self._settings.order * sign)
        if before.shape != (lines, lines):
            expected = f"({lines}, {lines}), a row and a column per line"
            raise ShapeError(f"`before` must be {expected}, not {before.shape}")
        if lines > MAX_LINES:
            raise ShapeError(
                f"{lines} lines: a recipe is followed by at most {MAX_LINES}; give it in parts"
            )
        # What an order costs, and which lines belong after which.
        log_odds = logit(before, ORDER_MARGIN)
        self._cost = np.clip(log_odds, 0.0, MAX_ORDER_NATS)  # (K, K) of j before i
        self._later = before > 0.5  # (K, K) j belongs after i
        self._bits = 1 << numbers.astype(np.int64)
        self._count = lines
        self._lag = lag
        # At first nothing is done and nothing is shown.
        start = _Second(
            done_bits=np.zeros(1, np.int64),
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
        """Take the seconds from `start` on, the next one where it is not given. Seconds taken
        already are taken again.

        evidence: (K, n) log likelihood ratio of a line being shown in a second, against none.
        rate: (K,) P(shown at all).
        begins: (K, n) log of how much more likely than usual a line begins in a second, as its
        words say.
        Raises ShapeError where `start` is before what is kept.
        """
        # Seconds that are taken again are forgotten first.
        back = 0
        if start is not None:
            back = self.seconds - start
        if not 0 <= back < len(self._history) or evidence.shape[0] != self._count:
            stored = f"{self._count} lines, {self._lag} s kept"
            raise ShapeError(f"evidence {evidence.shape} from second {start}: {stored}")
        remaining = len(self._history) - back
        self._history = self._history[:remaining]
        self.seconds -= back
        if begins is None:
            begins = np.zeros(evidence.shape)
        # Forward second by second. A lag needs that many seconds and the last one.
        for column, begin in zip(evidence.T, begins.T, strict=True):
            second = self._forward(column, begin, rate)
            history = [*self._history, second]
            self._history = history[-self._lag - 1 :]
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
                # A state that was dropped explains nothing of what came since.
                reached = np.where(following.follow >= 0, likelihood[following.follow], 0.0)
                likelihood = (following.chance * reached).sum(axis=1)
                likelihood = likelihood / max(likelihood.max(), MIN_WEIGHT)
            weight = likelihood * second.weight
        weight = weight / weight.sum()

        # over all states
        is_done = self._is_done(second.done_bits)  # (N, K)
        is_shown = second.line[:, None] == np.arange(self._count)
        now = weight @ is_shown
        likely = None
        if self._count:
            likely = int(now.argmax())
            if now[likely] < MIN_LINE_PROBABILITY:
                likely = None

        # lines that a later one overtook
        was_shown = is_done | is_shown
        past = was_shown.astype(np.float64)
        later = self._later.T.astype(np.float64)
        is_overtaken = past @ later > 0  # (N, K)
        p_skipped = weight @ (is_overtaken & ~is_done & ~is_shown)
        skipped = np.flatnonzero(p_skipped > 0.5).tolist()
        if rate is None:
            rate = np.ones(self._count)
        p_next = weight @ self._begin(was_shown, rate)
        return RecipeState(now, weight @ is_done, p_next, likely, tuple(skipped))

    def _forward(self, evidence: Array, begins: Array, rate: Array) -> _Second:
        """Return the second after the last one: P(x_t | x_{t-1}), then P(e_t | x_t)."""
        last = self._history[-1]
        count = self._count
        shows = last.line < count
        is_done = self._is_done(last.done_bits)  # (N, K)
        is_shown = last.line[:, None] == np.arange(count)

        # a line goes on, another begins, or a pause
        leave = 1 / self._settings.typical
        begin = np.where(shows, leave * BEGIN_PROBABILITY, 1 / PAUSE_SECONDS)
        pause = np.where(shows, leave * (1 - BEGIN_PROBABILITY), 1 - 1 / PAUSE_SECONDS)
        chance = np.empty((len(last.line), count + 1))
        by_line = self._begin(is_done | is_shown, rate)
        chance[:, :count] = begin[:, None] * by_line * np.exp(begins)
        chance[:, count] = pause
        chance[np.flatnonzero(shows), last.line[shows]] += 1 - leave
        chance = sum_to_one(chance)
        # Relative to the greatest ratio, so that no exponential overflows.
        greatest = max(0.0, float(evidence.max(initial=0.0)))
        log_ratios = np.append(evidence, 0.0) - greatest
        chance *= np.exp(log_ratios)

        # states that are the same from here on become one. The most likely stay
        ended = np.append(self._bits, 0)[last.line]
        lines = np.broadcast_to(np.arange(count + 1), chance.shape)
        goes_on = lines == last.line[:, None]
        # A line that gives way is done. A pause has no bit to set.
        bits_after = last.done_bits | ended
        bits = np.where(goes_on, last.done_bits[:, None], bits_after[:, None])
        # A state as one number: its done lines and the line that is shown.
        keys = bits * (count + 1) + lines
        states, index = np.unique(keys.ravel(), return_inverse=True)
        joint = last.weight[:, None] * chance
        total = np.bincount(index, weights=joint.ravel())
        likeliest = np.argsort(-total, kind="stable")[:MAX_HYPOTHESES]
        number = np.full(len(states), -1)
        number[likeliest] = np.arange(len(likeliest))
        best_states = states[likeliest]
        best_total = total[likeliest]
        return _Second(
            done_bits=best_states // (count + 1),
            line=best_states % (count + 1),
            weight=best_total / best_total.sum(),
            follow=number[index].reshape(chance.shape),
            chance=chance,
        )

    def _begin(self, was_shown: Flags, rate: Array) -> Array:
        """Return P(line j is the one that begins), (N, K).

        was_shown: (N, K) the lines that are done, or shown now.
        """
        # what was shown though j comes before it
        late = was_shown.astype(np.float64) @ self._cost.T
        # what comes before j and is still likely to be shown
        skips = (~was_shown * rate) @ self._cost
        again = np.where(was_shown, math.log(REPEAT_ODDS), 0.0)
        logits = np.log(rate) - late - skips + again
        return softmax(logits)

    def _is_done(self, bits: Integers) -> Flags:
        set_bits = bits[:, None] & self._bits
        return np.asarray(set_bits > 0)


def order_from_videos(orders: Sequence[Sequence[int]], lines: int) -> Array:
    """Return (K, K) P(line i is shown before line j), from the lines that other videos of the task
    show, in order.

    By when each is shown first, with one video more that has either order, so that what no one
    showed counts 0.5.
    """
    counts = np.ones((lines, lines))
    for order in orders:
        first = list(dict.fromkeys(order))
        for rank, line in enumerate(first, start=1):
            later = first[rank:]
            counts[line, later] += 1
    return np.asarray(counts / (counts + counts.T))


def line_evidence(
    prior: Array,
    similarity: Array,
    is_said: Flags,
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
    weight = likeness_weight(prior, z, is_said, penalty, settings)
    if usual is None:  # the first seconds are measured against themselves alone
        is_seen = np.isfinite(similarity).all(axis=0)
        seconds = float(is_seen.sum())
        weight *= seconds / (seconds + LEARNING_SECONDS)
    # exp(w z - w^2 / 2) is 1 on average over noise of unit variance, so noise says nothing.
    has_evidence = z.any(axis=0)
    noise = np.where(has_evidence, weight**2 / 2, 0.0)
    return np.asarray(weight * z - noise)


def begin_evidence(prior: Array, is_said: Flags) -> Array:
    """Return (K, T): log of how much more likely than at any time a line begins in a second, as its
    words say.

    prior: (K, T) P(the middle of its showing is t | said). It begins BEGIN_SECONDS earlier.
    """
    usual = np.maximum(prior.mean(axis=1, keepdims=True), MIN_PRIOR)
    middle = np.log(np.maximum(prior, MIN_PRIOR) / usual)
    # Moved earlier. The last value fills the end.
    back = min(BEGIN_SECONDS, prior.shape[1] - 1)
    last = np.repeat(middle[:, -1:], back, axis=1)
    begin = np.concatenate([middle[:, back:], last], axis=1)
    clipped = np.clip(begin, -MAX_DEVIATIONS, MAX_DEVIATIONS)
    return np.where(is_said[:, None], clipped, 0.0)


def standardised(similarity: Array, usual: tuple[float, float] | None = None) -> Array:
    """Return similarity (K, T) in standard deviations above each line's mean so far, clipped to
    MAX_DEVIATIONS. NaN is 0.

    usual: mean and spread in other videos, which count like USUAL_SECONDS of this one.
    """
    is_known = np.isfinite(similarity).all(axis=0)
    if not is_known.any() or not len(similarity):
        return np.zeros(similarity.shape)
    past = similarity[:, is_known]
    if usual is None:
        mean = float(past.mean())
        spread = float(past.std())
        extra = 0.0
    else:
        mean, spread = usual
        extra = USUAL_SECONDS
    # Other videos count as if they were more seconds of this one.
    seconds = past.shape[1] + extra
    centre = (past.sum(axis=1, keepdims=True) + extra * mean) / seconds  # (K, 1)
    squares = (past - centre) ** 2
    variance = (squares.mean(axis=0).sum() + extra * spread**2) / seconds
    if variance <= MIN_VARIANCE:
        return np.zeros(similarity.shape)
    z = np.where(is_known, np.nan_to_num(similarity) - centre, 0.0)
    deviations = z / math.sqrt(variance)
    return np.clip(deviations, -MAX_DEVIATIONS, MAX_DEVIATIONS)
