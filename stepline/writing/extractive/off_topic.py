"""Rules for clauses that look like an instruction and are none: talk to the audience, plans,
opinions, habits, options.

Each rule is a row of a table; `off_topic_reason` returns the first that holds, as the reason for
dropping the clause.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from stepline.writing.extractive.clauses import CARRIER_VERBS, Clause
from stepline.writing.extractive.english import word_set

if TYPE_CHECKING:
    from spacy.tokens import Token

# Talking about the video instead of doing: "show you", "let me explain".
TELLING_VERBS = word_set(
    """
    show teach explain tell talk discuss demonstrate introduce describe mention say answer share ask welcome
    thank apologize present review recommend suggest promise admit speak chat
    """
)
SETTING_OUT = word_set("get dive jump go move head hop")  # "let's dive right into it"
# States of mind and being: they order nothing, in whatever mood.
STATE_VERBS = word_set(
    """
    be have see know think guess believe hope wish love hate like want need mean feel seem look sound depend
    understand remember forget notice realize wonder imagine care prefer appreciate matter own belong happen
    hear find end suppose figure worry agree trust swear get come become learn recommend deserve decide forgot
    """
)
# States that are actions after all when they are ordered outright: "look into the mirror", "get a
# bowl", "remember".
ORDERED_STATE_VERBS = word_set("look find get come feel decide wait listen")
MOTION_WORDS = word_set("up down in out off on into onto over back under through around")
HABIT_WORDS = word_set(
    "usually always often normally sometimes typically generally personally mostly never rarely already"
)
TODAY_WORDS = word_set("today tutorial video episode")  # with I or we: what the video will be about
PAST_WORDS = word_set("yesterday ago earlier")
# Choices left to the viewer.
FREE_CHOICE_WORDS = (
    "as you want",
    "as you like",
    "as you would like",
    "as you'd like",
    "as you need",
    "if you want",
    "if you like",
    "if you'd like",
    "if you prefer",
    "if you wish",
    "feel free",
    "up to you",
    "whatever you",
    "however you",
    "it depends",
    "if you don't have",
    "if you do not have",
    "if you're not",
)
CHOICE_WORDS = word_set(
    "also instead either always even too later"
)  # with "can": one may as well not
VAGUE_WORDS = word_set(
    "it this that these those thing things something anything everything work so job"
)

STATE_REASON, NO_ACTION_REASON = "a state or an opinion, not an action", "names no action"


def off_topic_reason(clause: Clause, *, question: bool = False) -> str | None:
    """Return why a clause is no step, or None when it is one."""
    if question:
        return "a question"
    for reason, holds in _OFF_TOPIC_RULES:
        if holds(clause):
            return reason
    return None


def _is_about_me(clause: Clause) -> bool:
    """ "Trust me", "follow us", "bear with me": asked of the audience, not of the hands."""
    return bool(_objects(clause) & {"me", "us"}) or (
        clause.verb.lemma_ == "let" and "me" in _words(clause)
    )


def _tells(clause: Clause) -> bool:
    lemma = clause.verb.lemma_
    if lemma in TELLING_VERBS:
        return not _asks_someone(clause)
    words = _words(clause)
    return (
        bool(
            lemma in ("follow", "use", "try", "learn")
            and _objects(clause) & {"step", "steps", "tip", "tips"}
        )
        or (lemma == "check" and "out" in words and bool(words & TODAY_WORDS))
        or (lemma == "walk" and "you" in words)
        or (lemma == "take" and "look" in words)
        or (lemma in ("keep", "bear") and "mind" in words)
        or (
            lemma in SETTING_OUT
            and any(
                token.lower_ in ("started", "into", "over", "onto", "straight")
                for token in clause.verb.doc[clause.verb.i + 1 : clause.verb.i + 4]
            )
            and not _concrete(clause)
        )
    )


def _asks_someone(clause: Clause) -> bool:
    """Tell whether somebody who stands by is to be asked to do something: "ask someone to call for
    help"."""
    asked = {
        child.lower_
        for child in clause.verb.children
        if child.dep_ in ("dobj", "dative") and child.i > clause.verb.i
    }
    does = any(
        child.dep_ in ("xcomp", "ccomp", "advcl") and child.i > clause.verb.i
        for child in clause.verb.children
    )
    return clause.verb.lemma_ in ("ask", "tell") and does and not asked & {"me", "us", "you"}


def _is_state(clause: Clause) -> bool:
    lemma = clause.verb.lemma_
    if lemma == "aim" and not any(child.dep_ == "dobj" for child in clause.verb.children):
        return True  # "aim for 20": how much, not what
    if lemma == "come" and clause.voice == "order" and _words(clause) & {"up", "down", "forward"}:
        return False
    if lemma == "find" and _objects(clause) & {"yourself", "yourselves"}:
        return True
    if lemma == "be":
        return not (clause.voice == "order" and "careful" in _words(clause))
    if lemma == "imagine" and clause.voice == "order":
        # "imagine that you push it away"
        return not any(child.dep_ == "ccomp" for child in clause.verb.children)
    if lemma not in STATE_VERBS:
        return False
    if lemma == "get" and not _is_gotten(clause.verb):
        return True  # "get off your seat", "get going": a person moves, no thing is got
    moved = lemma in ("get", "come") and (
        _is_moved(clause.verb) or (clause.planned and clause.voice in ("i", "we"))
    )
    return not (
        lemma in ORDERED_STATE_VERBS and (clause.voice == "order" or moved) and _concrete(clause)
    )


