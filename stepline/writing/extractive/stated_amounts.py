"""Amounts of steps: those that a sentence of their own tells, and numbers that read badly as said.

add the noodles. I used about 125 grams.     add the noodles, about 125 grams
add two and a half cups of water             add 2.5 cups of water
"""

import re
from typing import TYPE_CHECKING, Final

from stepline.records import Step
from stepline.writing.quantities import COUNT, DEGREES, SMALL, UNITS, quantities

if TYPE_CHECKING:
    from spacy.tokens import Doc

MAX_AMOUNT_WORDS: Final = 10  # of a sentence that tells an amount and nothing else
MAX_SENTENCES_APART: Final = 2  # of a step and the sentence that tells its amount
HALF_PATTERN: Final = re.compile(rf"\b({'|'.join(SMALL)}|\d+) and (?:a|one) half\b", re.IGNORECASE)
UNIT_AND_HALF_PATTERN: Final = re.compile(
    r"\b(?:an?|one) (cup|pint|quart|litre|liter|kilo|pound|inch|minute|hour) and a half\b",
    re.IGNORECASE,
)
MANY_INCHES: Final = "inches"


def amount_told(doc: "Doc") -> str | None:
    """Return the amount that a short sentence tells, as said; None where it tells more than that."""
    words = [token for token in doc if token.is_alpha or token.like_num]
    if not 1 < len(words) <= MAX_AMOUNT_WORDS:
        return None
    stated = [quantity for quantity in quantities(doc.text) if quantity.kind != COUNT]
    if len(stated) != 1:
        return None
    units = [token for token in doc if token.lower_ in UNITS or token.lower_ in DEGREES]
    others = [token for token in doc if token.pos_ in ("NOUN", "PROPN") and token not in units]
    numbers = [token.i for token in doc if token.like_num]
    if not units or not numbers or any(token.lower_ != "worth" for token in others):
        return None
    first, last = numbers[0], units[-1].i
    while first > 0 and doc[first - 1].pos_ in ("ADV", "ADP") and doc[first - 1].head.i >= first:
        first -= 1
    if first >= last:
        return None
    amount: str = doc[first : last + 1].text
    return amount[:1].lower() + amount[1:]


def with_amount(step: Step, amount: str, sentence: int) -> Step | None:
    """Return a step with the amount that a later sentence tells; None where it has one of its kind,
    or is told too far away."""
    if not step.sources or not 0 < sentence - step.sources[-1] <= MAX_SENTENCES_APART:
        return None
    kinds = {quantity.kind for quantity in quantities(amount)}
    if any(quantity.kind in kinds for quantity in quantities(step.text)):
        return None
    sources = (*step.sources, sentence)
    return step.model_copy(update={"text": f"{step.text}, {amount}", "sources": sources})


def with_digits(text: str) -> str:
    """Return a step with halves as digits: of "two and a half cups" "2.5 cups"."""
    return UNIT_AND_HALF_PATTERN.sub(_unit_and_half, HALF_PATTERN.sub(_number_and_half, text))


def _number_and_half(match: re.Match[str]) -> str:
    word = match[1].lower()
    return f"{SMALL.get(word, word)}.5"


def _unit_and_half(match: re.Match[str]) -> str:
    unit = match[1].lower()
    return f"1.5 {MANY_INCHES if unit == 'inch' else unit + 's'}"
