"""Spoken sentences made plain for the parser: fillers out, instructions unwrapped, run-on speech
cut into segments.

Each word keeps its index in the sentence, so that a clause can be traced back to what was said and
when. The ways of speaking that wrap an instruction are tables of patterns, matched against
lower-case words joined by one space; a comma may stand before any space.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from stepline.writing.extractive.english import verbs, word_set

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
        r"(?:just|actually|basically|literally|simply|obviously|honestly|definitely|really|kinda|sorta|please)",
        "",
    ),
    (r"(?:kind|sort) of", ""),
    (r"for one thing", ""),
    (
        r"(?:i mean(?=,)|you know(?=,)|if you will|like i said|as i said|as you can see|you guys(?=,)|pretty much)",
        "",
    ),
    (r"like (?:this|that|so)(?=,|$)", ""),
    (r"(?:over|right|up|down) (?:here|there)", ""),
    (r"go(?:ing)? ahead and", ""),
    (r"(?:come|go) (?:on )?(?:in|over|up|down|back) (?:here )?and", ""),
    # "what you want to do is", "all you need to do here is to", "the first thing we're going to do
    # is we're going to"
    (
        r"(?:all|what|(?:and |so )?the (?:\w+ )?(?:thing|step|part))(?: that)? (?:you|we|i|he|she|they)"
        r"(?:'ll|'re|'m|'ve|'d| will| are| am| have| would)?"
        r"(?: (?:needs?|wants?|have|has|like|going|got|do))?(?: to)?(?: do)?"
        r"(?: (?:here|now|next|first|then))?(?: with (?:it|this|that|them))? is(?: that)?"
        r"(?: (?:you|we|i)(?:'ll|'re|'m| will)?(?: (?:need|want|have|going))?(?= to))?(?: to)?(?= VERB)",
        "you",
    ),
    (
        r"(?:(?:the|your|our|my) (?:first|next|last|final|second|third) (?:thing|step|part|job|move)(?: here)?"
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
        r"(?:(?:you|we|i)(?:'ll|'re|'m| will| are)? ?(?:want|need|going|have)? to )?(?:make|be) sure(?: that)?"
        r" (?:you|we)(?= )",
        "you",
    ),
    (r"(?:make|be) sure (?:to|and)(?= )", ""),
    (r"make sure(?: that)?(?= )", "ensure that"),
    (r"(?:remember|don't forget|do not forget|never forget|try) (?:to|and)(?= )", ""),
    (r"i(?:'d| would)? (?:want|need|like) you to", "you"),
)

# Words that open a spoken clause and say nothing of the action; taken off again and again.
OPENER_PATTERNS: tuple[str, ...] = (
    r"(?:and|but|okay|ok|alright|all right|right|yeah|yes|then|finally|lastly|also|again|plus|anyway)",
    r"(?:so|now)(?! that\b)(?! (?:much|far|long|many)\b)",
    r"(?:next|well)(?! (?:to|as|done)\b)",
    r"(?:first|second|third|firstly|secondly)(?: of all| off| up)?(?! \w+ (?:is|was)\b)"
    r"(?! (?:thing|step|part|one|coat|layer|row)\b)",
    r"(?:after that|from there|from here|at this point|at the end|once again|in the meantime|meanwhile)(?=,)",
    r"(?:to (?:get started|start|begin)(?: off| with)?|(?:my|the|your) (?:next|last|first) step)(?=,)",
    r"to do (?:this|that|it|so)",
    rf"(?:step|number) (?:{NUMBER_PATTERN})(?! (?:is|of|to|through|and)\b)",
    r"(?:guys|everybody|everyone|you guys)(?=,)",
)

SUBORDINATE_WORDS = word_set(
    """
    if when once after before while because since as until unless even where whenever although though
    """
)
# A phrase with one of these may stand before the order.
INTRODUCTORY_WORDS = SUBORDINATE_WORDS | word_set(
    "with using for from in on at to starting beginning working"
)
SUBJECT_WORDS = word_set(
    "you we i you're we're i'm you'll we'll i'll you'd let's i've we've you've"
)
JOINT_WORDS = word_set("and but then now next okay alright so or")

# What may follow a verb that opens a clause: then it is an order and not a noun ("water the plant",
# not "water boils").
AFTER_ORDER = word_set(
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
NAMING_VERBS = word_set(
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
NEVER_ORDERS = word_set(
    """
    the a an i we you it is are was were be been can will would may might must could should do does did have has
    had there here now then so that this what who how why while like out in on up down over as just well both
    """
)
QUESTION_WORDS = word_set("what how why who where which")
SEQUENCE_WORDS = word_set(
    "then next now finally first second third lastly"
)  # they tell an order of doing
# After these a base form is no order: it has a subject, an auxiliary, or is a noun.
BINDING_WORDS = (
    SUBJECT_WORDS
    | NAMING_VERBS
    | NEVER_ORDERS
    | word_set(
        """
    to and or not never they he she who that which don't doesn't didn't please always also only new old small
    big good
    """
    )
)
# What is said with these holds no further order: "don't lift and turn the ...", "in the next video
# ..., save it".
NOT_FOR_ALL = word_set("not never video tutorial episode")


MAX_SEGMENT_WORDS = (
    60  # words a segment; speech without any joint is cut there, so that time stays linear
)


@dataclass(frozen=True)
class SpokenWord:
    """A word and the index in its sentence of the one it comes from."""

    text: str
    index: int

    @cached_property
    def plain(self) -> str:
        """The word in lower case, without punctuation but for a comma after it."""
        bare = self.text.lower().replace("’", "'").strip('"“”()[]*.!?;:—–-…')
        return bare or "-"

    @cached_property
    def bare(self) -> str:
        """The word in lower case without any punctuation."""
        return self.plain.rstrip(",")


@dataclass(frozen=True)
class Segment:
    """A stretch of one sentence that the parser reads on its own.

    sentence: index in the transcript. ordered: a "you" was put before a bare verb. question: it
    ends with "?".
    sequenced: words of order ("then", "next") stood before it. otherwise: an "or" did, so it says
    what goes wrong.
    spoken: all words of the sentence, as they were said.
    """

    words: tuple[SpokenWord, ...]
    sentence: int
    ordered: bool = False
    question: bool = False
    sequenced: bool = False
    otherwise: bool = False
    spoken: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The words as the parser gets them."""
        return " ".join(word.text for word in self.words)

    def word_index(self, offset: int) -> int:
        """Return the index in the sentence of the word with the character at `offset` of the
        text."""
        end = 0
        for word in self.words:
            end += len(word.text) + 1
            if offset < end:
                return word.index
        return self.words[-1].index


