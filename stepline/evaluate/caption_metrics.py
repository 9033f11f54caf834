"""BLEU-1 to BLEU-4, ROUGE-L and CIDEr-D of tokenised captions, as pycocoevalcap reports them.

BLEU (Papineni et al., ACL 2002): of a corpus, with the closest reference length. Differs as the
caption scorer does. Counts that may be zero carry a tiny number instead, so that a caption shorter
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
    """A hypothesis and its reference captions."""

    references: tuple[str, ...]
    hypothesis: str


@dataclass(frozen=True)
class CaptionScores:
    """corpus: mean of the items, in [0, 1], of CIDEr in [0, 10]. items: one score per item."""

    corpus: float
    items: tuple[float, ...]


def require_pairs(items: Sequence[CaptionPair]) -> None:
    """Raise DatasetError for no items at all, or an item without references."""
    if not items:
        raise DatasetError("no captions to score; give at least one hypothesis with its references")
    for index, item in enumerate(items):
        if not item.references:
            quotation = repr(item.hypothesis[:MAX_QUOTED_CHARS])
            fault = f"item {index} ({quotation}) has no reference caption"
            raise DatasetError(f"{fault}; give at least one")


MAX_NGRAM_WORDS = 4  # of BLEU and CIDEr
MAX_QUOTED_CHARS = 60  # of a caption in an error

Ngram: TypeAlias = tuple[str, ...]
NgramWeights: TypeAlias = dict[Ngram, float]
BleuRow: TypeAlias = tuple[float, float, float, float]  # BLEU-1 to BLEU-4


def ngrams(caption: str) -> Counter[Ngram]:
    """Return the counts of the n-grams of 1 to MAX_NGRAM_WORDS words in a caption."""
    words = caption.split()
    counts: Counter[Ngram] = Counter()
    for size in range(1, MAX_NGRAM_WORDS + 1):
        starts = range(len(words) - size + 1)
        counts.update([tuple(words[start : start + size]) for start in starts])
    return counts


# ---------------------------------------------------------------- CIDEr-D


LENGTH_SIGMA = 6.0  # words; width of the penalty on different lengths
_CIDER_SCALE = 10.0  # CIDEr is reported times ten


@dataclass(frozen=True)
class _TfIdfVector:
    """tf-idf weights of a caption by n-gram size, their norms, and its number of bigrams."""

    weights: tuple[NgramWeights, ...]
    norms: tuple[float, ...]
    length: int


def cider(items: Sequence[CaptionPair]) -> CaptionScores:
    """Return CIDEr of tokenised captions. Raises DatasetError without items or references."""
    require_pairs(items)
    references = []  # n-grams of each item's references
    for item in items:
        references.append([ngrams(reference) for reference in item.references])
    # In how many items' references an n-gram is, and the idf of that.
    documents: Counter[Ngram] = Counter()
    for counts in references:
        documents.update(set().union(*counts))
    rare = math.log(len(items))  # the idf of an n-gram that no reference holds
    document_counts = set(documents.values())
    log_of = {count: math.log(count) for count in document_counts}
    idf = {ngram: rare - log_of[count] for ngram, count in documents.items()}
    # Each item: the mean similarity with its references.
    scores = []
    for item, counts in zip(items, references, strict=True):
        hypothesis = _vector(ngrams(item.hypothesis), idf, rare)
        similarities = []
        for reference_counts in counts:
            reference = _vector(reference_counts, idf, rare)
            similarities.append(_similarity(hypothesis, reference))
        scores.append(_CIDER_SCALE * sum(similarities) / len(counts))
    return _mean_and_items(scores)


def _mean_and_items(scores: Sequence[float]) -> CaptionScores:
    return CaptionScores(sum(scores) / len(scores), tuple(scores))


def _vector(counts: Counter[Ngram], idf: NgramWeights, rare: float) -> _TfIdfVector:
    weights: list[NgramWeights] = [{} for _ in range(MAX_NGRAM_WORDS)]
    length = 0
    for ngram, count in counts.items():
        size = len(ngram)
        weights[size - 1][ngram] = count * idf.get(ngram, rare)
        # the scorer's length counts pairs of words
        if size == 2:
            length += count
    norms = tuple(map(_norm, weights))
    return _TfIdfVector(tuple(weights), norms, length)


def _norm(weights: NgramWeights) -> float:
    squares = [weight * weight for weight in weights.values()]
    return math.sqrt(sum(squares))


def _similarity(hypothesis: _TfIdfVector, reference: _TfIdfVector) -> float:
    """Return the mean over n-gram sizes of the clipped cosine, with a penalty for different
    lengths.
    """
    total = 0.0
    for index in range(MAX_NGRAM_WORDS):
        product = _clipped_product(hypothesis.weights[index], reference.weights[index])
        hypothesis_norm = hypothesis.norms[index]
        reference_norm = reference.norms[index]
        # A norm of 0 has weights of 0, so there is nothing to divide.
        if hypothesis_norm and reference_norm:
            total += product / (hypothesis_norm * reference_norm)
        else:
            total += product
    # CIDEr-D: a Gaussian over the difference in length.
    difference = hypothesis.length - reference.length
    return total / MAX_NGRAM_WORDS * math.exp(-(difference**2) / (2.0 * LENGTH_SIGMA**2))


def _clipped_product(hypothesis: NgramWeights, reference: NgramWeights) -> float:
    """Return the dot product in which no weight of the hypothesis exceeds the reference's."""
    products = []
    for ngram, weight in hypothesis.items():
        if ngram in reference:
            reference_weight = reference[ngram]
            products.append(min(weight, reference_weight) * reference_weight)
    return sum(products)


