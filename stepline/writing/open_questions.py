"""What a reader of the steps would still have to ask, because no word of the narration answers it.

    "You need 300 grams of flour, two eggs, sugar and butter."   How much sugar? How much butter?
    "Then bake it in the oven."                                  For how long? At what temperature?

A question is left out where any sentence may answer it, before or after: few questions, and right
ones.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stepline.records import Material, OpenQuestion, QuestionKind, Step
from stepline.text.narration.words import SENTENCE_KINDS, word_set
from stepline.writing.extractive.clauses import LET_SUBJECTS
from stepline.writing.extractive.narration import ParsedNarration
from stepline.writing.extractive.segments import SUBORDINATE_WORDS
from stepline.writing.materials.mentions import (
    COUNT_UNITS,
    NOUN_TAGS,
    VAGUE_AMOUNTS,
    ThingMention,
    amount_at,
    find_mentions,
    normalized_word,
    singularize_unit,
)
from stepline.writing.quantities import (
    TEMPERATURE_KIND,
    UNIT_KINDS,
    find_quantities,
    stem,
    tokens,
    word_at,
)

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

MIN_OTHER_AMOUNTS = 2  # in a sentence, from which a thing in it without an amount lacks one
MAX_WORDS_TO_AMOUNT = 5  # before a name
VAGUE_WORDS = VAGUE_AMOUNTS | word_set("enough much many any all half rest extra")
# Added to taste, or from the tap: no one measures them.
UNMEASURED_STEMS = frozenset(map(stem, word_set("salt pepper seasoning spices water ice garnish")))
# What makes a noun no further thing of a list: "or butter", "like cream", "none of your sludge".
NON_LIST_WORDS = word_set("or like as called no of if")

# Done to a thing that is then left alone, and what "let it" is followed by.
TIMED_VERBS = word_set(
    "bake roast simmer boil braise steep poach refrigerate chill marinate freeze"
)
LET_VERBS = word_set("let leave allow")
VERBS_AFTER_LET = TIMED_VERBS | word_set("rest sit stand rise soak set proof prove")
TIME_WORDS = word_set(
    "until till til overnight when once second seconds minute minutes hour hours day days"
)
ORDER_SUBJECTS = word_set("you we i")
SENTENCES_BEFORE_TIME = 1  # in which a time may be said, and after
SENTENCES_AFTER_TIME = 3
OVEN_PATTERN = re.compile(
    r"(?:(?:\w+ )*and |to )?(?:bake|roast|preheat (?:the|your) oven)\b"
    r"|.*\b(?:put|place|pop|slide|stick|go) .*\b(?:in|into) (?:the|your|a|an) (?:\w+ )?oven\b"
)
HEAT_WORDS_PATTERN = re.compile(r"oven|bak|roast|heat|grill|broil|gas mark")
HEAT_LEVEL_WORDS = word_set("low medium high hot degree degrees mark")
MIN_OVEN_NUMBER = 100.0  # a bare number near the oven is a temperature from here on


def find_open_questions(
    narration: ParsedNarration, steps: Sequence[Step], materials: Sequence[Material]
) -> tuple[OpenQuestion, ...]:
    """Return what the narration of a video leaves open, in the order of the words that leave it open.

    Args:
        narration: the parsed narration.
        steps: its written steps.
        materials: what the work needs, by the narration.
    """
    finder = _QuestionFinder(narration, steps)
    questions = [
        *finder.missing_amounts(materials),
        *finder.missing_times(),
        *finder.missing_temperature(),
    ]
    return tuple(sorted(questions, key=lambda question: question.at))


class _QuestionFinder:
    """The rules of each kind of question, over one narration."""

    def __init__(self, narration: ParsedNarration, steps: Sequence[Step]) -> None:
        self.narration = narration
        self.docs = narration.docs
        # of each unit its words, whether it says a time, and the things it mentions
        self.words = [tokens(text) for text in narration.texts]
        self.has_time = list(map(_says_time, self.words))
        self.mentions: list[list[ThingMention]] = []
        for doc, tags in zip(self.docs, narration.sentence_tags, strict=True):
            items = tags.kind_probabilities[SENTENCE_KINDS.index("items")]
            self.mentions.append(find_mentions(doc, is_list=bool(items >= 0.5)))
        self.unit_of = [
            number for number, unit in enumerate(narration.units) for _ in unit.sentences
        ]
        self.orders = [step for step in steps if step.kind == "do" and step.sources]

    def question(
        self,
        kind: QuestionKind,
        text: str,
        unit: int,
        step: Step | None = None,
        at: float | None = None,
    ) -> OpenQuestion:
        if at is None:
            at = self.narration.units[unit].sentences[0].span.start
        return OpenQuestion(at=at, text=text, kind=kind, step=step and step.id)

    def units_of(self, step: Step) -> list[int]:
        """Return the indices of the units that a step rests on."""
        return sorted({self.unit_of[source] for source in step.sources})

    def missing_amounts(self, materials: Sequence[Material]) -> Iterator[OpenQuestion]:
        """Yield a question per material without an amount, in a sentence that gives others one."""
        measured = self._measured_stems()
        for material in materials:
            unit = self.unit_of[material.sources[0]]
            others = [mention for mention in self.mentions[unit] if _has_amount(mention)]
            is_measured = any(map(_is_weighed, others))
            if material.amounts or not is_measured or len(others) < MIN_OTHER_AMOUNTS:
                continue
            for mention in self.mentions[unit]:
                stems = set(map(stem, mention.lemmas))
                if mention.name != material.name or stems & UNMEASURED_STEMS:
                    continue
                if stem(mention.lemmas[-1]) in measured or not _is_bare(self.docs[unit], mention):
                    continue
                noun = self.docs[unit][mention.token_index]
                many = "many" if noun.tag_ in ("NNS", "NNPS") else "much"
                text = f"How {many} {material.name}?"
                yield self.question("amount", text, unit, at=material.at)
                break

    def _measured_stems(self) -> set[str]:
        """Return the stems of all nouns that any sentence may give an amount, even a vague one."""
        stems: set[str] = set()
        for unit, doc in enumerate(self.docs):
            stems.update(stem(noun.lemma_.lower()) for noun in doc if _may_have_amount(noun))
            # an amount without a thing may be of all that was just named
            if _has_loose_amount(doc, self.mentions[unit]):
                for mention in (*self.mentions[max(0, unit - 1)], *self.mentions[unit]):
                    stems.add(stem(mention.lemmas[-1]))
        return stems

    def missing_times(self) -> Iterator[OpenQuestion]:
        """Yield a question per verb of waiting, at the first step that has no time for it."""
        asked: set[str] = set()
        for step in self.orders:
            for unit in self.units_of(step):
                for verb in self._timed_verbs(step, unit):
                    if verb not in asked and not self._may_say_time(verb, unit):
                        yield self.question("time", f"For how long? “{step.text}”", unit, step)
                        asked.add(verb)

    def _timed_verbs(self, step: Step, unit: int) -> Iterator[str]:
        """Yield the verbs of a step in a sentence that need a time: "bake", the "rest" of "let it
        rest"."""
        words = tokens(step.text)
        for token in self.docs[unit]:
            if token.pos_ != "VERB" or token.lemma_ not in words or "while" in words:
                continue
            subjects = {child.lower_ for child in token.children if child.dep_ == "nsubj"}
            is_let = token.dep_ in ("ccomp", "xcomp") and _is_letting(token.head)
            place = words.index(token.lemma_)
            is_order = place == 0 or words[place - 1] in ("and", "then", ",")
            if is_let and subjects.isdisjoint(LET_SUBJECTS) and token.lemma_ in VERBS_AFTER_LET:
                yield token.lemma_
            elif is_order and subjects <= ORDER_SUBJECTS and token.lemma_ in TIMED_VERBS:
                yield token.lemma_

    def _may_say_time(self, verb: str, unit: int) -> bool:
        """Return whether a time or an end is said near a sentence, or anywhere with the same verb."""
        near = self.has_time[max(0, unit - SENTENCES_BEFORE_TIME) : unit + SENTENCES_AFTER_TIME + 1]
        rows = zip(self.docs, self.has_time, strict=True)
        return any(near) or any(
            has_time and any(token.lemma_ == verb for token in doc) for doc, has_time in rows
        )

    def missing_temperature(self) -> Iterator[OpenQuestion]:
        """Yield a question at the first step with the oven, where no temperature is ever said."""
        for number, words in enumerate(self.words):
            near = self.words[
                max(0, number - SENTENCES_BEFORE_TIME) : number + SENTENCES_AFTER_TIME + 1
            ]
            is_near_oven = any(HEAT_WORDS_PATTERN.search(" ".join(other)) for other in near)
            if _may_say_temperature(words, is_near_oven=is_near_oven):
                return
        for step in self.orders:
            text = step.text.lower()
            if OVEN_PATTERN.match(text) and "grill" not in text:
                unit = self.units_of(step)[0]
                yield self.question(
                    "temperature", f"At what temperature? “{step.text}”", unit, step
                )
                return


