"""Written numbers as they are spoken: "1 1/2 cups" is "one and a half cups", "350 degrees" is
"three fifty degrees"."""

import re

ONES = (
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
)
TENS = ("zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
FRACTIONS = {
    "1/2": "half",
    "1/3": "a third",
    "2/3": "two thirds",
    "1/4": "a quarter",
    "3/4": "three quarters",
    "1/8": "an eighth",
    "3/8": "three eighths",
    "1/16": "a sixteenth",
}
SIGNS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅛": "1/8"}
_SHORT = {
    r"\btbsp?s?\b\.?": "tablespoons",
    r"\btsps?\b\.?": "teaspoons",
    r"\boz\b\.?": "ounces",
    r"\blbs?\b\.?": "pounds",
    r"\bmins?\b\.?": "minutes",
    r"\bhrs?\b\.?": "hours",
    r"(?<=\d)\s?g\b": " grams",
    r"(?<=\d)\s?ml\b": " milliliters",
    r"(?<=\d)\s?(?:\"|in\.|”)": " inches",
    r"(?<=\d)\s?cm\b": " centimeters",
}
_NUMBER = re.compile(
    r"(?P<whole>\d+)[ -](?P<part>\d/\d+)|(?P<only>\d/\d+)|(?P<decimal>\d+\.\d+)|(?P<plain>\d+)"
)


def spoken_numbers(text: str) -> str:
    """Return the text with its numbers, fractions, ranges and short units in words."""
    for sign, fraction in SIGNS.items():
        text = re.sub(rf"(?<=\d){sign}", f" {fraction}", text).replace(sign, fraction)
    # the same in other units
    text = re.sub(r"\s*\((?:\d|about \d)[^)]*(?:C|degrees C|°C|F|cm|g|ml)\.?\)", "", text)
    text = re.sub(r"\s?(?:degrees|°|º)\s?[FC]\b\.?", " degrees", text, flags=re.IGNORECASE)
    text = re.sub(r"(\d)[F]\b", r"\1 degrees", text)
    for short, long in _SHORT.items():
        text = re.sub(short, long, text, flags=re.IGNORECASE)
    text = re.sub(r"(\d)\s?[x×]\s?(?=\d)", r"\1 by ", text)
    text = re.sub(r"(\d)\s?(?:[-–—]|to)\s?(?=\d)(?!\d/)", r"\1 to ", text)
    text = re.sub(r"(\d)-(?=[a-z])", r"\1 ", text)
    return _NUMBER.sub(_spoken, text)


def _spoken(match: re.Match[str]) -> str:
    if match["whole"]:
        part = FRACTIONS.get(match["part"], match["part"])
        return f"{cardinal(int(match['whole']))} and {'a half' if part == 'half' else part}"
    if match["only"]:
        return FRACTIONS.get(match["only"], match["only"])
    if match["decimal"]:
        whole, _, part = match["decimal"].partition(".")
        return f"{cardinal(int(whole))} point {' '.join(ONES[int(digit)] for digit in part)}"
    return cardinal(int(match["plain"]))


def cardinal(number: int) -> str:
    """Return a number in words, hundreds of ovens as cooks say them: 350 is "three fifty", 400
    "four hundred"."""
    if number < 20:
        return ONES[number]
    if number < 100:
        return TENS[number // 10] + (f" {ONES[number % 10]}" if number % 10 else "")
    if number < 1000 and number % 100 >= 10:
        return f"{cardinal(number // 100)} {cardinal(number % 100)}"
    if number < 1000:
        return f"{cardinal(number // 100)} hundred" + (
            f" {cardinal(number % 100)}" if number % 100 else ""
        )
    if number < 10_000:
        return f"{cardinal(number // 1000)} thousand" + (
            f" {cardinal(number % 1000)}" if number % 1000 else ""
        )
    return str(number)
