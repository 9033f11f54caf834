"""Pairs of videos and documents that share a title word and enough content words (section 4.2, eq.
5).

    token-IoU     |A and R| / |A or R|     A: content words of a transcript, R: those of a document, both as sets
    token-recall  |A and R| / |R|          or / |A|: the paper does not say whose words it is a share of

Eq. 5 as printed has a malformed set-builder; it is read as "some document shares at least one title
word". Nothing is compared pairwise: which document has which word is a sparse matrix, and its
product with the words of a batch of videos counts the words that each shares with each. The result
is exactly the pairwise loop's. Sets of words are numbers in two flat arrays (WordSets), so that
millions of them need neither objects nor time. `threshold_table` gives what each pair of thresholds
would keep: the paper's figure 7a.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

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

    starts: (N + 1,) int64; words: (sum of sizes,) int32. sizes counts words that have no number as
    well.
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
        """Return the sets of lists of numbers; repeats fall together, each UNKNOWN counts as a word
        of its own."""
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


# videos whose counts are held at once: a byte a document each, where no document has 256 words
BATCH = 64

Ratios = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pairs:
    """The documents of one video: numbers (P,) ascending, iou (P,), recall (P,)."""

    documents: Numbers
    iou: Ratios
    recall: Ratios

    def __len__(self) -> int:
        return len(self.documents)

    def split(self, settings: PairingSettings) -> str | None:
        """Return "validation" or "train", by the best pair; None where there is no pair."""
        if not len(self):
            return None
        return "validation" if float(self.iou.max()) >= settings.validation_iou else "train"


class PairFinder:
    """Documents made ready for pairing. titles, contents: the words of each document's title and of
    its steps."""

    def __init__(self, titles: WordSets, contents: WordSets, vocabulary: int) -> None:
        self._sizes = contents.sizes
        self._titles, self._contents = (_incidence(sets, vocabulary) for sets in (titles, contents))

    def all_pairs(
        self, titles: WordSets, contents: WordSets, settings: PairingSettings
    ) -> Iterator[Pairs]:
        """Yield the pairs of each video in turn."""
        sizes = contents.sizes
        of_transcript = settings.recall_of == "transcript"
        # a first sieve by recall; both rules are applied exactly to what is left
        enough = (
            0
            if of_transcript
            else np.floor(settings.recall * self._sizes).astype(self._contents.dtype)[:, None]
        )
        for start in range(0, len(titles), BATCH):
            videos = range(start, min(start + BATCH, len(titles)))
            named = _shared(self._titles, [titles[video] for video in videos])
            shared = _shared(self._contents, [contents[video] for video in videos])
            likely = np.ascontiguousarray(((named > 0) & (shared >= enough)).T)
            for row, video in enumerate(videos):
                documents = np.flatnonzero(likely[row])
                both, whole = shared[documents, row].astype(np.int64), self._sizes[documents]
                iou = both / np.maximum(1, sizes[video] + whole - both)
                recall = both / np.maximum(1, sizes[video] if of_transcript else whole)
                kept = (iou >= settings.iou) & (recall >= settings.recall)
                yield Pairs(documents[kept], iou[kept], recall[kept])


def _incidence(sets: WordSets, vocabulary: int) -> sparse.csr_array:
    """Return which set has which word, (N, V), in the least type of number that can count the words
    of a set."""
    kind = np.min_scalar_type(int(np.diff(sets.starts).max(initial=1)))
    return sparse.csr_array(
        (np.ones(len(sets.words), kind), sets.words, sets.starts), shape=(len(sets), vocabulary)
    )


def _shared(
    documents: sparse.csr_array, videos: Sequence[Words]
) -> npt.NDArray[np.unsignedinteger]:
    """Return how many words each document shares with each video, (N, videos)."""
    has = np.zeros((documents.shape[1], len(videos)), dtype=documents.dtype)
    for column, words in enumerate(videos):
        has[words, column] = 1
    return np.asarray(documents @ has)


IOU_THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
RECALL_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


@dataclass(frozen=True)
class ThresholdRow:
    """What is kept where token-IoU >= iou and token-recall >= recall: videos, documents, and pairs
    of them."""

    iou: float
    recall: float
    videos: int
    documents: int
    pairs: int


def threshold_table(
    found: Iterable[Pairs],
    ious: Sequence[float] = IOU_THRESHOLDS,
    recalls: Sequence[float] = RECALL_THRESHOLDS,
) -> list[ThresholdRow]:
    """Return a row for each pair of thresholds; `found` must have been paired at thresholds as low
    as the least."""
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
