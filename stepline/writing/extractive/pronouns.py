"""Pronoun resolution for steps: which noun a pronoun stands for, where that is safe; elsewhere the
pronoun stays.

Safe means: the nearest clause that names a thing of the same number names one only. In the same
sentence the thing acted on counts before places and tools ("stir the soup in the pot and taste
it"); across sentences a place that the thing went into is a rival, and then only what was being
made can be meant ("I make my syrup: whisk the sugar into the water. Set that aside").
"""

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from stepline.writing.extractive.english import word_set

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

Number: TypeAlias = Literal["one", "many"]
Role: TypeAlias = Literal["object", "place", "tool", "product"]

PRONOUN_NUMBERS: dict[str, Number] = {
    "it": "one",
    "that": "one",
    "this": "one",
    "them": "many",
    "those": "many",
    "these": "many",
}
INDEFINITE_PRONOUNS = word_set("everything all both")  # names of their own, without an article
POINTING_PRONOUNS = word_set(
    "this that these those"
)  # across sentences they mostly point at the picture
REACH_SENTENCES = 2  # sentences back; further away a pronoun means something else too often
INTO_PREPOSITIONS = word_set(
    "into in on onto to inside over"
)  # what goes there joins it: a rival for "it"
# their object is what the work results in
MAKING_VERBS = word_set("make prepare create build bake sew knit")
# What these put on or into a thing is as likely meant as the thing: "fill the hole with soil and
# press it down".
FILLING_VERBS = word_set(
    "fill cover coat stuff load pack top line sprinkle brush rub spray spread dust grease season"
)
# Measures and parts: the thing itself comes after "of" ("a bit of glue", "two cups of flour").
MEASURE_NOUNS = word_set(
    """
    bit lot little piece cup tablespoon teaspoon spoon pinch handful pair couple kind sort type scoop splash
    dash bunch drop amount touch dollop drizzle sprinkle layer coat gram ounce pound inch foot set
    """
)
# Times, measures and talk: never what "it" means.
NEVER_MEANT = word_set(
    """
    minute second hour day time way thing step part video inch foot degree bit lot kind year week today boil
    simmer place hand finger guy everybody everyone someone people
    """
)
# Words of a noun phrase that name it; articles, numbers and possessives do not.
_NAMING_RELATIONS = frozenset(("compound", "amod", "nmod"))
_EMPTY_WORDS = word_set(
    "other same own little nice good first second whole entire next last few many more"
)


@dataclass(frozen=True)
class Mention:
    """A thing that was named: its words without an article, its number, its role in the clause."""

    name: str
    number: Number
    role: Role


@dataclass
class Mentions:
    """What was named so far, clause by clause."""

    # (sentence, what it names)
    clauses: list[tuple[int, tuple[Mention, ...]]] = field(default_factory=list)

    def add(self, sentence: int, mentions: tuple[Mention, ...]) -> None:
        """Remember what a clause of this sentence names; one that names nothing still pushes the
        others back."""
        self.clauses.append((sentence, mentions))

    def resolve(self, pronoun: str, sentence: int) -> str | None:
        """Return the name that the pronoun stands for, or None where that is not safe."""
        number = PRONOUN_NUMBERS[pronoun]
        for back, (said_in, mentions) in enumerate(reversed(self.clauses)):
            if sentence - said_in > REACH_SENTENCES:
                return None
            fitting = [
                mention
                for mention in mentions
                if mention.number == number and (mention.role != "tool" or not back)
            ]
            if fitting and pronoun in POINTING_PRONOUNS and said_in != sentence:
                return self._product(said_in, number)
            if fitting:
                return _single(fitting, same_sentence=said_in == sentence) or self._product(
                    said_in, number
                )
        return None

    def _product(self, sentence: int, number: Number) -> str | None:
        """Return the one thing that a sentence says is being made."""
        # they come in order
        latest = itertools.takewhile(lambda clause: clause[0] >= sentence, reversed(self.clauses))
        said = [
            mention for said_in, mentions in latest if said_in == sentence for mention in mentions
        ]
        names = {
            mention.name
            for mention in said
            if mention.role == "product" and mention.number == number
        }
        return names.pop() if len(names) == 1 else None


def _single(fitting: list[Mention], *, same_sentence: bool) -> str | None:
    """Return the one thing that is meant; an unknown thing (an unresolved pronoun) is named "" and
    blocks."""
    acted_on = [mention for mention in fitting if mention.role in ("object", "product")]
    rivals = acted_on or [mention for mention in fitting if mention.role == "place"] or fitting
    if acted_on and not same_sentence:
        rivals = acted_on + [mention for mention in fitting if mention.role == "place"]
    names = {mention.name for mention in rivals if mention.role != "product"} or {
        mention.name for mention in rivals
    }
    return names.pop() or None if len(names) == 1 else None


