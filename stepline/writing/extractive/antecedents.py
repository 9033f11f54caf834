"""Antecedents of a step's pronouns: a conditional logit over the things named before.

Each thing named in the last sentences is a candidate, "none of them" is one more. The numbers are
learned from editors' steps by lab/writer_training/antecedents.py. A name is given only where
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
    NON_ANTECEDENT_NOUNS,
    measured_things,
    noun_name,
)
from stepline.writing.extractive.step_editor import DraftStep, DraftWord

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token


Array = npt.NDArray[np.float64]

MAX_BACK_SENTENCES: Final = 5  # back from the pronoun's own
MAX_CANDIDATES: Final = 14  # the nearest
PLURAL_PRONOUNS: Final = word_set("them those these they")
DEMONSTRATIVE_PRONOUNS: Final = word_set("this that these those")
OBJECT_ROLES: Final = word_set("dobj nsubjpass dative")
PLACE_ROLES: Final = word_set("pobj")
# Nouns that say too little to be put in the place of a pronoun.
NON_ANTECEDENT_WORDS: Final = (
    NON_ANTECEDENT_NOUNS
    | MEASURE_NOUNS
    | word_set("you lot thing stuff video guy one bit minute side end way top bottom size amount")
)


@dataclass(frozen=True)
class Antecedent:
    """The most likely antecedent of a pronoun.

    name: without an article. probability: that it is the antecedent.
    """

    name: str
    probability: float


@dataclass(frozen=True)
class Candidate:
    """A noun that can be an antecedent.

    Args:
        sentence: index of the sentence that names it.
        role: dependency relation to its head.
        keep_probability: P(the noun is part of a step).
        count: mentions so far.
        is_acted_on: object of a verb that is part of a step.
    """

    name: str
    stem: str
    sentence: int
    is_plural: bool
    role: str
    keep_probability: float
    count: int
    is_acted_on: bool


class AntecedentFinder:
    """Finds the antecedents of one narration's pronouns."""

    def __init__(
        self, docs: "Sequence[Doc]", keep_probabilities: Sequence[Sequence[float]]
    ) -> None:
        """Collect the candidates.

        docs: the parsed sentences. keep_probabilities: of each, P(part of a step) per token.
        """
        self.docs = docs
        self.mentions: list[list[tuple[int, Candidate]]] = []
        counts: dict[str, int] = {}
        for number, (doc, keep_probability) in enumerate(
            zip(docs, keep_probabilities, strict=True)
        ):
            sentence_mentions = []
            for chunk in doc.noun_chunks:
                candidate = _as_candidate(chunk.root, number, keep_probability, counts)
                if candidate is not None:
                    sentence_mentions.append((chunk.root.i, candidate))
            self.mentions.append(sentence_mentions)

    def candidates(self, sentence: int, token: int) -> list[Candidate]:
        """Return the candidates before a pronoun, the nearest first."""
        earlier: list[Candidate] = []
        for number in range(sentence, max(-1, sentence - MAX_BACK_SENTENCES - 1), -1):
            for index, candidate in reversed(self.mentions[number]):
                is_before = number < sentence or index < token
                if is_before and len(earlier) < MAX_CANDIDATES:
                    earlier.append(candidate)
        return earlier

    def find(self, sentence: int, token: int) -> Antecedent | None:
        """Return the most likely antecedent of the pronoun at a token, None without candidates."""
        candidates = self.candidates(sentence, token)
        if not candidates:
            return None
        pronoun = self.docs[sentence][token]
        probabilities = candidate_probabilities(
            pronoun.lower_, sentence, candidates, read_antecedent_weights()
        )
        # the same thing named twice is one answer
        probability_by_stem: dict[str, float] = {}
        # The last chance is that of "none of them". It has no candidate, and zip drops it.
        for candidate, probability in zip(candidates, probabilities, strict=False):
            probability_by_stem[candidate.stem] = probability_by_stem.get(
                candidate.stem, 0.0
            ) + float(probability)
        best_stem = max(probability_by_stem, key=lambda stem: probability_by_stem[stem])
        best_candidate = next(candidate for candidate in candidates if candidate.stem == best_stem)
        return Antecedent(best_candidate.name, probability_by_stem[best_stem])