def split_into_segments(text: str, sentence: int) -> Iterator[Segment]:
    """Return the segments of one sentence, plain and ready for the parser."""
    words = [SpokenWord(word, index) for index, word in enumerate(text.replace("’", "'").split())]
    spoken = tuple(word.text for word in words)
    for part in _at_stops(words):
        question, otherwise = part[-1].text.endswith("?"), False
        plain = _rewritten(part)
        start = _opened(plain)
        sequenced = _tells_order(plain, start)
        for piece in _at_joints(_joined_orders(start)):
            opened = _opened(piece)
            sequenced |= _tells_order(piece, opened)
            if opened:
                yield _ordered(
                    Segment(
                        tuple(opened),
                        sentence,
                        question=question,
                        sequenced=sequenced,
                        otherwise=otherwise,
                        spoken=spoken,
                    )
                )
            otherwise, sequenced = piece[-1].bare == "or", False


def _tells_order(words: Sequence[SpokenWord], opened: Sequence[SpokenWord]) -> bool:
    """Tell whether "then" or the like is among the opening words that were taken off."""
    return any(word.bare in SEQUENCE_WORDS for word in words[: len(words) - len(opened)])


def _at_stops(words: Sequence[SpokenWord]) -> Iterator[list[SpokenWord]]:
    """Cut after a full stop, question mark or semicolon inside the sentence, and after MAX_SEGMENT_WORDS
    words."""
    part: list[SpokenWord] = []
    for word, after in zip(words, [*words[1:], None], strict=True):
        part.append(word)
        goes_on = word.text.endswith("...") and after is not None and after.text[:1].islower()
        if (re.search(r"[a-z\d][.!?;:]+[\"”)]?$", word.text.lower()) and not goes_on) or len(
            part
        ) >= MAX_SEGMENT_WORDS:
            yield part
            part = []
    if part:
        yield part


@cache
def _rewrites() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Compile the table; VERB stands for any verb's base form, checked after the match."""
    bodies = [
        pattern.replace("(?= VERB)", r"(?= (?P<verb>[a-z']+))").replace(" ", ",? ")
        for pattern, _ in REWRITE_RULES
    ]
    return tuple(
        (re.compile(rf"(?:(?<= )|^)(?:{body})(?=,? |,?$)"), new)
        for body, (_, new) in zip(bodies, REWRITE_RULES, strict=True)
    )


