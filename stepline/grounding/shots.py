"""Steps matched to shots: where a video has at least as many shots as steps, each shot holds one
step or none.

**Units and the odds that something is done in them.** A presenter's shot comes again and again
looking alike, with chat spoken over it. Hands at work change some spot of the picture much from
frame to frame, and the words of a step fall on or before them. So, for each shot,

    log odds(doing) = 1.5 S - 0.3 C - 3.3 R + 4.8 M + 1

    S, C   log density of the steps' words, and of chat, in the shots that look like this one, against the whole video
    R      log(1 + how often that look comes again), less that of the median look, where at least as
           much chat as steps falls on it, else 0
    M      log of the change in the most changed spot, against the video's median

The five numbers are a logistic regression over the shots of thirty drawn videos, rounded.
Everything they weigh is measured against the video itself. A unit is a shot, or a piece of a long
one.

**The assignment of steps to units.**

    weight(k, u) = odds(shown_k) mass_k(u) exp(w z_k(u)) r_u / (1 - rho + rho r_u)

mass is of the shown prior, in the seconds of the unit. Among the units near the words, the one that
starts with them gets most. r: odds of doing against not. The denominator is what the picture would
be worth without a step there: something unwritten is done in a fraction rho of the units. Each unit
holds one step or none, each step one unit or none. Belief propagation finds the probability of each
pair (the Bethe form of the monomer-dimer model, one fixed point). Steps of one sentence may share a
unit: "take the whisk and beat the eggs" is one picture. Steps are mostly shown in the order of
saying: every pair out of order costs `order` nats.

Letters: K steps, T seconds, U units, C shots, D width.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.grounding.evidence import known_mean_by_second, mean_by_second
from stepline.grounding.said_to_shown import Array
from stepline.grounding.settings import GroundSettings
from stepline.numeric import cosine
from stepline.records import FeatureSequence, Span, Step, Transcript

if TYPE_CHECKING:
    from stepline.vision import Activity

# weights of the odds of doing, above
STEP_WEIGHT = 1.5
CHAT_WEIGHT = -0.3
RETURN_WEIGHT = -3.3
MOTION_WEIGHT = 4.8
DOING_LOG_ODDS = 1.0
# shrinkage: this number of steps, and of utterances of chat, is spread evenly
STEP_DENSITY_PRIOR = 2.0
UTTERANCE_DENSITY_PRIOR = 1.0
UTTERANCE_SECONDS = 3.0
MAX_LOOK_DIFFERENCE = 0.022  # mean over two thumbnails, 0 to 1, up to which two shots look alike
STILL_CHANGE = 0.02  # change of a spot below which it counts as still
# seconds of an uncut stretch that hold about one step (WhenAct's shown spans: median 8)
PIECE_SECONDS = 7.0
MAX_UNCUT_PIECES = 1.5  # a shot longer than this number of pieces is cut into pieces
# cosine of contrasted features above which two shots next to each other show one action
MIN_JOIN_COSINE = 0.5
MAX_JOINED_SECONDS = 8.0  # of such a pair (WhenAct: the median of shown spans)

# weights of `action_log_odds`, fitted on 31 real clips, each class weighed the same
FACE_WEIGHT = -3.6
SPEECH_WEIGHT = 1.3
ACTION_LOG_ODDS = 1.0
# what is said this number of seconds farther off counts e times less, beyond the last nothing
SPEECH_REACH_SECONDS = 4.0
MAX_SPEECH_SECONDS = 20
FACE_SECONDS = 1  # to either side over which a face is averaged

MESSAGE_ROUNDS = 200  # each half the way; they settle in far fewer
ORDER_ROUNDS = 4  # how often the order is looked at again
MAX_PICTURE_LOG_ODDS = 4.0  # nats that the picture may say for or against doing
# pictures come before the words by at most this number of seconds less than the greatest lag
LEAD_MARGIN_SECONDS = 4
MAX_LAG_SECONDS = 6  # of the steps that a talking head moves
USUAL_LAG_SECONDS = 1.25  # by which pictures follow the words; WhenAct: 1.0
LAG_SPREAD_SECONDS = 2.0  # from video to video; WhenAct: 1.2 under coarse windows
UNWRITTEN_FRACTION = 0.15  # of the shots in which something is done that is not a step
NEAR_SECONDS = 5.0  # around the words in which a shot answers to them
START_SECONDS = 1.0  # after the first word at which such a shot usually starts (WhenAct: 1.0)
START_SPREAD_SECONDS = 2.0  # how much that varies; Cauchy


@dataclass(frozen=True)
class ShotUnits:
    """Units for one step each: seconds, the second at which each starts to the frame, and the log
    odds of doing, (U,)."""

    slices: list[slice]
    starts: Array
    odds: Array


@dataclass(frozen=True)
class AppearanceOdds:
    """By shot, from all shots that look like it: log odds of doing (C,), and what its coming again
    has in them (C,), <= 0."""

    doing: Array
    recurrence: Array


def odds_by_appearance(
    activity: "Activity", shots: Sequence[slice], prior: Array, other_speech: Array
) -> AppearanceOdds:
    """Return the odds of doing by what is said over the shots that look alike.

    prior: (K, T) where steps are shown. other_speech: (T,) seconds of speech of no step.
    """
    count = len(shots)
    seconds = prior.shape[1]
    looks = known_mean_by_second(activity.looks, activity.rate, seconds)
    groups = _group_by_look(shots, looks)
    same = groups[:, None] == groups  # (C, C)
    more = _log_relative_recurrence(groups, same)

    steps = prior.sum(axis=0)
    utterances = other_speech.sum() / UTTERANCE_SECONDS
    doing = np.zeros(count)
    recurrence = np.zeros(count)
    for n in range(count):
        ranges = []
        for m in np.flatnonzero(same[n]).tolist():
            shot = shots[m]
            ranges.append(np.arange(shot.start, shot.stop))
        members = np.concatenate(ranges)
        fraction = len(members) / seconds
        chat = other_speech[members].sum() / UTTERANCE_SECONDS
        log_steps = _density(steps[members].sum(), steps.sum(), STEP_DENSITY_PRIOR, fraction)
        log_chat = _density(chat, utterances, UTTERANCE_DENSITY_PRIOR, fraction)
        excess_chat = log_chat - log_steps
        more_chat = np.clip(1 + 2 * excess_chat, 0, 1)
        recurrence[n] = RETURN_WEIGHT * max(0.0, more[n]) * more_chat
        by_words = STEP_WEIGHT * log_steps + CHAT_WEIGHT * log_chat
        doing[n] = by_words + recurrence[n] + DOING_LOG_ODDS
    return AppearanceOdds(doing, recurrence)


def _log_relative_recurrence(groups: Array, same: npt.NDArray[np.bool_]) -> Array:
    """Return (C,): log of how much more often the look of each shot comes again than the median
    look.

    In a film that repeats itself every look does. groups: (C,) the looks. same: (C, C) shots of one
    look.
    """
    numbers = np.arange(len(groups))
    distance = np.abs(np.subtract.outer(numbers, numbers))
    returns = (same & (distance > 1)).sum(axis=1)  # (C,) how often each look comes again
    by_look = [returns[groups == group].max() for group in np.unique(groups)]
    of_looks = np.sort(by_look)
    median = of_looks[(len(of_looks) - 1) // 2]
    more: Array = np.log1p(returns) - np.log1p(median)
    return more


def _density(part: float, whole: float, spread: float, fraction: float) -> float:
    """Return the log of how densely a part of the video is filled, against the whole, shrunk to 0
    by `spread`."""
    own = part + spread * fraction
    expected = (whole + spread) * fraction
    return float(np.log(own / expected))


def talking_heads(appearance: AppearanceOdds, shots: Sequence[slice]) -> Array:
    """Return (T,): log odds against doing, at most 0, where a look comes again and draws more chat
    than steps.

    Of all that speaks for or against doing, this alone holds on real clips (docs/real_clips.md).
    """
    lengths = [shot.stop - shot.start for shot in shots]
    return np.repeat(appearance.recurrence, lengths)


def step_and_other_speech(
    steps: Sequence[Step], transcript: Transcript | None, seconds: int
) -> tuple[Array, Array]:
    """Return (T,) twice: how long, within each second, a sentence is said that a step rests on, and
    another one.

    Where no step rests on a sentence nothing is known, and both are 0.
    """
    sources = {source for step in steps for source in step.sources}
    step_speech = np.zeros(seconds)
    other_speech = np.zeros(seconds)
    if transcript is None or not sources:
        return step_speech, other_speech
    for n, sentence in enumerate(transcript.sentences):
        row = step_speech if n in sources else other_speech
        first = int(sentence.span.start)
        end = min(seconds, math.ceil(sentence.span.end))
        for t in range(first, end):
            second = Span(float(t), float(t + 1))
            row[t] += second.overlap(sentence.span)
    return step_speech, other_speech


def action_log_odds(presenter: Array, step_speech: Array, other_speech: Array) -> Array:
    """Return (T,): log odds that something is done in a second, against someone talking to the
    camera.

    presenter: (T,) how surely someone looks at the camera, 0 to 1, NaN where no one looked.
    step_speech, other_speech: (T,) seconds of speech that steps rest on, and of other speech.
    AUC of real clips' seconds marked "doing" or "talk", by weights of other makers' clips: .91
    [.81, .98]. The face alone gives .87, the words alone .81.
    """
    faces = np.nan_to_num(presenter)
    width = np.ones(2 * FACE_SECONDS + 1)
    counts = _convolve(np.ones_like(faces), width)
    face = _convolve(faces, width) / counts
    distance = np.abs(np.arange(-MAX_SPEECH_SECONDS, MAX_SPEECH_SECONDS + 1))
    near = np.exp(-distance / SPEECH_REACH_SECONDS)
    near_steps = _convolve(step_speech, near) + 1
    near_others = _convolve(other_speech, near) + 1
    speech = np.log(near_steps / near_others)
    return FACE_WEIGHT * face + SPEECH_WEIGHT * speech + ACTION_LOG_ODDS


def _convolve(row: Array, kernel: Array) -> Array:
    """Return (T,): each second with what is around it, weighed by a kernel of odd length."""
    reach = len(kernel) // 2
    full = np.convolve(row, kernel, "full")
    return np.asarray(full[reach : reach + len(row)])


def shot_units(
    activity: "Activity",
    shots: Sequence[slice],
    appearance: AppearanceOdds,
    features: FeatureSequence | None,
) -> ShotUnits:
    """Return the units of a video."""
    seconds = shots[-1].stop
    changes = known_mean_by_second(activity.peaks[:, None], activity.rate, seconds)
    motion = np.log(changes[:, 0] + STILL_CHANGE)
    is_known = np.isfinite(motion)
    usual = float(np.nanmedian(motion)) if is_known.any() else 0.0
    slices: list[slice] = []
    odds: list[float] = []
    for shot, log_odds in zip(shots, appearance.doing, strict=True):
        for piece in cut_into_pieces(shot):
            moves = motion[piece][is_known[piece]]
            more = float(moves.mean()) - usual if moves.size else 0.0
            slices.append(piece)
            odds.append(log_odds + MOTION_WEIGHT * more)

    # shots next to each other that show one action
    if features is not None:
        content = mean_by_second(features, seconds)  # (T, D)
        has_content = np.isfinite(content).all(axis=1)
        if has_content.any():
            content = content - content[has_content].mean(axis=0)
            slices, odds = _join_neighbours(slices, odds, shots, content)
    starts = _unit_starts(slices, activity.cuts)
    return ShotUnits(slices, starts, np.array(odds))


def _unit_starts(slices: Sequence[slice], shot_cuts: Sequence[float]) -> Array:
    """Return (U,): the second at which each unit starts, to the frame where a cut is next to it."""
    starts = np.array([float(unit.start) for unit in slices])
    if not shot_cuts:
        return starts
    cuts = np.array(shot_cuts)
    for n, start in enumerate(starts.tolist()):
        cut = cuts[np.abs(cuts - start).argmin()]
        if abs(cut - start) <= 1:
            starts[n] = cut
    return starts


def cut_into_pieces(shot: slice) -> list[slice]:
    """Return a shot whole, or a long one in equal parts of about `PIECE_SECONDS`."""
    length = shot.stop - shot.start
    count = round(length / PIECE_SECONDS) if length > MAX_UNCUT_PIECES * PIECE_SECONDS else 1
    edges = [shot.start + round(length * n / count) for n in range(count + 1)]
    return [slice(start, end) for start, end in itertools.pairwise(edges)]


def _group_by_look(shots: Sequence[slice], looks: Array) -> Array:
    """Return the number of the look of each shot, (C,): average linkage of their median
    thumbnails."""
    if len(shots) < 2:
        return np.zeros(len(shots))
    medians = np.zeros((len(shots), looks.shape[1]))  # (C, 192)
    for median, shot in zip(medians, shots, strict=True):
        inner = shot  # cuts fall within seconds
        if shot.stop - shot.start > 2:
            inner = slice(shot.start + 1, shot.stop - 1)
        pictures = np.nan_to_num(looks[inner])
        median[:] = np.median(pictures, axis=0)
    rows = [np.abs(medians - median).sum(axis=1) for median in medians]
    distances = np.array(rows)  # (C, C)
    return average_linkage(distances, MAX_LOOK_DIFFERENCE * medians.shape[1])


def average_linkage(distances: Array, max_distance: float) -> Array:
    """Return the number of the group of each item, (C,): pairs of groups join while their mean
    distance is <= `max_distance`.

    distances: (C, C). In time C squared, by chains of nearest neighbours. Equal to SciPy's
    `linkage` and `fcluster` but for the numbers' order. Source: Murtagh 1983, and Lance and
    Williams 1967 for the distance of a joined group.
    """
    count = len(distances)
    distances = np.where(np.eye(count, dtype=bool), np.inf, distances)
    groups = np.arange(count)
    sizes = np.ones(count)
    active = set(range(count))
    chain: list[int] = []
    while len(active) > 1:
        chain = chain or [min(active)]
        last = chain[-1]
        nearest = int(distances[last].argmin())
        is_mutual = len(chain) >= 2 and distances[last, chain[-2]] <= distances[last, nearest]
        if not is_mutual:
            chain.append(nearest)
            continue
        # two that are nearest to each other: one becomes a part of the other
        absorbed, group = sorted((chain.pop(), chain.pop()))
        if distances[group, absorbed] <= max_distance:
            groups[groups == groups[absorbed]] = groups[group]
        total = sizes[group] + sizes[absorbed]
        weighed = sizes[group] * distances[group] + sizes[absorbed] * distances[absorbed]
        mean = weighed / total
        mean[[group, absorbed]] = np.inf
        distances[group] = mean
        distances[:, group] = mean
        distances[absorbed] = np.inf
        distances[:, absorbed] = np.inf
        sizes[group] = total
        active.remove(absorbed)
    return groups.astype(np.float64)


def _join_neighbours(
    slices: list[slice], odds: list[float], shots: Sequence[slice], content: Array
) -> tuple[list[slice], list[float]]:
    """Return the units with neighbours across a cut joined where both show doing and the same
    things. content: (T, D)."""
    cuts = {shot.start for shot in shots}
    units = slices[:1]
    unit_odds = odds[:1]
    for piece, log_odds in zip(slices[1:], odds[1:], strict=True):
        last = units[-1]
        both_doing = log_odds > 0 and unit_odds[-1] > 0
        is_short = piece.stop - last.start <= MAX_JOINED_SECONDS
        if both_doing and is_short and piece.start in cuts:
            last_content = content[last].mean(axis=0)
            content_similarity = cosine(last_content, content[piece].mean(axis=0))
            if (content_similarity or 0.0) > MIN_JOIN_COSINE:
                units[-1] = slice(last.start, piece.stop)
                unit_odds[-1] = max(unit_odds[-1], log_odds)
                continue
        units.append(piece)
        unit_odds.append(log_odds)
    return units, unit_odds


def assign_to_shots(
    prior_at: Callable[[float], Array],
    steps: Sequence[Step],
    evidence: Array,
    shown_prior: Array,
    units: ShotUnits,
    settings: GroundSettings,
) -> tuple[Array, Array, float]:
    """Match K steps to U units of shots.

    Args:
        prior_at: lag in seconds -> (K, T) P(shown at t | said) under that lag.
        steps: K steps in the order of the text.
        evidence: (K, T) log likelihood ratios of the picture.
        shown_prior: (K,) P(shown) before the evidence.
        units: U units, at least K.
        settings: with the price of another order.

    Returns (K, U) P(step k is shown in unit u), (K,) P(shown), and the lag in seconds from the words
    to the pictures.
    """
    # what a step's words and the pictures say of each unit
    scaled = units.odds / MAX_PICTURE_LOG_ODDS
    ratio = np.exp(MAX_PICTURE_LOG_ODDS * np.tanh(scaled))
    worth = ratio / (1 - UNWRITTEN_FRACTION + UNWRITTEN_FRACTION * ratio)  # (U,)
    lag = _lag(prior_at, units, worth)
    prior = prior_at(lag)
    mass = sum_by_unit(prior, units.slices)
    weighed_mass = sum_by_unit(prior * np.exp(evidence), units.slices)
    likely = weighed_mass / np.maximum(mass, 1e-12)
    odds = (shown_prior / (1 - shown_prior))[:, None]
    said_spans = [step.said for step in steps]
    weight = odds * move_to_starts(mass, said_spans, units) * likely * worth

    # one step a unit, mostly in the order of saying
    same_sentence = _steps_of_one_sentence(steps)
    pairs, never = matching_marginals(weight, same_sentence)
    rounds = ORDER_ROUNDS if settings.order else 0
    for _ in range(rounds):
        in_order = np.exp(-settings.order * expected_inversions(pairs))
        pairs, never = matching_marginals(weight * in_order, same_sentence)
    return pairs, 1 - never, lag


def _steps_of_one_sentence(steps: Sequence[Step]) -> Array:
    """Return (K, K): 1 where two steps rest on a common sentence, 0 on the diagonal."""
    same_sentence = np.zeros((len(steps), len(steps)))
    sources = [set(step.sources) for step in steps]
    for a, own in enumerate(sources):
        for b, other in enumerate(sources):
            if a != b and not own.isdisjoint(other):
                same_sentence[a, b] = 1.0
    return same_sentence


def sum_by_unit(rows: Array, slices: Sequence[slice]) -> Array:
    """Return the sums (K, U) of rows (K, T) over units."""
    return np.stack([rows[:, unit].sum(axis=1) for unit in slices], axis=1)


def _lag(prior_at: Callable[[float], Array], units: ShotUnits, worth: Array) -> float:
    """Return by how many seconds the pictures follow the words: where the prior meets most doing,
    less its cost."""
    earliest = min(0, LEAD_MARGIN_SECONDS - MAX_LAG_SECONDS)
    gains: dict[int, float] = {}
    for lag in range(earliest, MAX_LAG_SECONDS + 1):
        mass = sum_by_unit(prior_at(float(lag)), units.slices)
        doing = (mass * worth).sum(axis=1)
        unusual = (lag - USUAL_LAG_SECONDS) / LAG_SPREAD_SECONDS
        gain = float(np.log(doing).sum())
        gains[lag] = gain - 0.5 * unusual**2
    return float(max(gains, key=lambda lag: gains[lag]))


def move_to_starts(mass: Array, spans: Sequence[Span | None], units: ShotUnits) -> Array:
    """Return the mass (K, U), that near the words (spans) moved to the units that start with them.
    Its sum stays."""
    moved: Array = mass.copy()
    stops = np.array([unit.stop for unit in units.slices])
    for row, span in zip(moved, spans, strict=True):
        if span is None:
            continue
        starts_near = units.starts - span.end < NEAR_SECONDS
        near = starts_near & (span.start - stops < NEAR_SECONDS)
        late = (units.starts - span.start - START_SECONDS) / START_SPREAD_SECONDS
        fit = row * near / (1 + late**2)
        if fit.sum() > 0:
            near_mass = row[near].sum()
            row[near] = fit[near] * near_mass / fit.sum()
    return moved


def expected_inversions(pairs: Array) -> Array:
    """Return (K, U): how many other steps are expected out of order if step k were at unit u."""
    through = pairs.cumsum(axis=1)  # P(step j is at u or before)
    before = through - pairs
    after = pairs.sum(axis=1, keepdims=True) - through
    # of the steps that come later, those shown before u
    from_here = before[::-1].cumsum(axis=0)[::-1]
    later = from_here - before
    sooner = after.cumsum(axis=0) - after
    return np.asarray(later + sooner)


def matching_marginals(weight: Array, same_sentence: Array) -> tuple[Array, Array]:
    """Return P(pair) (K, U) and P(no unit) (K,) for weights against 1 for "none", one step a unit
    and back.

    same_sentence: (K, K), 1 where two steps may share a unit, 0 on the diagonal.
    """
    free = np.ones_like(weight)  # message of unit u to step k: P(no other step has it)
    for _ in range(MESSAGE_ROUNDS):
        pull = weight * free
        total = pull.sum(axis=1, keepdims=True)
        claims = weight / (1 + total - pull)
        all_claims = claims.sum(axis=0, keepdims=True)
        rivals = np.maximum(all_claims - claims - same_sentence @ claims, 0.0)
        free = (free + 1 / (1 + rivals)) / 2
    pull = weight * free
    total = 1 + pull.sum(axis=1, keepdims=True)
    none = 1 / total[:, 0]
    return np.asarray(pull / total), np.asarray(none)
