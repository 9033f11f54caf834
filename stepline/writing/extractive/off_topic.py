"""Why a clause that looks like an instruction is not a step: talk to the audience, plans, opinions,
habits, options, and clauses that their sentence makes no action.

Each rule of `off_topic_reason` is a row of a table, and the first one that matches is the reason.
What `flaw_in_sentence` rejects:

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

`flaw_of_step` rejects "show you how to jack it up", which speaks to the viewer, and "make sure your
fingers", which lost its end.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

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
FREE_CHOICE_PATTERN = re.compile(
    r"as you(?: want| like| would like|'d like| need)"
    r"|if you(?: want| like|'d like| prefer| wish| don't have| do not have|'re not)"
    r"|feel free|up to you|(?:whatever|however) you|it depends"
)
# With "can" these mark a choice: one may as well not do it.
CHOICE_WORDS = word_set("also instead either always even too later")
VAGUE_WORDS = word_set(
    "it this that these those thing things something anything everything work so job"
)

# verbs that name no action without what comes after them
LIGHT_VERBS = word_set("continue begin take put set use")

STATE_REASON = "a state or an opinion, not an action"
NO_ACTION_REASON = "names no action"


def off_topic_reason(clause: Clause, *, is_question: bool = False) -> str | None:
    """Return why a clause is no step of the work, None when it is one.

    Args:
        clause: an action clause.
        is_question: whether its segment ends with a question mark.
    """
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
    """Return whether a clause announces or comments what the video does: "let me show you", "let's
    get started"."""
    lemma = clause.verb.lemma_
    if lemma in SPEECH_VERBS:
        # "ask someone to call for help" asks someone nearby
        after = list(clause.verb.rights)
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
    verb = clause.verb
    first_words = {token.lower_ for token in verb.doc[verb.i + 1 : verb.i + 4]}
    is_beginning = lemma in STARTING_VERBS and not START_WORDS.isdisjoint(first_words)
    return is_beginning and not _acts_on_named_thing(clause)


def _is_state(clause: Clause) -> bool:
    """Return whether a clause states a condition or an opinion instead of an action: "you need it",
    "I think"."""
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
    directions = {
        child.lower_ for child in clause.verb.rights if child.dep_ in ("prt", "prep", "advmod")
    }
    moves_thing = _has_obtained_object(clause.verb) and not MOTION_WORDS.isdisjoint(directions)
    return lemma not in ("get", "come") or not (is_plan or moves_thing)


def _has_obtained_object(verb: "Token") -> bool:
    """Return whether a noun or pronoun follows a verb before any preposition, adverb or further
    verb."""
    for token in verb.doc[verb.i + 1 :]:
        if token.pos_ in ("ADP", "ADV", "VERB", "AUX"):
            return False
        if token.pos_ in ("NOUN", "PROPN", "PRON"):
            return True
    return False


def _sentence_contains(clause: Clause, words: frozenset[str]) -> bool:
    return any(token.lower_ in words for token in clause.verb.doc)


def _is_habit(clause: Clause) -> bool:
    """Return whether the speaker says what they usually or like to do."""
    if clause.voice not in ("i", "we"):
        return False
    verbs_and_children = _verb_and_governors(clause.verb)
    verb_lemmas = {token.lemma_ for token in verbs_and_children if token.pos_ == "VERB"}
    if clause.voice == "i" and verb_lemmas & {"like", "love", "prefer"}:
        return True
    words = {token.lower_ for token in verbs_and_children}
    return bool(words & HABIT_WORDS)


def _states_video_purpose(clause: Clause) -> bool:
    """Return whether a clause states what the video is for: "If you're trying to ..., try this"."""
    verb = clause.verb
    opening = " ".join(token.lower_ for token in verb.doc[:5])
    purpose = re.match(r"if you (?:want|need|like|(?:'re|are) (?:trying|looking))\b", opening)
    return purpose is not None and any(
        token.lemma_ == "try" and token is not verb for token in _verb_and_governors(verb)
    )


