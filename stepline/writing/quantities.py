"""Amounts that a text states: how much, in which unit, of what, and numbers as people write and say
them.

Numbers: 2, 1.5, 1/2, 1 1/2, ½, two, twenty five, three fifty, one and a half. The measured thing is
a word stem without its endings, so "seasoning" and "season" are the same.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from stepline.writing.extractive.english import word_set

Value = TypeVar("Value")

Range = tuple[float, float]  # least and greatest: "8 to 10" is (8, 10), "5" is (5, 5)
Number = tuple[float, int]  # value, index of the token after it
Unit = tuple[str, str, int]  # kind, name, index of the token after it

# Ordered: the place of a word is its number, of a ten from "twenty" on.
_SMALL_TEXT = """
zero one two three four five six seven eight nine ten
eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
"""
_TENS_TEXT = "twenty thirty forty fifty sixty seventy eighty ninety"
SMALL_NUMBERS = {word: number for number, word in enumerate(_SMALL_TEXT.split())}
TENS_NUMBERS = {word: 10 * tens for tens, word in enumerate(_TENS_TEXT.split(), start=2)}
LARGE_NUMBERS = {"hundred": 100, "thousand": 1000}
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
WORDS_BEFORE_PLACE_POINT = word_set("this that the which each every")

_TOKEN_PATTERN = re.compile(
    r"\d+(?:,\d{3})+(?:\.\d+)?|\d*\.\d+|\d+\s*/\s*\d+|\d+"
    r"|[^\W\d_]+(?:'[^\W\d_]+)?|[%°\"/–—\-.,;:!?()]"
)
# Longer ones are slips of recognition.
_DIGITS_PATTERN = re.compile(r"[\d,]{,9}\.?\d{1,9}|\d{1,9}\s*/\s*\d{1,9}")
_FRACTION_SLASH = "\u2044"


def tokens(text: str) -> list[str]:
    """Return the lower-case words, numbers and punctuation of a text. "2½" becomes "2 1/2"."""
    plain = text.lower().replace("’", "'")
    with_digits = "".join(_fraction_as_digits(letter) for letter in plain)
    return _TOKEN_PATTERN.findall(with_digits)


def _fraction_as_digits(letter: str) -> str:
    """Return a one-letter fraction as digits between spaces: ½ as " 1/2 ". Other letters stay."""
    if unicodedata.category(letter) != "No" or "FRACTION" not in unicodedata.name(letter, ""):
        return letter
    digits = unicodedata.normalize("NFKC", letter).replace(_FRACTION_SLASH, "/")
    return f" {digits} "


def word_at(words: Sequence[str], index: int) -> str:
    """Return the token at an index, "" before the first and after the last one."""
    return words[index] if 0 <= index < len(words) else ""


def skip_mark(words: Sequence[str], index: int, mark: str) -> int:
    """Return the index after the token at an index if that is `mark`, else the index itself."""
    return index + (word_at(words, index) == mark)


def number_at(words: Sequence[str], index: int) -> tuple[Range, int] | None:
    """Return the range (low, high) of the number that begins at a token, and the index after it.

    A single number is a range with equal ends. None if no number begins there.
    """
    first = _single_number(words, index)
    if first is None:
        return None
    value, end = first
    if word_at(words, end) in RANGE_WORDS:
        second = _single_number(words, end + 1)
        if second is not None and second[0] > value:
            largest, end = second
            return (value, largest), end
    return (value, value), end


def _single_number(words: Sequence[str], index: int) -> Number | None:
    """Return the number that begins at a token and the index after it, fractions and dozens included."""
    if index >= len(words):
        return None
    # "at this point three are left" has no fraction
    is_point = words[index] == "point" and word_at(words, index - 1) not in WORDS_BEFORE_PLACE_POINT
    number = (
        (0.0, index)
        if is_point
        else _digit_number(words, index)
        or _number_in_words(words, index)
        or _leading_fraction(words, index)
    )
    if number is None:
        return None
    value, end = number
    following = word_at(words, end)

    # one point five, point five
    if following == "point":
        digit = SMALL_NUMBERS.get(word_at(words, end + 1), 10)
        if digit < 10:
            return value + digit / 10, end + 2
        if is_point:
            return None
    if following in DOZEN_WORDS:
        return value * DOZEN_WORDS[following], end + 1

    # two and a half
    if list(words[end : end + 2]) == ["and", "a"]:
        fraction = FRACTION_WORDS.get(word_at(words, end + 2))
        if fraction is not None:
            return value + fraction, end + 3

    # three quarters, two thirds
    if following in FRACTION_WORDS and value >= 1 and following != "halve":
        return value * FRACTION_WORDS[following], end + 1
    return value, end


def _digit_number(words: Sequence[str], index: int) -> Number | None:
    """Return the number in digits at a token, with a fraction behind it, and the index after it."""
    if not _DIGITS_PATTERN.fullmatch(words[index]):
        return None
    value = _parse_digits(words[index])
    if value is None:
        return None
    # 1-1/2 is one and a half
    end = index + 1
    fraction_index = skip_mark(words, end, "-")
    fraction_text = word_at(words, fraction_index)
    if "/" in fraction_text and "/" not in words[index]:
        fraction = _parse_digits(fraction_text)
        if fraction is not None and fraction < 1:
            return value + fraction, fraction_index + 1
    return value, end


def _parse_digits(word: str) -> float | None:
    if "/" not in word:
        return float(word.replace(",", ""))
    numerator, denominator = word.split("/")
    if len(word) <= 1 or int(denominator) == 0:
        return None
    return int(numerator) / int(denominator)


def _number_in_words(words: Sequence[str], index: int) -> Number | None:
    """Return the number in words at a token and the index after it: twenty five, two hundred and ten,
    and the oven's three fifty (350)."""
    if not _is_below_hundred(words[index]):
        return None
    value, end = _number_below_hundred(words, index)
    following = word_at(words, end)
    if following in LARGE_NUMBERS:
        value *= LARGE_NUMBERS[following]
        end += 1
        rest_index = skip_mark(words, end, "and")
        if _is_below_hundred(word_at(words, rest_index)):
            rest, end = _number_below_hundred(words, rest_index)
            value += rest
    elif value < 10 and following in TENS_NUMBERS:
        rest, end = _number_below_hundred(words, end)
        value = 100 * value + rest
    return value, end


