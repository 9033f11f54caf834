"""Joint inference of where steps are shown, and of the reliability of a model that answers questions.

A step is shown in one of M segments or in none. A model is asked in which of some segments it is shown,
or in none. Its answer is right with probability r, its reliability. Otherwise it guesses:

    P(a | truth, r, g) = r [a is right] + (1 - r) q_g(a)

q_g is the distribution of a guess, by one of a few behaviours: uniform, never "none", always "none",
always the same letter, or where another, the previous or the next step is shown. A repeated question
counts `REPEAT_WEIGHT` of a first one, since a model repeats its errors.

r and g are unknown, and the same for all questions of a video. Their posterior is

    P(r, g | answers) ~ P(r) P(g) prod_k sum_truth p_k(truth) prod_i P(a_ki | truth, r, g)

Steps that speech and pictures place with confidence reveal a model that answers at random. Its answers
then have no weight. The confidence of the prior is also uncertain, so the prior is raised to each of a
few powers, which the answers weigh.

A few answers hardly distinguish a good model with a poor prior from a poor model with a good prior. So
a step moves only if all plausible hypotheses move it (a Gamma-minimax decision). A hypothesis is a
power and a reliability. The plausible ones are those of the highest-density region. Questions are also
chosen by their gain under the most adverse hypothesis. Source: Dawid and Skene 1979, with the
grounder's posterior in place of other annotators.
Letters: K steps, M segments, N powers, R reliabilities, G behaviours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.grounding.said_to_shown import Array
from stepline.numeric import sum_to_one

RELIABILITY_GRID = np.linspace(0.0, 0.98, 50)  # (R,), no model is certainly right
# P(g) of the behaviours of a guess: uniform, never "none", always "none",
UNIFORM_PROBABILITY = 0.3
NEVER_NONE_PROBABILITY = 0.15
ALWAYS_NONE_PROBABILITY = 0.1
# where another, the previous or the next step is shown (sum of the three),
OTHER_STEP_PROBABILITY = 0.25
SAME_LETTER_PROBABILITY = 0.2  # and always the same letter (sum over the letters)
# factor of the log likelihood of the answer to a repeated question
REPEAT_WEIGHT = 0.5
# of the prior, whose confidence differs between videos
PRIOR_POWERS = (1.0, 1.5, 2.5, 4.0)
USELESS_PRIOR = 0.5  # P(the model's answers are useless) before any answer
MAX_USELESS_RELIABILITY = 0.1  # up to which the model is useless
# of the hypotheses that must agree before a step moves
PLAUSIBLE_PROBABILITY = 0.9
# sum over segments of the smallest P(segment)
MIN_SEGMENTS_PROBABILITY = 1e-3
SLIP_PROBABILITY = 0.01  # of a uniform guess within any behaviour


@dataclass(frozen=True)
class ChoiceAnswer:
    """The answer to a multiple-choice question about one step.

    Attributes:
        step: index of the step.
        choices: indices of the segments, in the order of the pictures.
        answer: index into `choices` of the chosen segment, None for "none".
        is_repeat: whether an earlier question about the step had mostly the same segments.
    """

    step: int
    choices: tuple[int, ...]
    answer: int | None
    is_repeat: bool = False


@dataclass(frozen=True)
class AnswerInference:
    """Where the steps are shown and how reliable the model is, inferred from its answers.

    Attributes:
        segments: (K, M + 1) P(step k is shown in segment m | answers). Last column: P(not shown).
        agreed: (K, M + 1) as `segments` if all plausible hypotheses agree on a change, else the prior.
        adverse: (K, M + 1) as `segments`, under the plausible hypothesis most adverse to a change.
        reliability: (R,) P(reliability r | answers), for each r of RELIABILITY_GRID.
    """

    segments: Array
    agreed: Array
    adverse: Array
    reliability: Array

    @property
    def mean_reliability(self) -> float:
        """Posterior mean of the reliability, P(an answer is not a guess)."""
        return float(self.reliability @ RELIABILITY_GRID)

    @property
    def useless_probability(self) -> float:
        """P(the model is useless), that is, its reliability is at most 0.1."""
        is_useless = RELIABILITY_GRID <= MAX_USELESS_RELIABILITY
        return float(self.reliability[is_useless].sum())

    def interval(self, mass: float = 0.9) -> tuple[float, float]:
        """Return the central credible interval (low, high) of the reliability, with probability `mass`."""
        cumulated = self.reliability.cumsum()
        low_tail = (1 - mass) / 2
        low, high = np.searchsorted(cumulated, [low_tail, (1 + mass) / 2])
        high = min(high, len(RELIABILITY_GRID) - 1)
        return float(RELIABILITY_GRID[low]), float(RELIABILITY_GRID[high])


def infer(
    prior: Array, choice_answers: Sequence[ChoiceAnswer], right_count: float, wrong_count: float
) -> AnswerInference:
    """Return where the steps are shown and how reliable the model is, given its answers.

    Args:
        prior: (K, M + 1) P(step k is shown in segment m). Last column: P(not shown).
        choice_answers: the answers of the model.
        right_count: earlier right answers, a parameter of the Beta prior of the reliability.
        wrong_count: earlier wrong answers, the other parameter.
    """
    # P(r): the Beta prior on the grid, and P(useless)
    reliability_prior = (RELIABILITY_GRID + 0.01) ** (right_count - 1)  # (R,)
    reliability_prior = reliability_prior * (1.0 - RELIABILITY_GRID) ** (wrong_count - 1)
    reliability_prior = (1 - USELESS_PRIOR) * reliability_prior / reliability_prior.sum()
    reliability_prior[0] += USELESS_PRIOR

    # how likely each power and reliability is
    priors = [sharpen(prior, power) for power in PRIOR_POWERS]
    inferred = [_infer_with_prior(sharp, choice_answers, reliability_prior) for sharp in priors]
    log_weight = np.stack([log_answers for log_answers, _ in inferred])  # (N, R)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()  # P(power, r | answers)
    plausible = highest_density(weight, PLAUSIBLE_PROBABILITY)  # (N, R)

    # the segments of the steps, over all hypotheses
    segments = np.einsum("nr,nkm->km", weight, np.stack(priors))
    agreed = prior.copy()
    adverse = segments.copy()
    for k in sorted({choice_answer.step for choice_answer in choice_answers}):
        rows = np.stack([posteriors[k] for _, posteriors in inferred])  # (N, R, M + 1)
        segments[k] = np.einsum("nr,nrm->m", weight, rows)
        agreed[k], adverse[k] = _agreed_row(prior[k], segments[k], rows[plausible])
    return AnswerInference(segments, agreed, adverse, weight.sum(axis=0))


def highest_density(weight: Array, mass: float) -> npt.NDArray[np.bool_]:
    """Return a mask of the highest-density region, in the shape of the weights.

    It contains the fewest entries, the most likely ones, whose sum is `mass` of the total.

    Args:
        weight: weights of any shape, >= 0.
        mass: fraction of the total weight, from 0 to 1.
    """
    order = np.argsort(-weight, axis=None, kind="stable")
    cumulated = weight.ravel()[order].cumsum()
    count = int(np.searchsorted(cumulated, mass * weight.sum())) + 1
    mask = np.zeros(weight.size, dtype=bool)
    mask[order[:count]] = True
    return mask.reshape(weight.shape)


def _agreed_row(before: Array, after: Array, hypotheses: Array) -> tuple[Array, Array]:
    """Return the probabilities of one step on which all hypotheses agree, and the most adverse ones.

    Both are (M + 1,), with P(not shown) last.

    Args:
        before: (M + 1,) prior of the step.
        after: (M + 1,) posterior of the step, averaged over the hypotheses.
        hypotheses: (N, M + 1) posterior of the step under each of N plausible hypotheses.
    """
    # the segment
    segments = before[:-1]
    old = int(segments.argmax())
    new = int(after[:-1].argmax())
    lead = hypotheses[:, old]
    if new != old:
        lead = hypotheses[:, new] - hypotheses[:, old]
        if (lead > 0).all():
            segments = after[:-1]

    # whether it is shown at all
    not_shown = before[-1]
    change = hypotheses[:, -1] - not_shown
    if (change > 0).all() or (change < 0).all():
        not_shown = after[-1]
    in_segments = segments / segments.sum() * (1 - not_shown)
    return np.append(in_segments, not_shown), hypotheses[lead.argmin()]


def sharpen(prior: Array, power: float) -> Array:
    """Return probabilities (K, M + 1) with P(segment | shown) raised to a power and normalised.

    The last column, P(not shown), stays the same.

    Args:
        prior: (K, M + 1) P(step k is shown in segment m). Last column: P(not shown).
        power: exponent. Above 1 it makes the prior more confident.
    """
    not_shown = prior[:, -1:]
    return np.concatenate([sum_to_one(prior[:, :-1] ** power) * (1 - not_shown), not_shown], axis=1)


def _infer_with_prior(
    prior: Array, choice_answers: Sequence[ChoiceAnswer], reliability_prior: Array
) -> tuple[Array, dict[int, Array]]:
    """Return log P(r, answers), (R,), and P(segment | r, answers), (R, M + 1), of each asked step.

    The second is a dict from the index of the step.

    Args:
        prior: (K, M + 1) P(step k is shown in segment m), already raised to a power.
        choice_answers: the answers of the model.
        reliability_prior: (R,) prior P(r) of the reliabilities in RELIABILITY_GRID.
    """
    # P(r) P(g) before any answer
    letters = max((len(choice_answer.choices) for choice_answer in choice_answers), default=1)
    behaviours = [UNIFORM_PROBABILITY, NEVER_NONE_PROBABILITY, ALWAYS_NONE_PROBABILITY]
    behaviours += [OTHER_STEP_PROBABILITY / 3] * 3
    behaviours += [SAME_LETTER_PROBABILITY / letters] * letters  # (G,)
    log_joint = np.log(np.outer(reliability_prior, behaviours))  # (R, G)

    # log P(a step's answers | truth, r, g), (M + 1, R, G)
    shape = (prior.shape[1], *log_joint.shape)
    log_truths: dict[int, Array] = {}
    for choice_answer in choice_answers:
        log_truth = log_truths.setdefault(choice_answer.step, np.zeros(shape))
        weight = REPEAT_WEIGHT if choice_answer.is_repeat else 1.0
        log_truth += weight * np.log(answer_likelihood(choice_answer, prior, letters))

    # log P(a step's answers | r, g), (R, G), and of all steps
    log_steps = {}
    for k, log_truth in log_truths.items():
        log_steps[k] = np.log(np.einsum("p,prg->rg", prior[k], np.exp(log_truth)))
        log_joint = log_joint + log_steps[k]
    max_log = log_joint.max(axis=1, keepdims=True)  # (R, 1)
    joint = np.exp(log_joint - max_log)
    p_behaviour = sum_to_one(joint)  # P(g | r, answers)

    # the segment of each asked step, over all behaviours
    posteriors = {}
    for k, log_truth in log_truths.items():
        truth = np.exp(log_truth - log_steps[k])
        posteriors[k] = prior[k] * np.einsum("rg,prg->rp", p_behaviour, truth)
    return max_log[:, 0] + np.log(joint.sum(axis=1)), posteriors


def answer_likelihood(choice_answer: ChoiceAnswer, prior: Array, letters: int) -> Array:
    """Return P(answer | truth, r, g), (M + 1, R, G).

    The truth is one of M segments or "not shown", r a reliability, and g one of G behaviours of a guess.

    Args:
        choice_answer: the answer to a question about one step.
        prior: (K, M + 1) P(step k is shown in segment m), for guesses of the segments of other steps.
        letters: largest number of choices of any question.
    """
    answer = choice_answer.answer
    choices = list(choice_answer.choices)
    count = len(choices)
    uniform = 1 / (count + 1)

    # where other steps are shown: any other, the previous, the next
    before = max(choice_answer.step - 1, 0)
    after = min(choice_answer.step + 1, len(prior) - 1)
    others = prior[0]
    if len(prior) > 1:
        others = np.delete(prior, choice_answer.step, axis=0).mean(axis=0)
    elsewhere = np.array([others, prior[before], prior[after]])  # (3, M + 1)
    p_choices = elsewhere[:, choices]

    # whether the answer is right, and how each behaviour guesses
    is_right = np.zeros(prior.shape[1])
    if answer is None:
        is_right[:] = 1.0
        is_right[choices] = 0.0
        guesses = [uniform, 0.0, 1.0]
        guesses += (1 - p_choices.sum(axis=1)).tolist()
    else:
        is_right[choices[answer]] = 1.0
        guesses = [uniform, 1 / count, 0.0]
        guesses += p_choices[:, answer].tolist()
    guesses += [float(answer == letter) for letter in range(letters)]
    guess = (1 - SLIP_PROBABILITY) * np.array(guesses)
    guess = guess + SLIP_PROBABILITY / (count + 1)

    r = RELIABILITY_GRID[:, None]  # (R, 1)
    return np.asarray(is_right[:, None, None] * r + (1 - r) * guess)


def expected_gain(
    posterior: Array, choices: Sequence[int], reliability: float, *, is_repeat: bool = False
) -> float:
    """Return by how much a question is expected to raise P(the most likely segment of a step is right).

    Args:
        posterior: (M + 1,) P(the step is shown in each segment). Last entry: P(not shown).
        choices: indices of the segments in the question.
        reliability: P(an answer is not a guess). Guesses are uniform here.
        is_repeat: whether an earlier question about the step had mostly the same segments.
    """
    options = [*choices, None]
    count = len(options)
    guess = (1 - reliability) / count
    table = np.full((count, len(posterior)), guess)  # P(answer | truth)
    for n, choice in enumerate(options):
        if choice is not None:
            table[n, choice] += reliability
        else:
            table[n, np.setdiff1d(np.arange(len(posterior)), choices)] += reliability
    # A repeated question has less information.
    if is_repeat:
        table = table**REPEAT_WEIGHT
        table = table / table.sum(axis=0)
    # the best decision after each answer, less the best one without
    return float((table * posterior).max(axis=1).sum() - posterior.max())


def most_likely_segments(posterior: Array, count: int) -> tuple[int, ...]:
    """Return the indices of the most likely segments of a step, the best first.

    Args:
        posterior: (M + 1,) P(the step is shown in each segment). Last entry: P(not shown).
        count: maximal number of segments.
    """
    return tuple(np.argsort(-posterior[:-1], kind="stable")[:count].tolist())
