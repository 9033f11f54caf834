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

# how often ...
SYNONYM_RATE = 0.85  # ... a verb is said by another one
MOVED_PHRASE_RATE = 0.3  # ... a phrase of place or time goes to the front of its clause
DROPPED_PHRASE_RATE = 0.22  # ... a phrase of place or manner is left out
# ... the object comes first and a pronoun takes its place: "your onions chop them"
FRONTED_OBJECT_RATE = 0.12
GONE_IN_RATE = 0.25  # ... a clause that adds or puts becomes "in go the onions"
PRONOUN_RATE = 0.45  # ... an object that was just named becomes "it" or "them"
SHORTENED_LIST_RATE = 0.4  # ... a list of three or more loses one or more
DROPPED_WORD_RATE = 0.5  # ... an adjective or adverb is left out
BARE_NOUN_RATE = 0.35  # ... a bare noun keeps no article
PUT_IN_VERBS = frozenset({"add", "place", "put", "pour", "stir", "mix", "drop"})
# verbs that are reworded without an object, too
OBJECTLESS_VERBS = word_set("bake simmer cook stir cool chill refrigerate")
OBJECT_ROLES = frozenset({"dobj", "obj"})
LOOSE_ROLES = frozenset({"prep", "advmod", "npadvmod", "advcl"})
CLAUSE_ROLES = frozenset({"conj", "ccomp", "parataxis", "dep"})
PLACE_PREPOSITIONS = frozenset({"in", "on", "onto", "over", "into", "with"})
MODIFIER_ROLES = frozenset({"amod", "advmod"})
JOINT_WORDS = word_set("and or when until while but you then so that if before after with")
# a phrase that may open a clause begins with one
MOVABLE_WORDS = word_set("in on while when after before once")
# roles of a noun that speech gives an article
THING_ROLES = frozenset({"dobj", "obj", "pobj", "conj", "attr", "nsubj"})
MEANINGFUL_WORDS = word_set("not without only never hot cold half more less other remaining")


NOUN_TAGS = ("NOUN", "PROPN")
# roles of what hangs on a verb and is not part of what is done
SKIPPED_ROLES = frozenset({"nsubj", "cc", "punct", "aux", "neg", "nsubjpass"})
ARTICLE_ROLES = frozenset({"det", "poss", "nummod", "predet", "quantmod"})
ARTICLE_WORDS = ("the", "the", "your", "my", "that", "some")
CLAUSE_JOINTS = ("and", "and then", "and you", "then", "and just", "and")
GONE_IN_FORMS = (
    "in {g} {o} {r}",
    "{o} {g} in {r}",
    "{o} {r}",
    "{o} in {r}",
    "that's where {o} {g} {r}",
)
AMOUNT_PATTERN = re.compile(r"\b(?:minutes?|hours?|degrees|cups?|inch(?:es)?|half|seconds?)\b")


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
    """Return the clauses of each step, in order. A step without any verb has one of its words."""
    texts = [spoken_numbers(re.sub(r"\s*\([^)]*\)", "", step)) for step in steps]
    docs = parse([_addressed(text) for text in texts])
    clauses = []
    for doc, text in zip(docs, texts, strict=True):
        clauses.append(list(_clauses(doc, rng)) or [_unparsed_clause(text)])
    return clauses


def _unparsed_clause(text: str) -> Clause:
    """Return a step that gives no order ("it is done after three minutes") as one chunk, to be
    reworded only."""
    words = text.rstrip(" .!").lower()
    return Clause(
        verb="", object="", chunks=(("whole", words),), plural=False, negated=False, head=""
    )


def _addressed(text: str) -> str:
    """Put "you" where the order begins: the parser knows "you whisk", not "whisk"."""
    words = text.rstrip(" .!").split()
    for index, word in enumerate(words):
        is_opening = index == 0 or words[index - 1].endswith((",", ";", ":"))
        if is_opening and word.lower().strip(",") in verbs():
            return " ".join([*words[:index], "you", word.lower(), *words[index + 1 :]])
    return " ".join(words)


