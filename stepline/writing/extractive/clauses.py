"""Action clauses by dependency grammar: the speaker instructs the viewer to do something, or says
what they now do.

A clause is the verb of one action with its subject and mood. `off_topic` finds the clauses that are
no steps, and `phrases` writes the others as imperatives.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from stepline.writing.extractive.english import verbs, word_set
from stepline.writing.extractive.segments import SUBORDINATE_WORDS

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

ClauseKind = Literal["imperative", "you", "we", "i", "title"]

# Verbs that only carry another one: "start adding" is adding. Their own meaning is how, not what.
CATENATIVE_VERBS = word_set(
    "go start begin continue keep finish proceed want need have like try get love prefer recommend come"
)
# Auxiliaries that put an action into the past or into a might-be. No one is asked to do it now.
PERFECT_AUXILIARIES = word_set("have has had 've")
NON_PRESENT_AUXILIARIES = PERFECT_AUXILIARIES | word_set("'d did was were would could might may")
STATES_IN_PAST = word_set("get use")  # "I've got some probes", "we used to tie it"
RELATIVE_WORDS = word_set("that what which how where who why whatever whether")

# "let's add", "let me add": we and I, not a thing that is let
LET_SUBJECTS = word_set("'s s us me")

KIND_OF_SUBJECT: dict[str, ClauseKind] = {"you": "you", "ya": "you", "we": "we", "i": "i"}
_BASE_TAGS = word_set("VB VBP")
_PAST_TAGS = ("VBD", "VBN")
_LINK_RELATIONS = word_set("conj dep parataxis")


@dataclass(frozen=True)
class Clause:
    """A verb that states an action, with its subject and mood.

    Attributes:
        verb: the token of the verb.
        kind: the subject ("you", "we", "i"), or the form of a clause without such a subject:
            "imperative" (slice it) or "title" (slicing it).
        is_negated: whether the action is said with "not" or "never".
        is_planned: whether the action is said with "going to", "will" or the like.
        is_past: whether the speaker says that they did it: "I brought the hair to the front".
        joined_verb: the verb before this one that "and" joins to it (the PEEL of "peel and slice"),
            None without one.
    """

    verb: "Token"
    kind: ClauseKind
    is_negated: bool = False
    is_planned: bool = False
    is_past: bool = False
    joined_verb: "Token | None" = None


def find_clauses(doc: "Doc", *, has_added_you: bool = False) -> list[Clause]:
    """Return the action clauses of one parsed segment of a sentence, in word order.

    Args:
        doc: the parsed segment.
        has_added_you: whether `segments` inserted the "you" of the segment. Then its clauses with
            "you" are imperatives.
    """
    clauses: dict[int, Clause] = {}
    for token in doc:
        if token.dep_ != "ROOT" and not begins_action(token):
            continue
        for clause in _clauses_below(token, None, None):
            if has_added_you and clause.kind == "you":
                clause = replace(clause, kind="imperative")
            # The parser takes the hyphen of "pre-drilled" for a verb.
            if not clause.verb.is_punct:
                clauses.setdefault(clause.verb.i, clause)
    return [clauses[index] for index in sorted(clauses)]


def _clauses_below(
    verb: "Token", governing: Clause | None, joined_verb: "Token | None"
) -> Iterator[Clause]:
    """Yield the action clauses at and below a verb in the parse.

    A verb that only carries another one, as in "start ADDING", yields the clause of the other.

    Args:
        verb: where to begin.
        governing: the clause above the verb, whose subject and mood it inherits. None at the root.
        joined_verb: the verb before it that "and" joins to it, None without one.
    """
    clause = _action_clause(verb, governing)
    complement = None if clause is None else _catenative_complement(verb)

    # the verb, or the one that it carries
    if clause is not None and complement is not None:
        kind = "we" if verb.lemma_ == "let" else clause.kind
        carried = replace(clause, kind=kind, is_planned=True)
        yield from _clauses_below(complement, carried, joined_verb)
    elif clause is not None:
        yield replace(clause, joined_verb=joined_verb)
        for child in verb.children:
            if is_separate_action(child):
                yield from _clauses_below(child, clause, None)

    # actions that are linked to it
    for child in verb.children:
        # "YOU BRING it to a boil, then you add the sugar": the parser puts the first below the last
        is_run_on = child.dep_ == "ccomp" and child.i < verb.i
        is_linked = child.dep_ in _LINK_RELATIONS and child.i > verb.i
        if child is complement or not (is_run_on or is_linked):
            continue
        if child.pos_ in ("VERB", "AUX") or child.lower_ in verbs():
            is_joined = child.dep_ == "conj" and _subject(child) is None
            yield from _clauses_below(child, clause, verb if is_joined else None)


def is_separate_action(child: "Token") -> bool:
    """Return whether a dependent of a verb is a participle that states an action of its own: "lie
    back, PINCHING your shoulders".

    "lie back, using a mat" is no such action: it says by what means.
    """
    if child.dep_ != "advcl" or child.tag_ != "VBG" or child.lemma_ == "use":
        return False
    has_own_object = _subject(child) is None and has_child(child, ("dobj",))
    return child.i > 0 and child.nbor(-1).text == "," and has_own_object


def has_child(token: "Token", relations: Sequence[str]) -> bool:
    """Return whether a token has a child in one of these dependency relations."""
    return any(child.dep_ in relations for child in token.children)


def _action_clause(verb: "Token", governing: Clause | None) -> Clause | None:
    """Return the clause of a verb that states a present action, None for another verb.

    governing: the clause above it. A verb without a subject inherits the subject and mood.
    """
    auxiliaries = {child.lower_ for child in verb.children if child.dep_ in ("aux", "auxpass")}
    is_negated = is_purpose = False
    for child in verb.children:
        if child.i >= verb.i:
            continue
        if child.dep_ in ("mark", "advmod") and child.lower_ in SUBORDINATE_WORDS:
            return None
        if child.dep_ == "neg" or child.lower_ == "never":
            is_negated = True
        # "let it cool, SO you don't burn your hands"
        is_purpose |= child.lower_ == "so"
    if is_negated and is_purpose:
        return None
    subject = _subject(verb)
    if subject is None or (governing is not None and subject.lower_ in LET_SUBJECTS):
        return _subjectless_clause(verb, governing, auxiliaries, is_negated)
    kind = KIND_OF_SUBJECT.get(subject.lower_)
    is_passive = subject.dep_ == "nsubjpass"
    if kind is None or is_passive:
        return None
    is_told = kind != "you" and verb.tag_ in _PAST_TAGS and verb.lemma_ not in STATES_IN_PAST
    if is_told and auxiliaries <= PERFECT_AUXILIARIES and (auxiliaries or not _is_base_form(verb)):
        return Clause(verb, kind, is_negated, is_past=True)
    if auxiliaries & NON_PRESENT_AUXILIARIES:
        return None
    # "I put", tagged past, is in the present too.
    is_present = _is_base_form(verb) and not auxiliaries & {"is", "are", "'m", "'re", "am", "be"}
    if verb.tag_ != "VBG" and not is_present:
        return None
    is_planned = bool(auxiliaries & {"will", "'ll", "'m", "'re", "am", "are"})
    return Clause(verb, kind, is_negated, is_planned)


def _subjectless_clause(
    verb: "Token", governing: Clause | None, auxiliaries: set[str], is_negated: bool
) -> Clause | None:
    """Return the clause of a verb without a subject, None where it states no present action.

    Args:
        verb: the token of the verb.
        governing: the clause above it, None at the root.
        auxiliaries: lower-case auxiliary verbs of the verb.
        is_negated: whether the verb has its own "not" or "never".
    """
    if governing is not None:
        is_past = governing.is_past and verb.tag_ in _PAST_TAGS
        is_action = _is_base_form(verb) or verb.tag_ == "VBG" or is_past
        if not is_action or auxiliaries & NON_PRESENT_AUXILIARIES:
            return None
        if governing.is_negated and not is_negated:
            return _clause_after_negation(verb, governing)
        return replace(governing, verb=verb, is_negated=is_negated)
    if verb.dep_ != "ROOT":
        return None
    first = next((token for token in verb.doc if not token.is_punct), verb.doc[0])
    has_verb = any(token.tag_ in ("VBZ", "VBD") for token in verb.doc)
    if verb.tag_ == "VBG" and verb.i == first.i and not has_verb:
        return Clause(verb, "title", is_negated=is_negated)
    if _is_base_form(verb):
        return Clause(verb, "imperative", is_negated=is_negated)
    return None


def _clause_after_negation(verb: "Token", governing: Clause) -> Clause | None:
    """Return the clause of a verb that the parser links to a negated clause.

    After "or" it is negated too: "don't twist it OR BEND it". After a comma it is not: "don't
    scrape it, TURN it around". After "and" without a comma it is part of the negated action: None.
    """
    words_before = ["", ""]
    for token in verb.doc[: verb.i]:
        if token.dep_ != "advmod":
            words_before.append(token.lower_)
    conjunction = words_before[-1]
    clause = replace(governing, verb=verb)
    # In "don't try to start it" both are one action.
    if verb.dep_ == "xcomp" or conjunction in ("or", "nor", "to"):
        return clause
    if conjunction == "and" and "," not in words_before[-2:]:
        return None
    return replace(clause, is_negated=False)


def _catenative_complement(verb: "Token") -> "Token | None":
    """Return the verb whose action a light verb only carries: "going to ADD", "start by PRIMING",
    "let's ADD".

    None for other verbs. "let it cool" is an action itself, for "let" carries only "us" and "me".
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
        is_carried = child.dep_ in ("xcomp", "advcl") and child.tag_ in ("VB", "VBG", "VBP")
        # "you want a plate TO DRAIN them" says what the plate is for
        is_purpose = child.tag_ == "VB" and has_child(verb, ("dobj",)) and verb.lemma_ != "try"
        if child.i > verb.i and is_carried and not is_purpose:
            return child
        is_by_phrase = child.dep_ == "prep" and child.lower_ in ("by", "with")
        if is_by_phrase and verb.lemma_ in ("start", "begin", "finish"):
            for nested in child.children:
                if nested.dep_ == "pcomp":
                    return nested
    return None


def begins_action(token: "Token") -> bool:
    """Return whether a verb that the parser joins to a complement is the next action: "where the
    frame is, and then you LOWER the car"."""
    if token.dep_ != "conj":
        return False
    subject = _subject(token)
    is_person = subject is not None and subject.lower_ in KIND_OF_SUBJECT
    return is_person and any(child.lower_ in ("then", "will", "'ll") for child in token.children)


def _subject(verb: "Token") -> "Token | None":
    subjects = [
        child for child in verb.lefts if child.dep_ in ("nsubj", "nsubjpass", "csubj", "expl")
    ]
    return subjects[0] if subjects else None


def _is_base_form(verb: "Token") -> bool:
    """Return whether a verb is in its base form. The parser takes "put" and "cut" for past tenses,
    and "squat" for a third person."""
    is_like_base = verb.tag_.startswith("VB") and verb.lower_ == verb.lemma_
    return verb.tag_ in _BASE_TAGS or is_like_base
