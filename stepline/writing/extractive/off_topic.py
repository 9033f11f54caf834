"""Why a clause that looks like an instruction is not a step: talk to the audience, plans, opinions,
habits, options, and what the grammar of its sentence says against it.

Each rule of `off_topic_reason` is a row of a table, and the first that matches is the reason. What
`flaw_in_sentence` refuses:

before we remove the drain plug             says what comes later
the shorter part that we just cut           says which thing is meant
without cutting the guide itself            would become its opposite
instead of pushing it to the side           the same
to set up for the exercise, adjust ...      says what something is done for
you'll see that the sides are even          says what is seen, not what is done
we have the right filter                    states what is, no action
it tells you how to jack the car up         says how, and nobody does it
if we keep cutting the hair                 states a condition
can I rinse it with acid                    asks
don't use a lever, you'll pinch the tube    warns of what would come

`flaw_of_step` refuses "show you how to jack it up", which speaks to the viewer, and "make sure your
fingers", which lost its end.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from stepline.text.narration.words import word_set
from stepline.writing.extractive.clauses import CATENATIVE_VERBS, Clause, has_child

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token


# Talking about the video instead of doing: "show you", "let me explain".
SPEECH_VERBS = word_set(
    """
    show teach explain tell talk discuss demonstrate introduce describe mention say answer share ask welcome
    thank apologize present review recommend suggest promise admit speak chat
    """
)
STARTING_VERBS = word_set("get dive jump go move head hop")  # "let's dive right into it"
START_WORDS = word_set("started into over onto straight")
# Verbs of state, which are no actions even as orders.
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
    """
    usually always often normally sometimes typically generally personally mostly never rarely
    already
    """
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

# verbs that name no action without what comes after them
LIGHT_VERBS = word_set("continue begin take put set use")

STATE_REASON = "a state or an opinion, not an action"
NO_ACTION_REASON = "names no action"


def off_topic_reason(clause: Clause, *, is_question: bool = False) -> str | None:
    """Return why a clause is not a step, None when it is one."""
    if is_question:
        return "a question"
    for reason, is_off_topic in _OFF_TOPIC_RULES:
        if is_off_topic(clause):
            return reason
    return None


def _refers_to_speaker(clause: Clause) -> bool:
    """Return whether a clause asks the audience to do something for the speaker: "trust me",
    "follow us"."""
    if _objects(clause) & {"me", "us"}:
        return True
    return clause.verb.lemma_ == "let" and "me" in _words_after_verb(clause)


def _is_video_talk(clause: Clause) -> bool:
    lemma = clause.verb.lemma_
    if lemma in SPEECH_VERBS:
        # "ask someone to call for help" asks someone nearby
        after = [child for child in clause.verb.children if child.i > clause.verb.i]
        has_clause = any(child.dep_ in ("xcomp", "ccomp", "advcl") for child in after)
        addressees = {child.lower_ for child in after if child.dep_ in ("dobj", "dative")}
        asks_someone_nearby = (
            lemma in ("ask", "tell") and has_clause and addressees.isdisjoint(("me", "us", "you"))
        )
        return not asks_someone_nearby
    words = _words_after_verb(clause)
    if lemma in ("follow", "use", "try", "learn"):
        return bool(_objects(clause) & {"step", "steps", "tip", "tips"})
    if lemma == "check":
        return "out" in words and bool(words & TODAY_WORDS)
    if lemma == "walk":
        return "you" in words
    if lemma == "take":
        return "look" in words
    if lemma in ("keep", "bear"):
        return "mind" in words
    # a speaker only begins: "let's get STARTED", "let's jump straight INTO it"
    first_words = {token.lower_ for token in clause.verb.doc[clause.verb.i + 1 : clause.verb.i + 4]}
    is_beginning = lemma in STARTING_VERBS and not START_WORDS.isdisjoint(first_words)
    return is_beginning and not _acts_on_named_thing(clause)


def _is_state(clause: Clause) -> bool:
    lemma = clause.verb.lemma_
    if lemma == "aim" and not has_child(clause.verb, ("dobj",)):
        return True  # "aim for 20": how much, not what
    if (
        lemma == "come"
        and clause.voice == "order"
        and _words_after_verb(clause) & {"up", "down", "forward"}
    ):
        return False
    if lemma == "find" and _objects(clause) & {"yourself", "yourselves"}:
        return True
    if lemma == "be":
        return not (clause.voice == "order" and "careful" in _words_after_verb(clause))
    if lemma == "imagine" and clause.voice == "order":
        # "imagine that you push it away"
        return not has_child(clause.verb, ("ccomp",))
    if lemma not in STATE_VERBS:
        return False
    if lemma == "get" and not _has_obtained_object(clause.verb):
        return True  # "get off your seat", "get going": a person moves, no thing is got
    if lemma not in ORDERED_STATE_VERBS or not _acts_on_named_thing(clause):
        return True
    if clause.voice == "order":
        return False
    is_plan = clause.is_planned and clause.voice in ("i", "we")
    # Something is brought somewhere: "get your bike UP IN a stand". "get a better result" is not.
    after = [child for child in clause.verb.children if child.i > clause.verb.i]
    directions = {child.lower_ for child in after if child.dep_ in ("prt", "prep", "advmod")}
    moves_thing = _has_obtained_object(clause.verb) and not MOTION_WORDS.isdisjoint(directions)
    return lemma not in ("get", "come") or not (is_plan or moves_thing)


def _has_obtained_object(verb: "Token") -> bool:
    """Return whether a noun follows "get" before any preposition."""
    for token in verb.doc[verb.i + 1 :]:
        if token.pos_ in ("ADP", "ADV", "VERB", "AUX"):
            return False
        if token.pos_ in ("NOUN", "PROPN", "PRON"):
            return True
    return False


def _sentence_contains(clause: Clause, words: frozenset[str]) -> bool:
    return any(token.lower_ in words for token in clause.verb.doc)


def _is_habit(clause: Clause) -> bool:
    if clause.voice not in ("i", "we"):
        return False
    verbs_and_children = _verb_and_governors(clause.verb)
    verb_lemmas = {token.lemma_ for token in verbs_and_children if token.pos_ == "VERB"}
    if clause.voice == "i" and verb_lemmas & {"like", "love", "prefer"}:
        return True
    words = {token.lower_ for token in verbs_and_children}
    return bool(words & HABIT_WORDS)


def _states_video_purpose(clause: Clause) -> bool:
    """Return whether a clause states the video's purpose: "If you're trying to ..., try this"."""
    verb = clause.verb
    has_try = any(
        token.lemma_ == "try" and token is not verb for token in _verb_and_governors(verb)
    )
    if not has_try:
        return False
    opening = " ".join(token.lower_ for token in verb.doc[:5])
    purpose_match = re.match(r"if you (?:want|need|like|(?:'re|are) (?:trying|looking))\b", opening)
    return purpose_match is not None


