"""Pairs of videos and documents that share a title word and enough content words (section 4.2, eq. 5).

    token-IoU     |A and R| / |A or R|     A: content words of a transcript, R: those of a document, both as sets
    token-recall  |A and R| / |R|          or / |A|: the paper does not say whose words it is a share of

Eq. 5 as printed has a malformed set-builder; it is read as "some document shares at least one title word". Nothing
is compared pairwise: an inverted index gives the documents that share a title word, ranked by size, so that the sizes
that could reach the thresholds are one slice of each list; then the rarest words go first, and a document falls out
as soon as it misses more words than it may. The result is exactly that of the pairwise loop.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.sieve_swap.pairing.word_sets import Numbers, Words, WordSets
from stepline.sieve_swap.settings import PairingSettings

RAREST = 16      # words of a document, the rarest first, that are looked at before all of them
LOOKS = 4        # of these between two clearings of the candidates
SLACK = 1e-9     # so that rounding never drops a pair that is exactly at a threshold

Ratios = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pairs:
    """The documents of one video: numbers (P,) ascending, iou (P,), recall (P,). touched: list entries looked at."""

    documents: Numbers
    iou: Ratios
    recall: Ratios
    touched: int = 0

    def __len__(self) -> int:
        return len(self.documents)

    def split(self, settings: PairingSettings) -> str | None:
        """Return "validation" or "train", by the best pair; None where there is no pair."""
        if not len(self):
            return None
        return "validation" if float(self.iou.max()) >= settings.validation_iou else "train"


class Pairing:
    """Documents made ready for pairing. titles, contents: the words of each document's title and of its steps."""

    def __init__(self, titles: WordSets, contents: WordSets, vocabulary: int) -> None:
        sizes = contents.sizes
        self._document = np.argsort(sizes, kind="stable").astype(np.int32)   # rank -> document
        self._sizes = sizes[self._document].astype(np.int32)                 # ascending
        self._starts, self._words = _ranked(contents, self._document, vocabulary)
        self._rare = _first_columns(self._starts, self._words, vocabulary)
        self._title_starts, self._title_ranks = _inverted(titles, self._document, vocabulary)
        self._absent = np.ones(vocabulary + 1, dtype=np.uint8)
        self._absent[vocabulary] = 0                                         # padding is never missed

    def pairs(self, title: Words, content: Words, size: int, settings: PairingSettings) -> Pairs:
        """Return the documents that go with one video.

        title, content: numbers of the video's words, each once. size: how many content words it has, with those that
        no document has.
        """
        ranks, touched = self._sharing_a_title_word(title, size, settings)
        self._absent[content] = 0
        try:
            ranks, seen = self._not_missing_too_much(ranks, size, settings)
            shared = self._shared(ranks)
        finally:
            self._absent[content] = 1
        sizes = self._sizes[ranks]
        whole = sizes if settings.recall_of == "document" else np.full(len(ranks), size)
        iou = shared / np.maximum(1, size + sizes - shared)
        recall = shared / np.maximum(1, whole)
        kept = np.flatnonzero((iou >= settings.iou) & (recall >= settings.recall))
        documents = self._document[ranks[kept]].astype(np.int64)
        order = np.argsort(documents)
        return Pairs(documents[order], iou[kept][order], recall[kept][order], touched + seen)

    def all_pairs(self, titles: WordSets, contents: WordSets, settings: PairingSettings) -> Iterator[Pairs]:
        """Yield the pairs of each video in turn."""
        sizes = contents.sizes
        for video in range(len(titles)):
            yield self.pairs(titles[video], contents[video], int(sizes[video]), settings)

    def _sharing_a_title_word(self, title: Words, size: int, settings: PairingSettings) -> tuple[Words, int]:
        """Return the ranks that share a title word and have a size that could do, each once, and how many were read."""
        low, high = self._ranks_of_likely_size(size, settings)
        slices = [self._title_ranks[self._title_starts[word] : self._title_starts[word + 1]] for word in title]
        slices = [ranks[np.searchsorted(ranks, low) : np.searchsorted(ranks, high)] for ranks in slices]
        touched = sum(map(len, slices))
        if not touched:
            return np.empty(0, dtype=np.int32), 0
        slices = [ranks for ranks in slices if len(ranks)]
        return (slices[0] if len(slices) == 1 else np.unique(np.concatenate(slices))), touched

    def _ranks_of_likely_size(self, size: int, settings: PairingSettings) -> tuple[int, int]:
        """Return the ranks [low, high) whose documents have neither too few words for the thresholds nor too many."""
        least = settings.iou * size
        most = size / settings.iou if settings.iou else np.inf
        if settings.recall_of == "transcript":
            least = max(least, settings.recall * size)
        elif settings.recall:
            most = min(most, size / settings.recall)
        low, high = np.searchsorted(self._sizes, [least - SLACK, most + SLACK], side="left")
        return int(low), int(high)

    def _not_missing_too_much(self, ranks: Words, size: int, settings: PairingSettings) -> tuple[Words, int]:
        """Return the ranks whose rarest words do not yet rule them out, and how many words were looked at."""
        sizes = self._sizes[ranks]
        whole = sizes if settings.recall_of == "document" else size
        needed = np.maximum(settings.recall * whole, settings.iou / (1 + settings.iou) * (size + sizes))
        spare = np.floor(sizes - needed + SLACK).astype(np.int16)
        seen = 0
        for first in range(0, RAREST, LOOKS):
            for column in self._rare[first : first + LOOKS]:
                spare -= self._absent[column[ranks]]
            seen += LOOKS * len(ranks)
            kept = spare >= 0
            ranks, spare = ranks[kept], spare[kept]
        return ranks, seen

    def _shared(self, ranks: Words) -> Numbers:
        """Return how many words each of the ranked documents shares with the marked ones."""
        starts = self._starts[ranks]
        lengths = self._starts[ranks + 1] - starts
        ends = np.cumsum(lengths)
        places = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
        owner = np.repeat(np.arange(len(ranks)), lengths)
        present = self._absent[self._words[places]] == 0
        return np.bincount(owner[present], minlength=len(ranks)).astype(np.int64)


