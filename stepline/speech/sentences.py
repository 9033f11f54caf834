"""Splits recognised words into sentences: by punctuation and pauses, and by length where both fail.

Words with their seconds become sentences. Here a pause is 1 s or longer:

    'Add 2 tbsp. of oil. Stir it.'    ->  'Add 2 tbsp. of oil.' and 'Stir it.'
    'add the oil' [2.6 s] 'stir it'   ->  'add the oil' (10, 11.4) and 'stir it' (14, 14.9)
    'Keep pressure' [3.1 s] 'on it.'  ->  'Keep pressure on it.': its words have a full stop
"""

from collections.abc import Sequence
from itertools import pairwise

from stepline.records import Sentence, Span, Word, covering_span

Words = list[Word]

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
    """Return the sentences that the words form, in order.

    A sentence ends at a full stop (no abbreviation or decimal point) and at a pause. If the words
    have full stops, a pause before a lower-case word does not count: "keep pressure ... on the
    wound". A sentence without any timed word is left out.

    Args:
        words: in spoken order, each with the space before it.
        pause: seconds of silence that end a sentence.
        longest: seconds. A longer sentence without punctuation is also cut at its longest pause.
    """
    ordered = order_word_times(join_word_parts([word for word in words if word.text.strip()]))
    if not ordered:
        return []
    stops = [ends_sentence(word.text, following.text) for word, following in pairwise(ordered)]
    has_stops = any(stops) or ends_sentence(ordered[-1].text)

    # groups of words, by full stops and pauses
    groups = [[ordered[0]]]
    for (before, word), is_end in zip(pairwise(ordered), stops, strict=True):
        if not is_end and _silence_between(before, word) >= pause:
            # neither a mark nor a capital letter separates them
            continues = before.text.strip()[-1].isalnum() and word.text.strip()[0].islower()
            is_end = not (has_stops and continues)
        if is_end:
            groups.append([])
        groups[-1].append(word)
    parts = [part for group in groups for part in _split_long(group, longest)]
    return [sentence for sentence in map(_make_sentence, parts) if sentence is not None]


def start_and_end(sentence: Sentence) -> tuple[float, float]:
    """Return the (start, end) seconds of a sentence, as a sort key."""
    return sentence.span.start, sentence.span.end


def join_word_parts(words: Sequence[Word]) -> Words:
    """Return the words with the parts joined that Whisper splits: "pull" and "-up.", "10" and "%".

    A part has no space before it and does not begin with a letter or digit. Words of languages
    without spaces are unchanged.
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
    """Return the words with starts that never decrease.

    If a word starts before the previous word does, it gets the same start.
    """
    ordered: list[Word] = []
    start = 0.0
    for word in words:
        if word.span is not None:
            start = max(word.span.start, start)
            end = max(word.span.end, start + MIN_WORD_SECONDS)
            word = word.model_copy(update={"span": Span(start, end)})
        ordered.append(word)
    return ordered


def ends_sentence(text: str, following: str | None = None) -> bool:
    """Return whether a word ends a sentence: "jar." does; "Mr.", "3." before "5" and "e.g." do not.

    Args:
        text: the word with its punctuation.
        following: the next word, None at the end.
    """
    word = text.strip().rstrip(CLOSING_MARKS)
    if not word.endswith(tuple(FULL_STOPS)):
        return False
    if word[-1] != ".":
        return True
    stem = word.rstrip(".").lower().lstrip(OPENING_MARKS)
    # An initial ends nothing, but "I." may.
    is_initial = len(stem) == 1 and stem.isalpha() and stem != "i"
    if stem in ABBREVIATION_WORDS or is_initial:
        return False
    next_word = (following or "").strip()
    # "Wait... and then" is one sentence, and "3." before "5" is a decimal point.
    is_suspended = next_word[:1].islower() and word.endswith("...")
    is_decimal = stem.isdigit() and next_word[:1].isdecimal()
    return not (is_suspended or is_decimal)


def _silence_between(word: Word, following: Word) -> float:
    """Return the seconds of silence between two words, 0 if a time is unknown."""
    if not word.span or not following.span:
        return 0.0
    return following.span.start - word.span.end


def _split_long(words: Words, longest: float) -> list[Words]:
    """Cut words that last longer than `longest` seconds at their longest pause, repeatedly.

    No part has fewer than MIN_PART_WORDS.
    """
    spans = [word.span for word in words if word.span]
    cuts = range(MIN_PART_WORDS, len(words) - MIN_PART_WORDS + 1)
    if not cuts or not spans or spans[-1].end - spans[0].start <= longest:
        return [words]
    cut = max(cuts, key=lambda index: _cut_quality(words, index))
    return _split_long(words[:cut], longest) + _split_long(words[cut:], longest)


def _cut_quality(words: Words, index: int) -> tuple[float, float]:
    """Return how good a cut before words[index] is, as a sort key.

    The key is the seconds of silence there, then minus the distance to the middle in words.
    """
    last_word = words[index - 1]
    silence = _silence_between(last_word, words[index])
    if last_word.text.rstrip().endswith(PAUSE_MARKS):
        silence += COMMA_SECONDS
    # Rounded, so that among similar pauses the one nearest the middle wins.
    return round(silence, 1), -abs(index - len(words) / 2)


def _make_sentence(words: Words) -> Sentence | None:
    """Return the sentence of the words. None if no word has a time."""
    span = covering_span(word.span for word in words)
    if span is None:
        return None
    confidences = _confidences(words)
    # A word carries the space before it, as Whisper writes it. Chinese has none.
    return Sentence(
        text=" ".join("".join(word.text for word in words).split()),
        span=span,
        words=tuple(word.model_copy(update={"text": word.text.strip()}) for word in words),
        confidence=sum(confidences) / len(confidences) if confidences else None,
    )
