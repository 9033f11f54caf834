"""The words of a step: one imperative phrase, short and whole, from the clause that says it."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from stepline.writing.extractive.clauses import Clause
from stepline.writing.extractive.complements import (
    HOLLOW_ADVERBS,
    Complement,
    KeepChance,
    parts_of,
    rests_of,
    shortened,
    token_index,
    tokens_of,
)
from stepline.writing.extractive.english import nouns, verbs, word_set
from stepline.writing.extractive.pronouns import INDEFINITE_PRONOUNS, PRONOUN_NUMBERS

if TYPE_CHECKING:
    from spacy.tokens import Token

Resolver: TypeAlias = "Callable[[Token], str | None]"  # a pronoun -> its name

# one speaker's own things are "the" things of a step
OWN_WORDS = word_set("my our this that these those")
# "Give it a good whisk" is whisking: nouns that name an action when something is given them.
ACTION_NOUNS = word_set(
    """
    whisk stir shake tap wipe rinse mix toss squeeze press pull spin twist scrub blend pat clean brush rub push
    wash dusting click dust spray knead swirl polish sand coat trim drizzle sprinkle soak turn
    """
)
CLICK_BUTTONS = word_set("right double left shift alt triple")
# adverbs in "ly" that are not a manner of doing
_NO_MANNERS = word_set("early usually finally actually")
# never the last word
_TAIL_WORDS = word_set("and or but then so with to of for into that if until the a")


@dataclass(frozen=True)
class Phrase:
    """The step's text, the tokens it was made of, and the pronouns in it that were given a name."""

    text: str
    tokens: "tuple[Token, ...]"
    resolved: dict[int, str]


def imperative_phrase(
    clause: Clause, resolve: Resolver, keep: "KeepChance | None" = None
) -> Phrase:
    """Return the clause as an imperative: "slice the lemons", "don't overmix the batter".

    keep: as `parts_of` takes it.
    """
    verb = clause.verb
    parts = shortened(parts_of(clause, keep))
    resolved = _resolved(verb, parts, resolve)
    text = _order(verb, parts, resolved)
    if clause.voice == "passive":
        # What it is done to: "THE POTATOES are then mashed".
        subject: list[Token] = []
        for child in verb.children:
            if child.dep_ == "nsubjpass":
                subject += tokens_of(child)
        later_words = text.split(" ")[1:]
        text = " ".join([_imperative(verb), _text(subject, resolved), *later_words])
    rest = rests_of(verb)
    if rest:
        text = f"{_tidy(text)} to {_text(rest, resolved)}"

    # a manner that was said before the verb: "GENTLY pry"
    text = _tidy(text)
    manner = _manner_before(verb)
    if manner is not None:
        text = f"{manner} {text}"
    if clause.negated:
        negation = "don't"
        if any(child.lower_ == "never" for child in verb.children):
            negation = "never"
        text = f"{negation} {text}"

    tokens = {verb}
    for part in parts:
        tokens.update(part)
    return Phrase(text, tuple(sorted(tokens, key=token_index)), resolved)


def _order(verb: "Token", parts: "list[Complement]", resolved: dict[int, str]) -> str:
    """Return the verb as an order, and what follows it."""
    gift = _given_action(verb)
    if gift is None:
        texts = [_text(part, resolved) for part in parts]
        return " ".join([_imperative(verb), *texts])
    action, receiver = gift
    texts = [action.lemma_, _text(tokens_of(receiver), resolved)]
    for part in parts:
        first = part[0]
        if first.i > action.i and first.dep_ in ("prep", "prt", "advcl"):
            texts.append(_text(part, resolved))
    return " ".join(texts)


def _manner_before(verb: "Token") -> str | None:
    for child in verb.children:
        if child.dep_ != "advmod" or child.i >= verb.i:
            continue
        word = str(child.lower_)
        is_hollow = word in HOLLOW_ADVERBS or word in _NO_MANNERS
        if word.endswith("ly") and not is_hollow:
            return word
    return None


def _resolved(verb: "Token", parts: "list[Complement]", resolve: Resolver) -> dict[int, str]:
    """Return names for the pronouns that the verb acts on, by token index."""
    tokens = list(chain(*parts))
    things = {token.lemma_.lower() for token in tokens if token.pos_ == "NOUN"}
    names: dict[int, str] = {}
    for token in tokens:
        is_pronoun = token.lower_ in PRONOUN_NUMBERS and token.pos_ in ("PRON", "DET")
        if is_pronoun and _is_acted_on(token, verb):
            name = resolve(token)
            if name is None or name in names.values():
                continue
            # A step does not name a thing twice: "place it under the car" is not a car.
            if name.split()[-1].lower() not in things:
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
    """Read "give it a whisk" as (whisk, it), None for any other clause."""
    if verb.lemma_ != "give":
        return None
    receiver = None
    action = None
    for child in verb.children:
        if receiver is None and child.dep_ == "dative" and child.i > verb.i:
            receiver = child
        # "give it two coats" says how many
        is_counted = "nummod" in {deep.dep_ for deep in child.children}
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
        with_e = f"{word.removesuffix('ing')}e"
        if with_e in verbs():
            return with_e  # "priming" is to prime: "to prim" would double its m
    if word in verbs() and verb.tag_ != "VBG":
        return word
    return str(verb.lemma_).lower()


def _text(tokens: "Iterable[Token]", resolved: dict[int, str]) -> str:
    """Join tokens as they were spoken, pronouns by their names, possessives by "the"."""
    pieces: list[str] = []
    last = None
    for token in tokens:
        word = _word(token, resolved)
        if not word:
            continue
        if last is not None:
            is_glued = last.i + 1 == token.i and not last.whitespace_
            pieces.append("" if is_glued else " ")
        pieces.append(word)
        last = token
    return "".join(pieces)


def _word(token: "Token", resolved: dict[int, str]) -> str:
    if token.i in resolved:
        name = resolved[token.i]
        if not name or name in INDEFINITE_PRONOUNS:
            return name
        return f"the {name}"
    if token.lower_ in OWN_WORDS and token.dep_ in ("det", "poss"):
        # The parser takes "clockwise" for a noun, and the "one" of "check this one more time".
        noun = token.head
        is_number = noun.pos_ == "NUM" or noun.lower_ == "one"
        if noun.pos_ == "PROPN" or (noun.lemma_.lower() in nouns() and not is_number):
            return "the"
    if token.is_sent_start and token.text != "I":
        return str(token.lower_)
    return str(token.text)


def _tidy(text: str) -> str:
    """Take off what hangs at the end, and put "make sure" back where `segments` had put "ensure
    that"."""
    words = text.replace("ensure that ", "make sure ").split()
    while len(words) > 1:
        last = words[-1]
        is_mark = not last.strip(",.-")
        if last.strip(",.") not in _TAIL_WORDS and not is_mark:
            break
        words.pop()
    return " ".join(words).rstrip(",.!?;:- ")