def _as_candidate(
    noun: "Token", sentence: int, keep_probability: Sequence[float], counts: dict[str, int]
) -> Candidate | None:
    """Return the candidate of a noun phrase, None for a pronoun, a measure or a person."""
    noun = _measured_thing(noun)
    lemma = noun.lemma_.lower()
    if noun.pos_ not in ("NOUN", "PROPN") or lemma in NON_ANTECEDENT_WORDS or len(lemma) < 2:
        return None
    counts[lemma] = counts.get(lemma, 0) + 1
    # Joined things count as many: "the salt and the pepper".
    is_plural = noun.tag_ in ("NNS", "NNPS") or any(child.dep_ == "conj" for child in noun.children)
    head = noun.head
    return Candidate(
        name=noun_name(noun),
        stem=lemma,
        sentence=sentence,
        is_plural=is_plural,
        role=noun.dep_,
        keep_probability=float(keep_probability[noun.i]),
        count=counts[lemma],
        is_acted_on=noun.dep_ in OBJECT_ROLES and float(keep_probability[head.i]) >= 0.5,
    )


def _measured_thing(noun: "Token") -> "Token":
    """Return the noun after a measure: the flour of "two cups of flour"."""
    things = measured_things(noun)
    return things[0] if things else noun


def candidate_features(pronoun: str, sentence: int, candidates: Sequence[Candidate]) -> Array:
    """Return the logit's features of each candidate and, last, of "no antecedent", (C + 1, F)."""
    rows = []
    is_plural_pronoun = pronoun in PLURAL_PRONOUNS
    is_demonstrative = pronoun in DEMONSTRATIVE_PRONOUNS
    for rank, candidate in enumerate(candidates):
        distance = sentence - candidate.sentence
        is_object = candidate.role in OBJECT_ROLES
        number_agrees = candidate.is_plural == is_plural_pronoun
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
                candidate.keep_probability,
                candidate.keep_probability * float(distance == 0),
                # whether one and many agree, and what "this" or "those" point at
                float(number_agrees),
                float(is_plural_pronoun and not candidate.is_plural),
                np.log1p(candidate.count),
                float(is_demonstrative) * float(distance == 0),
                float(is_demonstrative) * float(is_object),
                # the columns of "none"
                0.0,
                0.0,
                0.0,
            ]
        )
    # "None" has an intercept of its own, and one for each kind of pronoun.
    none_row = [0.0] * 15 + [1.0, float(is_demonstrative), float(is_plural_pronoun)]
    return np.array([*rows, none_row])


def candidate_probabilities(
    pronoun: str, sentence: int, candidates: Sequence[Candidate], weights: Array
) -> Array:
    """Return P of each candidate and, last, of "no antecedent", (C + 1,)."""
    logits = candidate_features(pronoun, sentence, candidates) @ weights
    # The largest logit is taken off first, so that exp cannot overflow.
    exponents = np.exp(logits - logits.max())
    probabilities: Array = exponents / exponents.sum()
    return probabilities


@cache
def read_antecedent_weights() -> Array:
    """Return the logit's weights, (F,)."""
    return np.array(_read_fitted()["weights"])


@cache
def verbs_without_object() -> frozenset[str]:
    """Return the verbs that editors often use without an object: "Stir for a minute"."""
    return frozenset(_read_fitted()["objectless"])


def _read_fitted() -> dict[str, Any]:
    fitted: dict[str, Any] = packaged_json("stepline.writing.extractive", "antecedents.json")
    return fitted


# P(antecedent) from which a pronoun is replaced. Names in six long transcripts were read one
# by one. All seven names of "it" and "them" from here on were right, three of the six between .8
# and it. "This" points at the picture: three of three were wrong, however sure.
MIN_NAME_PROBABILITY: Final = 0.9
# Words of these kinds may come before a thing that is named in front: "SO TWO onions, chop them".
FRONT_PARTS_OF_SPEECH: Final = ("CCONJ", "ADV", "INTJ", "SCONJ", "DET", "PRON")
NAME_PARTS_OF_SPEECH: Final = ("NUM", "ADJ", "NOUN", "PROPN")
# What these act on is work, not a thing: "repeat this on the other side".
WORK_VERBS: Final = frozenset(("do", "repeat", "redo"))
NAMEABLE_PRONOUNS: Final = frozenset(("it", "this", "that", "them", "these", "those", "they"))


