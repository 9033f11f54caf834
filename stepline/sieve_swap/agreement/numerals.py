"""Numbers as people write and say them: 2, 1.5, 1/2, 1 1/2, ½, two, twenty five, three fifty, one and a half."""

import re
import unicodedata
from collections.abc import Sequence
from typing import TypeAlias

Range: TypeAlias = tuple[float, float]  # least and greatest: "8 to 10" is (8, 10), "5" is (5, 5)

SMALL = {
    word: number
    for number, word in enumerate(
        [
            "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
            "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
        ]
    )
}  # fmt: skip
TENS = {
    word: 10 * number
    for number, word in enumerate(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], 2)
}
GREAT = {"hundred": 100, "thousand": 1000}
PARTS = {"half": 0.5, "halves": 0.5, "halve": 0.5, "quarter": 0.25, "quarters": 0.25, "third": 1 / 3, "thirds": 1 / 3}
DOZEN = {"dozen": 12, "dozens": 12}
BETWEEN = frozenset({"-", "–", "—", "to", "or"})

_TOKEN = re.compile(r"\d+(?:,\d{3})+(?:\.\d+)?|\d*\.\d+|\d+\s*/\s*\d+|\d+|[^\W\d_]+(?:'[^\W\d_]+)?|[%°\"/–—\-.,;:!?()]")
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
    """Return the number or range that begins at a token and the place after it; None where none does."""
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
    if list(words[after : after + 2]) == ["and", "a"] and after + 2 < len(words) and words[after + 2] in PARTS:
        return value + PARTS[words[after + 2]], after + 3
    if after < len(words) and words[after] in PARTS and value >= 1 and words[after] != "halve":
        return value * PARTS[words[after]], after + 1  # three quarters, two thirds
    return value, after


def _written(words: Sequence[str], place: int) -> tuple[float, int] | None:
    if not _DIGITS.match(words[place]):
        return None
    value, after = _figure(words[place]), place + 1
    follows = after + 1 if after < len(words) and words[after] == "-" else after  # 1-1/2 is one and a half
    if value is not None and follows < len(words) and "/" in words[follows] and "/" not in words[place]:
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
    """Return a number in words: twenty five, two hundred and ten, and the oven's three fifty (350)."""
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
