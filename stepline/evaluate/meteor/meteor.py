"""METEOR 1.5 of captions: weighted precision and recall of an alignment, less a penalty for
scattered matches."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeAlias

from stepline.errors import DatasetError
from stepline.evaluate.meteor.matching import (
    CaptionIndexer,
    IndexedCaption,
    WordMatch,
    align,
    candidates,
)
from stepline.evaluate.meteor.resources import load_lexicon, load_phrases

# METEOR 1.5's parameters for English (Denkowski and Lavie 2014, table 3, and its `-l en` defaults)
RECALL_ALPHA = 0.85  # alpha: weight of recall against precision
PENALTY_EXPONENT = 0.20  # beta
MAX_PENALTY = 0.60  # gamma
CONTENT_WEIGHT = 0.75  # delta: weight of content words against function words
MODULE_WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # exact, stem, synonym, paraphrase

MODULE_COUNT = len(MODULE_WEIGHTS)

# of a caption's words, or of a sum of captions: all, function words, matched words by module,
# matched function words by module
Counts: TypeAlias = tuple[int, ...]
NO_WORDS: Counts = (0,) * (2 + 2 * MODULE_COUNT)


class MatchStatistics(NamedTuple):
    """Match counts of a caption pair, or of a sum of pairs, from which METEOR is computed."""

    hypothesis: Counts
    reference: Counts
    chunks: int

    def score(self) -> float:
        """Return METEOR in [0, 1], or 0 without any match."""
        precision = _matched_fraction(self.hypothesis)
        recall = _matched_fraction(self.reference)
        if not precision or not recall:
            return 0.0
        # The harmonic mean, weighted by alpha.
        mean = 1.0 / ((1.0 - RECALL_ALPHA) / precision + RECALL_ALPHA / recall)
        scatter = 0.0
        # One chunk of all words is not scattered at all.
        if not self.is_full_match():
            matched_sum = _matched_words(self.hypothesis) + _matched_words(self.reference)
            scatter = self.chunks / (matched_sum / 2.0)
        penalty = MAX_PENALTY * math.pow(scatter, PENALTY_EXPONENT)
        return max(mean * (1.0 - penalty), 0.0)

    def is_full_match(self) -> bool:
        """Return whether every word matched, in one chunk."""
        sides = (self.hypothesis, self.reference)
        return self.chunks == 1 and all(_matched_words(side) == side[0] for side in sides)


def _matched_words(counts: Counts) -> int:
    return sum(counts[2 : 2 + MODULE_COUNT])


def _matched_fraction(counts: Counts) -> float:
    """Return the weighted fraction of a caption's words that matched."""
    words, functions, *by_module = counts
    weighted = 0.0
    columns = zip(MODULE_WEIGHTS, by_module[:MODULE_COUNT], by_module[MODULE_COUNT:], strict=True)
    for weight, all_words, function_words in columns:
        weighted += weight * _length(all_words, function_words)
    return weighted / _length(words, functions) if weighted else 0.0


def _length(words: int, functions: int) -> float:
    return CONTENT_WEIGHT * (words - functions) + (1.0 - CONTENT_WEIGHT) * functions


@dataclass(frozen=True)
class MeteorScores:
    """segments: one score per pair, in [0, 1]. aggregate: METEOR of the summed statistics, which is
    not their mean."""

    segments: tuple[float, ...]
    aggregate: float


def statistics(
    hypothesis: IndexedCaption, reference: IndexedCaption, matches: Sequence[WordMatch]
) -> MatchStatistics:
    """Count what an alignment matches."""
    modules = []
    reference_spans = []
    hypothesis_spans = []
    chunks = 0
    expected = (-1, -1)  # where the current chunk would go on
    for module, start, length, other, other_length in matches:
        modules.append(module)
        reference_spans.append((start, length))
        hypothesis_spans.append((other, other_length))
        # A match that does not go on where the last one ended opens a chunk.
        chunks += (start, other) != expected
        expected = (start + length, other + other_length)
    hypothesis_counts = _counts(hypothesis, modules, hypothesis_spans)
    reference_counts = _counts(reference, modules, reference_spans)
    return MatchStatistics(hypothesis_counts, reference_counts, chunks)


