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

from stepline.writing.extractive.english import verbs, word_set

SUBORDINATE_WORDS = word_set(
    """
    if when once after before while because since as until unless even where whenever although though
    """
)
# A phrase with one of these may come before the order.
INTRODUCTORY_WORDS = SUBORDINATE_WORDS | word_set(
    "with using for from in on at to starting beginning working"
)
SUBJECT_WORDS = word_set(
    "you we i you're we're i'm you'll we'll i'll you'd let's i've we've you've"
)
CONNECTIVE_WORDS = word_set("and but then now next okay alright so or")
# After these a joint says how something is.
LINKING_WORDS = word_set("is are was be feel feels look looks seem seems it's that's they're")
# A clause with one of these in front says when the order behind its "then" counts.
CONDITION_OPENERS = word_set("if when whenever once after unless until")

# What may follow a verb that opens a clause: then it is an order and not a noun ("water the plant",
# not "water boils").
WORDS_AFTER_ORDER = word_set(
    """
    the a an your my our his her its some any this that these those it them him all both each every another one
    two three four five six seven eight nine ten twelve fifteen twenty thirty half several more enough on in to
    off up down with into onto out over through back around along across between under from at by for within
    inside outside above below beside behind beneath underneath against toward towards together apart aside
    straight slowly gently carefully gradually lightly until about
    """
)
# What opens a noun phrase: a verb form before one of these is a verb and no noun ("and mark the
# holes").
DETERMINER_WORDS = word_set(
    "the a an your my our his her its some any it them all both each every this that these those"
)
# Verbs of hands, tools and screens that are orders whatever follows them ("press control J", "and
# choose Transform").
ORDER_VERBS = word_set(
    """
    press click select choose type drag drop open close copy paste delete insert attach remove place pull push
    hit grab pick take add put set turn go hold spread pour stir mix hover navigate apply enter
    """
)
# How a body moves, said after the verb alone: "land soft", "lean forward".
MANNER_WORDS = word_set(
    """
    soft high low slow fast hard tight still deep wide forward forwards backward backwards upward upwards downward
    downwards sideways up down back out
    """
)
NON_ORDER_WORDS = word_set(
    """
    the a an i we you it is are was were be been can will would may might must could should do does did have has
    had there here now then so that this what who how why while like out in on up down over as just well both
    """
)
SEQUENCE_WORDS = word_set(
    "then next now finally first second third lastly"
)  # they say an order of doing
# After these a base form is not an order: it has a subject, an auxiliary, or is a noun.
NON_ORDER_CONTEXT_WORDS = (
    SUBJECT_WORDS
    | DETERMINER_WORDS
    | NON_ORDER_WORDS
    | word_set(
        """
    to and or not never they he she who that which don't doesn't didn't please always also only new old small
    big good
    """
    )
)
# What is said with these holds no further order: "don't lift and turn the ...", "in the next video
# ..., save it".
NO_FURTHER_ORDER_WORDS = word_set("not never video tutorial episode")


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
        is_question: whether the sentence part ends with "?".
        after_then: whether a sequence word ("then", "next") precedes it.
    """

    words: tuple[SpokenWord, ...]
    has_added_you: bool = False
    is_question: bool = False
    after_then: bool = False

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
    """Yield the segments of one sentence, normalised for the parser."""
    spoken = text.replace("’", "'").split()
    words = [SpokenWord(word, index) for index, word in enumerate(spoken)]
    for part in _split_at_stops(words):
        plain = _apply_rewrites(part)
        stripped = _without_openers(plain)
        is_question = part[-1].text.endswith("?")
        after_then = _has_sequence_word(plain, stripped)
        for piece in _split_at_connectives(_replace_then_by_and(stripped)):
            without_openers = _without_openers(piece)
            after_then |= _has_sequence_word(piece, without_openers)
            if without_openers:
                yield _insert_subject_you(
                    Segment(tuple(without_openers), is_question=is_question, after_then=after_then)
                )
            after_then = False


def _has_sequence_word(words: Sequence[SpokenWord], without_openers: Sequence[SpokenWord]) -> bool:
    """Return whether a sequence word is among the removed openers."""
    opening = words[: len(words) - len(without_openers)]
    return any(word.bare in SEQUENCE_WORDS for word in opening)


def _split_at_stops(words: Sequence[SpokenWord]) -> Iterator[list[SpokenWord]]:
    """Yield the parts between full stops, question marks or semicolons, at most MAX_SEGMENT_WORDS
    words each."""
    part: list[SpokenWord] = []
    for number, word in enumerate(words):
        part.append(word)
        is_end = re.search(r"[a-z\d][.!?;:]+[\"”)]?$", word.text.lower()) is not None
        if word.text.endswith("...") and number + 1 < len(words):
            following = words[number + 1].text
            is_end = is_end and not following[:1].islower()
        if is_end or len(part) >= MAX_SEGMENT_WORDS:
            yield part
            part = []
    if part:
        yield part


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
            after = first + len(new_words)
            offset = len(" ".join(word.plain for word in rewritten[:after]))
    return rewritten


def _replace_then_by_and(words: Sequence[SpokenWord]) -> list[SpokenWord]:
    """Return "slice, then juice, our lemons" as "slice and juice our lemons", which parses better."""
    words = list(words)
    result: list[SpokenWord] = []
    for index, word in enumerate(words):
        after = words[index + 1 : index + 3]
        if word.bare != "then" or not result or not after:
            result.append(word)
            continue
        last = result[-1]
        if words[0].bare in CONDITION_OPENERS and last.text.endswith(","):
            continue  # "if it sticks, THEN pull" has one order, not two
        # a further order, in front of the object that both share
        is_before_object = after[0].text.endswith(",") and after[-1].bare in WORDS_AFTER_ORDER
        if is_before_object:
            words[index + 1] = replace(after[0], text=after[0].text.rstrip(","))
        if _may_be_order(after[0]) or is_before_object:
            result[-1] = replace(last, text=last.text.rstrip(","))
            if last.bare != "and":
                result.append(replace(word, text="and"))
        elif last.bare != "and":
            result.append(word)
    return result


def _split_at_connectives(words: Sequence[SpokenWord]) -> Iterator[list[SpokenWord]]:
    """Yield the parts before each new main clause: "..., and you", "then we're", "now I'm"."""
    part: list[SpokenWord] = []
    for index, word in enumerate(words):
        after = words[index : index + 3]
        if part and (_begins_clause(part, word) or _continues_with_order(part, after)):
            yield part
            part = []
        part.append(word)
    if part:
        yield part


def _continues_with_order(part: Sequence[SpokenWord], after: Sequence[SpokenWord]) -> bool:
    """Return whether another order begins after "and", a comma or ", so": "go up to Edit and | CHOOSE
    Transform".

    Args:
        part: the words of the segment so far.
        after: the next three words.
    """
    if after[0].bare.endswith("ly"):
        after = after[1:]  # "gently tap your fingers"
    if not after or not _may_be_order(after[0]) or after[0].bare in ("let", "and"):
        return False
    verb = after[0].bare
    following = after[1].bare if len(after) > 1 else ""

    # what is said before: "so", "and", a comma
    has_thing = following in DETERMINER_WORDS
    last_word = part[-1].bare
    if last_word == "so":
        return has_thing and len(part) > 1 and part[-2].text.endswith(",")
    is_joined = last_word == "and"
    if not is_joined and not part[-1].text.endswith(","):
        return False
    before = part[:-1] if is_joined else part

    # an order: its thing, its manner, or a verb that always is one
    has_manner = not is_joined and following in MANNER_WORDS
    if not (has_thing or has_manner) and verb not in ORDER_VERBS:
        return False
    # A verb that shares the next one's object: "you peel | and slice the potatoes".
    last_verb = before[-1].bare
    words_before_shared_verb = (*SUBJECT_WORDS, "to", "and")
    word_before = before[-2].bare if len(before) > 1 else ""
    if last_verb in verbs() and (
        last_verb in ORDER_VERBS or word_before in words_before_shared_verb
    ):
        return False
    follows_manner = before[-1].bare in MANNER_WORDS
    if _is_instruction(before):
        return has_manner or follows_manner or len(before) > 2
    return has_thing and _has_no_verb(before)


def _has_no_verb(part: Sequence[SpokenWord]) -> bool:
    """Return whether a part has neither subject nor verb: "a deep breath and | FILL your mouth"."""
    words = [word.bare for word in part if word.bare not in CONNECTIVE_WORDS | SEQUENCE_WORDS]
    return (
        bool(words)
        and words[0] not in INTRODUCTORY_WORDS
        and SUBJECT_WORDS.isdisjoint(words)
        and not any(word in verbs() or word.endswith(("s", "ed", "n't")) for word in words[1:])
    )


def _is_instruction(part: Sequence[SpokenWord]) -> bool:
    """Return whether a part is an order or a statement of the speaker's action, without a negation."""
    words = [word.bare for word in part if word.bare not in CONNECTIVE_WORDS | SEQUENCE_WORDS]
    if not words or words[0] == "to":
        return False
    if any(word in NO_FURTHER_ORDER_WORDS or word.endswith("n't") for word in words):
        return False
    first = words[0]
    if first in INTRODUCTORY_WORDS:
        return any(word.text.endswith(",") for word in part[:-1])
    if first in SUBJECT_WORDS or first.endswith("ly"):
        return True
    return first in verbs() and first not in NON_ORDER_WORDS


