"""Replies of the language-model writer: the texts of steps from a list.

A reply is untrusted. It never sets a time. A line that a prompt injection in the speech could have
caused (a link, active markup, a command, talk about orders) is dropped with its reason, unless the
speaker says the same. Other lines stay. A reply without a list, or in which lines repeat too often,
is refused as a whole. Any text gives a ParsedReply, and no error is raised.
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from stepline.records import Rejected
from stepline.writing.quantities import numbers

MAX_REPLY_CHARS = 20_000  # characters; ten sentences give some 600
# characters. HowToStep's steps average 8 words. A strong model's longest, of all that goes into a
# bowl, have some 60.
MAX_STEP_CHARS = 400
MAX_STEPS_PER_SENTENCE = 4  # more than this many steps a spoken sentence is a model that loops
WORDS_PER_SENTENCE = 15  # of speech; what is written down without full stops counts by its words
MAX_LINE_REPEATS = 3  # the same line more often than this is a model that loops
# share of a reply's characters that may be outside the list (an opening line, a closing remark)
MAX_PROSE_FRACTION = 0.5
MAX_CITED = 40  # sentence numbers of one step
CUT_OFF_REASON = "the reply was cut off inside this step; a larger max_tokens lets it end"

ReplyForm = Literal["list", "cited"]

# Forms of a reply: a numbered list or "none", perhaps fenced and after thoughts.
_ITEM_LINE = re.compile(r"^\s{0,8}(?:[*_#]{1,3}\s*)?(\d{1,3})[.)](?:[*_]{1,3})?\s+(\S.*)$")
_CITED_LINE = re.compile(
    r"^[\s*#\[(-]{0,8}(\d{1,5}(?:\s*(?:,|-|–|—|and)\s*\d{1,5})*)[\s*\])]{0,4}[:.)]\s*(\S.*)$"
)
_NUMBER_RANGE = re.compile(r"(\d+)(?:\s*[-–—]\s*(\d+))?")
_NO_STEPS = re.compile(r"^\W*(?:1[.)]\s*)?none\W*$", re.IGNORECASE)
_MODEL_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL | re.IGNORECASE)
_FENCE_LINE = re.compile(r"^\s*(?:```|~~~)\w*\s*$", re.MULTILINE)

# What a line may not hold unless the speaker says it himself, and why.
_INJECTION_PATTERNS = (
    (
        "a link",
        re.compile(
            r"\b[a-z][a-z0-9+.-]{1,20}://\S*|\b(?:javascript:|data:\w+/)\S*|\]\(\S*"
            r"|\S+@\S+\.\w+",
            re.IGNORECASE,
        ),
    ),
    (
        "markup that acts",
        re.compile(
            r"<\s*/?\s*(?:script|iframe|img|object|embed|svg|style|meta|link|form|base)\b"
            r"|<\s*\w+\s[^<>]*=",
            re.IGNORECASE,
        ),
    ),
    ("a command", re.compile(r"\{\{.*|\{%.*|\$\(.*|\brm\s+-.*|\bDROP\s+TABLE\b.*")),
)
# What no line may hold, whoever says it: marks of a chat's own form, and talk about orders.
_FORBIDDEN_PATTERNS = (
    (
        "marks of a chat",
        re.compile(r"<\||\[/?INST\]|<\s*/?\s*(?:s|transcript|context|system|assistant)\s*>", re.I),
    ),
    (
        "talk about its orders",
        re.compile(
            r"\b(?:ignore|disregard|forget|override)\b.{0,40}"
            r"\b(?:previous|prior|above|earlier|system|original|my|your)\b.{0,20}"
            r"\b(?:instruction|prompt|order|message|rule)s?\b"
            r"|\b(?:system|hidden)\s+prompts?\b"
            r"|\bmy\s+(?:previous|prior|earlier|original)\s+(?:instruction|prompt|order)s?\b"
            r"|\bas\s+an?\s+(?:ai|assistant|language\s+model)\b"
            r"|^\W*I\s+(?:can(?:no|['’])t|am\s+unable|will\s+not|won['’]t)\b",
            re.IGNORECASE,
        ),
    ),
)
_PAIRED_TAGS = re.compile(r"<(b|i|u|em|strong|code|span|p|li)>(.*?)</\1>", re.IGNORECASE)

# What talkative models put before the command itself.
_STEP_LABEL_PATTERN = re.compile(
    r"^(?:(?:[-*#>•]+\s+)|(?:step\s+\d+\s*[:.)-]\s*)|(?:(?:the\s+)?(?:[\w-]+\s+)?step\s+is\s+to\s+)"
    r"|(?:(?:I|you|we)\s*(?:(?:'m|’m|'re|’re|am|are)\s+going\s+to"
    r"|need\s+to|have\s+to|should|will|must|can)\s+))+",
    re.IGNORECASE,
)

_CLOCK_TIME = r"\d{1,2}:[0-5]\d(?::[0-5]\d)?(?:[.,]\d{1,3})?"
_SECOND_COUNT = r"\d+(?:\.\d+)?\s*(?:s|secs?|seconds?)"
_TIME_POINT = rf"(?:{_CLOCK_TIME}|{_SECOND_COUNT}|\d+\.\d+)"
_TIME_RANGE = rf"{_TIME_POINT}(?:\s*(?:-|–|—|to|until)\s*{_TIME_POINT})?"
# Forms of a position in the video: in brackets, in front, after "at" or "from", alone.
_TIME_PATTERNS = (
    re.compile(
        r"[\[(]\s*(?:at|from|time|timestamp|t)?\s*[:=]?\s*"
        rf"(?:{_TIME_RANGE}|\d+\s*[-–—]\s*{_TIME_POINT})\s*[\])]",
        re.I,
    ),
    re.compile(r"\[\s*\d+(?:\s*(?:-|–|—)\s*\d+)?\s*\]"),
    re.compile(rf"^\s*{_TIME_RANGE}\s*(?:[-–—:|]|$)", re.I),
    re.compile(
        rf"\b(?:at|from|between)\s+(?:about\s+|around\s+)?{_TIME_RANGE}(?!\w|\s*[\w%°])", re.I
    ),
    re.compile(
        r"\b(?:at|from|between)\s+(?:about\s+|around\s+)?"
        rf"(?:\d+\s*(?:-|to|and)\s*)?{_SECOND_COUNT}(?!\w)",
        re.I,
    ),
    re.compile(
        r"\b(?:at|from)\s+(?:the\s+)?(?:second|minute)s?\s+\d+(?:\s*(?:-|–|to)\s*\d+)?", re.I
    ),
    re.compile(
        r"\b(?:at|from)\s+(?:the\s+)?\d+(?:\.\d+)?[- ](?:second|minute)\s+(?:mark|point)\b", re.I
    ),
    re.compile(rf"\b{_CLOCK_TIME}\b"),
    re.compile(r"\btime\s?(?:stamp|code)s?\b[:\s]*[\d.:]*", re.I),
)
_AT_DECIMAL = re.compile(r"at \d+\.\d+", re.I)  # may be a setting: "roughness at 0.1"


@dataclass(frozen=True)
class ParsedReply:
    """The steps of one reply of a language model.

    Attributes:
        texts: the texts of the steps, in order.
        dropped: rejected lines with their reasons.
        removed_times: positions in the video that were removed from the texts.
        refusal: why the whole reply is refused, None for an accepted one. A refused reply has no
            texts.
        cited_numbers: of each text, the sentence numbers that the model gives. Empty if none are
            asked for.
    """

    texts: tuple[str, ...] = ()
    dropped: tuple[Rejected, ...] = ()
    removed_times: tuple[str, ...] = ()
    refusal: str | None = None
    cited_numbers: tuple[tuple[int, ...], ...] = ()


@dataclass
class _ReplyItems:
    """The lines of a reply's list.

    Attributes:
        lines: the complete lines, without numbers.
        truncated_line: the last line if the reply was cut off in it, else None.
        cited_numbers: of each line, the sentence numbers before it. Empty if none are asked for.
    """

    lines: list[str] = field(default_factory=list)
    truncated_line: str | None = None
    cited_numbers: list[tuple[int, ...]] = field(default_factory=list)


def parse_reply(
    reply: str,
    *,
    spoken: str = "",
    sentences: int = 10,
    complete: bool = True,
    form: ReplyForm = "list",
) -> ParsedReply:
    """Return the steps of a reply, without markup and times. "none" or an empty list gives no
    steps.

    Args:
        reply: the text of the model, untrusted.
        spoken: the text of the chunk. Links and times that it holds may stay in the steps.
        sentences: number of sentences of the chunk, which limits the number of steps.
        complete: False if the model reached its token limit. Then the last line is dropped.
        form: "list" for a numbered list, "cited" where each step is to begin with the numbers of its
            sentences.
    """
    # Twice the limit is enough to see that a reply is too long.
    text = _without_invisible(_MODEL_THOUGHT.sub("", reply[: 2 * MAX_REPLY_CHARS])).strip()
    # Nothing to read, or the word "none".
    if not text:
        return ParsedReply(refusal="the reply is empty")
    if len(text) > MAX_REPLY_CHARS:
        return ParsedReply(refusal=f"the reply is longer than {MAX_REPLY_CHARS} characters")
    if _NO_STEPS.match(text):
        return ParsedReply()
    items = _listed_items(text) if form == "list" else _cited_items(text)
    if not complete and items.lines:
        items.truncated_line = items.lines.pop()
    refusal = _prose_refusal(text, items) if form == "list" or not items.lines else None
    if refusal is not None:
        return ParsedReply(refusal=refusal)
    # A model that loops lists more than the speech can hold.
    spoken_sentences = max(sentences, len(spoken.split()) // WORDS_PER_SENTENCE)
    refusal = _loop_refusal(items.lines, spoken_sentences)
    if refusal is not None:
        return ParsedReply(refusal=refusal)
    return _parse_items(items, spoken)


def _without_invisible(text: str) -> str:
    """Return the text with spaces for control characters and surrogates."""
    # Category C: control characters, surrogates, and codes without a character.
    return "".join(
        char if char in "\n\t" or unicodedata.category(char)[0] != "C" else " " for char in text
    )


def _cited_items(text: str) -> _ReplyItems:
    """Return the steps of lines such as "12, 13: Whisk the eggs"."""
    items = _ReplyItems()
    for line in text.splitlines():
        match = _CITED_LINE.match(line)
        if match is None:
            continue
        numbers: list[int] = []
        for first, last in _NUMBER_RANGE.findall(match.group(1)):
            numbers += range(int(first), min(int(last or first), int(first) + MAX_CITED) + 1)
        items.lines.append(match.group(2))
        items.cited_numbers.append(tuple(numbers[:MAX_CITED]))
    return items


def _listed_items(text: str) -> _ReplyItems:
    """Return the lines of a numbered list."""
    matches = [_ITEM_LINE.match(line) for line in text.splitlines()]
    return _ReplyItems([match.group(2) for match in matches if match is not None])


def _prose_refusal(text: str, items: _ReplyItems) -> str | None:
    """Return why a reply is refused if it is no list or mostly text outside the list, else None."""
    lines = [*items.lines, items.truncated_line or ""]
    if not any(lines):
        return "the reply is not a numbered list"
    # 40: one short opening line
    unfenced = re.sub(r"\s+", " ", _FENCE_LINE.sub("", text))
    if sum(map(len, lines)) < (1 - MAX_PROSE_FRACTION) * len(unfenced) - 40:
        return "the reply is more prose than numbered list"
    return None


def _loop_refusal(lines: Sequence[str], sentences: int) -> str | None:
    """Return why a reply is refused if it has too many steps for `sentences` spoken sentences or
    repeats one too often, else None."""
    if len(lines) > MAX_STEPS_PER_SENTENCE * sentences:
        return f"the reply lists {len(lines)} steps for {sentences} sentences"
    counts = Counter(_without_markup(line).lower() for line in lines)
    most_repeats = max(counts.values(), default=0)
    if most_repeats > MAX_LINE_REPEATS:
        return f"the reply says one step {most_repeats} times over"
    return None


def _parse_items(items: _ReplyItems, spoken: str) -> ParsedReply:
    """Return the steps of a list in a reply, without markup and times. Each line that is no step is
    dropped with a reason. If none is left, the reply is refused.

    spoken: as in `parse_reply`.
    """
    texts: list[str] = []
    dropped: list[Rejected] = []
    times: list[str] = []
    cited: list[tuple[int, ...]] = []
    if items.truncated_line is not None:
        dropped.append(_as_rejected(items.truncated_line, CUT_OFF_REASON))
    for number, item in enumerate(items.lines):
        # longer ones are still dropped
        plain_text = _without_markup(item)[: 2 * MAX_STEP_CHARS]
        reason = _injection_reason(plain_text, spoken)
        text = plain_text
        if reason is None:
            text, cut_times = _without_times(plain_text, spoken)
            times += cut_times
            reason = _unusable_reason(text)
        if reason is None:
            texts.append(text)
            cited += items.cited_numbers[number : number + 1]
        else:
            dropped.append(_as_rejected(item, reason))
    if not texts:
        refusal = f"no line of the reply is a step ({dropped[0].reason})"
        return ParsedReply(dropped=tuple(dropped), refusal=refusal)
    return ParsedReply(tuple(texts), tuple(dropped), tuple(times), cited_numbers=tuple(cited))


def _without_markup(item: str) -> str:
    """Return an item without markdown, tags, HTML entities and labels such as "Step 3:" or "You
    need to"."""
    # Codes of characters first, because they may hide the marks and tags.
    text = re.sub(r"(\*{1,3}|_{2,3}|`+)", "", _without_invisible(html.unescape(item)))
    return _STEP_LABEL_PATTERN.sub("", " ".join(_PAIRED_TAGS.sub(r"\2", text).split()))


