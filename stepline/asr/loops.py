"""Finds words that a recogniser repeats because it is stuck, not because anybody says them."""

import re
from collections.abc import Sequence

LONGEST_PHRASE = 12  # words of a phrase that may repeat
REPEATS = 4  # times in a row from which a phrase is a loop; people say a thing three times
REPEATS_OF_A_WORD = 6  # times for a single word: "no, no, no, no" is speech


def looped(words: Sequence[str]) -> set[int]:
    """Return the indices of the words that lie in a loop: one phrase said again and again without a break."""
    plain = [re.sub(r"[^\w']+", "", word.lower()) for word in words]
    return {index for phrase in range(1, LONGEST_PHRASE + 1) for index in _runs(plain, phrase)}


def _runs(words: Sequence[str], phrase: int) -> set[int]:
    """Return the indices in runs where each word equals the one `phrase` words before it, long enough to be a loop."""
    needed = (REPEATS_OF_A_WORD if phrase == 1 else REPEATS) * phrase
    found: set[int] = set()
    start = 0
    for index in range(phrase, len(words) + 1):
        if index < len(words) and words[index] == words[index - phrase]:
            continue
        if index - start >= needed:
            found.update(range(start, index))
        start = index - phrase + 1
    return found
