"""Steps matched to shots: where a video has at least as many shots as steps, each shot holds one
step or none.

**Units and the odds that something is done in them.** A presenter's shot comes again and again
looking alike, and chat is spoken over it; hands at work change some spot of the picture much from
frame to frame, and the words of a step fall on or before them. So, for each shot,

    log odds(doing) = 1.5 S - 0.3 C - 3.3 R + 4.8 M + 1

    S, C   log density of the steps' words, and of chat, in the shots that look like this one, against the whole video
    R      log(1 + how often that look comes again), less that of the median look, where at least as
           much chat as steps falls on it, else 0
    M      log of the change in the most changed spot, against the video's median

The five numbers are a logistic regression over the shots of thirty drawn videos, rounded;
everything they weigh is measured against the video itself. A unit is a shot, or a piece of a long
one.

**The assignment of steps to units.**

    weight(k, u) = odds(shown_k) mass_k(u) exp(w z_k(u)) r_u / (1 - rho + rho r_u)

mass: of the shown prior, in the seconds of the unit; among the units near the words, the one that
starts with them gets most. r: odds of doing against not. The denominator is what the picture would
be worth if no step stood there: something unwritten is done in a fraction rho of the units. Each
unit holds one step or none, each step one unit or none; the probability of each pair is found by
belief propagation (the Bethe form of the monomer-dimer model, one fixed point). Steps of one
sentence may share a unit: "take the whisk and beat the eggs" is one picture. Steps are mostly shown
in the order of saying: every pair out of order costs `order` nats.

Letters: K steps, T seconds, U units, C shots, D width.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepline.grounding.evidence import known_mean_by_second, mean_by_second
from stepline.grounding.said_to_shown import Array
from stepline.grounding.settings import GroundSettings
from stepline.records import FeatureSequence, Span, Step, Transcript

if TYPE_CHECKING:
    from stepline.vision import Activity

STEPS, CHAT, AGAIN, MOVES, BASE = 1.5, -0.3, -3.3, 4.8, 1.0  # weights of the odds of doing, above
# shrinkage: so many steps, so much chat of 3 s, are spread evenly
FEW_STEPS, FEW_CHAT, UTTERANCE = 2.0, 1.0, 3.0
ALIKE = 0.022  # mean difference of two thumbnails, 0 to 1, up to which two shots look alike
STILL = 0.02  # change of a spot below which it counts as still
# seconds; an uncut stretch holds a step about every so many (WhenAct's shown spans: median 8)
PIECE = 7.0
LONG = 1.5  # a shot longer than so many pieces is cut into pieces
JOIN = 0.5  # cosine of contrasted features above which two shots next to each other show one action
JOINED = 8.0  # seconds that such a pair lasts at most (WhenAct: the median of shown spans)

# weights of `doing_odds`, fitted on 31 real clips, each class weighed the same
FACE, COMPANY, ALONE = -3.6, 1.3, 1.0
# seconds; what is said 4 s farther off counts e times less, beyond 20 s nothing
COMPANY_REACH, COMPANY_END = 4.0, 20
FACE_REACH = 1  # seconds to either side over which a face is averaged

ROUNDS = 200  # of messages, each half the way; they settle in far fewer
ORDERINGS = 4  # how often the order is looked at again
CERTAIN = 4.0  # nats that the picture may say for or against doing
NEAR = 5.0  # seconds around the words in which a shot answers to them
START = 1.0  # seconds after the first word at which such a shot usually starts (WhenAct: 1.0)
AROUND = 2.0  # seconds, how much that varies; Cauchy


@dataclass(frozen=True)
class ShotUnits:
    """Units for one step each: seconds; the second at which each starts, to the frame; log odds of
    doing, (U,)."""

    slices: list[slice]
    starts: Array
    odds: Array


@dataclass(frozen=True)
class LookOdds:
    """By shot, from all shots of its look: log odds of doing (C,), and what its coming again has in
    them (C,), <= 0."""

    doing: Array
    again: Array


def odds_by_look(
    activity: "Activity", shots: Sequence[slice], prior: Array, chat: Array
) -> LookOdds:
    """Return the odds that the company of each look tells.

    prior: (K, T) where steps are shown; chat: (T,) seconds of speech of no step.
    """
    groups = _group_by_look(
        shots, known_mean_by_second(activity.looks, activity.rate, prior.shape[1])
    )
    steps = prior.sum(axis=0)
    doing, again = np.zeros(len(shots)), np.zeros(len(shots))
    same = groups[:, None] == groups  # (C, C)
    apart = np.abs(np.subtract.outer(np.arange(len(shots)), np.arange(len(shots)))) > 1
    times = (same & apart).sum(axis=1)  # (C,) how often each look comes again
    # In a film that repeats itself every look does: what counts is coming again more often than the
    # median look.
    looks = np.sort([times[groups == group].max() for group in np.unique(groups)])
    more = np.log1p(times) - np.log1p(looks[(len(looks) - 1) // 2])
    for n in range(len(shots)):
        alike = np.flatnonzero(same[n]).tolist()
        members = np.concatenate([np.arange(shots[m].start, shots[m].stop) for m in alike])
        fraction = len(members) / prior.shape[1]
        log_steps = _density(steps[members].sum(), steps.sum(), FEW_STEPS, fraction)
        log_chat = _density(
            chat[members].sum() / UTTERANCE, chat.sum() / UTTERANCE, FEW_CHAT, fraction
        )
        again[n] = AGAIN * max(0.0, more[n]) * np.clip(1 + 2 * (log_chat - log_steps), 0, 1)
        doing[n] = STEPS * log_steps + CHAT * log_chat + again[n] + BASE
    return LookOdds(doing, again)


def talking_heads(odds: LookOdds, shots: Sequence[slice]) -> Array:
    """Return (T,): log odds against doing, at most 0, where a look comes again and draws more chat
    than steps.

    Of all that speaks for or against doing, this alone holds on real clips (docs/real_clips.md).
    """
    return np.repeat(odds.again, [shot.stop - shot.start for shot in shots])


def told_and_chat(
    steps: Sequence[Step], transcript: Transcript | None, seconds: int
) -> tuple[Array, Array]:
    """Return (T,) twice: how long, within each second, a sentence is said that a step rests on, and
    another one.

    Where no step rests on a sentence nothing is known, and both are 0.
    """
    used = {source for step in steps for source in step.sources}
    told, chat = np.zeros(seconds), np.zeros(seconds)
    for n, sentence in enumerate(transcript.sentences if transcript and used else ()):
        row = told if n in used else chat
        for t in range(int(sentence.span.start), min(seconds, math.ceil(sentence.span.end))):
            row[t] += Span(float(t), float(t + 1)).overlap(sentence.span)
    return told, chat


def doing_odds(presenter: Array, told: Array, chat: Array) -> Array:
    """Return (T,): log odds that something is done in a second, against someone talking to the
    camera.

    presenter: (T,) how surely someone looks at the camera, 0 to 1, NaN where nobody looked. told,
    chat: (T,) seconds of speech that steps rest on, and of other speech. On the seconds of real
    clips that are marked "doing" or "talk", by weights of other makers' clips: AUC .91 [.81, .98],
    .87 by the face alone, .81 by the words alone.
    """
    seen = np.nan_to_num(presenter)
    width = np.ones(2 * FACE_REACH + 1)
    face = _convolve(seen, width) / _convolve(np.ones_like(seen), width)
    near = np.exp(-np.abs(np.arange(-COMPANY_END, COMPANY_END + 1)) / COMPANY_REACH)
    return (
        FACE * face
        + COMPANY * np.log((_convolve(told, near) + 1) / (_convolve(chat, near) + 1))
        + ALONE
    )


def _convolve(row: Array, kernel: Array) -> Array:
    """Return (T,): each second with what is around it, weighed by a kernel of odd length."""
    reach = len(kernel) // 2
    return np.asarray(np.convolve(row, kernel, "full")[reach : reach + len(row)])


def shot_units(
    activity: "Activity",
    shots: Sequence[slice],
    by_look: LookOdds,
    features: FeatureSequence | None,
) -> ShotUnits:
    """Return the units of a video."""
    seconds = shots[-1].stop
    peaks = np.log(
        known_mean_by_second(activity.peaks[:, None], activity.rate, seconds)[:, 0] + STILL
    )
    usual = float(np.nanmedian(peaks)) if np.isfinite(peaks).any() else 0.0
    slices, odds = [], []
    for shot, log_odds in zip(shots, by_look.doing, strict=True):
        for piece in cut_into_pieces(shot):
            moves = peaks[piece][np.isfinite(peaks[piece])]
            slices.append(piece)
            odds.append(log_odds + MOVES * (float(moves.mean()) - usual if moves.size else 0.0))
    # (T, D)
    content = (
        mean_by_second(features, seconds) if features is not None else np.full((seconds, 1), np.nan)
    )
    known = np.isfinite(content).all(axis=1)
    if known.any():
        slices, odds = _join_neighbours(slices, odds, shots, content - content[known].mean(axis=0))
    cuts = np.array(activity.cuts)
    near = [cuts[np.abs(cuts - s.start).argmin()] if cuts.size else s.start for s in slices]
    starts = [
        cut if abs(cut - s.start) <= 1 else s.start for cut, s in zip(near, slices, strict=True)
    ]
    return ShotUnits(slices, np.array(starts, dtype=np.float64), np.array(odds))


def cut_into_pieces(shot: slice) -> list[slice]:
    """Return a shot whole, or a long one in equal parts of about `PIECE` seconds."""
    length = shot.stop - shot.start
    count = max(1, round(length / PIECE)) if length > LONG * PIECE else 1
    edges = [shot.start + round(length * n / count) for n in range(count + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def _group_by_look(shots: Sequence[slice], looks: Array) -> Array:
    """Return the number of the look of each shot, (C,): average linkage of their median
    thumbnails."""
    if len(shots) < 2:
        return np.zeros(len(shots))
    # cuts fall within seconds
    inner = [slice(s.start + 1, s.stop - 1) if s.stop - s.start > 2 else s for s in shots]
    medians = np.array([np.median(np.nan_to_num(looks[s]), axis=0) for s in inner])  # (C, 192)
    distances = np.array([np.abs(medians - median).sum(axis=1) for median in medians])  # (C, C)
    return average_linkage(distances, ALIKE * medians.shape[1])


def average_linkage(distances: Array, most: float) -> Array:
    """Return the number of the group of each item, (C,): pairs of groups join while their mean
    distance is <= `most`.

    distances: (C, C). In time C squared, by chains of nearest neighbours. Equal to SciPy's
    `linkage` and `fcluster` but for the numbers' order. Source: Murtagh 1983; Lance and Williams
    1967 for the distance of a joined group.
    """
    distances = np.where(np.eye(len(distances), dtype=bool), np.inf, distances)
    groups, sizes, alone = (
        np.arange(len(distances)),
        np.ones(len(distances)),
        set(range(len(distances))),
    )
    chain: list[int] = []
    while len(alone) > 1:
        chain = chain or [min(alone)]
        last = chain[-1]
        nearest = int(distances[last].argmin())
        if len(chain) < 2 or distances[last, chain[-2]] > distances[last, nearest]:
            chain.append(nearest)
            continue
        gone, kept = sorted((chain.pop(), chain.pop()))
        if distances[kept, gone] <= most:
            groups[groups == groups[gone]] = groups[kept]
        joined = (sizes[kept] * distances[kept] + sizes[gone] * distances[gone]) / (
            sizes[kept] + sizes[gone]
        )
        joined[[kept, gone]] = np.inf
        distances[kept], distances[:, kept] = joined, joined
        distances[gone], distances[:, gone] = np.inf, np.inf
        sizes[kept] += sizes[gone]
        alone.remove(gone)
    return groups.astype(np.float64)


def _density(part: float, whole: float, few: float, fraction: float) -> float:
    """Return the log of how densely a part of the video is filled, against the whole; shrunk to 0
    by `few`."""
    return float(np.log((part + few * fraction) / ((whole + few) * fraction)))


def _join_neighbours(
    slices: list[slice], odds: list[float], shots: Sequence[slice], content: Array
) -> tuple[list[slice], list[float]]:
    """Return the units with neighbours across a cut joined where both show doing and the same
    things."""
    cuts = {shot.start for shot in shots}
    out, kept = slices[:1], odds[:1]
    for piece, log_odds in zip(slices[1:], odds[1:], strict=True):
        last = out[-1]
        busy = (
            log_odds > 0
            and kept[-1] > 0
            and piece.start in cuts
            and piece.stop - last.start <= JOINED
        )
        if busy and _cosine(content[last], content[piece]) > JOIN:
            out[-1], kept[-1] = slice(last.start, piece.stop), max(kept[-1], log_odds)
        else:
            out.append(piece)
            kept.append(log_odds)
    return out, kept


def _cosine(a: Array, b: Array) -> float:
    """Return the cosine of the means of two stretches (n, D); 0 where a row is unknown."""
    x, y = a.mean(axis=0), b.mean(axis=0)
    length = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / length if np.isfinite(length) and length > 0 else 0.0


@dataclass(frozen=True)
class ShotAssignment:
    """pairs: (K, U) P(step k is shown in unit u); shown: (K,) P(shown); lag: seconds from words to
    pictures."""

    pairs: Array
    shown: Array
    lag: float


def assign_to_shots(
    prior_at: Callable[[float], Array],
    steps: Sequence[Step],
    evidence: Array,
    base: Array,
    units: ShotUnits,
    settings: GroundSettings,
) -> ShotAssignment:
    """Return P(step k is shown in unit u). prior_at: the prior (K, T) under a lag; evidence: (K, T)
    log; base: (K,) P(shown) before."""
    said = [step.said for step in steps]
    mates = np.array(
        [[bool({*a.sources} & {*b.sources}) and a is not b for b in steps] for a in steps],
        dtype=float,
    )
    ratio = np.exp(CERTAIN * np.tanh(units.odds / CERTAIN))
    worth = ratio / (1 - settings.unwritten + settings.unwritten * ratio)  # (U,)
    lag = _lag(prior_at, units, worth, settings)
    prior = prior_at(lag)
    mass = sum_by_unit(prior, units.slices)
    likely = sum_by_unit(prior * np.exp(evidence), units.slices) / np.maximum(mass, 1e-12)
    weight = (base / (1 - base))[:, None] * move_to_starts(mass, said, units) * likely * worth
    pairs, never = matching_marginals(weight, mates)
    for _ in range(ORDERINGS if settings.order else 0):
        pairs, never = matching_marginals(
            weight * np.exp(-settings.order * expected_inversions(pairs)), mates
        )
    return ShotAssignment(pairs, 1 - never, lag)


def sum_by_unit(rows: Array, slices: Sequence[slice]) -> Array:
    """Return the sums (K, U) of rows (K, T) over units."""
    return np.stack([rows[:, s].sum(axis=1) for s in slices], axis=1)


def _lag(
    prior_at: Callable[[float], Array], units: ShotUnits, worth: Array, settings: GroundSettings
) -> float:
    """Return by how many seconds the pictures follow the words: where the prior meets most doing,
    less its cost."""
    reach = round(settings.lag_reach)
    gains: dict[int, float] = {}
    for lag in range(min(0, 4 - reach), reach + 1):
        met = (sum_by_unit(prior_at(float(lag)), units.slices) * worth).sum(axis=1)
        gains[lag] = (
            float(np.log(met).sum()) - 0.5 * ((lag - settings.lag_usual) / settings.lag_spread) ** 2
        )
    return float(max(gains, key=lambda lag: gains[lag]))


def move_to_starts(mass: Array, said: Sequence[Span | None], units: ShotUnits) -> Array:
    """Return the mass (K, U), that near the words moved to the units that start with them; its sum
    stays."""
    out: Array = mass.copy()
    stops = np.array([s.stop for s in units.slices])
    for row, span in zip(out, said, strict=True):
        if span is None:
            continue
        near = (units.starts - span.end < NEAR) & (span.start - stops < NEAR)
        fit = row * near / (1 + ((units.starts - span.start - START) / AROUND) ** 2)
        if fit.sum() > 0:
            row[near] = fit[near] * row[near].sum() / fit.sum()
    return np.asarray(out)


def expected_inversions(pairs: Array) -> Array:
    """Return (K, U): how many other steps are expected out of order if step k stood at unit u."""
    through = pairs.cumsum(axis=1)  # P(step j stands at u or before)
    before, after = through - pairs, pairs.sum(axis=1, keepdims=True) - through
    # of the steps that come later, those shown before u
    later = before[::-1].cumsum(axis=0)[::-1] - before
    sooner = after.cumsum(axis=0) - after
    return np.asarray(later + sooner)


def matching_marginals(weight: Array, mates: Array) -> tuple[Array, Array]:
    """Return P(pair) (K, U) and P(no unit) (K,) for weights against 1 for "none", one step a unit
    and back.

    mates: (K, K), 1 where two steps may share a unit, 0 on the diagonal.
    """
    free = np.ones_like(weight)  # message of unit u to step k: P(no other step has it)
    for _ in range(ROUNDS):
        total = (weight * free).sum(axis=1, keepdims=True)
        asks = weight / (1 + total - weight * free)
        rivals = np.maximum(asks.sum(axis=0, keepdims=True) - asks - mates @ asks, 0.0)
        free = (free + 1 / (1 + rivals)) / 2
    pull = weight * free
    total = 1 + pull.sum(axis=1, keepdims=True)
    return np.asarray(pull / total), np.asarray(1 / total[:, 0])
