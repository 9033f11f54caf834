"""The words of a step: one imperative phrase, short and whole, from the clause that tells it.

What belongs to a step besides its verb: objects, places, means and conditions; no asides, joined
clauses or fillers.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from stepline.writing.extractive.clauses import (
    CLAUSE_TAKERS,
    RELATIVES,
    Clause,
    acts_on_something,
    tells_more,
)
from stepline.writing.extractive.english import nouns, verbs, word_set
from stepline.writing.extractive.pronouns import INDEFINITE, PRONOUNS

if TYPE_CHECKING:
    from spacy.tokens import Token

LONGEST = 20  # words a step; a longer one loses its last qualifiers
LONGEST_LIST = 45  # words of a list of things
NOUNS = ("NOUN", "PROPN")
# Qualifying clauses that belong to the step: until when, under which condition, by what means, for
# what.
KEPT_MARKS = word_set("until till if so before without by unless to that while when")
# Adverbs that order the tale or warm the talk and say nothing of the action.
HOLLOW_ADVERBS = word_set(
    """
    then now first next finally also here there just again too well so anyway basically actually really simply
    maybe probably definitely already once afterwards obviously instead even only pretty
    """
)
COMPLETE = word_set("click tap wait stop pause go come stand sit breathe")  # need no object
SETTING = word_set("set put leave place lay")
ASIDE = word_set("aside side away")
_NO_MANNERS = word_set("only early usually finally actually")
_BESIDE = word_set("conj cc preconj punct nsubj nsubjpass aux auxpass neg mark intj parataxis dep")


KeepChance: TypeAlias = "Callable[[Token], float]"  # P(a word is part of the step)

MIN_PART_KEEP = 0.3  # mean of a complement's words from which it stays; its verb was chosen
MIN_ASIDE_KEEP = 0.6  # of a clause that says which or where: "a spot where you can walk around it"


def parts_of(clause: Clause, keep: "KeepChance | None" = None) -> "list[list[Token]]":
    """Return what follows the verb in a step, one list of tokens a complement, the condition
    last.

    keep: what a reader of the narration says of each word; complements that it would leave out go.
    """
    own = [child for child in clause.verb.children if _belongs(clause.verb, child)]
    after = [child for child in own if child.i > clause.verb.i]
    before = [
        child
        for child in own
        if child.i < clause.verb.i and (_is_condition(child) or _is_occasion(child))
    ]
    before += _carriers_qualifiers(clause.verb)
    parts = [_with_own_can(tokens_of(child, keep), clause.verb) for child in [*after, *before]]
    if keep is not None:
        parts = [part for part in parts if _mean_keep(part, keep) >= MIN_PART_KEEP]
    if not _has_object(clause.verb) and (shared := _shared_object(clause)) is not None:
        parts.insert(0, tokens_of(shared))
    stray = _stray_object(clause.verb)
    if stray and not any(stray[-1] in part for part in parts):
        parts.insert(1, stray)
    return [part for part in parts if part]


def _with_own_can(part: "list[Token]", verb: "Token") -> "list[Token]":
    """Return a complement with the can that the parser takes for the verb's: "the watering CAN"."""
    if not part or part[-1].i + 1 >= len(verb.doc):
        return part
    following = part[-1].nbor()
    is_modal = following.lower_ == "can" and following.tag_ == "MD"
    is_own = following.head == verb and not any(following.children)
    return [*part, following] if is_modal and is_own and following.i > verb.i else part


def _belongs(verb: "Token", child: "Token") -> bool:
    if child.lower_ == "ok" and child.i == verb.i + 1:
        return True  # the button, which the parser takes for an interjection
    if child.dep_ == "nsubj" and child.i > verb.i:
        return True  # "get your bike up": the parser takes some objects for subjects
    if child.dep_ in _BESIDE:
        return False
    if child.dep_ in ("advmod", "npadvmod"):
        return child.lower_ not in HOLLOW_ADVERBS and child.i > verb.i
    if child.dep_ == "advcl":
        return _keeps(child) and not tells_more(child)
    if child.dep_ == "ccomp":
        return verb.lemma_ in CLAUSE_TAKERS or any(
            deep.lower_ in RELATIVES for deep in child.subtree
        )
    return True


def _keeps(clause: "Token") -> bool:
    """Tell whether a qualifying clause belongs to the step: "until it dissolves", "using a ruler",
    "to lock it"."""
    if clause.tag_ == "VBG" and not any(
        child.dep_ in ("aux", "nsubj") for child in clause.children
    ):
        return True
    if _is_comparison(clause):
        return True
    marks = {
        child.lower_
        for child in clause.children
        if child.dep_ in ("mark", "aux", "advmod") and child.i < clause.i
    }
    return bool(marks & KEPT_MARKS)


