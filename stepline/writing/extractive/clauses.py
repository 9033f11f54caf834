"""Action clauses by dependency grammar: the speaker instructs the viewer to do something, or says
what they now do.

A clause is the verb of one action with what the grammar says of it. `off_topic` says which clauses
are not steps, `phrases` words the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from stepline.writing.extractive.english import verbs, word_set
from stepline.writing.extractive.segments import SUBORDINATE_WORDS

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

Voice: TypeAlias = Literal["order", "you", "we", "i", "title", "passive"]

# Verbs that only carry another one: "start adding" is adding. Their own meaning is how, not what.
CARRIER_VERBS = word_set(
    "go start begin continue keep finish proceed want need have like try get love prefer come"
)
# Auxiliaries that put an action into the past or into a might-be. No one is asked to do it now.
NOT_NOW = word_set("have has had 've 'd did was were would could might may")
# Verbs that take a whole clause along: "let it cool", "ensure that the lid is closed".
CLAUSE_TAKERS = word_set("let ensure check see watch help make keep have get")
RELATIVE_WORDS = word_set("that what which how where who why whatever whether")
# A passive is an instruction only with one of these: "the potatoes are then mashed".
PASSIVE_CUES = word_set("then now next should must finally")
QUESTION_WORDS = word_set("what why how who where which when")

# "let's add", "let me add": we and I, not a thing that is let
LET_US = frozenset(("'s", "s", "us", "me"))
# As participles they say by what means an action is done: "using a ruler".
MEANS_VERBS = word_set("use make be have keep leave let")

_SUBJECT_VOICES: dict[str, Voice] = {"you": "you", "ya": "you", "we": "we", "i": "i"}
_BASE_TAGS = frozenset(("VB", "VBP"))
_LINK_RELATIONS = frozenset(("conj", "dep", "parataxis", "ccomp"))


@dataclass(frozen=True)
class Clause:
    """One action as the grammar gives it.

    may: it is only allowed ("you can").
    negated: it is forbidden.
    narrow: said in plain present or as an order, without "going to" or the like.
    chain: the verb it is joined to ("peel and slice").
    """

    verb: "Token"
    voice: Voice
    may: bool = False
    negated: bool = False
    planned: bool = False
    chain: "Token | None" = None


@dataclass(frozen=True)
class _Mood:
    """What a verb inherits from the one it hangs on."""

    voice: Voice
    may: bool = False
    negated: bool = False
    planned: bool = False


def find_clauses(doc: "Doc", *, ordered: bool = False, sequenced: bool = False) -> list[Clause]:
    """Return the action clauses of one parsed segment in the order of their words.

    ordered: the segment's "you" was put there by `segments`, so its clauses are orders.
    sequenced: a "then" or the like was before it, which makes a passive an instruction.
    """
    clauses = []
    for sentence in doc.sents:
        for clause in _walk(sentence.root, None, None):
            verb = clause.verb
            has_cue = any(token.lower_ in PASSIVE_CUES for token in verb.doc[: verb.i])
            if clause.voice == "passive" and not sequenced and not has_cue:
                continue
            # The first half of a hyphenated verb, the "shift" of "shift-click", is no action.
            is_last = verb.i + 2 >= len(verb.doc)
            if not is_last and not verb.whitespace_ and verb.nbor().text == "-":
                continue
            if ordered and clause.voice == "you":
                clause = replace(clause, voice="order")
            clauses.append(clause)
    return sorted(clauses, key=lambda clause: clause.verb.i)


def _walk(verb: "Token", inherited: _Mood | None, chain: "Token | None") -> Iterator[Clause]:
    """Yield the clauses at and below a verb. A verb that only carries another one gives way to
    it."""
    mood = _mood(verb, inherited)
    carried = None if mood is None else _carried(verb)

    # the verb, or the one that it carries
    if mood is not None and carried is not None:
        # Not where the carrier says that it need not or will not be done.
        is_undone = verb.lemma_ in ("need", "have", "let") or mood.voice in ("i", "we")
        if not mood.negated or not is_undone:
            voice = "we" if verb.lemma_ == "let" else mood.voice
            yield from _walk(carried, replace(mood, voice=voice, planned=True), chain)
    elif mood is not None:
        yield Clause(verb, mood.voice, mood.may, mood.negated, mood.planned, chain)
        is_action = verb.lemma_ not in CARRIER_VERBS and verb.lemma_ != "be"
        if is_action and not mood.negated:
            for child in verb.children:
                if is_further_action(child):
                    yield from _walk(child, mood, None)

    # actions that are linked to it
    for child in [*verb.children, *_orders_after_let(verb)]:
        if child is carried or child.i <= verb.i or child.dep_ not in _LINK_RELATIONS:
            continue
        subject = _subject(child)
        if child.dep_ != "ccomp":
            is_linked = child.pos_ in ("VERB", "AUX") or child.lower_ in verbs()
        else:
            # Not a clause that the verb takes along.
            is_taken = child.lemma_ == "know" or verb.lemma_ in CLAUSE_TAKERS
            is_taken = is_taken or verb.pos_ == "VERB"
            has_person = subject is not None and subject.lower_ in _SUBJECT_VOICES
            is_linked = has_person and not is_taken
        if is_linked:
            joined_to = verb if child.dep_ == "conj" and subject is None else None
            yield from _walk(child, mood, joined_to)


def _orders_after_let(verb: "Token") -> "list[Token]":
    """Return orders that the parser joined to a taken clause: "let it dry, then SAND it
    lightly"."""
    orders: list[Token] = []
    if verb.lemma_ != "let":
        return orders
    for child in verb.children:
        if child.dep_ == "ccomp":
            orders += [
                deep for deep in child.children if deep.dep_ == "conj" and acts_on_something(deep)
            ]
    return orders


