"""BLEU-1 to BLEU-4 of a corpus, with the closest reference length, as pycocoevalcap reports it.

Source: Papineni et al., ACL 2002. Differs as the caption scorer does: counts that may be zero carry a tiny number
instead, so that a caption shorter than four words still has a BLEU-4.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stepline.evaluate.captions import Item, require_items
from stepline.evaluate.ngrams import LONGEST, Ngram, ngrams

_TINY, _SMALL = 1e-15, 1e-9  # the caption scorer's guards against 0 / 0, above and below the fraction


@dataclass(frozen=True)
class BleuScores:
    """corpus: BLEU-1..4 of all items together. items: BLEU-1..4 of each alone."""

    corpus: tuple[float, float, float, float]
    items: tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True)
class _Counts:
    """Lengths in words; guessed and correct n-grams by size."""

    length: int
    reference_length: int
    guessed: tuple[int, ...]
    correct: tuple[int, ...]


def bleu(items: Sequence[Item]) -> BleuScores:
    """Return BLEU of tokenised captions. Raises DatasetError without items or references."""
    require_items(items)
    counts = [_count(item) for item in items]
    whole = _Counts(
        sum(part.length for part in counts),
        sum(part.reference_length for part in counts),
        _sums([part.guessed for part in counts]),
        _sums([part.correct for part in counts]),
    )
    return BleuScores(_scores(whole), tuple(map(_scores, counts)))


def _sums(rows: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*rows, strict=True))


def _count(item: Item) -> _Counts:
    length = len(item.hypothesis.split())
    lengths = [len(reference.split()) for reference in item.references]
    closest = min(lengths, key=lambda other: (abs(other - length), other))
    most: Counter[Ngram] = Counter()
    for reference in item.references:
        most |= ngrams(reference)
    correct = [0] * LONGEST
    for ngram, count in (ngrams(item.hypothesis) & most).items():
        correct[len(ngram) - 1] += count
    guessed = tuple(max(0, length - size) for size in range(LONGEST))
    return _Counts(length, closest, guessed, tuple(correct))


def _scores(counts: _Counts) -> tuple[float, float, float, float]:
    product, scores = 1.0, []
    for size, (correct, guessed) in enumerate(zip(counts.correct, counts.guessed, strict=True), start=1):
        product *= (correct + _TINY) / (guessed + _SMALL)
        scores.append(product ** (1.0 / size))
    ratio = (counts.length + _TINY) / (counts.reference_length + _SMALL)
    penalty = math.exp(1.0 - 1.0 / ratio) if ratio < 1.0 else 1.0
    first, second, third, fourth = (score * penalty for score in scores)
    return first, second, third, fourth
