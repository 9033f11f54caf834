"""Does a swapped step contradict the numbers or the negation of what was said? Written apart from
the code it checks.

Both texts are put into spoken words by `numbers` and read by one pattern; nothing of stepline's own
check is used.
"""

import re
from collections.abc import Iterator

from made_transcripts.numbers import cardinal, spoken_numbers

UNITS = {
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
NEGATIONS = re.compile(r"\b(?:not|don't|never|without|avoid)\b")
# frames of speech that forbid nothing
HARMLESS = re.compile(r"\b(?:don't|do not|never) (?:forget|worry|be shy)\b")
_VALUES = {
    cardinal(number): float(number) for number in range(1, 1000) if not 100 < number < 200
} | {
    "a quarter": 0.25,
    "three quarters": 0.75,
    "half a": 0.5,
    "half": 0.5,
    "a third": 1 / 3,
    "two thirds": 2 / 3,
    "an eighth": 0.125,
    "three eighths": 0.375,
}
_VALUES |= {
    f"{cardinal(n)} point {cardinal(part)}": n + part / 10 for n in range(20) for part in range(10)
}
_NUMBER = "|".join(sorted(map(re.escape, _VALUES), key=len, reverse=True))
_ONE = rf"(?:(?:{_NUMBER})(?: and (?:a half|a quarter|three quarters|a third|two thirds))?)"
_UNIT = rf"(?: more| of an| a)? (?P<unit>{'|'.join(UNITS)})"
_AMOUNT = re.compile(rf"\b(?P<low>{_ONE})(?: (?:to|or) (?P<high>{_ONE}))?{_UNIT}\b")


def amounts(text: str) -> dict[str, set[tuple[float, float]]]:
    """Return the amounts of each unit in a text, as least and greatest: {"minute": {(10.0,
    12.0)}}."""
    found: dict[str, set[tuple[float, float]]] = {}
    for match in _AMOUNT.finditer(_plain(text)):
        low = _value(match["low"])
        high = _value(match["high"]) if match["high"] else low
        found.setdefault(UNITS[match["unit"]], set()).add((low, high))
    return found


def contradictions(said: str, step: str) -> Iterator[str]:
    """Yield "number" and "negation" where a step contradicts what is said.

    A number: both name amounts of one unit, and neither names all that the other does. A negation:
    one forbids or denies and the other does not.
    """
    spoken, written = amounts(said), amounts(step)
    for unit in spoken.keys() & written.keys():
        if not (_within(spoken[unit], written[unit]) or _within(written[unit], spoken[unit])):
            yield "number"
            break
    if _negative(said) != _negative(step):
        yield "negation"


def _within(few: set[tuple[float, float]], many: set[tuple[float, float]]) -> bool:
    return all(any(a <= high + 1e-6 and low <= b + 1e-6 for low, high in many) for a, b in few)


def _negative(text: str) -> bool:
    return (
        NEGATIONS.search(
            HARMLESS.sub(" ", text.lower().replace("’", "'").replace("do not", "don't"))
        )
        is not None
    )


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[^\w' ]", " ", spoken_numbers(text).lower()).split())


def _value(words: str) -> float:
    whole, _, part = words.partition(" and ")
    extra = {
        "a half": 0.5,
        "a quarter": 0.25,
        "three quarters": 0.75,
        "a third": 1 / 3,
        "two thirds": 2 / 3,
    }
    return _VALUES[whole] + extra.get(part, 0.0)
