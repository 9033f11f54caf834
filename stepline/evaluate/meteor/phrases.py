"""METEOR's paraphrase table, compiled once into sorted arrays that are read from disk as they are needed.

The official file lists 5.3 million pairs of phrases in 270 MB of text. Here a phrase is a 64-bit number, mixed from its
words' numbers, and the table three arrays in the user's cache: known phrases, where each one's list starts, the lists.
Two different phrases share a number with a chance of about 1 in 10 million over the whole table.
"""

import gzip
import logging
import os
import shutil
from array import array
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.errors import ModelError
from stepline.evaluate.official import KNOWN, PARAPHRASES, fingerprint, official_file
from stepline.models import cache_folder

logger = logging.getLogger(__name__)

LONGEST = 7  # words in the longest phrase of the table, either side
_FORMAT = 1  # of the compiled arrays
_WORD_BITS = (1 << 64) - 1
_MIX = 0x9E3779B97F4A7C15  # odd, 2^64 / golden ratio: spreads the words' places over the number
_PARTS = ("phrases", "starts", "paraphrases", "targets")

Numbers = npt.NDArray[np.uint64]


def word_number(word: str) -> int:
    """Return the 64-bit number of one word."""
    return int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def longer(number: int, word: int) -> int:
    """Return the number of a phrase with one more word."""
    return (number * _MIX + word) & _WORD_BITS


class Phrases:
    """The paraphrase table: which phrases have paraphrases, and which.

    phrases: (N,) sorted; the paraphrases of phrases[n] are paraphrases[starts[n] : starts[n + 1]], in the official
    order. targets: every number in `paraphrases`, sorted, once.
    """

    def __init__(self, folder: Path) -> None:
        arrays = [np.load(folder / f"{part}.npy", mmap_mode="r") for part in _PARTS]
        self._phrases, self._starts, self._paraphrases, self._targets = arrays
        self._known: dict[int, dict[int, int]] = {}

    def having(self, numbers: list[int]) -> list[bool]:
        """Tell which phrase numbers have paraphrases."""
        return _contains(self._phrases, numbers)

    def reached(self, numbers: list[int]) -> list[bool]:
        """Tell which phrase numbers are a paraphrase of something."""
        return _contains(self._targets, numbers)

    def of(self, number: int) -> dict[int, int]:
        """Return the paraphrases of a phrase: number -> place in the official order; empty for an unknown phrase."""
        found = self._known.get(number)
        if found is None:
            index = int(np.searchsorted(self._phrases, np.uint64(number)))
            listed: list[int] = []
            if index < len(self._phrases) and int(self._phrases[index]) == number:
                listed = self._paraphrases[int(self._starts[index]) : int(self._starts[index + 1])].tolist()
            found = {paraphrase: place for place, paraphrase in enumerate(listed)}
            self._known[number] = found
        return found


def _contains(table: Numbers, numbers: list[int]) -> list[bool]:
    wanted = np.array(numbers, dtype=np.uint64)
    places = np.searchsorted(table, wanted)
    places[places == len(table)] = 0
    return (table[places] == wanted).tolist()  # type: ignore[no-any-return]


@cache
def load_phrases(folder: Path | None = None) -> Phrases:
    """Return the paraphrase table of the installed package or of `folder`, compiled on first use (about 20 s).

    Raises ModelError when the table is missing or damaged, or the cache cannot be written.
    """
    source = official_file(PARAPHRASES, folder)
    digest = KNOWN[PARAPHRASES] if folder is None else fingerprint(source)
    compiled = cache_folder() / f"meteor-paraphrases-{_FORMAT}-{digest[:16]}"
    if not compiled.is_dir():
        fingerprint(source)
        logger.info("compiling METEOR's paraphrase table into %s, once", compiled)
        _compile(source, compiled)
    return Phrases(compiled)


def _compile(source: Path, target: Path) -> None:
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True, exist_ok=True)
        for part, values in zip(_PARTS, _arrays(source), strict=True):
            np.save(partial / f"{part}.npy", values)
        if not target.is_dir():
            partial.rename(target)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        if not target.is_dir():  # another process may have been faster
            raise ModelError(
                f"{target}: cannot be made from {source} ({error}); set STEPLINE_CACHE to a writable folder"
            ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _arrays(source: Path) -> tuple[Numbers, npt.NDArray[np.int64], Numbers, Numbers]:
    references, paraphrases = array("Q"), array("Q")
    for reference, paraphrase in _pairs(source):
        references.append(reference)
        paraphrases.append(paraphrase)
    left, right = np.frombuffer(references, dtype=np.uint64), np.frombuffer(paraphrases, dtype=np.uint64)
    phrases, starts = np.unique(left, return_index=False, return_counts=False), None
    order = np.argsort(left, kind="stable")  # keeps the official order within a phrase
    starts = np.searchsorted(left[order], phrases)
    return phrases, np.append(starts, len(left)).astype(np.int64), right[order], np.unique(right)


def _pairs(source: Path) -> Iterator[tuple[int, int]]:
    """Give the numbers of (phrase, paraphrase); the file repeats: probability, phrase, paraphrase."""
    numbers: dict[str, int] = {}
    with gzip.open(source, "rt", encoding="utf-8", newline="\n") as lines:
        while len(block := list(islice(lines, 3))) == 3:
            yield _number(block[1], numbers), _number(block[2], numbers)


def _number(line: str, numbers: dict[str, int]) -> int:
    number = 0
    for word in line.split():
        known = numbers.get(word)
        if known is None:
            known = numbers[word] = word_number(word)
        number = longer(number, known)
    return number
