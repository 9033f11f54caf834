"""Complements of a step's verb: objects, places, means and conditions.

No asides, joined clauses or fillers. A complement is what the parser hangs on the verb, a list of
its tokens in order.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from stepline.writing.extractive.clauses import (
    CLAUSAL_COMPLEMENT_VERBS,
    RELATIVE_WORDS,
    Clause,
    has_child,
    has_own_object,
)
from stepline.writing.extractive.english import word_set
from stepline.writing.extractive.segments import CONDITION_OPENERS

if TYPE_CHECKING:
    from spacy.tokens import Token

NOUN_TAGS = ("NOUN", "PROPN")
# Qualifying clauses that belong to the step: until when, under which condition, by what means, for
# what.
KEPT_CLAUSE_OPENERS = word_set(
    "until till if so before without by unless to that while when once after"
)
# Adverbs of order or emphasis, without meaning for the action.
FILLER_ADVERBS = word_set(
    """
    then now first next finally also here there just again too well so anyway basically actually really simply
    maybe probably definitely already once afterwards obviously instead even pretty
    """
)
INTRANSITIVE_VERBS = word_set(
    "click tap wait stop pause go come stand sit breathe"
)  # need no object
OBJECT_RELATIONS = word_set("dobj prep prt xcomp ccomp oprd acomp")
MAX_SHARED_REACH = 4  # tokens from a verb to the one that brings the object of both
_OTHER_RELATIONS = word_set(
    "conj cc preconj punct nsubj nsubjpass aux auxpass neg mark intj parataxis dep"
)


Complement: TypeAlias = "list[Token]"  # in order
KeepProbability: TypeAlias = "Callable[[Token], float]"  # P(a word is part of the step)

MIN_COMPLEMENT_KEEP_PROBABILITY = (
    0.3  # mean of a complement's words from which it stays; its verb was chosen
)
MIN_ASIDE_KEEP_PROBABILITY = (
    0.6  # of a clause that says which or where: "a spot where you can walk around it"
)


def verb_complements(
    clause: Clause, keep_probability: "KeepProbability | None" = None
) -> "list[Complement]":
    """Return the verb's complements in a step, each a list of tokens, conditions last.

    keep_probability: P(part of the step) of a token; improbable complements are left out.
    """
    verb = clause.verb

    # complements: those after the verb, then conditions before it
    after = []
    before = []
    for child in verb.children:
        if not _belongs_to_step(verb, child):
            continue
        # "WITH A SPOON I make a hole"
        names_a_thing = child.dep_ == "prep" and any(
            nested.pos_ in NOUN_TAGS for nested in child.children
        )
        if child.i > verb.i:
            after.append(child)
        elif (keep_probability is not None and names_a_thing) or _is_condition(child):
            before.append(child)
    before += _governor_qualifiers(verb)
    complements = []
    for head in [*after, *before]:
        complement = complement_tokens(head, keep_probability)
        if (
            keep_probability is None
            or _mean_keep_probability(complement, keep_probability)
            >= MIN_COMPLEMENT_KEEP_PROBABILITY
        ):
            complements.append(complement)

    # the object, where the parser has it elsewhere
    if not _has_object(verb):
        shared_object = _shared_object(clause)
        if shared_object is not None:
            complements.insert(0, complement_tokens(shared_object))
    return [complement for complement in complements if complement]


def _belongs_to_step(verb: "Token", child: "Token") -> bool:
    if child.lower_ == "ok" and child.i == verb.i + 1:
        return True  # the button, which the parser takes for an interjection
    if child.dep_ == "nsubj" and child.i > verb.i:
        return True  # "get your bike up": the parser takes some objects for subjects
    if child.dep_ in _OTHER_RELATIONS:
        return False
    if child.dep_ in ("advmod", "npadvmod"):
        return child.lower_ not in FILLER_ADVERBS and child.i > verb.i
    if child.dep_ == "advcl":
        return _is_kept_clause(child)
    if child.dep_ == "ccomp":
        is_relative = any(nested.lower_ in RELATIVE_WORDS for nested in child.subtree)
        return is_relative or verb.lemma_ in CLAUSAL_COMPLEMENT_VERBS
    return True


def _is_kept_clause(clause: "Token") -> bool:
    """Return whether a clause belongs to the step: "until it dissolves", "using a ruler", "to lock
    it"."""
    if clause.tag_ == "VBG" and not has_child(clause, ("aux", "nsubj")):
        return True
    for child in clause.children:
        is_opener = child.i < clause.i and child.dep_ in ("mark", "aux", "advmod")
        if is_opener and child.lower_ in KEPT_CLAUSE_OPENERS:
            return True
    return False


