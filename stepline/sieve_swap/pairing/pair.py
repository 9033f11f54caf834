"""Pairs of videos and documents that share a title word and enough content words (section 4.2, eq. 5).

    token-IoU     |A and R| / |A or R|     A: content words of a transcript, R: those of a document, both as sets
    token-recall  |A and R| / |R|          or / |A|: the paper does not say whose words it is a share of

Eq. 5 as printed has a malformed set-builder; it is read as "some document shares at least one title word". Nothing
is compared pairwise. An inverted index gives the documents that share a title word, ranked by size, so that the sizes
that could reach the thresholds are one slice of each list. Of these the commonest words are counted as bits; where
that count plus all rare words could do, the rare words are counted too. The result is exactly the pairwise loop's.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.sieve_swap.pairing.common_words import CommonWords
from stepline.sieve_swap.pairing.word_sets import Numbers, Words, WordSets
from stepline.sieve_swap.settings import PairingSettings

SLACK = 1e-6  # so that rounding never drops a pair that is exactly at a threshold

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
        self._document = np.argsort(sizes, kind="stable").astype(np.int32)  # rank -> document
        self._sizes = sizes[self._document].astype(np.int32)  # ascending
        rank = np.empty(len(sizes), dtype=np.int32)
        rank[self._document] = np.arange(len(sizes), dtype=np.int32)
        self._title_starts, self._title_ranks = _inverted(titles, rank, vocabulary)
        owners = np.repeat(rank, np.diff(contents.starts)).astype(np.int32)
        self._common = CommonWords(owners, contents.words, len(sizes), vocabulary)
        rare = np.flatnonzero(self._common.bit[contents.words] < 0)
        self._rare_starts, self._rare_words = _grouped(owners[rare], contents.words[rare], len(sizes))
        self._rare_sizes = np.diff(self._rare_starts).astype(np.uint16)
        self._present = np.zeros(vocabulary, dtype=bool)

    def pairs(self, title: Words, content: Words, size: int, settings: PairingSettings) -> Pairs:
        """Return the documents that go with one video.

        title, content: numbers of the video's words, each once. size: how many content words it has, with those that
        no document has.
        """
        ranks = self._sharing_a_title_word(title, size, settings)
        touched = len(ranks)
        common = self._common.shared(content, ranks)
        likely = common + self._rare_sizes[ranks] >= self._needed(ranks, size, settings)
        ranks, places = np.unique(ranks[likely], return_index=True)  # one that shares two title words comes twice
        rare, looked_at = self._rare_shared(content, ranks)
        shared = common[likely][places] + rare
        sizes = self._sizes[ranks]
        whole = sizes if settings.recall_of == "document" else np.full(len(ranks), size)
        iou = shared / np.maximum(1, size + sizes - shared)
        recall = shared / np.maximum(1, whole)
        kept = np.flatnonzero((iou >= settings.iou) & (recall >= settings.recall))
        documents = self._document[ranks[kept]].astype(np.int64)
        order = np.argsort(documents)
        return Pairs(documents[order], iou[kept][order], recall[kept][order], touched + looked_at)

    def all_pairs(self, titles: WordSets, contents: WordSets, settings: PairingSettings) -> Iterator[Pairs]:
        """Yield the pairs of each video in turn."""
        sizes = contents.sizes
        for video in range(len(titles)):
            yield self.pairs(titles[video], contents[video], int(sizes[video]), settings)

    def _sharing_a_title_word(self, title: Words, size: int, settings: PairingSettings) -> Words:
        """Return the ranks that share a title word and have a size that could do, once for each word shared."""
        low, high = self._ranks_of_likely_size(size, settings)
        lists = [self._title_ranks[self._title_starts[word] : self._title_starts[word + 1]] for word in title]
        cuts = [ranks[slice(*np.searchsorted(ranks, (low, high)))] for ranks in lists]
        return np.concatenate([np.empty(0, dtype=np.int32), *cuts])

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

    def _needed(self, ranks: Words, size: int, settings: PairingSettings) -> npt.NDArray[np.float32]:
        """Return how many words each document must share to reach both thresholds, a trifle less for rounding."""
        sizes = self._sizes[ranks].astype(np.float32)
        by_iou = np.float32(settings.iou / (1 + settings.iou)) * (sizes + np.float32(size))
        by_recall = np.float32(settings.recall) * (sizes if settings.recall_of == "document" else np.float32(size))
        needed: npt.NDArray[np.float32] = np.maximum(by_iou, by_recall) * np.float32(1 - SLACK) - np.float32(SLACK)
        return needed

    def _rare_shared(self, content: Words, ranks: Words) -> tuple[Numbers, int]:
        """Return how many rare words each document shares with a video, and how many were looked at."""
        starts = self._rare_starts[ranks]
        lengths = self._rare_starts[ranks + 1] - starts
        ends = np.cumsum(lengths)
        count = int(ends[-1]) if len(ends) else 0
        places = np.arange(count) + np.repeat(starts - (ends - lengths), lengths)
        self._present[content] = True
        seen = np.concatenate([[0], np.cumsum(self._present[self._rare_words[places]])])
        self._present[content] = False
        return seen[ends] - seen[ends - lengths], count


def _grouped(owners: Words, words: Words, count: int) -> tuple[Numbers, Words]:
    """Return the words by owner: starts (count + 1,) and words."""
    order = np.argsort(owners, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))]).astype(np.int64)
    return starts, words[order]


def _inverted(titles: WordSets, rank: Words, vocabulary: int) -> tuple[Numbers, Words]:
    """Return the ranks of the documents that have each word in their title, ascending: starts (V + 1,), ranks."""
    owners = np.repeat(rank, np.diff(titles.starts))
    order = np.lexsort((owners, titles.words))
    counts = np.bincount(titles.words, minlength=vocabulary)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), owners[order]
