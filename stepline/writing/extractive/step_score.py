"""P(a sentence describes a step), and the log Bayes factor that a video gives instructions.

The first is a logistic regression on the tagger's log probabilities, fitted by
`lab/fit_step_score.py`. The second is a logistic regression on the first and on sentence vectors,
fitted by `lab/fit_instruction.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from stepline.limits import load_packaged_json
from stepline.numeric import logit, sigmoid
from stepline.records import Matrix
from stepline.text.narration import SentenceTags
from stepline.text.narration.words import SENTENCE_KINDS, WORD_EDITS, spoken_words
from stepline.writing.extractive.grammar_actions import grammar_features

Array = npt.NDArray[np.float64]

# Added to a probability before its logarithm, so that 0 stays finite.
MIN_PROBABILITY = 1e-4
CONTEXT_SENTENCES = 3  # neighbours on either side whose scores count
# In a short clip, or at the beginning of a live narration, neighbours show little. There a crisp
# imperative counts whatever they are, by grammar or by the tagger's P(step).
MIN_STATED_ACTION_PROBABILITY = 0.2
MAX_SHORT_NARRATION_SENTENCES = 25
MIN_SURE_STEP_PROBABILITY = 0.6
RAISED_STEP_PROBABILITY = 0.45
STEP_COLUMN = SENTENCE_KINDS.index("step")
FEATURE_COUNT = 28


def score_features(sentence_tags: Sequence[SentenceTags], texts: Sequence[str]) -> Array:
    """Return the regression's features of each of the S sentences of one narration, (S, 28).

    Columns: log P of the 8 kinds; log P(step) of three neighbours on either side and its mean over
    the narration; log number of words, less its mean; `_edit_features`; `_clause_features`;
    `grammar_features`.

    Args:
        sentence_tags: the tagger's probabilities of the sentences, in spoken order.
        texts: the texts of the sentences.
    """
    if not sentence_tags:
        return np.zeros((0, FEATURE_COUNT))
    # the sentence's own kinds, and P(step) of its neighbours
    log_kinds = _log_kinds(sentence_tags)  # (S, 8)
    log_step = log_kinds[:, STEP_COLUMN]
    padded_log_step = np.pad(log_step, CONTEXT_SENTENCES, mode="edge")
    count = len(log_step)
    context = []
    for distance in range(1, CONTEXT_SENTENCES + 1):
        for start in (CONTEXT_SENTENCES - distance, CONTEXT_SENTENCES + distance):
            context.append(padded_log_step[start : start + count])

    # next to the narration's own mean, for captions and recognisers cut speech differently
    context.append(np.full(count, log_step.mean()))
    lengths = np.log([len(spoken_words(text)) + 1.0 for text in texts])
    context.append(lengths - lengths.mean())

    # words, clauses, grammar
    edits = np.stack([_edit_features(tags) for tags in sentence_tags])  # (S, 4)
    clauses = np.stack([_clause_features(tags) for tags in sentence_tags])  # (S, 6)
    grammar = grammar_features(texts)  # (S, 2)
    return np.hstack([log_kinds, np.stack(context, axis=1), edits, clauses, grammar])


def _log_kinds(sentence_tags: Sequence[SentenceTags]) -> Array:
    """Return log P of each of SENTENCE_KINDS for N sentences or clauses, (N, 8)."""
    kinds = np.stack([tags.kind_probabilities for tags in sentence_tags]).astype(np.float64)
    logarithms: Array = np.log(kinds + MIN_PROBABILITY)
    return logarithms


def _edit_features(tags: SentenceTags) -> Array:
    """Return four features of a sentence's words, (4,): the greatest P(an action begins with a
    word), the mean P(a word is kept), the greatest P(a pronoun is replaced) and P(no verb is put
    in front)."""
    if not len(tags.edit_probabilities):
        return np.zeros(4)
    edits = tags.edit_probabilities.astype(np.float64)
    probability_of = dict(zip(WORD_EDITS, edits.T, strict=True))  # (W,) each
    action = (probability_of["verb"] + probability_of["next"]).max()
    kept_share = (1 - probability_of["drop"]).mean()
    return np.array(
        [action, kept_share, probability_of["name"].max(), tags.front_verb_probabilities[0]]
    )


def _clause_features(tags: SentenceTags) -> Array:
    """Return six features of a sentence's C clauses, (6,): the greatest and the mean log P(step),
    the least log P(talk) and log P(announcement), log C, and the greatest P(an action begins
    with a word)."""
    # A sentence that is not cut is its own clause.
    clauses = tags.clauses or (tags,)
    log_kinds = _log_kinds(clauses)  # (C, 8)
    log_step = log_kinds[:, STEP_COLUMN]
    talk = log_kinds[:, SENTENCE_KINDS.index("talk")]
    announcement = log_kinds[:, SENTENCE_KINDS.index("announcement")]
    # A clause without words has no row of edits.
    actions = np.concatenate(
        [clause.edit_probabilities[:, WORD_EDITS.index("verb")] for clause in clauses]
    )
    count = np.log(len(clauses))
    action = actions.max(initial=0.0)
    return np.array(
        [log_step.max(), log_step.mean(), talk.min(), announcement.min(), count, action]
    )


def step_probabilities(sentence_tags: Sequence[SentenceTags], texts: Sequence[str]) -> Array:
    """Return P(a sentence describes a step) for each of the S sentences of one narration, (S,).

    It is a logistic regression on `score_features`. In a narration of at most
    MAX_SHORT_NARRATION_SENTENCES, an imperative sentence, or one with a high P(step) by the tagger,
    gets at least RAISED_STEP_PROBABILITY.

    Args:
        sentence_tags: the tagger's probabilities of S sentences, in spoken order.
        texts: the texts of the same sentences.
    """
    weights, intercept = _read_regression()
    features = score_features(sentence_tags, texts)
    probabilities = sigmoid(features @ weights + intercept)
    if 0 < len(sentence_tags) <= MAX_SHORT_NARRATION_SENTENCES:
        steps = np.array([tags.step_probability for tags in sentence_tags])
        is_sure = steps >= MIN_SURE_STEP_PROBABILITY
        has_imperative, has_stated_action = features[:, -2:].T > 0
        # an action that is said, "you're gonna stick them together", counts where it may be a step
        has_stated_action &= probabilities >= MIN_STATED_ACTION_PROBABILITY
        is_raised = is_sure | has_imperative | has_stated_action
        probabilities[is_raised] = np.maximum(probabilities[is_raised], RAISED_STEP_PROBABILITY)
    return probabilities


@cache
def _read_regression() -> tuple[Array, float]:
    content = load_packaged_json("stepline.writing.extractive", "step_score.json")
    return np.array(content["weights"]), float(content["intercept"])


# A sentence and a half that no one has said yet, at the usual P(step): few sentences show little.
PRIOR_STEP_PROBABILITY = 0.15
PRIOR_SENTENCES = 2.0
TOP_SENTENCES = 5
PRIOR_TOP_PROBABILITY = 0.3  # P(step) of one more sentence among the most likely
MIN_SENTENCE_WEIGHT = 0.02  # of a sentence without a step, for the direction
DIRECTION_SCALE = 8.0  # of a unit vector next to logits; the regression shrinks all alike
FULL_EVIDENCE_SENTENCES = 30  # from which the evidence counts in full
MIN_NORM = 1e-9


@dataclass(frozen=True)
class InstructionWeights:
    """A logistic regression on `instruction_features`.

    Attributes:
        weights: one per feature, (2 + D,).
        intercept: added to the weighted sum.
    """

    weights: list[float]
    intercept: float


def instruction_log_bayes(
    probabilities: Sequence[float], vectors: Matrix, model: InstructionWeights | None = None
) -> float:
    """Return the log Bayes factor of "this video gives instructions" against "it is other talk".

    It is 0 without a sentence, and shrunk in proportion below FULL_EVIDENCE_SENTENCES.

    Args:
        probabilities: P(a sentence describes a step) of S sentences.
        vectors: MiniLM vectors of the same sentences, (S, D).
        model: None is the regression shipped with the package.
    """
    if not len(probabilities):
        return 0.0
    model = model or load_instruction_weights()
    features = instruction_features(np.array(probabilities), vectors)
    log_odds = float(features @ np.array(model.weights)) + model.intercept
    return min(1.0, len(probabilities) / FULL_EVIDENCE_SENTENCES) * log_odds


def instruction_features(probabilities: Array, vectors: Matrix) -> Array:
    """Return the features of a video of S > 0 sentences, (2 + D,): the logit of the mean P(step), the
    logit of the mean of the five highest, and the direction of the mean vector weighted by P(step).

    Args:
        probabilities: P(a sentence describes a step), (S,).
        vectors: MiniLM vectors of the sentences, (S, D).
    """
    count = len(probabilities)
    mean = probabilities.sum() + PRIOR_SENTENCES * PRIOR_STEP_PROBABILITY
    top_probabilities = np.sort(probabilities)[::-1][:TOP_SENTENCES]
    top_mean = (top_probabilities.sum() + PRIOR_TOP_PROBABILITY) / (len(top_probabilities) + 1)
    direction = (probabilities + MIN_SENTENCE_WEIGHT) @ vectors.astype(np.float64)  # (D,)
    direction *= DIRECTION_SCALE / max(float(np.linalg.norm(direction)), MIN_NORM)
    numbers = logit(np.array([mean / (count + PRIOR_SENTENCES), top_mean]))
    return np.concatenate([numbers, direction])


def load_instruction_weights() -> InstructionWeights:
    """Return the weights shipped with the package."""
    return InstructionWeights(
        **load_packaged_json("stepline.writing.extractive", "instruction.json")
    )
