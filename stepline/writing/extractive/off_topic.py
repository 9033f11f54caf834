"""Clauses that look like an instruction and are no step: talk to the audience, states, and clauses
that their sentence makes no action.

What `flaw_in_sentence` rejects:

before we unscrew the brass cap             says when or in what case
without cutting the guide itself            would become its opposite
instead of pushing it to the side           the same
we have the right filter                    states what is, no action
it tells you how to jack the car up         says how, and nobody does it
if we keep sanding the edge                 says when or in what case
don't use a lever, you'll pinch the tube    warns of what would come

`flaw_of_step` rejects "walk you through it", which speaks to the viewer, and "make sure your
fingers", which lost its end.
"""

from typing import TYPE_CHECKING

from stepline.text.narration.words import word_set
from stepline.writing.extractive.clauses import Clause, has_child

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token


# Talking about the video instead of doing: "show you", "let me explain".
SPEECH_VERBS = word_set(
    """
    show teach explain tell talk discuss demonstrate introduce describe mention say answer share ask welcome
    thank apologize present review recommend suggest promise admit speak chat
    """
)
# Verbs of state, which are no actions even in the imperative.
STATE_VERBS = word_set(
    """
    be have see know think guess believe hope wish love hate like want need aim mean feel seem look sound depend
    understand remember forget notice realize wonder imagine care prefer appreciate matter own belong happen
    hear find end suppose figure worry agree trust swear get come become learn recommend deserve decide forgot
    """
)
# States that are actions after all when they are ordered outright: "look into the mirror", "get a
# bowl", "remember".
IMPERATIVE_STATE_VERBS = word_set("look find get come feel decide wait listen")
VIDEO_NOUNS = word_set("step steps tip tips video tutorial episode")


def is_talk_or_state(clause: Clause) -> bool:
    """Return whether a clause speaks to the audience ("follow these tips", "trust me") or states a
    condition or an opinion ("I think"), or invites them to try something, and so gives no action.

    "ask someone to call for help" is an action.
    """
    lemma = clause.verb.lemma_
    objects = _objects(clause.verb)
    if lemma in ("ask", "tell") and has_child(clause.verb, ("xcomp", "ccomp", "advcl")):
        return not objects.isdisjoint(("me", "us", "you"))
    return (
        lemma in SPEECH_VERBS
        or lemma in STATE_VERBS
        or clause.verb.head.lemma_ == "try"
        or not objects.isdisjoint(("me", "us"))
        or not objects.isdisjoint(VIDEO_NOUNS)
    )


def _objects(verb: "Token") -> set[str]:
    """Return the lower-case head words of a verb's objects. A verb without an object gives those of
    its prepositions."""
    objects = {child.lower_ for child in verb.rights if child.dep_ in ("dobj", "dative", "nsubj")}
    return objects or {
        nested.lower_
        for child in verb.children
        if child.dep_ == "prep"
        for nested in child.children
        if nested.dep_ == "pobj"
    }


# With a subject and an object they describe a state.
STATIVE_VERBS = word_set("have want need like love know see think guess wish seem")
PERSON_WORDS = word_set("i we you they")
CONDITION_WORDS = word_set("if unless before")
WILL_WORDS = word_set("will 'll")
LINKED_ROLES = ("advcl", "ccomp", "parataxis", "dep", "conj")  # of a clause next to another
MIN_STEP_TOKENS = 3  # "make sure", "be sure that"


def flaw_in_sentence(verb: "Token | None") -> str | None:
    """Return why a step's verb states no action in its sentence (a state, a condition, a
    perception, ...), None if it states one.

    verb: the parser's token of the step's first verb. None: the parser has no such token, and the
    result is None.
    """
    if verb is None:
        return None
    subjects = _child_words(verb, "nsubj")
    # "we HAVE the right filter"
    is_state = verb.lemma_ in STATIVE_VERBS and verb.tag_ != "VBN" and has_child(verb, ("dobj",))
    if is_state and not PERSON_WORDS.isdisjoint(subjects):
        return "describes a state, not an action"
    has_will = not WILL_WORDS.isdisjoint(_child_words(verb, "aux"))
    if has_will and "you" in subjects and _is_linked_to_prohibition(verb):
        return "says what would come of it"
    if any(child.lower_ == "how" and child.i < verb.i for child in verb.children):
        return "says how something is done, and no one does it"
    # In "if we keep cutting" the "if" belongs to the verb that carries this one.
    governor = verb.head if verb.dep_ == "xcomp" else verb
    if not CONDITION_WORDS.isdisjoint(_child_words(governor, "mark")):
        return "says when or in what case"
    if verb.dep_ == "pcomp":
        preposition = verb.head
        if preposition.lower_ == "without" or "instead" in _child_words(preposition, "advmod"):
            return "says what is not to be done"
    return None


def _is_linked_to_prohibition(verb: "Token") -> bool:
    """Return whether the parser links a verb to a negated imperative: "don't use a lever, you'll PINCH
    the tube"."""
    linked_verbs = [other for other in verb.lefts if other.dep_ in LINKED_ROLES]
    if verb.dep_ in LINKED_ROLES:
        linked_verbs.append(verb.head)
    return any(
        _child_words(other, "neg") and not _child_words(other, "nsubj") for other in linked_verbs
    )


def _child_words(verb: "Token", relation: str) -> list[str]:
    """Return the lower-case words that depend on a verb in a relation such as "nsubj"."""
    return [child.lower_ for child in verb.children if child.dep_ == relation]


def flaw_of_step(doc: "Doc") -> str | None:
    """Return what is wrong with the text of a step, None for a good one.

    doc: the parsed text of the step.
    """
    if len(doc) < MIN_STEP_TOKENS:
        return None
    if doc[1].lower_ == "you" and doc[1].dep_ in ("dobj", "dative"):
        return "speaks to the viewer, not about the work"
    ends_with_sure = doc[-1].lower_ == "sure" and doc[-2].lower_ in ("make", "be")
    # "Make sure" without a verb behind it lost what is to be sure.
    begins_with_sure = doc[1].lower_ == "sure" and doc[0].lower_ in ("make", "be")
    has_verb = any(token.pos_ in ("VERB", "AUX") for token in doc[1:])
    if ends_with_sure or (begins_with_sure and not has_verb):
        return "its end was lost"
    return None