def _is_gotten(verb: "Token") -> bool:
    """Tell whether a thing is named right after "get", before any preposition."""
    until = next(
        (
            token.i
            for token in verb.doc[verb.i + 1 :]
            if token.pos_ in ("ADP", "ADV", "VERB", "AUX")
        ),
        len(verb.doc),
    )
    return any(token.pos_ in ("NOUN", "PROPN", "PRON") for token in verb.doc[verb.i + 1 : until])


def _is_moved(verb: "Token") -> bool:
    """Tell whether something is brought somewhere: "get your bike UP IN a stand"; "get a better
    result" is not."""
    after = [child for child in verb.children if child.i > verb.i]
    return _is_gotten(verb) and any(
        child.dep_ in ("prt", "prep", "advmod") and child.lower_ in MOTION_WORDS for child in after
    )


def _announces(clause: Clause) -> bool:
    """ "Today we're making lemonade": what the video is about, and not yet an action."""
    return clause.voice in ("i", "we", "you") and bool(
        {token.lower_ for token in clause.verb.doc} & TODAY_WORDS
    )


def _is_habit(clause: Clause) -> bool:
    spine = _spine(clause.verb)
    if clause.voice == "i" and any(
        token.lemma_ in ("like", "love", "prefer") and token.pos_ == "VERB" for token in spine
    ):
        return True
    adverbs = {child.lower_ for child in spine}
    return clause.voice in ("i", "we") and bool(adverbs & HABIT_WORDS)


def _invites(clause: Clause) -> bool:
    """ "If you're trying to ..., try doing it like this": what the video is for."""
    tried = any(token.lemma_ == "try" and token is not clause.verb for token in _spine(clause.verb))
    opening = " ".join(token.lower_ for token in clause.verb.doc[:5])
    return (
        tried
        and re.match(r"if you (?:want|need|like|(?:'re|are) (?:trying|looking))\b", opening)
        is not None
    )


def _is_past(clause: Clause) -> bool:
    return clause.voice in ("i", "we") and bool(
        {token.lower_ for token in clause.verb.doc} & PAST_WORDS
    )


def _is_choice(clause: Clause) -> bool:
    text = (
        " ".join(token.lower_ for token in clause.verb.doc)
        .replace(" n't", "n't")
        .replace(" 'd", "'d")
        .replace(" 're", "'re")
    )
    if any(free in text for free in FREE_CHOICE_WORDS):
        return True
    return clause.may and (
        clause.verb.lemma_ in ("use", "do", "try", "buy", "substitute", "skip", "make")
        or bool((_words(clause) | {child.lower_ for child in _spine(clause.verb)}) & CHOICE_WORDS)
    )


def _is_not_me(clause: Clause) -> bool:
    return clause.negated and clause.voice in ("i", "we")


def _says_nothing(clause: Clause) -> bool:
    lemma = clause.verb.lemma_
    if clause.verb.tag_ == "MD":
        return True  # the parser missed the verb
    if lemma in ("do", "try", "make"):
        return (bool(_objects(clause)) and _objects(clause) <= VAGUE_WORDS) or (
            lemma == "do" and not _objects(clause)
        )
    bare = not any(
        child.i > clause.verb.i and not child.is_punct and child.dep_ not in ("cc", "conj")
        for child in clause.verb.children
    )
    return (
        bare
        and lemma in CARRIER_VERBS | {"continue", "begin", "take", "put", "set", "use"}
        and clause.chain is None
        # A verb joined after this one may bring the object for both.
        and not any(child.dep_ == "conj" and child.pos_ == "VERB" for child in clause.verb.children)
    )


_OFF_TOPIC_RULES: tuple[tuple[str, Callable[[Clause], bool]], ...] = (
    ("chat: about the speaker", _is_about_me),
    ("talk about the video", _tells),
    (STATE_REASON, _is_state),
    ("an announcement of what the video is about", _announces),
    ("an announcement of what the video is about", _invites),
    ("a habit of the speaker", _is_habit),
    ("told of the past", _is_past),
    ("left to the viewer", _is_choice),
    ("what the speaker does not do", _is_not_me),
    (NO_ACTION_REASON, _says_nothing),
)


def _words(clause: Clause) -> set[str]:
    """Return the lower-case words of the clause to the right of its verb, without the clauses
    joined to it."""
    joined = {
        token.i
        for child in clause.verb.children
        if child.dep_ == "conj" and child.pos_ == "VERB"
        for token in child.subtree
    }
    return {
        token.lower_
        for token in clause.verb.subtree
        if token.i > clause.verb.i and token.i not in joined
    }


def _objects(clause: Clause) -> set[str]:
    """Return the heads of what the verb acts on, and of what its prepositions name when it has no
    object."""
    direct = {
        child.lower_
        for child in clause.verb.children
        if child.dep_ in ("dobj", "dative") and child.i > clause.verb.i
    }
    if direct:
        return direct
    return {
        deep.lower_
        for child in clause.verb.children
        if child.dep_ == "prep"
        for deep in child.children
        if deep.dep_ == "pobj"
    }


def _concrete(clause: Clause) -> bool:
    """Tell whether the verb acts on a thing that has a name."""
    named = any(
        deep.pos_ in ("NOUN", "PROPN")
        for child in clause.verb.children
        if child.dep_ in ("dobj", "nsubj", "prep", "prt") and child.i > clause.verb.i
        for deep in child.subtree
    )
    return named and not _objects(clause) <= VAGUE_WORDS


def _spine(verb: "Token") -> "list[Token]":
    """Return the children of the verb and of the verbs that carry it."""
    found = [verb, *verb.children]
    while verb.dep_ in ("xcomp", "ccomp", "conj") and verb.head is not verb:
        verb = verb.head
        found.extend([verb, *verb.children])
    return found
