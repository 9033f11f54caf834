"""Learns what pronouns stand for from editors' steps: where a pronoun was said, they wrote a name.

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
MIN_USES: Final = 3  # of a verb without an object
OBJECT_RELATIONS: Final = ("dobj", "dative", "ccomp")  # of a verb's child, to the parser
MIN_OBJECTLESS: Final = 0.25  # of a verb's uses
MIN_CHANCE: Final = 1e-12  # under which a logarithm would be infinite


@dataclass(frozen=True)
class Case:
    """A pronoun that an editor replaced.

    gold: which candidate was meant. The last means none.
    """

    narration: str
    pronoun: str
    sentence: int
    candidates: tuple[Candidate, ...]
    is_right: tuple[bool, ...]


def pronoun_cases(narration: MarkedNarration) -> list[Case]:
    """Return the pronouns of a narration that its editor replaced by what they stand for."""
    labels = edit_labels(narration.sentences)
    # The sentences as the writer reads them, with the words that are part of a step.
    texts = []
    for row in narration.sentences:
        words = spoken_words(row.text)
        texts.append(" ".join(words))
    docs = list(parse(texts))
    keeps = []
    for doc, label in zip(docs, labels, strict=True):
        keeps.append(_kept_tokens(doc, label))
    finder = AntecedentFinder(docs, keeps)
    # Each pronoun that the editor replaced, and which candidates the step names.
    name = WORD_EDITS.index("name")
    cases = []
    for number, row in enumerate(narration.sentences):
        label = labels[number]
        places = token_places(docs[number])
        for token in docs[number]:
            place = places[token.i]
            is_name = place < len(label.edits) and label.edits[place] == name
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
    keeps = []
    for place in token_places(doc):
        stays = place < len(label.edits) and label.edits[place] != drop
        keeps.append(float(stays))
    return keeps


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


def token_places(doc: "object") -> list[int]:
    """Return for each token of a parsed sentence the place of its word between spaces."""
    places = []
    place = 0
    for token in doc:  # type: ignore[attr-defined]
        places.append(place)
        if token.whitespace_:
            place += 1
    return places


def _inserted_stems(text: str, steps: Sequence[str]) -> set[str]:
    """Return the stems of what the editor wrote and no one said in the sentence."""
    spoken = spoken_words(text)
    stems: set[str] = set()
    for step in steps:
        words = spoken_words(step)
        places = align_words(spoken, words)
        for word, place in zip(words, places, strict=True):
            if place is None:
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
            chances = np.exp(logits - logits.max())
            chances /= chances.sum()
            right_chance = float(chances[is_right].sum())
            right_chance = max(right_chance, MIN_CHANCE)
            total -= np.log(right_chance)
            target = np.where(is_right, chances / right_chance, 0)
            gradient -= rows.T @ (target - chances)
        return total, gradient

    feature_count = features[0].shape[1]
    start = np.zeros(feature_count)
    fit = minimize(loss, start, jac=True, method="L-BFGS-B")
    weights: Array = fit.x
    return weights


def judge(case: Case, weights: Array) -> tuple[float, bool]:
    """Return the probability of the most likely name, and whether it is right."""
    chances = candidate_probabilities(case.pronoun, case.sentence, case.candidates, weights)
    chance_of: dict[str, float] = {}
    is_right: dict[str, bool] = {}
    for number, candidate in enumerate(case.candidates):
        stem = candidate.stem
        chance = float(chances[number])
        chance_of[stem] = chance_of.get(stem, 0.0) + chance
        is_right[stem] = case.is_right[number]
    if not chance_of:
        return 0.0, False
    best = max(chance_of, key=chance_of.__getitem__)
    return chance_of[best], is_right[best]


def objectless_verbs_of(narrations: Sequence[MarkedNarration]) -> list[str]:
    """Return the verbs that editors use without an object, before something else, often enough."""
    clauses = []
    for narration in narrations:
        for row in narration.sentences:
            # The parser reads an order rightly with "you" before it.
            clauses += [f"you {step[:1].lower()}{step[1:]}" for step in row.steps]

    # of each verb, whether its uses have no object
    uses: dict[str, list[bool]] = {}
    for doc in parse(clauses):
        roots = [token for token in doc if token.dep_ == "ROOT"]
        if not roots:
            continue
        verb = roots[0]
        # It comes right behind that "you", and something follows.
        is_order = verb.i == 1 and len(doc) > 2
        if not is_order:
            continue
        has_object = any(child.dep_ in OBJECT_RELATIONS for child in verb.children)
        lemma = verb.lemma_.lower()
        uses.setdefault(lemma, []).append(not has_object)

    # the verbs that have none often enough
    verbs = []
    for lemma, without_object in uses.items():
        share = np.mean(without_object)
        if sum(without_object) >= MIN_USES and share >= MIN_OBJECTLESS:
            verbs.append(lemma)
    return sorted(verbs)
