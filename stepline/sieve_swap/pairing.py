"""Pairs of videos and documents that share a title word and enough content words (section 4.2, eq. 5).

    token-IoU     |A and R| / |A or R|     A: content words of a transcript, R: those of a document, both as sets
    token-recall  |A and R| / |R|          or / |A|: the paper does not say whose words it is a share of

Eq. 5 as printed has a malformed set-builder; it is read as "some document shares at least one title word". Nothing
is compared pairwise. An inverted index gives the documents that share a title word, ranked by size, so that the sizes
that could reach the thresholds are one slice of each list. Of these the commonest words are counted as bits, 64 words
at a time (CommonWords); where that count plus all rare words could do, the rare words are counted too. The result is
exactly the pairwise loop's. Sets of words are numbers in two flat arrays (WordSets), so that millions of them need
neither objects nor time. `threshold_table` gives what each pair of thresholds would keep: the paper's figure 7a.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.sieve_swap.settings import PairingSettings

Numbers: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.int32]

UNKNOWN = -1  # number of a word that a closed vocabulary lacks


@dataclass
class WordVocabulary:
    """Words and their numbers, in the order in which they came."""

    numbers: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers)

    def add(self, words: Iterable[str]) -> list[int]:
        """Return the numbers of words, giving new ones their own."""
        return [self.numbers.setdefault(word, len(self.numbers)) for word in words]

    def find(self, words: Iterable[str]) -> list[int]:
        """Return the numbers of words; UNKNOWN where a word never came."""
        return [self.numbers.get(word, UNKNOWN) for word in words]


@dataclass(frozen=True)
class WordSets:
    """N sets: the words of set i are words[starts[i]:starts[i + 1]], each once.

    starts: (N + 1,) int64; words: (sum of sizes,) int32. sizes counts words that have no number as well.
    """

    starts: Numbers
    words: Words
    unknown: Numbers

    def __post_init__(self) -> None:
        if len(self.starts) != len(self.unknown) + 1 or int(self.starts[-1]) != len(self.words):
            raise ShapeError(
                f"word sets need starts (N + 1,) ending at {len(self.words)} and unknown (N,), "
                f"not {self.starts.shape} ending at {int(self.starts[-1])} and {self.unknown.shape}"
            )

    def __len__(self) -> int:
        return len(self.unknown)

    def __getitem__(self, index: int) -> Words:
        return self.words[self.starts[index] : self.starts[index + 1]]

    @property
    def sizes(self) -> Numbers:
        """Words of each set, (N,)."""
        return np.diff(self.starts) + self.unknown

    @staticmethod
    def of(lists: Iterable[Sequence[int]]) -> "WordSets":
        """Return the sets of lists of numbers; repeats fall together, each UNKNOWN counts as a word of its own."""
        rows, unknown = [], []
        for numbers in lists:
            row = np.unique(np.asarray(numbers, dtype=np.int32))
            unknown.append(sum(number == UNKNOWN for number in numbers))
            rows.append(row[row >= 0])
        starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        words = np.concatenate(rows) if rows else np.empty(0, np.int32)
        return WordSets(starts, words.astype(np.int32), np.asarray(unknown, dtype=np.int64))

    @staticmethod
    def join(parts: Sequence["WordSets"]) -> "WordSets":
        """Return several collections one after another, as one."""
        sizes = np.concatenate([[0], *(np.diff(part.starts) for part in parts)])
        words = np.concatenate([np.empty(0, np.int32), *(part.words for part in parts)])
        unknown = np.concatenate([np.empty(0, np.int64), *(part.unknown for part in parts)])
        return WordSets(np.cumsum(sizes).astype(np.int64), words, unknown)


Bits = npt.NDArray[np.uint64]

COMMON = 1024  # commonest words that become bits: 128 bytes a set, and nearly all words of most recipes
WORD = 64  # bits of a machine word
BYTE = np.array([bin(number).count("1") for number in range(256)], dtype=np.uint8)

EVEN_BYTES, LANES = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0001000100010001)
ONE_BYTE, THREE_LANES = np.uint64(8), np.uint64(48)


class CommonWords:
    """Sets over the commonest words. bit: (V,) the bit of each word, -1 for a rare one."""

    def __init__(self, owners: Words, words: Words, sets: int, vocabulary: int) -> None:
        frequency = np.bincount(words, minlength=vocabulary)
        commonest = np.argsort(-frequency, kind="stable")[:COMMON]
        self.bit = np.full(vocabulary, -1, dtype=np.int32)
        self.bit[commonest] = np.arange(len(commonest), dtype=np.int32)
        self._rows = np.zeros((sets, COMMON // WORD), dtype=np.uint64)
        here = np.flatnonzero(self.bit[words] >= 0)
        self._mark(self._rows, owners[here], self.bit[words[here]])

    def shared(self, words: Words, places: Words) -> Numbers:
        """Return how many of these words each of the sets at `places` has, rare words aside: (len(places),)."""
        bits = self.bit[words]
        mask = np.zeros((1, COMMON // WORD), dtype=np.uint64)
        self._mark(mask, np.zeros(len(words), dtype=np.int32)[bits >= 0], bits[bits >= 0])
        held = self._rows[places]  # (P, COMMON / 64)
        np.bitwise_and(held, mask, out=held)
        return _row_sums(_ones(held).view(np.uint64))

    @staticmethod
    def _mark(rows: Bits, owners: Words, bits: Words) -> None:
        np.bitwise_or.at(rows, (owners, bits // WORD), np.uint64(1) << (bits % WORD).astype(np.uint64))


def _row_sums(counts: Bits) -> Numbers:
    """Return the sum of the bytes of each row, (P, n) -> (P,); summing them as bytes takes ten times as long."""
    pairs = (counts & EVEN_BYTES) + ((counts >> ONE_BYTE) & EVEN_BYTES)  # four lanes of 16 bits
    lanes = (pairs * LANES) >> THREE_LANES  # their sum
    total: Numbers = lanes[:, 0].astype(np.int64)
    for column in range(1, lanes.shape[1]):
        total += lanes[:, column].astype(np.int64)
    return total


def _ones(values: Bits) -> npt.NDArray[np.uint8]:
    """Return the number of set bits of each value."""
    if hasattr(np, "bitwise_count"):
        return np.asarray(np.bitwise_count(values), dtype=np.uint8)
    return count_bits_by_table(values)


def count_bits_by_table(values: Bits) -> npt.NDArray[np.uint8]:
    """Return the number of set bits of each value by a table of bytes, for a numpy that cannot count them."""
    ones = BYTE[values[..., None].view(np.uint8)]
    return np.asarray(ones.sum(axis=-1), dtype=np.uint8)


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


class PairFinder:
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


IOUS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
RECALLS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


@dataclass(frozen=True)
class ThresholdRow:
    """What is kept where token-IoU >= iou and token-recall >= recall: videos, documents, and pairs of them."""

    iou: float
    recall: float
    videos: int
    documents: int
    pairs: int


def threshold_table(
    found: Iterable[Pairs], ious: Sequence[float] = IOUS, recalls: Sequence[float] = RECALLS
) -> list[ThresholdRow]:
    """Return a row for each pair of thresholds; `found` must have been paired at thresholds as low as the least."""
    listed = list(found)
    iou = np.concatenate([np.empty(0), *(pairs.iou for pairs in listed)])
    recall = np.concatenate([np.empty(0), *(pairs.recall for pairs in listed)])
    document = np.concatenate([np.empty(0, np.int64), *(pairs.documents for pairs in listed)])
    video = np.repeat(np.arange(len(listed)), [len(pairs) for pairs in listed])
    rows = []
    for least_iou in ious:
        for least_recall in recalls:
            kept = (iou >= least_iou) & (recall >= least_recall)
            videos, documents = len(np.unique(video[kept])), len(np.unique(document[kept]))
            rows.append(ThresholdRow(least_iou, least_recall, videos, documents, int(kept.sum())))
    return rows


__all__ = ["PairFinder", "Pairs", "ThresholdRow", "WordSets", "WordVocabulary", "threshold_table"]
