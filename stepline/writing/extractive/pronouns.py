"""Pronoun resolution for steps: the noun of a pronoun, where that is safe. Elsewhere the
pronoun stays.

Safe means: the nearest clause that names a thing of the same number names one only. In the same
sentence the thing acted on counts before places and tools ("stir the soup in the pot and taste
it"). Across sentences a place that the thing went into is a rival. Then only what was being made
can be meant ("I make my syrup: whisk the sugar into the water. Set that aside").
"""

from collections.abc import Iterator, Sequence
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
DEMONSTRATIVE_PRONOUNS = word_set(
    "this that these those"
)  # across sentences they mostly point at the picture
MAX_BACK_SENTENCES = 2  # sentences back; further away a pronoun means something else too often
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
NON_ANTECEDENT_NOUNS = word_set(
    """
    minute second hour day time way thing step part video inch foot degree bit lot kind year week today boil
    simmer place hand finger guy everybody everyone someone people
    """
)
# Words of a noun phrase that name it. Articles, numbers and possessives do not.
_NAMING_RELATIONS = ("compound", "amod", "nmod")
_EMPTY_WORDS = word_set(
    "other same own little nice good first second whole entire next last few many more"
)


@dataclass(frozen=True)
class Mention:
    """A named thing: its words without an article, its number, its role in the clause."""

    name: str
    number: Number
    role: Role


@dataclass
class Mentions:
    """The things named so far, by clause."""

    # (sentence, what it names)
    clauses: list[tuple[int, tuple[Mention, ...]]] = field(default_factory=list)

    def add(self, sentence: int, mentions: tuple[Mention, ...]) -> None:
        """Add the things that a clause names. An empty clause still makes the others older."""
        self.clauses.append((sentence, mentions))

    def resolve(self, pronoun: str, sentence: int) -> str | None:
        """Return the antecedent of a pronoun, None where it is ambiguous."""
        number = PRONOUN_NUMBERS[pronoun]
        for clauses_back, (clause_sentence, mentions) in enumerate(reversed(self.clauses)):
            if sentence - clause_sentence > MAX_BACK_SENTENCES:
                return None
            matching = []
            for mention in mentions:
                # a tool is meant only right after its own clause
                is_near = mention.role != "tool" or not clauses_back
                if mention.number == number and is_near:
                    matching.append(mention)
            if not matching:
                continue
            same_sentence = clause_sentence == sentence
            name = None
            if same_sentence or pronoun not in DEMONSTRATIVE_PRONOUNS:
                name = _only_antecedent(matching, same_sentence=same_sentence)
            return name or self._product(clause_sentence, number)
        return None

    def _product(self, sentence: int, number: Number) -> str | None:
        """Return the only thing that a sentence says is being made, None otherwise."""
        names = set()
        for clause_sentence, mentions in reversed(self.clauses):
            if clause_sentence < sentence:
                break  # they come in order
            if clause_sentence > sentence:
                continue
            for mention in mentions:
                if mention.role == "product" and mention.number == number:
                    names.add(mention.name)
        return _only_name(names) or None


def _only_name(names: set[str]) -> str | None:
    if len(names) != 1:
        return None
    return names.pop()


def _only_antecedent(matching: list[Mention], *, same_sentence: bool) -> str | None:
    """Return the only possible antecedent. An unresolved pronoun has the name "" and blocks."""
    acted_on = [mention for mention in matching if mention.role in ("object", "product")]
    place_mentions = [mention for mention in matching if mention.role == "place"]
    competitors = acted_on or place_mentions or matching
    if acted_on and not same_sentence:
        competitors = acted_on + place_mentions
    names = {mention.name for mention in competitors if mention.role != "product"}
    if not names:
        names = {mention.name for mention in competitors}
    return _only_name(names) or None


def mentions_of(verb: "Token", resolved: dict[int, str]) -> tuple[Mention, ...]:
    """Return what a verb's clause names. resolved: token index -> name of its pronouns."""
    mentions = []
    for token, role in _things_acted_on(verb):
        mention = _as_mention(token, role, resolved)
        last_word = mention.name.split(" ")[-1]
        if mention.name not in NON_ANTECEDENT_NOUNS and last_word != "-":
            mentions.append(mention)
    return tuple(mentions)


def _things_acted_on(verb: "Token") -> "Iterator[tuple[Token, Role]]":
    """Yield the things that a clause names, each with its role."""
    for child in verb.children:
        is_recipient = child.dep_ == "dative" and child.pos_ in ("NOUN", "PRON")
        if child.dep_ == "dobj" and verb.lemma_ in MAKING_VERBS:
            yield child, "product"
        elif child.dep_ in ("dobj", "nsubjpass") or is_recipient:
            yield child, "object"
        elif child.dep_ == "prep":
            role = _prepositional_role(verb, child)
            if role is not None:
                for nested in _children(child, ("pobj",)):
                    yield nested, role
        if child.dep_ == "dobj" and verb.lemma_ in FILLING_VERBS:
            for token in _with_complements(child):
                yield token, "object"
        if child.dep_ in ("ccomp", "xcomp") and verb.lemma_ in ("let", "ensure", "make"):
            for nested in _children(child, ("nsubj",)):
                yield nested, "object"


