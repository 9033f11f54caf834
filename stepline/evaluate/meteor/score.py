"""METEOR 1.5 of captions: weighted precision and recall of an alignment, less a penalty for
scattered matches."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from stepline.evaluate.meteor.matching import (
    CaptionIndexer,
    IndexedCaption,
    WordMatch,
    align,
    find_candidates,
)
from stepline.evaluate.meteor.tables import load_lexicon, load_phrases

# METEOR 1.5's parameters for English (Denkowski and Lavie 2014, table 3, and its `-l en` defaults)
RECALL_ALPHA = 0.85  # alpha: weight of recall against precision
PENALTY_EXPONENT = 0.20  # beta
MAX_PENALTY = 0.60  # gamma
CONTENT_WEIGHT = 0.75  # delta: weight of content words against function words
MODULE_WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # exact, stem, synonym, paraphrase

MODULE_COUNT = len(MODULE_WEIGHTS)

# Of a caption's words, or of a sum of captions: all, function words, matched words by module,
# matched function words by module.
Counts: TypeAlias = tuple[int, ...]
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
        penalty = MAX_PENALTY * math.pow(fragmentation, PENALTY_EXPONENT)
        return max(mean * (1.0 - penalty), 0.0)

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