def _is_choice(clause: Clause) -> bool:
    text = " ".join(token.lower_ for token in clause.verb.doc)
    for ending in ("n't", "'d", "'re"):
        text = text.replace(f" {ending}", ending)
    if any(phrase in text for phrase in FREE_CHOICE_WORDS):
        return True
    if not clause.is_permitted:
        return False
    if clause.verb.lemma_ in ("use", "do", "try", "buy", "substitute", "skip", "make"):
        return True
    words = {token.lower_ for token in _verb_and_governors(clause.verb)}
    words |= _words_after_verb(clause)
    return bool(words & CHOICE_WORDS)


def _lacks_action(clause: Clause) -> bool:
    lemma: str = clause.verb.lemma_
    if clause.verb.tag_ == "MD":
        return True  # the parser missed the verb
    if lemma in ("do", "try", "make"):
        objects = _objects(clause)
        if not objects:
            return lemma == "do"
        return objects <= VAGUE_WORDS
    is_light = lemma in CATENATIVE_VERBS or lemma in LIGHT_VERBS
    if not is_light or clause.joined_verb is not None:
        return False
    for child in clause.verb.children:
        # a verb joined after this one may bring the object for both
        if child.dep_ == "conj" and child.pos_ == "VERB":
            return False
        is_mark = child.is_punct or child.dep_ in ("cc", "conj")
        if child.i > clause.verb.i and not is_mark:
            return False
    return True


