"""Near-duplicate detection of lines: a key of their normalised words, and a MinHash sketch.

Lines that differ in more than light words ("and", "it", a plural) are never the same. Nor are lines
whose numbers, units or negations differ: "bake 30 minutes" is not "bake 40 minutes", salt is not
pepper.
Source of the sketch: Broder 1997 (MinHash), Indyk and Motwani 1998 (bands).
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from stepline.writing.extractive.english import word_set

Hashes = npt.NDArray[np.uint64]

BAND_COUNT = 6  # two lines are compared when one band of their sketches agrees:
MINIMA_PER_BAND = 2  # at a likeness of 0.7 that misses 2 pairs in 100, at 0.9 hardly any

# The one name of a unit, then the other spellings of it.
UNIT_SPELLINGS = """
tbsp: tablespoon tablespoons tbsps tbs tbl tblsp
tsp: teaspoon teaspoons tsps
cup: cups
oz: ounce ounces
lb: pound pounds lbs
g: gram grams gr
kg: kilogram kilograms kilo kilos
ml: milliliter milliliters millilitre millilitres
litre: liter liters litres
qt: quart quarts qts
pt: pint pints pts
inch: inches
cm: centimeter centimeters centimetre centimetres
mm: millimeter millimeters millimetre millimetres
second: seconds sec secs
minute: minutes min mins
hour: hours hr hrs
day: days
fahrenheit: f
celsius: centigrade
"""
UNIT_OF_SPELLING: dict[str, str] = {}
for _line in UNIT_SPELLINGS.split("\n"):
    _unit, _, _spellings = _line.partition(":")
    UNIT_OF_SPELLING |= dict.fromkeys(_spellings.split(), _unit)

NEGATION_WORDS = word_set(
    "no not never without none neither nor cannot avoid don dont doesn isn won t n"
)
NUMBER_WORDS = word_set(
    """
    one two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty
    sixty hundred half halves third thirds quarter quarters dozen once twice double triple
    """
)
# what two lines that are the same share
EXACT_WORDS = NEGATION_WORDS | NUMBER_WORDS | frozenset(UNIT_OF_SPELLING.values())
IGNORED_WORDS = word_set("a an the degrees degree deg")  # words that change nothing
# Words in which near-duplicates may differ. Any other word, a plural apart, must be in both.
FILLER_WORDS = word_set(
    """
    and then it its them they this that these those to of your you is are be will in into on onto
    for at with there just until till from
    """
)

_WORD_OR_NUMBER = re.compile(r"\d+(?:[./]\d+)*|[^\W\d_]+")
# "1½" becomes "1 1/2". NFKC alone would glue the two, with a slash of its own.
_FRACTION_CHARS = {
    ord(c): f" {unicodedata.normalize('NFKC', c).replace(chr(0x2044), '/')} "
    for c in "¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
}


@dataclass(frozen=True)
class Sketch:
    """MinHash sketch of N lines.

    bands: (N, BANDS)
    pairs: the hashes of all lines' word pairs, one line after another, sorted in each
    ends: (N,), where each line's pairs end
    """

    bands: Hashes
    pairs: npt.NDArray[np.uint32]
    ends: npt.NDArray[np.int64]


def normalised_words(text: str) -> tuple[str, ...]:
    """Return the words that a line is compared by: folded, units in one spelling, articles left
    out."""
    folded = unicodedata.normalize("NFKC", text.translate(_FRACTION_CHARS)).casefold()
    words = (
        UNIT_OF_SPELLING.get(word, word)
        for word in _WORD_OR_NUMBER.findall(folded.replace("°c", " celsius"))
    )
    return tuple(word for word in words if word not in IGNORED_WORDS)


def line_key(text: str) -> int:
    """Return 64 bits that are equal for lines of the same normal words, in the same order."""
    return text_key(" ".join(normalised_words(text)))


def text_key(text: str) -> int:
    """Return 64 bits of a text's BLAKE2b."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


_word_hash = lru_cache(maxsize=1 << 18)(text_key)


def must_match_tokens(words: Sequence[str]) -> tuple[str, ...]:
    """Return what two lines must share to be the same: numbers, units and negations in order, then
    all other words.

    The other words are sorted, without light ones and plurals.
    """
    ordered_tokens = [word for word in words if word[0].isdigit() or word in EXACT_WORDS]
    others = {_singular(word) for word in words if word not in FILLER_WORDS}
    return (*ordered_tokens, "|", *sorted(others))


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def sketch(texts: Sequence[str]) -> Sketch:
    """Return the MinHash sketch of lines. Each line's sketch is independent of the others."""
    lines = [normalised_words(text) for text in texts]
    must_match_hashes = np.array(
        [text_key(" ".join(must_match_tokens(words))) for words in lines], dtype=np.uint64
    )
    sets = [_word_pair_hashes(words) for words in lines]
    ends = np.cumsum(list(map(len, sets)), dtype=np.int64)
    pairs = np.concatenate([*sets, np.empty(0, dtype=np.uint32)])
    return Sketch(_band_hashes(pairs, ends, must_match_hashes), pairs, ends)


def jaccard(one: npt.NDArray[np.uint32], other: npt.NDArray[np.uint32]) -> float:
    """Return how much of two lines' word pairs (each sorted, unique) is shared, 0 to 1."""
    shared = len(np.intersect1d(one, other, assume_unique=True))
    return shared / max(1, len(one) + len(other) - shared)


def _word_pair_hashes(words: Sequence[str]) -> npt.NDArray[np.uint32]:
    """Return the hashes of the neighbouring words' pairs, the ends of the line counting as words:
    sorted, unique."""
    # 1 and 2 are the ends of the line.
    codes = np.array([1, *map(_word_hash, map(_singular, words)), 2], dtype=np.uint64)
    # Two factors, so that a pair differs from the same words the other way round.
    mixed = codes[:-1] * np.uint64(0x9E3779B97F4A7C15) + codes[1:] * np.uint64(0xC2B2AE3D27D4EB4F)
    return np.unique((mixed >> np.uint64(32)).astype(np.uint32))


def _band_hashes(
    pairs: npt.NDArray[np.uint32], ends: npt.NDArray[np.int64], must_match_hashes: Hashes
) -> Hashes:
    """Return (N, BANDS) hashes of MINIMA_PER_BAND minima each, mixed with the guard of the tokens
    that must match."""
    if not len(ends):
        return np.empty((0, BAND_COUNT), dtype=np.uint64)
    # reduceat needs a pair in each line, and even an empty line has one: its two ends.
    starts = np.concatenate([[0], ends[:-1]])
    # Always the same draw: sketches on disk are compared with new ones.
    rng = np.random.default_rng(1997)
    factors = rng.integers(
        1, 1 << 63, size=(BAND_COUNT, MINIMA_PER_BAND), dtype=np.uint64
    ) | np.uint64(1)
    bands = np.empty((len(ends), BAND_COUNT), dtype=np.uint64)
    for band in range(BAND_COUNT):
        # The guard is in every band, so lines with other numbers agree in none.
        mixed = must_match_hashes * np.uint64(0xD6E8FEB86659FD93)
        for depth in range(MINIMA_PER_BAND):
            mixed_hashes = (pairs.astype(np.uint64) + np.uint64(depth + 1)) * factors[band, depth]
            smallest_hashes = np.minimum.reduceat(
                mixed_hashes ^ (mixed_hashes >> np.uint64(29)), starts
            )
            mixed = (mixed ^ smallest_hashes) * np.uint64(0x9E3779B97F4A7C15)
        bands[:, band] = mixed ^ (mixed >> np.uint64(31))
    return bands
