"""n-grams of tokenised captions, counted once for BLEU and CIDEr."""

from collections import Counter

LONGEST = 4  # words in the longest n-gram of BLEU and CIDEr

Ngram = tuple[str, ...]


def ngrams(caption: str) -> Counter[Ngram]:
    """Return how often each n-gram of 1 to LONGEST words stands in a caption."""
    words = caption.split()
    return Counter(
        tuple(words[start : start + size]) for size in range(1, LONGEST + 1) for start in range(len(words) - size + 1)
    )
