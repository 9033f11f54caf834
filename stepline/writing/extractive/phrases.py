"""The words of a step: one imperative phrase, short and whole, from the clause that says it."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from stepline.writing.extractive.clauses import Clause
from stepline.writing.extractive.complements import (
    FILLER_ADVERBS,
    Complement,
    KeepProbability,
    limit_length,
    resting_clause,
    token_index,
    tokens_of,
    verb_complements,
)
from stepline.writing.extractive.english import nouns, verbs, word_set
from stepline.writing.extractive.pronouns import INDEFINITE_PRONOUNS, PRONOUNS

if TYPE_CHECKING:
    from spacy.tokens import Token

Resolver: TypeAlias = "Callable[[Token], str | None]"  # a pronoun -> its name

# one speaker's own things are "the" things of a step
POSSESSIVE_WORDS = word_set("my our this that these those")
# "Give it a good whisk" is whisking: nouns that name an action when something is given them.
ACTION_NOUNS = word_set(
    """
    whisk stir shake tap wipe rinse mix toss squeeze press pull spin twist scrub blend pat clean brush rub push
    wash dusting click dust spray knead swirl polish sand coat trim drizzle sprinkle soak turn
    """
)
CLICK_BUTTONS = word_set("right double left shift alt triple")
# adverbs in "ly" that are not a manner of doing
_NON_MANNER_ADVERBS = word_set("early usually finally actually")
# never the last word
_NON_FINAL_WORDS = word_set("and or but then so with to of for into that if until the a")


@dataclass(frozen=True)
class Phrase:
    """An imperative phrase: its text, its source tokens, and token index -> name of its pronouns."""

    text: str
    tokens: "tuple[Token, ...]"
    resolved: dict[int, str]


def imperative_phrase(
    clause: Clause, resolve: Resolver, keep_probability: "KeepProbability | None" = None
) -> Phrase:
    """Return the clause as an imperative: "slice the lemons", "don't overmix the batter".

    Args:
        clause: an action.
        resolve: a pronoun -> its name, None where unsure.
        keep_probability: P(part of the step) of a token; improbable complements are left out.
    """
    verb = clause.verb
    complements = limit_length(verb_complements(clause, keep_probability))
    resolved = _resolved(verb, complements, resolve)
    text = _imperative_text(verb, complements, resolved)
    if clause.voice == "passive":
        # What it is done to: "THE POTATOES are then mashed".
        subject: list[Token] = []
        for child in verb.children:
            if child.dep_ == "nsubjpass":
                subject += tokens_of(child)
        later_words = text.split(" ")[1:]
        text = " ".join([_imperative(verb), _joined_text(subject, resolved), *later_words])
    resting_tokens = resting_clause(verb)
    if resting_tokens:
        text = f"{_trim_end(text)} to {_joined_text(resting_tokens, resolved)}"

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
    return Phrase(text, tuple(sorted(tokens, key=token_index)), resolved)


def _imperative_text(
    verb: "Token", complements: "list[Complement]", resolved: dict[int, str]
) -> str:
    """Return the verb in the imperative, with its complements."""
    given_action = _given_action(verb)
    if given_action is None:
        texts = [_joined_text(complement, resolved) for complement in complements]
        return " ".join([_imperative(verb), *texts])
    action, receiver = given_action
    texts = [action.lemma_, _joined_text(tokens_of(receiver), resolved)]
    for complement in complements:
        first = complement[0]
        if first.i > action.i and first.dep_ in ("prep", "prt", "advcl"):
            texts.append(_joined_text(complement, resolved))
    return " ".join(texts)


def _manner_before(verb: "Token") -> str | None:
    for child in verb.children:
        if child.dep_ != "advmod" or child.i >= verb.i:
            continue
        word = str(child.lower_)
        is_filler = word in FILLER_ADVERBS or word in _NON_MANNER_ADVERBS
        if word.endswith("ly") and not is_filler:
            return word
    return None


def _resolved(verb: "Token", complements: "list[Complement]", resolve: Resolver) -> dict[int, str]:
    """Return token index -> name for the pronouns that the verb acts on."""
    tokens = list(chain(*complements))
    noun_lemmas = {token.lemma_.lower() for token in tokens if token.pos_ == "NOUN"}
    names: dict[int, str] = {}
    for token in tokens:
        is_pronoun = token.lower_ in PRONOUNS and token.pos_ in ("PRON", "DET")
        if is_pronoun and _is_acted_on(token, verb):
            name = resolve(token)
            if name is None or name in names.values():
                continue
            # A step does not name a thing twice: "place it under the car" is not a car.
            if name.split()[-1].lower() not in noun_lemmas:
                names[token.i] = name
    return names


def _is_acted_on(token: "Token", verb: "Token") -> bool:
    """Return whether a token is an object of the verb, of its preposition, or of its clause."""
    head = token.head
    if head == verb and token.dep_ in ("dobj", "dative", "nsubjpass", "npadvmod"):
        return True
    if head.head != verb:
        return False
    if token.dep_ == "pobj":
        return head.lower_ not in ("like", "for", "at", "of")
    return bool(token.dep_ == "nsubj" and head.dep_ == "ccomp")


def _given_action(verb: "Token") -> "tuple[Token, Token] | None":
    """Return (whisk, it) for "give it a whisk", None for any other clause."""
    if verb.lemma_ != "give":
        return None
    receiver = None
    action = None
    for child in verb.children:
        if receiver is None and child.dep_ == "dative" and child.i > verb.i:
            receiver = child
        # "give it two coats" says how many
        is_counted = "nummod" in {nested.dep_ for nested in child.children}
        is_action = child.lemma_ in ACTION_NOUNS and not is_counted
        if action is None and child.dep_ == "dobj" and is_action:
            action = child
    if receiver is None or action is None:
        return None
    return action, receiver


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


def _joined_text(tokens: "Iterable[Token]", resolved: dict[int, str]) -> str:
    """Return the tokens joined, pronouns replaced by names, possessives by "the"."""
    pieces: list[str] = []
    previous_token = None
    for token in tokens:
        word = _word_text(token, resolved)
        if not word:
            continue
        if previous_token is not None:
            is_adjacent = previous_token.i + 1 == token.i and not previous_token.whitespace_
            pieces.append("" if is_adjacent else " ")
        pieces.append(word)
        previous_token = token
    return "".join(pieces)


def _word_text(token: "Token", resolved: dict[int, str]) -> str:
    if token.i in resolved:
        name = resolved[token.i]
        if not name or name in INDEFINITE_PRONOUNS:
            return name
        return f"the {name}"
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
