"""CIDEr-D as pycocoevalcap reports it: similarity of tf-idf n-grams, its idf taken from the references scored.

Source: Vedantam et al., CVPR 2015. A single item, or items with equal references, has no idf and scores 0 even when
perfect: the metric is made for a corpus, and densevid_eval calls it video by video.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stepline.evaluate.captions import Item, require_items
from stepline.evaluate.ngrams import LONGEST, Ngram, ngrams

SIGMA = 6.0  # words; width of the penalty on different lengths
_SCALE = 10.0  # CIDEr is reported times ten


@dataclass(frozen=True)
class CiderScores:
    """corpus: the mean of the items, in [0, 10]. items: one score each."""

    corpus: float
    items: tuple[float, ...]


@dataclass(frozen=True)
class _Vector:
    """tf-idf weights of one caption by n-gram size, their norms, and its number of two-word n-grams."""

    weights: tuple[dict[Ngram, float], ...]
    norms: tuple[float, ...]
    length: int


def cider(items: Sequence[Item]) -> CiderScores:
    """Return CIDEr of tokenised captions. Raises DatasetError without items or references."""
    require_items(items)
    references = [[ngrams(reference) for reference in item.references] for item in items]
    documents: Counter[Ngram] = Counter()
    for counts in references:
        documents.update(set().union(*counts))
    logs = {count: math.log(count) for count in {*documents.values(), len(items)}}
    idf = {ngram: logs[len(items)] - logs[count] for ngram, count in documents.items()}
    scores = tuple(
        _score(ngrams(item.hypothesis), counts, idf, logs[len(items)])
        for item, counts in zip(items, references, strict=True)
    )
    return CiderScores(sum(scores) / len(scores), scores)


def _score(hypothesis: Counter[Ngram], references: list[Counter[Ngram]], idf: dict[Ngram, float], rare: float) -> float:
    """Score one item. rare: the idf of an n-gram that no reference holds."""
    ours = _vector(hypothesis, idf, rare)
    total = sum(_similarity(ours, _vector(reference, idf, rare)) for reference in references)
    return _SCALE * total / len(references)


def _vector(counts: Counter[Ngram], idf: dict[Ngram, float], rare: float) -> _Vector:
    weights: tuple[dict[Ngram, float], ...] = tuple({} for _ in range(LONGEST))
    length = 0
    for ngram, count in counts.items():
        weights[len(ngram) - 1][ngram] = count * idf.get(ngram, rare)
        length += count if len(ngram) == 2 else 0  # the scorer's length counts pairs of words
    norms = tuple(math.sqrt(sum(weight * weight for weight in part.values())) for part in weights)
    return _Vector(weights, norms, length)


def _similarity(ours: _Vector, theirs: _Vector) -> float:
    """Return the mean over n-gram sizes of the clipped cosine, less for different lengths."""
    total = 0.0
    for our_part, their_part, our_norm, their_norm in zip(
        ours.weights, theirs.weights, ours.norms, theirs.norms, strict=True
    ):
        dot = sum(
            min(weight, their_part[ngram]) * their_part[ngram]
            for ngram, weight in our_part.items()
            if ngram in their_part
        )
        total += dot / (our_norm * their_norm) if our_norm and their_norm else dot
    apart = ours.length - theirs.length
    return total / LONGEST * math.exp(-(apart**2) / (2.0 * SIGMA**2))