def acts_on_something(verb: "Token") -> bool:
    """Return whether a verb has an object of its own and no subject."""
    return _subject(verb) is None and has_child(verb, ("dobj",))


def has_child(head: "Token", relations: Sequence[str]) -> bool:
    """Return whether a token has a child in one of some dependency relations."""
    return any(child.dep_ in relations for child in head.children)


def is_further_action(child: "Token") -> bool:
    """Return whether a participle is an action of its own: "lie back, PINCHING your shoulders".
    "using ..." is not."""
    if child.dep_ != "advcl" or child.tag_ != "VBG" or child.lemma_ in MEANS_VERBS:
        return False
    is_behind_comma = child.i > child.head.i + 1 and child.nbor(-1).text == ","
    if not is_behind_comma or has_child(child, ("mark", "aux")):
        return False
    return acts_on_something(child)


def _mood(verb: "Token", inherited: _Mood | None) -> _Mood | None:
    """Return who does the verb and how it is said, None when it names no action now."""
    helpers = {child.lower_ for child in verb.children if child.dep_ in ("aux", "auxpass")}
    negated = False
    for child in verb.children:
        if child.i >= verb.i:
            continue
        if child.dep_ in ("mark", "advmod") and child.lower_ in SUBORDINATE_WORDS:
            return None
        if child.dep_ == "neg" or child.lower_ == "never":
            negated = True
    subject = _subject(verb)
    if subject is None or (inherited is not None and subject.lower_ in LET_US):
        return _without_subject(verb, inherited, helpers, negated)
    if subject.i and subject.nbor(-1).lower_ in RELATIVE_WORDS:
        return None  # "the length that you'll cut": describes a thing, not an order
    voice = _SUBJECT_VOICES.get(subject.lower_)
    if subject.dep_ == "nsubjpass":
        # "the potatoes are then mashed" and "it should be dried" are instructions, other passives
        # are not.
        is_now = helpers & {"are", "is", "be", "'re", "'s"} and not helpers & NOT_NOW
        return _Mood("passive", negated=negated) if is_now and voice is None else None
    if voice is None or helpers & NOT_NOW:
        return None
    # "I put", tagged past, is in the present too.
    is_now = _is_base(verb) and not helpers & {"is", "are", "'m", "'re", "am", "be"}
    if verb.tag_ != "VBG" and not is_now:
        return None
    planned = bool(helpers & {"will", "'ll", "'m", "'re", "am", "are"})
    return _Mood(voice, "can" in helpers, negated, planned)


