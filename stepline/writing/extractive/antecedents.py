"""Which thing a pronoun of a step stands for: a conditional logit over the things named before it.

Each thing named in the last sentences is a candidate, "none of them" is one more. The numbers are
learned from editors' steps by stepline/writing/training/antecedents.py. A name is given only where
its probability is high.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from stepline.limits import packaged_json
from stepline.text.narration import SentenceReading
from stepline.text.narration.words import WORD_EDITS, bare_word, word_set
from stepline.writing.extractive.complements import NOUN_TAGS
from stepline.writing.extractive.pronouns import (
    MEASURE_NOUNS,
    NEVER_MEANT,
    noun_name,
    things_of_measure,
)
from stepline.writing.extractive.step_editor import DraftStep, DraftWord

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
    things = things_of_measure(root)
    return things[0] if things else root


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
    return np.array(_fitted()["weights"])


@cache
def objectless_verbs() -> frozenset[str]:
    """Return the verbs that editors often leave without an object: "Stir for a minute"."""
    return frozenset(_fitted()["objectless"])


def _fitted() -> dict[str, Any]:
    fitted: dict[str, Any] = packaged_json("stepline.writing.extractive", "antecedents.json")
    return fitted


# P(the pronoun stands for this) from which it is named. Names in six long transcripts were read one
# by one. All seven names of "it" and "them" from here on were right, three of the six between .8
# and it. "This" points at the picture: three of three were wrong, however sure.
MIN_NAME: Final = 0.9
# Words of these kinds may come before a thing that is named in front: "SO TWO onions, chop them".
FRONT_PARTS_OF_SPEECH: Final = ("CCONJ", "ADV", "INTJ", "SCONJ", "DET", "PRON")
NAME_PARTS_OF_SPEECH: Final = ("NUM", "ADJ", "NOUN", "PROPN")
# What these act on is work, not a thing: "repeat this on the other side".
WORK_VERBS: Final = frozenset(("do", "repeat", "redo"))
NAMEABLE_PRONOUNS: Final = frozenset(("it", "this", "that", "them", "these", "those", "they"))


class StepNamer:
    """Names the pronouns of one narration's steps. docs: its sentences, of words parted by a space."""

    def __init__(self, docs: "Sequence[Doc]", readings: Sequence[SentenceReading]) -> None:
        keeps = []
        self._tokens: list[list[int]] = []  # of each sentence, the first token of each word
        for doc, reading in zip(docs, readings, strict=True):
            stays = 1 - reading.edits[:, WORD_EDITS.index("drop")]
            token_keeps = []
            starts = []
            place = 0
            for token in doc:
                if token.i == 0 or doc[token.i - 1].whitespace_:
                    starts.append(token.i)
                keep = 0.0
                if place < len(stays):
                    keep = float(stays[place])
                token_keeps.append(keep)
                if token.whitespace_:
                    place += 1
            keeps.append(token_keeps)
            self._tokens.append(starts)
        self._docs = docs
        self._finder = AntecedentFinder(docs, keeps)

    def name_at(self, sentence: int, place: int) -> str | None:
        """Return what the pronoun at a word stands for, without an article, None where unsure."""
        token = self._pronoun(sentence, place)
        if token is None:
            return None
        pronoun = self._docs[sentence][token]
        if pronoun.lower_ in POINTING_PRONOUNS:
            return None
        fronted = _fronted_name(pronoun)
        if fronted is not None:
            return fronted
        antecedent = self._finder.find(sentence, token)
        if antecedent is None or antecedent.probability < MIN_NAME:
            return None
        name = antecedent.name
        if name.istitle():
            return name.lower()
        return name

    def likely_names(self, sentence: int, places: Sequence[int]) -> tuple[str, ...]:
        """Return what the pronouns at these words most likely stand for, sure or not."""
        names = []
        for place in places:
            token = self._pronoun(sentence, place)
            if token is None:
                continue
            antecedent = self._finder.find(sentence, token)
            if antecedent is not None:
                names.append(antecedent.name)
        return tuple(names)

    def _pronoun(self, sentence: int, place: int) -> int | None:
        """Return the token of the pronoun at a word, None for another word."""
        starts = self._tokens[sentence]
        if place >= len(starts):
            return None
        token = self._docs[sentence][starts[place]]
        is_work = token.dep_ == "dobj" and token.head.lemma_ in WORK_VERBS
        if is_work or token.lower_ not in NAMEABLE_PRONOUNS:
            return None
        return int(token.i)

    def with_names(self, draft: DraftStep) -> DraftStep | None:
        """Return the step with the names of its pronouns, None where only pronouns are left."""
        words: list[DraftWord] = []
        names: set[str] = set()
        for number, word in enumerate(draft.words):
            if not word.is_pronoun or word.place is None:
                words.append(word)
                continue
            name = self.name_at(draft.sentence, word.place)
            is_named = name is not None and any(name in other.text for other in draft.words)
            if name is not None and name not in names and not is_named:
                names.add(name)
                words.append(replace(word, text=f"the {name}"))
            elif not _reads_without(draft.words, number):
                words.append(word)
        return replace(draft, words=tuple(words))


def _fronted_name(pronoun: "Token") -> str | None:
    """Return the thing that is named in front of the clause: "TWO ONIONS, chop THEM fine".

    None where the sentence begins otherwise, or where one and many do not agree.
    """
    front, between = _around_comma(pronoun)
    if pronoun.dep_ != "dobj" or not front:
        return None
    # Before the comma is one thing alone, and between that and the pronoun nothing is named.
    front_kinds = {token.pos_ for token in front}
    between_kinds = {token.pos_ for token in between}
    is_thing = front_kinds.issubset(NAME_PARTS_OF_SPEECH)
    if not is_thing or not between_kinds.isdisjoint(NOUN_TAGS):
        return None
    last = front[-1]
    if last.pos_ != "NOUN" or last.lemma_.lower() in UNNAMEABLE_WORDS:
        return None
    # One and many agree.
    is_many = last.tag_ == "NNS"
    if is_many != (pronoun.lower_ == "them"):
        return None
    name: str = last.doc[front[0].i : last.i + 1].text
    # A sentence begins with a capital, a step does not.
    return name[:1].lower() + name[1:]


def _around_comma(pronoun: "Token") -> "tuple[list[Token], list[Token]]":
    """Return the words before the first comma without those that only open, and those from there
    to the pronoun. Both are empty where no comma comes before it."""
    doc = pronoun.doc
    for comma in doc[: pronoun.i]:
        if comma.text != ",":
            continue
        front = list(doc[: comma.i])
        while front and front[0].pos_ in FRONT_PARTS_OF_SPEECH and front[0].lower_ != "no":
            del front[0]
        return front, list(doc[comma.i : pronoun.i])
    return [], []


def _reads_without(words: Sequence[DraftWord], number: int) -> bool:
    """Return whether a step reads well without the pronoun at a place: "Stir [it] for a minute"."""
    is_between = 0 < number < len(words) - 1
    return is_between and bare_word(words[number - 1].text) in objectless_verbs()