def mentions_of(verb: "Token", resolved: dict[int, str]) -> tuple[Mention, ...]:
    """Return what the clause of a verb names; `resolved` holds the names of its pronouns by token
    index."""
    found: list[Mention] = []
    for child in verb.children:
        if child.dep_ == "dobj" and verb.lemma_ in MAKING_VERBS:
            found.append(_mention(child, "product", resolved))
        elif child.dep_ in ("dobj", "nsubjpass") or (
            child.dep_ == "dative" and child.pos_ in ("NOUN", "PRON")
        ):
            found.append(_mention(child, "object", resolved))
        elif child.dep_ == "prep":
            placed = _placed(verb, child)
            found.extend(
                _mention(deep, placed, resolved)
                for deep in child.children
                if placed and deep.dep_ == "pobj"
            )
        if child.dep_ == "dobj" and verb.lemma_ in FILLING_VERBS:
            found.extend(_mention(token, "object", resolved) for token in _with(child))
        if child.dep_ in ("ccomp", "xcomp") and verb.lemma_ in ("let", "ensure", "make"):
            found.extend(
                _mention(deep, "object", resolved)
                for deep in child.children
                if deep.dep_ == "nsubj"
            )
    return tuple(
        mention
        for mention in found
        if mention.name not in NEVER_MEANT and mention.name.split(" ")[-1:] != ["-"]
    )


def _with(thing: "Token") -> "list[Token]":
    """Return what the parser hung on the thing by "with": "the hole with SOIL"."""
    return [
        deep
        for child in thing.children
        if child.dep_ == "prep" and child.lower_ == "with"
        for deep in child.children
    ]


def _placed(verb: "Token", preposition: "Token") -> Role | None:
    """Return the role of what a preposition names; None for times and purposes ("for ten
    minutes")."""
    if preposition.lower_ in ("with", "using"):
        return "object" if verb.lemma_ in FILLING_VERBS else "tool"
    if preposition.lower_ in ("for", "at", "by", "of", "about"):
        return None
    if not any(child.dep_ == "dobj" for child in verb.children):
        return "object"  # "click on the layer": what the verb acts on all the same
    return "place" if preposition.lower_ in INTO_PREPOSITIONS else None


def mentions_before(verb: "Token") -> tuple[Mention, ...]:
    """Return what a clause in front of the verb is about: "once THE SAUCE is thick, pour it"."""
    carriers = [verb]
    while carriers[-1].dep_ in ("xcomp", "conj", "ccomp") and carriers[-1].head is not carriers[-1]:
        carriers.append(carriers[-1].head)
    named = [
        _mention(deep, "object", {})
        for carrier in carriers
        for child in carrier.children
        if child.dep_ == "advcl"
        and child.i < verb.i
        and any(deep.dep_ in ("nsubj", "nsubjpass") for deep in child.children)
        for deep in child.children
        if deep.dep_ in ("nsubj", "nsubjpass", "dobj")
        and (deep.pos_ in ("NOUN", "PROPN") or deep.lower_ in INDEFINITE_PRONOUNS)
    ]
    return tuple(mention for mention in named if mention.name not in NEVER_MEANT)


def mentions_in(doc: "Doc", *, announced: bool = False) -> tuple[Mention, ...]:
    """Return what a segment without any action names: "there's a little clip" by name, all else as
    unknown rivals.

    announced: a word of order stood before it, so that what something "is" is what comes: "first up
    are SQUATS".
    """
    named = [
        token
        for token in doc
        if token.dep_ in ("nsubj", "nsubjpass", "dobj", "attr") and token.pos_ == "NOUN"
    ]
    mentions = [_mention(token, "object", {}) for token in named]
    shown = [
        token.dep_ == "attr" and any(child.dep_ == "expl" for child in token.head.children)
        for token in named
    ]
    if (
        announced
        and len(named) == 1
        and named[0].head.lemma_ == "be"
        and named[0].i > named[0].head.i
    ):
        return (replace(mentions[0], role="product"),)
    return tuple(
        mention if by_name else replace(mention, name="")
        for mention, by_name in zip(mentions, shown, strict=True)
        if mention.name not in NEVER_MEANT
    )


def _mention(token: "Token", role: Role, resolved: dict[int, str]) -> Mention:
    if token.i in resolved:
        return Mention(resolved[token.i], PRONOUN_NUMBERS[token.lower_], role)
    if token.lower_ in PRONOUN_NUMBERS and token.pos_ in ("PRON", "DET"):
        return Mention("", PRONOUN_NUMBERS[token.lower_], role)
    token = _measured(token)
    name = noun_name(token)
    if token.lemma_.lower() in NEVER_MEANT:
        name = token.lemma_.lower()
    joined = any(child.dep_ == "conj" for child in token.children)
    counted = any(
        child.dep_ == "nummod" and child.lower_ not in ("one", "half", "1")
        for child in token.children
    )
    plural = joined or counted or token.tag_ in ("NNS", "NNPS")
    if joined:
        names = [name, *(noun_name(child) for child in token.children if child.dep_ == "conj")]
        name = " and ".join(names)
    return Mention(name, "many" if plural else "one", role)


def _measured(token: "Token") -> "Token":
    """Return the thing that a measure measures: the glue of "a bit of glue"."""
    if token.lemma_.lower() not in MEASURE_NOUNS:
        return token
    for child in token.children:
        if child.dep_ == "prep" and child.lower_ == "of":
            for deep in child.children:
                if deep.dep_ == "pobj" and deep.pos_ in ("NOUN", "PROPN"):
                    return deep
    return token


def noun_name(token: "Token") -> str:
    """Return the words that name a thing: "our fresh lemon juice from before" gives "fresh lemon
    juice"."""
    words = [
        child
        for child in token.children
        if child.dep_ in _NAMING_RELATIONS
        and child.i < token.i
        and child.lower_ not in _EMPTY_WORDS
    ]
    words.extend(
        deep
        for child in list(words)
        for deep in child.children
        if deep.dep_ == "compound" and deep.i < child.i
    )
    return " ".join(word.text for word in [*sorted(words, key=lambda word: word.i), token])
