"""METEOR's matches between two captions: all possible ones by its four modules, then those that the
search chooses.

A caption is indexed once: its words, and the places of each stem, synonym set and known phrase in
it. The search is a beam from left to right over the reference. The program's oddities decide ties
and are kept. Counts of matched words are whole numbers, cut off after every addition. So a single
word matched by anything but equality adds nothing. The distance of a new match is charged to the
path that does not take it.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from stepline.errors import DatasetError
from stepline.evaluate.meteor.resources import (
    HASH_FACTOR,
    MAX_PHRASE_WORDS,
    WORD_BITS,
    Lexicon,
    Phrases,
    word_number,
)
from stepline.evaluate.meteor.words import stem, words

Positions: TypeAlias = dict[str, list[int]]
Starts: TypeAlias = tuple[tuple[int, int, dict[int, int]], ...]
PhrasePlaces: TypeAlias = dict[int, tuple[int, list[int]]]


@dataclass(frozen=True)
class IndexedWord:
    """A word with its stem, synonym sets, number and function-word flag."""

    text: str
    stem: str
    synsets: frozenset[str]
    number: int
    is_function: bool


@dataclass(frozen=True)
class IndexedCaption:
    """A caption with its indices.

    words, stems: key -> positions, ascending. synsets: of all words. starts: (position, length,
    paraphrases). reached: phrase number -> (length, positions) of the caption's phrases that are
    paraphrases. functions: bit mask of the positions of function words.
    """

    items: tuple[IndexedWord, ...]
    words: Positions
    stems: Positions
    synsets: frozenset[str]
    starts: Starts
    reached: PhrasePlaces
    functions: int

    def __len__(self) -> int:
        return len(self.items)


class CaptionIndexer:
    """Indexes captions, with a cache of words."""

    def __init__(self, lexicon: Lexicon, phrases: Phrases) -> None:
        self._lexicon = lexicon
        self._phrases = phrases
        self._words: dict[str, IndexedWord] = {}

    def read(self, line: str) -> IndexedCaption:
        """Return the indexed words of a caption."""
        texts = words(line, self._lexicon.prefixes)
        items = tuple(self._word(text) for text in texts)
        starts, reached = _known_phrases(items, self._phrases)
        synsets = [item.synsets for item in items]
        functions = 0
        for position, item in enumerate(items):
            if item.is_function:
                functions |= 1 << position
        return IndexedCaption(
            items=items,
            words=_positions(item.text for item in items),
            stems=_positions(item.stem for item in items),
            synsets=frozenset().union(*synsets),
            starts=starts,
            reached=reached,
            functions=functions,
        )

    def _word(self, text: str) -> IndexedWord:
        word = self._words.get(text)
        if word is None:
            word = IndexedWord(
                text=text,
                stem=stem(text),
                synsets=self._lexicon.synonym_sets(text),
                number=word_number(text),
                is_function=text in self._lexicon.function_words,
            )
            self._words[text] = word
        return word


def _positions(keys: Iterable[str]) -> Positions:
    positions: Positions = defaultdict(list)
    for position, key in enumerate(keys):
        positions[key].append(position)
    return positions


def _known_phrases(items: tuple[IndexedWord, ...], table: Phrases) -> tuple[Starts, PhrasePlaces]:
    """Find the phrases of up to MAX_PHRASE_WORDS words that the table knows, by place and then by
    length."""
    starts: list[tuple[int, int, dict[int, int]]] = []
    reached: PhrasePlaces = {}
    values = [item.number for item in items]
    # (place, length) and number of every phrase
    spans = []
    numbers = []
    for position in range(len(values)):
        number = 0
        phrase_values = values[position : position + MAX_PHRASE_WORDS]
        for length, value in enumerate(phrase_values, start=1):
            number = (number * HASH_FACTOR + value) & WORD_BITS
            spans.append((position, length))
            numbers.append(number)
    for index in table.plausible(numbers):
        position, length = spans[index]
        number = numbers[index]
        paraphrases, is_target = table.entry(number)
        if paraphrases:
            starts.append((position, length, paraphrases))
        if is_target:
            reached.setdefault(number, (length, []))[1].append(position)
    return tuple(starts), reached


# ---------------------------------------------------------------- possible matches


EXACT_MODULE, STEM_MODULE, SYNONYM_MODULE, PARAPHRASE_MODULE = range(4)
# Limits of one pair: words of one caption times words of the other, and possible matches (a
# repeated word gives the product of its counts). The search takes about a second at the limits,
# where the official program takes minutes.
MAX_WORD_PAIRS = 4_000_000
MAX_CANDIDATES = 20_000


class WordMatch(NamedTuple):
    """Words [start, start + length) of the reference against [other, other + other_length) of the
    hypothesis."""

    module: int
    start: int
    length: int
    other: int
    other_length: int


Candidates: TypeAlias = list[list[WordMatch]]  # by the reference word they start at


def candidates(hypothesis: IndexedCaption, reference: IndexedCaption) -> Candidates:
    """Return the possible matches by the reference word they start at, in the order in which the
    search tries them.

    Raises DatasetError for captions too long, or that repeat each other too often.
    """
    if len(hypothesis) * len(reference) > MAX_WORD_PAIRS:
        raise _too_much(hypothesis, reference)
    matches: Candidates = [[] for _ in reference.items]
    for module in (_exact, _stem_and_synonym_matches, _paraphrases):
        module(hypothesis, reference, matches)
        if sum(map(len, matches)) > MAX_CANDIDATES:
            raise _too_much(hypothesis, reference)
        if module is _exact and hypothesis.items == reference.items:
            # equal captions ask no other module
            break
    return matches


def _too_much(hypothesis: IndexedCaption, reference: IndexedCaption) -> DatasetError:
    captions = f"captions of {len(hypothesis)} and {len(reference)} words"
    limit = f"at most {MAX_CANDIDATES} possible matches"
    return DatasetError(
        f"{captions} are too long, or too much alike, for METEOR ({limit}); shorten them"
    )


def _exact(hypothesis: IndexedCaption, reference: IndexedCaption, matches: Candidates) -> None:
    """Add matches of equal words."""
    for start, word in enumerate(reference.items):
        for other in hypothesis.words.get(word.text, ()):
            matches[start].append(WordMatch(EXACT_MODULE, start, 1, other, 1))


def _stem_and_synonym_matches(
    hypothesis: IndexedCaption, reference: IndexedCaption, matches: Candidates
) -> None:
    """Add matches of words with the same stem, then with a common synonym set."""
    for text, starts in reference.words.items():
        word = reference.items[starts[0]]
        # the places of other words with its stem
        stemmed = []
        for other in hypothesis.stems.get(word.stem, ()):
            if hypothesis.items[other].text != text:
                stemmed.append(other)
        # the places of other words that share a synonym set with it
        related = []
        if not word.synsets.isdisjoint(hypothesis.synsets):
            for other, item in enumerate(hypothesis.items):
                if item.text != text and not word.synsets.isdisjoint(item.synsets):
                    related.append(other)
        for start in starts:
            for other in stemmed:
                matches[start].append(WordMatch(STEM_MODULE, start, 1, other, 1))
            for other in related:
                matches[start].append(WordMatch(SYNONYM_MODULE, start, 1, other, 1))


def _paraphrases(
    hypothesis: IndexedCaption, reference: IndexedCaption, matches: Candidates
) -> None:
    """Add matches of paraphrases, looked up from the reference and then from the hypothesis.

    A pair that the table lists both ways is added twice, as the program does. The search and the
    score are the same, but its words no longer count as matched in one way only.
    """
    for start, length, paraphrases in reference.starts:
        for number in _paraphrases_in(paraphrases, hypothesis):
            other_length, others = hypothesis.reached[number]
            for other in others:
                match = WordMatch(PARAPHRASE_MODULE, start, length, other, other_length)
                matches[start].append(match)
    for other, other_length, paraphrases in hypothesis.starts:
        for number in _paraphrases_in(paraphrases, reference):
            length, starts = reference.reached[number]
            for start in starts:
                match = WordMatch(PARAPHRASE_MODULE, start, length, other, other_length)
                matches[start].append(match)


def _paraphrases_in(paraphrases: dict[int, int], caption: IndexedCaption) -> list[int]:
    """Return the paraphrases that a caption holds, in the table's order."""
    shared = paraphrases.keys() & caption.reached.keys()
    return list(shared) if len(shared) < 2 else sorted(shared, key=paraphrases.__getitem__)