def _is_comparison(clause: "Token") -> bool:
    """Tell whether a clause says how much: "as hard AS YOU CAN"."""
    has_mark = any(child.lower_ == "as" and child.i < clause.i for child in clause.children)
    compared = clause.head
    is_measured = any(child.lower_ == "as" and child.i < compared.i for child in compared.children)
    return has_mark and is_measured and compared.pos_ in ("ADJ", "ADV")


def _is_condition(child: "Token") -> bool:
    return child.dep_ == "advcl" and any(deep.lower_ == "if" for deep in child.children)


def _is_occasion(child: "Token") -> bool:
    """Tell whether a phrase before the verb says when or for what: "FOR A SERIOUS BURN, call the
    doctor"."""
    named = [
        deep for deep in child.children if deep.dep_ == "pobj" and deep.pos_ in ("NOUN", "PROPN")
    ]
    if child.dep_ != "prep" or not named:
        return False
    if child.lower_ == "for":
        # not "for example"
        return any(deep.dep_ in ("det", "amod", "compound") for deep in named[0].children)
    return child.lower_ in ("after", "before", "during") or (
        child.lower_ == "in" and named[0].lower_ == "case"
    )


def _carriers_qualifiers(verb: "Token") -> "list[Token]":
    """Return the qualifying clauses of the verbs that carry this one: "if it is dry, you want to
    ADD water"."""
    found: list[Token] = []
    while verb.dep_ == "xcomp":
        end, verb = verb.i, verb.head
        clauses = [child for child in verb.children if child.dep_ == "advcl"]
        found.extend(
            child for child in clauses if _is_condition(child) or (child.i > end and _keeps(child))
        )
    return found


def _has_object(verb: "Token") -> bool:
    return any(
        child.dep_ in ("dobj", "prep", "prt", "xcomp", "ccomp", "oprd", "acomp")
        and child.i > verb.i
        for child in verb.children
    )


def _shared_object(clause: Clause) -> "Token | None":
    """Return the object that a later verb brings for both: "peel and slice the POTATOES"."""
    after = clause.verb.nbor() if clause.verb.i + 1 < len(clause.verb.doc) else None
    if (
        clause.verb.lemma_ in COMPLETE
        or after is None
        or not (after.dep_ in ("cc", "punct", "conj") or after.lower_ == "then")
    ):
        return None
    for child in clause.verb.children:
        if child.dep_ == "conj" and child.pos_ == "VERB" and child.i - clause.verb.i <= 4:
            for deep in child.children:
                if deep.dep_ == "dobj" and deep.i > child.i:
                    return deep
            deeper = _shared_object(Clause(child, clause.voice))
            if deeper is not None and not _has_object(child):
                return deeper
    return None


def _stray_object(verb: "Token") -> "list[Token]":
    """Return the object that the parser hung elsewhere, right after a particle: "pinch off | the
    bottom leaves"."""
    particles = [child for child in verb.children if child.dep_ == "prt" and child.i == verb.i + 1]
    if not particles or any(child.dep_ in ("dobj", "prep") for child in verb.children):
        return []
    chunks = [chunk for chunk in verb.doc.noun_chunks if chunk.start == verb.i + 2]
    return list(chunks[0]) if chunks else []


def _mean_keep(part: "Sequence[Token]", keep: "KeepChance") -> float:
    """Return the mean chance of the words that say something; a pronoun alone stays."""
    chances = [keep(token) for token in part if token.pos_ not in ("DET", "PUNCT", "PRON")]
    return sum(chances) / len(chances) if chances else 1.0


def tokens_of(head: "Token", keep: "KeepChance | None" = None) -> "list[Token]":
    """Return the tokens of a complement in order, without asides and hollow adverbs.

    keep: asides that it would keep stay, for they say which or where.
    """
    tokens = sorted(head.subtree, key=lambda token: token.i)
    asides = [token for token in tokens if _is_aside(token, head)]
    if keep is not None:
        asides = [
            token for token in asides if _mean_keep(list(token.subtree), keep) < MIN_ASIDE_KEEP
        ]
    dropped = {deep.i for token in asides for deep in token.subtree}
    kept = [token for token in tokens if token.i not in dropped]
    while kept and (kept[0].is_punct or kept[0].lower_ == "and"):
        kept.pop(0)
    while kept and (kept[-1].is_punct or kept[-1].dep_ == "cc"):
        kept.pop()
    return kept


