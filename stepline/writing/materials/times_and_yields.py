"""How long the work takes and how much it makes, where the speaker says so of the whole work.

    "this recipe takes about thirty minutes"           total, 30 min
    "prep time is ten minutes, cook time is an hour"   preparation, 10 min; cooking, 1 h
    "it serves four to six"                            4-6 servings
    "this makes twelve pancakes"                       12 pancakes, where the title names pancakes

The time of a step ("bake for 20 minutes") does not count, and times are not added up. A kind that is
said with different times is left out, because it is not known which of them is right.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepline.records import Amount, Material, TimeKind, WorkTime
from stepline.text.narration.words import word_set
from stepline.writing.extractive.narration import NarrationUnit, ParsedNarration
from stepline.writing.materials.mentions import (
    NOUN_TAGS,
    ThingMention,
    amount_at,
    find_mentions,
    make_amount_record,
    normalized_word,
)
from stepline.writing.quantities import TIME_PLACEHOLDER, mark_times, tokens

if TYPE_CHECKING:
    from spacy.tokens import Token

APPROXIMATE_PATTERN = (
    r"(?:(?:about|around|roughly|approximately|just|only|under|over|maybe|like|of|a) )*"
)
COPULA_PATTERN = r"(?:(?:is|was|will be|should be|would be|:|-) )?"
WHOLE_WORK_PATTERN = (
    r"(?:recipe|dish|meal|project|(?:whole|entire) (?:thing|process|job|project|recipe|work))"
)
TIME_PATTERNS: dict[TimeKind, re.Pattern[str]] = {
    "total": re.compile(
        rf"\btotal (?:\w+ )?time {COPULA_PATTERN}{APPROXIMATE_PATTERN}{TIME_PLACEHOLDER}"
        rf"|{TIME_PLACEHOLDER} (?:in total|in all|all in|all together|altogether|total\b"
        r"|(?:from )?start to finish|from beginning to end)"
        rf"|\b{WHOLE_WORK_PATTERN} (?:(?:only|just|usually|will|can|should) )*"
        rf"(?:takes?|took) (?:(?:you|us|me) )?{APPROXIMATE_PATTERN}{TIME_PLACEHOLDER}"
    ),
    "preparation": re.compile(
        rf"\bprep(?:aration)? (?:time )?{COPULA_PATTERN}{APPROXIMATE_PATTERN}{TIME_PLACEHOLDER}"
        rf"|{TIME_PLACEHOLDER} (?:(?:of|for) )?prep(?:aration)?\b|{TIME_PLACEHOLDER} to prep(?:are)?(?: [,.;]|$)"
    ),
    "cooking": re.compile(
        rf"(?<!total )\b(?:cook|cooking|baking|roasting) time {COPULA_PATTERN}{APPROXIMATE_PATTERN}{TIME_PLACEHOLDER}"
        rf"|{TIME_PLACEHOLDER} (?:of )?(?:cook|cooking|baking|roasting) time\b"
        rf"|{TIME_PLACEHOLDER} to (?:cook|bake|roast)(?: [,.;]|$)"
    ),
}
APPROXIMATE_WORDS = word_set("about around roughly approximately up to at least just enough")
SERVING_VERBS = word_set("serve feed")
MAKING_VERBS = word_set("make yield produce")
PEOPLE_WORDS = word_set("people person adult guest portion serving kid child friend")
RECIPE_WORDS = word_set("recipe batch quantity amount mix mixture dough batter")
THING_PRONOUNS = word_set("this that it which")
SERVING_SUBJECTS = THING_PRONOUNS | RECIPE_WORDS
MODAL_WORDS = word_set("will should can would 'll")
MAX_WORDS_TO_SUBJECT = 4  # before a verb


def find_times(narration: ParsedNarration) -> tuple[WorkTime, ...]:
    """Return the times of the whole work that are said, one per kind, in the order of TIME_PATTERNS."""
    stated_times = [time for unit in narration.units for time in _unit_times(unit)]
    times = []
    for kind in TIME_PATTERNS:
        same_kind = [time for time in stated_times if time.kind == kind]
        # of two times that differ no one can say which holds
        if len({(time.low, time.high) for time in same_kind}) == 1:
            sentences = dict.fromkeys(time.sources[0] for time in same_kind)
            times.append(same_kind[0].model_copy(update={"sources": tuple(sentences)}))
    return tuple(times)


def _unit_times(unit: NarrationUnit) -> Iterator[WorkTime]:
    """Yield the times of the whole work that one spoken sentence states."""
    words, durations = mark_times(tokens(unit.text))
    text = " ".join(words)
    for kind, pattern in TIME_PATTERNS.items():
        for match in pattern.finditer(text):
            low, high = durations[text.count(TIME_PLACEHOLDER, 0, match.end()) - 1]
            yield WorkTime(
                kind=kind,
                low=low,
                high=high,
                text=unit.text,
                at=unit.sentences[0].span.start,
                sources=(unit.first_sentence,),
            )


def times_of_first_sentences(times: tuple[WorkTime, ...], sentences: int) -> tuple[WorkTime, ...]:
    """Return the times whose first source is among the first `sentences` transcript sentences."""
    return tuple(time for time in times if time.sources[0] < sentences)


def find_yields(narration: ParsedNarration, title: str) -> tuple[Material, ...]:
    """Return how much the work makes or how many people it serves: the first such amount that is
    said, or an empty tuple.

    title: title of the video. "it makes twelve pancakes" counts only if the title names pancakes.
    """
    title_words = word_set(title.lower())
    for number, doc in enumerate(narration.docs):
        for token in doc:
            product = _stated_servings(token) or _stated_product(token, title_words)
            if product is not None:
                name, amount = product
                unit = narration.units[number]
                at = unit.sentences[0].span.start
                sources = (unit.first_sentence,)
                return (Material(name=name, amounts=(amount,), at=at, sources=sources),)
    return ()


def _stated_servings(verb: "Token") -> tuple[str, Amount] | None:
    """Return "servings" and their number if a token is a verb that states it, else None."""
    doc = verb.doc
    words = [normalized_word(token) for token in doc]
    index = _skip_approximate_words(words, verb.i + 1)
    if verb.lemma_ in MAKING_VERBS:
        # "makes enough for four"
        if words[index - 1 : index + 1] != ["enough", "for"]:
            return None
        index = _skip_approximate_words(words, index + 1)
    elif verb.lemma_ not in SERVING_VERBS:
        return None
    if index >= len(words) or not _has_subject_among(verb, SERVING_SUBJECTS):
        return None
    amount = amount_at(words, index)
    if amount is None or amount.is_article or amount.unit:
        return None
    for token in doc[amount.end : amount.end + 1]:
        if token.pos_ in NOUN_TAGS and token.lemma_ not in PEOPLE_WORDS:
            return None
    return "servings", make_amount_record(doc, amount)


def _stated_product(verb: "Token", title_words: frozenset[str]) -> tuple[str, Amount] | None:
    """Return what a verb of making says that the work makes, name and amount. None for another token.

    title_words: lower-case words of the video's title, which must name the product unless the
        subject is a word such as "recipe".
    """
    if verb.lemma_ not in MAKING_VERBS:
        return None
    doc = verb.doc
    index = _skip_approximate_words([normalized_word(token) for token in doc], verb.i + 1)
    is_recipe = _has_subject_among(verb, RECIPE_WORDS)
    if not is_recipe and not _has_subject_among(verb, THING_PRONOUNS):
        return None
    for mention in find_mentions(doc, is_ingredient_list=False):
        amount = mention.amount
        if amount is None or amount.begin != index or amount.is_article:
            continue
        if not is_recipe and not _is_named(mention, title_words):
            return None
        return mention.name, make_amount_record(doc, amount)
    return None


def _is_named(mention: ThingMention, title_words: frozenset[str]) -> bool:
    """Return whether the title names the product, or it is a number of servings."""
    lemma = mention.lemmas[-1]
    return lemma in PEOPLE_WORDS | title_words or mention.words[-1].lower() in title_words


def _has_subject_among(verb: "Token", subjects: frozenset[str]) -> bool:
    """Return whether the subject of a verb in the present or after "will" is one of these words."""
    words = list(verb.doc[max(0, verb.i - MAX_WORDS_TO_SUBJECT) : verb.i])
    has_modal = False
    # Modal words, adverbs, auxiliaries and commas can be between a subject and its verb.
    while words and (words[-1].lower_ in MODAL_WORDS or words[-1].pos_ in ("ADV", "AUX", "PUNCT")):
        last_word = words.pop()
        has_modal = has_modal or last_word.lower_ in MODAL_WORDS
    if not has_modal and not verb.lower_.endswith("s"):
        return False
    if not words:  # "serves four"
        return verb.lemma_ in SERVING_VERBS
    if verb.dep_ == "conj" and words[-1].pos_ == "CCONJ":  # "takes an hour and serves four"
        return _has_subject_among(verb.head, subjects)
    return words[-1].lower_ in subjects


def _skip_approximate_words(words: list[str], index: int) -> int:
    while index < len(words) and words[index] in APPROXIMATE_WORDS:
        index += 1
    return index