def _begins_clause(part: Sequence[SpokenWord], word: SpokenWord) -> bool:
    """Return whether `word` is the subject of a new main clause."""
    if word.bare not in SUBJECT_WORDS or len(part) < 3:
        return False
    last = part[-1]
    if last.bare not in CONNECTIVE_WORDS:
        if not last.text.endswith(","):
            return False
        # "..., and soon enough, | you"
        before = {earlier.bare for earlier in part[-4:-1]}
        has_connective = not before.isdisjoint(("and", "but"))
        return has_connective and part[0].bare not in INTRODUCTORY_WORDS
    has_pause = part[-2].bare in CONNECTIVE_WORDS or part[-2].text.endswith(",")
    if last.bare in ("so", "or") and "'" not in word.bare and not has_pause:
        return False
    if last.bare == "so" and word.bare in ("you", "it"):
        return False  # "so you don't strip them" is a purpose
    others = [earlier.bare for earlier in part if earlier.bare not in CONNECTIVE_WORDS]
    if not others or others[0] not in SUBORDINATE_WORDS:
        return True
    return any(earlier.text.endswith(",") for earlier in part)


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
        count = line.count(" ", 0, match.end()) + 1
        del rewritten[:count]
    while rewritten and rewritten[-1].bare in CONNECTIVE_WORDS:
        if len(rewritten) > 1 and rewritten[-2].bare in LINKING_WORDS:
            break  # "if it feels OKAY"
        rewritten.pop()
    return rewritten


