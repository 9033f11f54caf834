"""Queries of words that no language has: how like them a text is says what it answers by chance."""

import numpy as np

MADE_QUERY_COUNT = 64  # queries of words that no language has
MADE_QUERY_SEED = 99


def made_words(count: int, seed: int) -> list[str]:
    """Return queries of one to four words that no language has, of two to four syllables each."""
    rng = np.random.default_rng(seed)

    def word() -> str:
        syllables = rng.integers(2, 5)
        letters = []
        # A consonant and a vowel per syllable.
        for choices in ("bdfgklmnprstvz", "aeiou") * syllables:
            letters.append(rng.choice(list(choices)))
        return "".join(letters)

    queries = []
    for _ in range(count):
        length = rng.integers(1, 5)
        words = [word() for _ in range(length)]
        queries.append(" ".join(words))
    return queries
