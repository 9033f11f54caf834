"""Amounts that a text states: how much, in which unit, of what, and numbers as people write and say
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
Number: TypeAlias = tuple[float, int]  # value, the place after it
Unit: TypeAlias = tuple[str, str, int]  # kind, name, the place after it

# Ordered: the place of a word is its number, of a ten from "twenty" on.
_SMALL_TEXT = """
zero one two three four five six seven eight nine ten
eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
"""
_TENS_TEXT = "twenty thirty forty fifty sixty seventy eighty ninety"
SMALL_NUMBERS = {word: number for number, word in enumerate(_SMALL_TEXT.split())}
_TENS_ROWS = enumerate(_TENS_TEXT.split(), start=2)
TENS_NUMBERS = {word: 10 * tens for tens, word in _TENS_ROWS}
GREAT_NUMBERS = {"hundred": 100, "thousand": 1000}
FRACTION_WORDS = {
    "half": 0.5,
    "halves": 0.5,
    "halve": 0.5,
    "quarter": 0.25,
    "quarters": 0.25,
    "third": 1 / 3,
    "thirds": 1 / 3,
}
DOZEN_WORDS = {"dozen": 12, "dozens": 12}
RANGE_WORDS = frozenset({"-", "–", "—", "to", "or"})

_TOKEN_PATTERN = re.compile(
    r"\d+(?:,\d{3})+(?:\.\d+)?|\d*\.\d+|\d+\s*/\s*\d+|\d+"
    r"|[^\W\d_]+(?:'[^\W\d_]+)?|[%°\"/–—\-.,;:!?()]"
)
_DIGITS_PATTERN = re.compile(r"\d|\.\d")
_FRACTION_SLASH = "\u2044"


def tokens(text: str) -> list[str]:
    """Return the lower-case words, numbers and marks of a text. "2½" becomes "2 1/2"."""
    plain = text.lower().replace("’", "'")
    spelt = "".join(_spelt(letter) for letter in plain)
    return _TOKEN_PATTERN.findall(spelt)


def _spelt(letter: str) -> str:
    """Return a one-letter fraction as digits: ½ as 1/2."""
    if unicodedata.category(letter) != "No" or "FRACTION" not in unicodedata.name(letter, ""):
        return letter
    digits = unicodedata.normalize("NFKC", letter)
    digits = digits.replace(_FRACTION_SLASH, "/")
    return f" {digits} "


def _word_at(words: Sequence[str], place: int) -> str:
    """Return the token at a place, "" behind the last one."""
    if place >= len(words):
        return ""
    return words[place]


def _after_mark(words: Sequence[str], place: int, mark: str) -> int:
    """Return the place behind a token if it is there, else its own."""
    if _word_at(words, place) == mark:
        return place + 1
    return place


def number_at(words: Sequence[str], place: int) -> tuple[Range, int] | None:
    """Return the number or range that begins at a token and the place after it, None where none
    does."""
    first = _single(words, place)
    if first is None:
        return None
    value, after = first
    if _word_at(words, after) in RANGE_WORDS:
        second = _single(words, after + 1)
        if second is not None and second[0] > value:
            greatest, after = second
            return (value, greatest), after
    return (value, value), after


def _single(words: Sequence[str], place: int) -> Number | None:
    if place >= len(words):
        return None
    number = _written(words, place) or _spoken(words, place)
    number = number or _part(words, place)
    if number is None:
        return None
    value, after = number
    following = _word_at(words, after)

    # one point five
    if following == "point":
        digit = SMALL_NUMBERS.get(_word_at(words, after + 1), 10)
        if digit < 10:
            return value + digit / 10, after + 2
    if following in DOZEN_WORDS:
        return value * DOZEN_WORDS[following], after + 1

    # two and a half
    if list(words[after : after + 2]) == ["and", "a"]:
        fraction = FRACTION_WORDS.get(_word_at(words, after + 2))
        if fraction is not None:
            return value + fraction, after + 3

    # three quarters, two thirds
    if following in FRACTION_WORDS and value >= 1 and following != "halve":
        return value * FRACTION_WORDS[following], after + 1
    return value, after


def _written(words: Sequence[str], place: int) -> Number | None:
    if not _DIGITS_PATTERN.match(words[place]):
        return None
    value = _figure(words[place])
    if value is None:
        return None
    # 1-1/2 is one and a half
    after = place + 1
    part_place = _after_mark(words, after, "-")
    part_text = _word_at(words, part_place)
    if "/" in part_text and "/" not in words[place]:
        part = _figure(part_text)
        if part is not None and part < 1:
            return value + part, part_place + 1
    return value, after


def _figure(word: str) -> float | None:
    if "/" not in word:
        return float(word.replace(",", ""))
    over, under = word.split("/")
    if len(word) <= 1 or int(under) == 0:
        return None
    return int(over) / int(under)


def _spoken(words: Sequence[str], place: int) -> Number | None:
    """Return a number in words: twenty five, two hundred and ten, and the oven's three fifty
    (350)."""
    if not _is_below_hundred(words[place]):
        return None
    value, after = _below_hundred(words, place)
    following = _word_at(words, after)
    if following in GREAT_NUMBERS:
        value *= GREAT_NUMBERS[following]
        after += 1
        rest_place = _after_mark(words, after, "and")
        if _is_below_hundred(_word_at(words, rest_place)):
            rest, after = _below_hundred(words, rest_place)
            value += rest
    elif value < 10 and following in TENS_NUMBERS:
        rest, after = _below_hundred(words, after)
        value = 100 * value + rest
    return value, after


def _is_below_hundred(word: str) -> bool:
    return word in SMALL_NUMBERS or word in TENS_NUMBERS


def _below_hundred(words: Sequence[str], place: int) -> Number:
    word = words[place]
    after = place + 1
    if word in SMALL_NUMBERS:
        return SMALL_NUMBERS[word], after
    value = TENS_NUMBERS[word]
    unit_place = _after_mark(words, after, "-")
    unit = SMALL_NUMBERS.get(_word_at(words, unit_place), 0)
    if 0 < unit < 10:
        return value + unit, unit_place + 1
    return value, after


def _part(words: Sequence[str], place: int) -> Number | None:
    word = words[place]
    following = _word_at(words, place + 1)
    if word in ("a", "an"):
        if following in FRACTION_WORDS:
            return FRACTION_WORDS[following], place + 2
        if following in DOZEN_WORDS:
            return 12, place + 2
    if word.startswith("hal") and word in FRACTION_WORDS:
        if list(words[place + 1 : place + 3]) == ["a", "dozen"]:
            return 6, place + 3
        return FRACTION_WORDS[word], place + 1
    if word in ("quarter", "quarters"):
        return FRACTION_WORDS[word], place + 1
    return None


FUNCTION_WORDS = word_set(
    """
    a an the this that these those it its he she they them we us you your i my our his her their some any all each
    every both few more most other such own same so than too very just only also then now here there when where why how
    what which who whom if because as until while of at by for with about against between into through during before
    after above below to from up down in out on off over under again further once and but or nor be am is are was were
    been being have has had having do does did doing will would shall should can could may might must going gonna get
    got let want like really kind sort bit little lot well okay ok right
    """
)
STEM_ENDINGS = ("ings", "ing", "edly", "ies", "ed", "es", "s", "ly", "e")


def stem(word: str) -> str:
    """Return a lower-case word without its ending: stirring, stirred, stirs -> stir."""
    for ending in STEM_ENDINGS:
        if ending == "s" and word.endswith("ss"):
            continue
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            if ending == "ies":
                word = f"{word}y"
            break
    is_doubled = len(word) > 3 and word[-1] == word[-2]
    if is_doubled and word[-1] not in "aeiouls":
        return word[:-1]
    return word.removesuffix("e")


COUNT_KIND = "count"
TEMPERATURE_KIND = "temperature"

# Unit -> (kind, how many of the kind's own unit it is): ml, g, cm, s, per cent.
_UNIT_ROWS = (
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


def _unit_kinds() -> Iterator[tuple[str, tuple[str, float]]]:
    for kind, factor, names in _UNIT_ROWS:
        for unit in names.split():
            yield unit, (kind, factor)


UNIT_KINDS = dict(_unit_kinds())
# The first name of each unit: in reverse, the last one stays.
_UNIT_NAMES = {kind: unit for unit, kind in reversed(UNIT_KINDS.items())}
# "a second" is not a time
VAGUE_UNITS = word_set("s sec second min minute day l m c g h")
DEGREE_WORDS = frozenset({"°", "degree", "degrees", "deg"})
SCALE_LETTERS = {"f": "F", "fahrenheit": "F", "c": "C", "celsius": "C", "centigrade": "C"}
# "C" is a cup or Celsius: 40 cups go into no bowl. Fewer are degrees at a heat or next to words of
# warmth or cold.
MAX_CUPS = 40.0
ROOM_DEGREES = 20.0
COLD_WORDS = word_set("chill cool cold fridge refrigerate refrigerator freeze freezer frozen below")
WARM_WORDS = COLD_WORDS | word_set(
    "warm heat preheat hot oven bake roast melt temper temperature thermometer prove proof rise"
)
WORDS_BEFORE_UNIT = word_set("- a an of the more additional extra full whole heaping")
CLAUSE_END_WORDS = word_set("and or then until at for in to on with")
MAX_WORDS_BEFORE_UNIT = 2
MAX_THING_WORDS = 3  # words after a quantity among which its thing is sought
UNIT_TOLERANCE = 0.06  # cooks' equivalents: 1 cup is 240 ml or 250, 1 oz 30 g
DEGREE_TOLERANCE = 6.0  # Celsius: 350 F is 180 C in every cookbook, and 176.7 by arithmetic


@dataclass(frozen=True)
class Quantity:
    """One stated amount.

    low, high: as stated.
    unit: as its name here, "" for a bare number.
    thing: stem or None.
    """

    low: float
    high: float
    kind: str
    unit: str
    thing: str | None

    def agrees(self, other: "Quantity") -> bool:
        """Return whether two amounts of one kind can be the same: equal in one unit, near equal
        across units."""
        if self.kind == TEMPERATURE_KIND:
            return self._is_same_heat(other)
        if self.unit == other.unit:
            tolerance = 1e-6 * max(1.0, self.high)
            return _overlap(self.bounds, other.bounds, tolerance)
        amounts = self._in_own_unit()
        other_amounts = other._in_own_unit()
        share = UNIT_TOLERANCE
        if self.kind == "time":
            share = 0.0
        greatest = max(amounts[1], other_amounts[1])
        return _overlap(amounts, other_amounts, max(share * greatest, 1e-6))

    def is_same(self, other: "Quantity") -> bool:
        """Return whether two amounts can be the same amount of one thing. A bare count needs the
        same thing."""
        same_thing = self.thing == other.thing
        if self.kind != COUNT_KIND and None in (self.thing, other.thing):
            same_thing = True
        return self.kind == other.kind and same_thing and self.agrees(other)

    @property
    def bounds(self) -> Range:
        """Its least and greatest number, as stated."""
        return self.low, self.high

    def __str__(self) -> str:
        """Return it as people write it: 2-3 cup."""
        number = f"{self.low:g}"
        if self.low != self.high:
            number = f"{self.low:g}-{self.high:g}"
        return f"{number} {self.unit}".strip()

    def _in_own_unit(self) -> Range:
        factor = 1.0
        if self.unit in UNIT_KINDS:
            _, factor = UNIT_KINDS[self.unit]
        return self.low * factor, self.high * factor

    def _is_same_heat(self, other: "Quantity") -> bool:
        # bare degrees are on the other's scale, not on another one by chance
        if not self.unit or not other.unit or self.unit == other.unit:
            return _overlap(self.bounds, other.bounds, 1e-6)
        return _overlap(self._in_celsius(), other._in_celsius(), DEGREE_TOLERANCE)

    def _in_celsius(self) -> Range:
        if self.unit == "C":
            return self.bounds
        return (self.low - 32) / 1.8, (self.high - 32) / 1.8


def _overlap(amounts: Range, others: Range, tolerance: float) -> bool:
    if amounts[0] > others[1] + tolerance:
        return False
    return others[0] <= amounts[1] + tolerance


Amount: TypeAlias = tuple[Quantity, int]  # and the place after it


def quantities(text: str) -> list[Quantity]:
    """Return the amounts that a text states, in order.

    A bare "one" is a pronoun, "a second" is not a time, "few" and "some" are not numbers. "a cup"
    is one cup.
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


