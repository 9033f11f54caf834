"""Amounts in front of a thing, as they are said: "a cup and a half of", "two to three cloves of".

Numbers, and units of mass, volume and length, are those of `stepline.writing.quantities`. Here are
also what people count by (a can, a clove, a pinch, a sheet), and where the name of the thing begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stepline.text.narration.words import word_set
from stepline.writing.quantities import UNIT_KINDS, VAGUE_UNITS, number_at

# What people count or measure things by without a scale, in the singular.
COUNT_UNITS: Final = word_set(
    """
    can tin clove pinch slice stick sheet piece bunch handful splash dash drop bottle packet sachet
    pack package jar bag box carton tub tube roll stalk sprig rib knob drizzle glug dollop scoop
    spoonful ladleful bowlful capful strip cube squeeze head bulb ear dab blob length block bar
    square pair bucket sack shot dusting coat
    """
)
CONTAINER_WORDS: Final = word_set(
    "can tin bottle jar bag box carton tub tube bucket roll board block"
)
# Names of these come before the unit as well: "two garlic cloves".
UNITS_BEHIND_NAME: Final = word_set("clove slice stick stalk sprig rib sheet cube")
SIZE_WORDS: Final = word_set(
    """
    good big large small little medium nice generous heaped heaping level rounded scant whole full
    wee tiny huge proper great more extra fluid single fresh
    """
)
LENGTH_PIECES: Final = word_set("piece strip length knob bit")
ARTICLE_WORDS: Final = word_set("a an another")
# "the glass of water", "each slice of bread" speak of one that is there
NOT_BEFORE_UNIT: Final = word_set("the that this your my our his her its each every any no of - by")
# "20 percent", "2 of them", "180 degrees", "1 / 3" count no things
NOT_AFTER_COUNT: Final = ("of", "degrees", "percent", "%", "°", "/")
MEASURED_KINDS: Final = word_set("mass volume length")


@dataclass(frozen=True)
class StatedAmount:
    """How much is said, and where.

    low, high: the number or range.
    unit: "" for a bare count.
    begin, end: its tokens, and where the name begins.
    is_article: "a" alone, which counts one thing but hardly says so.
    """

    low: float
    high: float
    unit: str
    begin: int
    end: int
    is_article: bool = False


def amount_at(words: Sequence[str], place: int) -> StatedAmount | None:
    """Return the amount of something that begins at a lower-case token, None where none does.

    Times, degrees, per cent, and sizes ("a two-inch strip") do not count: they are not amounts of a
    thing.
    """
    # A number, or an article in its place.
    number = _number(words, place)
    if number is None:
        return None
    (low, high), after = number
    if high <= 0:
        return None
    is_written = words[place][:1].isdigit()
    is_article = words[place] in ARTICLE_WORDS and after == place + 1
    # A unit behind it, past words of size: "two heaped tablespoons".
    unit_place = _past(words, after, SIZE_WORDS | ARTICLE_WORDS | {"of", "the", "-"})
    unit = _unit(words, unit_place, is_written=is_written)
    if unit is None:
        # A bare count, unless it counts hours, degrees or parts.
        unit_word = _word_at(words, unit_place)
        is_other = unit_word in UNIT_KINDS and (is_written or unit_word not in VAGUE_UNITS)
        if is_other or _word_at(words, after) in NOT_AFTER_COUNT:
            return None
        return StatedAmount(low, high, "", place, after, is_article)
    name, kind, after = unit
    # "a cup and a half of"
    if list(words[after : after + 3]) == ["and", "a", "half"]:
        low += 0.5
        high += 0.5
        after += 3
    # A length is an amount only of something: "a metre of rope".
    if kind == "length":
        if _word_at(words, after) in LENGTH_PIECES:
            after += 1
        if _word_at(words, after) != "of":
            return None
    return StatedAmount(low, high, name, place, after)


def singular(word: str) -> str:
    """Return the singular of a unit that people count by: cloves, pinches, halves."""
    for ending in ("es", "s"):
        stem = word.removesuffix(ending)
        if stem != word and stem in COUNT_UNITS:
            return stem
    return word


def _number(words: Sequence[str], place: int) -> tuple[tuple[float, float], int] | None:
    word = words[place]
    if list(words[place : place + 2]) == ["a", "couple"]:
        return (2.0, 2.0), place + 2
    if word == "couple":
        return (2.0, 2.0), place + 1
    if word in ("dozen", "third", "second", "zero"):
        return None
    if _is_bare_unit(words, place):
        return (1.0, 1.0), place
    number = number_at(words, place)
    if number is not None:
        return number
    if word in ARTICLE_WORDS:
        return (1.0, 1.0), place + 1
    return None


def _is_bare_unit(words: Sequence[str], place: int) -> bool:
    """Return whether a unit is without a number: "salt, pepper, teaspoon of thyme"."""
    word = words[place]
    is_unit = word in COUNT_UNITS
    if word in UNIT_KINDS:
        kind, _ = UNIT_KINDS[word]
        is_unit = is_unit or kind in ("mass", "volume")
    if not is_unit or word in VAGUE_UNITS or word.endswith("s"):
        return False
    if _word_at(words, place + 1) != "of":
        return False
    return _word_at(words, place - 1) not in NOT_BEFORE_UNIT


def _unit(words: Sequence[str], place: int, *, is_written: bool) -> tuple[str, str, int] | None:
    """Return the name and the kind of the unit at a token, and the place after it."""
    word = _word_at(words, place)
    if word in UNIT_KINDS and (is_written or word not in VAGUE_UNITS):
        kind, factor = UNIT_KINDS[word]
        if kind in MEASURED_KINDS:
            after = place + 1
            # the full stop of "oz."
            if _word_at(words, after) == ".":
                after += 1
            return _first_name(kind, factor), kind, after
    if singular(word) in COUNT_UNITS:
        return singular(word), "count", place + 1
    return None


def _first_name(kind: str, factor: float) -> str:
    return next(name for name, unit in UNIT_KINDS.items() if unit == (kind, factor))


def _past(words: Sequence[str], place: int, small: frozenset[str]) -> int:
    """Return the place after at most two small words."""
    for _ in range(2):
        if _word_at(words, place) in small:
            place += 1
    return place


def _word_at(words: Sequence[str], place: int) -> str:
    if 0 <= place < len(words):
        return words[place]
    return ""
