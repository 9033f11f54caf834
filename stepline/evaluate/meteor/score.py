"""METEOR 1.5 of captions: weighted precision and recall of an alignment, less a penalty for
scattered matches.

A caption is indexed once: its words, and the positions of each word, stem and known phrase. The
beam goes from left to right over the reference. The program's oddities decide ties and are kept.
Counts of matched words are whole numbers, truncated after every addition. So a single word matched
by anything but equality adds nothing. The distance of a new match is charged to the path that does
not take it.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from stepline.errors import DatasetError
from stepline.evaluate.meteor.tables import (
    HASH_FACTOR,
    HASH_MASK,
    MAX_PHRASE_WORDS,
    Lexicon,
    ParaphraseTable,
    load_lexicon,
    load_phrases,
)
from stepline.evaluate.meteor.words import split_words, stem
from stepline.files.digests import hash_text

Positions = dict[str, list[int]]
PhraseStarts = list[tuple[int, int, dict[int, int]]]
PhrasePositions = dict[int, tuple[int, list[int]]]


@dataclass(frozen=True)
class IndexedWord:
    """A word with the properties by which METEOR matches words.

    Attributes:
        text: the word in lower case.
        stem: Porter2 stem of the word.
        synsets: ids of the WordNet synonym sets that hold the word.
        hash: 64-bit hash of the word. The hash of a phrase is computed from those of its words.
        is_function: whether it is a function word, which weighs less than a content word.
    """

    text: str
    stem: str
    synsets: frozenset[str]
    hash: int
    is_function: bool


@dataclass(frozen=True)
class IndexedCaption:
    """The words of a caption, with lookup tables for matching.

    Attributes:
        items: the words in order.
        words: word -> its positions, ascending.
        stems: stem -> positions of the words with that stem, ascending.
        synsets: ids of the synonym sets of all words.
        paraphrase_sources: phrases that have paraphrases: (position, number of words, paraphrase hash ->
            rank).
        paraphrase_targets: phrases that are paraphrases of other phrases: hash -> (number of words,
            positions).
        function_word_mask: bit mask of the positions that hold function words.
    """

    items: tuple[IndexedWord, ...]
    words: Positions
    stems: Positions
    synsets: frozenset[str]
    paraphrase_sources: PhraseStarts
    paraphrase_targets: PhrasePositions
    function_word_mask: int


class CaptionIndexer:
    """Prepares captions for matching. It caches the properties of words."""

    def __init__(self, lexicon: Lexicon, phrases: ParaphraseTable) -> None:
        self._lexicon = lexicon
        self._phrases = phrases
        self._words: dict[str, IndexedWord] = {}

    def index(self, caption: str) -> IndexedCaption:
        """Return the indexed words of a caption: each word with its stem, synonyms and phrases."""
        texts = split_words(caption, self._lexicon.prefixes)
        items = tuple(map(self._index_word, texts))
        sources, targets = _find_phrases(items, self._phrases)
        return IndexedCaption(
            items=items,
            words=_positions_by_key(texts),
            stems=_positions_by_key(item.stem for item in items),
            synsets=frozenset().union(*(item.synsets for item in items)),
            paraphrase_sources=sources,
            paraphrase_targets=targets,
            function_word_mask=sum(
                item.is_function << position for position, item in enumerate(items)
            ),
        )

    def _index_word(self, text: str) -> IndexedWord:
        word = self._words.get(text)
        if word is None:
            word = IndexedWord(
                text=text,
                stem=stem(text),
                synsets=self._lexicon.synonym_sets(text),
                hash=hash_text(text),
                is_function=text in self._lexicon.function_words,
            )
            self._words[text] = word
        return word


def _positions_by_key(keys: Iterable[str]) -> Positions:
    positions: Positions = defaultdict(list)
    for position, key in enumerate(keys):
        positions[key].append(position)
    return positions


def _find_phrases(
    items: tuple[IndexedWord, ...], table: ParaphraseTable
) -> tuple[PhraseStarts, PhrasePositions]:
    """Return the `sources` and `targets` of an IndexedCaption, sorted by position and then by
    length.
    """
    spans = []
    hashes = []
    for position in range(len(items)):
        phrase = 0
        for length, item in enumerate(items[position : position + MAX_PHRASE_WORDS], start=1):
            phrase = (phrase * HASH_FACTOR + item.hash) & HASH_MASK
            spans.append((position, length))
            hashes.append(phrase)
    sources: PhraseStarts = []
    targets: PhrasePositions = {}
    for index in table.filter_plausible(hashes):
        position, length = spans[index]
        paraphrases, is_target = table.find_paraphrases(hashes[index])
        if paraphrases:
            sources.append((position, length, paraphrases))
        if is_target:
            targets.setdefault(hashes[index], (length, []))[1].append(position)
    return sources, targets


# ---------------------------------------------------------------- possible matches


EXACT_MODULE, STEM_MODULE, SYNONYM_MODULE, PARAPHRASE_MODULE = range(4)
# Limits of one pair: words of one caption times words of the other, and possible matches (a
# repeated word gives the product of its counts). The search takes about a second at the limits,
# where the official program takes minutes.
MAX_WORD_PAIRS = 4_000_000
MAX_CANDIDATES = 20_000


class WordMatch(NamedTuple):
    """A match of adjacent words of the reference with adjacent words of the hypothesis.

    Attributes:
        module: number of the METEOR module that found the match, such as EXACT_MODULE.
        start: position of the first matched word in the reference.
        length: number of matched words in the reference.
        other: position of the first matched word in the hypothesis.
        other_length: number of matched words in the hypothesis.
    """

    module: int
    start: int
    length: int
    other: int
    other_length: int


Candidates = list[list[WordMatch]]  # by the reference word they start at


def find_candidates(hypothesis: IndexedCaption, reference: IndexedCaption) -> Candidates:
    """Return the possible matches of two captions, one list per word of the reference.

    A match is in the list of the reference word at which it starts. Within a list the matches are
    in the order in which the search tries them.

    Raises DatasetError for captions that are too long, or that share repeated words too often.
    """
    matches: Candidates = [[] for _ in reference.items]
    word_counts = (len(hypothesis.items), len(reference.items))
    is_too_much = word_counts[0] * word_counts[1] > MAX_WORD_PAIRS
    for module in (_add_exact_matches, _add_stem_and_synonym_matches, _add_paraphrase_matches):
        if not is_too_much:
            module(hypothesis, reference, matches)
            is_too_much = sum(map(len, matches)) > MAX_CANDIDATES
        # Equal captions need no other module.
        if hypothesis.items == reference.items:
            break
    if is_too_much:
        raise DatasetError(
            f"captions of {word_counts[0]} and {word_counts[1]} words are too long, or too much "
            f"alike, for METEOR (at most {MAX_CANDIDATES} possible matches); shorten them"
        )
    return matches


def _add_exact_matches(
    hypothesis: IndexedCaption, reference: IndexedCaption, matches: Candidates
) -> None:
    for start, word in enumerate(reference.items):
        for other in hypothesis.words.get(word.text, ()):
            matches[start].append(WordMatch(EXACT_MODULE, start, 1, other, 1))


def _add_stem_and_synonym_matches(
    hypothesis: IndexedCaption, reference: IndexedCaption, matches: Candidates
) -> None:
    """Add the matches of words with the same stem, then those with a common synonym set."""
    for text, starts in reference.words.items():
        word = reference.items[starts[0]]
        stem_positions = [
            other
            for other in hypothesis.stems.get(word.stem, ())
            if hypothesis.items[other].text != text
        ]
        synonym_positions = []
        if not word.synsets.isdisjoint(hypothesis.synsets):
            for other, item in enumerate(hypothesis.items):
                if item.text != text and not word.synsets.isdisjoint(item.synsets):
                    synonym_positions.append(other)
        for start in starts:
            for other in stem_positions:
                matches[start].append(WordMatch(STEM_MODULE, start, 1, other, 1))
            for other in synonym_positions:
                matches[start].append(WordMatch(SYNONYM_MODULE, start, 1, other, 1))


def _add_paraphrase_matches(
    hypothesis: IndexedCaption, reference: IndexedCaption, matches: Candidates
) -> None:
    """Add the matches of paraphrases, looked up from the reference and then from the hypothesis.

    A pair that the table lists in both directions is added twice, as in the official program.
    Search and score stay the same, but the words of the pair no longer count as unambiguous.
    """
    for start, length, other, other_length in _paraphrase_pairs(reference, hypothesis):
        matches[start].append(WordMatch(PARAPHRASE_MODULE, start, length, other, other_length))
    for other, other_length, start, length in _paraphrase_pairs(hypothesis, reference):
        matches[start].append(WordMatch(PARAPHRASE_MODULE, start, length, other, other_length))


def _paraphrase_pairs(
    source: IndexedCaption, target: IndexedCaption
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (position, length) of a phrase in `source` and of its paraphrase in `target`.

    Paraphrases come in the order of the paraphrase table.
    """
    for position, length, paraphrases in source.paraphrase_sources:
        shared = paraphrases.keys() & target.paraphrase_targets.keys()
        for paraphrase in sorted(shared, key=paraphrases.__getitem__):
            other_length, others = target.paraphrase_targets[paraphrase]
            for other in others:
                yield position, length, other, other_length