def _rewritten(words: Sequence[SpokenWord]) -> list[SpokenWord]:
    """Apply the table of rewrites, row by row, from left to right."""
    current = list(words)
    for pattern, new in _rewrites():
        start = 0
        while current:
            line = " ".join(word.plain for word in current)
            match = pattern.search(line, start)
            if match is None:
                break
            verb = match.groupdict().get("verb")
            if verb is not None and verb not in verbs():
                start = match.end()
                continue
            # The indices of the first and the last word that the match covers.
            first = line.count(" ", 0, match.start())
            last = line.count(" ", 0, match.end()) - (line[match.end() - 1] == " ")
            fresh = [SpokenWord(word, current[first].index) for word in match.expand(new).split()]
            current[first : last + 1] = fresh
            start = len(" ".join(word.plain for word in current[: first + len(fresh)]))
    return current


def _joined_orders(words: Sequence[SpokenWord]) -> list[SpokenWord]:
    """Put "slice, then juice, our lemons" as "slice and juice our lemons", which the parser reads
    rightly."""
    result = list(words)
    for i in range(1, len(result) - 1):
        if result[i].bare != "then" or not _chained(result[i + 1 : i + 3]):
            continue
        if result[i - 1].bare != "and":
            result[i] = replace(result[i], text="and")
        result[i - 1] = replace(result[i - 1], text=result[i - 1].text.rstrip(","))
        if (
            i + 2 < len(result)
            and result[i + 1].text.endswith(",")
            and result[i + 2].bare in AFTER_ORDER
        ):
            result[i + 1] = replace(result[i + 1], text=result[i + 1].text.rstrip(","))
    return [
        word
        for i, word in enumerate(result)
        if not (word.bare == "then" and i and result[i - 1].bare == "and")
    ]


def _chained(after: Sequence[SpokenWord]) -> bool:
    """Tell whether the words after a "then" go on with a further order, in front of the object they
    share."""
    verb = after[0]
    if verb.bare in NEVER_ORDERS:
        return False
    return verb.bare in verbs() or (
        verb.text.endswith(",") and len(after) > 1 and after[1].bare in AFTER_ORDER
    )


def _at_joints(words: Sequence[SpokenWord]) -> Iterator[list[SpokenWord]]:
    """Cut where a new main clause with its own subject begins: "..., and you", "then we're", "now
    I'm"."""
    part: list[SpokenWord] = []
    for i, word in enumerate(words):
        if part and (_begins_clause(part, word) or _goes_on(part, words[i : i + 3])):
            yield part
            part = []
        part.append(word)
    if part:
        yield part


def _goes_on(part: Sequence[SpokenWord], after: Sequence[SpokenWord]) -> bool:
    """Tell whether a further order follows an "and", a comma or ", so": "go up to Edit and | choose
    Transform"."""
    if after[0].bare.endswith("ly"):
        after = after[1:]  # "gently tap your fingers"
    if not after or not _orders(after[0]) or after[0].bare in ("let", "and"):
        return False
    verb, named = after[0].bare, len(after) > 1 and after[1].bare in NAMING_VERBS
    if part[-1].bare == "so":
        return named and len(part) > 1 and part[-2].text.endswith(",")
    joined = part[-1].bare == "and"
    before = part[:-1] if joined else part
    if not (joined or part[-1].text.endswith(",")):
        return False
    moves = not joined and len(after) > 1 and after[1].bare in MANNER_WORDS
    if not (verb in ORDER_VERBS or named or moves) or _waits_for_object(before):
        return False
    return (_tells_to_do(before) and (moves or len(before) > 2)) or (
        (named or moves) and _tells_nothing(before, joined)
    )


def _tells_nothing(part: Sequence[SpokenWord], joined: bool) -> bool:
    """Tell whether no verb, or before a comma only what a thing is, precedes an order: "last is
    tapping, | tap"."""
    words = [word.bare for word in part if word.bare not in JOINT_WORDS | SEQUENCE_WORDS]
    if not words or words[0] in INTRODUCTORY_WORDS or any(word in SUBJECT_WORDS for word in words):
        return False
    be = {"is", "are"} & set(words) if words[0] not in QUESTION_WORDS else set()
    return (bool(be) and not joined) or not (
        be
        or any(
            word in verbs() or word.endswith(("s", "ed", "n't")) for word in (words[1:] or words)
        )
    )


def _waits_for_object(part: Sequence[SpokenWord]) -> bool:
    """Tell whether the part ends in a verb that shares the next one's object: "you peel | and slice
    the potatoes"."""
    before = part[-2].bare if len(part) > 1 else ""
    return part[-1].bare in verbs() and (
        before in SUBJECT_WORDS | {"to", "and"} or part[-1].bare in ORDER_VERBS
    )


