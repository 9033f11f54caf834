"""BLEU-1 to BLEU-4, ROUGE-L and CIDEr-D of tokenised captions, as pycocoevalcap reports them.

BLEU (Papineni et al., ACL 2002): of a corpus, with the closest reference length. Differs as the
caption scorer does: counts that may be zero carry a tiny number instead, so that a caption shorter
than four words still has a BLEU-4.

ROUGE-L (Lin, ACL 2004): the longest common subsequence of words, recall weighted above precision.
Differs as the caption scorer does: with several references the best precision and the best recall
are taken, which may come from different ones.

CIDEr-D (Vedantam et al., CVPR 2015): similarity of tf-idf n-grams, its idf taken from the
references scored. A single item, or items with equal references, has no idf and scores 0 even when
perfect: the metric is made for a corpus, and densevid_eval calls it video by video.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from stepline.errors import DatasetError


class CaptionPair(NamedTuple):
    """One hypothesis and the references it is held against."""

    references: tuple[str, ...]
    hypothesis: str


@dataclass(frozen=True)
class CaptionScores:
    """corpus: the mean of the items, in [0, 1], of CIDEr in [0, 10]. items: one score each."""

    corpus: float
    items: tuple[float, ...]


def require_pairs(items: Sequence[CaptionPair]) -> None:
    """Raise DatasetError for no items at all, or an item without references."""
    if not items:
        raise DatasetError("no captions to score; give at least one hypothesis with its references")
    for index, item in enumerate(items):
        if not item.references:
            raise DatasetError(
                f"item {index} ({item.hypothesis[:60]!r}) has no reference caption; give at least one"
            )


MAX_NGRAM_WORDS = 4  # of BLEU and CIDEr

Ngram: TypeAlias = tuple[str, ...]
BleuRow: TypeAlias = tuple[float, float, float, float]  # BLEU-1 to BLEU-4


def ngrams(caption: str) -> Counter[Ngram]:
    """Return how often a caption holds each n-gram of 1 to MAX_NGRAM_WORDS words."""
    words = caption.split()
    return Counter(
        tuple(words[start : start + size])
        for size in range(1, MAX_NGRAM_WORDS + 1)
        for start in range(len(words) - size + 1)
    )


# ---------------------------------------------------------------- CIDEr-D


LENGTH_SIGMA = 6.0  # words; width of the penalty on different lengths
_CIDER_SCALE = 10.0  # CIDEr is reported times ten


@dataclass(frozen=True)
class _Vector:
    """tf-idf weights of one caption by n-gram size, their norms, and its number of two-word
    n-grams."""

    weights: tuple[dict[Ngram, float], ...]
    norms: tuple[float, ...]
    length: int


def cider(items: Sequence[CaptionPair]) -> CaptionScores:
    """Return CIDEr of tokenised captions. Raises DatasetError without items or references."""
    require_pairs(items)
    references = [[ngrams(reference) for reference in item.references] for item in items]
    documents: Counter[Ngram] = Counter()
    for counts in references:
        documents.update(set().union(*counts))
    logs = {count: math.log(count) for count in {*documents.values(), len(items)}}
    idf = {ngram: logs[len(items)] - logs[count] for ngram, count in documents.items()}
    rare = logs[len(items)]  # the idf of an n-gram that no reference holds
    scores = []
    for item, counts in zip(items, references, strict=True):
        ours = _vector(ngrams(item.hypothesis), idf, rare)
        total = sum(_similarity(ours, _vector(reference, idf, rare)) for reference in counts)
        scores.append(_CIDER_SCALE * total / len(counts))
    return CaptionScores(sum(scores) / len(scores), tuple(scores))


def _vector(counts: Counter[Ngram], idf: dict[Ngram, float], rare: float) -> _Vector:
    weights: tuple[dict[Ngram, float], ...] = tuple({} for _ in range(MAX_NGRAM_WORDS))
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
    difference = ours.length - theirs.length
    return total / MAX_NGRAM_WORDS * math.exp(-(difference**2) / (2.0 * LENGTH_SIGMA**2))


# ---------------------------------------------------------------- BLEU


# the caption scorer's guards against 0 / 0, above and below the fraction
_ABOVE_EPSILON = 1e-15
_BELOW_EPSILON = 1e-9


@dataclass(frozen=True)
class BleuScores:
    """corpus: BLEU-1..4 of all items together. items: BLEU-1..4 of each alone."""

    corpus: BleuRow
    items: tuple[BleuRow, ...]


def bleu(items: Sequence[CaptionPair]) -> BleuScores:
    """Return BLEU of tokenised captions. Raises DatasetError without items or references."""
    require_pairs(items)
    counts = [_count(item) for item in items]
    whole = [sum(column) for column in zip(*counts, strict=True)]
    return BleuScores(_scores(whole), tuple(map(_scores, counts)))


def _count(item: CaptionPair) -> list[int]:
    """Return the words of the hypothesis and of the closest reference, then guessed and correct
    n-grams by size."""
    length = len(item.hypothesis.split())
    lengths = [len(reference.split()) for reference in item.references]
    closest = min(lengths, key=lambda other: (abs(other - length), other))
    most: Counter[Ngram] = Counter()
    for reference in item.references:
        most |= ngrams(reference)
    correct = [0] * MAX_NGRAM_WORDS
    for ngram, count in (ngrams(item.hypothesis) & most).items():
        correct[len(ngram) - 1] += count
    return [length, closest, *(max(0, length - size) for size in range(MAX_NGRAM_WORDS)), *correct]


def _scores(counts: list[int]) -> BleuRow:
    length, reference_length, *ngram_counts = counts
    product, scores = 1.0, []
    for size, (guessed, correct) in enumerate(
        zip(ngram_counts[:MAX_NGRAM_WORDS], ngram_counts[MAX_NGRAM_WORDS:], strict=True), 1
    ):
        product *= (correct + _ABOVE_EPSILON) / (guessed + _BELOW_EPSILON)
        scores.append(product ** (1.0 / size))
    ratio = (length + _ABOVE_EPSILON) / (reference_length + _BELOW_EPSILON)
    penalty = math.exp(1.0 - 1.0 / ratio) if ratio < 1.0 else 1.0
    first, second, third, fourth = (score * penalty for score in scores)
    return first, second, third, fourth


# ---------------------------------------------------------------- ROUGE-L


RECALL_BETA = 1.2  # weight of recall


def rouge_l(items: Sequence[CaptionPair]) -> CaptionScores:
    """Return ROUGE-L of tokenised captions. Raises DatasetError without items or references."""
    require_pairs(items)
    scores = tuple(_rouge_l(item) for item in items)
    return CaptionScores(sum(scores) / len(scores), scores)


def _rouge_l(item: CaptionPair) -> float:
    # an empty caption is one empty word, which equals another one
    hypothesis = item.hypothesis.split(" ")
    precision = recall = 0.0
    for reference in item.references:
        words = reference.split(" ")
        common = common_subsequence(words, hypothesis)
        precision = max(precision, common / len(hypothesis))
        recall = max(recall, common / len(words))
    if not precision or not recall:
        return 0.0
    return (1.0 + RECALL_BETA**2) * precision * recall / (recall + RECALL_BETA**2 * precision)


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    One bit a word of `first`, one step a word of `second`, so that long captions stay quick.
    Source: Hyyro, "Bit-parallel LCS-length computation revisited", 2004.
    """
    positions: dict[str, int] = {}
    for index, word in enumerate(first):
        positions[word] = positions.get(word, 0) | 1 << index
    everything = (1 << len(first)) - 1
    open_bits = everything  # a zero marks where the subsequence grows
    for word in second:
        matched = open_bits & positions.get(word, 0)
        open_bits = (open_bits + matched | open_bits - matched) & everything
    return len(first) - open_bits.bit_count()