def _clauses(doc: "Doc", rng: Random) -> Iterator[Clause]:
    actions = [token for token in doc if _is_action(token)]
    for verb in actions:
        for child in verb.children:
            if child.dep_ in ("nsubj", "nsubjpass") and child.lower_ != "you":
                return
    action_indices = {token.i for token in actions}
    for verb in actions:
        yield _clause(verb, action_indices, rng)


def _is_action(token: "Token") -> bool:
    """Tell whether a token is the main verb, or joined to one that is."""
    if token.pos_ not in ("VERB", "AUX") and token.text.lower() not in verbs():
        return False
    if token.dep_ == "ROOT":
        return True
    return token.dep_ in CLAUSE_ROLES and token.head.pos_ == "VERB" and _is_action(token.head)


def _clause(verb: "Token", action_indices: set[int], rng: Random) -> Clause:
    """Return what a verb says. action_indices: the tokens that are verbs of other clauses too."""
    object_words = ""
    head = ""
    is_plural = False
    chunks = []
    for child in verb.children:
        if child.i in action_indices or child.dep_ in SKIPPED_ROLES:
            continue
        words = _words(child, action_indices, rng)
        if child.dep_ in OBJECT_ROLES and not object_words:
            object_words = words
            head = child.lemma_.lower()
            is_list = any(part.dep_ == "conj" for part in child.children)
            is_plural = is_list or child.tag_ in ("NNS", "NNPS")
        elif words:
            chunks.append((child.dep_ + ":" + child.text.lower(), words))
    return Clause(
        verb=verb.lemma_.lower(),
        object=object_words,
        chunks=tuple(chunks),
        plural=is_plural,
        negated=any(child.dep_ == "neg" for child in verb.children),
        head=head,
    )


def _words(head: "Token", action_indices: set[int], rng: Random) -> str:
    """Return what hangs on a token, in order, with articles put in, adjectives and parts of long
    lists left out."""
    dropped: set[int] = set()
    for token in head.subtree:
        if token.i in action_indices:
            dropped |= {part.i for part in token.subtree}
            continue
        is_modifier = token.dep_ in MODIFIER_ROLES
        is_meaningful = token.lemma_.lower() in MEANINGFUL_WORDS
        if is_modifier and not is_meaningful and rng.random() < DROPPED_WORD_RATE:
            parts = [part for part in token.subtree if part.dep_ not in ("nummod", "quantmod")]
            dropped |= {part.i for part in parts}
    dropped |= _cut_list(head, rng)
    words = []
    for token in head.subtree:
        if token.i not in dropped and not token.is_punct and token.lower_ != "you":
            words.append(_with_article(token, rng))
    while words and words[-1] in JOINT_WORDS:
        words.pop()
    return " ".join(words)


def _cut_list(head: "Token", rng: Random) -> set[int]:
    """Return the tokens of the items that a speaker leaves out of a list of three or more."""
    items = []
    for token in head.subtree:
        if token.dep_ == "conj" and token.pos_ in NOUN_TAGS:
            items.append(token)
    if len(items) < 2 or rng.random() > SHORTENED_LIST_RATE:
        return set()
    item = rng.choice(items)
    return {token.i for token in item.subtree}


def _with_article(token: "Token", rng: Random) -> str:
    """Return the word, with "the" or the like before a bare noun's phrase, as speech has it."""
    word = token.text.lower()
    noun = token if token.pos_ in NOUN_TAGS else token.head
    is_noun_phrase = noun.pos_ in NOUN_TAGS and noun.dep_ != "compound"
    if not is_noun_phrase or token.i != noun.left_edge.i or noun.dep_ not in THING_ROLES:
        return word
    has_article = any(child.dep_ in ARTICLE_ROLES for child in noun.children)
    if has_article or token.like_num or noun.like_num or rng.random() < BARE_NOUN_RATE:
        return word
    return f"{rng.choice(ARTICLE_WORDS)} {word}"


