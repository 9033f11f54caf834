"""Prompts and replies of the language-model writer: chunks of a transcript in, step texts out.

A transcript is cut into chunks of about ten sentences, without the sentences that talk to the model
itself; a chunk is quoted in the prompt as data that cannot end its own quotation. A reply is a
numbered list of steps, anything else is refused with its reason. A reply is untrusted: it never
sets a time, and nothing in it is taken that a hidden order in the speech could have planted (links,
markup, code). Any text at all gives a ParsedReply; nothing raises.

Source: NaSVA, section 3.1. Differs: the chunks are of equal size, where the paper's last one may be
a lone sentence.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from stepline.chat import orders_a_model, quoted
from stepline.errors import SettingsError
from stepline.records import Rejected, Sentence, Transcript

# characters of one chunk, some 1,500 tokens: room for prompt and reply in a context of 4,096
LONGEST = 6000


@dataclass(frozen=True)
class Chunk:
    """Neighbouring sentences of a transcript, in order; `indices` are theirs in it."""

    number: int  # from 1
    indices: tuple[int, ...]
    sentences: tuple[Sentence, ...]

    @property
    def text(self) -> str:
        """What is said, one sentence a line."""
        return "\n".join(sentence.text for sentence in self.sentences)


def split_into_chunks(
    transcript: Transcript, size: int, withheld: Sequence[int] = ()
) -> tuple[Chunk, ...]:
    """Return chunks of about `size` sentences and at most LONGEST characters, without the
    `withheld` sentences.

    A single sentence longer than that is a chunk of its own.
    """
    indices = [i for i in range(len(transcript.sentences)) if i not in set(withheld)]
    groups = [
        part for group in _even(indices, size) for part in _short(group, transcript.sentences)
    ]
    return tuple(
        Chunk(number, tuple(group), tuple(transcript.sentences[i] for i in group))
        for number, group in enumerate(groups, start=1)
    )


def find_model_orders(transcript: Transcript) -> tuple[int, ...]:
    """Return the indices of the sentences that try to instruct a language model; they are withheld
    from it."""
    return tuple(
        i for i, sentence in enumerate(transcript.sentences) if orders_a_model(sentence.text)
    )


def _even(indices: Sequence[int], size: int) -> list[list[int]]:
    """Split into the fewest groups of at most `size`, their sizes one apart at most."""
    count = math.ceil(len(indices) / size)
    edges = [round(i * len(indices) / count) for i in range(count + 1)] if count else [0]
    return [list(indices[a:b]) for a, b in pairwise(edges)]


def _short(group: list[int], sentences: Sequence[Sentence]) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    held = 0
    for place in group:
        length = len(sentences[place].text) + 1
        if parts[-1] and held + length > LONGEST:
            parts.append([])
            held = 0
        parts[-1].append(place)
        held += length
    return [part for part in parts if part]


REMINDER = "\nAnswer with a numbered list of short steps, or the word none. No prose, no times, no links.\n"


@dataclass(frozen=True)
class Prompt:
    """A prompt's name and text; `times_in`: sentences carry their seconds; `times_out`: the model
    writes times."""

    name: str
    text: str
    times_in: bool = False
    times_out: bool = False


@cache
def main_prompt() -> Prompt:
    """Return the prompt of the main job: no times in, none out (NaSVA Table 6, third row, in our
    own words)."""
    return Prompt("steps", _read("steps"))


@cache
def picture_prompt() -> Prompt:
    """Return the prompt of the main job where pictures stand beside the speech."""
    return Prompt("steps_with_pictures", _read("steps_with_pictures"))


# After a prompt of the user's own, where pictures stand beside the speech.
PICTURES = """
With this come pictures of the video, each with a letter. End every line that rests on one with its letter in square
brackets, such as [B]."""
_CITED = re.compile(r"\s*[\[(]((?:pictures?\s+)?[A-T](?:\s*(?:,|and|&)\s*[A-T])*)[\])][\s.]*$")


def split_citation(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a step's text and the letters of the pictures that it names at its end: "Press it [A,
    B]"."""
    found = _CITED.search(text)
    if found is None:
        return text, ()
    return text[: found.start()], tuple(dict.fromkeys(re.findall(r"\b[A-T]\b", found[1])))