def _without_subject(
    verb: "Token", inherited: _Mood | None, helpers: set[str], negated: bool
) -> _Mood | None:
    if inherited is not None:
        is_action = _is_base(verb) or verb.tag_ == "VBG"
        if not is_action or helpers & NOT_NOW:
            return None
        if inherited.negated and not negated:
            return _behind_negation(verb, inherited)
        return replace(inherited, negated=negated)
    if verb.dep_ != "ROOT":
        return None
    first = next((token for token in verb.doc if not token.is_punct), verb.doc[0])
    has_verb = any(token.tag_ in ("VBZ", "VBD") for token in verb.doc)
    if verb.tag_ == "VBG" and verb.i == first.i and not has_verb:
        return _Mood("title", negated=negated)
    is_question = first.lower_ in QUESTION_WORDS and first.dep_ != "mark" and first.head == verb
    if verb.tag_ in _BASE_TAGS and not is_question:
        return _Mood("order", negated=negated)
    return None


def _behind_negation(verb: "Token", inherited: _Mood) -> _Mood | None:
    """Return the mood of an action that is linked to one which is not to be done.

    It is forbidden too after "or": "don't twist it OR BEND it". After a comma it is to be done:
    "don't scrape it, TURN it around". After a mere "and" it is part of what is
    forbidden, and no action of its own.
    """
    before = ["", ""]
    for token in verb.doc[: verb.i]:
        if token.dep_ != "advmod":
            before.append(token.lower_)
    link = before[-1]
    # In "don't try to start it" both are one action.
    if verb.dep_ == "xcomp" or link in ("or", "nor", "to"):
        return inherited
    if link == "and" and "," not in before[-2:]:
        return None
    return replace(inherited, negated=False)


def _carried(verb: "Token") -> "Token | None":
    """Return the verb that a carrier carries: "going to ADD", "start by PRIMING", "let's ADD".

    "let it cool" stays an action of its own.
    """
    if verb.lemma_ == "let":
        for child in verb.children:
            if child.dep_ in ("ccomp", "xcomp") and child.i > verb.i:
                subject = _subject(child)
                if subject is not None and subject.lower_ in LET_US:
                    return child
        return None
    if verb.lemma_ not in CARRIER_VERBS:
        return None
    for child in verb.children:
        if child.i > verb.i and child.dep_ in ("xcomp", "advcl") and _is_carried(verb, child):
            return child
        is_by = child.dep_ == "prep" and child.lower_ in ("by", "with")
        if is_by and verb.lemma_ in ("start", "begin", "finish"):
            for deep in child.children:
                if deep.dep_ == "pcomp":
                    return deep
    return None


def _is_carried(verb: "Token", child: "Token") -> bool:
    if child.dep_ == "advcl" and verb.lemma_ not in ("start", "begin", "go"):
        return False
    if verb.lemma_ == "go" and verb.tag_ != "VBG":
        return False
    if has_child(verb, ("dobj",)) or child.tag_ not in ("VB", "VBG", "VBP"):
        return False
    for token in child.children:
        is_mark = token.dep_ in ("aux", "mark") and token.i < child.i
        if is_mark and token.lower_ not in ("to", "be"):
            return False
    return True


def _subject(verb: "Token") -> "Token | None":
    for child in verb.children:
        if child.dep_ in ("nsubj", "nsubjpass", "csubj", "expl") and child.i < verb.i:
            return child
    return None


def _is_base(verb: "Token") -> bool:
    return verb.tag_ in _BASE_TAGS or verb.lower_ in verbs()