def say_clause(clause: Clause, rng: Random, *, last_noun: str = "") -> str:
    """Return the clause with its verb in the base form. last_noun: the one that was named last."""
    thing = clause.object
    pronoun = "them" if clause.plural else "it"
    if thing and clause.head == last_noun and rng.random() < PRONOUN_RATE:
        thing = pronoun
    before, after = _ordered(clause.chunks, rng)
    front = ""
    if thing and thing != pronoun and rng.random() < FRONTED_OBJECT_RATE:
        front = f"{thing} "
        thing = pronoun
    template = _template(clause, rng)
    if not thing:
        thing = rng.choice(("it", "that", "everything", "this"))
    words = template.replace("{o}", thing).replace("{r}", after)
    if clause.negated:
        words = f"don't {words}"
    return _reworded(" ".join(f"{before} {front}{words}".split()), rng)


def _template(clause: Clause, rng: Random) -> str:
    templates = choices("verbs.txt").get(clause.verb)
    is_complete = clause.object or clause.verb in OBJECTLESS_VERBS
    if templates and is_complete and rng.random() < SYNONYM_RATE:
        return rng.choice(templates)
    particle = "{o} " if clause.object else ""
    return f"{clause.verb} {particle}{{r}}"


def _ordered(chunks: Sequence[tuple[str, str]], rng: Random) -> tuple[str, str]:
    """Return the phrases before and after the verb: some moved to the front, some left out."""
    before = []
    after = []
    for role, words in chunks:
        name, _, first = role.partition(":")
        is_place = name == "prep" and first in PLACE_PREPOSITIONS
        has_amount = AMOUNT_PATTERN.search(words) is not None
        is_optional = (is_place or name == "advmod") and not has_amount
        if is_optional and rng.random() < DROPPED_PHRASE_RATE:
            continue
        is_movable = name in LOOSE_ROLES and words.split()[0] in MOVABLE_WORDS
        if is_movable and rng.random() < MOVED_PHRASE_RATE:
            before.append(words)
        else:
            after.append(words)
    return " ".join(before), " ".join(after)


def _reworded(text: str, rng: Random) -> str:
    """Put spoken phrases for written ones, the longest first. None is put inside another."""
    table = choices("words.txt")
    pattern = _phrases(tuple(table))
    reworded = pattern.sub(lambda match: rng.choice(table[match[0]]), text)
    return " ".join(reworded.split())


def _phrases(keys: tuple[str, ...]) -> re.Pattern[str]:
    longest = sorted(keys, key=len, reverse=True)
    return re.compile(r"(?<![\w'-])(?:" + "|".join(map(re.escape, longest)) + r")(?![\w'-])")


def say_step(
    clauses: Sequence[Clause], rng: Random, half: str, *, last_noun: str = ""
) -> list[str]:
    """Return a step's clauses as spoken, the first within a frame of its half, the others joined
    on."""
    spoken_clauses = []
    for index, clause in enumerate(clauses):
        words = _gone_in(clause, rng)
        if not words:
            words = say_clause(clause, rng, last_noun=last_noun)
            if index == 0 and clause.verb:
                words = rng.choice(frames(half)).replace("{c}", words)
        if index:
            words = f"{rng.choice(CLAUSE_JOINTS)} {words}"
        spoken_clauses.append(words)
        last_noun = clause.head or last_noun
    return spoken_clauses


def _gone_in(clause: Clause, rng: Random) -> str | None:
    """Return "in go the onions" and the like for a clause that puts something somewhere, now and
    then."""
    if clause.verb not in PUT_IN_VERBS or not clause.object or clause.negated:
        return None
    if rng.random() > GONE_IN_RATE:
        return None
    go = "go" if clause.plural else "goes"
    _, after = _ordered(clause.chunks, rng)
    form = rng.choice(GONE_IN_FORMS)
    words = form.format(g=go, o=clause.object, r=after)
    return _reworded(" ".join(words.split()), rng)
