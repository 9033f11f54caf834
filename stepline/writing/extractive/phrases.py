"""The words of a step: one imperative phrase, short and whole, from the clause that says it."""

import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from stepline.writing.extractive.clauses import Clause
from stepline.writing.extractive.complements import (
    FILLER_ADVERBS,
    Complement,
    KeepProbability,
    complement_tokens,
    verb_complements,
)
from stepline.writing.extractive.english import nouns, verbs, word_set

if TYPE_CHECKING:
    from spacy.tokens import Token

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
    tokens that it rests on.

    Args:
        clause: an action.
        resolve: a pronoun -> its name, None where unsure.
        keep_probability: P(part of the step) of a token; improbable complements are left out.
    """
    verb = clause.verb
    complements = verb_complements(clause, keep_probability)
    resolved = _names_of_pronouns(complements, resolve)
    texts = [_join_tokens(complement, resolved) for complement in complements]
    text = " ".join([_imperative(verb), *texts])
    if clause.voice == "passive":
        # What it is done to: "THE POTATOES are then mashed".
        subject: list[Token] = []
        for child in verb.children:
            if child.dep_ == "nsubjpass":
                subject += complement_tokens(child)
        later_words = text.split(" ")[1:]
        text = " ".join([_imperative(verb), _join_tokens(subject, resolved), *later_words])

    # a manner that was said before the verb: "GENTLY pry"
    text = _trim_end(text)
    manner_adverb = _manner_before(verb)
    if manner_adverb is not None:
        text = f"{manner_adverb} {text}"
    if clause.is_negated:
        negation = "don't"
        if any(child.lower_ == "never" for child in verb.children):
            negation = "never"
        text = f"{negation} {text}"

    tokens = {verb}
    for complement in complements:
        tokens.update(complement)
    return text, tokens


def _manner_before(verb: "Token") -> str | None:
    for child in verb.children:
        if child.dep_ != "advmod" or child.i >= verb.i:
            continue
        word = str(child.lower_)
        is_filler = word in FILLER_ADVERBS or word in _NON_MANNER_ADVERBS
        if word.endswith("ly") and not is_filler:
            return word
    return None


def _names_of_pronouns(complements: "list[Complement]", resolve: Resolver) -> dict[int, str]:
    """Return token index -> name for the pronouns of a step."""
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
    """Return the tokens joined, pronouns replaced by names, possessives by "the"."""
    pieces: list[str] = []
    previous_token = None
    for token in tokens:
        if previous_token is not None:
            is_adjacent = previous_token.i + 1 == token.i and not previous_token.whitespace_
            pieces.append("" if is_adjacent else " ")
        pieces.append(_word_text(token, resolved))
        previous_token = token
    return "".join(pieces)


def _word_text(token: "Token", resolved: dict[int, str]) -> str:
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
    """Return the text without conjunctions and articles at its end, "ensure that" as "make sure"."""
    words = text.replace("ensure that ", "make sure ").split()
    while len(words) > 1:
        previous_token = words[-1]
        is_mark = not previous_token.strip(",.-")
        if previous_token.strip(",.") not in _NON_FINAL_WORDS and not is_mark:
            break
        words.pop()
    return " ".join(words).rstrip(",.!?;:- ")
