"""Find every way in which words and phrases of two captions can match (METEOR's four modules)."""

from typing import NamedTuple

from stepline.errors import DatasetError
from stepline.evaluate.meteor.sentence import Sentence, Word

EXACT, STEM, SYNONYM, PARAPHRASE = range(4)
# Limits of one pair: words of one caption times words of the other, and possible matches (a repeated word gives the
# product of its counts). The search takes about a second at the limits, where the official program takes minutes.
MOST_WORD_PAIRS = 4_000_000
MOST_CANDIDATES = 20_000


class Match(NamedTuple):
    """Words [start, start + length) of the reference against [other, other + other_length) of the hypothesis."""

    module: int
    start: int
    length: int
    other: int
    other_length: int


def candidates(hypothesis: Sentence, reference: Sentence) -> list[list[Match]]:
    """Return the possible matches by the reference word they start at, in the order in which the search tries them.

    Raises DatasetError for captions too long, or that repeat each other too often.
    """
    if len(hypothesis) * len(reference) > MOST_WORD_PAIRS:
        raise _too_much(hypothesis, reference)
    found: list[list[Match]] = [[] for _ in reference.items]
    for module in (_exact, _related, _paraphrases):
        module(hypothesis, reference, found)
        if sum(map(len, found)) > MOST_CANDIDATES:
            raise _too_much(hypothesis, reference)
        if module is _exact and hypothesis.items == reference.items:
            break  # equal captions ask no other module
    return found


def _too_much(hypothesis: Sentence, reference: Sentence) -> DatasetError:
    return DatasetError(
        f"captions of {len(hypothesis)} and {len(reference)} words are too long, or too much alike, for METEOR "
        f"(at most {MOST_CANDIDATES} possible matches); shorten them"
    )


def _exact(hypothesis: Sentence, reference: Sentence, found: list[list[Match]]) -> None:
    """Add equal words."""
    for start, word in enumerate(reference.items):
        for other in hypothesis.words.get(word.text, ()):
            found[start].append(Match(EXACT, start, 1, other, 1))


def _related(hypothesis: Sentence, reference: Sentence, found: list[list[Match]]) -> None:
    """Add different words with one stem, then different words with a synonym set in common."""
    for text, starts in reference.words.items():
        word = reference.items[starts[0]]
        stemmed = [other for other in hypothesis.stems.get(word.stem, ()) if hypothesis.items[other].text != text]
        related = _synonyms(word, hypothesis)
        if stemmed or related:
            for start in starts:
                found[start].extend(Match(STEM, start, 1, other, 1) for other in stemmed)
                found[start].extend(Match(SYNONYM, start, 1, other, 1) for other in related)


def _synonyms(word: Word, hypothesis: Sentence) -> list[int]:
    """Return where other words stand that share a synonym set with this one."""
    if word.synsets.isdisjoint(hypothesis.synsets):
        return []
    return [
        other
        for other, item in enumerate(hypothesis.items)
        if item.text != word.text and not word.synsets.isdisjoint(item.synsets)
    ]


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