def _quantity(words: Sequence[str], place: int) -> Amount | None:
    number = number_at(words, place)
    if number is None:
        return _one_unit(words, place)
    (low, high), after = number
    unit = _unit_behind(words, after)
    if unit is None:
        is_pronoun = words[place] == "one" and after == place + 1
        if is_pronoun:
            return None
        thing = _thing(words, after)
        return Quantity(low, high, COUNT_KIND, "", thing), after
    kind, name, after = unit
    is_c = words[after - 1] == "c" and kind == "volume"
    if is_c and _is_celsius(words, place, after, high):
        kind = TEMPERATURE_KIND
        name = "C"
    return _with_half((low, high), kind, name, words, after)


def _is_celsius(words: Sequence[str], place: int, after: int, value: float) -> bool:
    """Return whether a number with "C" behind it, words[place:after], is degrees and not cups ("2 C
    flour")."""
    before = [word for word in words[:place] if word != "-"]
    if value >= MAX_CUPS or before[-1:] == ["at"]:
        return True
    is_warm = value >= ROOM_DEGREES
    has_warmth = not WARM_WORDS.isdisjoint(before)
    if before[-1:] == ["to"] and not is_warm:
        return not COLD_WORDS.isdisjoint(before)
    if before[-1:] == ["to"]:
        return has_warmth
    return is_warm and has_warmth and _thing(words, after) is None