def _is_choice(clause: Clause) -> bool:
    """Return whether the viewer may as well leave the action out: "add salt if you like"."""
    text = " ".join(token.lower_ for token in clause.verb.doc)
    text = re.sub(r" (n't|'d|'re)", r"\1", text)
    if FREE_CHOICE_PATTERN.search(text):
        return True
    if not clause.is_permitted:
        return False
    if clause.verb.lemma_ in ("use", "do", "try", "buy", "substitute", "skip", "make"):
        return True
    words = {token.lower_ for token in _verb_and_governors(clause.verb)}
    words |= _words_after_verb(clause)
    return bool(words & CHOICE_WORDS)


def _lacks_action(clause: Clause) -> bool:
    """Return whether a verb names no action without an object, and has none: "do it", "keep"."""
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
    """Return the lower-case words of a clause after its verb, without those of verbs that are
    joined to it."""
    verb = clause.verb
    joined: set[Token] = set()
    for child in verb.children:
        if child.dep_ == "conj" and child.pos_ == "VERB":
            joined.update(child.subtree)
    return {token.lower_ for token in verb.subtree if token.i > verb.i and token not in joined}


def _objects(clause: Clause) -> set[str]:
    """Return the lower-case head words of a verb's objects. A verb without an object gives those of
    its prepositions."""
    verb = clause.verb
    objects = {child.lower_ for child in verb.rights if child.dep_ in ("dobj", "dative")}
    return objects or {
        nested.lower_
        for child in verb.children
        if child.dep_ == "prep"
        for nested in child.children
        if nested.dep_ == "pobj"
    }


def _acts_on_named_thing(clause: Clause) -> bool:
    """Return whether a noun follows the verb as its object or place, and its objects are not only
    words such as "it" and "thing"."""
    names_thing = any(
        nested.pos_ in ("NOUN", "PROPN")
        for child in clause.verb.rights
        if child.dep_ in ("dobj", "nsubj", "prep", "prt")
        for nested in child.subtree
    )
    return names_thing and not _objects(clause) <= VAGUE_WORDS


def _verb_and_governors(verb: "Token") -> "list[Token]":
    """Return the verb, the verbs above it in the parse, and the direct dependents of all these."""
    verbs_and_children = [verb, *verb.children]
    while verb.dep_ in ("xcomp", "ccomp", "conj") and verb.head is not verb:
        verb = verb.head
        verbs_and_children.append(verb)
        verbs_and_children += verb.children
    return verbs_and_children


PAST_TAGS = ("VBD", "VBN")
PERCEPTION_VERBS = frozenset(("see", "notice"))
# With a subject and an object they describe a state.
STATIVE_VERBS = word_set("have want need like love know see")
PERSON_WORDS = word_set("i we you they")
WILL_WORDS = frozenset(("will", "'ll"))
LINKED_ROLES = ("advcl", "ccomp", "parataxis", "dep", "conj")  # of a clause next to another
CONDITION_WORDS = frozenset(("if", "unless"))
MIN_STEP_TOKENS = 3  # "make sure", "be sure that"


def flaw_in_sentence(verb: "Token | None") -> str | None:
    """Return why a step's verb states no action in its sentence (a state, a condition, a
    perception, ...), None if it states one.

    verb: the parser's token of the step's first verb. None: the parser has no such token, and the
    result is None.
    """
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
    """Return whether the parser links a verb to a negative order: "don't use a lever, you'll PINCH
    the tube"."""
    linked_verbs = [other for other in verb.lefts if other.dep_ in LINKED_ROLES]
    if verb.dep_ in LINKED_ROLES:
        linked_verbs.append(verb.head)
    return any(
        _child_words(other, "neg") and not _child_words(other, "nsubj") for other in linked_verbs
    )


def _describes_perception(verb: "Token") -> bool:
    """Return whether "you" or "we" can see something, or see that something is so."""
    if not any(child.lower_ in ("you", "we") for child in verb.children):
        return False
    has_modal = any(child.tag_ == "MD" for child in verb.children)
    return has_modal or any(child.dep_ == "ccomp" for child in verb.rights)


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
    """Return the lower-case words that depend on a verb in a relation such as "nsubj"."""
    return [child.lower_ for child in verb.children if child.dep_ == relation]


def flaw_of_step(doc: "Doc") -> str | None:
    """Return what is wrong with the text of a step, None for a good one.

    doc: the parsed text of the step.
    """
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