def _ranked(contents: WordSets, document: Words, vocabulary: int) -> tuple[Numbers, Words]:
    """Return the sets in the order of their ranks, the rarest word of each first: starts (N + 1,), words."""
    frequency = np.bincount(contents.words, minlength=vocabulary)
    lengths = np.diff(contents.starts)
    rank = np.empty(len(document), dtype=np.int32)
    rank[document] = np.arange(len(document), dtype=np.int32)
    order = np.lexsort((contents.words, frequency[contents.words], np.repeat(rank, lengths)))
    starts = np.concatenate([[0], np.cumsum(lengths[document])]).astype(np.int64)
    return starts, contents.words[order]


def _first_columns(starts: Numbers, words: Words, vocabulary: int) -> list[Words]:
    """Return the first, second, ... word of every set, `vocabulary` where it has fewer: RAREST arrays of (N,)."""
    columns = []
    for place in range(RAREST):
        column = np.full(len(starts) - 1, vocabulary, dtype=np.int32)
        has = np.flatnonzero(np.diff(starts) > place)
        column[has] = words[starts[has] + place]
        columns.append(column)
    return columns


def _inverted(titles: WordSets, document: Words, vocabulary: int) -> tuple[Numbers, Words]:
    """Return the ranks of the documents that have each word in their title, ascending: starts (V + 1,), ranks."""
    rank = np.empty(len(document), dtype=np.int32)
    rank[document] = np.arange(len(document), dtype=np.int32)
    owners = np.repeat(rank, np.diff(titles.starts))
    order = np.lexsort((owners, titles.words))
    counts = np.bincount(titles.words, minlength=vocabulary)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), owners[order]
