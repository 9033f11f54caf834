"""Matching of steps to shots, in a video with at least as many shots as steps.

**Units, and the odds that something is done in them.** A presenter's shots look alike and recur, with
chat (speech of no step) over them. Working hands change some spot of the picture much from frame to
frame, and the words of a step come with them or before. So, for each shot,

    log odds(doing) = 1.5 S - 0.3 C - 3.3 R + 4.8 M + 1

    S, C   log density of the steps' words, and of chat, in the shots that look alike, against the whole video
    R      log(1 + how often that look recurs), less that of the median look, where it has at least as
           much chat as steps, else 0
    M      log of the change in the most changed spot, against the video's median

The five numbers are a rounded logistic regression over the shots of thirty drawn videos. A unit is a
shot, or a part of a long shot.

**The assignment of steps to units.**

    weight(k, u) = odds(shown_k) mass_k(u) exp(w z_k(u)) r_u / (1 - rho + rho r_u)

mass is the shown prior summed over the seconds of the unit. Most of the mass near the words goes to
the unit that starts with them. r is the odds of doing. The denominator is the odds without a step: in
a fraction rho of the units something is done that is no step. Each unit has at most one step, and each
step at most one unit. Belief propagation finds the probability of each pair (the Bethe form of the
monomer-dimer model, one fixed point). Steps of one sentence may share a unit, such as "take the whisk
and beat the eggs". Every pair of steps that is shown in another order than said costs `order` nats.

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

# weights of the log odds of doing, above
STEP_WEIGHT = 1.5
CHAT_WEIGHT = -0.3
RECURRENCE_WEIGHT = -3.3
MOTION_WEIGHT = 4.8
DOING_LOG_ODDS = 1.0
# pseudo-counts for shrinkage: steps, and utterances of chat, that are spread evenly
STEP_DENSITY_PRIOR = 2.0
UTTERANCE_DENSITY_PRIOR = 1.0
UTTERANCE_SECONDS = 3.0
MAX_LOOK_DIFFERENCE = 0.022  # mean difference (0 to 1) of thumbnails of shots that look alike
STILL_CHANGE = 0.02  # added to the change of a spot before the logarithm
# seconds of a long shot that hold about one step (WhenAct's shown spans: median 8)
PART_SECONDS = 7.0
MAX_WHOLE_PARTS = 1.5  # a shot longer than this number of parts is split
# cosine of centred features, above which two adjacent shots show one action
MIN_JOIN_COSINE = 0.5
MAX_JOINED_SECONDS = 8.0  # of such a pair (WhenAct: the median of shown spans)

# weights of `action_log_odds`, fitted on 31 real clips, each class weighed the same
FACE_WEIGHT = -3.6
SPEECH_WEIGHT = 1.3
ACTION_LOG_ODDS = 1.0
# decay of the influence of speech with its distance in seconds, and the largest distance
SPEECH_REACH_SECONDS = 4.0
MAX_SPEECH_SECONDS = 20
FACE_SECONDS = 1  # before and after, over which faces are averaged

MESSAGE_ROUNDS = 200  # damped iterations of belief propagation; far fewer suffice
ORDER_ROUNDS = 4  # iterations of the cost of another order
MAX_PICTURE_LOG_ODDS = 4.0  # limit of the log odds of doing, in nats
# the smallest lag is LEAD_MARGIN_SECONDS - MAX_LAG_SECONDS, 0 at most
LEAD_MARGIN_SECONDS = 4
MAX_LAG_SECONDS = 6  # from words to pictures
USUAL_LAG_SECONDS = 1.25  # by which pictures follow the words; WhenAct: 1.0
LAG_SPREAD_SECONDS = 2.0  # standard deviation over videos; WhenAct: 1.2 under coarse windows
UNWRITTEN_FRACTION = 0.15  # of the units in which something is done that is no step
NEAR_SECONDS = 5.0  # between words and a shot that may show them
START_SECONDS = 1.0  # from the first word to the usual start of its shot (WhenAct: 1.0)
START_SPREAD_SECONDS = 2.0  # scale of this delay's Cauchy distribution


@dataclass(frozen=True)
class ShotUnits:
    """The U units of a video to which steps are assigned: shots, or parts of about 7 s of long
    shots. Each unit shows at most one step.

    Attributes:
        slices: slice of whole seconds of each unit.
        starts: (U,) start of each unit in seconds, exact if a cut is within a second of it.
        odds: (U,) log odds that the unit shows someone doing something, not only talking.
    """

    slices: list[slice]
    starts: Array
    odds: Array


@dataclass(frozen=True)
class ActionOdds:
    """Log odds that something is being done in each of C shots, from the speech over all shots that look
    alike.

    Attributes:
        log_odds: (C,) log odds(doing), without the motion M, as the module's docstring has them.
        recurrence: (C,) the part of `log_odds` for shots that recur with much chat, <= 0.
    """

    log_odds: Array
    recurrence: Array


def action_odds_by_appearance(
    activity: "Activity", shots: Sequence[slice], prior: Array, other_speech: Array
) -> ActionOdds:
    """Return the log odds that something is being done in each of C shots.

    They come from the speech over all shots that look alike.

    Args:
        activity: motion, cuts and thumbnails of the video.
        shots: C slices of whole seconds.
        prior: (K, T) P(step k is shown in second t | where it is said).
        other_speech: (T,) seconds of speech in each second that no step cites.
    """
    seconds = prior.shape[1]
    looks = known_mean_by_second(activity.thumbnails, activity.rate, seconds)
    groups = _group_by_appearance(shots, looks)
    looks_alike = groups[:, None] == groups  # (C, C)
    log_recurrence = _log_relative_recurrence(groups, looks_alike)

    steps = prior.sum(axis=0)
    utterances = other_speech.sum() / UTTERANCE_SECONDS
    lengths = [shot.stop - shot.start for shot in shots]
    log_odds = np.zeros(len(shots))
    recurrence = np.zeros(len(shots))
    for n, is_alike in enumerate(looks_alike):
        members = np.repeat(is_alike, lengths)  # (T,)
        fraction = int(members.sum()) / seconds
        chat = other_speech[members].sum() / UTTERANCE_SECONDS
        log_steps = _log_density(steps[members].sum(), steps.sum(), STEP_DENSITY_PRIOR, fraction)
        log_chat = _log_density(chat, utterances, UTTERANCE_DENSITY_PRIOR, fraction)
        excess_chat = log_chat - log_steps
        chat_factor = np.clip(1 + 2 * excess_chat, 0, 1)
        recurrence[n] = RECURRENCE_WEIGHT * max(0.0, log_recurrence[n]) * chat_factor
        by_words = STEP_WEIGHT * log_steps + CHAT_WEIGHT * log_chat
        log_odds[n] = by_words + recurrence[n] + DOING_LOG_ODDS
    return ActionOdds(log_odds, recurrence)


def _log_relative_recurrence(groups: Array, looks_alike: npt.NDArray[np.bool_]) -> Array:
    """Return how often shots that look like each of C shots recur: the log of the number of
    recurrences, less that of the median look, (C,).

    Args:
        groups: (C,) number of each shot's look.
        looks_alike: (C, C) True if two shots have the same look.
    """
    numbers = np.arange(len(groups))
    distance = np.abs(np.subtract.outer(numbers, numbers))
    recurrences = (looks_alike & (distance > 1)).sum(axis=1)  # (C,) how often each look recurs
    by_look = np.sort([recurrences[groups == group].max() for group in np.unique(groups)])
    median = by_look[(len(by_look) - 1) // 2]
    return np.asarray(np.log1p(recurrences) - np.log1p(median))


def _log_density(part: float, whole: float, pseudo_count: float, fraction: float) -> float:
    """Return the log of a count per second in a part of the video, relative to the whole video.

    Args:
        part: count in the part.
        whole: count in the whole video.
        pseudo_count: count that is spread evenly over the video. It shrinks the result to 0.
        fraction: fraction of the video's seconds that are in the part.
    """
    expected = (whole + pseudo_count) * fraction
    return float(np.log((part + pseudo_count * fraction) / expected))


def talking_head_log_odds(appearance: ActionOdds, shots: Sequence[slice]) -> Array:
    """Return the log odds of an action against a talking head in each of T seconds, (T,), <= 0.

    It is below 0 in shots that look alike, recur often and have much speech that no step cites, as
    shots of a presenter do. Elsewhere it is 0.

    Args:
        appearance: log odds that something is being done in each of C shots.
        shots: C slices of whole seconds, which cover the T seconds.
    """
    lengths = [shot.stop - shot.start for shot in shots]
    return np.repeat(appearance.recurrence, lengths)


def step_and_other_speech(
    steps: Sequence[Step], transcript: Transcript | None, seconds: int
) -> tuple[Array, Array]:
    """Return the seconds of speech in each second, (T,) twice: cited by steps, and not cited.

    Both are 0 everywhere if no step cites a sentence.

    Args:
        steps: steps whose `sources` are indices of sentences.
        transcript: the sentences, None if unknown.
        seconds: T.
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
            row[t] += Span(float(t), float(t + 1)).overlap(sentence.span)
    return step_speech, other_speech


