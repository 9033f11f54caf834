"""The words of a step: one imperative phrase from the clause that states the action.

A phrase is the verb with its complements: objects, places, means and conditions, without asides,
joined clauses and fillers. A complement is one dependent of the verb with all words below it in the
parse, as a list of tokens in spoken order.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from stepline.writing.extractive.clauses import (
    CLAUSAL_COMPLEMENT_VERBS,
    RELATIVE_WORDS,
    Clause,
    has_child,
    has_own_object,
    is_separate_action,
)
from stepline.writing.extractive.english import nouns, verbs, word_set
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

# mean of a complement's words from which it stays; its verb was chosen
MIN_COMPLEMENT_KEEP_PROBABILITY = 0.3
# of a clause that says which or where: "a spot where you can walk around it"
MIN_ASIDE_KEEP_PROBABILITY = 0.6


def verb_complements(
    clause: Clause, keep_probability: "KeepProbability | None" = None
) -> "list[Complement]":
    """Return the complements of a clause's verb that a step keeps, conditions last.

    Args:
        clause: the clause of the step's action.
        keep_probability: returns P(a token is part of the step), by the tagger. Complements with a
            mean under MIN_COMPLEMENT_KEEP_PROBABILITY are left out. None leaves none out for that.
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
            or _mean_content_keep_probability(complement, keep_probability)
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
    """Return whether the grammatical relation of a verb's dependent makes it part of a step."""
    if child.lower_ == "ok" and child.i == verb.i + 1:
        return True  # the button, which the parser takes for an interjection
    if child.dep_ == "nsubj" and child.i > verb.i:
        return True  # "get your bike up": the parser takes some objects for subjects
    if child.dep_ in _OTHER_RELATIONS:
        return False
    if child.dep_ in ("advmod", "npadvmod"):
        return child.lower_ not in FILLER_ADVERBS and child.i > verb.i
    if child.dep_ == "advcl":
        return _is_kept_clause(child) and not is_separate_action(child)
    if child.dep_ == "ccomp":
        is_relative = any(nested.lower_ in RELATIVE_WORDS for nested in child.subtree)
        return is_relative or verb.lemma_ in CLAUSAL_COMPLEMENT_VERBS
    return True


def _is_kept_clause(clause: "Token") -> bool:
    """Return whether a clause below the verb belongs to the step, by its kind: "until it
    dissolves", "using a ruler", "to lock it"."""
    if clause.tag_ == "VBG" and not has_child(clause, ("aux", "nsubj")):
        return True
    return any(
        child.lower_ in KEPT_CLAUSE_OPENERS
        and child.i < clause.i
        and child.dep_ in ("mark", "aux", "advmod")
        for child in clause.children
    )


def _is_condition(child: "Token") -> bool:
    """Return whether a clause is a condition of the action: "WHEN IT BOILS, turn it down"."""
    is_condition = any(nested.lower_ in CONDITION_OPENERS for nested in child.children)
    return child.dep_ == "advcl" and is_condition


def _governor_qualifiers(verb: "Token") -> "Complement":
    """Return the clauses that qualify the verbs above this one: "IF IT IS DRY, you want to add
    water"."""
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
    """Return the object that a verb shares with a later joined verb, None without one: the
    potatoes of "peel and slice the POTATOES"."""
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


def _mean_content_keep_probability(
    tokens: "Sequence[Token]", keep_probability: "KeepProbability"
) -> float:
    """Return the mean P(a token is part of the step) over the tokens that are no article, pronoun
    or punctuation, 1 without such tokens."""
    probabilities = [
        keep_probability(token) for token in tokens if token.pos_ not in ("DET", "PUNCT", "PRON")
    ]
    return sum(probabilities) / len(probabilities) if probabilities else 1.0


def complement_tokens(
    head: "Token", keep_probability: "KeepProbability | None" = None
) -> "Complement":
    """Return the tokens at and below a head in spoken order, without asides, filler adverbs and
    punctuation at either end.

    Args:
        head: the token that the parser attaches to the verb.
        keep_probability: returns P(a token is part of the step). Asides with a mean of
            MIN_ASIDE_KEEP_PROBABILITY or more stay. None drops all asides.
    """
    tokens = sorted(head.subtree)
    dropped: set[Token] = set()
    for token in tokens:
        if not _is_aside(token, head):
            continue
        aside = list(token.subtree)
        if (
            keep_probability is None
            or _mean_content_keep_probability(aside, keep_probability) < MIN_ASIDE_KEEP_PROBABILITY
        ):
            dropped.update(aside)
    remaining = [token for token in tokens if token not in dropped]
    while remaining and (remaining[0].is_punct or remaining[0].lower_ == "and"):
        remaining.pop(0)
    while remaining and (remaining[-1].is_punct or remaining[-1].dep_ == "cc"):
        remaining.pop()
    return remaining


def _is_aside(token: "Token", head: "Token") -> bool:
    """Return whether a token below a complement's head begins words that a step leaves out: a
    relative clause, a filler adverb, an apposition or another action."""
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


Resolver: TypeAlias = "Callable[[Token], str | None]"  # a pronoun -> its name

