"""METEOR's tables: the paraphrases, and the English word lists out of its jar.

The official paraphrase file lists 5.3 million pairs of phrases in 270 MB of text. Here it is
compiled once into sorted arrays that are read from disk as they are needed. A phrase is a 64-bit
number, mixed from its words' numbers (n = n x HASH_FACTOR + word, for each word). The table is a
few arrays in the user's cache: known phrases, where each one's list starts, the lists, and a
bitmap. The bitmap recognises most unknown phrases immediately. Two different phrases share a number
with a chance of about 1 in 10 million over the whole table.

The word lists are synonyms, irregular forms, function words and abbreviations.
"""

import gzip
import logging
import os
import shutil
import zipfile
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.errors import ModelError
from stepline.evaluate.meteor.words import ALWAYS_KEPT, KEPT_BEFORE_NUMBERS
from stepline.evaluate.ptb.automaton import (
    KNOWN_DIGESTS,
    METEOR_JAR,
    PARAPHRASE_TABLE,
    fingerprint,
    official_file,
)
from stepline.files.atomic_files import cache_folder

logger = logging.getLogger(__name__)

MAX_PHRASE_WORDS = 7  # of the table, either side
_ARRAY_FORMAT = 2  # of the compiled arrays
WORD_BITS = (1 << 64) - 1
HASH_FACTOR = (
    0x9E3779B97F4A7C15  # odd, 2^64 / golden ratio: spreads the words' places over the number
)
_ARRAY_NAMES = ("phrases", "starts", "paraphrases", "targets", "bitmap")
# bits of a number that pick its place in the bitmap: 16 MiB, 2 % of unknown phrases pass
_BITMAP_BITS = 27
_MAX_CACHED_PARAPHRASES = 1 << 20  # in memory, before they are forgotten