# ---------------------------------------------------------------- the search


BEAM_PATHS = 40  # after each word, METEOR 1.5's default
_NO_MATCH_END = -1  # no match ends just before
# Paths are ranked by more matched words, then fewer chunks, then less distance: one number,
# smallest first.
_PER_WORD = 1 << 80
_PER_CHUNK = 1 << 40

Chain: TypeAlias = tuple[WordMatch, "Chain | None"]  # matches, last first
# rank, next reference word, where the last match ended in the hypothesis, used words of either side
# as bits, matches
_Path: TypeAlias = tuple[int, int, int, int, int, "Chain | None"]
# bits in the hypothesis and the reference, gain in rank, distance, match
_Option: TypeAlias = tuple[int, int, int, int, WordMatch]
_rank = itemgetter(0)


def align(candidates: Candidates, hypothesis_length: int) -> list[WordMatch]:
    """Return the chosen matches by reference place."""
    fixed = _unambiguous_matches(candidates, hypothesis_length)
    if sum(map(len, candidates)) == len(fixed):
        return list(fixed.values())
    *_, chain = _search(candidates, fixed)
    matches = dict(fixed)
    while chain is not None:
        match, chain = chain
        matches[match.start] = match
    return [matches[start] for start in sorted(matches)]


def _unambiguous_matches(candidates: Candidates, hypothesis_length: int) -> dict[int, WordMatch]:
    """Return, by start, the matches without a competing match for any of their words."""
    # how many matches hold each word
    reference_cover = [0] * len(candidates)
    hypothesis_cover = [0] * hypothesis_length
    for options in candidates:
        for _, start, length, other, other_length in options:
            for position in range(start, start + length):
                reference_cover[position] += 1
            for position in range(other, other + other_length):
                hypothesis_cover[position] += 1
    fixed = {}
    for start, options in enumerate(candidates):
        if len(options) == 1:
            match = options[0]
            end = start + match.length
            other_end = match.other + match.other_length
            covers = reference_cover[start:end]
            covers += hypothesis_cover[match.other : other_end]
            if max(covers) == 1:
                fixed[start] = match
    return fixed


