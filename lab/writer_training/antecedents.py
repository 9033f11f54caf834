"""Trains the antecedents of pronouns on editors' steps, where names replace spoken pronouns.

`lab/fit_antecedents.py` fits and measures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from lab.writer_training.labels import EditLabels, align_words, edit_labels, word_stem
from lab.writer_training.marked import MarkedNarration, MarkedSentence
from stepline.text.narration.words import WORD_EDITS, spoken_words
from stepline.writing.extractive.antecedents import (
    AntecedentFinder,
    Candidate,
    candidate_features,
    candidate_probabilities,
)
from stepline.writing.extractive.english import parse

Array = npt.NDArray[np.float64]

WEIGHT_PENALTY: Final = 1.0  # of the squared weights
MIN_PROBABILITY: Final = 1e-12  # under which a logarithm would be infinite


@dataclass(frozen=True)
class Case:
    """A pronoun that an editor replaced.

    is_right: per candidate, whether the editor wrote it. The last means none.
    """

    narration: str
    pronoun: str
    sentence: int
    candidates: tuple[Candidate, ...]
    is_right: tuple[bool, ...]


def pronoun_cases(narration: MarkedNarration) -> list[Case]:
    """Return the pronouns of a narration that its editor replaced by names."""
    labels = edit_labels(narration.sentences)
    # The sentences as the writer reads them, with the words that are part of a step.
    texts = []
    for row in narration.sentences:
        words = spoken_words(row.text)
        texts.append(" ".join(words))
    docs = parse(texts)
    kept_masks = []
    for doc, label in zip(docs, labels, strict=True):
        kept_masks.append(_kept_tokens(doc, label))
    finder = AntecedentFinder(docs, kept_masks)
    # Each pronoun that the editor replaced, and which candidates the step names.
    name = WORD_EDITS.index("name")
    cases = []
    for number, row in enumerate(narration.sentences):
        label = labels[number]
        word_indices = word_index_of_tokens(docs[number])
        for token in docs[number]:
            word_index = word_indices[token.i]
            is_name = word_index < len(label.edits) and label.edits[word_index] == name
            if not is_name or token.pos_ not in ("PRON", "DET"):
                continue
            candidates = finder.candidates(number, token.i)
            right = _right_candidates(candidates, row, number)
            is_right = (*right, not any(right))
            all_candidates = tuple(candidates)
            case = Case(narration.name, token.lower_, number, all_candidates, is_right)
            cases.append(case)
    return cases


def _kept_tokens(doc: "object", label: EditLabels) -> list[float]:
    """Return for each token of a parsed sentence 1 where its word is part of the step, else 0."""
    drop = WORD_EDITS.index("drop")
    kept_masks = []
    for word_index in word_index_of_tokens(doc):
        is_kept = word_index < len(label.edits) and label.edits[word_index] != drop
        kept_masks.append(float(is_kept))
    return kept_masks


def _right_candidates(
    candidates: Sequence[Candidate], row: MarkedSentence, number: int
) -> list[bool]:
    """Return which candidates the editor wrote in the steps of the sentence with that number."""
    inserted = _inserted_stems(row.text, row.steps)
    right = [word_stem(candidate.stem) in inserted for candidate in candidates]
    if any(right):
        return right
    # named in the same sentence, and once in the step
    written: set[str] = set()
    for step in row.steps:
        written.update(word_stem(word) for word in spoken_words(step))
    right = []
    for candidate in candidates:
        is_written = word_stem(candidate.stem) in written
        right.append(candidate.sentence == number and is_written)
    return right


def word_index_of_tokens(doc: "object") -> list[int]:
    """Return for each token of a parsed sentence the index of its word between spaces."""
    word_indices = []
    word_index = 0
    for token in doc:  # type: ignore[attr-defined]
        word_indices.append(word_index)
        if token.whitespace_:
            word_index += 1
    return word_indices


def _inserted_stems(text: str, steps: Sequence[str]) -> set[str]:
    """Return the stems of what the editor wrote and no one said in the sentence."""
    spoken = spoken_words(text)
    stems: set[str] = set()
    for step in steps:
        words = spoken_words(step)
        word_indices = align_words(spoken, words)
        for word, word_index in zip(words, word_indices, strict=True):
            if word_index is None:
                stems.add(word_stem(word))
    return stems


def fit_weights(cases: Sequence[Case]) -> Array:
    """Return the weights that make the right candidates most likely, (F,)."""
    features = []
    right = []
    for case in cases:
        rows = candidate_features(case.pronoun, case.sentence, case.candidates)
        features.append(rows)
        right.append(np.array(case.is_right))

    def loss(weights: Array) -> tuple[float, Array]:
        # Minus the log probability that any right candidate is chosen, and its gradient.
        total = WEIGHT_PENALTY * float(weights @ weights)
        gradient = 2 * WEIGHT_PENALTY * weights
        for rows, is_right in zip(features, right, strict=True):
            logits = rows @ weights
            probabilities = np.exp(logits - logits.max())
            probabilities /= probabilities.sum()
            right_probability = float(probabilities[is_right].sum())
            right_probability = max(right_probability, MIN_PROBABILITY)
            total -= np.log(right_probability)
            target = np.where(is_right, probabilities / right_probability, 0)
            gradient -= rows.T @ (target - probabilities)
        return total, gradient

    feature_count = features[0].shape[1]
    start = np.zeros(feature_count)
    fit = minimize(loss, start, jac=True, method="L-BFGS-B")
    weights: Array = fit.x
    return weights


def judge(case: Case, weights: Array) -> tuple[float, bool]:
    """Return the probability of the most likely name, and whether it is right."""
    probabilities = candidate_probabilities(case.pronoun, case.sentence, case.candidates, weights)
    probability_by_stem: dict[str, float] = {}
    is_right: dict[str, bool] = {}
    for number, candidate in enumerate(case.candidates):
        stem = candidate.stem
        probability = float(probabilities[number])
        probability_by_stem[stem] = probability_by_stem.get(stem, 0.0) + probability
        is_right[stem] = case.is_right[number]
    if not probability_by_stem:
        return 0.0, False
    best = max(probability_by_stem, key=probability_by_stem.__getitem__)
    return probability_by_stem[best], is_right[best]
