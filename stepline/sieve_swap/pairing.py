"""Pairs of videos and documents that share a title word and enough content words (section 4.2, eq. 5).

    token-IoU     |A and R| / |A or R|     A: content words of a transcript, R: those of a document, both as sets
    token-recall  |A and R| / |R|          or / |A|: the paper does not say whose words it is a share of

Eq. 5 as printed has a malformed set-builder. It is read as "some document shares at least one title
word". A sparse matrix says which document has which word. Its product with the words of a batch of
videos counts the shared words of each pair, so nothing is compared pairwise. The result is exactly
that of the pairwise loop. Sets of words are numbers in two flat arrays (WordSets), so that millions
of sets need neither objects nor time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy import sparse

from stepline.errors import ShapeError
from stepline.sieve_swap.settings import PairingSettings

Numbers = npt.NDArray[np.int64]
WordNumbers = npt.NDArray[np.int32]

UNKNOWN_WORD = -1  # number of a word that a closed vocabulary lacks


@dataclass
class WordVocabulary:
    """A vocabulary that numbers words in the order of their first occurrence.

    Attributes:
        numbers: word -> its number, from 0.
    """

    numbers: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers)

    def add_words(self, words: Iterable[str]) -> list[int]:
        """Return the numbers of words. New words are added to the vocabulary."""
        return [self.numbers.setdefault(word, len(self.numbers)) for word in words]

    def find_words(self, words: Iterable[str]) -> list[int]:
        """Return the numbers of words, UNKNOWN_WORD for a word outside the vocabulary."""
        return [self.numbers.get(word, UNKNOWN_WORD) for word in words]


@dataclass(frozen=True)
class WordSets:
    """N sets of words, stored as word numbers in one flat array.

    Set i is words[starts[i]:starts[i + 1]].

    Attributes:
        starts: (N + 1,) int64 index in `words` at which each set starts, and the end of the last
            set.
        words: (total size,) int32 word numbers, each number once per set.
        unknown_counts: (N,) number of words of each set that are outside the vocabulary.

    Raises ShapeError when the arrays do not fit together.
    """

    starts: Numbers
    words: WordNumbers
    unknown_counts: Numbers

    def __post_init__(self) -> None:
        last_start = int(self.starts[-1])
        if len(self.starts) != len(self.unknown_counts) + 1 or last_start != len(self.words):
            raise ShapeError(
                f"word sets need starts (N + 1,) ending at {len(self.words)} and unknown_counts "
                f"(N,), not {self.starts.shape} ending at {last_start} and "
                f"{self.unknown_counts.shape}"
            )

    def __len__(self) -> int:
        return len(self.unknown_counts)

    def __getitem__(self, index: int) -> WordNumbers:
        return self.words[self.starts[index] : self.starts[index + 1]]

    @property
    def sizes(self) -> Numbers:
        """Number of words in each set, words outside the vocabulary included, (N,)."""
        return np.diff(self.starts) + self.unknown_counts

    @staticmethod
    def from_lists(lists: Iterable[Sequence[int]]) -> "WordSets":
        """Return the sets of several lists of word numbers.

        A repeated number counts once. Each UNKNOWN_WORD counts as a different word.
        """
        rows = [np.empty(0, np.int32)]
        unknown_counts = []
        for numbers in lists:
            row = np.unique(np.asarray(numbers, dtype=np.int32))
            rows.append(row[row >= 0])
            unknown_counts.append(numbers.count(UNKNOWN_WORD))
        starts = np.cumsum(list(map(len, rows)), dtype=np.int64)
        return WordSets(starts, np.concatenate(rows), np.asarray(unknown_counts, dtype=np.int64))

    @staticmethod
    def concat(parts: Sequence["WordSets"]) -> "WordSets":
        """Return the sets of several collections, one collection after another."""
        sizes = [np.zeros(1, np.int64)]
        words = [np.empty(0, np.int32)]
        unknown_counts = [np.empty(0, np.int64)]
        for part in parts:
            sizes.append(np.diff(part.starts))
            words.append(part.words)
            unknown_counts.append(part.unknown_counts)
        starts = np.cumsum(np.concatenate(sizes), dtype=np.int64)
        return WordSets(starts, np.concatenate(words), np.concatenate(unknown_counts))


# videos whose counts are in memory together: a byte per document and video, where no document has
# 256 words
BATCH_VIDEOS = 64

Ratios = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DocumentPairs:
    """The P documents that one video is paired with.

    Attributes:
        documents: (P,) numbers of the documents, ascending.
        iou: (P,) token-IoU of the transcript with each document.
        recall: (P,) token-recall of the transcript with each document.
    """

    documents: Numbers
    iou: Ratios
    recall: Ratios

    def __len__(self) -> int:
        return len(self.documents)

    def choose_split(self, settings: PairingSettings) -> str | None:
        """Return the split of the video, "validation" or "train". None: the video has no pair.

        The split depends on the greatest token-IoU of the video.
        """
        if not len(self):
            return None
        return "validation" if float(self.iou.max()) >= settings.validation_iou else "train"


class PairFinder:
    """Finds the documents of a text base that each video is paired with.

    Args:
        titles: for each document, the words of its title.
        contents: for each document, the words of its steps.
        vocabulary: number of words in the vocabulary.
    """

    def __init__(self, titles: WordSets, contents: WordSets, vocabulary: int) -> None:
        self._sizes = contents.sizes
        self._titles = _incidence_matrix(titles, vocabulary)
        self._contents = _incidence_matrix(contents, vocabulary)

    def find_pairs(
        self, titles: WordSets, contents: WordSets, settings: PairingSettings
    ) -> Iterator[DocumentPairs]:
        """Yield the paired documents of each video in turn.

        Args:
            titles: for each video, the words of its title.
            contents: for each video, the words of its transcript.
            settings: thresholds on token-IoU and token-recall.
        """
        is_of_transcript = settings.recall_of == "transcript"
        video_count = len(titles)
        video_sizes = contents.sizes
        # a first sieve by recall, both rules are applied exactly to what is left
        least: Numbers | int = 0
        if not is_of_transcript:
            least = np.floor(settings.recall * self._sizes).astype(self._contents.dtype)[:, None]
        for start in range(0, video_count, BATCH_VIDEOS):
            videos = range(start, min(start + BATCH_VIDEOS, video_count))
            # words that each document shares with each video, (documents, videos)
            title_words = _shared_word_counts(self._titles, [titles[video] for video in videos])
            words = _shared_word_counts(self._contents, [contents[video] for video in videos])
            is_likely = (title_words > 0) & (words >= least)
            likely_rows = np.ascontiguousarray(is_likely.T)
            for column, video in enumerate(videos):
                documents = np.flatnonzero(likely_rows[column])
                shared = words[documents, column].astype(np.int64)
                video_size = video_sizes[video]
                sizes = self._sizes[documents]
                iou = shared / np.maximum(1, video_size + sizes - shared)
                denominator = video_size if is_of_transcript else sizes
                recall = shared / np.maximum(1, denominator)
                is_pair = (iou >= settings.iou) & (recall >= settings.recall)
                yield DocumentPairs(
                    documents=documents[is_pair], iou=iou[is_pair], recall=recall[is_pair]
                )


def _incidence_matrix(sets: WordSets, vocabulary: int) -> sparse.csr_array:
    """Return the sparse matrix (N, V) that is 1 where set n holds word v.

    Its integer type is the smallest that can count the words of a set.
    """
    largest = int(np.diff(sets.starts).max(initial=1))
    ones = np.ones(len(sets.words), np.min_scalar_type(largest))
    cells = (ones, sets.words, sets.starts)
    return sparse.csr_array(cells, shape=(len(sets), vocabulary))


def _shared_word_counts(
    documents: sparse.csr_array, videos: Sequence[WordNumbers]
) -> npt.NDArray[np.unsignedinteger]:
    """Return how many words each document shares with each video, (documents, videos).

    Args:
        documents: incidence matrix (documents, V) of the documents' words.
        videos: for each video, the numbers of its words.
    """
    has_word = np.zeros((documents.shape[1], len(videos)), dtype=documents.dtype)
    for column, words in enumerate(videos):
        has_word[words, column] = 1
    return np.asarray(documents @ has_word)


IOU_THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
RECALL_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


@dataclass(frozen=True)
class ThresholdRow:
    """How many videos, documents and pairs one combination of thresholds keeps (figure 7a).

    Attributes:
        iou: least token-IoU of a pair.
        recall: least token-recall of a pair.
        videos: number of videos that keep a pair.
        documents: number of documents that keep a pair.
        pairs: number of kept pairs of a video and a document.
    """

    iou: float
    recall: float
    videos: int
    documents: int
    pairs: int


def threshold_table(
    videos: Sequence[DocumentPairs], ious: Sequence[float], recalls: Sequence[float]
) -> list[ThresholdRow]:
    """Return how many videos, documents and pairs are kept, one row per combination of thresholds.

    Args:
        videos: the pairs of each video, found with the lowest thresholds.
        ious: thresholds on token-IoU.
        recalls: thresholds on token-recall.
    """
    # all pairs, one after another
    iou = np.concatenate([np.empty(0), *(pairs.iou for pairs in videos)])
    recall = np.concatenate([np.empty(0), *(pairs.recall for pairs in videos)])
    document = np.concatenate([np.empty(0, np.int64), *(pairs.documents for pairs in videos)])
    video = np.repeat(np.arange(len(videos)), list(map(len, videos)))
    # What each two thresholds would keep.
    rows = []
    for least_iou, least_recall in product(ious, recalls):
        is_pair = (iou >= least_iou) & (recall >= least_recall)
        videos_kept, documents_kept = (len(np.unique(ids[is_pair])) for ids in (video, document))
        pair_count = int(is_pair.sum())
        rows.append(ThresholdRow(least_iou, least_recall, videos_kept, documents_kept, pair_count))
    return rows
