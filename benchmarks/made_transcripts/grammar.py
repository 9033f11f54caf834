"""Says a written step as a cook would: clauses by spaCy's parse, verbs, nouns and order changed,
words left out.

A clause is a verb with its object and the rest of what hangs on it, in chunks that can be moved or
dropped. No step is looked up: the tables hold single verbs and phrases.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from made_transcripts.numbers import spoken_numbers
from made_transcripts.tables import choices, frames
from stepline.writing.extractive.english import parse, verbs, word_set

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

SYNONYM = 0.85  # how often a verb is said by another one
MOVED = 0.3  # how often a phrase of place or time goes to the front of its clause
DROPPED = 0.22  # how often a phrase of place or manner is left out
# how often the object comes first and a pronoun takes its place: "your onions chop them"
FRONTED = 0.12
GONE_IN = 0.25  # of clauses that add or put: "in go the onions"
PRONOUN = 0.45  # how often an object that was just named becomes "it" or "them"
SHORTENED = 0.4  # how often a list of three or more loses one or more
SHORTER = 0.5  # how often an adjective or adverb is left out
PUT_IN = frozenset({"add", "place", "put", "pour", "stir", "mix", "drop"})
# verbs that are reworded without an object, too
ALONE = word_set("bake simmer cook stir cool chill refrigerate")
OBJECTS = frozenset({"dobj", "obj"})
LOOSE = frozenset({"prep", "advmod", "npadvmod", "advcl"})
CLAUSES = frozenset({"conj", "ccomp", "parataxis", "dep"})
PLACES = frozenset({"in", "on", "onto", "over", "into", "with"})
LEFT_OUT = frozenset({"amod", "advmod"})
JOINTS = word_set("and or when until while but you then so that if before after with")
# a phrase that may open a clause begins with one
MOVABLE = word_set("in on while when after before once")
# roles of a noun that speech gives an article
THINGS = frozenset({"dobj", "obj", "pobj", "conj", "attr", "nsubj"})
CARRIES_MEANING = word_set("not without only never hot cold half more less other remaining")


@dataclass(frozen=True)
class Clause:
    """One action. verb: its lemma. chunks: what follows, in order, each with its role in the
    parse."""

    verb: str
    object: str
    chunks: tuple[tuple[str, str], ...]  # (role, words)
    plural: bool
    negated: bool
    head: str  # the object's head noun, empty without one


def clauses_of(steps: Sequence[str], rng: Random) -> list[list[Clause]]:
    """Return the clauses of each step, in order; a step without any verb has none."""
    plain = [spoken_numbers(re.sub(r"\s*\([^)]*\)", "", step)) for step in steps]
    docs = parse([_addressed(text) for text in plain])
    return [
        list(_clauses(doc, rng)) or [_as_it_stands(text)]
        for doc, text in zip(docs, plain, strict=True)
    ]


def _as_it_stands(text: str) -> Clause:
    """Return a step that gives no order ("it is done after three minutes") as one chunk, to be
    reworded only."""
    return Clause("", "", (("whole", text.rstrip(" .!").lower()),), False, False, "")


def _addressed(text: str) -> str:
    """Put "you" where the order begins: the parser knows "you whisk", not "whisk"."""
    words = text.rstrip(" .!").split()
    for place, word in enumerate(words):
        opens = place == 0 or words[place - 1].endswith((",", ";", ":"))
        if opens and word.lower().strip(",") in verbs():
            return " ".join([*words[:place], "you", word.lower(), *words[place + 1 :]])
    return " ".join(words)


def _clauses(doc: "Doc", rng: Random) -> Iterator[Clause]:
    actions = [token for token in doc if _is_action(token)]
    children = [child for verb in actions for child in verb.children]
    if any(child.dep_ in ("nsubj", "nsubjpass") and child.lower_ != "you" for child in children):
        return
    taken = {token.i for token in actions}
    for verb in actions:
        yield _clause(verb, taken, rng)


def _is_action(token: "Token") -> bool:
    """Tell whether a token is the main verb, or joined to one that is."""
    if token.pos_ not in ("VERB", "AUX") and token.text.lower() not in verbs():
        return False
    if token.dep_ == "ROOT":
        return True
    return token.dep_ in CLAUSES and token.head.pos_ == "VERB" and _is_action(token.head)


def _clause(verb: "Token", taken: set[int], rng: Random) -> Clause:
    said, role_of, head, plural = "", [], "", False
    negated = any(child.dep_ == "neg" for child in verb.children)
    for child in verb.children:
        if child.i in taken or child.dep_ in ("nsubj", "cc", "punct", "aux", "neg", "nsubjpass"):
            continue
        words = _words(child, taken, rng)
        if child.dep_ in OBJECTS and not said:
            said, head = words, child.lemma_.lower()
            plural = child.tag_ in ("NNS", "NNPS") or any(
                one.dep_ == "conj" for one in child.children
            )
        elif words:
            role_of.append((child.dep_ + ":" + child.text.lower(), words))
    return Clause(verb.lemma_.lower(), said, tuple(role_of), plural, negated, head)


def _words(head: "Token", taken: set[int], rng: Random) -> str:
    """Return what hangs on a token, in order, with articles put in, adjectives and parts of long
    lists left out."""
    gone: set[int] = set()
    for token in head.subtree:
        if token.i in taken:
            gone |= {one.i for one in token.subtree}
        elif (
            token.dep_ in LEFT_OUT
            and token.lemma_.lower() not in CARRIES_MEANING
            and rng.random() < SHORTER
        ):
            gone |= {one.i for one in token.subtree if one.dep_ not in ("nummod", "quantmod")}
    gone |= _cut_list(head, rng)
    kept = [token for token in head.subtree if token.i not in gone]
    words = [
        _with_article(token, rng) for token in kept if not token.is_punct and token.lower_ != "you"
    ]
    while words and words[-1] in JOINTS:
        words.pop()
    return " ".join(words)


def _cut_list(head: "Token", rng: Random) -> set[int]:
    """Return the tokens of the items that a speaker leaves out of a list of three or more."""
    items = [
        token for token in head.subtree if token.dep_ == "conj" and token.pos_ in ("NOUN", "PROPN")
    ]
    if len(items) < 2 or rng.random() > SHORTENED:
        return set()
    cut = rng.choice(items)
    return {token.i for token in cut.subtree}


def _with_article(token: "Token", rng: Random) -> str:
    """Return the word, with "the" or the like before a bare noun's phrase, as speech has it."""
    bare = token.text.lower()
    noun = token if token.pos_ in ("NOUN", "PROPN") else token.head
    opens = (
        token.i == noun.left_edge.i and noun.pos_ in ("NOUN", "PROPN") and noun.dep_ != "compound"
    )
    marked = any(
        child.dep_ in ("det", "poss", "nummod", "predet", "quantmod") for child in noun.children
    )
    if (
        not opens
        or marked
        or noun.dep_ not in THINGS
        or token.like_num
        or noun.like_num
        or rng.random() < 0.35
    ):
        return bare
    return f"{rng.choice(('the', 'the', 'your', 'my', 'that', 'some'))} {bare}"


