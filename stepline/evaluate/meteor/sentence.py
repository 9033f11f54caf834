"""One caption made ready for METEOR: its words, and where each stem, synonym set and known phrase stands in it."""

from collections.abc import Iterable
from dataclasses import dataclass

from stepline.evaluate.meteor.lexicon import Lexicon
from stepline.evaluate.meteor.normalise import words
from stepline.evaluate.meteor.phrases import LONGEST, Phrases, longer, word_number
from stepline.evaluate.meteor.stem import stem

Places = dict[str, list[int]]


@dataclass(frozen=True)
class Word:
    """What METEOR knows of one word."""

    text: str
    stem: str
    synsets: frozenset[str]
    number: int
    is_function: bool


@dataclass(frozen=True)
class Sentence:
    """A caption with its indices.

    words, stems, synsets: what -> places, ascending. starts: (place, length, paraphrases of that phrase).
    reached: phrase number -> (length, places) of phrases here that are a paraphrase of something.
    functions: places of function words, one bit each.
    """

    items: tuple[Word, ...]
    words: Places
    stems: Places
    synsets: Places
    starts: tuple[tuple[int, int, dict[int, int]], ...]
    reached: dict[int, tuple[int, list[int]]]
    functions: int

    def __len__(self) -> int:
        return len(self.items)


class Reader:
    """Makes Sentences; remembers every word that it met."""

    def __init__(self, lexicon: Lexicon, phrases: Phrases) -> None:
        self._lexicon, self._phrases = lexicon, phrases
        self._words: dict[str, Word] = {}

    def read(self, line: str) -> Sentence:
        """Return a caption's words with their indices."""
        items = tuple(self._word(text) for text in words(line, self._lexicon.prefixes))
        starts, reached = self._known_phrases(items)
        return Sentence(
            items,
            _places((item.text,) for item in items),
            _places((item.stem,) for item in items),
            _places(item.synsets for item in items),
            starts,
            reached,
            sum(1 << place for place, item in enumerate(items) if item.is_function),
        )

    def _word(self, text: str) -> Word:
        word = self._words.get(text)
        if word is None:
            synsets, is_function = self._lexicon.synonym_sets(text), text in self._lexicon.function_words
            word = self._words[text] = Word(text, stem(text), synsets, word_number(text), is_function)
        return word

    def _known_phrases(
        self, items: tuple[Word, ...]
    ) -> tuple[tuple[tuple[int, int, dict[int, int]], ...], dict[int, tuple[int, list[int]]]]:
        """Find the phrases of up to LONGEST words that the table knows, from either side."""
        spans, numbers = _all_phrases(items)
        if not numbers:
            return (), {}
        having, reached = self._phrases.having(numbers), self._phrases.reached(numbers)
        starts = tuple(
            (place, length, self._phrases.of(number))
            for (place, length), number, known in zip(spans, numbers, having, strict=True)
            if known
        )
        ends: dict[int, tuple[int, list[int]]] = {}
        for (place, length), number, known in zip(spans, numbers, reached, strict=True):
            if known:
                ends.setdefault(number, (length, []))[1].append(place)
        return starts, ends


def _all_phrases(items: tuple[Word, ...]) -> tuple[list[tuple[int, int]], list[int]]:
    """Return (place, length) and number of every phrase, by place and then by length."""
    spans, numbers = [], []
    for place in range(len(items)):
        number = 0
        for length, item in enumerate(items[place : place + LONGEST], start=1):
            number = longer(number, item.number)
            spans.append((place, length))
            numbers.append(number)
    return spans, numbers


def _places(keys_by_place: Iterable[Iterable[str]]) -> Places:
    places: Places = {}
    for place, keys in enumerate(keys_by_place):
        for key in keys:
            places.setdefault(key, []).append(place)
    return places