# ---------------------------------------------------------------- the search


BEAM_PATHS = 40  # after each word, METEOR 1.5's default
_NO_MATCH_END = -1  # no match ends just before
# Paths are ranked by more matched words, then fewer chunks, then less distance: one number,
# smallest first.
_PER_WORD = 1 << 80
_PER_CHUNK = 1 << 40

Chain = tuple[WordMatch, "Chain | None"]  # matches, last first
# rank, next reference word, where the last match ended in the hypothesis, used words of hypothesis
# and reference as bits, matches
_Path = tuple[int, int, int, int, int, "Chain | None"]
# bits in the hypothesis and the reference, gain in rank, distance, match
_Option = tuple[int, int, int, int, WordMatch]
_rank = itemgetter(0)


def align(candidates: Candidates, hypothesis_length: int) -> list[WordMatch]:
    """Return the matches of the best alignment of two captions: most matched words, then fewest
    chunks, then shortest distances. They are in the order of the reference.

    Args:
        candidates: possible matches, one list per word of the reference, from `find_candidates`.
        hypothesis_length: number of words in the hypothesis (the predicted caption).
    """
    fixed = _unambiguous_matches(candidates, hypothesis_length)
    if sum(map(len, candidates)) == len(fixed):
        return list(fixed.values())
    *_, chain = _beam_search(candidates, fixed)
    matches = dict(fixed)
    while chain is not None:
        match, chain = chain
        matches[match.start] = match
    return [matches[start] for start in sorted(matches)]