class StepNamer:
    """Replaces the pronouns of one narration's steps by their antecedents."""

    def __init__(self, docs: "Sequence[Doc]", readings: Sequence[SentenceReading]) -> None:
        keep_probabilities = []
        self._tokens: list[list[int]] = []  # of each sentence, the first token of each word
        for doc, reading in zip(docs, readings, strict=True):
            kept_probabilities = 1 - reading.edits[:, WORD_EDITS.index("drop")]
            token_probabilities = []
            first_tokens = []
            index = 0
            for token in doc:
                if token.i == 0 or doc[token.i - 1].whitespace_:
                    first_tokens.append(token.i)
                keep_probability = 0.0
                if index < len(kept_probabilities):
                    keep_probability = float(kept_probabilities[index])
                token_probabilities.append(keep_probability)
                if token.whitespace_:
                    index += 1
            keep_probabilities.append(token_probabilities)
            self._tokens.append(first_tokens)
        self._docs = docs
        self._finder = AntecedentFinder(docs, keep_probabilities)

    def name_at(self, sentence: int, index: int) -> str | None:
        """Return the antecedent of the pronoun at a word, without an article, None where unsure."""
        token = self._pronoun(sentence, index)
        if token is None:
            return None
        pronoun = self._docs[sentence][token]
        if pronoun.lower_ in DEMONSTRATIVE_PRONOUNS:
            return None
        fronted = _fronted_name(pronoun)
        if fronted is not None:
            return fronted
        antecedent = self._finder.find(sentence, token)
        if antecedent is None or antecedent.probability < MIN_NAME_PROBABILITY:
            return None
        name = antecedent.name
        if name.istitle():
            return name.lower()
        return name

    def likely_names(
        self, sentence: int, word_indices: Sequence[int], min_probability: float = 0.0
    ) -> tuple[str, ...]:
        """Return the most likely antecedents of the pronouns at these words, if that likely."""
        names = []
        for index in word_indices:
            token = self._pronoun(sentence, index)
            if token is None:
                continue
            antecedent = self._finder.find(sentence, token)
            if antecedent is not None and antecedent.probability >= min_probability:
                names.append(antecedent.name)
        return tuple(names)

    def _pronoun(self, sentence: int, index: int) -> int | None:
        """Return the token index of the pronoun at a word, None for another word."""
        first_tokens = self._tokens[sentence]
        if index >= len(first_tokens):
            return None
        token = self._docs[sentence][first_tokens[index]]
        refers_to_work = token.dep_ == "dobj" and token.head.lemma_ in WORK_VERBS
        if refers_to_work or token.lower_ not in NAMEABLE_PRONOUNS:
            return None
        return int(token.i)

    def with_names(self, draft: DraftStep) -> DraftStep | None:
        """Return the step with its pronouns replaced by names, or removed where they can be
        omitted."""
        words: list[DraftWord] = []
        names: set[str] = set()
        for number, word in enumerate(draft.words):
            if not word.is_pronoun or word.index is None:
                words.append(word)
                continue
            name = self.name_at(draft.sentence, word.index)
            is_named = name is not None and any(name in other.text for other in draft.words)
            if name is not None and name not in names and not is_named:
                names.add(name)
                words.append(replace(word, text=f"the {name}"))
            elif not _can_omit_pronoun(draft.words, number):
                words.append(word)
        return replace(draft, words=tuple(words))


def _fronted_name(pronoun: "Token") -> str | None:
    """Return the noun phrase before the clause: "TWO ONIONS, chop THEM fine".

    None for other words before the comma, or where the number does not agree.
    """
    words_before_comma, words_after_comma = _around_comma(pronoun)
    if pronoun.dep_ != "dobj" or not words_before_comma:
        return None
    # Before the comma is one thing alone, and between that and the pronoun nothing is named.
    front_kinds = {token.pos_ for token in words_before_comma}
    between_kinds = {token.pos_ for token in words_after_comma}
    is_thing = front_kinds.issubset(NAME_PARTS_OF_SPEECH)
    if not is_thing or not between_kinds.isdisjoint(NOUN_TAGS):
        return None
    head_noun = words_before_comma[-1]
    if head_noun.pos_ != "NOUN" or head_noun.lemma_.lower() in NON_ANTECEDENT_WORDS:
        return None
    # One and many agree.
    is_plural_pronoun = head_noun.tag_ == "NNS"
    if is_plural_pronoun != (pronoun.lower_ == "them"):
        return None
    name: str = head_noun.doc[words_before_comma[0].i : head_noun.i + 1].text
    # A sentence begins with a capital, a step does not.
    return name[:1].lower() + name[1:]


def _around_comma(pronoun: "Token") -> "tuple[list[Token], list[Token]]":
    """Return the words before the first comma, without openers, and those from there to the
    pronoun.

    Both are empty where no comma precedes it.
    """
    doc = pronoun.doc
    for comma in doc[: pronoun.i]:
        if comma.text != ",":
            continue
        words_before_comma = list(doc[: comma.i])
        while (
            words_before_comma
            and words_before_comma[0].pos_ in FRONT_PARTS_OF_SPEECH
            and words_before_comma[0].lower_ != "no"
        ):
            del words_before_comma[0]
        return words_before_comma, list(doc[comma.i : pronoun.i])
    return [], []


def _can_omit_pronoun(words: Sequence[DraftWord], number: int) -> bool:
    """Return whether a step reads well without the pronoun at an index: "Stir [it] for a minute"."""
    is_between = 0 < number < len(words) - 1
    return is_between and bare_word(words[number - 1].text) in verbs_without_object()