# ---------------------------------------------------------------- BLEU


# the caption scorer's guards against 0 / 0, above and below the fraction
_ABOVE_EPSILON = 1e-15
_BELOW_EPSILON = 1e-9


@dataclass(frozen=True)
class BleuScores:
    """corpus: BLEU-1..4 of all items together. items: BLEU-1..4 per item."""

    corpus: BleuRow
    items: tuple[BleuRow, ...]


def bleu(items: Sequence[CaptionPair]) -> BleuScores:
    """Return BLEU of tokenised captions. Raises DatasetError without items or references."""
    require_pairs(items)
    counts = [_bleu_counts(item) for item in items]
    corpus_counts = [sum(column) for column in zip(*counts, strict=True)]
    item_scores = tuple(map(_scores, counts))
    return BleuScores(_scores(corpus_counts), item_scores)


def _bleu_counts(item: CaptionPair) -> list[int]:
    """Return the word counts of hypothesis and closest reference, then n-grams and matches by size."""
    length = len(item.hypothesis.split())
    reference_lengths = [len(reference.split()) for reference in item.references]
    gaps = [(abs(other - length), other) for other in reference_lengths]
    _, closest = min(gaps)
    guessed = [max(0, length - size) for size in range(MAX_NGRAM_WORDS)]
    # an n-gram is correct as often as the reference that repeats it most
    most: Counter[Ngram] = Counter()
    for reference in item.references:
        most |= ngrams(reference)
    shared = ngrams(item.hypothesis) & most
    correct = [0] * MAX_NGRAM_WORDS
    for ngram, count in shared.items():
        correct[len(ngram) - 1] += count
    return [length, closest, *guessed, *correct]


def _scores(counts: list[int]) -> BleuRow:
    length, reference_length, *ngram_counts = counts
    guessed_counts = ngram_counts[:MAX_NGRAM_WORDS]
    correct_counts = ngram_counts[MAX_NGRAM_WORDS:]
    ratio = (length + _ABOVE_EPSILON) / (reference_length + _BELOW_EPSILON)
    # Brevity penalty: exp(1 - r / c) of a corpus shorter than its references.
    brevity_penalty = 1.0
    if ratio < 1.0:
        brevity_penalty = math.exp(1.0 - 1.0 / ratio)
    # BLEU-n: the geometric mean of the precisions of 1 to n words.
    product = 1.0
    scores = []
    for index in range(MAX_NGRAM_WORDS):
        correct = correct_counts[index] + _ABOVE_EPSILON
        guessed = guessed_counts[index] + _BELOW_EPSILON
        product *= correct / guessed
        mean_precision = product ** (1.0 / (index + 1))
        scores.append(mean_precision * brevity_penalty)
    first, second, third, fourth = scores
    return first, second, third, fourth


# ---------------------------------------------------------------- ROUGE-L


RECALL_BETA = 1.2  # weight of recall


def rouge_l(items: Sequence[CaptionPair]) -> CaptionScores:
    """Return ROUGE-L of tokenised captions. Raises DatasetError without items or references."""
    require_pairs(items)
    scores = [_rouge_l(item) for item in items]
    return _mean_and_items(scores)


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
    # F with beta: (1 + beta^2) P R / (R + beta^2 P).
    weighted_sum = recall + RECALL_BETA**2 * precision
    return (1.0 + RECALL_BETA**2) * precision * recall / weighted_sum


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, bit-parallel.

    Source: Hyyro, "Bit-parallel LCS-length computation revisited", 2004.
    """
    # Of each word its places, one bit per word of `first`.
    positions: dict[str, int] = {}
    for index, word in enumerate(first):
        positions[word] = positions.get(word, 0) | 1 << index
    size = len(first)
    all_bits = (1 << size) - 1
    open_bits = all_bits  # a zero marks where the subsequence grows
    for word in second:
        matched = open_bits & positions.get(word, 0)
        open_bits = (open_bits + matched | open_bits - matched) & all_bits
    return size - open_bits.bit_count()