def _unambiguous_matches(candidates: Candidates, hypothesis_length: int) -> dict[int, WordMatch]:
    """Return first reference position -> match, for matches that share no word with others."""
    # Number of matches that cover each word.
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


def _beam_search(candidates: Candidates, fixed: dict[int, WordMatch]) -> _Path:
    """Return the best path over all words of the reference, found by beam search.

    Args:
        candidates: possible matches, one list per word of the reference.
        fixed: first reference position -> match that is in every path.
    """
    # One path, whose used words are those of the fixed matches.
    used_hypothesis = 0
    used_reference = 0
    fixed_options = {start: _make_option(match) for start, match in fixed.items()}
    for hypothesis, reference, *_ in fixed_options.values():
        used_hypothesis |= hypothesis
        used_reference |= reference
    paths: list[_Path] = [(0, 0, _NO_MATCH_END, used_hypothesis, used_reference, None)]
    for position, matches in enumerate(candidates):
        options = [_make_option(match) for match in matches] if position not in fixed else []
        paths = _extend_paths(paths, position, options, fixed_options) or paths[:1]
        if len(paths) > 1:
            paths.sort(key=_rank)
        del paths[BEAM_PATHS:]
    # A chunk that is still open counts too.
    return min(paths, key=lambda path: path[0] + (path[2] != _NO_MATCH_END) * _PER_CHUNK)


def _make_option(match: WordMatch) -> _Option:
    module, start, length, other, other_length = match
    word_count = length + other_length
    if module != EXACT_MODULE:
        # Any module but the exact one weighs one half, truncated.
        word_count = length // 2 + other_length // 2
    hypothesis = (1 << other_length) - 1 << other
    reference = (1 << length) - 1 << start
    return hypothesis, reference, word_count * _PER_WORD, abs(start - other), match