def _is_below_hundred(word: str) -> bool:
    return word in SMALL_NUMBERS or word in TENS_NUMBERS


def _number_below_hundred(words: Sequence[str], index: int) -> Number:
    """Return the number below 100 in words at a token, and the index after it."""
    word = words[index]
    end = index + 1
    if word in SMALL_NUMBERS:
        return SMALL_NUMBERS[word], end
    value = TENS_NUMBERS[word]
    unit_index = skip_mark(words, end, "-")
    unit = SMALL_NUMBERS.get(word_at(words, unit_index), 0)
    if 0 < unit < 10:
        return value + unit, unit_index + 1
    return value, end


def _leading_fraction(words: Sequence[str], index: int) -> Number | None:
    """Return a fraction or dozen that begins at a token and the index after it: half a dozen, a
    quarter."""
    word = words[index]
    following = word_at(words, index + 1)
    if word in ("a", "an"):
        if following in FRACTION_WORDS:
            return FRACTION_WORDS[following], index + 2
        if following in DOZEN_WORDS:
            return 12, index + 2
    if word.startswith("hal") and word in FRACTION_WORDS:
        if list(words[index + 1 : index + 3]) == ["a", "dozen"]:
            return 6, index + 3
        return FRACTION_WORDS[word], index + 1
    if word in ("quarter", "quarters"):
        return FRACTION_WORDS[word], index + 1
    return None


