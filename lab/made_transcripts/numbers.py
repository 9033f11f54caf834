"""Written numbers as they are spoken: "1 1/2 cups" is "one and a half cups", "350 degrees" is
"three fifty degrees"."""

import re

ONES_WORDS = (
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
TENS_WORDS = (
    "zero",
    "ten",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
)
FRACTION_WORDS = {
    "1/2": "half",
    "1/3": "a third",
    "2/3": "two thirds",
    "1/4": "a quarter",
    "3/4": "three quarters",
    "1/8": "an eighth",
    "3/8": "three eighths",
    "1/16": "a sixteenth",
}
FRACTION_SIGNS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅛": "1/8"}
_SHORT_UNITS = {
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
_NUMBER_PATTERN = re.compile(
    r"(?P<whole>\d+)[ -](?P<part>\d/\d+)|(?P<only>\d/\d+)|(?P<decimal>\d+\.\d+)|(?P<plain>\d+)"
)


def spoken_numbers(text: str) -> str:
    """Return the text with its numbers, fractions, ranges and short units in words."""
    for sign, fraction in FRACTION_SIGNS.items():
        text = re.sub(rf"(?<=\d){sign}", f" {fraction}", text).replace(sign, fraction)
    # the same in other units
    text = re.sub(r"\s*\((?:\d|about \d)[^)]*(?:C|degrees C|°C|F|cm|g|ml)\.?\)", "", text)
    text = re.sub(r"\s?(?:degrees|°|º)\s?[FC]\b\.?", " degrees", text, flags=re.IGNORECASE)
    text = re.sub(r"(\d)[F]\b", r"\1 degrees", text)
    for short, long in _SHORT_UNITS.items():
        text = re.sub(short, long, text, flags=re.IGNORECASE)
    text = re.sub(r"(\d)\s?[x×]\s?(?=\d)", r"\1 by ", text)
    text = re.sub(r"(\d)\s?(?:[-–—]|to)\s?(?=\d)(?!\d/)", r"\1 to ", text)
    text = re.sub(r"(\d)-(?=[a-z])", r"\1 ", text)
    return _NUMBER_PATTERN.sub(_spoken, text)


def _spoken(match: re.Match[str]) -> str:
    if match["whole"]:
        part = FRACTION_WORDS.get(match["part"], match["part"])
        if part == "half":
            part = "a half"
        return f"{cardinal(int(match['whole']))} and {part}"
    if match["only"]:
        return FRACTION_WORDS.get(match["only"], match["only"])
    if match["decimal"]:
        whole, _, part = match["decimal"].partition(".")
        digits = " ".join(ONES_WORDS[int(digit)] for digit in part)
        return f"{cardinal(int(whole))} point {digits}"
    return cardinal(int(match["plain"]))


def cardinal(number: int) -> str:
    """Return a number in words, hundreds of ovens as cooks say them: 350 is "three fifty", 400
    "four hundred"."""
    if number < 20:
        return ONES_WORDS[number]
    if number >= 10_000:
        return str(number)
    if number < 100:
        rest = number % 10
        words = TENS_WORDS[number // 10]
    elif number < 1000:
        rest = number % 100
        words = cardinal(number // 100)
        if rest < 10:
            words += " hundred"
    else:
        rest = number % 1000
        words = f"{cardinal(number // 1000)} thousand"
    return f"{words} {cardinal(rest)}" if rest else words
