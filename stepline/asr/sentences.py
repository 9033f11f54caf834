"""Sentence segmentation of recognised words: by punctuation, by pauses, and by length where there
is neither."""

import re
from collections.abc import Sequence

from stepline.records import Sentence, Span, Word, covering_span

# A full stop after these ends nothing.
ABBREVIATIONS = frozenset(
    {
        *(
            "mr",
            "mrs",
            "ms",
            "dr",
            "prof",
            "st",
            "vs",
            "etc",
            "approx",
            "vol",
            "fig",
            "inc",
            "ltd",
            "jr",
            "sr",
            "e.g",
        ),
        *("i.e", "a.m", "p.m", "u.s", "u.k", "oz", "lb", "lbs", "tbsp", "tsp", "min", "max"),
    }
)
CLOSING = "\"'”’»)]}"
FULL_STOPS = ".!?…。！？"
SHORTEST_WORD = 0.02  # s; a word whose end is not after its start gets this long


def split_sentences(words: Sequence[Word], *, pause: float, longest: float) -> list[Sentence]:
    """Return the sentences that the words make, in order.

    A sentence ends at a full stop that is no abbreviation or decimal point, at a pause of `pause`
    seconds, and, where it runs on past `longest` seconds, at its longest pause. In words with full
    stops a pause without a comma and before a small letter ends nothing: "keep pressure ... on the
    wound". A sentence spans its timed words; one without any is left out. Words carry the space
    before them.
    """
    timed = order_word_times(join_pieces([word for word in words if word.text.strip()]))
    pairs = list(zip(timed, [*timed[1:], None], strict=False))
    punctuated = any(
        ends_sentence(word.text, following.text if following else None) for word, following in pairs
    )
    groups: list[list[Word]] = [[]]
    for word, following in pairs:
        groups[-1].append(word)
        paused = following is not None and _silence(word, following) >= pause
        joined = (
            following is not None
            and word.text.strip()[-1:].isalnum()
            and following.text.strip()[:1].islower()
        )
        if (
            following is None
            or ends_sentence(word.text, following.text)
            or (paused and not (punctuated and joined))
        ):
            groups.append([])
    parts = [part for group in groups if group for part in _split_long(group, longest)]
    return [sentence for part in parts if (sentence := _sentence(part)) is not None]


def join_pieces(words: Sequence[Word]) -> list[Word]:
    """Return the words with what Whisper times apart from them put back: "pull", "-up." are one
    word, so are "10", "%".

    A piece has no space before it and begins with no letter or digit; a language without spaces
    keeps its words.
    """
    joined: list[Word] = []
    for word in words:
        if joined and not word.text[0].isspace() and not word.text[0].isalnum():
            before = joined.pop()
            known = [piece.confidence for piece in (before, word) if piece.confidence is not None]
            update = {
                "text": before.text.rstrip() + word.text,
                "span": covering_span((before.span, word.span)),
                "confidence": min(known, default=None),
            }
            joined.append(before.model_copy(update=update))
        else:
            joined.append(word)
    return joined


def order_word_times(words: Sequence[Word]) -> list[Word]:
    """Return the words with times that never run backwards: a start before the last word's start is
    moved to it."""
    ordered: list[Word] = []
    last = 0.0
    for word in words:
        if word.span is not None:
            start = max(word.span.start, last)
            word = word.model_copy(
                update={"span": Span(start, max(word.span.end, start + SHORTEST_WORD))}
            )
            last = start
        ordered.append(word)
    return ordered


def ends_sentence(text: str, following: str | None = None) -> bool:
    """Tell whether a word ends a sentence: "jar." does; "Mr.", "3." before "5" and "e.g." do
    not."""
    bare = text.strip().rstrip(CLOSING)
    if not bare or bare[-1] not in FULL_STOPS:
        return False
    if bare[-1] != ".":
        return True
    stem = bare.rstrip(".").lower().lstrip("\"'“‘«([{")
    if stem in ABBREVIATIONS or (len(stem) == 1 and stem.isalpha() and stem != "i"):
        return False
    if bare.endswith("...") and following is not None and following.strip()[:1].islower():
        return False
    return not (stem.isdigit() and following is not None and re.match(r"\d", following.strip()))


def _silence(word: Word, following: Word) -> float:
    return following.span.start - word.span.end if word.span and following.span else 0.0


def _split_long(words: list[Word], longest: float) -> list[list[Word]]:
    """Cut a run of words that lasts too long at its longest pause, again and again; never within 2
    words of an end."""
    timed = [word.span for word in words if word.span]
    if len(words) < 4 or not timed or timed[-1].end - timed[0].start <= longest:
        return [words]
    cuts = range(2, len(words) - 1)
    middle = len(words) / 2
    cut = max(cuts, key=lambda index: (_cut_quality(words, index), -abs(index - middle)))
    return [*_split_long(words[:cut], longest), *_split_long(words[cut:], longest)]


def _cut_quality(words: list[Word], index: int) -> float:
    """How good it is to cut before words[index]: seconds of silence, a comma counts as half a
    second."""
    comma = (
        0.5 if words[index - 1].text.rstrip().endswith((",", ";", ":", "，", "、", "；")) else 0.0
    )
    return round(_silence(words[index - 1], words[index]) + comma, 1)


def _sentence(words: list[Word]) -> Sentence | None:
    spans = [word.span for word in words if word.span]
    if not spans:
        return None
    known = [word.confidence for word in words if word.confidence is not None]
    confidence = sum(known) / len(known) if known else None
    span = Span(spans[0].start, max(span.end for span in spans))
    plain = tuple(word.model_copy(update={"text": word.text.strip()}) for word in words)
    # A word carries the space before it, as Whisper writes it; Chinese has none.
    text = " ".join("".join(word.text for word in words).split())
    return Sentence(text=text, span=span, words=plain, confidence=confidence)
