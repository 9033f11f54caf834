"""ROUGE-L as pycocoevalcap reports it: the longest common subsequence of words, recall weighted above precision.

Source: Lin, ACL 2004. Differs as the caption scorer does: with several references the best precision and the best
recall are taken, which may come from different ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stepline.evaluate.captions import Item, require_items

BETA = 1.2  # weight of recall


@dataclass(frozen=True)
class RougeScores:
    """corpus: the mean of the items, in [0, 1]. items: one score each."""

    corpus: float
    items: tuple[float, ...]


def rouge_l(items: Sequence[Item]) -> RougeScores:
    """Return ROUGE-L of tokenised captions. Raises DatasetError without items or references."""
    require_items(items)
    scores = tuple(_score(item) for item in items)
    return RougeScores(sum(scores) / len(scores), scores)


def _score(item: Item) -> float:
    hypothesis = item.hypothesis.split(" ")  # an empty caption is one empty word, which equals another one
    precision = recall = 0.0
    for reference in item.references:
        words = reference.split(" ")
        common = common_subsequence(words, hypothesis)
        precision = max(precision, common / len(hypothesis))
        recall = max(recall, common / len(words))
    if not precision or not recall:
        return 0.0
    return (1.0 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    One bit a word of `first`, one step a word of `second`, so that long captions stay quick.
    Source: Hyyro, "Bit-parallel LCS-length computation revisited", 2004.
    """
    places: dict[str, int] = {}
    for index, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << index
    everything = (1 << len(first)) - 1
    open_bits = everything  # a zero marks where the subsequence grows
    for word in second:
        matched = open_bits & places.get(word, 0)
        open_bits = (open_bits + matched | open_bits - matched) & everything
    return len(first) - open_bits.bit_count()
