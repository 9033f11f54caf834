"""Amounts that a text states: how much of which unit, of what; numbers as people write and say
them.

2, 1.5, 1/2, 1 1/2, ½, two, twenty five, three fifty, one and a half. Word stems are good enough to
tell that "seasoning" and "season" are one: endings cut off, no dictionary.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stepline.writing.extractive.english import word_set

Range: TypeAlias = tuple[float, float]  # least and greatest: "8 to 10" is (8, 10), "5" is (5, 5)

SMALL = {
    word: number
    for number, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
        ]
    )
}
TENS = {
    word: 10 * number
    for number, word in enumerate(
        ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], 2
    )
}
GREAT = {"hundred": 100, "thousand": 1000}
PARTS = {
    "half": 0.5,
    "halves": 0.5,
    "halve": 0.5,
    "quarter": 0.25,
    "quarters": 0.25,
    "third": 1 / 3,
    "thirds": 1 / 3,
}
DOZEN = {"dozen": 12, "dozens": 12}
BETWEEN = frozenset({"-", "–", "—", "to", "or"})

_TOKEN = re.compile(
    r"\d+(?:,\d{3})+(?:\.\d+)?|\d*\.\d+|\d+\s*/\s*\d+|\d+|[^\W\d_]+(?:'[^\W\d_]+)?|[%°\"/–—\-.,;:!?()]"
)
_DIGITS = re.compile(r"\d|\.\d")


def tokens(text: str) -> list[str]:
    """Return the lower-case words, numbers and marks of a text; "2½" becomes "2 1/2"."""
    spelt = "".join(_spelt(letter) for letter in text.lower().replace("’", "'"))
    return _TOKEN.findall(spelt)


def _spelt(letter: str) -> str:
    """Return a one-letter fraction as digits: ½ as 1/2."""
    if unicodedata.category(letter) != "No" or "FRACTION" not in unicodedata.name(letter, ""):
        return letter
    return f" {unicodedata.normalize('NFKC', letter).replace(chr(0x2044), '/')} "


def number_at(words: Sequence[str], place: int) -> tuple[Range, int] | None:
    """Return the number or range that begins at a token and the place after it; None where none
    does."""
    first = _single(words, place)
    if first is None:
        return None
    value, after = first
    if after < len(words) and words[after] in BETWEEN:
        second = _single(words, after + 1)
        if second is not None and second[0] > value:
            return (value, second[0]), second[1]
    return (value, value), after


def _single(words: Sequence[str], place: int) -> tuple[float, int] | None:
    if place >= len(words):
        return None
    found = _written(words, place) or _spoken(words, place) or _part(words, place)
    if found is None:
        return None
    value, after = found
    if after + 1 < len(words) and words[after] == "point" and SMALL.get(words[after + 1], 10) < 10:
        return value + SMALL[words[after + 1]] / 10, after + 2  # one point five
    if after < len(words) and words[after] in DOZEN:
        return value * DOZEN[words[after]], after + 1
    if (
        list(words[after : after + 2]) == ["and", "a"]
        and after + 2 < len(words)
        and words[after + 2] in PARTS
    ):
        return value + PARTS[words[after + 2]], after + 3
    if after < len(words) and words[after] in PARTS and value >= 1 and words[after] != "halve":
        return value * PARTS[words[after]], after + 1  # three quarters, two thirds
    return value, after


def _written(words: Sequence[str], place: int) -> tuple[float, int] | None:
    if not _DIGITS.match(words[place]):
        return None
    value, after = _figure(words[place]), place + 1
    # 1-1/2 is one and a half
    follows = after + 1 if after < len(words) and words[after] == "-" else after
    if (
        value is not None
        and follows < len(words)
        and "/" in words[follows]
        and "/" not in words[place]
    ):
        part = _figure(words[follows])
        if part is not None and part < 1:
            return value + part, follows + 1
    return None if value is None else (value, after)


def _figure(word: str) -> float | None:
    if "/" in word:
        over, under = word.split("/")
        return None if len(word) <= 1 or int(under) == 0 else int(over) / int(under)
    return float(word.replace(",", ""))


def _spoken(words: Sequence[str], place: int) -> tuple[float, int] | None:
    """Return a number in words: twenty five, two hundred and ten, and the oven's three fifty
    (350)."""
    if words[place] not in SMALL and words[place] not in TENS:
        return None
    value, after = _below_hundred(words, place)
    if after < len(words) and words[after] in GREAT:
        value, after = value * GREAT[words[after]], after + 1
        follows = after + 1 if after < len(words) and words[after] == "and" else after
        if follows < len(words) and (words[follows] in SMALL or words[follows] in TENS):
            rest, after = _below_hundred(words, follows)
            value += rest
    elif value < 10 and after < len(words) and words[after] in TENS:
        rest, after = _below_hundred(words, after)
        value = 100 * value + rest
    return value, after


def _below_hundred(words: Sequence[str], place: int) -> tuple[float, int]:
    if words[place] in SMALL:
        return SMALL[words[place]], place + 1
    value, after = TENS[words[place]], place + 1
    follows = after + 1 if after < len(words) and words[after] == "-" else after
    if follows < len(words) and 0 < SMALL.get(words[follows], 0) < 10:
        return value + SMALL[words[follows]], follows + 1
    return value, after


def _part(words: Sequence[str], place: int) -> tuple[float, int] | None:
    word = words[place]
    if word in ("a", "an") and place + 1 < len(words):
        if words[place + 1] in PARTS:
            return PARTS[words[place + 1]], place + 2
        if words[place + 1] in DOZEN:
            return 12, place + 2
    if word.startswith("hal") and word in PARTS:
        after = place + 3 if list(words[place + 1 : place + 3]) == ["a", "dozen"] else place + 1
        return (6, after) if after > place + 1 else (PARTS[word], after)
    if word in ("quarter", "quarters"):
        return PARTS[word], place + 1
    return None


FUNCTION = word_set(
    """
    a an the this that these those it its he she they them we us you your i my our his her their some any all each
    every both few more most other such own same so than too very just only also then now here there when where why how
    what which who whom if because as until while of at by for with about against between into through during before
    after above below to from up down in out on off over under again further once and but or nor be am is are was were
    been being have has had having do does did doing will would shall should can could may might must going gonna get
    got let want like really kind sort bit little lot well okay ok right
    """
)
ENDINGS = ("ings", "ing", "edly", "ies", "ed", "es", "s", "ly", "e")


def stem(word: str) -> str:
    """Return a lower-case word without its ending: stirring, stirred, stirs -> stir."""
    for ending in ENDINGS:
        if (
            word.endswith(ending)
            and len(word) - len(ending) >= 3
            and not (ending == "s" and word.endswith("ss"))
        ):
            word = word[: -len(ending)] + ("y" if ending == "ies" else "")
            break
    doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls"
    return word[:-1] if doubled else word.removesuffix("e")


COUNT, TEMPERATURE = "count", "temperature"

# Unit -> (kind, how many of the kind's own unit it is): ml, g, cm, s, per cent.
UNITS: dict[str, tuple[str, float]] = {
    unit: (kind, factor)
    for kind, factor, names in (
        ("volume", 1.0, "ml mil mils milliliter milliliters millilitre millilitres cc"),
        ("volume", 10.0, "cl centiliter centiliters"),
        ("volume", 100.0, "dl deciliter deciliters decilitre decilitres"),
        ("volume", 1000.0, "l liter liters litre litres"),
        ("volume", 4.929, "tsp tsps teaspoon teaspoons teaspoonful teaspoonfuls"),
        ("volume", 14.787, "tbsp tbsps tbs tb tablespoon tablespoons tablespoonful tablespoonfuls"),
        ("volume", 236.588, "cup cups cupful cupfuls c"),
        ("volume", 473.176, "pint pints pt pts"),
        ("volume", 946.353, "quart quarts qt qts"),
        ("volume", 3785.41, "gallon gallons gal"),
        ("mass", 0.001, "mg milligram milligrams"),
        ("mass", 1.0, "g gr gram grams gramme grammes"),
        ("mass", 1000.0, "kg kilo kilos kilogram kilograms"),
        ("mass", 28.35, "oz ounce ounces"),
        ("mass", 453.592, "lb lbs pound pounds"),
        ("length", 0.1, "mm millimeter millimeters millimetre millimetres"),
        ("length", 1.0, "cm centimeter centimeters centimetre centimetres"),
        ("length", 100.0, "m meter meters metre metres"),
        ("length", 2.54, 'inch inches "'),
        ("length", 30.48, "foot feet ft"),
        ("length", 91.44, "yard yards yd"),
        ("time", 1.0, "s sec secs second seconds"),
        ("time", 60.0, "min mins minute minutes"),
        ("time", 3600.0, "h hr hrs hour hours"),
        ("time", 86400.0, "day days"),
        ("time", 604800.0, "week weeks"),
        ("share", 1.0, "% percent"),
    )
    for unit in names.split()
}
# "a second" is no time
VAGUE = frozenset({"s", "sec", "second", "min", "minute", "day", "l", "m", "c", "g", "h"})
DEGREES = frozenset({"°", "degree", "degrees", "deg"})
SCALES = {"f": "F", "fahrenheit": "F", "c": "C", "celsius": "C", "centigrade": "C"}
# "C" is a cup or Celsius: 40 cups go into no bowl, fewer are degrees at a heat or beside words of
# warmth or cold.
MOST_CUPS, ROOM = 40.0, 20.0
COLD = word_set("chill cool cold fridge refrigerate refrigerator freeze freezer frozen below")
WARM = COLD | word_set(
    "warm heat preheat hot oven bake roast melt temper temperature thermometer prove proof rise"
)
BEFORE_UNIT = frozenset(
    {"-", "a", "an", "of", "the", "more", "additional", "extra", "full", "whole", "heaping"}
)
LOOK = 3  # words after a quantity among which its thing is sought
AS_UNITS_DIFFER = 0.06  # cooks' equivalents: 1 cup is 240 ml or 250, 1 oz 30 g
DEGREES_DIFFER = 6.0  # Celsius: 350 F is 180 C in every cookbook, and 176.7 by arithmetic


@dataclass(frozen=True)
class Quantity:
    """One stated amount. low, high: as stated; unit: as its name here, "" for a bare number; thing:
    stem or None."""

    low: float
    high: float
    kind: str
    unit: str
    thing: str | None

    def agrees(self, other: "Quantity") -> bool:
        """Tell whether two amounts of one kind can be the same: equal in one unit, near equal
        across units."""
        if self.kind == TEMPERATURE:
            return any(
                _same_heat(self, other, mine, theirs)
                for mine in self._scales()
                for theirs in other._scales()
            )
        if self.unit == other.unit:
            return _overlap(
                (self.low, self.high), (other.low, other.high), 1e-6 * max(1.0, self.high)
            )
        mine, theirs = self._in_own_unit(), other._in_own_unit()
        slack = 0.0 if self.kind == "time" else AS_UNITS_DIFFER
        return _overlap(mine, theirs, max(slack * max(mine[1], theirs[1]), 1e-6))

    def is_same(self, other: "Quantity") -> bool:
        """Tell whether two amounts can be the same amount of one thing; a bare count needs the same
        thing."""
        same_thing = self.thing == other.thing or (
            self.kind != COUNT and None in (self.thing, other.thing)
        )
        return self.kind == other.kind and same_thing and self.agrees(other)

    def __str__(self) -> str:
        """Return it as people write it: 2-3 cup."""
        number = f"{self.low:g}" if self.low == self.high else f"{self.low:g}-{self.high:g}"
        return f"{number} {self.unit}".strip()

    def _in_own_unit(self) -> tuple[float, float]:
        factor = UNITS[self.unit][1] if self.unit in UNITS else 1.0
        return self.low * factor, self.high * factor

    def _scales(self) -> tuple[str, ...]:
        return (self.unit,) if self.unit else ("F", "C")  # bare degrees may be either


def _same_heat(one: Quantity, other: Quantity, scale: str, other_scale: str) -> bool:
    if scale == other_scale:
        return _overlap((one.low, one.high), (other.low, other.high), 1e-6)
    if not (one.unit and other.unit):
        return False  # bare degrees are on the other's scale, not on another one by chance
    return _overlap(_celsius(one, scale), _celsius(other, other_scale), DEGREES_DIFFER)


def _celsius(heat: Quantity, scale: str) -> tuple[float, float]:
    return (
        (heat.low, heat.high) if scale == "C" else ((heat.low - 32) / 1.8, (heat.high - 32) / 1.8)
    )


def _overlap(one: tuple[float, float], other: tuple[float, float], slack: float) -> bool:
    return one[0] <= other[1] + slack and other[0] <= one[1] + slack


def quantities(text: str) -> list[Quantity]:
    """Return the amounts that a text states, in order.

    A bare "one" is a pronoun, "a second" is no time, "few" and "some" are no numbers; "a cup" is
    one cup.
    """
    return [quantity for quantity, _, _ in located_quantities(tokens(text))]


def located_quantities(words: Sequence[str]) -> Iterator[tuple[Quantity, int, int]]:
    """Yield each amount among the tokens of a text, its first token, and the one after its last."""
    place = 0
    while place < len(words):
        located = _quantity(words, place)
        if located is None:
            place += 1
            continue
        quantity, after = located
        yield quantity, place, after
        place = after


def _quantity(words: Sequence[str], place: int) -> tuple[Quantity, int] | None:
    number = number_at(words, place)
    if number is None:
        return _one_unit(words, place)
    (low, high), after = number
    unit = next((found for ahead in range(3) if (found := _unit_behind(words, after, ahead))), None)
    if unit is None:
        if words[place] == "one" and after == place + 1:
            return None
        return Quantity(low, high, COUNT, "", _thing(words, after)), after
    kind, name, after = unit
    if words[after - 1] == "c" and kind == "volume" and _is_celsius(words, place, after, high):
        kind, name = TEMPERATURE, "C"
    extra = _and_a_half(words, after)
    after = after + 3 if extra else after
    return Quantity(low + extra, high + extra, kind, name, _thing(words, after)), after


def _is_celsius(words: Sequence[str], place: int, after: int, value: float) -> bool:
    """Tell whether a number with "C" behind it, words[place:after], is degrees and not cups ("2 C
    flour")."""
    before = [word for word in words[:place] if word != "-"]
    if value >= MOST_CUPS or before[-1:] == ["at"]:
        return True
    if before[-1:] == ["to"]:
        return not (WARM if value >= ROOM else COLD).isdisjoint(before)
    return value >= ROOM and _thing(words, after) is None and not WARM.isdisjoint(before)


def _unit_behind(words: Sequence[str], place: int, ahead: int) -> tuple[str, str, int] | None:
    """Return the unit that stands so many small words behind a number: 10-inch, half a cup, 2 more
    cups."""
    small = all(word in BEFORE_UNIT for word in words[place : place + ahead])
    return _unit(words, place + ahead) if small else None


def _one_unit(words: Sequence[str], place: int) -> tuple[Quantity, int] | None:
    """Return "a cup", "an hour and a half" as amounts."""
    if words[place] not in ("a", "an") or place + 1 >= len(words) or words[place + 1] in VAGUE:
        return None
    unit = _unit(words, place + 1)
    if unit is None or unit[0] == TEMPERATURE:
        return None
    kind, name, after = unit
    extra = _and_a_half(words, after)
    after = after + 3 if extra else after
    return Quantity(1 + extra, 1 + extra, kind, name, _thing(words, after)), after


def _and_a_half(words: Sequence[str], place: int) -> float:
    return 0.5 if list(words[place : place + 3]) == ["and", "a", "half"] else 0.0


def _unit(words: Sequence[str], place: int) -> tuple[str, str, int] | None:
    """Return kind, name and the place after the unit that begins at a token; None where none
    does."""
    if place >= len(words):
        return None
    word = words[place]
    if word in DEGREES or word in ("f", "fahrenheit", "celsius"):
        after = place + 1 if word in DEGREES else place
        after += after < len(words) and words[after] == "."
        scale = SCALES.get(words[after]) if after < len(words) else None
        return TEMPERATURE, scale or "", after + 1 if scale else place + 1
    if word not in UNITS:
        return None
    kind, factor = UNITS[word]
    name = next(
        unit
        for unit, (its_kind, its_factor) in UNITS.items()
        if (its_kind, its_factor) == (kind, factor)
    )
    return kind, name, place + 1


def _thing(words: Sequence[str], place: int) -> str | None:
    """Return the stem of the first word of meaning near after an amount, within its clause."""
    for word in words[place : place + LOOK]:
        if word in ",.;:!?()" or word in (
            "and",
            "or",
            "then",
            "until",
            "at",
            "for",
            "in",
            "to",
            "on",
            "with",
        ):
            return None
        if word[0].isalpha() and word not in FUNCTION:
            return stem(word)
    return None
