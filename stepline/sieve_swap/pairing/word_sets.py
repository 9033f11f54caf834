"""Sets of words as numbers, all in two flat arrays, so that millions of them need neither objects nor time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError

Numbers: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.int32]

UNKNOWN = -1  # number of a word that a closed vocabulary lacks


@dataclass
class Vocabulary:
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