def _insert_subject_you(segment: Segment) -> Segment:
    """Return the segment with "you" inserted before an initial order, which parses better."""
    first = segment.words[0]
    if first.bare in INTRODUCTORY_WORDS:
        return _insert_subject_you_after_phrase(segment)
    rest = segment.words[1:]
    verb, after = first, rest
    if rest and first.bare.endswith("ly"):
        verb, after = rest[0], rest[1:]
    if not after or not _may_be_order(verb) or verb.text.endswith(","):
        return segment
    following = after[0].bare
    is_order = following in WORDS_AFTER_ORDER | MANNER_WORDS or following.endswith("ly")
    if not is_order and verb.bare not in ORDER_VERBS:
        return segment
    lower_case_first = replace(first, text=first.text.lower())
    words = (SpokenWord("you", first.index), lower_case_first, *rest)
    return replace(segment, words=words, has_added_you=True)


def _insert_subject_you_after_phrase(segment: Segment) -> Segment:
    """Return the segment with "you" inserted before an order after a phrase: "with the brush
    selected, paint over it"."""
    words = segment.words
    has_comma = False  # before the word
    for index in range(len(words) - 2):
        word, verb, after = words[index : index + 3]
        if has_comma and word.bare in SUBJECT_WORDS:
            return segment  # the main clause has a subject of its own
        if _may_be_order(verb) and _can_begin_order(word, verb, after, index):
            before = replace(word, text=f"{word.text.rstrip(',')},")
            subject = SpokenWord("you", verb.index)
            new_words = (*words[:index], before, subject, *words[index + 1 :])
            return replace(segment, words=new_words, has_added_you=True)
        has_comma |= word.text.endswith(",")
    return segment


def _can_begin_order(before: SpokenWord, verb: SpokenWord, after: SpokenWord, index: int) -> bool:
    """Return whether an order can begin after a word: after a comma, or where the verb is clearly
    an order."""
    is_order = verb.bare in ORDER_VERBS
    if before.text.endswith(","):
        return is_order or after.bare in WORDS_AFTER_ORDER
    if index < 2 or not is_order:
        return False
    if after.bare not in DETERMINER_WORDS and verb.bare != "go":
        return False
    return before.bare not in NON_ORDER_CONTEXT_WORDS and not before.bare.endswith("n't")