def word_number(word: str) -> int:
    """Return the 64-bit number of one word."""
    return int.from_bytes(
        blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


class Phrases:
    """The paraphrase table: which phrases have paraphrases, and which.

    phrases: (N,) sorted. The paraphrases of phrases[n] are paraphrases[starts[n] : starts[n + 1]],
    in the official order.
    targets: every number in `paraphrases`, sorted, once.
    bitmap: (2^24,) uint8, a bit for each known number.
    """

    def __init__(self, folder: Path) -> None:
        arrays = [np.load(folder / f"{part}.npy", mmap_mode="r") for part in _ARRAY_NAMES]
        self._phrases, self._starts, self._paraphrases, self._targets, bitmap = arrays
        self._bitmap = memoryview(bitmap)
        self._entries: dict[int, tuple[dict[int, int], bool]] = {}
        self._cached = 0

    def plausible(self, numbers: list[int]) -> list[int]:
        """Return the places in `numbers` of phrases that may be in the table. The others certainly
        are not."""
        # The first 24 bits of a number choose a byte, the next three a bit in it.
        bitmap, byte, bit = self._bitmap, 67 - _BITMAP_BITS, 64 - _BITMAP_BITS
        return [
            position
            for position, number in enumerate(numbers)
            if bitmap[number >> byte] >> (number >> bit & 7) & 1
        ]

    def entry(self, number: int) -> tuple[dict[int, int], bool]:
        """Return a phrase's paraphrases (number -> place in the official order), and whether it is
        one itself."""
        entry = self._entries.get(number)
        if entry is None:
            if self._cached > _MAX_CACHED_PARAPHRASES:
                self._entries.clear()
                self._cached = 0
            listed = self._listed(number)
            positions = {paraphrase: position for position, paraphrase in enumerate(listed)}
            entry = self._entries[number] = (positions, _find(self._targets, number) is not None)
            self._cached += 1 + len(listed)
        return entry

    def _listed(self, number: int) -> list[int]:
        index = _find(self._phrases, number)
        if index is None:
            return []
        listed: list[int] = self._paraphrases[
            self._starts[index] : self._starts[index + 1]
        ].tolist()
        return listed


def _find(numbers: npt.NDArray[np.uint64], number: int) -> int | None:
    """Return where a number is in sorted ones, or None where it is not."""
    index = int(np.searchsorted(numbers, np.uint64(number)))
    return index if index < len(numbers) and int(numbers[index]) == number else None


@cache
def load_phrases(folder: Path | None = None) -> Phrases:
    """Return the paraphrase table of the installed package or of `folder`, compiled on first use
    (about 20 s).

    Raises ModelError when the table is missing or damaged, or the cache cannot be written.
    """
    source = official_file(PARAPHRASE_TABLE, folder)
    digest = KNOWN_DIGESTS[PARAPHRASE_TABLE] if folder is None else fingerprint(source)
    compiled = cache_folder() / f"meteor-paraphrases-{_ARRAY_FORMAT}-{digest[:16]}"
    if not compiled.is_dir():
        fingerprint(source)
        logger.info("compiling METEOR's paraphrase table into %s, once", compiled)
        _compile(source, compiled)
    return Phrases(compiled)


def _compile(source: Path, target: Path) -> None:
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    # Written elsewhere and renamed, so that no one reads half a table.
    try:
        partial.mkdir(parents=True, exist_ok=True)
        for part, values in zip(_ARRAY_NAMES, _arrays(source), strict=True):
            np.save(partial / f"{part}.npy", values)
        if not target.is_dir():
            partial.rename(target)
    except (OSError, EOFError, ValueError) as error:
        if not target.is_dir():  # another process may have been faster
            raise ModelError(
                f"{target}: cannot be made from {source} ({error}); "
                "set STEPLINE_CACHE to a writable folder"
            ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _arrays(source: Path) -> tuple[npt.NDArray[np.generic], ...]:
    phrase_numbers = array("Q")
    paraphrase_numbers = array("Q")
    number_of = cache(word_number)
    last, number = "", 0  # phrases come in groups
    with gzip.open(source, "rt", encoding="utf-8", newline="\n") as lines:
        # probability, phrase, paraphrase
        for _, phrase, paraphrase in zip(lines, lines, lines, strict=True):
            if phrase != last:
                last, number = phrase, _phrase_number(phrase, number_of)
            phrase_numbers.append(number)
            paraphrase_numbers.append(_phrase_number(paraphrase, number_of))
    # Sorted by phrase: a phrase's list begins where its number first comes.
    own = np.frombuffer(phrase_numbers, dtype=np.uint64)
    others = np.frombuffer(paraphrase_numbers, dtype=np.uint64)
    order = np.argsort(own, kind="stable")  # keeps the official order within a phrase
    phrases, starts = np.unique(own[order], return_index=True)
    targets = np.unique(others)
    # A bit for every phrase and every paraphrase.
    bits = np.zeros(1 << _BITMAP_BITS, dtype=bool)
    for numbers in (phrases, targets):
        bits[numbers >> np.uint64(64 - _BITMAP_BITS)] = True
    return (
        phrases,
        np.append(starts, len(own)),
        others[order],
        targets,
        np.packbits(bits, bitorder="little"),
    )


def _phrase_number(phrase: str, number_of: Callable[[str], int]) -> int:
    number = 0
    for word in phrase.split():
        number = (number * HASH_FACTOR + number_of(word)) & WORD_BITS
    return number


# ---------------------------------------------------------------- word lists


# regular endings and what replaces them, in the order in which they are tried (nouns, verbs,
# adjectives)
_REGULAR_ENDINGS = (
    ("s", ""),
    ("ses", "s"),
    ("xes", "x"),
    ("zes", "z"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("men", "man"),
    ("ies", "y"),
    ("s", ""),
    ("ies", "y"),
    ("es", "e"),
    ("es", ""),
    ("ed", "e"),
    ("ed", ""),
    ("ing", "e"),
    ("ing", ""),
    ("er", ""),
    ("est", ""),
    ("er", "e"),
    ("est", "e"),
)


@dataclass(frozen=True)
class Lexicon:
    """synsets: word -> ids of its synonym sets, in one line. bases: irregular form -> its base
    words."""

    synsets: dict[str, str]
    bases: dict[str, list[str]]
    function_words: frozenset[str]
    prefixes: dict[str, int]

    def synonym_sets(self, word: str) -> frozenset[str]:
        """Return the synonym sets of a word and of its base form. Two words with one in common are
        synonyms."""
        forms = self.bases.get(word)
        if forms is None:
            forms = [self._base(word)]
        return self._sets(word).union(*map(self._sets, forms))

    def _sets(self, word: str) -> frozenset[str]:
        return frozenset(self.synsets.get(word, "").split())

    def _base(self, word: str) -> str:
        """Return the base form by the regular endings, as WordNet's morphology does, or "" when no
        base form is known."""
        if word.endswith("ss") or len(word) <= 2:
            return word
        # appended to what is found, as the program does
        added = "ful" if word.endswith("ful") else ""
        for ending, new in _REGULAR_ENDINGS:
            if word.endswith(ending):
                base = word[: len(word) - len(ending)] + new
                if base in self.synsets:
                    return base + added
        return ""


@cache
def load_lexicon(folder: Path | None = None) -> Lexicon:
    """Return the word lists of the installed jar, or of the one in `folder`.

    Raises ModelError when the jar is missing, damaged or not METEOR 1.5.
    """
    jar = official_file(METEOR_JAR, folder)
    fingerprint(jar)
    try:
        with zipfile.ZipFile(jar) as archive:
            synonyms = _read_lines(archive, "synonym/english.synsets")
            exceptions = _read_lines(archive, "synonym/english.exceptions")
            functions = _read_lines(archive, "function/english.words")
            prefixes = _read_lines(archive, "nonbreaking/english.prefixes")
    except (KeyError, OSError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        fault = f"{jar}: not METEOR 1.5 ({error})"
        raise ModelError(f"{fault}; pip install 'stepline[evaluate]'") from error
    # a line is a word, the next one its synonym sets
    synonym_sets = dict(zip(synonyms[::2], synonyms[1::2], strict=True))
    # a line is a base, the next one its irregular forms
    bases: dict[str, list[str]] = {}
    for base, forms in zip(exceptions[::2], exceptions[1::2], strict=True):
        for form in forms.split():
            bases.setdefault(form, []).append(base)
    # a line is an abbreviation, perhaps with the mark of those before numbers
    abbreviations = {}
    for line in prefixes:
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        kind = ALWAYS_KEPT
        if parts[1:2] == ["#NUMERIC_ONLY#"]:
            kind = KEPT_BEFORE_NUMBERS
        abbreviations[parts[0]] = kind
    return Lexicon(synonym_sets, bases, frozenset(functions), abbreviations)


def _read_lines(archive: zipfile.ZipFile, name: str) -> list[str]:
    return archive.read(name).decode("utf-8").splitlines()
