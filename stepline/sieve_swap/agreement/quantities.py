"""What a text states in numbers: how much of which unit, of what."""

from collections.abc import Sequence
from dataclasses import dataclass

from stepline.sieve_swap.agreement.numerals import number_at, tokens
from stepline.sieve_swap.agreement.stems import FUNCTION, stem

COUNT, TEMPERATURE = "count", "temperature"

# Unit -> (kind, how many of the kind's own unit it is): ml, g, cm, s, per cent.
UNITS: dict[str, tuple[str, float]] = {
    unit: (kind, factor)
    for kind, factor, names in (
        ("volume", 1.0, "ml milliliter milliliters millilitre millilitres cc"),
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
VAGUE = frozenset({"s", "sec", "second", "min", "minute", "day", "l", "m", "c", "g", "h"})  # "a second" is no time
DEGREES = frozenset({"°", "degree", "degrees", "deg"})
SCALES = {"f": "F", "fahrenheit": "F", "c": "C", "celsius": "C", "centigrade": "C"}
BEFORE_UNIT = frozenset({"-", "a", "an", "of", "the", "more", "additional", "extra", "full", "whole", "heaping"})
LOOK = 3  # words after a quantity among which its thing is sought
AS_UNITS_DIFFER = 0.06  # cooks' equivalents: 1 cup is 240 ml or 250, 1 oz 30 g
DEGREES_DIFFER = 6.0  # Celsius: 350 F is 180 C in every cookbook, and 176.7 by arithmetic


@dataclass(frozen=True)
class Quantity:
    """One stated amount. low, high: as stated; unit: as its name here, "" for a bare number; thing: stem or None."""

    low: float
    high: float
    kind: str
    unit: str
    thing: str | None

    def agrees(self, other: "Quantity") -> bool:
        """Tell whether two amounts of one kind can be the same: equal in one unit, near equal across units."""
        if self.kind == TEMPERATURE:
            return any(_same_heat(self, other, mine, theirs) for mine in self._scales() for theirs in other._scales())
        if self.unit == other.unit:
            return _overlap((self.low, self.high), (other.low, other.high), 1e-6 * max(1.0, self.high))
        mine, theirs = self._in_own_unit(), other._in_own_unit()
        slack = 0.0 if self.kind == "time" else AS_UNITS_DIFFER
        return _overlap(mine, theirs, max(slack * max(mine[1], theirs[1]), 1e-6))

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
    return (heat.low, heat.high) if scale == "C" else ((heat.low - 32) / 1.8, (heat.high - 32) / 1.8)


def _overlap(one: tuple[float, float], other: tuple[float, float], slack: float) -> bool:
    return one[0] <= other[1] + slack and other[0] <= one[1] + slack


def quantities(text: str) -> list[Quantity]:
    """Return the amounts that a text states, in order.

    A bare "one" is a pronoun, "a second" is no time, "few" and "some" are no numbers; "a cup" is one cup.
    """
    words = tokens(text)
    found, place = [], 0
    while place < len(words):
        read = _quantity(words, place)
        if read is not None:
            found.append(read[0])
        place = read[1] if read is not None else place + 1
    return found


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
    extra = _and_a_half(words, after)
    after = after + 3 if extra else after
    return Quantity(low + extra, high + extra, kind, name, _thing(words, after)), after


def _unit_behind(words: Sequence[str], place: int, ahead: int) -> tuple[str, str, int] | None:
    """Return the unit that stands so many small words behind a number: 10-inch, half a cup, 2 more cups."""
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
    """Return kind, name and the place after the unit that begins at a token; None where none does."""
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
    name = next(unit for unit, (its_kind, its_factor) in UNITS.items() if (its_kind, its_factor) == (kind, factor))
    return kind, name, place + 1


def _thing(words: Sequence[str], place: int) -> str | None:
    """Return the stem of the first word of meaning near after an amount, within its clause."""
    for word in words[place : place + LOOK]:
        if word in ",.;:!?()" or word in ("and", "or", "then", "until", "at", "for", "in", "to", "on", "with"):
            return None
        if word[0].isalpha() and word not in FUNCTION:
            return stem(word)
    return None
