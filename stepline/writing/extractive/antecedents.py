"""Antecedents of a step's pronouns: a conditional logit over the things named before.

Each thing that the last sentences name is a candidate, and "none of these" is one more. The weights
are learned from editors' steps by lab/writer_training/antecedents.py. A pronoun is replaced only
where an antecedent is nearly certain.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.limits import load_packaged_json
from stepline.numeric import softmax
from stepline.text.narration import SentenceTags
from stepline.text.narration.words import WORD_EDITS, word_set
from stepline.writing.extractive.step_editor import DraftStep, DraftWord

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token


Array = npt.NDArray[np.float64]

MAX_BACK_SENTENCES = 5  # before the pronoun's sentence, in which candidates are sought
MAX_CANDIDATES = 14  # of a pronoun, the nearest ones
PLURAL_PRONOUNS = word_set("them those these they")
DEMONSTRATIVE_PRONOUNS = word_set("this that these those")
OBJECT_ROLES = word_set("dobj nsubjpass dative")
PLACE_ROLES = word_set("pobj")
# Measures and parts: the thing itself comes after "of" ("a bit of glue", "two cups of flour").
MEASURE_NOUNS = word_set(
    """
    bit lot little piece cup tablespoon teaspoon spoon pinch handful pair couple kind sort type scoop splash
    dash bunch drop amount touch dollop drizzle sprinkle layer coat gram ounce pound inch foot set
    """
)
# Times, measures and talk: never what "it" means.
NON_ANTECEDENT_NOUNS = word_set(
    """
    minute second hour day time way thing step part video inch foot degree bit lot kind year week today boil
    simmer place hand finger guy everybody everyone someone people
    """
)
# Words of a noun phrase that name it. Articles, numbers and possessives do not.
NAMING_RELATIONS = ("compound", "amod", "nmod")
EMPTY_WORDS = word_set(
    "other same own little nice good first second whole entire next last few many more"
)
# Nouns that say too little to be put in the place of a pronoun.
NON_ANTECEDENT_WORDS = (
    NON_ANTECEDENT_NOUNS
    | MEASURE_NOUNS
    | word_set("you lot thing stuff video guy one bit minute side end way top bottom size amount")
)


@dataclass(frozen=True)
class Candidate:
    """A noun phrase that can be the antecedent of a later pronoun.

    Attributes:
        name: the noun with its modifiers, without an article.
        stem: lower-case lemma of the noun.
        sentence: index in the narration of the sentence that names it.
        is_plural: whether the noun is plural, or several nouns are joined.
        role: dependency relation to its head, as spaCy names it.
        keep_probability: P(the noun is part of a step), by the tagger.
        count: number of mentions of the noun so far, this one included.
        is_acted_on: whether it is the object of a verb with P(part of a step) of at least .5.
    """

    name: str
    stem: str
    sentence: int
    is_plural: bool
    role: str
    keep_probability: float
    count: int
    is_acted_on: bool

    @property
    def name_in_step(self) -> str:
        """The name as a step writes it: capitals of a whole name come from the start of a sentence."""
        return self.name.lower() if self.name.istitle() else self.name


class AntecedentFinder:
    """Finds the antecedents of the pronouns in one narration."""

    def __init__(
        self, docs: "Sequence[Doc]", keep_probabilities: Sequence[Sequence[float]]
    ) -> None:
        """Collect the noun phrases of all sentences as candidates.

        Args:
            docs: the parsed sentences, in spoken order.
            keep_probabilities: for each sentence, P(the token is part of a step) of each of its
                spaCy tokens.
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
        """Return the candidates that are named before a pronoun, the nearest first.

        They are at most MAX_CANDIDATES, from the pronoun's sentence and MAX_BACK_SENTENCES before.

        Args:
            sentence: index of the pronoun's sentence.
            token: index of the pronoun's spaCy token in its sentence.
        """
        earlier: list[Candidate] = []
        for number in range(sentence, max(-1, sentence - MAX_BACK_SENTENCES - 1), -1):
            for index, candidate in reversed(self.mentions[number]):
                is_before = number < sentence or index < token
                if is_before and len(earlier) < MAX_CANDIDATES:
                    earlier.append(candidate)
        return earlier

    def rank(self, sentence: int, token: int) -> list[tuple[Candidate, float]]:
        """Return the things that may be the antecedent of a pronoun, each with its probability, the
        most likely first.

        Args:
            sentence: index of the pronoun's sentence.
            token: index of the pronoun's spaCy token in its sentence.
        """
        candidates = self.candidates(sentence, token)
        if not candidates:
            return []
        probabilities = candidate_probabilities(
            self.docs[sentence][token].lower_, sentence, candidates, read_antecedent_weights()
        )
        # the same thing named twice is one answer
        probability_by_stem: dict[str, float] = {}
        named: dict[str, Candidate] = {}
        # The last chance is that of "none of them". It has no candidate, and zip drops it.
        for candidate, probability in zip(candidates, probabilities, strict=False):
            stem = named.setdefault(candidate.stem, candidate).stem
            probability_by_stem[stem] = probability_by_stem.get(stem, 0.0) + float(probability)
        stems = sorted(named, key=lambda stem: -probability_by_stem[stem])
        return [(named[stem], probability_by_stem[stem]) for stem in stems]


