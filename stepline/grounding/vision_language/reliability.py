"""What answers to multiple-choice questions are worth: joint inference of where steps are shown and
who answers.

A step is shown in one of P places or in none. A model is asked in which of some places it is (none
is an answer too). It says what is true with probability r, its reliability, and guesses otherwise:

    P(a | truth, r, g) = r [a is right] + (1 - r) q_g(a)

q_g: how it guesses, one of a few behaviours: evenly, never "none", always "none", always the same
letter. The others are where some other step is shown, or the one before, or the next. Answers to
the same question asked again count `REPEAT_WEIGHT` of a first one, as a model repeats its errors.

r and g are the same for all questions of a video and unknown. They have a Beta prior times what the
steps themselves say of them,

    P(r, g | answers) ~ P(r) P(g) prod_k sum_truth p_k(truth) prod_i P(a_ki | truth, r, g)

so that steps that speech and pictures place surely find out a model that answers at random, always
the same, or something else. Its answers then weigh nothing. How sure the prior may be of itself is
not known either. So it is raised to each of a few powers, which the answers weigh by what they make
of them.

A few answers hardly tell a good model with a poor prior apart from a poor one with a good prior.
And no one asked so that steps become worse. So a step moves only where every reading of the answers
that is still plausible moves it (a Gamma-minimax decision). Such a reading is a power and a
reliability of their highest-density region. Questions are chosen also by what they would show to
the reading that speaks most against it. Source: Dawid and Skene 1979, with the grounder's posterior
in place of other annotators. Letters: K steps, P places, N powers, R reliabilities, G behaviours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.grounding.said_to_shown import Array
from stepline.numeric import sum_to_one

RELIABILITY_GRID = np.linspace(0.0, 0.98, 50)  # (R,), no model is believed without a doubt
# P(g) of how a model guesses: evenly among the answers, never "none", always "none", ...
EVEN_PROBABILITY = 0.3
NEVER_NONE_PROBABILITY = 0.15
ALWAYS_NONE_PROBABILITY = 0.1
# ... where another step is shown, or the one before, or the next, together
OTHER_STEP_PROBABILITY = 0.25
SAME_LETTER_PROBABILITY = 0.2  # ... always one letter; all letters together
# share of a first answer's log likelihood that the same question asked again counts
REPEAT_WEIGHT = 0.5
# of the prior: words place steps surely in one video and hardly in another
PRIOR_POWERS = (1.0, 1.5, 2.5, 4.0)
USELESS_PRIOR = 0.5  # P(the model's answers say nothing at all) before any of them
MAX_USELESS_RELIABILITY = 0.1  # up to which the answers say too little
# P(power, r) of the readings of the answers that must agree before a step moves
PLAUSIBLE_PROBABILITY = 0.9
# P(place) that no prior takes away altogether, shared by all places
MIN_PLACES_PROBABILITY = 1e-3
SLIP_PROBABILITY = 0.01  # a guess that some behaviour would never make is a slip


@dataclass(frozen=True)
class ChoiceAnswer:
    """One answered question. choices: the places offered, in the order shown. answer: a position,
    None for "none".

    step: its row. again: whether the step had been asked about these places before.
    """

    step: int
    choices: tuple[int, ...]
    answer: int | None
    is_repeat: bool = False


@dataclass(frozen=True)
class AnswerInference:
    """Place probabilities of the steps, each (K, P + 1), and the reliability of the model.

    The last column is P(it is not shown).

    places: P(step k is shown in place p)
    agreed: the same where all plausible readings of the answers agree on the direction of the
        change, else the prior
    adverse: by the plausible reading that speaks most for the prior's place
    reliability: (R,) P(r)
    """

    places: Array
    agreed: Array
    adverse: Array
    reliability: Array

    @property
    def mean(self) -> float:
        """The expected reliability."""
        return float(self.reliability @ RELIABILITY_GRID)

    @property
    def useless_probability(self) -> float:
        """P(the answers say nothing, or too little)."""
        is_useless = RELIABILITY_GRID <= MAX_USELESS_RELIABILITY
        return float(self.reliability[is_useless].sum())

    def interval(self, part: float = 0.9) -> tuple[float, float]:
        """Return the central interval that holds the reliability with probability `part`."""
        total = self.reliability.cumsum()
        low_tail = (1 - part) / 2
        high_tail = (1 + part) / 2
        low, high = np.searchsorted(total, [low_tail, high_tail])
        high = min(high, len(RELIABILITY_GRID) - 1)
        return float(RELIABILITY_GRID[low]), float(RELIABILITY_GRID[high])


def infer(
    prior: Array, choice_answers: Sequence[ChoiceAnswer], right_count: float, wrong_count: float
) -> AnswerInference:
    """Return what the answers make of the prior (K, P + 1). Steps without an answer keep theirs.

    right, wrong_count: the Beta prior of reliability, as if that many answers had been right and wrong
    before.
    """
    # P(r): the Beta prior on the grid, and the chance that answers say nothing.
    beta = (RELIABILITY_GRID + 0.01) ** (right_count - 1)  # (R,)
    beta = beta * (1.0 - RELIABILITY_GRID) ** (wrong_count - 1)
    beta = (1 - USELESS_PRIOR) * beta / beta.sum()
    beta[0] += USELESS_PRIOR

    # how likely each power and reliability is
    priors = [sharpened(prior, power) for power in PRIOR_POWERS]
    inferred = [_infer_at(sharp, choice_answers, beta) for sharp in priors]
    log_weight = np.stack([log_answers for log_answers, _ in inferred])  # (N, R)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()  # P(power, r | answers)
    plausible = highest_density(weight, PLAUSIBLE_PROBABILITY)  # (N, R)

    # where the steps are, by all of them
    places = np.einsum("nr,nkp->kp", weight, np.stack(priors))
    agreed = prior.copy()
    adverse = places.copy()
    for k in sorted({choice_answer.step for choice_answer in choice_answers}):
        rows = np.stack([readings[k] for _, readings in inferred])  # (N, R, P + 1)
        places[k] = np.einsum("nr,nrp->p", weight, rows)
        readings_of_step = rows[plausible]
        agreed[k], adverse[k] = _agreed(prior[k], places[k], readings_of_step)
    return AnswerInference(places, agreed, adverse, weight.sum(axis=0))


def highest_density(weight: Array, part: float) -> npt.NDArray[np.bool_]:
    """Return the fewest most likely entries that hold `part` of all weight together, as a mask.
    Ties keep the first."""
    order = np.argsort(-weight, axis=None, kind="stable")
    cumulated = weight.ravel()[order].cumsum()
    last = np.searchsorted(cumulated, part * weight.sum())
    count = int(last) + 1
    mask = np.zeros(weight.size, dtype=bool)
    mask[order[:count]] = True
    return mask.reshape(weight.shape)


def _agreed(before: Array, after: Array, readings: Array) -> tuple[Array, Array]:
    """Return a step's row (P + 1,) as far as all readings (N, P + 1) agree on it, and the adverse
    reading."""
    # the place
    places = before[:-1]
    old = int(places.argmax())
    new = int(after[:-1].argmax())
    lead = readings[:, old]
    if new != old:
        lead = readings[:, new] - readings[:, old]
        if (lead > 0).all():
            places = after[:-1]

    # whether it is shown at all
    unseen = before[-1]
    change = readings[:, -1] - unseen
    all_rise = (change > 0).all()
    all_fall = (change < 0).all()
    if all_rise or all_fall:
        unseen = after[-1]
    in_places = places / places.sum() * (1 - unseen)
    return np.append(in_places, unseen), readings[lead.argmin()]


def sharpened(prior: Array, power: float) -> Array:
    """Return the beliefs (K, P + 1) with those in places raised to a power. P(not shown) stays."""
    not_shown = prior[:, -1:]
    places = sum_to_one(prior[:, :-1] ** power)
    in_places = places * (1 - not_shown)
    return np.concatenate([in_places, not_shown], axis=1)


def _infer_at(
    prior: Array, choice_answers: Sequence[ChoiceAnswer], beta: Array
) -> tuple[Array, dict[int, Array]]:
    """Return log P(r, answers) (R,) and each asked step's P(place | r, answers), (R, P + 1).

    prior: (K, P + 1), raised to one power. beta: P(r) before.
    """
    # P(r) P(g) before any answer.
    letters = max((len(choice_answer.choices) for choice_answer in choice_answers), default=1)
    behaviours = [EVEN_PROBABILITY, NEVER_NONE_PROBABILITY, ALWAYS_NONE_PROBABILITY]
    behaviours += [OTHER_STEP_PROBABILITY / 3] * 3
    behaviours += [SAME_LETTER_PROBABILITY / letters] * letters  # (G,)
    log_joint = np.log(np.outer(beta, behaviours))  # (R, G)

    # log P(a step's answers | truth, r, g), (P + 1, R, G)
    shape = (prior.shape[1], *log_joint.shape)
    log_truths: dict[int, Array] = {}
    for choice_answer in choice_answers:
        log_truth = log_truths.setdefault(choice_answer.step, np.zeros(shape))
        weight = REPEAT_WEIGHT if choice_answer.is_repeat else 1.0
        log_truth += weight * np.log(likelihood(choice_answer, prior, letters))

    # log P(a step's answers | r, g), (R, G), and of all steps
    log_steps = {}
    for k, log_truth in log_truths.items():
        truth = np.exp(log_truth)
        answers = np.einsum("p,prg->rg", prior[k], truth)
        log_steps[k] = np.log(answers)
        log_joint = log_joint + log_steps[k]
    max_log = log_joint.max(axis=1, keepdims=True)  # (R, 1)
    joint = np.exp(log_joint - max_log)
    guess = sum_to_one(joint)  # P(g | r, answers)

    # Where each asked step is, over all behaviours.
    readings = {}
    for k, log_truth in log_truths.items():
        truth = np.exp(log_truth - log_steps[k])
        weighed_likelihood = np.einsum("rg,prg->rp", guess, truth)
        readings[k] = prior[k] * weighed_likelihood
    total = joint.sum(axis=1)
    return max_log[:, 0] + np.log(total), readings


def likelihood(choice_answer: ChoiceAnswer, prior: Array, letters: int) -> Array:
    """Return P(answer | truth, r, g), (P + 1, R, G). letters: the most choices of any question."""
    answer = choice_answer.answer
    choices = list(choice_answer.choices)
    count = len(choices)
    even = 1 / (count + 1)

    # where a step that was not asked about is shown: any other, the one before, the next
    before = max(choice_answer.step - 1, 0)
    after = min(choice_answer.step + 1, len(prior) - 1)
    others = prior[0]
    if len(prior) > 1:
        other_rows = np.delete(prior, choice_answer.step, axis=0)
        others = other_rows.mean(axis=0)
    elsewhere = np.array([others, prior[before], prior[after]])  # (3, P + 1)
    is_offered = elsewhere[:, choices]

    # what is right, and how each behaviour guesses
    right_count = np.zeros(prior.shape[1])
    if answer is None:
        right_count[:] = 1.0
        right_count[choices] = 0.0
        guesses = [even, 0.0, 1.0]
        guesses += (1 - is_offered.sum(axis=1)).tolist()
    else:
        right_count[choices[answer]] = 1.0
        guesses = [even, 1 / count, 0.0]
        guesses += is_offered[:, answer].tolist()
    guesses += [float(answer == letter) for letter in range(letters)]
    guess = (1 - SLIP_PROBABILITY) * np.array(guesses)
    guess = guess + SLIP_PROBABILITY / (count + 1)

    r = RELIABILITY_GRID[:, None]  # (R, 1)
    is_right = right_count[:, None, None] * r
    return np.asarray(is_right + (1 - r) * guess)


def expected_gain(
    row: Array, choices: Sequence[int], reliability: float, *, is_repeat: bool = False
) -> float:
    """Return the expected rise of P(the most likely place of a step is right) from an answer.

    row: (P + 1,) beliefs on the step. reliability: of who answers, who guesses evenly otherwise.
    """
    options = [*choices, None]
    count = len(options)
    guess = (1 - reliability) / count
    # Who answers is right with the reliability, and guesses evenly otherwise.
    table = np.full((count, len(row)), guess)  # P(answer | truth)
    for n, choice in enumerate(options):
        if choice is not None:
            table[n, choice] += reliability
        else:
            others = np.setdiff1d(np.arange(len(row)), choices)
            table[n, others] += reliability
    # The same question asked again says less.
    if is_repeat:
        table = table**REPEAT_WEIGHT
        table = table / table.sum(axis=0)
    # The best guess after each answer, against the best one without.
    max_log = (table * row).max(axis=1)
    return float(max_log.sum() - row.max())


def likeliest_places(row: Array, count: int) -> tuple[int, ...]:
    """Return the places (without "not shown") that are most likely, the best first. Ties keep the
    earlier."""
    order = np.argsort(-row[:-1], kind="stable")
    return tuple(order[:count].tolist())
