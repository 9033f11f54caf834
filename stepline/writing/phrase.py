"""The words of a step: one imperative phrase, short and whole, from the clause that tells it."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from stepline.writing.clauses import Clause
from stepline.writing.complements import HOLLOW_ADVERBS, parts_of, passive_object, rests_of, shortened, tokens_of
from stepline.writing.english import verbs
from stepline.writing.pronouns import INDEFINITE, PRONOUNS
from stepline.writing.word_sets import word_set

if TYPE_CHECKING:
    from spacy.tokens import Token

Resolver: TypeAlias = Callable[[str], str | None]

OURS = word_set("my our this that these those")  # one speaker's own things are "the" things of a step
# "Give it a good whisk" is whisking: nouns that name an action when something is given them.
GIVEN = word_set(
    """
    whisk stir shake tap wipe rinse mix toss squeeze press pull spin twist scrub blend pat clean brush rub push
    wash dusting click dust spray knead swirl polish sand coat trim drizzle sprinkle soak turn
    """
)
_TAIL = word_set(
    """
    and or but then so with to of for in on into that if until the a
    """
)  # never the last word


@dataclass(frozen=True)
class Phrase:
    """The step's text, the tokens it was made of, and the pronouns in it that were given a name."""

    text: str
    tokens: "tuple[Token, ...]"
    resolved: dict[int, str]


def phrase(clause: Clause, resolve: Resolver) -> Phrase:
    """Return the clause as an imperative: "slice the lemons", "don't overmix the batter"."""
    parts = shortened(parts_of(clause))
    resolved = _resolved(clause.verb, parts, resolve)
    light = _given(clause.verb, resolved)
    if light is not None:
        name, thing, end = light
        kept = [part for part in parts if part[0].dep_ in ("prep", "prt", "advcl") and part[0].i > end]
        text = " ".join([name, thing, *(_text(part, resolved) for part in kept)])
    else:
        text = " ".join([_imperative(clause.verb), *(_text(part, resolved) for part in parts)])
    if clause.voice == "passive":
        text = " ".join([_imperative(clause.verb), _text(passive_object(clause.verb), resolved), *text.split(" ")[1:]])
    if rest := rests_of(clause.verb):
        text = f"{_tidy(text)} to {_text(rest, resolved)}"
    manner = _manner(clause.verb)
    text = " ".join(([manner] if manner else []) + [_tidy(text)])
    text = _negated(clause.verb, text) if clause.negated else text
    tokens = sorted({clause.verb, *(token for part in parts for token in part)}, key=lambda token: token.i)
    return Phrase(text, tuple(tokens), resolved)


def _resolved(verb: "Token", parts: "list[list[Token]]", resolve: Resolver) -> dict[int, str]:
    """Return names for the pronouns that the verb acts on, by token index."""
    names: dict[int, str] = {}
    for part in parts:
        for token in part:
            direct = token.head == verb and token.dep_ in ("dobj", "dative", "nsubjpass", "npadvmod")
            placed = (
                token.dep_ == "pobj"
                and token.head.head == verb
                and token.head.lower_ not in ("like", "for", "at", "of")
            )
            taken = token.dep_ == "nsubj" and token.head.head == verb and token.head.dep_ == "ccomp"
            if token.lower_ in PRONOUNS and token.pos_ in ("PRON", "DET") and (direct or placed or taken):
                name = resolve(token.lower_)
                if name is not None and name not in names.values():
                    names[token.i] = name
    return names


def _given(verb: "Token", resolved: dict[int, str]) -> tuple[str, str, int] | None:
    """Read "give it a whisk" as (whisk, it, the index where the rest begins); None for any other clause."""
    if verb.lemma_ != "give":
        return None
    receivers = [child for child in verb.children if child.dep_ == "dative" and child.i > verb.i]
    gifts = [child for child in verb.children if child.dep_ == "dobj" and child.lemma_ in GIVEN]
    if not receivers or not gifts:
        return None
    return gifts[0].lemma_, _text(tokens_of(receivers[0]), resolved), gifts[0].i


def _imperative(verb: "Token") -> str:
    lower = str(verb.lower_)
    if verb.lemma_ == "click" and (button := _button(verb)):
        return f"{button}-click"
    if (
        lower.endswith("ing")
        and re.search(r"(?:^|[^aeiou])[aeiou][^aeiouwxy]ing$", lower)
        and f"{lower[:-3]}e" in verbs()
    ):
        return f"{lower[:-3]}e"  # "priming" is to prime: "to prim" would double its m
    return lower if lower in verbs() and verb.tag_ != "VBG" else str(verb.lemma_).lower()


def _button(verb: "Token") -> str | None:
    """Return how a click is done: "right", "double"."""
    before = [token.lower_ for token in verb.doc[max(0, verb.i - 2) : verb.i] if token.text != "-"]
    return before[-1] if before and before[-1] in ("right", "double", "left", "shift", "alt", "triple") else None


def _manner(verb: "Token") -> str | None:
    """Return a manner that was said before the verb: "GENTLY pry"."""
    return next((c.lower_ for c in verb.children if c.dep_ == "advmod" and c.i < verb.i and _is_manner(c.lower_)), None)


def _is_manner(word: str) -> bool:
    return (
        word.endswith("ly")
        and word not in HOLLOW_ADVERBS
        and word not in ("only", "early", "usually", "finally", "actually")
    )


def _negated(verb: "Token", text: str) -> str:
    never = any(child.lower_ == "never" for child in verb.children)
    return f"never {text}" if never else f"don't {text}"


def _text(tokens: "Iterable[Token]", resolved: dict[int, str]) -> str:
    """Join tokens as they were spoken, pronouns by their names, possessives by "the"."""
    pieces: list[str] = []
    last = None
    for token in tokens:
        glued = last is not None and last.i + 1 == token.i and not last.whitespace_
        pieces.append(("" if glued or last is None else " ") + _word(token, resolved))
        last = token
    return "".join(pieces)


def _word(token: "Token", resolved: dict[int, str]) -> str:
    if token.i in resolved:
        name = resolved[token.i]
        return name if name in INDEFINITE else f"the {name}"
    if token.lower_ in OURS and token.dep_ in ("det", "poss"):
        return "the"
    return str(token.lower_ if token.is_sent_start and token.text != "I" else token.text)


def _tidy(text: str) -> str:
    """Take off what hangs at the end, and put "make sure" back where `spoken` had put "ensure that"."""
    words = text.replace("ensure that ", "make sure ").split()
    while len(words) > 1 and (words[-1].strip(",.") in _TAIL - {"on", "in"} or not words[-1].strip(",.-")):
        words.pop()
    return " ".join(words).rstrip(",.!?;:- ")
