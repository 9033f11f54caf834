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
CATENATIVE_VERBS = word_set(
    "go start begin continue keep finish proceed want need have like try get love prefer come"
)
# Auxiliaries that put an action into the past or into a might-be. No one is asked to do it now.
NON_PRESENT_AUXILIARIES = word_set("have has had 've 'd did was were would could might may")
# Verbs that take a whole clause along: "let it cool", "ensure that the lid is closed".
CLAUSAL_COMPLEMENT_VERBS = word_set("let ensure check see watch help make keep have get")
RELATIVE_WORDS = word_set("that what which how where who why whatever whether")

# "let's add", "let me add": we and I, not a thing that is let
LET_SUBJECTS = frozenset(("'s", "s", "us", "me"))
# As participles they say by what means an action is done: "using a ruler".
INSTRUMENT_VERBS = word_set("use make be have keep leave let")

_SUBJECT_VOICES: dict[str, Voice] = {"you": "you", "ya": "you", "we": "we", "i": "i"}
_BASE_TAGS = frozenset(("VB", "VBP"))
_LINK_RELATIONS = frozenset(("conj", "dep", "parataxis", "ccomp"))


@dataclass(frozen=True)
class Clause:
    """A verb that states an action, with its subject and mood.

    Attributes:
        verb: the head of the clause.
        voice: the subject ("you", "we", "i"), or the form without one ("order", "title",
            "passive").
        is_permitted: whether the action is only allowed ("you can").
        is_negated: whether the action is forbidden.
        is_planned: whether it is said with "going to", "will" or the like.
        joined_verb: the verb before it that "and" joins to it ("PEEL and slice").
    """

    verb: "Token"
    voice: Voice
    is_permitted: bool = False
    is_negated: bool = False
    is_planned: bool = False
    joined_verb: "Token | None" = None


@dataclass(frozen=True)
class _Mood:
    """The voice and mood that a verb inherits from its governor."""

    voice: Voice
    is_permitted: bool = False
    is_negated: bool = False
    is_planned: bool = False


def find_clauses(
    doc: "Doc", *, has_added_you: bool = False, after_then: bool = False
) -> list[Clause]:
    """Return the action clauses of one parsed segment in word order.

    Args:
        doc: the segment.
        has_added_you: its "you" was inserted by `segments`, so its clauses are orders.
        after_then: a sequence word ("then") precedes it, which makes a passive an instruction.
    """
    clauses = []
    for sentence in doc.sents:
        for clause in _clauses_below(sentence.root, None, None):
            verb = clause.verb
            if clause.voice == "passive" and not after_then:
                continue
            # The first half of a hyphenated verb, the "shift" of "shift-click", is no action.
            is_near_end = verb.i + 2 >= len(verb.doc)
            if not is_near_end and not verb.whitespace_ and verb.nbor().text == "-":
                continue
            if has_added_you and clause.voice == "you":
                clause = replace(clause, voice="order")
            clauses.append(clause)
    return sorted(clauses, key=lambda clause: clause.verb.i)


def _clauses_below(
    verb: "Token", inherited: _Mood | None, joined_verb: "Token | None"
) -> Iterator[Clause]:
    """Yield the clauses at and below a verb. An auxiliary-like verb ("start") yields its
    complement."""
    mood = _mood(verb, inherited)
    complement = None if mood is None else _catenative_complement(verb)

    # the verb, or the one that it carries
    if mood is not None and complement is not None:
        # Not where the carrier says that it need not or will not be done.
        is_not_done = verb.lemma_ in ("need", "have", "let") or mood.voice in ("i", "we")
        if not mood.is_negated or not is_not_done:
            voice = "we" if verb.lemma_ == "let" else mood.voice
            yield from _clauses_below(
                complement, replace(mood, voice=voice, is_planned=True), joined_verb
            )
    elif mood is not None:
        yield Clause(
            verb, mood.voice, mood.is_permitted, mood.is_negated, mood.is_planned, joined_verb
        )
        is_action = verb.lemma_ not in CATENATIVE_VERBS and verb.lemma_ != "be"
        if is_action and not mood.is_negated:
            for child in verb.children:
                if is_separate_action(child):
                    yield from _clauses_below(child, mood, None)

    # actions that are linked to it
    for child in [*verb.children, *_actions_after_let(verb)]:
        if child is complement or child.i <= verb.i or child.dep_ not in _LINK_RELATIONS:
            continue
        subject = _subject(child)
        if child.dep_ != "ccomp":
            is_linked = child.pos_ in ("VERB", "AUX") or child.lower_ in verbs()
        else:
            # Not a clause that the verb takes along.
            is_complement = child.lemma_ == "know" or verb.lemma_ in CLAUSAL_COMPLEMENT_VERBS
            is_complement = is_complement or verb.pos_ == "VERB"
            has_person_subject = subject is not None and subject.lower_ in _SUBJECT_VOICES
            is_linked = has_person_subject and not is_complement
        if is_linked:
            joined_to = verb if child.dep_ == "conj" and subject is None else None
            yield from _clauses_below(child, mood, joined_to)


def _actions_after_let(verb: "Token") -> "list[Token]":
    """Return the verbs that the parser joined to a complement of "let": "let it dry, then SAND it
    lightly"."""
    if verb.lemma_ != "let":
        return []
    complements = [child for child in verb.children if child.dep_ == "ccomp"]
    return [
        nested
        for complement in complements
        for nested in complement.children
        if nested.dep_ == "conj" and has_own_object(nested)
    ]