def action_log_odds(presenter: Array, step_speech: Array, other_speech: Array) -> Array:
    """Return the log odds that something is being done in a second, against talk to the camera, (T,).

    AUC over seconds of real clips labelled "doing" or "talk", with makers left out: .91 [.81, .98].
    Faces only: .87. Words only: .81.

    Args:
        presenter: (T,) confidence of a face that looks at the camera, 0 to 1, NaN if unknown.
        step_speech: (T,) seconds of speech in each second that steps cite.
        other_speech: (T,) seconds of other speech in each second.
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
    """Return the convolution of a row (T,) with a kernel of odd length, centred, (T,)."""
    reach = len(kernel) // 2
    full = np.convolve(row, kernel, "full")
    return np.asarray(full[reach : reach + len(row)])


def shot_units(
    activity: "Activity",
    shots: Sequence[slice],
    appearance: ActionOdds,
    features: FeatureSequence | None,
) -> ShotUnits:
    """Return the units of a video: its shots, with long ones split and short similar ones joined.

    Args:
        activity: motion, cuts and thumbnails of the video.
        shots: C slices of whole seconds.
        appearance: log odds that something is being done in each of the C shots.
        features: feature rows of the pictures, by which similar shots are joined. None: none are.
    """
    seconds = shots[-1].stop
    changes = known_mean_by_second(activity.peak_changes[:, None], activity.rate, seconds)
    motion = np.log(changes[:, 0] + STILL_CHANGE)
    is_known = np.isfinite(motion)
    usual = float(np.nanmedian(motion)) if is_known.any() else 0.0
    slices: list[slice] = []
    odds: list[float] = []
    for shot, log_odds in zip(shots, appearance.log_odds, strict=True):
        for part in split_shot(shot):
            known = motion[part][is_known[part]]
            relative_motion = float(known.mean()) - usual if known.size else 0.0
            slices.append(part)
            odds.append(log_odds + MOTION_WEIGHT * relative_motion)

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
    """Return the start of each unit in seconds, (U,): the nearest cut within a second, if any.

    Args:
        slices: slice of whole seconds of each unit.
        shot_cuts: exact times of cuts in seconds.
    """
    starts = np.array([float(unit.start) for unit in slices])
    if not shot_cuts:
        return starts
    cuts = np.array(shot_cuts)
    for n, start in enumerate(starts.tolist()):
        cut = cuts[np.abs(cuts - start).argmin()]
        if abs(cut - start) <= 1:
            starts[n] = cut
    return starts


def split_shot(shot: slice) -> list[slice]:
    """Return the parts of a shot: itself up to 10.5 s, else equal parts of about 7 s.

    shot: slice of whole seconds.
    """
    length = shot.stop - shot.start
    count = round(length / PART_SECONDS) if length > MAX_WHOLE_PARTS * PART_SECONDS else 1
    edges = [shot.start + round(length * n / count) for n in range(count + 1)]
    return [slice(start, end) for start, end in itertools.pairwise(edges)]


def _group_by_appearance(shots: Sequence[slice], looks: Array) -> Array:
    """Return a group number for each of C shots, (C,). Shots that look alike share their number.

    Args:
        shots: C slices of whole seconds.
        looks: (T, 192) thumbnail of each second, NaN if unknown.
    """
    if len(shots) < 2:
        return np.zeros(len(shots))
    medians = np.zeros((len(shots), looks.shape[1]))  # (C, 192)
    for median, shot in zip(medians, shots, strict=True):
        inner = shot
        if shot.stop - shot.start > 2:  # without the seconds of the cuts
            inner = slice(shot.start + 1, shot.stop - 1)
        median[:] = np.median(np.nan_to_num(looks[inner]), axis=0)
    distances = np.array([np.abs(medians - median).sum(axis=1) for median in medians])  # (C, C)
    return average_linkage(distances, MAX_LOOK_DIFFERENCE * medians.shape[1])


def average_linkage(distances: Array, max_distance: float) -> Array:
    """Return the group number of each of C items, (C,), by average linkage (UPGMA).

    The groups are those of SciPy's `linkage` and `fcluster`. The numbers have another order. Chains of
    nearest neighbours take C squared steps. Sources: Murtagh 1983, Lance and Williams 1967.

    Args:
        distances: (C, C) symmetric distances of the items.
        max_distance: largest mean distance at which two groups are joined.
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
        # two groups that are nearest to each other are joined
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
    slices: list[slice], odds: list[float], shots: Sequence[slice], features: Array
) -> tuple[list[slice], list[float]]:
    """Return the slices and log odds of the units, with adjacent shots of one action joined.

    Two shots are joined if something is being done in both, together they are short, and they look alike.

    Args:
        slices: slice of whole seconds of each unit.
        odds: log odds that something is being done in each unit.
        shots: slices of whole seconds of the shots.
        features: (T, D) centred feature of each second.
    """
    cuts = {shot.start for shot in shots}
    units = slices[:1]
    unit_odds = odds[:1]
    for unit, log_odds in zip(slices[1:], odds[1:], strict=True):
        last = units[-1]
        both_doing = log_odds > 0 and unit_odds[-1] > 0
        is_short = unit.stop - last.start <= MAX_JOINED_SECONDS
        if both_doing and is_short and unit.start in cuts:
            last_content = features[last].mean(axis=0)
            content_similarity = cosine(last_content, features[unit].mean(axis=0))
            if (content_similarity or 0.0) > MIN_JOIN_COSINE:
                units[-1] = slice(last.start, unit.stop)
                unit_odds[-1] = max(unit_odds[-1], log_odds)
                continue
        units.append(unit)
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
    """Assign K steps to U units of the video, and return three values: P(step k is shown in unit
    u), (K, U), P(shown), (K,), and the lag.

    The lag is the number of seconds by which the video shows steps later than the speech says them.

    Args:
        prior_at: function from a lag in seconds to (K, T) P(step k is shown in second t), by where
            the speech says it.
        steps: K steps in the order of the text.
        evidence: (K, T) log likelihood ratios of step k being shown in second t, by the frames.
        shown_prior: (K,) P(shown) before the evidence.
        units: U units, at least K.
        settings: settings of grounding, with the cost of another order.
    """
    # the weight of each pair, by words and pictures
    scaled = units.odds / MAX_PICTURE_LOG_ODDS
    ratio = np.exp(MAX_PICTURE_LOG_ODDS * np.tanh(scaled))
    doing_weight = ratio / (1 - UNWRITTEN_FRACTION + UNWRITTEN_FRACTION * ratio)  # (U,)
    lag = _best_lag(prior_at, units, doing_weight)
    prior = prior_at(lag)
    mass = sum_by_unit(prior, units.slices)
    weighed_mass = sum_by_unit(prior * np.exp(evidence), units.slices)
    likelihood = weighed_mass / np.maximum(mass, 1e-12)
    odds = (shown_prior / (1 - shown_prior))[:, None]
    said_spans = [step.said for step in steps]
    weight = odds * move_to_starts(mass, said_spans, units) * likelihood * doing_weight

    # at most one step per unit, mostly in the order of the text
    same_sentence = _steps_of_one_sentence(steps)
    pairs, p_none = matching_marginals(weight, same_sentence)
    rounds = ORDER_ROUNDS if settings.order else 0
    for _ in range(rounds):
        in_order = np.exp(-settings.order * expected_inversions(pairs))
        pairs, p_none = matching_marginals(weight * in_order, same_sentence)
    return pairs, 1 - p_none, lag