# where a chunk's sentences stand; with their seconds
SPEECH, TIMED_SPEECH = "{transcript}", "{timed_transcript}"
LONGEST_PROMPT = 20_000  # characters; the main one has 1,300


def chosen_prompt(path: Path | None, *, pictures: bool = False) -> Prompt:
    """Return the user's own prompt from a file (`writing.llm.prompt_file`), or that of the main job
    where path is None.

    pictures: whether some stand beside the speech.
    Raises SettingsError where the file cannot be read, is empty or too long, or has no place for
    the speech.
    """
    if path is None:
        return picture_prompt() if pictures else main_prompt()
    place, cure = (
        f"writing.llm.prompt_file {path}",
        f"write {SPEECH} where the sentences are to stand",
    )
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise SettingsError(f"{place}: cannot be read ({reason}); give a text file") from error
    if not text.strip():
        raise SettingsError(f"{place}: is empty; write a prompt, and in it {SPEECH}")
    if len(text) > LONGEST_PROMPT:
        raise SettingsError(f"{place}: {len(text)} characters; a prompt may have {LONGEST_PROMPT}")
    timed = TIMED_SPEECH in text
    if not timed and SPEECH not in text:
        raise SettingsError(
            f"{place}: has no place for the speech; {cure}, or {TIMED_SPEECH} for them with times"
        )
    return Prompt(
        "own", text.replace(TIMED_SPEECH, SPEECH) + (PICTURES if pictures else ""), times_in=timed
    )


@cache
def experiment_prompts() -> dict[str, Prompt]:
    """Return the two prompts that lost in NaSVA Table 6, for experiments alone: the main job never
    takes them.

    steps_with_times (first row): times go in and the model writes times. steps_from_timed (second
    row): times go in.
    """
    return {
        "steps_with_times": Prompt(
            "steps_with_times", _read("steps_with_times"), times_in=True, times_out=True
        ),
        "steps_from_timed": Prompt("steps_from_timed", _read("steps_from_timed"), times_in=True),
    }


def build_prompt(prompt: Prompt, chunk: Chunk, *, again: bool = False) -> str:
    """Return the prompt with the chunk quoted in it; `again` adds a reminder after a reply that was
    refused."""
    lines = [quoted(sentence.text) for sentence in chunk.sentences]
    if prompt.times_in:
        spans = [sentence.span for sentence in chunk.sentences]
        lines = [
            f"({span.start:.1f}-{span.end:.1f}) {line}"
            for span, line in zip(spans, lines, strict=True)
        ]
    return prompt.text.replace(SPEECH, "\n".join(lines)) + (REMINDER if again else "")


def _read(name: str) -> str:
    return (Path(__file__).parent / "prompt_templates" / f"{name}.txt").read_text(encoding="utf-8")


LONGEST_REPLY = 20_000  # characters; ten sentences give some 600
# characters; HowToStep's steps average 8 words, the longest sensible ones have some 30
LONGEST_STEP = 200
STEPS_A_SENTENCE = 4  # more than this many steps a spoken sentence is a model that loops
REPEATS = 3  # the same line more often than this is a model that loops
# share of a reply's characters that may stand outside the list (an opening line, a closing remark)
PROSE = 0.5