def _is_aside(token: "Token", head: "Token") -> bool:
    if token is head:
        return False
    if token.dep_ in ("relcl", "intj", "parataxis"):
        return True
    if token.lower_ == "so" and any(child.dep_ == "nsubj" for child in token.head.children):
        return False  # "so your knees line up"
    if _is_as_well_as(token):
        return False
    if (
        token.dep_ == "advmod"
        and token.lower_ in HOLLOW_ADVERBS
        and token.head.pos_ in ("VERB", "AUX", "ADP")
    ):
        return token.head.pos_ != "ADP" or token.lower_ not in ("here", "there")
    if token.dep_ == "appos":
        # "the peas, the juice of a lemon and some salt" is a list all the same
        return not any(child.dep_ in ("conj", "appos") for child in token.children)
    if token.dep_ == "conj" and token.pos_ == "VERB" and token.head.pos_ in ("NOUN", "PROPN"):
        return True  # an action that the parser hung on a noun: a step of its own, or talk
    if (
        token.dep_ == "conj"
        and token.head.dep_ == "ccomp"
        and token.pos_ == "VERB"
        and acts_on_something(token)
    ):
        return True  # "let it dry, then sand it": the sanding is a step of its own
    return token.dep_ == "advcl" and not _keeps(token)


def _is_as_well_as(token: "Token") -> bool:
    """Tell whether a "well" joins two things: "the ginger AS WELL AS three cloves of garlic"."""
    around = token.doc[max(0, token.i - 1) : token.i + 2]
    return token.lower_ == "well" and [word.lower_ for word in around] == ["as", "well", "as"]


def shortened(parts: "list[list[Token]]") -> "list[list[Token]]":
    """Leave out qualifiers from the end until the step has at most LONGEST words; what the verb
    acts on stays, and a list of things is whole."""
    qualifiers = [part for part in parts[1:] if not _is_thing(part)]
    while sum(map(len, parts)) + 1 > LONGEST and qualifiers:
        last = qualifiers.pop()
        parts = [part for part in parts if part is not last]
    return [part[: _most_words(part)] for part in parts]


def _is_thing(part: "Sequence[Token]") -> bool:
    """Tell whether a complement is a thing that the verb acts on."""
    return any(token.dep_ == "dobj" and token.head not in part for token in part)


def _most_words(part: "Sequence[Token]") -> int:
    """Return how many words of a complement stay."""
    is_list = any(token.dep_ in ("conj", "appos") and token.pos_ in NOUNS for token in part)
    return LONGEST_LIST if is_list else LONGEST - 1


def is_rest(clause: Clause) -> bool:
    """Tell whether a clause only lets a thing that was set aside be: "set that to the side, LET IT
    COOL"."""
    before = clause.verb.head
    if clause.verb.lemma_ != "let" or before is clause.verb or before.lemma_ not in SETTING:
        return False
    near = {token.lower_ for token in clause.verb.doc[before.i : clause.verb.i]}
    return bool(near & ASIDE) and not any(
        token.dep_ == "nsubj" and token.pos_ in ("NOUN", "PROPN") for token in _let(clause.verb)
    )


def _let(verb: "Token") -> "list[Token]":
    """Return what a "let" lets happen: "it cool for an hour"."""
    return [token for child in verb.children if child.dep_ == "ccomp" for token in tokens_of(child)]


def rests_of(verb: "Token") -> "list[Token]":
    """Return how a thing that is set aside is left: "cool for an hour" of "set it aside, let it
    cool for an hour"."""
    for child in verb.children:
        if child.i > verb.i and child.lemma_ == "let" and is_rest(Clause(child, "order")):
            return [token for token in _let(child) if token.dep_ != "nsubj"]
    return []


Resolver: TypeAlias = "Callable[[Token], str | None]"  # a pronoun -> its name