def _steps_of_one_sentence(steps: Sequence[Step]) -> Array:
    """Return (K, K): 1 if two different steps cite a common sentence, else 0."""
    same_sentence = np.zeros((len(steps), len(steps)))
    sources = [set(step.sources) for step in steps]
    for a, b in itertools.permutations(range(len(steps)), 2):
        same_sentence[a, b] = not sources[a].isdisjoint(sources[b])
    return same_sentence


def sum_by_unit(rows: Array, slices: Sequence[slice]) -> Array:
    """Return the sums of rows (K, T) over the seconds of each of U units, (K, U).

    Args:
        rows: (K, T), one column per second.
        slices: slice of whole seconds of each unit.
    """
    return np.stack([rows[:, unit].sum(axis=1) for unit in slices], axis=1)


def _best_lag(
    prior_at: Callable[[float], Array], shot_units: ShotUnits, doing_weight: Array
) -> float:
    """Return the most likely number of seconds by which the video shows steps later than the speech
    says them.

    Args:
        prior_at: function from a lag in seconds to (K, T) P(step k is shown in second t), by where
            the speech says it.
        shot_units: U units of the video.
        doing_weight: (U,) likelihood ratio of each unit's frames: a step is shown, against none.
    """
    earliest = min(0, LEAD_MARGIN_SECONDS - MAX_LAG_SECONDS)
    gains: dict[int, float] = {}
    for lag in range(earliest, MAX_LAG_SECONDS + 1):
        mass = sum_by_unit(prior_at(float(lag)), shot_units.slices)
        doing = (mass * doing_weight).sum(axis=1)
        deviation = (lag - USUAL_LAG_SECONDS) / LAG_SPREAD_SECONDS
        gain = float(np.log(doing).sum())
        gains[lag] = gain - 0.5 * deviation**2
    return float(max(gains, key=lambda lag: gains[lag]))


