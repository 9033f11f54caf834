"""Sentence segmentation of recognised words: by punctuation, by pauses, and by length where there
is neither."""

import re
from collections.abc import Sequence

from stepline.records import Sentence, Span, Word, covering_span

# A full stop after these ends nothing.
_TITLES = ["mr", "mrs", "ms", "dr", "prof", "st", "inc", "ltd", "jr", "sr"]
_MEASURES = ["approx", "vol", "fig", "oz", "lb", "lbs", "tbsp", "tsp", "min", "max"]
_OTHERS = ["vs", "etc", "e.g", "i.e", "a.m", "p.m", "u.s", "u.k"]
ABBREVIATIONS = frozenset([*_TITLES, *_MEASURES, *_OTHERS])
CLOSING_MARKS = "\"'”’»)]}"
OPENING_MARKS = "\"'“‘«([{"
FULL_STOPS = ".!?…。！？"
PAUSE_MARKS = (",", ";", ":", "，", "、", "；")
COMMA_SECONDS = 0.5  # of silence that a comma counts for where a long sentence is cut
MIN_WORD_SECONDS = 0.02  # a word whose end is not after its start gets this long
MIN_PART_WORDS = 2  # of either part of a long sentence that is cut


def split_sentences(words: Sequence[Word], *, pause: float, longest: float) -> list[Sentence]:
    """Return the sentences that the words make, in order.

    A sentence ends at a full stop that is no abbreviation or decimal point, at a pause of `pause`
    seconds, and, where it runs on past `longest` seconds, at its longest pause. In words with full
    stops a pause without a comma and before a small letter ends nothing: "keep pressure ... on the
    wound". A sentence spans its timed words; one without any is left out. Words carry the space
    before them.
    """
    timed = order_word_times(join_pieces([word for word in words if word.text.strip()]))
    following_texts = [*(word.text for word in timed[1:]), None]
    stops = [
        ends_sentence(word.text, following)
        for word, following in zip(timed, following_texts, strict=False)
    ]
    punctuated = any(stops)
    groups: list[list[Word]] = [[]]
    for n, word in enumerate(timed):
        if n and not stops[n - 1]:
            before = timed[n - 1]
            paused = _silence(before, word) >= pause
            runs_on = before.text.strip()[-1:].isalnum() and word.text.strip()[:1].islower()
            if paused and not (punctuated and runs_on):
                groups.append([])
        elif n:
            groups.append([])
        groups[-1].append(word)
    parts = [part for group in groups if group for part in _split_long(group, longest)]
    sentences = [_sentence(part) for part in parts]
    return [sentence for sentence in sentences if sentence is not None]


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
            joined.append(
                Word(
                    text=before.text.rstrip() + word.text,
                    span=covering_span((before.span, word.span)),
                    confidence=min(known, default=None),
                )
            )
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
            last = max(word.span.start, last)
            span = Span(last, max(word.span.end, last + MIN_WORD_SECONDS))
            word = word.model_copy(update={"span": span})
        ordered.append(word)
    return ordered


def ends_sentence(text: str, following: str | None = None) -> bool:
    """Return whether a word ends a sentence: "jar." does; "Mr.", "3." before "5" and "e.g." do
    not."""
    bare = text.strip().rstrip(CLOSING_MARKS)
    if not bare or bare[-1] not in FULL_STOPS:
        return False
    if bare[-1] != ".":
        return True
    stem = bare.rstrip(".").lower().lstrip(OPENING_MARKS)
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
    spans = [word.span for word in words if word.span]
    if len(words) < 2 * MIN_PART_WORDS or not spans or spans[-1].end - spans[0].start <= longest:
        return [words]
    cuts = range(MIN_PART_WORDS, len(words) - MIN_PART_WORDS + 1)
    middle = len(words) / 2
    cut = max(cuts, key=lambda index: (_cut_quality(words, index), -abs(index - middle)))
    return [*_split_long(words[:cut], longest), *_split_long(words[cut:], longest)]


def _cut_quality(words: list[Word], index: int) -> float:
    """Return how good it is to cut before words[index], in seconds of silence."""
    comma = COMMA_SECONDS if words[index - 1].text.rstrip().endswith(PAUSE_MARKS) else 0.0
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