# one speaker's own things are "the" things of a step
POSSESSIVE_WORDS = word_set("my our this that these those")
NAMEABLE_PRONOUNS = word_set("it that this them those these")
CLICK_BUTTONS = word_set("right double left shift alt triple")
# adverbs in "ly" that are not a manner of doing
_NON_MANNER_ADVERBS = word_set("early usually finally actually")
# never the last word
_NON_FINAL_WORDS = word_set("and or but then so with to of for into that if until the a")


def imperative_phrase(
    clause: Clause, resolve: Resolver, keep_probability: "KeepProbability"
) -> "tuple[str, set[Token]]":
    """Return a clause as an imperative, "slice the lemons" or "don't overmix the batter", and the
    set of its verb and all tokens of its complements.

    Args:
        clause: the clause of the step's action.
        resolve: returns the name that a pronoun stands for, None where that is not sure.
        keep_probability: returns P(a token is part of the step), by the tagger. Complements with a
            low mean are left out.
    """
    verb = clause.verb
    complements = verb_complements(clause, keep_probability)
    resolved = _names_of_pronouns(complements, resolve)
    texts = [_join_tokens(complement, resolved) for complement in complements]
    if clause.voice == "passive":
        # What it is done to: "THE POTATOES are then mashed".
        subjects = [child for child in verb.children if child.dep_ == "nsubjpass"]
        subject = chain.from_iterable(map(complement_tokens, subjects))
        texts.insert(0, _join_tokens(subject, resolved))
    text = _trim_end(" ".join([_imperative(verb), *texts]))

    # a manner that was said before the verb: "GENTLY pry"
    manner_adverb = _manner_before(verb)
    if manner_adverb is not None:
        text = f"{manner_adverb} {text}"
    if clause.is_negated:
        is_never = any(child.lower_ == "never" for child in verb.children)
        text = f"never {text}" if is_never else f"don't {text}"
    return text, {verb, *chain(*complements)}


def _manner_before(verb: "Token") -> str | None:
    """Return the first adverb in "-ly" before a verb that says how it is done, None without one."""
    for child in verb.children:
        if child.dep_ != "advmod" or child.i >= verb.i:
            continue
        word = str(child.lower_)
        is_filler = word in FILLER_ADVERBS or word in _NON_MANNER_ADVERBS
        if word.endswith("ly") and not is_filler:
            return word
    return None


def _names_of_pronouns(complements: "list[Complement]", resolve: Resolver) -> dict[int, str]:
    """Return the names of the pronouns in a step: token index -> the noun that it stands for."""
    tokens = list(chain(*complements))
    noun_lemmas = {token.lemma_.lower() for token in tokens if token.pos_ == "NOUN"}
    names: dict[int, str] = {}
    for token in tokens:
        if token.lower_ in NAMEABLE_PRONOUNS and token.pos_ in ("PRON", "DET"):
            name = resolve(token)
            if name is None or name in names.values():
                continue
            # A step does not name a thing twice: "place it under the car" is not a car.
            if name.split()[-1].lower() not in noun_lemmas:
                names[token.i] = name
    return names


def _imperative(verb: "Token") -> str:
    """Return a verb's base form as an order writes it, with the button of a click: "right-click"."""
    word = str(verb.lower_)
    if verb.lemma_ == "click":
        before = verb.doc[max(0, verb.i - 2) : verb.i]
        buttons = [token.lower_ for token in before if token.text != "-"]
        if buttons and buttons[-1] in CLICK_BUTTONS:
            return f"{buttons[-1]}-click"
    if re.search(r"(?:^|[^aeiou])[aeiou][^aeiouwxy]ing$", word):
        with_final_e = f"{word.removesuffix('ing')}e"
        if with_final_e in verbs():
            return with_final_e  # "priming" is to prime: "to prim" would double its m
    if word in verbs() and verb.tag_ != "VBG":
        return word
    return str(verb.lemma_).lower()


def _join_tokens(tokens: "Iterable[Token]", resolved: dict[int, str]) -> str:
    """Return tokens as text, with pronouns replaced by their names and possessives by "the".

    Args:
        tokens: in spoken order, perhaps with gaps.
        resolved: index of a pronoun's token -> its name.
    """
    text = ""
    previous = None
    for token in tokens:
        is_attached = previous and previous.i + 1 == token.i and not previous.whitespace_
        if text and not is_attached:
            text += " "
        text += _word_text(token, resolved)
        previous = token
    return text


def _word_text(token: "Token", resolved: dict[int, str]) -> str:
    """Return a token as a step writes it. resolved: index of a pronoun's token -> its name."""
    if token.i in resolved:
        return f"the {resolved[token.i]}"
    if token.lower_ in POSSESSIVE_WORDS and token.dep_ in ("det", "poss"):
        # The parser takes "clockwise" for a noun, and the "one" of "check this one more time".
        noun = token.head
        is_number = noun.pos_ == "NUM" or noun.lower_ == "one"
        if noun.pos_ == "PROPN" or (noun.lemma_.lower() in nouns() and not is_number):
            return "the"
    if token.is_sent_start and token.text != "I":
        return str(token.lower_)
    return str(token.text)


def _trim_end(text: str) -> str:
    """Return the text without conjunctions, articles and punctuation at its end. "ensure that"
    becomes "make sure"."""
    words = text.replace("ensure that ", "make sure ").split()
    while len(words) > 1 and (
        words[-1].strip(",.") in _NON_FINAL_WORDS or not words[-1].strip(",.-")
    ):
        words.pop()
    return " ".join(words).rstrip(",.!?;:- ")
