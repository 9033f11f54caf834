"""The title that a speaker gives a video: what they announce at the beginning.

    "today i'm going to show you how to change the oil"    How to change the oil
    "we're having a shepherd's pie, and I do mean ..."     Shepherd's pie
    "what we'll do today is a plain white sourdough"       Plain white sourdough

The tagger says which sentences announce, the grammar which of their words name the work.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepline.text.narration import SentenceTags
from stepline.text.narration.words import SENTENCE_KINDS, word_set
from stepline.writing.extractive.antecedents import MEASURE_NOUNS, NON_ANTECEDENT_NOUNS
from stepline.writing.extractive.clauses import find_clauses
from stepline.writing.extractive.narration import ParsedNarration
from stepline.writing.extractive.segments import SEQUENCE_WORDS

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

MIN_ANNOUNCEMENT_PROBABILITY = 0.5  # P(a sentence announces) from which it can name the work
# the same where it says "how to", which hardly any other sentence does
MIN_HOW_TO_PROBABILITY = 0.3
MAX_OPENING_UNITS = 25  # from the beginning, in which a speaker says what comes
# P(a sentence describes a step). After two of these the work has begun
MIN_STEP_PROBABILITY = 0.5
MAX_TITLE_WORDS = 12

# Their object is what the work results in, or what is said. The verb adds nothing to a title.
LIGHT_VERBS = word_set(
    "make do have get cook prepare build show teach introduce cover see try look talk take go"
)
ARTICLE_WORDS = word_set(
    "a an the my our your some this that these those us me it favorite favourite own very"
)
TOPIC_PREPOSITIONS = word_set("about at through over into")
NAME_RELATIONS = word_set(
    "compound amod nmod poss case nummod prep pobj pcomp conj cc quantmod det punct"
)
ACTION_RELATIONS = NAME_RELATIONS | word_set("dobj prt advmod xcomp aux acomp acl")
# Other words say what these stand for.
NON_TOPIC_NOUNS = (
    NON_ANTECEDENT_NOUNS
    | MEASURE_NOUNS
    | word_set(
        """
        everything something way one version method job work dish recipe batch trick secret tip
        level exercise letter word question channel moment
        """
    )
)
# A part of the work is announced with these, not the whole of it.
PARTIAL_ANNOUNCEMENT_WORDS = SEQUENCE_WORDS | word_set("later meanwhile while also")
BEGINNING_VERBS = word_set("start begin see settle")
# Who names the occasion speaks of the whole video.
TODAY_ADVERBS = word_set("today tonight")
TIME_NOUNS_AFTER_THIS = word_set(
    "morning afternoon evening video lesson session tutorial week time"
)
# What may come before "is a plain sourdough".
WORK_SUBJECTS = word_set("it this that today tonight")
SUBJECTS_AFTER_WHAT: frozenset[str] = frozenset()  # only "what we'll do today is"
SPEECH_VERBS = word_set("show teach introduce demonstrate explain walk take learn")


def narration_title(narration: ParsedNarration) -> str | None:
    """Return the video title that the speaker announces, in sentence case, None without one."""
    steps = 0
    rows = zip(narration.docs[:MAX_OPENING_UNITS], narration.sentence_tags, strict=False)
    for doc, tags in rows:
        steps += tags.step_probability >= MIN_STEP_PROBABILITY
        if steps > 2:
            return None
        title = None if _announces_a_part(doc) else _announced_title(doc, tags)
        if title is not None:
            return title
    return None


def _announced_title(doc: "Doc", tags: SentenceTags) -> str | None:
    """Return the title that one sentence announces, in sentence case and with "how to" if it is said.
    None if it announces nothing."""
    announcement = float(tags.kind_probabilities[SENTENCE_KINDS.index("announcement")])
    names_time = _mentions_today_or_video(doc)
    announces_action = _announces_action(doc)
    has_speech_verb = any(token.lemma_ in SPEECH_VERBS for token in doc)
    # "How to" names the work more surely than a topic, so it is looked for first.
    if announcement >= MIN_HOW_TO_PROBABILITY or (announces_action and has_speech_verb):
        for tokens in _how_to_actions(doc):
            return _sentence_case(f"how to {_join_tokens(tokens)}")
    topics: list[list[Token]] = []
    if announcement >= MIN_ANNOUNCEMENT_PROBABILITY and (
        names_time or announces_action or has_speech_verb
    ):
        topics = _topic_phrases(doc, WORK_SUBJECTS)
    elif names_time and announces_action:
        topics = _topic_phrases(doc, SUBJECTS_AFTER_WHAT)
    return _sentence_case(_join_tokens(topics[0])) if topics else None


def _announces_a_part(doc: "Doc") -> bool:
    """Return whether a sentence announces only a part of the work: "later we make the sauce"."""
    return any(
        (
            token.lower_ in PARTIAL_ANNOUNCEMENT_WORDS
            and token.dep_ in ("advmod", "mark", "npadvmod")
        )
        or (token.lemma_ in BEGINNING_VERBS and token.dep_ in ("ROOT", "xcomp", "ccomp"))
        for token in doc
    )


def _mentions_today_or_video(doc: "Doc") -> bool:
    """Return whether a sentence mentions today, this evening or this video."""
    return any(
        token.lower_ in TODAY_ADVERBS
        or (token.lower_ == "this" and token.head.lower_ in TIME_NOUNS_AFTER_THIS)
        for token in doc
    )


def _announces_action(doc: "Doc") -> bool:
    """Return whether a sentence says that "we" or "I" are about to do something."""
    # "What we'll do today is": the subject of "is" is a clause.
    is_what_clause = any(token.dep_ == "csubj" and token.head.lemma_ == "be" for token in doc)
    return is_what_clause or any(
        clause.is_planned and clause.kind in ("we", "i") for clause in find_clauses(doc)
    )


def _how_to_actions(doc: "Doc") -> "Iterator[list[Token]]":
    """Yield the tokens of each action after "how to", "how we" or "how i": verb and object."""
    for token in doc[:-1]:
        is_how = token.lower_ == "how" and token.dep_ == "advmod"
        if is_how and token.head.tag_ in ("VB", "VBP"):
            phrase = _named_action(token.head)
            if phrase:
                yield phrase


def _topic_phrases(doc: "Doc", subjects: frozenset[str]) -> "list[list[Token]]":
    """Return the phrases that name the work in an announcement, each as a list of tokens, in order.

    subjects: words that refer to the work as the subject of "is", such as "today" in "today is a
        plain sourdough".
    """
    topics = []
    for clause in find_clauses(doc):
        if clause.kind not in ("we", "i", "you", "title") or clause.is_negated:
            continue
        verb = clause.verb
        if verb.lemma_ in LIGHT_VERBS:
            topics += [_name_tokens(thing) for thing in _objects(verb)]
        else:
            topics.append(_named_action(verb))
    for token in doc:
        if token.lemma_ == "be":
            topics += _complements(token, subjects)
    topics = [topic for topic in topics if topic]
    return sorted(topics, key=lambda topic: topic[0].i)


def _complements(verb: "Token", subjects: frozenset[str]) -> "list[list[Token]]":
    """Return the predicate nouns of a form of "be", each as a list of tokens.

    The list is empty unless the subject is one of `subjects` or a clause such as "what we'll do".
    """
    for child in verb.children:
        is_work = child.dep_ == "nsubj" and child.lower_ in subjects
        if child.dep_ == "csubj" or is_work:  # or "what we'll do"
            return [_name_tokens(other) for other in verb.children if other.dep_ == "attr"]
    return []


def _objects(verb: "Token") -> "Iterator[Token]":
    """Yield a verb's objects, also those of "talk about", "look at" and "go through"."""
    for child in verb.children:
        if child.dep_ in ("dobj", "attr", "oprd"):
            yield child
    for child in verb.children:
        if child.lower_ in TOPIC_PREPOSITIONS and child.i == verb.i + 1:
            yield from (thing for thing in child.children if thing.dep_ == "pobj")