def _as_candidate(
    noun: "Token", sentence: int, keep_probability: Sequence[float], counts: dict[str, int]
) -> Candidate | None:
    """Return the candidate of a noun phrase, None for a pronoun, a measure or a person.

    Args:
        noun: the head of the phrase.
        sentence: index of its sentence in the narration.
        keep_probability: P(the token is part of a step) of each token of the sentence.
        counts: mentions so far of each noun, by its lemma. This mention is added.
    """
    lemma = noun.lemma_.lower()
    if noun.pos_ not in ("NOUN", "PROPN") or lemma in NON_ANTECEDENT_WORDS or len(lemma) < 2:
        return None
    counts[lemma] = counts.get(lemma, 0) + 1
    # Joined things count as many: "the salt and the pepper".
    is_plural = noun.tag_ in ("NNS", "NNPS") or any(child.dep_ == "conj" for child in noun.children)
    head = noun.head
    return Candidate(
        name=_noun_name(noun),
        stem=lemma,
        sentence=sentence,
        is_plural=is_plural,
        role=noun.dep_,
        keep_probability=float(keep_probability[noun.i]),
        count=counts[lemma],
        is_acted_on=noun.dep_ in OBJECT_ROLES and float(keep_probability[head.i]) >= 0.5,
    )


def _noun_name(noun: "Token") -> str:
    """Return the noun with its modifiers: "our fresh lemon juice from before" -> "fresh lemon
    juice"."""
    words = [noun]
    for child in noun.children:
        is_before = child.dep_ in NAMING_RELATIONS and child.i < noun.i
        if is_before and child.lower_ not in EMPTY_WORDS:
            words.append(child)
            words += [
                nested
                for nested in child.children
                if nested.dep_ == "compound" and nested.i < child.i
            ]
    words.sort(key=lambda word: word.i)
    return " ".join(word.text for word in words)


def candidate_features(pronoun: str, sentence: int, candidates: Sequence[Candidate]) -> Array:
    """Return the features of C candidates and, in the last row, of "no antecedent", (C + 1, F).

    Args:
        pronoun: in lower case.
        sentence: index of the pronoun's sentence.
        candidates: the nearest first.
    """
    rows = []
    is_plural_pronoun = pronoun in PLURAL_PRONOUNS
    is_demonstrative = pronoun in DEMONSTRATIVE_PRONOUNS
    for rank, candidate in enumerate(candidates):
        distance = sentence - candidate.sentence
        is_object = candidate.role in OBJECT_ROLES
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
                float(candidate.is_plural == is_plural_pronoun),
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
    """Return P(antecedent) of each of C candidates and, last, P(no antecedent), (C + 1,).

    Args:
        pronoun: in lower case.
        sentence: index of the pronoun's sentence.
        candidates: the nearest first.
        weights: the logit's weight of each column of `candidate_features`, (F,).
    """
    logits = candidate_features(pronoun, sentence, candidates) @ weights
    probabilities: Array = softmax(logits[None])[0]
    return probabilities


@cache
def read_antecedent_weights() -> Array:
    """Return the fitted weight of each column of `candidate_features`, (F,)."""
    return np.array(
        load_packaged_json("stepline.writing.extractive", "antecedents.json")["weights"]
    )


# P(antecedent) from which a pronoun is replaced. Names in six long transcripts were read one
# by one. All seven names of "it" and "them" from here on were right, three of the six between .8
# and it. "This" points at the picture: three of three were wrong, however sure.
MIN_NAME_PROBABILITY = 0.9
# P from which a step is not joined to one that names something else
MIN_LIKELY_PROBABILITY = 0.5
# What these act on is work, not a thing: "repeat this on the other side".
WORK_VERBS = word_set("do repeat redo")
NAMEABLE_PRONOUNS = word_set("it this that them these those they")