def _is_letting(verb: "Token") -> bool:
    """Return whether a verb lets a thing be: the "let" of "let it rest", and not of "after you let it"."""
    words = {child.lower_ for child in verb.children if child.dep_ in ("mark", "advmod")}
    return verb.lemma_ in LET_VERBS and words.isdisjoint(SUBORDINATE_WORDS)


def _says_time(words: Sequence[str]) -> bool:
    """Return whether words say how long, or until when."""
    return not TIME_WORDS.isdisjoint(words)


def _may_say_temperature(words: Sequence[str], *, is_near_oven: bool) -> bool:
    """Return whether words may say how hot an oven is: degrees, a level, or a number near the oven."""
    text = " ".join(words)
    quantities = find_quantities(text)
    if any(quantity.kind == TEMPERATURE_KIND for quantity in quantities):
        return True
    is_large = any(quantity.high >= MIN_OVEN_NUMBER for quantity in quantities)
    has_level = not HEAT_LEVEL_WORDS.isdisjoint(words)
    return is_near_oven and (is_large or has_level)


def _has_amount(mention: ThingMention) -> bool:
    return mention.amount is not None and not mention.amount.is_article


def _is_weighed(mention: ThingMention) -> bool:
    """Return whether a thing has a mass or a volume, as in a recipe."""
    kind, _ = UNIT_KINDS.get(mention.amount.unit if mention.amount else "", ("", 0.0))
    return kind in ("mass", "volume")