def _injection_reason(text: str, spoken: str) -> str | None:
    """Return why a line looks like the effect of a prompt injection, None for any other line.

    spoken: the text of the chunk. A link or command that it holds is no such sign.
    """
    reason_template = "holds {}, as if it obeyed an order hidden in the speech"
    for name, pattern in _FORBIDDEN_PATTERNS:
        if pattern.search(text):
            return reason_template.format(name)
    for name, pattern in _INJECTION_PATTERNS:
        for match in pattern.finditer(text):
            if not _is_spoken(match.group(0), spoken):
                return reason_template.format(name)
    return None


def _is_spoken(text: str, spoken: str) -> bool:
    """Return whether the letters and digits of a text are in the spoken text in this order, with any
    other characters between them."""
    pattern = r"[\W_]*".join(re.findall(r"[^\W_]", text))
    return bool(pattern and re.search(rf"\b{pattern}\b", spoken, re.IGNORECASE))


def _without_times(text: str, spoken: str) -> tuple[str, list[str]]:
    """Return a line without positions in the video, and the removed positions. Times that the speaker
    says stay."""
    spoken_lower = " ".join(spoken.lower().split())
    said_numbers = numbers(spoken)
    times: list[str] = []

    def remove_time(match: re.Match[str]) -> str:
        time = " ".join(match.group(0).split()).strip("[]() :-–—|")
        is_said = time.lower() in spoken_lower and re.search(r"\d", time)
        if is_said or (_AT_DECIMAL.fullmatch(time) and numbers(time) <= said_numbers):
            return match.group(0)
        times.append(time)
        return " "

    for pattern in _TIME_PATTERNS:
        text = pattern.sub(remove_time, text)
    # Brackets that held nothing but a time.
    text = re.sub(r"[\[(]\s*[\])]", " ", text)
    return " ".join(text.split()).strip(" ,;:|–—-.").strip(), times


def _unusable_reason(text: str) -> str | None:
    """Return why a line is too long or too empty to be a step, None for a usable line."""
    if len(text) > MAX_STEP_CHARS:
        return f"longer than {MAX_STEP_CHARS} characters: a paragraph, not a step"
    if not re.search(r"[^\W\d_]{2}", text):
        return "holds no words"
    return None


def _as_rejected(text: str, reason: str) -> Rejected:
    return Rejected(
        what="step", text=" ".join(text.split())[:MAX_STEP_CHARS] or "(blank)", reason=reason
    )
