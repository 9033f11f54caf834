"""Following a recipe: which line is being shown, which comes next, which were skipped; a Bayesian
filter over lines.

A hidden Markov model of one state a second: the set of lines that are done, and the line that is
being shown, or none.

    P(x_t | x_{t-1})   a line goes on with 1 - 1/typical; then, or out of a pause, line j begins with
                       rate_j exp(-sum_{i done} c_ji - sum_{i not done} rate_i c_ij) REPEATED^[j done] / sum,
                       raised by what the words say: exp(b_j(t)), b the log prior of beginning at t against any time
    P(e_t | x_t)       exp(e_k(t)) of line k, 1 of none: log likelihood ratios of the pictures
    c_ij               nats that it costs to show j before i: log odds of their order, at most MOST

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

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.grounding.evidence import LIMIT
from stepline.grounding.fusion import Flags, likeness_weight
from stepline.grounding.said_to_shown import Array
from stepline.grounding.settings import GroundSettings

HYPOTHESES = 512  # states kept a second; with 64 what was cut off decided what a lag answers
PAUSE = 25.0  # seconds without a line; CrossTask: 29, YouCook2: 9.4
AT_ONCE = 0.3  # P(the next line begins as one ends)
# odds of a line that is done already, against one that is not; CrossTask: .24 of the segments
REPEATED = 0.2
# seconds before that middle; real clips: 1.0 before the middle of the words, 104 labelled steps
BEGINS = 2
MOST = 2.5  # nats that one pair out of order costs at most
USUAL = 200.0  # seconds that the usual likeness counts for, beside those of the video itself
TOLD = 0.2  # P(now) from which the likeliest line is told; words alone rarely say more
FIRST = 20.0  # seconds of a video after which its own likeness counts half
MOST_LINES = 50  # of a recipe; sets of done lines are bits of one integer

Numbers = npt.NDArray[np.int64]


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

    done: Numbers
    line: Numbers
    weight: Array
    follow: Numbers
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

        Raises ShapeError for another shape, and for more than MOST_LINES lines.
        """
        self._settings = settings or GroundSettings()
        if before is None:
            before = given_order(lines, self._settings.order)
        if before.shape != (lines, lines):
            raise ShapeError(
                f"`before` must be ({lines}, {lines}), a row and a column a line, not {before.shape}"
            )
        if lines > MOST_LINES:
            raise ShapeError(
                f"{lines} lines: a recipe is followed by at most {MOST_LINES}; give it in parts"
            )
        odds = np.clip(before, 1e-6, 1 - 1e-6)
        self._cost = np.clip(np.log(odds / (1 - odds)), 0.0, MOST)  # (K, K) of showing j before i
        self._later = before > 0.5  # (K, K) j belongs after i
        self._bits = 1 << np.arange(lines, dtype=np.int64)
        self._count, self._lag = lines, lag
        none, one = np.zeros(1, dtype=np.int64), np.ones(1)
        start = _Second(
            none, none + lines, one, np.zeros((0, lines + 1), np.int64), np.zeros((0, lines + 1))
        )
        self._history = [start]
        self.seconds = 0  # so many have been taken

    def update(
        self, evidence: Array, rate: Array, begins: Array | None = None, *, start: int | None = None
    ) -> None:
        """Take the seconds from `start` on, the next one where it is not given; seconds taken
        already are taken anew.

        evidence: (K, n) log likelihood ratio of a line being shown in a second, against none. rate:
        (K,) P(shown at all). begins: (K, n) log of how much likelier than usual a line begins in a
        second, as its words tell. Raises ShapeError where `start` lies before what is kept.
        """
        back = 0 if start is None else self.seconds - start
        if not 0 <= back < len(self._history) or evidence.shape[0] != self._count:
            raise ShapeError(
                f"evidence {evidence.shape} from second {start}: {self._count} lines, {self._lag} s kept"
            )
        self._history = self._history[: len(self._history) - back]
        self.seconds -= back
        begins = np.zeros(evidence.shape) if begins is None else begins
        for column, begin in zip(evidence.T, begins.T, strict=True):
            self._history = [*self._history, self._forward(column, begin, rate)][-self._lag - 1 :]
            self.seconds += 1

    def state(self, lag: int = 0, rate: Array | None = None) -> RecipeState:
        """Return what is known by now of the second `lag` seconds before the last one, as far as it
        is kept."""
        back = min(lag, len(self._history) - 1)
        weight = np.ones(len(self._history[-1].weight)) if back else self._history[-1].weight
        for second in self._history[len(self._history) - back :][::-1]:
            reached = np.where(second.follow >= 0, weight[second.follow], 0.0)
            weight = (second.chance * reached).sum(axis=1)
            weight = weight / max(weight.max(), 1e-300)
        at = self._history[-1 - back]
        if back:
            weight = weight * at.weight
        weight = weight / weight.sum()
        done = self._done(at.done)
        shown = at.line[:, None] == np.arange(self._count)
        now, next_ = (
            weight @ shown,
            weight @ self._begin(done | shown, np.ones(self._count) if rate is None else rate),
        )
        # (N, K) a later one came
        passed = ((done | shown).astype(np.float64) @ self._later.T.astype(np.float64)) > 0
        left = weight @ (passed & ~done & ~shown)
        line = int(now.argmax()) if self._count and now.max() >= TOLD else None
        return RecipeState(
            now, weight @ done, next_, line, tuple(np.flatnonzero(left > 0.5).tolist())
        )

    def _forward(self, evidence: Array, begins: Array, rate: Array) -> _Second:
        last, count = self._history[-1], self._count
        shows = last.line < count
        done = self._done(last.done)  # (N, K)
        stay, leave = 1 - 1 / self._settings.typical, 1 / self._settings.typical
        begin = np.where(shows, leave * AT_ONCE, 1 / PAUSE)[:, None]
        chance = np.empty((len(last.line), count + 1))
        chance[:, :count] = (
            begin
            * self._begin(done | (last.line[:, None] == np.arange(count)), rate)
            * np.exp(begins)
        )
        chance[:, count] = np.where(shows, leave * (1 - AT_ONCE), 1 - 1 / PAUSE)
        chance[np.flatnonzero(shows), last.line[shows]] += stay
        chance /= chance.sum(axis=1, keepdims=True)
        chance *= np.exp(np.append(evidence, 0.0) - max(0.0, float(evidence.max(initial=0.0))))
        ended = (
            np.where(shows, self._bits[np.minimum(last.line, count - 1)], 0)
            if count
            else np.zeros_like(last.line)
        )
        to = np.broadcast_to(np.arange(count + 1), chance.shape)
        bits = np.where(to == last.line[:, None], last.done[:, None], (last.done | ended)[:, None])
        states, place = np.unique((bits * (count + 1) + to).ravel(), return_inverse=True)
        total = np.bincount(place, weights=(last.weight[:, None] * chance).ravel())
        kept = np.argsort(-total, kind="stable")[:HYPOTHESES]
        number = np.full(len(states), -1)
        number[kept] = np.arange(len(kept))
        weight = total[kept] / total[kept].sum()
        return _Second(
            states[kept] // (count + 1),
            states[kept] % (count + 1),
            weight,
            number[place].reshape(chance.shape),
            chance,
        )

    def _begin(self, shown: Flags, rate: Array) -> Array:
        """Return P(line j is the one that begins), (N, K); shown: (N, K) the lines that are done,
        or shown now."""
        if not self._count:
            return np.zeros(shown.shape)
        late = shown.astype(np.float64) @ self._cost.T  # what was shown though j comes before it
        skips = (~shown * rate) @ self._cost  # what comes before j and is still likely to be shown
        log = np.log(rate) - late - skips + np.where(shown, math.log(REPEATED), 0.0)
        chance = np.exp(log - log.max(axis=1, keepdims=True))
        return np.asarray(chance / chance.sum(axis=1, keepdims=True))

    def _done(self, bits: Numbers) -> Flags:
        return np.asarray((bits[:, None] & self._bits) > 0)


