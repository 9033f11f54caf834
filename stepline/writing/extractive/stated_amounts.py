"""Amounts of steps: those that a sentence of their own says, and numbers that read badly as said.

add the noodles. I used about 125 grams.     add the noodles, about 125 grams
add two and a half cups of water             add 2.5 cups of water
"""

import re
from typing import TYPE_CHECKING, Final

from stepline.records import Step
from stepline.writing.quantities import (
    COUNT_KIND,
    DEGREE_WORDS,
    SMALL_NUMBERS,
    UNIT_KINDS,
    quantities,
)

if TYPE_CHECKING:
    from spacy.tokens import Doc

MAX_AMOUNT_WORDS: Final = 10  # of a sentence that says an amount and nothing else
MAX_SENTENCES_APART: Final = 2  # of a step and the sentence that says its amount
# "two and a half" and "a cup and a half"
HALF_PATTERN: Final = re.compile(
    rf"\b({'|'.join(SMALL_NUMBERS)}|\d+) and (?:a|one) half\b", re.IGNORECASE
)
UNIT_AND_HALF_PATTERN: Final = re.compile(
    r"\b(?:an?|one) (cup|pint|quart|litre|liter|kilo|pound|inch|minute|hour) and a half\b",
    re.IGNORECASE,
)
MANY_INCHES: Final = "inches"


def sentence_amount(doc: "Doc") -> str | None:
    """Return the amount that a short sentence states, as said, None where it says more."""
    words = [token for token in doc if token.is_alpha or token.like_num]
    if not 1 < len(words) <= MAX_AMOUNT_WORDS:
        return None
    # Exactly one amount with a unit. Bare counts are left out.
    stated = [quantity for quantity in quantities(doc.text) if quantity.kind != COUNT_KIND]
    if len(stated) != 1:
        return None
    # Any other noun than a unit names a thing, so the sentence says more.
    units: list[int] = []
    for token in doc:
        if token.lower_ in UNIT_KINDS or token.lower_ in DEGREE_WORDS:
            units.append(token.i)
        elif token.pos_ in ("NOUN", "PROPN") and token.lower_ != "worth":
            return None
    numbers = [token.i for token in doc if token.like_num]
    if not units or not numbers:
        return None
    # From the number, or the "about" before it, to the last unit.
    first = _begin_with_adverbs(doc, numbers[0])
    last = units[-1]
    if first >= last:
        return None
    amount: str = doc[first : last + 1].text
    return amount[:1].lower() + amount[1:]


def _begin_with_adverbs(doc: "Doc", number: int) -> int:
    """Return where an amount begins: at its number, or at "about" or "up to" before it."""
    first = number
    while first > 0:
        before = doc[first - 1]
        if before.pos_ not in ("ADV", "ADP") or before.head.i < first:
            break
        first -= 1
    return first


def with_amount(step: Step, amount: str, sentence: int) -> Step | None:
    """Return a step with the amount that a later sentence says.

    None where it has one of its kind, or is said too far away.
    """
    if not step.sources:
        return None
    distance = sentence - step.sources[-1]
    if not 0 < distance <= MAX_SENTENCES_APART:
        return None
    kinds = {quantity.kind for quantity in quantities(amount)}
    for quantity in quantities(step.text):
        if quantity.kind in kinds:
            return None
    changes = {"text": f"{step.text}, {amount}", "sources": (*step.sources, sentence)}
    return step.model_copy(update=changes)


def with_digits(text: str) -> str:
    """Return a step with halves as digits: of "two and a half cups" "2.5 cups"."""
    text = HALF_PATTERN.sub(_number_and_half, text)
    return UNIT_AND_HALF_PATTERN.sub(_unit_and_half, text)


def _number_and_half(match: re.Match[str]) -> str:
    word = match[1].lower()
    return f"{SMALL_NUMBERS.get(word, word)}.5"


def _unit_and_half(match: re.Match[str]) -> str:
    unit = match[1].lower()
    if unit == "inch":
        return f"1.5 {MANY_INCHES}"
    return f"1.5 {unit}s"
