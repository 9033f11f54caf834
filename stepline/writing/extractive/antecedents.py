"""Which thing a pronoun of a step stands for: a conditional logit over the things named before it.

Each thing named in the last sentences is a candidate, "none of them" is one more. The numbers are
learned from editors' steps by stepline/writing/training/antecedents.py. A name is given only where
its probability is high.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from stepline.text.narration.words import word_set
from stepline.writing.extractive.pronouns import MEASURE_NOUNS, NEVER_MEANT, noun_name

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

Array = npt.NDArray[np.float64]

REACH_SENTENCES: Final = 5  # back from the pronoun's own
MAX_CANDIDATES: Final = 14  # the nearest
MANY_PRONOUNS: Final = word_set("them those these they")
POINTING_PRONOUNS: Final = word_set("this that these those")
OBJECT_ROLES: Final = word_set("dobj nsubjpass dative")
PLACE_ROLES: Final = word_set("pobj")
# Nouns that say too little to be put in the place of a pronoun.
UNNAMEABLE_WORDS: Final = (
    NEVER_MEANT
    | MEASURE_NOUNS
    | word_set("you lot thing stuff video guy one bit minute side end way top bottom size amount")
)


@dataclass(frozen=True)
class Antecedent:
    """What a pronoun stands for.

    name: without an article.
    probability: that it is this.
    """

    name: str
    probability: float


@dataclass(frozen=True)
class Candidate:
    """A thing that was named. sentence: where. keep_chance: share of its words that are part of a step."""

    name: str
    stem: str
    sentence: int
    is_plural: bool
    role: str
    keep_chance: float
    count: int
    is_acted_on: bool


class AntecedentFinder:
    """Finds what the pronouns of one narration stand for, by what was named before."""

    def __init__(self, docs: "Sequence[Doc]", keeps: Sequence[Sequence[float]]) -> None:
        """docs: its sentences, parsed, of words parted by one space. keeps: of each, P(part of a
        step) of each token."""
        self.docs = docs
        self.mentions: list[list[tuple[int, Candidate]]] = []
        counts: dict[str, int] = {}
        for number, (doc, keep) in enumerate(zip(docs, keeps, strict=True)):
            row = []
            for chunk in doc.noun_chunks:
                candidate = _candidate(chunk.root, number, keep, counts)
                if candidate is not None:
                    row.append((chunk.root.i, candidate))
            self.mentions.append(row)

    def candidates(self, sentence: int, token: int) -> list[Candidate]:
        """Return the things named before a pronoun, the nearest first."""
        before: list[Candidate] = []
        for number in range(sentence, max(-1, sentence - REACH_SENTENCES - 1), -1):
            for place, candidate in reversed(self.mentions[number]):
                is_before = number < sentence or place < token
                if is_before and len(before) < MAX_CANDIDATES:
                    before.append(candidate)
        return before

    def find(self, sentence: int, token: int) -> Antecedent | None:
        """Return the most likely thing that the pronoun at a token stands for, None without any."""
        candidates = self.candidates(sentence, token)
        if not candidates:
            return None
        pronoun = self.docs[sentence][token]
        chances = candidate_chances(pronoun.lower_, sentence, candidates, read_weights())
        # the same thing named twice is one answer
        total: dict[str, float] = {}
        # The last chance is that of "none of them". It has no candidate, and zip drops it.
        for candidate, chance in zip(candidates, chances, strict=False):
            total[candidate.stem] = total.get(candidate.stem, 0.0) + float(chance)
        best = max(total, key=lambda stem: total[stem])
        named = next(candidate for candidate in candidates if candidate.stem == best)
        return Antecedent(named.name, total[best])


def _candidate(
    root: "Token", sentence: int, keep: Sequence[float], counts: dict[str, int]
) -> Candidate | None:
    """Return the thing that a noun phrase names, None for a pronoun, a measure, a person."""
    root = _measured_thing(root)
    lemma = root.lemma_.lower()
    if root.pos_ not in ("NOUN", "PROPN") or lemma in UNNAMEABLE_WORDS or len(lemma) < 2:
        return None
    counts[lemma] = counts.get(lemma, 0) + 1
    # Joined things count as many: "the salt and the pepper".
    is_plural = root.tag_ in ("NNS", "NNPS") or any(t.dep_ == "conj" for t in root.children)
    head = root.head
    return Candidate(
        name=noun_name(root),
        stem=lemma,
        sentence=sentence,
        is_plural=is_plural,
        role=root.dep_,
        keep_chance=float(keep[root.i]),
        count=counts[lemma],
        is_acted_on=root.dep_ in OBJECT_ROLES and float(keep[head.i]) >= 0.5,
    )


def _measured_thing(root: "Token") -> "Token":
    """Return the flour of "two cups of flour"."""
    if root.lemma_.lower() not in MEASURE_NOUNS:
        return root
    for child in root.children:
        if child.dep_ == "prep" and child.lower_ == "of":
            for deep in child.children:
                if deep.dep_ == "pobj":
                    return deep
    return root


def candidate_features(pronoun: str, sentence: int, candidates: Sequence[Candidate]) -> Array:
    """Return what the logit reads of each candidate and, last, of "none", (C + 1, F)."""
    rows = []
    is_many = pronoun in MANY_PRONOUNS
    points = pronoun in POINTING_PRONOUNS
    for rank, candidate in enumerate(candidates):
        distance = sentence - candidate.sentence
        is_object = candidate.role in OBJECT_ROLES
        agrees = candidate.is_plural == is_many
        rows.append(
            [
                # where it was named, and how many things were named since
                float(distance == 0),
                float(distance == 1),
                float(distance),
                np.log1p(rank),
                float(rank == 0),
                # its part in its sentence, and how likely that is a step
                float(is_object),
                float(candidate.role in PLACE_ROLES),
                float(candidate.is_acted_on),
                candidate.keep_chance,
                candidate.keep_chance * float(distance == 0),
                # whether one and many agree, and what "this" or "those" point at
                float(agrees),
                float(is_many and not candidate.is_plural),
                np.log1p(candidate.count),
                float(points) * float(distance == 0),
                float(points) * float(is_object),
                # the columns of "none"
                0.0,
                0.0,
                0.0,
            ]
        )
    # "None" has an intercept of its own, and one for each kind of pronoun.
    none = [0.0] * 15 + [1.0, float(points), float(is_many)]
    return np.array([*rows, none])


def candidate_chances(
    pronoun: str, sentence: int, candidates: Sequence[Candidate], weights: Array
) -> Array:
    """Return P of each candidate and, last, of none of them, (C + 1,)."""
    logits = candidate_features(pronoun, sentence, candidates) @ weights
    # The largest logit is taken off first, so that exp cannot overflow.
    exponents = np.exp(logits - logits.max())
    chances: Array = exponents / exponents.sum()
    return chances


@cache
def read_weights() -> Array:
    """Return the logit's weights, (F,)."""
    return np.array(_read_file()["weights"])


@cache
def objectless_verbs() -> frozenset[str]:
    """Return the verbs that editors often leave without an object: "Stir for a minute"."""
    return frozenset(_read_file()["objectless"])


@cache
def _read_file() -> dict[str, Any]:
    package = resources.files("stepline.writing.extractive")
    content: dict[str, Any] = json.loads(package.joinpath("antecedents.json").read_text("utf-8"))
    return content