# one speaker's own things are "the" things of a step
OURS = word_set("my our this that these those")
# "Give it a good whisk" is whisking: nouns that name an action when something is given them.
GIVEN = word_set(
    """
    whisk stir shake tap wipe rinse mix toss squeeze press pull spin twist scrub blend pat clean brush rub push
    wash dusting click dust spray knead swirl polish sand coat trim drizzle sprinkle soak turn
    """
)
# never the last word
_TAIL = word_set("and or but then so with to of for in on into that if until the a")


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
    parts = shortened(parts_of(clause, keep))
    resolved = _resolved(clause.verb, parts, resolve)
    light = _given(clause.verb, resolved)
    if light is not None:
        name, thing, end = light
        kept = [
            part for part in parts if part[0].dep_ in ("prep", "prt", "advcl") and part[0].i > end
        ]
        text = " ".join([name, thing, *(_text(part, resolved) for part in kept)])
    else:
        text = " ".join([_imperative(clause.verb), *(_text(part, resolved) for part in parts)])
    if clause.voice == "passive":
        # What it is done to: "THE POTATOES are then mashed".
        done_to = [
            t
            for child in clause.verb.children
            if child.dep_ == "nsubjpass"
            for t in tokens_of(child)
        ]
        text = " ".join([_imperative(clause.verb), _text(done_to, resolved), *text.split(" ")[1:]])
    if rest := rests_of(clause.verb):
        text = f"{_tidy(text)} to {_text(rest, resolved)}"
    # A manner that was said before the verb: "GENTLY pry".
    before = [
        child.lower_
        for child in clause.verb.children
        if child.dep_ == "advmod" and child.i < clause.verb.i
    ]
    manners = [
        word for word in before if word.endswith("ly") and word not in HOLLOW_ADVERBS | _NO_MANNERS
    ]
    text = " ".join([*manners[:1], _tidy(text)])
    if clause.negated:
        never = any(child.lower_ == "never" for child in clause.verb.children)
        text = f"never {text}" if never else f"don't {text}"
    tokens = sorted(
        {clause.verb, *(token for part in parts for token in part)}, key=lambda token: token.i
    )
    return Phrase(text, tuple(tokens), resolved)


def _resolved(verb: "Token", parts: "list[list[Token]]", resolve: Resolver) -> dict[int, str]:
    """Return names for the pronouns that the verb acts on, by token index."""
    names: dict[int, str] = {}
    things = {token.lemma_.lower() for part in parts for token in part if token.pos_ == "NOUN"}
    for part in parts:
        for token in part:
            direct = token.head == verb and token.dep_ in (
                "dobj",
                "dative",
                "nsubjpass",
                "npadvmod",
            )
            placed = (
                token.dep_ == "pobj"
                and token.head.head == verb
                and token.head.lower_ not in ("like", "for", "at", "of")
            )
            taken = token.dep_ == "nsubj" and token.head.head == verb and token.head.dep_ == "ccomp"
            if (
                token.lower_ in PRONOUNS
                and token.pos_ in ("PRON", "DET")
                and (direct or placed or taken)
            ):
                name = resolve(token)
                if name is not None and _is_new_name(name, names, things):
                    names[token.i] = name
    return names


def _is_new_name(name: str, names: dict[int, str], things: set[str]) -> bool:
    """Tell whether a step does not name the thing already: "place it under the car" is no car."""
    thing = name.split()[-1].lower()
    return name not in names.values() and thing not in things


def _given(verb: "Token", resolved: dict[int, str]) -> tuple[str, str, int] | None:
    """Read "give it a whisk" as (whisk, it, the index where the rest begins); None for any other
    clause."""
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
    return (
        before[-1]
        if before and before[-1] in ("right", "double", "left", "shift", "alt", "triple")
        else None
    )


def _text(tokens: "Iterable[Token]", resolved: dict[int, str]) -> str:
    """Join tokens as they were spoken, pronouns by their names, possessives by "the"."""
    pieces: list[str] = []
    last = None
    for token in tokens:
        word = _word(token, resolved)
        if not word:
            continue
        glued = last is not None and last.i + 1 == token.i and not last.whitespace_
        pieces.append(("" if glued or last is None else " ") + word)
        last = token
    return "".join(pieces)


def _word(token: "Token", resolved: dict[int, str]) -> str:
    if token.i in resolved:
        name = resolved[token.i]
        return name if name in INDEFINITE or not name else f"the {name}"
    if token.lower_ in OURS and token.dep_ in ("det", "poss") and _is_known_noun(token.head):
        return "the"
    return str(token.lower_ if token.is_sent_start and token.text != "I" else token.text)


def _is_known_noun(token: "Token") -> bool:
    """Tell whether a word may be a noun at all: the parser takes "clockwise" for one."""
    is_number = token.pos_ == "NUM" or token.lower_ == "one"  # "check this one more time"
    return token.pos_ == "PROPN" or (token.lemma_.lower() in nouns() and not is_number)


def _tidy(text: str) -> str:
    """Take off what hangs at the end, and put "make sure" back where `segments` had put "ensure
    that"."""
    words = text.replace("ensure that ", "make sure ").split()
    while len(words) > 1 and (
        words[-1].strip(",.") in _TAIL - {"on", "in"} or not words[-1].strip(",.-")
    ):
        words.pop()
    return " ".join(words).rstrip(",.!?;:- ")