def is_separate_action(child: "Token") -> bool:
    """Return whether a participle is a separate action: "lie back, PINCHING your shoulders".

    "using ..." is not.
    """
    if child.dep_ != "advcl" or child.tag_ != "VBG" or child.lemma_ in INSTRUMENT_VERBS:
        return False
    is_after_comma = child.i > child.head.i + 1 and child.nbor(-1).text == ","
    return is_after_comma and not has_child(child, ("mark", "aux")) and has_own_object(child)


def has_own_object(verb: "Token") -> bool:
    """Return whether a verb has a direct object and no subject."""
    return _subject(verb) is None and has_child(verb, ("dobj",))


def has_child(token: "Token", relations: Sequence[str]) -> bool:
    """Return whether a token has a child in one of these dependency relations."""
    return any(child.dep_ in relations for child in token.children)


def _mood(verb: "Token", inherited: _Mood | None) -> _Mood | None:
    """Return the subject and mood of a verb, None when it is no present action."""
    auxiliaries = {child.lower_ for child in verb.children if child.dep_ in ("aux", "auxpass")}
    is_negated = False
    for child in verb.children:
        if child.i >= verb.i:
            continue
        if child.dep_ in ("mark", "advmod") and child.lower_ in SUBORDINATE_WORDS:
            return None
        if child.dep_ == "neg" or child.lower_ == "never":
            is_negated = True
    subject = _subject(verb)
    if subject is None or (inherited is not None and subject.lower_ in LET_SUBJECTS):
        return _without_subject(verb, inherited, auxiliaries, is_negated)
    if subject.i and subject.nbor(-1).lower_ in RELATIVE_WORDS:
        return None  # "the length that you'll cut": describes a thing, not an order
    voice = _SUBJECT_VOICES.get(subject.lower_)
    if subject.dep_ == "nsubjpass":
        # "the potatoes are then mashed" and "it should be dried" are instructions, other passives
        # are not.
        is_present = (
            auxiliaries & {"are", "is", "be", "'re", "'s"}
            and not auxiliaries & NON_PRESENT_AUXILIARIES
        )
        return _Mood("passive", is_negated=is_negated) if is_present and voice is None else None
    if voice is None or auxiliaries & NON_PRESENT_AUXILIARIES:
        return None
    # "I put", tagged past, is in the present too.
    is_present = _is_base_form(verb) and not auxiliaries & {"is", "are", "'m", "'re", "am", "be"}
    if verb.tag_ != "VBG" and not is_present:
        return None
    is_planned = bool(auxiliaries & {"will", "'ll", "'m", "'re", "am", "are"})
    return _Mood(voice, "can" in auxiliaries, is_negated, is_planned)


def _without_subject(
    verb: "Token", inherited: _Mood | None, auxiliaries: set[str], is_negated: bool
) -> _Mood | None:
    if inherited is not None:
        is_action = _is_base_form(verb) or verb.tag_ == "VBG"
        if not is_action or auxiliaries & NON_PRESENT_AUXILIARIES:
            return None
        if inherited.is_negated and not is_negated:
            return _mood_after_negation(verb, inherited)
        return replace(inherited, is_negated=is_negated)
    if verb.dep_ != "ROOT":
        return None
    first = next((token for token in verb.doc if not token.is_punct), verb.doc[0])
    has_verb = any(token.tag_ in ("VBZ", "VBD") for token in verb.doc)
    if verb.tag_ == "VBG" and verb.i == first.i and not has_verb:
        return _Mood("title", is_negated=is_negated)
    if verb.tag_ in _BASE_TAGS:
        return _Mood("order", is_negated=is_negated)
    return None


def _mood_after_negation(verb: "Token", inherited: _Mood) -> _Mood | None:
    """Return the mood of an action linked to a negated one.

    After "or" it is negated too: "don't twist it OR BEND it". After a comma it is not: "don't
    scrape it, TURN it around". After "and" without a comma it is part of the negated action: None.
    """
    words_before = ["", ""]
    for token in verb.doc[: verb.i]:
        if token.dep_ != "advmod":
            words_before.append(token.lower_)
    conjunction = words_before[-1]
    # In "don't try to start it" both are one action.
    if verb.dep_ == "xcomp" or conjunction in ("or", "nor", "to"):
        return inherited
    if conjunction == "and" and "," not in words_before[-2:]:
        return None
    return replace(inherited, is_negated=False)


def _catenative_complement(verb: "Token") -> "Token | None":
    """Return the verb that a light verb governs: "going to ADD", "start by PRIMING", "let's ADD".

    "let it cool" stays a separate action.
    """
    if verb.lemma_ == "let":
        for child in verb.children:
            if child.dep_ in ("ccomp", "xcomp") and child.i > verb.i:
                subject = _subject(child)
                if subject is not None and subject.lower_ in LET_SUBJECTS:
                    return child
        return None
    if verb.lemma_ not in CATENATIVE_VERBS:
        return None
    for child in verb.children:
        if (
            child.i > verb.i
            and child.dep_ in ("xcomp", "advcl")
            and _is_catenative_complement(verb, child)
        ):
            return child
        is_by_phrase = child.dep_ == "prep" and child.lower_ in ("by", "with")
        if is_by_phrase and verb.lemma_ in ("start", "begin", "finish"):
            for nested in child.children:
                if nested.dep_ == "pcomp":
                    return nested
    return None


def _is_catenative_complement(verb: "Token", child: "Token") -> bool:
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


def _is_base_form(verb: "Token") -> bool:
    return verb.tag_ in _BASE_TAGS or verb.lower_ in verbs()