def _named_action(verb: "Token") -> "list[Token]":
    """Return the tokens of a verb with its object phrase, an empty list if no noun is its object."""
    things = [child for child in verb.children if child.dep_ == "dobj"]
    if not any(_names_something(thing) for thing in things):
        return []
    return [verb, *_dependents(verb, ACTION_RELATIONS, after=verb.i)]


def _name_tokens(thing: "Token") -> "list[Token]":
    """Return the tokens of a noun phrase without its article and asides, an empty list for a pronoun
    or a noun that says too little."""
    if not _names_something(thing):
        return []
    words = [thing, *_dependents(thing, NAME_RELATIONS)]
    words.sort(key=lambda token: token.i)
    while words and (words[0].lower_ in ARTICLE_WORDS or words[0].is_punct):
        del words[0]
    return words


def _names_something(thing: "Token") -> bool:
    return thing.pos_ in ("NOUN", "PROPN") and thing.lemma_.lower() not in NON_TOPIC_NOUNS


def _dependents(head: "Token", relations: frozenset[str], after: int = -1) -> "list[Token]":
    """Return the tokens below a head in the parse, in order, up to the first punctuation after it.

    Args:
        head: the verb or noun.
        relations: dependency relations that are followed.
        after: direct dependents of the head count only behind this token index.
    """
    words: list[Token] = []
    pending = [child for child in head.children if child.i > after]
    if head.pos_ == "VERB":  # what else is done is said elsewhere
        pending = [child for child in pending if child.dep_ not in ("conj", "cc")]
    # All that hangs on it in these roles, however deep.
    while pending:
        token = pending.pop()
        if token.dep_ in relations:
            words.append(token)
            pending += token.children
    words.sort(key=lambda token: token.i)
    # A comma or another mark ends the name.
    end = head.i
    until_mark: list[Token] = []
    for token in words:
        marks_between = [
            nested for nested in head.doc[end : token.i] if nested.is_punct and nested.text != "-"
        ]
        if token.i > head.i and marks_between:
            break
        until_mark.append(token)
        end = max(end, token.i)
    # These lead to words that were cut off.
    while until_mark and until_mark[-1].dep_ in ("cc", "prep", "aux", "det", "punct"):
        until_mark.pop()
    return until_mark[:MAX_TITLE_WORDS]


def _join_tokens(tokens: "list[Token]") -> str:
    text = ""
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        # "Changing the oil" becomes "change the oil".
        text += token.lemma_ if not text and token.tag_ == "VBG" else token.text
        if token.whitespace_ or following is None or following.i != token.i + 1:
            text += " "
    return text.strip()


def _sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]
