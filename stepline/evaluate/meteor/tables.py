"""METEOR's tables: the paraphrases, and the English word lists out of its jar.

The official paraphrase file lists 5.3 million pairs of phrases in 270 MB of text. Here it is
compiled once into sorted arrays that are read from disk as they are needed. A phrase is a 64-bit
hash, mixed from the hashes of its words (h = h x HASH_FACTOR + word, for each word). The table is a
few arrays in the user's cache: known phrases, where the paraphrases of each phrase start, the
paraphrases, and a bitmap. The bitmap recognizes most unknown phrases immediately. Two different
phrases share a hash with a chance of about 1 in 10 million over the whole table.

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
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.errors import ModelError
from stepline.evaluate.meteor.words import ALWAYS_KEPT, KEPT_BEFORE_NUMBERS
from stepline.evaluate.ptb import KNOWN_DIGESTS, METEOR_JAR, PARAPHRASE_TABLE, official_file
from stepline.files.atomic_files import cache_folder
from stepline.files.digests import hash_text

logger = logging.getLogger(__name__)

MAX_PHRASE_WORDS = 7  # of the table, either side
_ARRAY_FORMAT = 2  # of the compiled arrays
HASH_MASK = (1 << 64) - 1
HASH_FACTOR = 0x9E3779B97F4A7C15  # odd, 2^64 / golden ratio: spreads the words over the hash
_ARRAY_NAMES = ("phrases", "starts", "paraphrases", "targets", "bitmap")
# bits of a hash that pick its bit of the bitmap: 16 MiB, 2 % of unknown phrases pass
_BITMAP_BITS = 27
_MAX_CACHED_PARAPHRASES = 1 << 20  # in memory, before they are forgotten


class ParaphraseTable:
    """METEOR's paraphrase table: phrase hash -> hashes of its paraphrases.

    It is stored in a folder, as the arrays phrases, starts, paraphrases, targets and bitmap:
        phrases: (N,) sorted hashes. The paraphrases of phrases[n] are
            paraphrases[starts[n] : starts[n + 1]], in the official order.
        targets: every hash in `paraphrases`, sorted, once.
        bitmap: (2^24,) uint8, a bit for each known hash.
    """

    def __init__(self, folder: Path) -> None:
        arrays = [np.load(folder / f"{part}.npy", mmap_mode="r") for part in _ARRAY_NAMES]
        self._phrases, self._starts, self._paraphrases, self._targets, bitmap = arrays
        self._bitmap = memoryview(bitmap)
        self._entries: dict[int, tuple[dict[int, int], bool]] = {}
        self._cached_paraphrases = 0

    def filter_plausible(self, hashes: list[int]) -> list[int]:
        """Return the indices in `hashes` of the phrases that may be in the table.

        All other phrases are certainly not in the table.
        """
        # The first 24 bits of a hash choose a byte, the next three a bit in it.
        bitmap, byte, bit = self._bitmap, 67 - _BITMAP_BITS, 64 - _BITMAP_BITS
        return [
            index
            for index, phrase in enumerate(hashes)
            if bitmap[phrase >> byte] >> (phrase >> bit & 7) & 1
        ]

    def find_paraphrases(self, phrase: int) -> tuple[dict[int, int], bool]:
        """Return the paraphrases of a phrase, and whether the phrase is itself a paraphrase of
        another.

        The paraphrases are given as hash -> rank in the official order.

        phrase: 64-bit hash of the phrase.
        """
        entry = self._entries.get(phrase)
        if entry is None:
            if self._cached_paraphrases > _MAX_CACHED_PARAPHRASES:
                self._entries.clear()
                self._cached_paraphrases = 0
            ranks: dict[int, int] = {}
            index = _find(self._phrases, phrase)
            if index is not None:
                hashes = self._paraphrases[self._starts[index] : self._starts[index + 1]]
                ranks = {paraphrase: rank for rank, paraphrase in enumerate(hashes.tolist())}
            entry = self._entries[phrase] = (ranks, _find(self._targets, phrase) is not None)
            self._cached_paraphrases += 1 + len(ranks)
        return entry


def _find(hashes: npt.NDArray[np.uint64], phrase: int) -> int | None:
    """Return the index of a hash in sorted hashes, or None if it is missing."""
    index = int(np.searchsorted(hashes, np.uint64(phrase)))
    return index if index < len(hashes) and int(hashes[index]) == phrase else None


@cache
def load_phrases() -> ParaphraseTable:
    """Return the paraphrase table, compiled on first use (about 20 s).

    Raises ModelError when the table is missing or damaged, or the cache cannot be written.
    """
    digest = KNOWN_DIGESTS[PARAPHRASE_TABLE]
    compiled = cache_folder() / f"meteor-paraphrases-{_ARRAY_FORMAT}-{digest[:16]}"
    if not compiled.is_dir():
        source = official_file(PARAPHRASE_TABLE)
        logger.info("compiling METEOR's paraphrase table into %s, once", compiled)
        _compile_table(source, compiled)
    return ParaphraseTable(compiled)


def _compile_table(source: Path, target: Path) -> None:
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    # Written elsewhere and renamed, so that no process reads half a table.
    try:
        partial.mkdir(parents=True, exist_ok=True)
        for part, values in zip(_ARRAY_NAMES, _table_arrays(source), strict=True):
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


def _table_arrays(source: Path) -> tuple[npt.NDArray[np.generic], ...]:
    phrase_hashes = array("Q")
    paraphrase_hashes = array("Q")
    hash_cached_word = cache(hash_text)
    last_phrase, phrase_hash = "", 0  # lines of one phrase follow each other
    with gzip.open(source, "rt", encoding="utf-8", newline="\n") as lines:
        # probability, phrase, paraphrase
        for _, phrase, paraphrase in zip(lines, lines, lines, strict=True):
            if phrase != last_phrase:
                last_phrase, phrase_hash = phrase, _hash_phrase(phrase, hash_cached_word)
            phrase_hashes.append(phrase_hash)
            paraphrase_hashes.append(_hash_phrase(paraphrase, hash_cached_word))
    # Sorted by phrase: its paraphrases begin where its hash first comes.
    all_phrases = np.frombuffer(phrase_hashes, dtype=np.uint64)
    paraphrases = np.frombuffer(paraphrase_hashes, dtype=np.uint64)
    order = np.argsort(all_phrases, kind="stable")  # keeps the official order within a phrase
    phrases, starts = np.unique(all_phrases[order], return_index=True)
    targets = np.unique(paraphrases)
    # A bit for every phrase and every paraphrase.
    bits = np.zeros(1 << _BITMAP_BITS, dtype=bool)
    for hashes in (phrases, targets):
        bits[hashes >> np.uint64(64 - _BITMAP_BITS)] = True
    bitmap = np.packbits(bits, bitorder="little")
    return phrases, np.append(starts, len(all_phrases)), paraphrases[order], targets, bitmap


def _hash_phrase(phrase: str, hash_one_word: Callable[[str], int]) -> int:
    number = 0
    for word in phrase.split():
        number = (number * HASH_FACTOR + hash_one_word(word)) & HASH_MASK
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
    """METEOR's English word lists.

    Attributes:
        synsets: word -> ids of its WordNet synonym sets, joined by spaces.
        bases: irregular form -> its base words ("ate" -> "eat").
        function_words: words that weigh less than content words.
        prefixes: abbreviation whose full stop is not split off -> ALWAYS_KEPT or
            KEPT_BEFORE_NUMBERS.
    """

    synsets: dict[str, str]
    bases: dict[str, list[str]]
    function_words: frozenset[str]
    prefixes: dict[str, int]

    def synonym_sets(self, word: str) -> frozenset[str]:
        """Return the ids of the WordNet synonym sets of a word and of its base form.

        Two words with a common synonym set are synonyms.
        """
        forms = self.bases.get(word) or [self._base_form(word)]
        sets = [self.synsets.get(form, "").split() for form in (word, *forms)]
        return frozenset().union(*sets)

    def _base_form(self, word: str) -> str:
        """Return the base form by regular endings, as WordNet's morphology does, "" if none is
        known.
        """
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
def load_lexicon() -> Lexicon:
    """Return the word lists in METEOR's jar. Raises ModelError for a missing or damaged jar."""
    names = (
        "synonym/english.synsets",
        "synonym/english.exceptions",
        "function/english.words",
        "nonbreaking/english.prefixes",
    )
    with zipfile.ZipFile(official_file(METEOR_JAR)) as archive:
        synonyms, exceptions, functions, prefixes = (
            archive.read(name).decode("utf-8").splitlines() for name in names
        )
    # A line is a word, the next one its synonym sets.
    synonym_sets = dict(zip(synonyms[::2], synonyms[1::2], strict=True))
    # A line is a base, the next one its irregular forms.
    bases: dict[str, list[str]] = {}
    for base, forms in zip(exceptions[::2], exceptions[1::2], strict=True):
        for form in forms.split():
            bases.setdefault(form, []).append(base)
    # A line is an abbreviation, perhaps with the mark of those before numbers.
    abbreviations = {}
    for line in prefixes:
        prefix, *marks = line.split() or ["#"]
        if not prefix.startswith("#"):
            is_numeric = marks[:1] == ["#NUMERIC_ONLY#"]
            abbreviations[prefix] = KEPT_BEFORE_NUMBERS if is_numeric else ALWAYS_KEPT
    return Lexicon(synonym_sets, bases, frozenset(functions), abbreviations)