def _search(candidates: Candidates, fixed: dict[int, WordMatch]) -> _Path:
    """Return the best path over all reference words."""
    # one path, whose used words are those of the certain matches
    used_hypothesis = 0
    used_reference = 0
    certain = {start: _option(match) for start, match in fixed.items()}
    for hypothesis, reference, *_ in certain.values():
        used_hypothesis |= hypothesis
        used_reference |= reference
    paths: list[_Path] = [(0, 0, _NO_MATCH_END, used_hypothesis, used_reference, None)]
    # word by word
    for position, matches in enumerate(candidates):
        options = []
        if position not in fixed:
            options = [_option(match) for match in matches]
        paths = _extend_paths(paths, position, options, certain) or paths[:1]
        if len(paths) > 1:
            paths.sort(key=_rank)
        del paths[BEAM_PATHS:]
    # a chunk that is still open counts too
    closed: list[_Path] = []
    for rank, next_word, last_end, used_hypothesis, used_reference, chain in paths:
        if last_end != _NO_MATCH_END:
            rank += _PER_CHUNK
        closed.append((rank, next_word, last_end, used_hypothesis, used_reference, chain))
    return min(closed, key=_rank)


def _option(match: WordMatch) -> _Option:
    module, start, length, other, other_length = match
    word_count = length + other_length
    if module != EXACT_MODULE:
        # any module but the exact one weighs one half, cut off
        word_count = length // 2 + other_length // 2
    hypothesis_mask = (1 << other_length) - 1
    reference_mask = (1 << length) - 1
    hypothesis = hypothesis_mask << other
    reference = reference_mask << start
    return hypothesis, reference, word_count * _PER_WORD, abs(start - other), match


def _extend_paths(
    paths: list[_Path], position: int, options: list[_Option], certain: dict[int, _Option]
) -> list[_Path]:
    """Return the beam after one more reference word.

    A path branches for every possible match, and pays the distances of the matches that it skips.
    """
    new_paths: list[_Path] = []
    for path in paths:
        rank, following, last_end, used_hypothesis, used_reference, chain = path
        if used_reference >> position & 1:
            if position < following:
                new_paths.append(path)
            elif following in certain:
                new_paths.append(_add_unambiguous_match(path, certain[following]))
            continue
        charged = 0
        for hypothesis, reference, gain, distance, match in options:
            if used_hypothesis & hypothesis or used_reference & reference:
                continue
            # the path with this match
            _, start, length, other, other_length = match
            new_rank = rank + charged - gain
            if last_end not in (_NO_MATCH_END, other):
                new_rank += _PER_CHUNK
            new_path = (
                new_rank,
                start + length,
                other + other_length,
                used_hypothesis | hypothesis,
                used_reference | reference,
                (match, chain),
            )
            new_paths.append(new_path)
            charged += distance
        # the path without a match here
        rank += charged
        if last_end != _NO_MATCH_END:
            rank += _PER_CHUNK
        next_word = following + 1
        new_paths.append((rank, next_word, _NO_MATCH_END, used_hypothesis, used_reference, chain))
    return new_paths


def _add_unambiguous_match(path: _Path, option: _Option) -> _Path:
    """Return the path extended by a match without competitors, whose words are already marked as
    used.
    """
    rank, _, last_end, used_hypothesis, used_reference, chain = path
    _, _, gain, distance, (_, start, length, other, other_length) = option
    if last_end not in (_NO_MATCH_END, other):
        rank += _PER_CHUNK
    return (
        rank + distance - gain,
        start + length,
        other + other_length,
        used_hypothesis,
        used_reference,
        chain,
    )