STOP_WORDS = word_set(
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
            word = word.removesuffix(ending) + ("y" if ending == "ies" else "")
            break
    has_double_ending = len(word) > 3 and word[-1] == word[-2]
    if has_double_ending and word[-1] not in "aeiouls":
        return word[:-1]
    return word.removesuffix("e")


# Replaces each time among the words of a sentence. No word is equal to it.
TIME_PLACEHOLDER = "@"
# a year. Longer is a slip of recognition.
MAX_WORK_SECONDS = 366 * 86400.0
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

UNIT_KINDS = {unit: (kind, factor) for kind, factor, names in _UNIT_ROWS for unit in names.split()}
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
    """An amount that a text states.

    Attributes:
        low: the number in its unit, or the least one of a range.
        high: the greatest number of a range, equal to `low` for a single number.
        kind: volume, mass, length, time, share (per cent), temperature or count.
        unit: the first name of the unit in the table, "" for a bare number.
        thing: stem of the word for what is measured, None without one.
    """

    low: float
    high: float
    kind: str
    unit: str
    thing: str | None

    def can_be_equal(self, other: "Quantity") -> bool:
        """Return whether two amounts of one kind can be equal: their ranges overlap. A difference
        of 6 % is allowed between different units, and of 6 degrees Celsius."""
        if self.kind == TEMPERATURE_KIND:
            return self._is_same_temperature(other)
        if self.unit == other.unit:
            return _ranges_overlap(self.bounds, other.bounds, 1e-6 * max(1.0, self.high))
        amounts = self._in_base_unit()
        other_amounts = other._in_base_unit()
        relative_tolerance = 0.0 if self.kind == "time" else UNIT_TOLERANCE
        largest = max(amounts[1], other_amounts[1])
        return _ranges_overlap(amounts, other_amounts, max(relative_tolerance * largest, 1e-6))

    @property
    def bounds(self) -> Range:
        """The pair (low, high)."""
        return self.low, self.high

    def __str__(self) -> str:
        """Return the amount as people write it: 2-3 cup."""
        number = f"{self.low:g}" if self.low == self.high else f"{self.low:g}-{self.high:g}"
        return f"{number} {self.unit}".strip()

    def _in_base_unit(self) -> Range:
        """Return (low, high) of the amount in the base unit of its kind: ml, g, cm, s or per cent."""
        _, factor = UNIT_KINDS.get(self.unit, ("", 1.0))
        return self.low * factor, self.high * factor

    def _is_same_temperature(self, other: "Quantity") -> bool:
        """Return whether two temperatures can be equal."""
        # bare degrees are on the other's scale, not on another one by chance
        if not self.unit or not other.unit or self.unit == other.unit:
            return _ranges_overlap(self.bounds, other.bounds, 1e-6)
        return _ranges_overlap(self._in_celsius(), other._in_celsius(), DEGREE_TOLERANCE)

    def _in_celsius(self) -> Range:
        if self.unit == "C":
            return self.bounds
        return (self.low - 32) / 1.8, (self.high - 32) / 1.8


def _ranges_overlap(amounts: Range, others: Range, tolerance: float) -> bool:
    return amounts[0] <= others[1] + tolerance and others[0] <= amounts[1] + tolerance


Amount = tuple[Quantity, int]  # and the index of the token after it


def find_quantities(text: str) -> list[Quantity]:
    """Return the amounts that a text states, in order.

    A bare "one" is a pronoun, "a second" is not a time, "few" and "some" are not numbers. "a cup"
    is one cup.
    """
    return [quantity for quantity, _, _ in locate_quantities(tokens(text))]


def locate_quantities(words: Sequence[str]) -> Iterator[tuple[Quantity, int, int]]:
    """Yield each amount among the tokens of a text, with the index of its first token and the index
    after its last token."""
    return _located(words, _quantity_at)


def mark_times(words: list[str]) -> tuple[list[str], list[tuple[float, float]]]:
    """Return the words with TIME_PLACEHOLDER in place of each time, and the (low, high) range of each
    time in seconds."""
    marked_words: list[str] = []
    durations: list[tuple[float, float]] = []
    copied_until = 0
    last_end = 0
    last_factor = 0.0
    for quantity, begin, end in locate_quantities(words):
        seconds = _seconds(quantity)
        if seconds is None:
            continue
        low, high, factor = seconds
        words_between = words[last_end:begin]
        # "an hour and twenty minutes" is one time
        is_part = words_between in ([], ["and"]) and factor < last_factor
        if durations and is_part:
            last_low, last_high = durations.pop()
            durations.append((last_low + low, last_high + high))
        else:
            marked_words += [*words[copied_until:begin], TIME_PLACEHOLDER]
            durations.append((low, high))
        copied_until = last_end = end
        last_factor = factor
    return [*marked_words, *words[copied_until:]], durations


def _seconds(quantity: Quantity) -> tuple[float, float, float] | None:
    """Return the low and high end of a time and the length of its unit, in seconds. None for other
    amounts, and for a time of more than a year."""
    if quantity.kind != "time":
        return None
    _, factor = UNIT_KINDS[quantity.unit]
    low = quantity.low * factor
    high = quantity.high * factor
    return (low, high, factor) if 0 < low <= high <= MAX_WORK_SECONDS else None


def numbers(text: str) -> set[float]:
    """Return the values of the numbers in a text, in digits or words, of a range both ends."""
    ranges = (value for value, _, _ in _located(tokens(text), number_at))
    return {round(end, 3) for ends in ranges for end in ends}


def _located(
    words: Sequence[str], value_at: Callable[[Sequence[str], int], tuple[Value, int] | None]
) -> Iterator[tuple[Value, int, int]]:
    """Yield each value among tokens, with the index of its first token and the index after its last.

    value_at: returns the value that begins at a token and the index after it, None without one.
    """
    index = 0
    while index < len(words):
        located = value_at(words, index)
        if located is None:
            index += 1
            continue
        value, end = located
        yield value, index, end
        index = end


def _quantity_at(words: Sequence[str], index: int) -> Amount | None:
    """Return the amount that begins at a token and the index after it, None without one."""
    number = number_at(words, index)
    if number is None:
        return _article_amount(words, index)
    (low, high), end = number
    unit = _unit_after(words, end)
    if unit is None:
        if words[index] == "one" and end == index + 1:
            return None  # a pronoun
        return Quantity(low, high, COUNT_KIND, "", _measured_noun_after(words, end)), end
    kind, name, end = unit
    is_letter_c = words[end - 1] == "c" and kind == "volume"
    if is_letter_c and _is_celsius(words, index, end, high):
        kind, name = TEMPERATURE_KIND, "C"
    return _amount_with_half((low, high), kind, name, words, end)


def _is_celsius(words: Sequence[str], index: int, end: int, value: float) -> bool:
    """Return whether a number before the letter C is in degrees Celsius and not in cups ("2 C flour").

    Args:
        words: the tokens of a text.
        index: index of the number's first token.
        end: index after the "c".
        value: the number.
    """
    words_before = [word for word in words[:index] if word != "-"]
    if value >= MAX_CUPS or words_before[-1:] == ["at"]:
        return True
    is_warm = value >= ROOM_DEGREES
    if words_before[-1:] == ["to"]:
        return not (WARM_WORDS if is_warm else COLD_WORDS).isdisjoint(words_before)
    has_warmth = not WARM_WORDS.isdisjoint(words_before)
    return is_warm and has_warmth and _measured_noun_after(words, end) is None


def _unit_after(words: Sequence[str], index: int) -> Unit | None:
    """Return the unit of a number whose last token is before `index`. At most two small words may be
    between them: 10-inch, half a cup, 2 more cups."""
    for start in range(index, index + MAX_WORDS_BEFORE_UNIT + 1):
        unit = unit_at(words, start)
        if unit is not None or word_at(words, start) not in WORDS_BEFORE_UNIT:
            return unit
    return None


def _article_amount(words: Sequence[str], index: int) -> Amount | None:
    """Return the amount of an article with a unit and the index after it: "a cup", "an hour and a
    half"."""
    is_article = words[index] in ("a", "an")
    if not is_article or word_at(words, index + 1) in VAGUE_UNITS:
        return None
    unit = unit_at(words, index + 1)
    if unit is None or unit[0] == TEMPERATURE_KIND:
        return None
    kind, name, end = unit
    return _amount_with_half((1, 1), kind, name, words, end)


def _amount_with_half(
    amount: Range, kind: str, unit: str, words: Sequence[str], index: int
) -> Amount:
    """Return a number and its unit as an amount, 0.5 more if "and a half" follows, and the index
    after it.

    Args:
        amount: the number or range in the unit.
        kind: of the unit.
        unit: its name.
        words: the tokens of a text.
        index: index after the unit.
    """
    low, high = amount
    if list(words[index : index + 3]) == ["and", "a", "half"]:
        low, high, index = low + 0.5, high + 0.5, index + 3
    return Quantity(low, high, kind, unit, _measured_noun_after(words, index)), index


def unit_at(words: Sequence[str], index: int) -> Unit | None:
    """Return kind and name of the unit that begins at a token, and the index after it. None without
    one."""
    word = word_at(words, index)
    if word in DEGREE_WORDS or word in ("f", "fahrenheit", "celsius"):
        end = skip_mark(words, index + (word in DEGREE_WORDS), ".")
        scale = SCALE_LETTERS.get(word_at(words, end))
        if scale is None:
            return TEMPERATURE_KIND, "", index + 1
        return TEMPERATURE_KIND, scale, end + 1
    if word not in UNIT_KINDS:
        return None
    kind, _ = UNIT_KINDS[word]
    return kind, _UNIT_NAMES[UNIT_KINDS[word]], index + 1


def _measured_noun_after(words: Sequence[str], index: int) -> str | None:
    """Return the stem of the first content word after an amount, within its clause."""
    for word in words[index : index + MAX_THING_WORDS]:
        if word in ",.;:!?()" or word in CLAUSE_END_WORDS:
            return None
        if word[0].isalpha() and word not in STOP_WORDS:
            return stem(word)
    return None