_OFF_TOPIC_RULES: tuple[tuple[str, Callable[[Clause], bool]], ...] = (
    ("chat: about the speaker", _refers_to_speaker),
    ("talk about the video", _is_video_talk),
    (STATE_REASON, _is_state),
    (
        "an announcement of what the video is about",
        lambda clause: (
            clause.voice in ("i", "we", "you") and _sentence_contains(clause, TODAY_WORDS)
        ),
    ),
    ("an announcement of what the video is about", _states_video_purpose),
    ("a habit of the speaker", _is_habit),
    (
        "about the past",
        lambda clause: clause.voice in ("i", "we") and _sentence_contains(clause, PAST_WORDS),
    ),
    ("left to the viewer", _is_choice),
    (
        "what the speaker does not do",
        lambda clause: clause.is_negated and clause.voice in ("i", "we"),
    ),
    (NO_ACTION_REASON, _lacks_action),
)


def _words_after_verb(clause: Clause) -> set[str]:
    """Return the lower-case words of a clause after its verb, without joined clauses."""
    verb = clause.verb
    joined: set[int] = set()
    for child in verb.children:
        if child.dep_ == "conj" and child.pos_ == "VERB":
            joined.update(token.i for token in child.subtree)
    after = [token for token in verb.subtree if token.i > verb.i]
    return {token.lower_ for token in after if token.i not in joined}


def _objects(clause: Clause) -> set[str]:
    """Return the heads of a verb's objects, or of its prepositions' objects without any."""
    verb = clause.verb
    objects: set[str] = set()
    for child in verb.children:
        if child.i > verb.i and child.dep_ in ("dobj", "dative"):
            objects.add(child.lower_)
    if objects:
        return objects
    for child in verb.children:
        if child.dep_ == "prep":
            objects.update(nested.lower_ for nested in child.children if nested.dep_ == "pobj")
    return objects


def _acts_on_named_thing(clause: Clause) -> bool:
    """Return whether the verb acts on a noun that is not vague."""
    verb = clause.verb
    names_thing = False
    for child in verb.children:
        if child.i > verb.i and child.dep_ in ("dobj", "nsubj", "prep", "prt"):
            names_thing |= any(nested.pos_ in ("NOUN", "PROPN") for nested in child.subtree)
    return names_thing and not _objects(clause) <= VAGUE_WORDS


def _verb_and_governors(verb: "Token") -> "list[Token]":
    """Return the verb, the verbs that govern it, and the children of all of these."""
    verbs_and_children = [verb, *verb.children]
    while verb.dep_ in ("xcomp", "ccomp", "conj") and verb.head is not verb:
        verb = verb.head
        verbs_and_children.append(verb)
        verbs_and_children += verb.children
    return verbs_and_children


PAST_TAGS: Final = ("VBD", "VBN")
PERCEPTION_VERBS: Final = frozenset(("see", "notice"))
# With a subject and an object they describe a state.
STATIVE_VERBS: Final = word_set("have want need like love know see")
PERSON_WORDS: Final = word_set("i we you they")
WILL_WORDS: Final = frozenset(("will", "'ll"))
LINKED_ROLES: Final = ("advcl", "ccomp", "parataxis", "dep", "conj")  # of a clause next to another
CONDITION_WORDS: Final = frozenset(("if", "unless"))
MIN_STEP_TOKENS: Final = 3  # "make sure", "be sure that"


