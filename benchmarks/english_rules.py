"""The rules of our English: words to replace, semicolons, and sentences that are too long.

Each rule gives what to write instead. A text in quotation marks belongs to another author, and
code is masked before (prose.py). So neither is judged by its words.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from prose import MASK_SIGN, Passage, mask

MAX_SENTENCE_WORDS = 25
SHOWN_CHARS = 60  # of a place

# Words that are counted: "videos a worker" means videos per worker.
_COUNTED_NOUNS_TEXT = """
answer batch byte call card category chunk class clip column command core day document entry epoch
event file folder frame GPU gradient hour image item key kind label language line machine method
metric minute model month page paper part person picture piece pixel process question query reason
record recipe reply request row run second seed segment sentence setting shard shot span step system
table task test text thread token update video week window word worker year
"""
COUNTED_NOUNS = tuple(_COUNTED_NOUNS_TEXT.split())
_UNIT_PATTERN = f"(?:{'|'.join(COUNTED_NOUNS)})"
_PLACE_WORDS = "(?:in|below|beside|above|there|at|on|with|outside|within|between|next)"
_COUNTED_PATTERN = (
    rf"(?:{_UNIT_PATTERN}s|boxes|bytes|queries|times|ms|s|KB|MB|GB|KiB|MiB|GiB|\d[\d.,]*)"
)

# Words that are plain where they are used like this. They are masked before the rules look.
_PLAIN_USES = (
    r"tells? (?:\S+ ){1,4}apart",
    r"\w+ stands? (?:mixer|still|for|out)|(?:cake|mixer|music|tripod) stands?",
    r"there (?:is|are|was|were) no",
    r"(?:is|are|was|were) no (?:longer|doubt|more than|less than)",
    r"at once and",
    r"(?:lies|lie) in(?= \[)",  # an interval
    rf"an? {_UNIT_PATTERN} (?:of|earlier|later|before|after|ago|behind)",
)

# (pattern, what to write instead). A space is any white space, also the end of a line.
WORD_CURES: tuple[tuple[str, str], ...] = (
    (r"tells|told", "reports, says, shows"),
    (r"(?:do|does|did|can|could|will|would)(?: not|n't) tell", "does not show"),
    (r"stands?|stood", "is, was"),
    (r"beside", "next to, also"),
    (r"(?:is|are|was|were) (?-i:none)", "is not one"),
    (r"(?:is|are|was|were) no", "is not a"),
    (r"anew", "again"),
    (r"of which", "the one that, whose"),
    (r"of whom", "the one who, whose"),
    (r"so many", "that many, the number"),
    (r"liker|likest", "more like, most like"),
    (r"surer|surest", "more certain, most certain"),
    (r"shyer|shyest", "less certain, the most cautious"),
    (r"likelier|likeliest", "more likely, most likely"),
    (r"to be had", "available, possible"),
    (r"for ever", "forever, without end"),
    (r"of (?:no|some|any) use", "useless, useful"),
    (rf"(?:lies|lie|lay) {_PLACE_WORDS}", "is in"),
    (r"meanwhile", "during this"),
    (r"nobody|somebody|anybody", "no one, someone, anyone"),
    (r"at once", "together, at the same time, immediately"),
    (r"all the same", "still, anyway"),
    (r"in (?:its|their) turn", "then"),
    (r"mend(?:s|ed|ing)?", "repair, correct"),
    (r"whomever|whosoever|whatsoever", "who, what"),
    (r"what (?:lacks|is of)", "what is missing"),
    (r"of one's own", "of your own"),
    (r"reckon(?:s|ed|ing)?", "compute"),
    (r"hitherto|henceforth|whence|thence|hence", "so far, from now on, from there, so"),
    (r"whilst|amongst|lest|ere", "while, among, so that not, before"),
    (r"for (?:it|they|there|he|she|we) (?:is|are|was|were|has|have|can)", "because"),
    (rf"(?:{_COUNTED_PATTERN}|once|twice) an? {_UNIT_PATTERN}", "per"),
    (rf"(?:an?|one) {_UNIT_PATTERN} an? {_UNIT_PATTERN}", "per"),
)


@dataclass(frozen=True)
class Rule:
    """A word to replace. cure: what to write instead."""

    pattern: re.Pattern[str]
    cure: str


def whole_words(pattern: str) -> re.Pattern[str]:
    """Return a pattern of whole words, in capitals or small letters, over the ends of lines."""
    spaced = pattern.replace(" ", r"\s+")
    return re.compile(rf"(?<![\w-])(?:{spaced})(?![\w-])", re.IGNORECASE)


WORD_RULES = [Rule(whole_words(pattern), cure) for pattern, cure in WORD_CURES]
ANY_WORD = whole_words("|".join(pattern for pattern, _ in WORD_CURES))  # asked first, to be quick
PLAIN_USE = whole_words("|".join(_PLAIN_USES))
QUOTATION_PATTERN = re.compile(r"\"[^\"]{1,300}\"|“[^”]{1,300}”|‘[^’]{1,300}’")
WORD_PATTERN = re.compile(rf"\S*[\w{MASK_SIGN}]\S*")
_CLOSING_SIGNS = r"[\"')\]*_”’]*"
SENTENCE_END = re.compile(
    rf"(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\bal)(?<!\bFig)(?<!\bSec)(?<!\bcf)"
    rf"[.!?]{_CLOSING_SIGNS}\s+(?=[\"'(\[*_“‘]*[A-Z0-9{MASK_SIGN}.])"
)
# A message or label may have two parts, "what is wrong; what to do": the second is a sentence.
PART_END = re.compile(r";\s+")
IN_PARTS = {"message", "label"}
MAX_MESSAGE_SEMICOLONS = 1
JUDGED_BY_WORDS_ALONE = {"cell", "string"}
# A docstring that begins like this hides its verb: "Have a thread end" ends a thread.
INDIRECT_OPENING = "Have "
INDIRECT_CURE = "begin with the verb of what is done, as in: End a thread"


@dataclass(frozen=True)
class Place:
    """A place to rewrite.

    text: the words that a rule found
    cure: what to do
    """

    path: str
    line: int
    text: str
    cure: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}: {self.cure}"


def places(passage: Passage) -> Iterator[Place]:
    """Yield the places of a passage that break a rule."""
    text = QUOTATION_PATTERN.sub(mask, passage.masked)
    yield from _words(passage, text)
    if passage.kind in JUDGED_BY_WORDS_ALONE:
        return
    if passage.kind == "docstring" and passage.text.startswith(INDIRECT_OPENING):
        opening = " ".join(passage.text.split()[:4])
        yield _place(passage, 0, opening, INDIRECT_CURE)
    yield from _semicolons(passage, text)
    yield from _long_sentences(passage)


def _place(passage: Passage, offset: int, words: str, cure: str) -> Place:
    return Place(passage.path, passage.line_at(offset), " ".join(words.split()), cure)


def _words(passage: Passage, text: str) -> Iterator[Place]:
    if ANY_WORD.search(text) is None:
        return
    text = PLAIN_USE.sub(mask, text)
    for rule in WORD_RULES:
        for match in rule.pattern.finditer(text):
            yield _place(passage, match.start(), match[0], f"write {rule.cure}")


def _semicolons(passage: Passage, text: str) -> Iterator[Place]:
    """Yield each semicolon. A message may have one, between what is wrong and what to do."""
    offsets = [match.start() for match in re.finditer(";", text)]
    if passage.kind == "label":
        offsets = []
    elif passage.kind == "message":
        offsets = offsets[MAX_MESSAGE_SEMICOLONS:]
    for offset in offsets:
        words = passage.text[max(0, offset - SHOWN_CHARS) : offset + 1].rpartition("\n")[2]
        yield _place(passage, offset, words, "a semicolon, write two sentences")


def sentences(passage: Passage) -> Iterator[tuple[int, str]]:
    """Yield offset and text of each sentence of a passage, code masked."""
    end = SENTENCE_END
    if passage.kind in IN_PARTS:
        end = re.compile(f"{SENTENCE_END.pattern}|{PART_END.pattern}")
    start = 0
    for match in end.finditer(passage.masked):
        yield start, passage.masked[start : match.end()]
        start = match.end()
    yield start, passage.masked[start:]


def _long_sentences(passage: Passage) -> Iterator[Place]:
    for offset, sentence in sentences(passage):
        count = len(WORD_PATTERN.findall(sentence))
        if count > MAX_SENTENCE_WORDS:
            words = " ".join(passage.text[offset : offset + SHOWN_CHARS].split())
            cure = f"a sentence of {count} words, write at most {MAX_SENTENCE_WORDS} each"
            yield _place(passage, offset, f"{words} ...", cure)