class PronounResolver:
    """Replaces the pronouns in the steps of one narration by their antecedents."""

    def __init__(self, docs: "Sequence[Doc]", sentence_tags: Sequence[SentenceTags]) -> None:
        """Collect the noun phrases of a narration as possible antecedents.

        Args:
            docs: the parsed sentences, in spoken order, words joined by single spaces.
            sentence_tags: the tagger's probabilities of the same sentences.
        """
        keep_probabilities = []
        self._tokens: list[list[int]] = []  # of each sentence, the first token of each word
        for doc, tags in zip(docs, sentence_tags, strict=True):
            kept_probabilities = 1 - tags.edit_probabilities[:, WORD_EDITS.index("drop")]
            token_probabilities = []
            first_tokens = []
            index = 0
            for token in doc:
                if token.i == 0 or doc[token.i - 1].whitespace_:
                    first_tokens.append(token.i)
                is_tagged = index < len(kept_probabilities)
                token_probabilities.append(float(kept_probabilities[index]) if is_tagged else 0.0)
                if token.whitespace_:
                    index += 1
            keep_probabilities.append(token_probabilities)
            self._tokens.append(first_tokens)
        self._docs = docs
        self._finder = AntecedentFinder(docs, keep_probabilities)

    def antecedent_at(self, sentence: int, index: int) -> str | None:
        """Return the antecedent of the pronoun "it", "them" or "they" at a word, without an article.

        None for another word, and where P(antecedent) is under MIN_NAME_PROBABILITY.

        Args:
            sentence: index of the sentence.
            index: index of the word in the sentence.
        """
        token = self._pronoun(sentence, index)
        if token is None:
            return None
        pronoun = self._docs[sentence][token]
        if pronoun.lower_ in DEMONSTRATIVE_PRONOUNS:
            return None
        for candidate, probability in self._finder.rank(sentence, token)[:1]:
            if probability >= MIN_NAME_PROBABILITY:
                return candidate.name_in_step
        return None

    def likely_antecedents(
        self,
        sentence: int,
        word_indices: Sequence[int],
        min_probability: float = MIN_LIKELY_PROBABILITY,
    ) -> tuple[str, ...]:
        """Return the likely antecedents of the pronouns among some words of a sentence.

        Args:
            sentence: index of the sentence.
            word_indices: indices of the words. Other words than pronouns are ignored.
            min_probability: antecedents that are less likely than this are left out.
        """
        names = []
        for index in word_indices:
            names += [
                candidate.name
                for candidate, probability in self.rank_at(sentence, index)[:1]
                if probability >= min_probability
            ]
        return tuple(names)

    def rank_at(self, sentence: int, index: int) -> list[tuple[Candidate, float]]:
        """Return the things that the pronoun at a word may mean, each with its probability, the most
        likely first. The list is empty for another word.

        Args:
            sentence: index of the sentence.
            index: index of the word in the sentence.
        """
        token = self._pronoun(sentence, index)
        return [] if token is None else self._finder.rank(sentence, token)

    def _pronoun(self, sentence: int, index: int) -> int | None:
        """Return the index of the spaCy token of the pronoun at a word.

        None for another word, and for a pronoun that stands for work ("do it again").
        """
        first_tokens = self._tokens[sentence]
        if index >= len(first_tokens):
            return None
        token = self._docs[sentence][first_tokens[index]]
        refers_to_work = token.dep_ == "dobj" and token.head.lemma_ in WORK_VERBS
        if refers_to_work or token.lower_ not in NAMEABLE_PRONOUNS:
            return None
        return int(token.i)

    def replace_pronouns(self, draft: DraftStep) -> DraftStep:
        """Return the draft step with "the" and a name for each pronoun whose antecedent is nearly
        certain and not named in the step."""
        words: list[DraftWord] = []
        names: set[str] = set()
        for word in draft.words:
            if not word.is_pronoun or word.index is None:
                words.append(word)
                continue
            name = self.antecedent_at(draft.sentence_index, word.index)
            is_named = name is not None and any(name in other.text for other in draft.words)
            if name is not None and name not in names and not is_named:
                names.add(name)
                words.append(replace(word, text=f"the {name}"))
            else:
                words.append(word)
        return replace(draft, words=tuple(words))