def _tells_to_do(part: Sequence[SpokenWord]) -> bool:
    """Tell whether the part is an order or says what the speaker does, without a no that would
    reach further."""
    words = [word.bare for word in part if word.bare not in JOINT_WORDS | SEQUENCE_WORDS]
    if (
        not words
        or words[0] == "to"
        or any(word in NOT_FOR_ALL or word.endswith("n't") for word in words)
    ):
        return False
    if words[0] in INTRODUCTORY_WORDS:
        return any(word.text.endswith(",") for word in part[:-1])
    return (
        words[0] in SUBJECT_WORDS
        or (words[0] in verbs() and words[0] not in NEVER_ORDERS)
        or words[0].endswith("ly")
    )


def _begins_clause(part: Sequence[SpokenWord], word: SpokenWord) -> bool:
    """Tell whether `word` is the subject of a new main clause after what was said so far."""
    if word.bare not in SUBJECT_WORDS or len(part) < 3:
        return False
    if (
        part[-1].text.endswith(",") and part[-1].bare not in JOINT_WORDS
    ):  # "..., and soon enough, | you"
        return (
            bool({"and", "but"} & {w.bare for w in part[-4:-1]})
            and part[0].bare not in INTRODUCTORY_WORDS
        )
    if part[-1].bare not in JOINT_WORDS:
        return False
    paused = part[-2].bare in JOINT_WORDS or part[-2].text.endswith(",")
    if part[-1].bare in ("so", "or") and "'" not in word.bare and not paused:
        return False
    if part[-1].bare == "so" and word.bare in ("you", "it"):
        return False  # "so you don't strip them" is a purpose
    opening = next((w.bare for w in part if w.bare not in JOINT_WORDS), "")
    return opening not in SUBORDINATE_WORDS or any(w.text.endswith(",") for w in part)


@cache
def _openers() -> re.Pattern[str]:
    return re.compile("|".join(rf"(?:{opener})" for opener in OPENER_PATTERNS))


def _opened(words: Sequence[SpokenWord]) -> list[SpokenWord]:
    """Take off the words that open a spoken clause ("so now", "okay, first") and joints left
    hanging at its end."""
    current = list(words)
    while current:
        line = " ".join(word.plain for word in current)
        match = _openers().match(line)
        if match is None or (match.end() < len(line) and line[match.end()] not in " ,"):
            break
        del current[: line.count(" ", 0, match.end()) + 1]
    while current and current[-1].bare in JOINT_WORDS:
        current.pop()
    return current


def _ordered(segment: Segment) -> Segment:
    """Put "you" before a verb that opens the segment as an order: the parser knows "you whisk", not
    "whisk"."""
    first = segment.words[0]
    if first.bare in INTRODUCTORY_WORDS:
        return _ordered_later(segment)
    rest = segment.words[1:]
    adverb = first.bare.endswith("ly") and bool(rest)
    verb, after = (rest[0], rest[1:]) if adverb else (first, rest)
    if not _orders(verb) or verb.text.endswith(","):
        return segment
    if not after:
        return segment
    follows = after[0].bare in AFTER_ORDER | MANNER_WORDS or after[0].bare.endswith("ly")
    if not follows and verb.bare not in ORDER_VERBS:
        return segment
    lowered = (replace(first, text=first.text.lower()), *rest)
    return replace(segment, words=(SpokenWord("you", first.index), *lowered), ordered=True)


def _ordered_later(segment: Segment) -> Segment:
    """Put "you" before an order that follows a phrase and its comma: "with the brush selected,
    paint over it"."""
    for i, (word, verb, after) in enumerate(
        zip(segment.words, segment.words[1:], segment.words[2:], strict=False)
    ):
        if word.bare in SUBJECT_WORDS and any(
            earlier.text.endswith(",") for earlier in segment.words[:i]
        ):
            return segment  # the main clause has a subject of its own
        if _orders(verb) and _free(word, verb, after, i):
            before = replace(word, text=word.text.rstrip(",") + ",")
            words = (
                *segment.words[:i],
                before,
                SpokenWord("you", verb.index),
                *segment.words[i + 1 :],
            )
            return replace(segment, words=words, ordered=True)
    return segment


def _free(before: SpokenWord, verb: SpokenWord, after: SpokenWord, i: int) -> bool:
    """Tell whether an order can begin after the word: after a comma, or without one where the verb
    is plainly one."""
    if before.text.endswith(","):
        return after.bare in AFTER_ORDER or verb.bare in ORDER_VERBS
    plainly = verb.bare in ORDER_VERBS and (after.bare in NAMING_VERBS or verb.bare == "go")
    return (
        i >= 2 and plainly and before.bare not in BINDING_WORDS and not before.bare.endswith("n't")
    )


def _orders(word: SpokenWord) -> bool:
    return word.bare in verbs() and word.bare not in NEVER_ORDERS | SUBORDINATE_WORDS