def _unit_behind(words: Sequence[str], place: int) -> Unit | None:
    """Return the unit at most two small words behind a number: 10-inch, half a cup, 2 more cups."""
    for _ in range(MAX_WORDS_BEFORE_UNIT + 1):
        unit = _unit(words, place)
        if unit is not None:
            return unit
        if _word_at(words, place) not in WORDS_BEFORE_UNIT:
            return None
        place += 1
    return None


def _one_unit(words: Sequence[str], place: int) -> Amount | None:
    """Return "a cup", "an hour and a half" as amounts."""
    is_article = words[place] in ("a", "an")
    if not is_article or _word_at(words, place + 1) in VAGUE_UNITS:
        return None
    unit = _unit(words, place + 1)
    if unit is None or unit[0] == TEMPERATURE_KIND:
        return None
    kind, name, after = unit
    return _with_half((1, 1), kind, name, words, after)


def _with_half(amount: Range, kind: str, unit: str, words: Sequence[str], place: int) -> Amount:
    """Return an amount, a half more where "and a half" follows, and the place after it."""
    extra = 0.0
    if list(words[place : place + 3]) == ["and", "a", "half"]:
        extra = 0.5
        place += 3
    low, high = amount
    thing = _thing(words, place)
    return Quantity(low + extra, high + extra, kind, unit, thing), place


def _unit(words: Sequence[str], place: int) -> Unit | None:
    """Return kind, name and the place after the unit that begins at a token, None where none
    does."""
    if place >= len(words):
        return None
    word = words[place]
    if word in DEGREE_WORDS or word in ("f", "fahrenheit", "celsius"):
        after = place
        if word in DEGREE_WORDS:
            after = place + 1
        after = _after_mark(words, after, ".")
        scale = SCALE_LETTERS.get(_word_at(words, after))
        if scale is None:
            return TEMPERATURE_KIND, "", place + 1
        return TEMPERATURE_KIND, scale, after + 1
    if word not in UNIT_KINDS:
        return None
    kind, _ = UNIT_KINDS[word]
    return kind, _UNIT_NAMES[UNIT_KINDS[word]], place + 1


def _thing(words: Sequence[str], place: int) -> str | None:
    """Return the stem of the first word of meaning near after an amount, within its clause."""
    for word in words[place : place + MAX_THING_WORDS]:
        if word in ",.;:!?()" or word in CLAUSE_END_WORDS:
            return None
        if word[0].isalpha() and word not in FUNCTION_WORDS:
            return stem(word)
    return None
