"""Spoken sentences made plain for the parser: fillers out, instructions unwrapped, run-on speech
cut into segments.

Each word keeps its index in the sentence, so that a clause can be traced back to what was said and
when. The ways of speaking that wrap an instruction are tables of patterns. They are matched against
lower-case words joined by one space. A comma may be before any space.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

from stepline.writing.extractive.english import base_form, verbs, word_set

if TYPE_CHECKING:
    from spacy.tokens import Token

SUBORDINATE_WORDS = word_set(
    """
    if when once after before while because since as until unless even where whenever although though
    """
)
# A phrase with one of these may come before the imperative.
INTRODUCTORY_WORDS = SUBORDINATE_WORDS | word_set(
    "with using for from in on at to only starting beginning working"
)
# What opens a noun phrase: a verb form before one of these is a verb and no noun ("and mark the
# holes").
DETERMINER_WORDS = word_set(
    "the a an your my our his her its some any it them all both each every this that these those yourself"
)
NON_ORDER_WORDS = word_set("like have do can will must might need while")
CONNECTIVE_WORDS = word_set("and but then now next okay alright so or")
# A clause with one of these in front says when the imperative after its "then" counts.
CONDITION_OPENERS = word_set("if when whenever once after unless until")

# What may follow a verb that opens a clause: then it is an imperative and not a noun ("water the plant",
# not "water boils").
WORDS_AFTER_IMPERATIVE = word_set(
    """
    the a an your my our his her its some any this that these those it them him all both each every another one
    two three four five six seven eight nine ten twelve fifteen twenty thirty half several more enough on in to
    off up down with into onto out over through back around along across between under from at by for within
    inside outside above below beside behind beneath underneath against toward towards together apart aside
    straight slowly gently carefully gradually lightly until about
    """
)
# Verbs of screens are imperatives whatever follows them, since a label has no article: "select Export as".
SCREEN_VERBS = word_set("click select choose press type")
FILLER_WORDS = word_set("ok okay alright yeah whoops oops")
BUTTON_OPENERS = SCREEN_VERBS | word_set("the on hit")  # "click OK" names a button
BE_WORDS = word_set("is are am be was were been not")
SEQUENCE_WORDS = word_set(
    "then next now finally first second third lastly"
)  # they say an order of doing
# speech without any joint is cut there, so that time stays linear
MAX_SEGMENT_WORDS = 60


@dataclass(frozen=True)
class SpokenWord:
    """A word and its index in the sentence."""

    text: str
    index: int

    @cached_property
    def plain(self) -> str:
        """The word in lower case, without punctuation except a comma after it."""
        bare = self.text.lower().replace("’", "'").strip('"“”()[]*.!?;:—–-…')
        return bare or "-"

    @cached_property
    def bare(self) -> str:
        """The word in lower case without any punctuation."""
        return self.plain.rstrip(",")


@dataclass(frozen=True)
class Segment:
    """A part of one sentence that is parsed on its own.

    Attributes:
        words: as the parser reads them.
        has_added_you: whether "you" was inserted before a verb without a subject.
    """

    words: tuple[SpokenWord, ...]
    has_added_you: bool = False

    @property
    def text(self) -> str:
        """The segment's text for the parser."""
        return " ".join(word.text for word in self.words)

    def word_index(self, offset: int) -> int:
        """Return the sentence index of the word at a character offset of the segment's text."""
        end = 0
        for word in self.words:
            end += len(word.text) + 1
            if offset < end:
                return word.index
        return self.words[-1].index


def split_into_segments(text: str) -> Iterator[Segment]:
    """Yield a sentence as segments of at most MAX_SEGMENT_WORDS words, normalised for the parser."""
    spoken = text.replace("’", "'").split()
    words = [SpokenWord(word, index) for index, word in enumerate(spoken)]
    for start in range(0, len(words), MAX_SEGMENT_WORDS):
        plain = _apply_rewrites(words[start : start + MAX_SEGMENT_WORDS])
        for part in _split_at_orders(_without_openers(plain)):
            without_openers = _without_openers(part)
            if without_openers:
                yield _insert_subject_you(without_openers)


def cut_at_verb(segment: Segment, verb: "Token") -> list[Segment]:
    """Return the words of a segment before a verb, and the others as an order of their own: its base
    form after an inserted "you". A person in place of the verb begins a clause of their own."""
    position = segment.text.count(" ", 0, verb.idx)
    word, *after = segment.words[position:]
    if verb.lower_ in ("i", "we", "you", "ya"):
        own = Segment((word, *after))
    else:
        base = base_form(word.text, verb) or word.bare
        order = replace(word, text=word.text.lower().replace(word.bare, base))
        own = Segment((SpokenWord("you", word.index), order, *after), has_added_you=True)
    before = _without_openers(segment.words[:position])
    return [Segment(tuple(before), segment.has_added_you), own] if before else [own]


