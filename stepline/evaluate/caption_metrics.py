"""BLEU-1 to BLEU-4, ROUGE-L and CIDEr-D of tokenized captions, as pycocoevalcap reports them.

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
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

MAX_NGRAM_WORDS = 4  # of BLEU and CIDEr

Ngram: TypeAlias = tuple[str, ...]
NgramWeights: TypeAlias = Mapping[Ngram, float]
BleuRow: TypeAlias = tuple[float, float, float, float]  # BLEU-1 to BLEU-4


class CaptionPair(NamedTuple):
    """A predicted caption and its reference captions, tokenized.

    Attributes:
        references: at least one reference caption, each as tokens joined by spaces.
        hypothesis: the predicted caption as tokens joined by spaces.
    """

    references: tuple[str, ...]
    hypothesis: str


def ngrams(caption: str) -> Counter[Ngram]:
    """Return how often each n-gram of 1 to MAX_NGRAM_WORDS words occurs in a tokenized caption."""
    words = caption.split()
    counts: Counter[Ngram] = Counter()
    for size in range(1, MAX_NGRAM_WORDS + 1):
        counts.update(tuple(words[start : start + size]) for start in range(len(words) - size + 1))
    return counts


# ---------------------------------------------------------------- CIDEr-D


LENGTH_SIGMA = 6.0  # words; width of the penalty on different lengths
_CIDER_SCALE = 10.0  # CIDEr is reported times ten


class _TfIdfVector(NamedTuple):
    """The tf-idf weights of the n-grams of a caption.

    Attributes:
        weights: for each n-gram size, n-gram -> weight.
        norms: for each n-gram size, the Euclidean norm of the weights.
        length: number of bigrams, which the official scorer takes for the length of the caption.
    """

    weights: list[NgramWeights]
    norms: list[float]
    length: int


def cider(items: Sequence[CaptionPair]) -> float:
    """Return CIDEr-D in [0, 10], the mean over the caption pairs.

    items: tokenized caption pairs. They are also the corpus for the idf.
    """
    references = [[ngrams(reference) for reference in item.references] for item in items]
    # In how many items' references an n-gram is, and its idf from that.
    documents: Counter[Ngram] = Counter()
    for counts in references:
        documents.update(set().union(*counts))
    max_idf = math.log(len(items))  # the idf of an n-gram that no reference holds
    idf = {ngram: max_idf - math.log(count) for ngram, count in documents.items()}
    scores = []
    for item, counts in zip(items, references, strict=True):
        hypothesis = _tf_idf_vector(ngrams(item.hypothesis), idf, max_idf)
        similarities = [
            _similarity(hypothesis, _tf_idf_vector(reference, idf, max_idf)) for reference in counts
        ]
        scores.append(_CIDER_SCALE * sum(similarities) / len(counts))
    return sum(scores) / len(scores)


def _tf_idf_vector(counts: Counter[Ngram], idf: NgramWeights, max_idf: float) -> _TfIdfVector:
    weights: list[dict[Ngram, float]] = [{} for _ in range(MAX_NGRAM_WORDS)]
    length = 0
    for ngram, count in counts.items():
        weights[len(ngram) - 1][ngram] = count * idf.get(ngram, max_idf)
        if len(ngram) == 2:
            length += count
    norms = [math.sqrt(sum(weight * weight for weight in part.values())) for part in weights]
    return _TfIdfVector([*weights], norms, length)


def _similarity(hypothesis: _TfIdfVector, reference: _TfIdfVector) -> float:
    """Return the mean clipped cosine over n-gram sizes, with a penalty for unequal lengths."""
    total = 0.0
    for index in range(MAX_NGRAM_WORDS):
        product = _clipped_product(hypothesis.weights[index], reference.weights[index])
        # A norm of 0 has weights of 0, so there is nothing to divide.
        total += product / (hypothesis.norms[index] * reference.norms[index] or 1.0)
    # CIDEr-D: a Gaussian over the difference in length.
    difference = hypothesis.length - reference.length
    return total / MAX_NGRAM_WORDS * math.exp(-(difference**2) / (2.0 * LENGTH_SIGMA**2))


def _clipped_product(hypothesis: NgramWeights, reference: NgramWeights) -> float:
    """Return the dot product of two captions' n-gram weights.

    A weight of the hypothesis that exceeds the weight in the reference is reduced to it.
    """
    return sum(
        min(weight, reference[ngram]) * reference[ngram]
        for ngram, weight in hypothesis.items()
        if ngram in reference
    )


# ---------------------------------------------------------------- BLEU


# the caption scorer's guards against 0 / 0, above and below the fraction
_NUMERATOR_EPSILON = 1e-15
_DENOMINATOR_EPSILON = 1e-9


def bleu(items: Sequence[CaptionPair]) -> BleuRow:
    """Return BLEU-1 to BLEU-4 in [0, 1], from the summed counts of all tokenized caption pairs."""
    counts = [_bleu_counts(item) for item in items]
    length, reference_length, *ngram_counts = map(sum, zip(*counts, strict=True))
    hypothesis_counts = ngram_counts[:MAX_NGRAM_WORDS]
    correct_counts = ngram_counts[MAX_NGRAM_WORDS:]
    ratio = (length + _NUMERATOR_EPSILON) / (reference_length + _DENOMINATOR_EPSILON)
    # Brevity penalty: exp(1 - r / c) of a corpus shorter than its references.
    brevity_penalty = math.exp(1.0 - 1.0 / ratio) if ratio < 1.0 else 1.0
    # BLEU-n: the geometric mean of the precisions of 1 to n words.
    product = 1.0
    scores = []
    for size in range(1, MAX_NGRAM_WORDS + 1):
        correct = correct_counts[size - 1] + _NUMERATOR_EPSILON
        product *= correct / (hypothesis_counts[size - 1] + _DENOMINATOR_EPSILON)
        scores.append(product ** (1.0 / size) * brevity_penalty)
    first, second, third, fourth = scores
    return first, second, third, fourth


def _bleu_counts(item: CaptionPair) -> list[int]:
    """Return the counts from which BLEU of one caption pair is computed.

    The counts are the words of the hypothesis, the words of the reference closest in length, then
    the n-grams and the matched n-grams by n-gram size.
    """
    length = len(item.hypothesis.split())
    reference_lengths = [len(reference.split()) for reference in item.references]
    _, closest = min((abs(other - length), other) for other in reference_lengths)
    hypothesis_counts = [max(0, length - size) for size in range(MAX_NGRAM_WORDS)]
    # An n-gram is correct as often as in the reference that repeats it most.
    reference_ngrams: Counter[Ngram] = Counter()
    for reference in item.references:
        reference_ngrams |= ngrams(reference)
    correct_counts = [0] * MAX_NGRAM_WORDS
    for ngram, count in (ngrams(item.hypothesis) & reference_ngrams).items():
        correct_counts[len(ngram) - 1] += count
    return [length, closest, *hypothesis_counts, *correct_counts]


# ---------------------------------------------------------------- ROUGE-L


RECALL_BETA = 1.2  # weight of recall


def rouge_l(items: Sequence[CaptionPair]) -> float:
    """Return ROUGE-L in [0, 1], the mean over the tokenized caption pairs."""
    return sum(map(_rouge_l, items)) / len(items)


def _rouge_l(item: CaptionPair) -> float:
    # An empty caption is one empty word, which equals another one.
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
    """Return the length of the longest common subsequence of two word lists.

    Source: Hyyro, "Bit-parallel LCS-length computation revisited", 2004.
    """
    # Of each word its positions, one bit per word of `first`.
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
