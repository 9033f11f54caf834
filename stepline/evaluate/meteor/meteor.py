"""METEOR 1.5 of captions: weighted precision and recall of an alignment, less a penalty for
scattered matches."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
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

MODULES = len(MODULE_WEIGHTS)

# of a caption's words, or of a sum of captions: all, function words, matched words by module,
# matched function words by module
Counts: TypeAlias = tuple[int, ...]
NO_WORDS: Counts = (0,) * (2 + 2 * MODULES)


class MatchStatistics(NamedTuple):
    """What a pair, or a sum of pairs, is scored from."""

    hypothesis: Counts
    reference: Counts
    chunks: int

    def score(self) -> float:
        """Return METEOR in [0, 1]; 0 without any match."""
        precision = _matched_share(self.hypothesis)
        recall = _matched_share(self.reference)
        if not precision or not recall:
            return 0.0
        mean = 1.0 / ((1.0 - RECALL_ALPHA) / precision + RECALL_ALPHA / recall)
        matched = (_matched_words(self.hypothesis) + _matched_words(self.reference)) / 2.0
        scatter = 0.0 if self.is_whole() else self.chunks / matched
        return max(mean * (1.0 - MAX_PENALTY * math.pow(scatter, PENALTY_EXPONENT)), 0.0)

    def is_whole(self) -> bool:
        """Tell whether every word matched, in one piece."""
        sides = (self.hypothesis, self.reference)
        return self.chunks == 1 and all(_matched_words(side) == side[0] for side in sides)


def _matched_words(counts: Counts) -> int:
    return sum(counts[2 : 2 + MODULES])


def _matched_share(counts: Counts) -> float:
    """Return the share of a caption's words that matched, weighted by module and kind of word."""
    words, functions, *by_module = counts
    weighted = 0.0
    columns = zip(MODULE_WEIGHTS, by_module[:MODULES], by_module[MODULES:], strict=True)
    for weight, all_words, function_words in columns:
        weighted += weight * _length(all_words, function_words)
    return weighted / _length(words, functions) if weighted else 0.0


def _length(words: int, functions: int) -> float:
    return CONTENT_WEIGHT * (words - functions) + (1.0 - CONTENT_WEIGHT) * functions


@dataclass(frozen=True)
class MeteorScores:
    """segments: one score a pair, in [0, 1]. aggregate: METEOR of the summed statistics, which is
    not their mean."""

    segments: tuple[float, ...]
    aggregate: float


def statistics(
    hypothesis: IndexedCaption, reference: IndexedCaption, matches: Sequence[WordMatch]
) -> MatchStatistics:
    """Count what an alignment matches."""
    modules = [match.module for match in matches]
    chunks = 0
    expected = (-1, -1)  # where the running chunk would go on
    for _, start, length, other, other_length in matches:
        chunks += (start, other) != expected
        expected = (start + length, other + other_length)
    ours = [(match.other, match.other_length) for match in matches]
    theirs = [(match.start, match.length) for match in matches]
    return MatchStatistics(
        _counts(hypothesis, modules, ours), _counts(reference, modules, theirs), chunks
    )


def _counts(
    caption: IndexedCaption, modules: Iterable[int], spans: Iterable[tuple[int, int]]
) -> Counts:
    """Return the counts of a caption whose spans (start, length) matched by these modules."""
    matched = [0] * MODULES
    functions = [0] * MODULES
    for module, (start, length) in zip(modules, spans, strict=True):
        matched[module] += length
        functions[module] += (caption.functions >> start & ((1 << length) - 1)).bit_count()
    return (len(caption), caption.functions.bit_count(), *matched, *functions)


def total(parts: Iterable[MatchStatistics]) -> MatchStatistics:
    """Return the sum of statistics; METEOR of many pairs is the score of the sum.

    A pair that matched in one piece adds no chunk, as in the program.
    """
    pairs = list(parts)
    hypothesis, reference = (
        tuple(map(sum, zip(NO_WORDS, *(pair[side] for pair in pairs), strict=True)))
        for side in (0, 1)
    )
    return MatchStatistics(
        hypothesis, reference, sum(pair.chunks for pair in pairs if not pair.is_whole())
    )


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