@cache
def _compiled_rewrites() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the compiled rewrite rules. VERB stands for any verb's base form, checked after the
    match."""
    rewrites = []
    for pattern, replacement in REWRITE_RULES:
        expression = pattern.replace("(?= VERB)", r"(?= (?P<verb>[a-z']+))")
        expression = expression.replace(" ", ",? ")
        compiled = re.compile(rf"(?:(?<= )|^)(?:{expression})(?=,? |,?$)")
        rewrites.append((compiled, replacement))
    return tuple(rewrites)


def _apply_rewrites(words: Sequence[SpokenWord]) -> list[SpokenWord]:
    """Return the words after all rewrite rules, applied in order from left to right."""
    rewritten = list(words)
    for pattern, replacement in _compiled_rewrites():
        offset = 0
        while rewritten:
            line = " ".join(word.plain for word in rewritten)
            match = pattern.search(line, offset)
            if match is None:
                break
            verb = match.groupdict().get("verb")
            if verb is not None and verb not in verbs():
                offset = match.end()
                continue
            # The indices of the first and the last word that the match covers.
            first = line.count(" ", 0, match.start())
            last = line.count(" ", 0, match.end()) - (line[match.end() - 1] == " ")
            index = rewritten[first].index
            new_text = match.expand(replacement)
            new_words = [SpokenWord(word, index) for word in new_text.split()]
            rewritten[first : last + 1] = new_words
            offset = len(" ".join(word.plain for word in rewritten[: first + len(new_words)]))
    return rewritten


def _split_at_orders(words: Sequence[SpokenWord]) -> Iterator[list[SpokenWord]]:
    """Yield the parts before each further imperative: "fill your mouth with air, | COVER your mouth".

    An imperative behind an introductory phrase stays in its part, after "you": "if it sticks, YOU pull
    the lid".
    """
    part: list[SpokenWord] = []
    for index, word in enumerate(words):
        following = words[index + 1].bare if index + 1 < len(words) else ""
        before = part[-1].bare if part else ""
        # "flip it, OKAY, cover the pan", "give it a stir GOING TO add the salt"
        is_filler = word.bare in FILLER_WORDS and before not in BUTTON_OPENERS
        lacks_subject = word.bare == "going" and following == "to" and before not in BE_WORDS
        if part and (is_filler or (lacks_subject and "'" not in before)):
            yield part
            part = []
        elif following in DETERMINER_WORDS and _begins_further_imperative(part, word):
            has_comma = any(earlier.text.endswith(",") for earlier in part[:-1])
            if part[0].bare in INTRODUCTORY_WORDS and not has_comma:
                part.append(SpokenWord("you", word.index))
            else:
                yield part
                part = []
        if not is_filler:
            part.append(word)
    yield part


def _begins_further_imperative(part: Sequence[SpokenWord], word: SpokenWord) -> bool:
    """Return whether a word behind "and" or a comma is a verb. What is said with "don't" holds no
    further imperative."""
    if len(part) < 3 or word.bare not in verbs() or word.bare in NON_ORDER_WORDS:
        return False
    if part[-1].bare != "and" and not part[-1].text.endswith(","):
        return False
    return not any(earlier.bare in ("not", "never") or "n't" in earlier.bare for earlier in part)


@cache
def _opener_pattern() -> re.Pattern[str]:
    return re.compile("|".join(rf"(?:{opener})" for opener in OPENER_PATTERNS))


def _without_openers(words: Sequence[SpokenWord]) -> list[SpokenWord]:
    """Return the words without openers ("so now", "okay, first") and trailing connectives."""
    rewritten = list(words)
    while rewritten:
        line = " ".join(word.plain for word in rewritten)
        match = _opener_pattern().match(line)
        if match is None:
            break
        following = line[match.end() : match.end() + 1]
        if following not in ("", " ", ","):
            break
        del rewritten[: line.count(" ", 0, match.end()) + 1]
    while rewritten and rewritten[-1].bare in CONNECTIVE_WORDS:
        rewritten.pop()
    return rewritten


def _insert_subject_you(words: Sequence[SpokenWord]) -> Segment:
    """Return the segment of the words, with "you" inserted before an initial imperative, which parses
    better."""
    first = words[0]
    following = words[1].bare if len(words) > 1 else ""
    is_imperative = following in WORDS_AFTER_IMPERATIVE or following.endswith("ly")
    is_imperative |= following != "" and first.bare in SCREEN_VERBS
    if first.bare not in verbs() or first.text.endswith(",") or not is_imperative:
        return Segment(tuple(words))
    lower_case_first = replace(first, text=first.text.lower())
    subject = SpokenWord("you", first.index)
    return Segment((subject, lower_case_first, *words[1:]), has_added_you=True)


LIMITED_PREPOSITIONS = (
    "above|below|under|over|outside|inside|behind|beyond|past|before|after|short|until"
)
NUMBER_PATTERN = r"one|two|three|four|five|six|seven|eight|nine|ten|\d+"

# Patterns and the words put in their place. Order matters: the earlier row wins, longer frames come
# first.
REWRITE_RULES: tuple[tuple[str, str], ...] = (
    # contractions of speech
    (r"(?:gonna|gunna)", "going to"),
    (r"(?:wanna)", "want to"),
    (r"(?:gotta|got to)", "have to"),
    (r"'em", "them"),
    (r"'cause", "because"),
    # noises and fillers
    (r"(?:um+|uh+|erm?|hmm+|mm+|ah|oh)", ""),
    (
        r"(?:actually|basically|literally|simply|obviously|honestly|definitely|really"
        r"|kinda|sorta|please)",
        "",
    ),
    (r"(?:kind|sort) of", ""),
    (r"for one thing", ""),
    (r"like (?:this|that|so)(?=,|$)", ""),
    (r"^(?:and |so |then )?as soon as(?! possible)", "once"),
    (r"all right(?=,|$)", "alright"),
    (r"(?:here|there) (?:you|we|i) go", "okay"),
    (r"(?:like i said|(?:so )?as you(?:'ll| can)? see(?! how))", ""),
    (r"(?:over|right|up|down) (?:here|there)", ""),
    # "just above the clip" is a place
    (rf"just(?! (?:{LIMITED_PREPOSITIONS})(?: |,|$))", ""),
    (r"go(?:ing)? ahead and", ""),
    # "what you want to do is", "all you need to do here is to", "the first thing we're going to do
    # is we're going to"
    (
        r"(?:(?:all|what|(?:and |so )?the (?:\w+ )?(?:thing|step|part))(?: that)? |(?=[a-z' ]+ do is ))"
        r"(?:you|we|i|he|she|they)"
        r"(?:'ll|'re|'m|'ve|'d| will| are| am| have| would)?"
        r"(?: (?:needs?|wants?|have|has|like|going|got|do)(?: to)?)*(?: do)?"
        r"(?: (?:here|now|next|first|then))?(?: with (?:it|this|that|them))? is(?: that)?"
        r"(?: (?:you|we|i)(?:'ll|'re|'m| will)?(?: (?:need|want|have|going))?(?= to))?"
        r"(?: to)?(?= VERB)",
        "you",
    ),
    (
        r"(?:(?:the|your|our|my) (?:first|next|last|final|second|third)"
        r" (?:thing|step|part|job|move)(?: here)?"
        rf"|(?:step|number) (?:{NUMBER_PATTERN})) is"
        r"(?: going)? to",
        "you",
    ),
    (r"(?:it's|it is|now it's) time to", "you"),
    (r"(?:you|we|i)(?:'re|'m| are| am) ready to(?= VERB)", "you"),
    (r"(right|left|double|triple|shift|control|alt|command|option) (click)", r"\1-\2"),
    # the parser reads "I'll add" more surely than "I'm going to add"
    (r"(i|we|you)(?:'m|'re| am| are) going to(?= VERB)", r"\1'll"),
    (r"(?:i|we)(?:'ll)? (?:need|want) you to(?= VERB)", "you"),
    # reminders
    (
        r"(?:(?:you|we|i)(?:'ll|'re|'m| will| are)? ?(?:want|need|going|have)? to )?"
        r"(?:make|be) sure(?: that)? (?:you|we)(?= )",
        "you",
    ),
    (r"(?:(?:make|be) sure (?:to|and)|(?:be|get) ready to)(?= )", ""),
    (r"make sure(?: that)?(?= )", "ensure that"),
    (r"(?:remember|don't forget|do not forget|never forget|try) (?:to|and)(?= )", ""),
)

# Words that open a spoken clause and say nothing of the action. They are taken off repeatedly.
OPENER_PATTERNS: tuple[str, ...] = (
    r"(?:and|but|okay|ok|alright|all right|right|yeah|yes|then|finally|lastly|also|again|plus"
    r"|anyway)",
    r"(?:so|now)(?! that\b)(?! (?:much|far|long|many)\b)",
    r"(?:next|well)(?! (?:to|as|done)\b)",
    r"(?:first|second|third|firstly|secondly)(?: of all| off| up)?(?! \w+ (?:is|was)\b)"
    r"(?! (?:thing|step|part|one|coat|layer|row)\b)",
    r"to do (?:this|that|it|so)",
    rf"(?:step|number) (?:{NUMBER_PATTERN})(?! (?:is|of|to|through|and)\b)",
)
