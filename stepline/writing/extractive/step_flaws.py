"""What the grammar says against a step that words alone let pass.

before we remove the drain plug             tells what comes later
the shorter part that we just cut           tells which thing is meant
without cutting the guide itself            would become its opposite
instead of pushing it to the side           the same
to set up for the exercise, adjust ...      tells what something is done for
I'm going to show you how to jack it up     speaks to the viewer
you'll see that the sides are even          tells what is seen, not what is done
we have the right filter                    tells a state, not an action
it tells you how to jack the car up         tells how, and nobody does it
if we keep cutting the hair                 tells a condition
make sure your fingers                      lost its end
can I rinse it with acid                    asks
don't use a lever, you'll pinch the tube    warns of what would come
"""

from typing import TYPE_CHECKING, Final

from stepline.text.narration.words import word_set

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

PAST_TAGS: Final = ("VBD", "VBN")
SEEING_VERBS: Final = frozenset(("see", "notice"))
# With a subject and an object they tell how things are.
STATE_VERBS: Final = word_set("have want need like love know see")
SUBJECT_WORDS: Final = word_set("i we you they")
WILL_WORDS: Final = frozenset(("will", "'ll"))
LINKED_ROLES: Final = ("advcl", "ccomp", "parataxis", "dep", "conj")  # of a clause next to another
CONDITION_WORDS: Final = frozenset(("if", "unless"))
MAX_SURE_WORDS: Final = 3  # "make sure", "be sure that"


def flaw_in_sentence(verb: "Token | None") -> str | None:
    """Return why a verb is not an action in its sentence, None where nothing speaks against it."""
    if verb is None:
        return None
    if verb.dep_ == "advcl":
        for child in verb.children:
            if child.lower_ == "before" and child.dep_ in ("mark", "advmod"):
                return "says what comes after something else"
    if verb.dep_ == "relcl" and verb.tag_ in PAST_TAGS:
        return "says which thing is meant"
    if _asks(verb):
        return "asks, and says nothing to do"
    if _is_warned_of(verb):
        return "says what would come of it"
    if _tells_state(verb):
        return "describes a state, not an action"
    before = [child.lower_ for child in verb.children if child.i < verb.i]
    if "how" in before:
        return "says how something is done, and no one does it"
    if _is_conditional(verb):
        return "states a condition"
    if verb.lemma_ in SEEING_VERBS and _tells_what_is_seen(verb):
        return "says what is seen, not what is done"
    if _is_left_undone(verb):
        return "says what is not to be done"
    if verb.dep_ == "advcl" and verb.i < verb.head.i and "to" in _words(verb, "aux"):
        return "says what something is done for"
    return None


def _is_left_undone(verb: "Token") -> bool:
    """Return whether a verb comes after "without" or "instead of"."""
    if verb.dep_ != "pcomp":
        return False
    preposition = verb.head
    return preposition.lower_ == "without" or "instead" in _words(preposition, "advmod")


def _asks(verb: "Token") -> bool:
    """Return whether a helper comes before the one who acts: "CAN I rinse it"."""
    if verb.dep_ != "ROOT":
        return False
    has_helper = False
    for child in verb.lefts:
        if child.dep_ == "nsubj":
            return has_helper and child.lower_ in SUBJECT_WORDS
        has_helper = has_helper or child.dep_ == "aux"
    return False


def _is_warned_of(verb: "Token") -> bool:
    """Return whether a verb says what comes of an action that is forbidden: "don't use a lever,
    you'll PINCH the tube"."""
    helpers = _words(verb, "aux")
    if WILL_WORDS.isdisjoint(helpers) or "you" not in _words(verb, "nsubj"):
        return False
    linked = []
    for other in (*verb.lefts, verb):
        if other.dep_ not in LINKED_ROLES:
            continue
        if other is verb:
            other = verb.head
        linked.append(_is_forbidden(other))
    return any(linked)


def _is_forbidden(verb: "Token") -> bool:
    """Return whether a verb is an order with a "not"."""
    return bool(_words(verb, "neg")) and not _words(verb, "nsubj")


def _tells_state(verb: "Token") -> bool:
    """Return whether a verb says what someone has, wants or sees: "we HAVE the right filter"."""
    if verb.lemma_ not in STATE_VERBS or verb.tag_ == "VBN":
        return False
    subjects = _words(verb, "nsubj")
    has_object = any(child.dep_ == "dobj" for child in verb.children)
    return has_object and not SUBJECT_WORDS.isdisjoint(subjects)


def _is_conditional(verb: "Token") -> bool:
    """Return whether a verb, or the one that carries it, belongs to a clause with "if"."""
    # In "if we keep cutting" the "if" belongs to the verb that carries this one.
    while verb.dep_ == "xcomp" and verb.head is not verb:
        verb = verb.head
    if verb.dep_ not in ("advcl", "ROOT"):
        return False
    marks = _words(verb, "mark")
    return not CONDITION_WORDS.isdisjoint(marks)


def _words(verb: "Token", relation: str) -> list[str]:
    return [child.lower_ for child in verb.children if child.dep_ == relation]


def _tells_what_is_seen(verb: "Token") -> bool:
    """Return whether "you see" has a clause of its own, or "you can see" anything."""
    words = {child.lower_ for child in verb.children}
    if words.isdisjoint(("you", "we")):
        return False
    has_modal = any(child.tag_ == "MD" for child in verb.children)
    relations = [child.dep_ for child in verb.children if child.i > verb.i]
    return has_modal or "ccomp" in relations


def flaw_of_step(doc: "Doc") -> str | None:
    """Return what is wrong with a written step, None where nothing is."""
    for token in doc:
        is_object = token.dep_ in ("dobj", "dative")
        if token.lower_ == "you" and is_object and token.head.i == 0:
            return "speaks to the viewer, not about the work"
    if len(doc) < MAX_SURE_WORDS:
        return None
    is_make_sure = doc[-1].lower_ == "sure" and doc[-2].lower_ in ("make", "be")
    if is_make_sure:
        return "its end was lost"
    has_sure = doc[1].lower_ == "sure"
    if not has_sure or doc[0].lower_ not in ("make", "be"):
        return None
    # "Make sure" without a verb behind it lost what is to be sure.
    for token in doc[1:]:
        if token.pos_ in ("VERB", "AUX"):
            return None
    return "its end was lost"
