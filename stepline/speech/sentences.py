"""Splits recognised words into sentences: by punctuation and pauses, and by length where both fail.

Words with their seconds become sentences. Here a pause is 1 s or longer:

    'Add 2 tbsp. of oil. Stir it.'    ->  'Add 2 tbsp. of oil.' and 'Stir it.'
    'add the oil' [2.6 s] 'stir it'   ->  'add the oil' (10, 11.4) and 'stir it' (14, 14.9)
    'Keep pressure' [3.1 s] 'on it.'  ->  'Keep pressure on it.': its words have a full stop
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

from stepline.records import Sentence, Span, Word, covering_span

Words: TypeAlias = list[Word]

# A full stop after these ends nothing.
_ABBREVIATIONS_TEXT = """
mr mrs ms dr prof st inc ltd jr sr
approx vol fig oz lb lbs tbsp tsp min max
vs etc e.g i.e a.m p.m u.s u.k
"""
ABBREVIATION_WORDS = frozenset(_ABBREVIATIONS_TEXT.split())
CLOSING_MARKS = "\"'”’»)]}"
OPENING_MARKS = "\"'“‘«([{"
FULL_STOPS = ".!?…。！？"
PAUSE_MARKS = (",", ";", ":", "，", "、", "；")
COMMA_SECONDS = 0.5  # of silence that a comma counts for where a long sentence is cut
MIN_WORD_SECONDS = 0.02  # a word whose end is not after its start gets this long
MIN_PART_WORDS = 2  # of either part of a long sentence that is cut


def split_sentences(words: Sequence[Word], *, pause: float, longest: float) -> list[Sentence]:
    """Return the sentences of the words, in order.

    A sentence ends at a full stop that is not an abbreviation's or a decimal point, and at a pause.
    In words with full stops a pause without a comma and before a small letter ends nothing: "keep
    pressure ... on the wound". A sentence without any timed word is left out.

    Args:
        words: in spoken order, each with the space before it.
        pause: seconds of silence that end a sentence.
        longest: seconds after which a sentence is also cut at its longest pause.
    """
    joined_words = [word for word in words if word.text.strip()]
    timed = order_word_times(join_pieces(joined_words))
    if not timed:
        return []
    stops = [ends_sentence(word.text, following.text) for word, following in pairwise(timed)]
    has_stops = any(stops) or ends_sentence(timed[-1].text)

    # groups of words, by full stops and pauses
    groups = [[timed[0]]]
    for number, word in enumerate(timed[1:]):
        before = timed[number]
        is_end = stops[number]
        if not is_end and _silence(before, word) >= pause:
            # no mark and no capital letter parts them
            continues_sentence = (
                before.text.strip()[-1].isalnum() and word.text.strip()[0].islower()
            )
            is_end = not (has_stops and continues_sentence)
        if is_end:
            groups.append([])
        groups[-1].append(word)

    # sentences, none of them too long
    sentences = []
    for group in groups:
        for part in _split_long(group, longest):
            sentence = _sentence(part)
            if sentence is not None:
                sentences.append(sentence)
    return sentences


def start_and_end(sentence: Sentence) -> tuple[float, float]:
    """Return the (start, end) seconds of a sentence as a sort key."""
    return sentence.span.start, sentence.span.end


def join_pieces(words: Sequence[Word]) -> Words:
    """Return the words with the parts that Whisper splits joined: "pull" and "-up.", "10" and "%".

    A part has no space before it and starts with no letter or digit. Words of a language without
    spaces stay.
    """
    joined: list[Word] = []
    for word in words:
        first = word.text[0]
        if joined and not first.isspace() and not first.isalnum():
            before = joined.pop()
            confidences = _confidences([before, word])
            word = Word(
                text=before.text.rstrip() + word.text,
                span=covering_span((before.span, word.span)),
                confidence=min(confidences, default=None),
            )
        joined.append(word)
    return joined


def _confidences(words: Sequence[Word]) -> list[float]:
    return [word.confidence for word in words if word.confidence is not None]


def order_word_times(words: Sequence[Word]) -> Words:
    """Return the words with times in order: a start before the last word's start is moved to it."""
    ordered: list[Word] = []
    last = 0.0
    for word in words:
        if word.span is not None:
            last = max(word.span.start, last)
            end = max(word.span.end, last + MIN_WORD_SECONDS)
            word = word.model_copy(update={"span": Span(last, end)})
        ordered.append(word)
    return ordered


def ends_sentence(text: str, following: str | None = None) -> bool:
    """Return whether a word ends a sentence: "jar." does; "Mr.", "3." before "5" and "e.g." do not."""
    stripped_text = text.strip().rstrip(CLOSING_MARKS)
    if not stripped_text or stripped_text[-1] not in FULL_STOPS:
        return False
    if stripped_text[-1] != ".":
        return True
    stem = stripped_text.rstrip(".").lower().lstrip(OPENING_MARKS)
    if stem in ABBREVIATION_WORDS:
        return False
    # An initial ends nothing, but "I." may.
    if len(stem) == 1 and stem.isalpha() and stem != "i":
        return False
    if following is None:
        return True
    next_text = following.strip()
    # "Wait... and then" is one sentence.
    if next_text[:1].islower() and stripped_text.endswith("..."):
        return False
    # "3." before "5" is a decimal point.
    is_decimal = stem.isdigit() and re.match(r"\d", next_text)
    return not is_decimal


def _silence(word: Word, following: Word) -> float:
    if not word.span or not following.span:
        return 0.0
    return following.span.start - word.span.end


def _split_long(words: Words, longest: float) -> list[Words]:
    """Cut words that last too long at their longest pause, recursively, not within 2 words of an
    end.
    """
    spans = _spans(words)
    if len(words) < 2 * MIN_PART_WORDS or not spans:
        return [words]
    if spans[-1].end - spans[0].start <= longest:
        return [words]
    cuts = range(MIN_PART_WORDS, len(words) - MIN_PART_WORDS + 1)
    qualities = [_cut_quality(words, index) for index in cuts]
    best = qualities.index(max(qualities))
    cut = cuts[best]
    return _split_long(words[:cut], longest) + _split_long(words[cut:], longest)


def _cut_quality(words: Words, index: int) -> tuple[float, float]:
    """Return how good a cut before words[index] is: seconds of silence, then nearness to the
    middle.
    """
    last_word = words[index - 1]
    silence = _silence(last_word, words[index])
    if last_word.text.rstrip().endswith(PAUSE_MARKS):
        silence += COMMA_SECONDS
    distance = abs(index - len(words) / 2)
    # Rounded, so that among like pauses the one nearest the middle wins.
    return round(silence, 1), -distance


def _spans(words: Sequence[Word]) -> list[Span]:
    return [word.span for word in words if word.span]


def _sentence(words: list[Word]) -> Sentence | None:
    spans = _spans(words)
    if not spans:
        return None
    confidences = _confidences(words)
    confidence = sum(confidences) / len(confidences) if confidences else None
    end = max(span.end for span in spans)
    plain_words = [word.model_copy(update={"text": word.text.strip()}) for word in words]
    # A word carries the space before it, as Whisper writes it. Chinese has none.
    text = "".join(word.text for word in words)
    return Sentence(
        text=" ".join(text.split()),
        span=Span(spans[0].start, end),
        words=tuple(plain_words),
        confidence=confidence,
    )