def _counts(
    caption: IndexedCaption, modules: Iterable[int], spans: Iterable[tuple[int, int]]
) -> Counts:
    """Return the counts of a caption whose spans (start, length) matched by these modules."""
    matched = [0] * MODULE_COUNT
    functions = [0] * MODULE_COUNT
    for module, (start, length) in zip(modules, spans, strict=True):
        matched[module] += length
        functions_of_span = caption.functions >> start & (1 << length) - 1
        functions[module] += functions_of_span.bit_count()
    function_count = caption.functions.bit_count()
    return (len(caption), function_count, *matched, *functions)


def total(parts: Iterable[MatchStatistics]) -> MatchStatistics:
    """Return the sum of statistics. METEOR of many pairs is the score of the sum.

    A pair that matched in one piece adds no chunk, as in the program.
    """
    hypotheses = [NO_WORDS]
    references = [NO_WORDS]
    chunks = 0
    for part in parts:
        hypotheses.append(part.hypothesis)
        references.append(part.reference)
        if not part.is_full_match():
            chunks += part.chunks
    return MatchStatistics(_sum_of_columns(hypotheses), _sum_of_columns(references), chunks)


def _sum_of_columns(rows: Sequence[Counts]) -> Counts:
    return tuple(map(sum, zip(*rows, strict=True)))


_MAX_CACHED_CAPTIONS = 1 << 11  # the oldest is forgotten first
_MAX_CACHED_PAIRS = 1 << 14
MAX_QUOTED_CHARS = 60  # of a caption in an error


class Meteor:
    """METEOR of tokenised captions, with caches of captions and pairs.

    Use it on the output of the tokenizer, as the caption metrics do. Raises ModelError without
    METEOR's tables.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """folder: laid out as the pycocoevalcap package, by default that package."""
        indexer = CaptionIndexer(load_lexicon(folder), load_phrases(folder))
        self._index = lru_cache(maxsize=_MAX_CACHED_CAPTIONS)(indexer.read)
        self._pair = lru_cache(maxsize=_MAX_CACHED_PAIRS)(self._score_pair)

    def segment(self, references: Sequence[str], hypothesis: str) -> float:
        """Return the best METEOR of a hypothesis against any of its references, in [0, 1]."""
        score, _ = self._best(references, hypothesis)
        return score

    def compare(self, pairs: Iterable[tuple[Sequence[str], str]]) -> MeteorScores:
        """Score (references, hypothesis) pairs and their aggregate. An empty caption scores 0.

        Raises DatasetError for a pair without references, or one whose captions repeat their words
        too often to be aligned.
        """
        scores = []
        parts = []
        for references, hypothesis in pairs:
            score, part = self._best(references, hypothesis)
            scores.append(score)
            parts.append(part)
        aggregate = total(parts).score()
        return MeteorScores(tuple(scores), aggregate)

    def _best(self, references: Sequence[str], hypothesis: str) -> tuple[float, MatchStatistics]:
        if not references:
            quotation = repr(hypothesis[:MAX_QUOTED_CHARS])
            fault = f"{quotation}: has no reference caption"
            raise DatasetError(f"{fault}; METEOR needs at least one")
        pairs = [self._pair(reference, hypothesis) for reference in references]
        return max(pairs, key=itemgetter(0))  # the first of equals, as the program does

    def _score_pair(self, reference: str, hypothesis: str) -> tuple[float, MatchStatistics]:
        hypothesis_words = self._index(hypothesis)
        reference_words = self._index(reference)
        possible_matches = candidates(hypothesis_words, reference_words)
        matches = align(possible_matches, len(hypothesis_words))
        part = statistics(hypothesis_words, reference_words, matches)
        return part.score(), part
