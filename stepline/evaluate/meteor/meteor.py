"""METEOR 1.5 of captions: weighted precision and recall of an alignment, less a penalty for
scattered matches."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
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

# METEOR 1.5's parameters for English (Denkowski and Lavie 2014, table 3; its `-l en` defaults)
RECALL_ALPHA = 0.85  # alpha: weight of recall against precision
PENALTY_EXPONENT = 0.20  # beta
MAX_PENALTY = 0.60  # gamma
CONTENT_WEIGHT = 0.75  # delta: weight of content words against function words
MODULE_WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # exact, stem, synonym, paraphrase

Counts: TypeAlias = tuple[int, ...]  # by module


class MatchStatistics(NamedTuple):
    """What a pair, or a sum of pairs, is scored from: numbers of words, all and function, and of
    matched words."""

    hypothesis: int
    reference: int
    hypothesis_functions: int
    reference_functions: int
    hypothesis_matched: Counts
    reference_matched: Counts
    hypothesis_matched_functions: Counts
    reference_matched_functions: Counts
    chunks: int

    def score(self) -> float:
        """Return METEOR in [0, 1]; 0 without any match."""
        precision = _weighted(self.hypothesis_matched, self.hypothesis_matched_functions)
        recall = _weighted(self.reference_matched, self.reference_matched_functions)
        if not precision or not recall:
            return 0.0
        precision /= _length(self.hypothesis, self.hypothesis_functions)
        recall /= _length(self.reference, self.reference_functions)
        mean = 1.0 / ((1.0 - RECALL_ALPHA) / precision + RECALL_ALPHA / recall)
        matched = (sum(self.hypothesis_matched) + sum(self.reference_matched)) / 2.0
        scatter = 0.0 if self.is_whole() else self.chunks / matched
        return max(mean * (1.0 - MAX_PENALTY * math.pow(scatter, PENALTY_EXPONENT)), 0.0)

    def is_whole(self) -> bool:
        """Tell whether every word matched, in one piece."""
        matched = (sum(self.hypothesis_matched), sum(self.reference_matched))
        return matched == (self.hypothesis, self.reference) and self.chunks == 1


@dataclass(frozen=True)
class MeteorScores:
    """segments: one score a pair, in [0, 1]. aggregate: METEOR of the summed statistics, which is
    not their mean."""

    segments: tuple[float, ...]
    aggregate: float


def statistics(
    hypothesis: IndexedCaption, reference: IndexedCaption, matches: Iterable[WordMatch]
) -> MatchStatistics:
    """Count what an alignment matches."""
    matched, functions = [[0] * 4, [0] * 4], [[0] * 4, [0] * 4]  # hypothesis, reference
    chunks, expected = 0, (-1, -1)  # where the running chunk would go on
    for module, start, length, other, other_length in matches:
        matched[0][module] += other_length
        matched[1][module] += length
        functions[0][module] += _function_words(hypothesis, other, other_length)
        functions[1][module] += _function_words(reference, start, length)
        chunks += (start, other) != expected
        expected = (start + length, other + other_length)
    words = (
        len(hypothesis),
        len(reference),
        hypothesis.functions.bit_count(),
        reference.functions.bit_count(),
    )
    counts = [tuple(row) for row in (*matched, *functions)]
    return MatchStatistics(*words, counts[0], counts[1], counts[2], counts[3], chunks)


def total(parts: Iterable[MatchStatistics]) -> MatchStatistics:
    """Return the sum of statistics; METEOR of many pairs is the score of the sum.

    A pair that matched in one piece adds no chunk, as in the program.
    """
    rows = [
        (*part[:4], *chain(*part[4:8]), 0 if part.is_whole() else part.chunks) for part in parts
    ]
    sums = [sum(column) for column in zip(*rows, strict=True)] or [0] * 21
    counts = [tuple(sums[start : start + 4]) for start in range(4, 20, 4)]
    return MatchStatistics(
        sums[0], sums[1], sums[2], sums[3], counts[0], counts[1], counts[2], counts[3], sums[20]
    )


def _function_words(sentence: IndexedCaption, start: int, length: int) -> int:
    return (sentence.functions >> start & ((1 << length) - 1)).bit_count()


def _weighted(matched: Counts, functions: Counts) -> float:
    total = 0.0
    for weight, all_words, function_words in zip(MODULE_WEIGHTS, matched, functions, strict=True):
        total += weight * _length(all_words, function_words)
    return total


def _length(words: int, functions: int) -> float:
    return CONTENT_WEIGHT * (words - functions) + (1.0 - CONTENT_WEIGHT) * functions


_MAX_CACHED_CAPTIONS = 1 << 11  # the oldest is forgotten first
_MAX_CACHED_PAIRS = 1 << 14


class Meteor:
    """METEOR of tokenised captions; every caption is read once and every pair scored once.

    Use it on the output of the tokenizer, as the caption metrics do. Raises ModelError without
    METEOR's tables.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """folder: laid out as the pycocoevalcap package; by default that package."""
        indexer = CaptionIndexer(load_lexicon(folder), load_phrases(folder))
        self._index = lru_cache(maxsize=_MAX_CACHED_CAPTIONS)(indexer.read)
        self._pair = lru_cache(maxsize=_MAX_CACHED_PAIRS)(self._score_pair)

    def segment(self, references: Sequence[str], hypothesis: str) -> float:
        """Return the best METEOR of a hypothesis against any of its references, in [0, 1]."""
        return self._best(references, hypothesis)[0]

    def compare(self, pairs: Iterable[tuple[Sequence[str], str]]) -> MeteorScores:
        """Score (references, hypothesis) pairs and their aggregate; an empty caption scores 0.

        Raises DatasetError for a pair without references, or one whose captions repeat themselves
        beyond all sense.
        """
        best = [self._best(references, hypothesis) for references, hypothesis in pairs]
        return MeteorScores(
            tuple(score for score, _ in best), total(part for _, part in best).score()
        )

    def _best(self, references: Sequence[str], hypothesis: str) -> tuple[float, MatchStatistics]:
        if not references:
            raise DatasetError(
                f"{hypothesis[:60]!r}: has no reference caption; METEOR needs at least one"
            )
        scored = [self._pair(reference, hypothesis) for reference in references]
        return max(scored, key=lambda pair: pair[0])  # the first of equals, as the program does

    def _score_pair(self, reference: str, hypothesis: str) -> tuple[float, MatchStatistics]:
        ours, theirs = self._index(hypothesis), self._index(reference)
        part = statistics(ours, theirs, align(candidates(ours, theirs), len(ours)))
        return part.score(), part
