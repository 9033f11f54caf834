"""Learns what pronouns stand for from editors' steps: where a pronoun was said, they wrote a name.

`benchmarks/fit_antecedents.py` fits and measures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from stepline.narration.words import WORD_EDITS, spoken_words
from stepline.writing.extractive.antecedents import (
    AntecedentFinder,
    Candidate,
    candidate_chances,
    candidate_features,
)
from stepline.writing.extractive.english import parse
from stepline.writing.training.labels import align_words, edit_labels, word_stem
from stepline.writing.training.marked import MarkedNarration

Array = npt.NDArray[np.float64]

WEIGHT_PENALTY: Final = 1.0  # of the squared weights
MIN_USES: Final = 3  # of a verb without an object
MIN_OBJECTLESS: Final = 0.25  # of a verb's uses


@dataclass(frozen=True)
class Case:
    """A pronoun that an editor replaced. gold: which candidate was meant; the last means none."""

    narration: str
    pronoun: str
    sentence: int
    candidates: tuple[Candidate, ...]
    is_right: tuple[bool, ...]


def pronoun_cases(narration: MarkedNarration) -> list[Case]:
    """Return the pronouns of a narration that its editor replaced by what they stand for."""
    labels = edit_labels(narration.sentences)
    texts = [" ".join(spoken_words(row.text)) for row in narration.sentences]
    docs = list(parse(texts))
    keeps = []
    for doc, label in zip(docs, labels, strict=True):
        places = token_places(doc)
        drop = WORD_EDITS.index("drop")
        keeps.append([float(label.edits[p] != drop) if p < len(label.edits) else 0 for p in places])
    finder = AntecedentFinder(docs, keeps)
    cases = []
    for number, (row, label) in enumerate(zip(narration.sentences, labels, strict=True)):
        names = _inserted_stems(row.text, row.steps)
        places = token_places(docs[number])
        for token in docs[number]:
            place = places[token.i]
            is_name = place < len(label.edits) and label.edits[place] == WORD_EDITS.index("name")
            if not is_name or token.pos_ not in ("PRON", "DET"):
                continue
            candidates = finder.candidates(number, token.i)
            right = [word_stem(c.stem) in names for c in candidates]
            if not any(right):
                # named in the same sentence, and once in the step
                stems = {word_stem(word) for step in row.steps for word in spoken_words(step)}
                right = [c.sentence == number and word_stem(c.stem) in stems for c in candidates]
            is_right = (*right, not any(right))
            case = Case(narration.name, token.lower_, number, tuple(candidates), is_right)
            cases.append(case)
    return cases


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
    """Return the stems of what the editor wrote and nobody said in the sentence."""
    spoken = spoken_words(text)
    stems: set[str] = set()
    for step in steps:
        words = spoken_words(step)
        places = align_words(spoken, words)
        stems |= {word_stem(w) for w, place in zip(words, places, strict=True) if place is None}
    return stems


def fit_weights(cases: Sequence[Case]) -> Array:
    """Return the weights that make the right candidates likeliest, (F,)."""
    features = [candidate_features(c.pronoun, c.sentence, c.candidates) for c in cases]
    right = [np.array(case.is_right) for case in cases]

    def loss(weights: Array) -> tuple[float, Array]:
        total = WEIGHT_PENALTY * float(weights @ weights)
        gradient = 2 * WEIGHT_PENALTY * weights
        for rows, is_right in zip(features, right, strict=True):
            logits = rows @ weights
            chances = np.exp(logits - logits.max())
            chances /= chances.sum()
            mass = max(float(chances[is_right].sum()), 1e-12)
            total -= np.log(mass)
            target = np.where(is_right, chances / mass, 0)
            gradient -= rows.T @ (target - chances)
        return total, gradient

    start = np.zeros(features[0].shape[1])
    weights: Array = minimize(loss, start, jac=True, method="L-BFGS-B").x
    return weights


def judge(case: Case, weights: Array) -> tuple[float, bool]:
    """Return the probability of the likeliest name, and whether it is right."""
    chances = candidate_chances(case.pronoun, case.sentence, case.candidates, weights)
    total: dict[str, float] = {}
    right: dict[str, bool] = {}
    for candidate, chance, is_right in zip(case.candidates, chances, case.is_right, strict=False):
        total[candidate.stem] = total.get(candidate.stem, 0.0) + float(chance)
        right[candidate.stem] = is_right
    if not total:
        return 0.0, False
    best = max(total, key=lambda stem: total[stem])
    return total[best], right[best]


def objectless_verbs_of(narrations: Sequence[MarkedNarration]) -> list[str]:
    """Return the verbs that editors use without an object, before something else, often enough."""
    steps = [step for n in narrations for row in n.sentences for step in row.steps]
    uses: dict[str, list[bool]] = {}
    for doc in parse([f"you {step[:1].lower()}{step[1:]}" for step in steps]):
        verb = next((token for token in doc if token.dep_ == "ROOT"), None)
        if verb is None or verb.i != 1 or len(doc) <= verb.i + 1:
            continue
        has_object = any(child.dep_ in ("dobj", "dative", "ccomp") for child in verb.children)
        uses.setdefault(verb.lemma_.lower(), []).append(not has_object)
    return sorted(
        verb
        for verb, without in uses.items()
        if sum(without) >= MIN_USES and np.mean(without) >= MIN_OBJECTLESS
    )
