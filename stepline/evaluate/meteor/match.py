"""Find every way in which words and phrases of two captions can match (METEOR's four modules)."""

from typing import NamedTuple

from stepline.errors import DatasetError
from stepline.evaluate.meteor.sentence import Sentence

EXACT, STEM, SYNONYM, PARAPHRASE = range(4)
# candidate matches of one pair; a repeated word gives the product of its counts. The search takes about a second for
# so many, where the official program takes minutes.
MOST_CANDIDATES = 30_000


class Match(NamedTuple):
    """Words [start, start + length) of the reference against [other, other + other_length) of the hypothesis."""

    module: int
    start: int
    length: int
    other: int
    other_length: int


def candidates(hypothesis: Sentence, reference: Sentence) -> list[list[Match]]:
    """Return the possible matches by the reference word they start at, in the order in which the search tries them.

    Raises DatasetError for a pair with more than MOST_CANDIDATES of them.
    """
    _require_few(hypothesis, reference)
    found: list[list[Match]] = [[] for _ in reference.items]
    same = _exact(hypothesis, reference, found)
    if not same:
        _related(hypothesis, reference, found)
        _paraphrases(hypothesis, reference, found)
    return found


def _require_few(hypothesis: Sentence, reference: Sentence) -> None:
    if len(hypothesis) * len(reference) <= MOST_CANDIDATES:
        return
    counts = (len(places) * len(hypothesis.words.get(text, ())) for text, places in reference.words.items())
    if sum(counts) > MOST_CANDIDATES:
        raise DatasetError(
            f"captions of {len(hypothesis)} and {len(reference)} words repeat each other too often for METEOR "
            f"(over {MOST_CANDIDATES} possible word matches); shorten the longer one"
        )


def _exact(hypothesis: Sentence, reference: Sentence, found: list[list[Match]]) -> bool:
    """Add equal words; tell whether the captions are equal, for which no other module is asked."""
    for start, word in enumerate(reference.items):
        for other in hypothesis.words.get(word.text, ()):
            found[start].append(Match(EXACT, start, 1, other, 1))
    return len(hypothesis) == len(reference) and hypothesis.words == reference.words


def _related(hypothesis: Sentence, reference: Sentence, found: list[list[Match]]) -> None:
    """Add different words with one stem, then different words with a synonym set in common."""
    items = hypothesis.items
    for start, word in enumerate(reference.items):
        for other in hypothesis.stems.get(word.stem, ()):
            if items[other].text != word.text:
                found[start].append(Match(STEM, start, 1, other, 1))
        if word.synsets.isdisjoint(hypothesis.synsets):
            continue
        for other, item in enumerate(items):
            if item.text != word.text and not word.synsets.isdisjoint(item.synsets):
                found[start].append(Match(SYNONYM, start, 1, other, 1))


def _paraphrases(hypothesis: Sentence, reference: Sentence, found: list[list[Match]]) -> None:
    """Add phrases that the table joins, looked up from the reference and then from the hypothesis.

    A pair that the table lists both ways is added twice, as the program does; the search and the score are the same,
    but its words no longer count as matched in one way only.
    """
    for start, length, paraphrases in reference.starts:
        for number in _listed(paraphrases, hypothesis):
            other_length, others = hypothesis.reached[number]
            found[start].extend(Match(PARAPHRASE, start, length, other, other_length) for other in others)
    for other, other_length, paraphrases in hypothesis.starts:
        for number in _listed(paraphrases, reference):
            length, starts = reference.reached[number]
            for start in starts:
                found[start].append(Match(PARAPHRASE, start, length, other, other_length))


def _listed(paraphrases: dict[int, int], sentence: Sentence) -> list[int]:
    """Return the paraphrases that stand in a sentence, in the table's order."""
    shared = paraphrases.keys() & sentence.reached.keys()
    return sorted(shared, key=paraphrases.__getitem__) if len(shared) > 1 else list(shared)