def given_order(lines: int, nats: float) -> Array:
    """Return (K, K) P(line i is shown before line j) of lines that stand in order, a pair of which
    costs `nats`."""
    sign = np.sign(np.arange(lines) - np.arange(lines)[:, None])
    return np.asarray(1 / (1 + np.exp(-nats * sign)))


def order_from_videos(orders: Sequence[Sequence[int]], lines: int) -> Array:
    """Return (K, K) P(line i is shown before line j), from the lines that other videos of the task
    show, in order.

    By when each is shown first, with one video more that has either order, so that what nobody
    showed counts 0.5.
    """
    counts = np.ones((lines, lines))
    for order in orders:
        first = list(dict.fromkeys(order))
        for place, line in enumerate(first):
            counts[line, first[place + 1 :]] += 1
    return np.asarray(counts / (counts + counts.T))


def likeness_evidence(
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
    if usual is None:  # what is seen of the first seconds is measured against itself alone
        seen = float(np.isfinite(similarity).all(axis=0).sum())
        weight *= seen / (seen + FIRST)
    return np.asarray(weight * z - np.where(z.any(axis=0), weight**2 / 2, 0.0))


def begin_evidence(prior: Array, said: Flags) -> Array:
    """Return (K, T): log of how much likelier than at any time a line begins in a second, as its
    words tell.

    prior: (K, T) P(the middle of its showing is t | said); it begins BEGINS earlier.
    """
    log = np.log(np.maximum(prior, 1e-12) / np.maximum(prior.mean(axis=1, keepdims=True), 1e-12))
    back = min(BEGINS, prior.shape[1] - 1)
    early = np.concatenate([log[:, back:], np.repeat(log[:, -1:], back, axis=1)], axis=1)
    return np.asarray(np.where(said[:, None], np.clip(early, -LIMIT, LIMIT), 0.0))


def standardised(similarity: Array, usual: tuple[float, float] | None = None) -> Array:
    """Return similarity (K, T) in standard deviations above each line's mean so far, clipped to
    LIMIT; NaN is 0.

    usual: mean and spread in other videos, which count like USUAL seconds of this one.
    """
    known = np.isfinite(similarity).all(axis=0)
    if not known.any() or not len(similarity):
        return np.zeros(similarity.shape)
    seen = similarity[:, known]
    mean, spread = usual or (float(seen.mean()), float(seen.std()))
    extra = USUAL if usual else 0.0
    centre = (seen.sum(axis=1, keepdims=True) + extra * mean) / (seen.shape[1] + extra)  # (K, 1)
    variance = (((seen - centre) ** 2).mean(axis=0).sum() + extra * spread**2) / (
        seen.shape[1] + extra
    )
    z = np.where(known, np.nan_to_num(similarity) - centre, 0.0)
    return np.asarray(
        np.clip(z / math.sqrt(variance), -LIMIT, LIMIT) if variance > 1e-12 else np.zeros(z.shape)
    )