def _is_condition(child: "Token") -> bool:
    """Return whether a clause is a condition of the action: "WHEN IT BOILS, turn it down"."""
    is_condition = any(nested.lower_ in CONDITION_OPENERS for nested in child.children)
    return child.dep_ == "advcl" and is_condition


def _governor_qualifiers(verb: "Token") -> "Complement":
    """Return the clauses of the verbs that govern this one: "if it is dry, you want to ADD water"."""
    qualifiers: list[Token] = []
    while verb.dep_ == "xcomp":
        end = verb.i
        verb = verb.head
        for child in verb.children:
            if child.dep_ != "advcl":
                continue
            if _is_condition(child) or (child.i > end and _is_kept_clause(child)):
                qualifiers.append(child)
    return qualifiers


def _has_object(verb: "Token") -> bool:
    return any(child.dep_ in OBJECT_RELATIONS and child.i > verb.i for child in verb.children)


def _shared_object(clause: Clause) -> "Token | None":
    """Return the object of a later joined verb: "peel and slice the POTATOES"."""
    verb = clause.verb
    is_last_token = verb.i + 1 >= len(verb.doc)
    if is_last_token or verb.lemma_ in INTRANSITIVE_VERBS:
        return None
    after = verb.nbor()
    if after.dep_ not in ("cc", "punct", "conj") and after.lower_ != "then":
        return None
    for child in verb.children:
        is_near = child.i - verb.i <= MAX_SHARED_REACH
        if child.dep_ != "conj" or child.pos_ != "VERB" or not is_near:
            continue
        for nested in child.children:
            if nested.dep_ == "dobj" and nested.i > child.i:
                return nested
        nested_object = _shared_object(Clause(child, clause.voice))
        if nested_object is not None and not _has_object(child):
            return nested_object
    return None


def _mean_keep_probability(
    complement: "Sequence[Token]", keep_probability: "KeepProbability"
) -> float:
    """Return the mean P(kept) of the content words, 1 for a pronoun alone."""
    probabilities = [
        keep_probability(token)
        for token in complement
        if token.pos_ not in ("DET", "PUNCT", "PRON")
    ]
    return sum(probabilities) / len(probabilities) if probabilities else 1.0


def complement_tokens(
    head: "Token", keep_probability: "KeepProbability | None" = None
) -> "Complement":
    """Return the tokens of a complement in order, without asides and filler adverbs.

    keep_probability: P(part of the step) of a token; probable asides stay.
    """
    tokens = sorted(head.subtree, key=token_index)
    dropped: set[int] = set()
    for token in tokens:
        if not _is_aside(token, head):
            continue
        aside = list(token.subtree)
        if (
            keep_probability is None
            or _mean_keep_probability(aside, keep_probability) < MIN_ASIDE_KEEP_PROBABILITY
        ):
            dropped.update(map(token_index, aside))
    remaining = [token for token in tokens if token.i not in dropped]
    while remaining and (remaining[0].is_punct or remaining[0].lower_ == "and"):
        remaining.pop(0)
    while remaining and (remaining[-1].is_punct or remaining[-1].dep_ == "cc"):
        remaining.pop()
    return remaining


def token_index(token: "Token") -> int:
    """Return the index of a token in its document, as a sort key."""
    return int(token.i)


def _is_aside(token: "Token", head: "Token") -> bool:
    if token is head:
        return False
    if token.dep_ in ("relcl", "intj", "parataxis"):
        return True
    if token.lower_ == "so" and has_child(token.head, ("nsubj",)):
        return False  # "so your knees line up"
    doc = token.doc
    if token.lower_ == "well":
        # "the ginger AS WELL AS three cloves of garlic"
        neighbours = doc[max(0, token.i - 1) : token.i + 2]
        if [word.lower_ for word in neighbours] == ["as", "well", "as"]:
            return False
    if token.dep_ == "advmod" and token.lower_ in FILLER_ADVERBS:
        if token.head.pos_ in ("VERB", "AUX"):
            return True
        if token.head.pos_ == "ADP":
            return token.lower_ not in ("here", "there")
    if token.dep_ == "appos":
        # "the peas, the juice of a lemon and some salt" is still a list
        return not has_child(token, ("conj", "appos"))
    if token.dep_ == "conj" and token.pos_ == "VERB":
        if token.head.pos_ in NOUN_TAGS:
            return True  # an action that the parser hung on a noun: a step of its own, or talk
        if token.head.dep_ == "ccomp" and has_own_object(token):
            return True  # "let it dry, then sand it": the sanding is a step of its own
    return token.dep_ == "advcl" and not _is_kept_clause(token)