def _may_be_order(word: SpokenWord) -> bool:
    is_excluded = word.bare in NON_ORDER_WORDS or word.bare in SUBORDINATE_WORDS
    return word.bare in verbs() and not is_excluded


NUMBER_PATTERN = r"one|two|three|four|five|six|seven|eight|nine|ten|\d+"

# Patterns and the words put in their place. Order matters: the earlier row wins, longer frames come
# first.
REWRITE_RULES: tuple[tuple[str, str], ...] = (
    # contractions of speech
    (r"(?:gonna|gunna)", "going to"),
    (r"(?:wanna)", "want to"),
    (r"(?:gotta|got to)", "have to"),
    (r"'em", "them"),
    # noises and fillers
    (r"(?:um+|uh+|erm?|hmm+|mm+|ah|oh)", ""),
    (
        r"(?:just|actually|basically|literally|simply|obviously|honestly|definitely|really"
        r"|kinda|sorta|please)",
        "",
    ),
    (r"(?:kind|sort) of", ""),
    (r"for one thing", ""),
    (
        r"(?:i mean(?=,)|you know(?=,)|if you will|like i said|as i said|as you can see"
        r"|you guys(?=,)|pretty much)",
        "",
    ),
    (r"like (?:this|that|so)(?=,|$)", ""),
    (r"(?:over|right|up|down) (?:here|there)", ""),
    (r"go(?:ing)? ahead and", ""),
    (r"(?:come|go) (?:on )?(?:in|over|up|down|back) (?:here )?and", ""),
    # "what you want to do is", "all you need to do here is to", "the first thing we're going to do
    # is we're going to"
    (
        r"(?:all|what|(?:and |so )?the (?:\w+ )?(?:thing|step|part))(?: that)?"
        r" (?:you|we|i|he|she|they)"
        r"(?:'ll|'re|'m|'ve|'d| will| are| am| have| would)?"
        r"(?: (?:needs?|wants?|have|has|like|going|got|do))?(?: to)?(?: do)?"
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
    (r"the way (?:you|we|i) do (?:this|that|it) is(?: by| to)?", "you"),
    (r"all that's left(?: to do)? is(?: to)?", "you"),
    (r"click(?: and hold)? and drag", "drag"),
    (r"(right|left|double|triple|shift|control|alt|command|option) (click)", r"\1-\2"),
    # the parser reads "I'll add" more surely than "I'm going to add"
    (r"(i|we|you)(?:'m|'re| am| are) going to(?= VERB)", r"\1'll"),
    # reminders
    (
        r"(?:(?:you|we|i)(?:'ll|'re|'m| will| are)? ?(?:want|need|going|have)? to )?"
        r"(?:make|be) sure(?: that)? (?:you|we)(?= )",
        "you",
    ),
    (r"(?:make|be) sure (?:to|and)(?= )", ""),
    (r"make sure(?: that)?(?= )", "ensure that"),
    (r"(?:remember|don't forget|do not forget|never forget|try) (?:to|and)(?= )", ""),
    (r"i(?:'d| would)? (?:want|need|like) you to", "you"),
)

# Words that open a spoken clause and say nothing of the action. They are taken off repeatedly.
OPENER_PATTERNS: tuple[str, ...] = (
    r"(?:and|but|okay|ok|alright|all right|right|yeah|yes|then|finally|lastly|also|again|plus"
    r"|anyway)",
    r"(?:so|now)(?! that\b)(?! (?:much|far|long|many)\b)",
    r"(?:next|well)(?! (?:to|as|done)\b)",
    r"(?:first|second|third|firstly|secondly)(?: of all| off| up)?(?! \w+ (?:is|was)\b)"
    r"(?! (?:thing|step|part|one|coat|layer|row)\b)",
    r"(?:after that|from there|from here|at this point|at the end|once again|in the meantime"
    r"|meanwhile)(?=,)",
    r"(?:to (?:get started|start|begin)(?: off| with)?"
    r"|(?:my|the|your) (?:next|last|first) step)(?=,)",
    r"to do (?:this|that|it|so)",
    rf"(?:step|number) (?:{NUMBER_PATTERN})(?! (?:is|of|to|through|and)\b)",
    r"(?:guys|everybody|everyone|you guys)(?=,)",
)
