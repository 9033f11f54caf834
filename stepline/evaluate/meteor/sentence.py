"""One caption made ready for METEOR: its words, and where each stem, synonym set and known phrase stands in it."""

from collections.abc import Iterable
from dataclasses import dataclass

from stepline.evaluate.meteor.lexicon import Lexicon
from stepline.evaluate.meteor.normalise import words
from stepline.evaluate.meteor.phrases import LONGEST, MIX, WORD_BITS, Phrases, word_number
from stepline.evaluate.meteor.stem import stem

Places = dict[str, list[int]]
Starts = tuple[tuple[int, int, dict[int, int]], ...]
Reached = dict[int, tuple[int, list[int]]]


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

    words, stems: what -> places, ascending. synsets: those of all words. starts: (place, length, paraphrases).
    reached: phrase number -> (length, places) of phrases here that are a paraphrase of something.
    functions: places of function words, one bit each.
    """

    items: tuple[Word, ...]
    words: Places
    stems: Places
    synsets: frozenset[str]
    starts: Starts
    reached: Reached
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
        starts, reached = _known_phrases(items, self._phrases)
        return Sentence(
            items,
            _places(item.text for item in items),
            _places(item.stem for item in items),
            frozenset().union(*(item.synsets for item in items)),
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


def _places(keys: Iterable[str]) -> Places:
    places: Places = {}
    for place, key in enumerate(keys):
        if key in places:
            places[key].append(place)
        else:
            places[key] = [place]
    return places


def _known_phrases(items: tuple[Word, ...], table: Phrases) -> tuple[Starts, Reached]:
    """Find the phrases of up to LONGEST words that the table knows, by place and then by length."""
    starts: list[tuple[int, int, dict[int, int]]] = []
    reached: Reached = {}
    spans, numbers = _all_phrases(items)
    for index in table.plausible(numbers):
        (place, length), number = spans[index], numbers[index]
        paraphrases, is_target = table.entry(number)
        if paraphrases:
            starts.append((place, length, paraphrases))
        if is_target:
            reached.setdefault(number, (length, []))[1].append(place)
    return tuple(starts), reached


def _all_phrases(items: tuple[Word, ...]) -> tuple[list[tuple[int, int]], list[int]]:
    """Return (place, length) and number of every phrase."""
    values = [item.number for item in items]
    spans, numbers = [], []
    for place in range(len(values)):
        number = length = 0
        for value in values[place : place + LONGEST]:
            number, length = (number * MIX + value) & WORD_BITS, length + 1
            spans.append((place, length))
            numbers.append(number)
    return spans, numbers
