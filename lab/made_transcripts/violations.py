"""Does a swapped step contradict the numbers or the negation of what was said? Written apart from
the code it checks.

Both texts are put into spoken words by `numbers` and read by one pattern. Nothing of stepline's own
check is used.
"""

import re
from collections.abc import Iterator

from made_transcripts.numbers import cardinal, spoken_numbers

UNIT_NAMES = {
    "minutes": "minute",
    "minute": "minute",
    "mins": "minute",
    "hours": "hour",
    "hour": "hour",
    "seconds": "second",
    "degrees": "degree",
    "cups": "cup",
    "cup": "cup",
    "tablespoons": "tablespoon",
    "tablespoon": "tablespoon",
    "teaspoons": "teaspoon",
    "teaspoon": "teaspoon",
    "inches": "inch",
    "inch": "inch",
    "pounds": "pound",
    "pound": "pound",
    "ounces": "ounce",
    "ounce": "ounce",
}
NEGATION_PATTERN = re.compile(r"\b(?:not|don't|never|without|avoid)\b")
# frames of speech that forbid nothing
HARMLESS_PATTERN = re.compile(r"\b(?:don't|do not|never) (?:forget|worry|be shy)\b")
# not those from 101 to 199, which no one says so
_WHOLE_NUMBERS = (*range(1, 101), *range(200, 1000))
_NUMBER_VALUES = {cardinal(number): float(number) for number in _WHOLE_NUMBERS} | {
    "a quarter": 0.25,
    "three quarters": 0.75,
    "half a": 0.5,
    "half": 0.5,
    "a third": 1 / 3,
    "two thirds": 2 / 3,
    "an eighth": 0.125,
    "three eighths": 0.375,
}
_NUMBER_VALUES |= {
    f"{cardinal(n)} point {cardinal(part)}": n + part / 10 for n in range(20) for part in range(10)
}
_NUMBER_REGEX = "|".join(sorted(map(re.escape, _NUMBER_VALUES), key=len, reverse=True))
_PART_REGEX = "(?: and (?:a half|a quarter|three quarters|a third|two thirds))?"
_VALUE_REGEX = f"(?:(?:{_NUMBER_REGEX}){_PART_REGEX})"
_UNIT_REGEX = rf"(?: more| of an| a)? (?P<unit>{'|'.join(UNIT_NAMES)})"
_AMOUNT_PATTERN = re.compile(
    rf"\b(?P<low>{_VALUE_REGEX})(?: (?:to|or) (?P<high>{_VALUE_REGEX}))?{_UNIT_REGEX}\b"
)


def amounts(text: str) -> dict[str, set[tuple[float, float]]]:
    """Return the amounts of each unit in a text, as least and greatest: {"minute": {(10.0,
    12.0)}}."""
    amounts_by_unit: dict[str, set[tuple[float, float]]] = {}
    for match in _AMOUNT_PATTERN.finditer(_plain(text)):
        low = _value(match["low"])
        high = _value(match["high"]) if match["high"] else low
        unit = UNIT_NAMES[match["unit"]]
        amounts_by_unit.setdefault(unit, set()).add((low, high))
    return amounts_by_unit


def contradictions(sentence: str, step: str) -> Iterator[str]:
    """Yield "number" and "negation" where a step contradicts what is said.

    A number: both name amounts of one unit, and neither names all that the other does. A negation:
    one forbids or denies and the other does not.
    """
    spoken = amounts(sentence)
    written = amounts(step)
    for unit in spoken.keys() & written.keys():
        if not (_within(spoken[unit], written[unit]) or _within(written[unit], spoken[unit])):
            yield "number"
            break
    if _negative(sentence) != _negative(step):
        yield "negation"


def _within(few: set[tuple[float, float]], many: set[tuple[float, float]]) -> bool:
    """Say whether each of a few amounts shares values with one of many."""
    return all(_is_among(amount, many) for amount in few)


def _is_among(amount: tuple[float, float], many: set[tuple[float, float]]) -> bool:
    least, most = amount
    return any(least <= high + 1e-6 and low <= most + 1e-6 for low, high in many)


def _negative(text: str) -> bool:
    plain = text.lower().replace("’", "'").replace("do not", "don't")
    return NEGATION_PATTERN.search(HARMLESS_PATTERN.sub(" ", plain)) is not None


def _plain(text: str) -> str:
    words = re.sub(r"[^\w' ]", " ", spoken_numbers(text).lower())
    return " ".join(words.split())


def _value(words: str) -> float:
    whole, _, part = words.partition(" and ")
    extra = {
        "a half": 0.5,
        "a quarter": 0.25,
        "three quarters": 0.75,
        "a third": 1 / 3,
        "two thirds": 2 / 3,
    }
    return _NUMBER_VALUES[whole] + extra.get(part, 0.0)