def move_to_starts(mass: Array, spans: Sequence[Span | None], units: ShotUnits) -> Array:
    """Return the prior (K, U) with more mass in units that start when the step is said.

    Mass moves only between units near the words. The sum of each row stays the same.

    Args:
        mass: (K, U) P(step k is shown in unit u | said).
        spans: span in which each step is said, None if it is not.
        units: U units.
    """
    moved: Array = mass.copy()
    stops = np.array([unit.stop for unit in units.slices])
    for row, span in zip(moved, spans, strict=True):
        if span is None:
            continue
        near = units.starts - span.end < NEAR_SECONDS
        near &= span.start - stops < NEAR_SECONDS
        late = (units.starts - span.start - START_SECONDS) / START_SPREAD_SECONDS
        fit = row * near / (1 + late**2)
        if fit.sum() > 0:
            near_mass = row[near].sum()
            row[near] = fit[near] * near_mass / fit.sum()
    return moved


def expected_inversions(pairs: Array) -> Array:
    """Return the expected number of steps that would be out of order if step k were in unit u, (K, U).

    pairs: (K, U) P(step k is shown in unit u).
    """
    through = pairs.cumsum(axis=1)  # P(step j is at u or before)
    before = through - pairs
    after = pairs.sum(axis=1, keepdims=True) - through
    # later steps that are shown before u
    from_here = before[::-1].cumsum(axis=0)[::-1]
    later = from_here - before
    sooner = after.cumsum(axis=0) - after
    return np.asarray(later + sooner)


def matching_marginals(weight: Array, same_sentence: Array) -> tuple[Array, Array]:
    """Return P(step k is matched to unit u), (K, U), and P(step k is matched to no unit), (K,).

    Args:
        weight: (K, U) weight of each pair, relative to weight 1 for no unit.
        same_sentence: (K, K) 1 if two different steps may share a unit, else 0.
    """
    free = np.ones_like(weight)  # message from unit u to step k: P(no other step has the unit)
    for _ in range(MESSAGE_ROUNDS):
        pull = weight * free
        total = pull.sum(axis=1, keepdims=True)
        claims = weight / (1 + total - pull)
        all_claims = claims.sum(axis=0, keepdims=True)
        rivals = np.maximum(all_claims - claims - same_sentence @ claims, 0.0)
        free = (free + 1 / (1 + rivals)) / 2
    pull = weight * free
    total = 1 + pull.sum(axis=1, keepdims=True)
    return np.asarray(pull / total), np.asarray(1 / total[:, 0])