_ITEM = re.compile(r"^\s{0,8}(?:[*_#]{1,3}\s*)?(\d{1,3})[.)](?:[*_]{1,3})?\s+(\S.*)$")
_NOTHING = re.compile(r"^\W*(?:1[.)]\s*)?none\W*$", re.IGNORECASE)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL | re.IGNORECASE)
_TAKEN_OVER = (
    (
        "a link",
        re.compile(
            r"\b[a-z][a-z0-9+.-]{1,20}://|\bwww\.|\b(?:javascript:|data:\w+/)|\]\(|\S@\S+\.\w", re.I
        ),
    ),
    ("markup", re.compile(r"<\s*[/!?a-z|]|&(?:#\d+|#x[0-9a-f]+|lt|gt|amp|quot);|\[/?INST\]", re.I)),
    (
        "code",
        re.compile(
            r"```|~~~|\{\{|\{%|\$\(|\brm\s+-|\bimport\s+os\b|\bdef\s+\w+\(|\bDROP\s+TABLE\b"
        ),
    ),
    (
        "talk about its orders",
        re.compile(
            r"\b(?:previous|prior|above|earlier|system|original|hidden)\s+(?:instruction|prompt|order|message)s?\b"
            r"|\bas an?\s+(?:ai|assistant|language model)\b|\bI\s+(?:can(?:no|')t|am unable|will not|won't)\b",
            re.IGNORECASE,
        ),
    ),
)

# What talkative models put before the command itself.
_LABELS = re.compile(
    r"^(?:(?:[-*#>•]+\s+)|(?:step\s+\d+\s*[:.)-]\s*)|(?:(?:the\s+)?(?:[\w-]+\s+)?step\s+is\s+to\s+)"
    r"|(?:(?:I|you|we)\s*(?:(?:'m|’m|'re|’re|am|are)\s+going\s+to|need\s+to|have\s+to|should|will|must|can)\s+))+",
    re.IGNORECASE,
)

_CLOCK = r"\d{1,2}:[0-5]\d(?::[0-5]\d)?(?:[.,]\d{1,3})?"
_SECOND = r"\d+(?:\.\d+)?\s*(?:s|secs?|seconds?)"
_POINT = rf"(?:{_CLOCK}|{_SECOND}|\d+\.\d+)"
_RANGE = rf"{_POINT}(?:\s*(?:-|–|—|to|until)\s*{_POINT})?"
_TIMES = (
    re.compile(
        rf"[\[(]\s*(?:at|from|time|timestamp|t)?\s*[:=]?\s*(?:{_RANGE}|\d+\s*[-–—]\s*{_POINT})\s*[\])]",
        re.I,
    ),
    re.compile(r"\[\s*\d+(?:\s*(?:-|–|—)\s*\d+)?\s*\]"),
    re.compile(rf"^\s*{_RANGE}\s*(?:[-–—:|]|$)", re.I),
    re.compile(rf"\b(?:at|from|between)\s+(?:about\s+|around\s+)?{_RANGE}(?!\w|\s*[\w%°])", re.I),
    re.compile(
        rf"\b(?:at|from|between)\s+(?:about\s+|around\s+)?(?:\d+\s*(?:-|to|and)\s*)?{_SECOND}(?!\w)",
        re.I,
    ),
    re.compile(
        r"\b(?:at|from)\s+(?:the\s+)?(?:second|minute)s?\s+\d+(?:\s*(?:-|–|to)\s*\d+)?", re.I
    ),
    re.compile(
        r"\b(?:at|from)\s+(?:the\s+)?\d+(?:\.\d+)?[- ](?:second|minute)\s+(?:mark|point)\b", re.I
    ),
    re.compile(rf"\b{_CLOCK}\b"),
    re.compile(r"\btime\s?(?:stamp|code)s?\b[:\s]*[\d.:]*", re.I),
)


@dataclass(frozen=True)
class ParsedReply:
    """What a reply says: step texts in order, what was left out of it, and the times cut out of it.

    refusal: None, or why nothing of the reply is taken; then texts is empty.
    """

    texts: tuple[str, ...] = ()
    dropped: tuple[Rejected, ...] = ()
    times: tuple[str, ...] = ()
    refusal: str | None = None