def flaw_in_sentence(verb: "Token | None") -> str | None:
    """Return why a verb is not an action in its sentence, None when it is one."""
    if verb is None:
        return None
    if verb.dep_ == "advcl":
        for child in verb.children:
            if child.lower_ == "before" and child.dep_ in ("mark", "advmod"):
                return "says what comes after something else"
    if verb.dep_ == "relcl" and verb.tag_ in PAST_TAGS:
        return "says which thing is meant"
    if _is_question(verb):
        return "asks, and says nothing to do"
    subjects = _child_words(verb, "nsubj")
    has_will = not WILL_WORDS.isdisjoint(_child_words(verb, "aux"))
    if has_will and "you" in subjects and _is_linked_to_prohibition(verb):
        return "says what would come of it"
    # "we HAVE the right filter"
    is_state = verb.lemma_ in STATIVE_VERBS and verb.tag_ != "VBN" and has_child(verb, ("dobj",))
    if is_state and not PERSON_WORDS.isdisjoint(subjects):
        return "describes a state, not an action"
    if any(child.lower_ == "how" and child.i < verb.i for child in verb.children):
        return "says how something is done, and no one does it"
    # In "if we keep cutting" the "if" belongs to the verb that carries this one.
    governor = verb
    while governor.dep_ == "xcomp" and governor.head is not governor:
        governor = governor.head
    has_condition = not CONDITION_WORDS.isdisjoint(_child_words(governor, "mark"))
    if governor.dep_ in ("advcl", "ROOT") and has_condition:
        return "states a condition"
    if verb.lemma_ in PERCEPTION_VERBS and _describes_perception(verb):
        return "says what is seen, not what is done"
    if verb.dep_ == "pcomp":
        preposition = verb.head
        if preposition.lower_ == "without" or "instead" in _child_words(preposition, "advmod"):
            return "says what is not to be done"
    if verb.dep_ == "advcl" and verb.i < verb.head.i and "to" in _child_words(verb, "aux"):
        return "says what something is done for"
    return None


def _is_linked_to_prohibition(verb: "Token") -> bool:
    """Return whether a verb is linked to a negative order: "don't use a lever, you'll PINCH the
    tube"."""
    linked_verbs = [other for other in verb.lefts if other.dep_ in LINKED_ROLES]
    if verb.dep_ in LINKED_ROLES:
        linked_verbs.append(verb.head)
    return any(
        _child_words(other, "neg") and not _child_words(other, "nsubj") for other in linked_verbs
    )


def _describes_perception(verb: "Token") -> bool:
    """Return whether "you see" governs a clause, or "you can see" has any object."""
    if not any(child.lower_ in ("you", "we") for child in verb.children):
        return False
    has_modal = any(child.tag_ == "MD" for child in verb.children)
    return has_modal or any(child.dep_ == "ccomp" and child.i > verb.i for child in verb.children)


def _is_question(verb: "Token") -> bool:
    """Return whether an auxiliary comes before the subject: "CAN I rinse it"."""
    if verb.dep_ != "ROOT":
        return False
    has_helper = False
    for child in verb.lefts:
        if child.dep_ == "nsubj":
            return has_helper and child.lower_ in PERSON_WORDS
        has_helper = has_helper or child.dep_ == "aux"
    return False


def _child_words(verb: "Token", relation: str) -> list[str]:
    return [child.lower_ for child in verb.children if child.dep_ == relation]


def flaw_of_step(doc: "Doc") -> str | None:
    """Return what is wrong with the text of a step, None for a good one."""
    for token in doc:
        is_object = token.dep_ in ("dobj", "dative")
        if token.lower_ == "you" and is_object and token.head.i == 0:
            return "speaks to the viewer, not about the work"
    if len(doc) < MIN_STEP_TOKENS:
        return None
    ends_with_sure = doc[-1].lower_ == "sure" and doc[-2].lower_ in ("make", "be")
    # "Make sure" without a verb behind it lost what is to be sure.
    begins_with_sure = doc[1].lower_ == "sure" and doc[0].lower_ in ("make", "be")
    has_verb = any(token.pos_ in ("VERB", "AUX") for token in doc[1:])
    if ends_with_sure or (begins_with_sure and not has_verb):
        return "its end was lost"
    return None