def _extend_paths(
    paths: list[_Path], position: int, options: list[_Option], fixed_options: dict[int, _Option]
) -> list[_Path]:
    """Return the paths of the beam, extended by one more word of the reference.

    A path branches for every possible match, and pays the distances of the matches that it skips.
    """
    new_paths: list[_Path] = []
    for path in paths:
        rank, next_word, last_end, used_hypothesis, used_reference, chain = path
        if used_reference >> position & 1:
            if position < next_word:
                new_paths.append(path)
            elif next_word in fixed_options:
                new_paths.append(_add_unambiguous_match(path, fixed_options[next_word]))
            continue
        charged = 0
        for hypothesis, reference, gain, distance, match in options:
            if used_hypothesis & hypothesis or used_reference & reference:
                continue
            # The path with this match.
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
        # The path without a match here.
        rank += charged
        if last_end != _NO_MATCH_END:
            rank += _PER_CHUNK
        new_paths.append(
            (rank, next_word + 1, _NO_MATCH_END, used_hypothesis, used_reference, chain)
        )
    return new_paths


def _add_unambiguous_match(path: _Path, option: _Option) -> _Path:
    """Return the path of the search extended by an unambiguous match: one that shares no word with
    other possible matches.

    The words of such a match are marked as used from the start of the search.

    Args:
        path: partial alignment, as `_Path` describes it.
        option: the match with its gain in rank.
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


# METEOR 1.5's parameters for English (Denkowski and Lavie 2014, table 3, and its `-l en` defaults)
RECALL_ALPHA = 0.85  # alpha: weight of recall against precision
PENALTY_EXPONENT = 0.20  # beta
MAX_PENALTY = 0.60  # gamma
CONTENT_WEIGHT = 0.75  # delta: weight of content words against function words
MODULE_WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # exact, stem, synonym, paraphrase

MODULE_COUNT = len(MODULE_WEIGHTS)

# Of a caption's words, or of a sum of captions: all, function words, matched words by module,
# matched function words by module.
Counts = tuple[int, ...]
NO_WORDS: Counts = (0,) * (2 + 2 * MODULE_COUNT)


class MatchStatistics(NamedTuple):
    """Match counts of a caption pair, or of several pairs in sum, from which METEOR is computed.

    Each count tuple holds the number of words, the number of function words, the matched words per
    module, and the matched function words per module.

    Attributes:
        hypothesis: counts of the predicted caption.
        reference: counts of the reference caption.
        chunks: number of runs of matches that are adjacent in the two captions.
    """

    hypothesis: Counts
    reference: Counts
    chunks: int

    def score(self) -> float:
        """Return METEOR in [0, 1]. It is 0 without any match."""
        precision = _matched_fraction(self.hypothesis)
        recall = _matched_fraction(self.reference)
        if not precision or not recall:
            return 0.0
        # The harmonic mean, weighted by alpha.
        mean = 1.0 / ((1.0 - RECALL_ALPHA) / precision + RECALL_ALPHA / recall)
        fragmentation = 0.0
        # One chunk of all words is not fragmented at all.
        if not self.is_full_match():
            matched_sum = _matched_words(self.hypothesis) + _matched_words(self.reference)
            fragmentation = self.chunks / (matched_sum / 2.0)
        return max(mean * (1.0 - MAX_PENALTY * math.pow(fragmentation, PENALTY_EXPONENT)), 0.0)

    def is_full_match(self) -> bool:
        """Return whether every word of the two captions matched, in one chunk."""
        sides = (self.hypothesis, self.reference)
        return self.chunks == 1 and all(_matched_words(side) == side[0] for side in sides)


def _matched_words(counts: Counts) -> int:
    return sum(counts[2 : 2 + MODULE_COUNT])


def _matched_fraction(counts: Counts) -> float:
    """Return the weighted fraction of a caption's words that matched.

    The weights depend on the module of the match and on whether a word is a function word.
    """
    words, functions, *by_module = counts
    weighted = 0.0
    columns = zip(MODULE_WEIGHTS, by_module[:MODULE_COUNT], by_module[MODULE_COUNT:], strict=True)
    for weight, all_words, function_words in columns:
        weighted += weight * _weighted_length(all_words, function_words)
    return weighted / _weighted_length(words, functions) if weighted else 0.0


def _weighted_length(words: int, functions: int) -> float:
    return CONTENT_WEIGHT * (words - functions) + (1.0 - CONTENT_WEIGHT) * functions


@dataclass(frozen=True)
class MeteorScores:
    """METEOR of several caption pairs, in [0, 1].

    Attributes:
        segments: METEOR of each pair.
        aggregate: METEOR of the summed match counts. It differs from the mean of the segments.
    """

    segments: tuple[float, ...]
    aggregate: float


def count_matches(
    hypothesis: IndexedCaption, reference: IndexedCaption, matches: Sequence[WordMatch]
) -> MatchStatistics:
    """Return the match counts of two aligned captions.

    Args:
        hypothesis: the predicted caption.
        reference: the reference caption.
        matches: matches of the alignment, in the order of the reference words.
    """
    reference_spans = [(module, start, length) for module, start, length, _, _ in matches]
    hypothesis_spans = [(module, other, length) for module, _, _, other, length in matches]
    chunks = 0
    expected = (-1, -1)  # where the current chunk would continue
    for _, start, length, other, other_length in matches:
        # A match that is not adjacent to the last one opens a chunk.
        chunks += (start, other) != expected
        expected = (start + length, other + other_length)
    return MatchStatistics(
        _count_words(hypothesis, hypothesis_spans), _count_words(reference, reference_spans), chunks
    )


def _count_words(caption: IndexedCaption, match_spans: Iterable[tuple[int, int, int]]) -> Counts:
    """Return the word and match counts of a caption.

    match_spans: (module, first position, number of words) of each match in this caption.
    """
    matched = [0] * MODULE_COUNT
    functions = [0] * MODULE_COUNT
    for module, start, length in match_spans:
        matched[module] += length
        functions[module] += (caption.function_word_mask >> start & (1 << length) - 1).bit_count()
    return (len(caption.items), caption.function_word_mask.bit_count(), *matched, *functions)


def add_statistics(parts: Sequence[MatchStatistics]) -> MatchStatistics:
    """Return the sum of the match counts of caption pairs, from which their common METEOR is
    computed.

    A pair that matched fully in one chunk adds no chunk, as in the official program.
    """
    sides = [(NO_WORDS, NO_WORDS), *((part.hypothesis, part.reference) for part in parts)]
    hypothesis, reference = (
        tuple(map(sum, zip(*counts, strict=True))) for counts in zip(*sides, strict=True)
    )
    chunks = sum(part.chunks for part in parts if not part.is_full_match())
    return MatchStatistics(hypothesis, reference, chunks)


_MAX_CACHED_CAPTIONS = 1 << 11  # the oldest is forgotten first
_MAX_CACHED_PAIRS = 1 << 14


class Meteor:
    """Computes METEOR 1.5 of tokenized captions, and caches captions and pairs.

    The captions must be output of `ptb.Tokenizer`. Raises ModelError without METEOR's tables.
    """

    def __init__(self) -> None:
        indexer = CaptionIndexer(load_lexicon(), load_phrases())
        self._index = lru_cache(maxsize=_MAX_CACHED_CAPTIONS)(indexer.index)
        self._score_pair_cached = lru_cache(maxsize=_MAX_CACHED_PAIRS)(self._score_pair)

    def segment(self, references: Sequence[str], hypothesis: str) -> float:
        """Return METEOR in [0, 1] of a predicted caption against its best-fitting reference."""
        return self._best(references, hypothesis)[0]

    def compare(self, pairs: Iterable[tuple[Sequence[str], str]]) -> MeteorScores:
        """Return METEOR of each caption pair and of all pairs together.

        pairs: (reference captions, predicted caption). An empty caption scores 0.

        Raises DatasetError for a pair whose captions repeat their words too often to be aligned.
        """
        best = [self._best(references, hypothesis) for references, hypothesis in pairs]
        aggregate = add_statistics([part for _, part in best]).score()
        return MeteorScores(tuple(score for score, _ in best), aggregate)

    def _best(self, references: Sequence[str], hypothesis: str) -> tuple[float, MatchStatistics]:
        pairs = [self._score_pair_cached(reference, hypothesis) for reference in references]
        return max(pairs, key=itemgetter(0))  # the first of equals, as the program does

    def _score_pair(self, reference: str, hypothesis: str) -> tuple[float, MatchStatistics]:
        hypothesis_words = self._index(hypothesis)
        reference_words = self._index(reference)
        candidates = find_candidates(hypothesis_words, reference_words)
        matches = align(candidates, len(hypothesis_words.items))
        counts = count_matches(hypothesis_words, reference_words, matches)
        return counts.score(), counts