def read_reply(
    reply: str, *, spoken: str = "", sentences: int = 10, complete: bool = True
) -> ParsedReply:
    """Return the steps of a numbered list, free of markup and times; the word "none" is an empty
    list.

    spoken: what the model was given; a time that the speaker said himself stays. sentences: how
    many those were.
    complete: False when the model was cut off; then its last line is dropped.
    """
    text = _readable(reply)
    refusal = _refusal(text)
    if refusal is not None:
        return ParsedReply(refusal=refusal)
    if _NOTHING.match(text):
        return ParsedReply()
    items = [match.group(2) for line in text.splitlines() if (match := _ITEM.match(line))]
    refusal = _not_a_list(text, items, sentences)
    return (
        ParsedReply(refusal=refusal)
        if refusal is not None
        else _read_items(items, spoken, complete)
    )


def _readable(reply: str) -> str:
    """Return the reply without a model's thoughts and without characters that cannot be seen or
    stored."""
    text = _THOUGHT.sub("", reply[: 2 * LONGEST_REPLY])
    return "".join(
        c if c in "\n\t" or unicodedata.category(c)[0] != "C" else " " for c in text
    ).strip()


def _refusal(text: str) -> str | None:
    if not text:
        return "the reply is empty"
    if len(text) > LONGEST_REPLY:
        return f"the reply is longer than {LONGEST_REPLY} characters"
    for name, pattern in _TAKEN_OVER:
        if pattern.search(text):
            return f"the reply holds {name}, as if it obeyed an order hidden in the speech"
    return None


def _not_a_list(text: str, items: list[str], sentences: int) -> str | None:
    if not items:
        return "the reply is no numbered list"
    if len(items) > STEPS_A_SENTENCE * sentences:
        return f"the reply lists {len(items)} steps for {sentences} sentences"
    often = Counter(_plain(item).lower() for item in items).most_common(1)[0][1]
    if often > REPEATS:
        return f"the reply says one step {often} times over"
    # 40: one short opening line
    if sum(map(len, items)) < (1 - PROSE) * len(re.sub(r"\s+", " ", text)) - 40:
        return "the reply is more prose than numbered list"
    return None


def _read_items(items: list[str], spoken: str, complete: bool) -> ParsedReply:
    texts: list[str] = []
    dropped: list[Rejected] = []
    times: list[str] = []
    if not complete and items:
        dropped.append(
            _step(
                items.pop(),
                "the reply was cut off inside this step; a larger max_tokens lets it end",
            )
        )
    for item in items:
        # longer ones are dropped all the same
        text, found = _without_times(_plain(item)[: 2 * LONGEST_STEP], spoken)
        times += found
        reason = _unfit(text)
        if reason is None:
            texts.append(text)
        else:
            dropped.append(_step(item, reason))
    if not texts:
        return ParsedReply(refusal=f"no line of the reply is a step ({dropped[0].reason})")
    return ParsedReply(tuple(texts), tuple(dropped), tuple(times))


def _plain(item: str) -> str:
    """Return an item without markdown and without "Step 3:", "The third step is to" or "You need
    to" before it."""
    text = re.sub(r"(\*{1,3}|_{2,3}|`+)", "", item)
    return _LABELS.sub("", " ".join(text.split()))


def _without_times(text: str, spoken: str) -> tuple[str, list[str]]:
    """Return the text without positions in the video, and those; times that the speaker said are no
    positions."""
    heard = " ".join(spoken.lower().split())
    found: list[str] = []

    def cut(match: re.Match[str]) -> str:
        time = " ".join(match.group(0).split()).strip("[]() :-–—|")
        if time.lower() in heard and re.search(r"\d", time):
            return match.group(0)
        found.append(time)
        return " "

    for pattern in _TIMES:
        text = pattern.sub(cut, text)
    text = re.sub(r"[\[(]\s*[\])]", " ", text)
    return " ".join(text.split()).strip(" ,;:|–—-.").strip(), found


def _unfit(text: str) -> str | None:
    if len(text) > LONGEST_STEP:
        return f"longer than {LONGEST_STEP} characters: a paragraph, not a step"
    if not re.search(r"[^\W\d_]{2}", text):
        return "holds no words"
    return None


def _step(text: str, reason: str) -> Rejected:
    return Rejected(
        what="step", text=" ".join(text.split())[:LONGEST_STEP] or "(blank)", reason=reason
    )
