"""What the score of a sentence is made of."""

import numpy as np

from stepline.text.narration import SentenceTags
from stepline.text.narration.words import SENTENCE_KINDS, WORD_EDITS
from stepline.writing.extractive.step_score import FEATURE_COUNT, score_features, step_probabilities


def reading(step, words=6, clauses=()):
    """A reading that gives P(step), and leaves the rest to talk."""
    kinds = np.zeros(len(SENTENCE_KINDS), np.float32)
    kinds[SENTENCE_KINDS.index("step")] = step
    kinds[SENTENCE_KINDS.index("talk")] = 1 - step
    edits = np.full((words, len(WORD_EDITS)), 0.2, np.float32)
    return SentenceTags(kinds, edits, np.ones(1, np.float32), clauses)


def test_each_sentence_has_a_row_of_features():
    texts = ["Cut the onion into slices.", "Hello and welcome to my kitchen."]
    assert score_features([reading(0.9), reading(0.1)], texts).shape == (2, FEATURE_COUNT)
    assert score_features([], []).shape == (0, FEATURE_COUNT)


def test_one_clause_counts_as_the_sentence_itself():
    text = ["Cut the onion into slices."]
    alone = score_features([reading(0.4)], text)
    told = score_features([reading(0.4, clauses=(reading(0.4),))], text)
    assert np.array_equal(alone, told)


def test_a_clause_that_surely_states_a_step_speaks_for_its_sentence():
    text = "My cousins came for dinner that day, so cut the onion into slices."
    clauses = (reading(0.02), reading(0.95))
    others = [reading(0.1)] * 30
    texts = [text, *["Hello and welcome to my kitchen."] * 30]
    plain = step_probabilities([reading(0.3, 12), *others], texts)[0]
    clear = step_probabilities([reading(0.3, 12, clauses), *others], texts)[0]
    assert clear > plain