def _children(head: "Token", relations: Sequence[str]) -> "list[Token]":
    return [child for child in head.children if child.dep_ in relations]


def _with_complements(thing: "Token") -> "list[Token]":
    """Return the nouns that the parser attached by "with": "the hole with SOIL"."""
    things: list[Token] = []
    for child in _children(thing, ("prep",)):
        if child.lower_ == "with":
            things += child.children
    return things


def _prepositional_role(verb: "Token", preposition: "Token") -> Role | None:
    """Return the role of a preposition's object, None for times and purposes ("for ten minutes")."""
    if preposition.lower_ in ("with", "using"):
        if verb.lemma_ in FILLING_VERBS:
            return "object"
        return "tool"
    if preposition.lower_ in ("for", "at", "by", "of", "about"):
        return None
    if not _children(verb, ("dobj",)):
        return "object"  # "click on the layer": still what the verb acts on
    if preposition.lower_ in INTO_PREPOSITIONS:
        return "place"
    return None


def mentions_before(verb: "Token") -> tuple[Mention, ...]:
    """Return the things in a clause before the verb: "once THE SAUCE is thick, pour it"."""
    # the verb, and those that carry it
    governors = [verb]
    while governors[-1].dep_ in ("xcomp", "conj", "ccomp"):
        head = governors[-1].head
        if head is governors[-1]:
            break
        governors.append(head)

    # subjects and objects of the clauses before it
    mentions = []
    for governor in governors:
        for clause in _children(governor, ("advcl",)):
            if clause.i >= verb.i or not _children(clause, ("nsubj", "nsubjpass")):
                continue
            for nested in _children(clause, ("nsubj", "nsubjpass", "dobj")):
                is_thing = nested.pos_ in ("NOUN", "PROPN") or nested.lower_ in INDEFINITE_PRONOUNS
                if is_thing:
                    mentions.append(_as_mention(nested, "object", {}))
    return tuple(mention for mention in mentions if mention.name not in NON_ANTECEDENT_NOUNS)


def mentions_in(doc: "Doc") -> tuple[Mention, ...]:
    """Return the things in a sentence without an action: named after "there is", else as unknown."""
    mentions = []
    for token in doc:
        if token.pos_ != "NOUN" or token.dep_ not in ("nsubj", "nsubjpass", "dobj", "attr"):
            continue
        mention = _as_mention(token, "object", {})
        if mention.name in NON_ANTECEDENT_NOUNS:
            continue
        has_there = bool(_children(token.head, ("expl",)))
        if token.dep_ != "attr" or not has_there:
            mention = replace(mention, name="")
        mentions.append(mention)
    return tuple(mentions)


def _as_mention(token: "Token", role: Role, resolved: dict[int, str]) -> Mention:
    if token.i in resolved:
        return Mention(resolved[token.i], PRONOUN_NUMBERS[token.lower_], role)
    if token.lower_ in PRONOUN_NUMBERS and token.pos_ in ("PRON", "DET"):
        return Mention("", PRONOUN_NUMBERS[token.lower_], role)
    nouns = [thing for thing in measured_things(token) if thing.pos_ in ("NOUN", "PROPN")]
    if nouns:
        token = nouns[0]
    name = noun_name(token)
    if token.lemma_.lower() in NON_ANTECEDENT_NOUNS:
        name = token.lemma_.lower()
    numerals = [child.lower_ for child in _children(token, ("nummod",))]
    number: Number = "one"
    if not set(numerals) <= {"one", "half", "1"} or token.tag_ in ("NNS", "NNPS"):
        number = "many"
    conjuncts = _children(token, ("conj",))
    if conjuncts:
        number = "many"
        name = " and ".join([name, *map(noun_name, conjuncts)])
    return Mention(name, number, role)


def measured_things(token: "Token") -> "list[Token]":
    """Return the nouns after a measure: the glue of "a bit of glue". Empty for another noun."""
    things: list[Token] = []
    if token.lemma_.lower() in MEASURE_NOUNS:
        for child in _children(token, ("prep",)):
            if child.lower_ == "of":
                things += _children(child, ("pobj",))
    return things


def noun_name(token: "Token") -> str:
    """Return the noun with its modifiers: "our fresh lemon juice from before" -> "fresh lemon
    juice"."""
    words = []
    for child in _children(token, _NAMING_RELATIONS):
        if child.i >= token.i or child.lower_ in _EMPTY_WORDS:
            continue
        words.append(child)
        words += [nested for nested in _children(child, ("compound",)) if nested.i < child.i]
    words.sort(key=lambda word: word.i)
    return " ".join(word.text for word in [*words, token])