def say_clause(clause: Clause, rng: Random, *, named: str = "") -> str:
    """Return the clause with its verb in the base form. named: the noun that was spoken of last."""
    thing = clause.object
    pronoun = "them" if clause.plural else "it"
    if thing and clause.head == named and rng.random() < PRONOUN:
        thing = pronoun
    before, after = _ordered(clause.chunks, rng)
    front = ""
    if thing and thing != pronoun and rng.random() < FRONTED:
        front, thing = f"{thing} ", pronoun
    said = _template(clause, rng).replace(
        "{o}", thing or rng.choice(("it", "that", "everything", "this"))
    )
    said = said.replace("{r}", after)
    if clause.negated:
        said = f"don't {said}"
    return _reworded(" ".join(f"{before} {front}{said}".split()), rng)


def _template(clause: Clause, rng: Random) -> str:
    known = choices("verbs.txt").get(clause.verb)
    if known and (clause.object or clause.verb in ALONE) and rng.random() < SYNONYM:
        return rng.choice(known)
    particle = "{o} " if clause.object else ""
    return f"{clause.verb} {particle}{{r}}"


def _ordered(chunks: Sequence[tuple[str, str]], rng: Random) -> tuple[str, str]:
    """Return the phrases before and after the verb: some moved to the front, some left out."""
    before, after = [], []
    for role, words in chunks:
        name, _, first = role.partition(":")
        place = name == "prep" and first in PLACES
        number = re.search(
            r"\b(?:minutes?|hours?|degrees|cups?|inch(?:es)?|half|seconds?)\b", words
        )
        if (place or name == "advmod") and not number and rng.random() < DROPPED:
            continue
        if name in LOOSE and words.split()[0] in MOVABLE and rng.random() < MOVED:
            before.append(words)
        else:
            after.append(words)
    return " ".join(before), " ".join(after)


def _reworded(text: str, rng: Random) -> str:
    """Put spoken phrases for written ones, the longest first; none inside what was already put."""
    table = choices("words.txt")
    pattern = _phrases(tuple(table))
    return " ".join(pattern.sub(lambda match: rng.choice(table[match[0]]), text).split())


def _phrases(keys: tuple[str, ...]) -> re.Pattern[str]:
    longest = sorted(keys, key=len, reverse=True)
    return re.compile(r"(?<![\w'-])(?:" + "|".join(map(re.escape, longest)) + r")(?![\w'-])")


def say_step(clauses: Sequence[Clause], rng: Random, half: str, *, named: str = "") -> list[str]:
    """Return a step's clauses as spoken, the first within a frame of its half, the others joined
    on."""
    said = []
    for place, clause in enumerate(clauses):
        spoken = _gone_in(clause, rng) or ""
        if not spoken:
            spoken = say_clause(clause, rng, named=named)
            if place == 0 and clause.verb:
                spoken = rng.choice(frames(half)).replace("{c}", spoken)
        if place:
            spoken = (
                f"{rng.choice(('and', 'and then', 'and you', 'then', 'and just', 'and'))} {spoken}"
            )
        said.append(spoken)
        named = clause.head or named
    return said


def _gone_in(clause: Clause, rng: Random) -> str | None:
    """Return "in go the onions" and the like for a clause that puts something somewhere, now and
    then."""
    if clause.verb not in PUT_IN or not clause.object or clause.negated or rng.random() > GONE_IN:
        return None
    go = "go" if clause.plural else "goes"
    _, after = _ordered(clause.chunks, rng)
    form = rng.choice(
        ("in {g} {o} {r}", "{o} {g} in {r}", "{o} {r}", "{o} in {r}", "that's where {o} {g} {r}")
    )
    return _reworded(" ".join(form.format(g=go, o=clause.object, r=after).split()), rng)