def _is_bare(doc: "Doc", mention: ThingMention) -> bool:
    """Return whether a thing is named without an article, as one of a list."""
    if mention.role not in ("listed", "added") or mention.is_definite:
        return False
    if doc[mention.token_index].dep_ == "appos":
        return False
    begin = mention.token_index - len(mention.words) + 1
    before = doc[begin - 1] if begin else None
    is_determined = before is not None and before.pos_ in ("DET", "PRON", "NUM")
    return not is_determined and (before is None or before.lower_ not in NON_LIST_WORDS)


def _may_have_amount(noun: "Token") -> bool:
    """Return whether a number, a unit or a vague word is right before or after a noun."""
    if noun.pos_ not in NOUN_TAGS:
        return False
    doc = noun.doc
    words = [token.lower_ for token in doc]
    after = noun.i + 1 + (word_at(words, noun.i + 1) in (",", "-", ":"))
    if after < len(doc) and doc[after].pos_ == "NUM":
        return after == noun.i + 1 or not any(
            t.pos_ in NOUN_TAGS for t in doc[after + 1 : after + 3]
        )
    for token in reversed(doc[max(0, noun.i - MAX_WORDS_TO_AMOUNT) : noun.i]):
        word = token.lower_
        if word in (",", "and") or token.pos_ in ("VERB", "AUX"):
            return False
        is_unit = word in UNIT_KINDS or singularize_unit(word) in COUNT_UNITS
        if token.pos_ == "NUM" or is_unit or word in VAGUE_WORDS:
            return True
    return False


def _has_loose_amount(doc: "Doc", mentions: Sequence[ThingMention]) -> bool:
    """Return whether a sentence says an amount of nothing that it names behind it."""
    words = [normalized_word(token) for token in doc]
    taken = set()
    for mention in mentions:
        if mention.amount is not None:
            taken.update(range(mention.amount.begin, mention.amount.end))
    for index in set(range(len(words))) - taken:
        amount = amount_at(words, index)
        if amount is not None and not amount.is_article:
            return True
    return False
