"""Amounts and times that several videos state of one thing, with their spread."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stepline.records import FrozenModel, Material
from stepline.writing.quantities import (
    COUNT_KIND,
    TEMPERATURE_KIND,
    UNIT_KINDS,
    find_quantities,
    stem,
    tokens,
)

# of units that state how a step is done, whatever word comes next
KINDS_OF_STEP = ("time", TEMPERATURE_KIND)
DIGITS_AFTER_POINT = 3  # of what is stored


@dataclass(frozen=True)
class StatedAmount:
    """An amount that a video states, such as "1 to 2 cups of flour".

    Attributes:
        video: id of the video.
        thing: word for what is measured ("flour"). "" if the step is measured ("bake for 20
            minutes").
        unit: name of the unit ("cup"). None for a bare count.
        low: the number, or the lower end of a range, in that unit.
        high: the number, or the upper end of a range, in that unit.
    """

    video: str
    thing: str
    unit: str | None
    low: float
    high: float

    @property
    def kind(self) -> str:
        """Physical quantity of the unit: volume, mass, time. Other units are their own kind."""
        return _kind_and_size(self.unit)[0]

    def in_unit(self, unit: str | None) -> "StatedAmount":
        """Return the same amount in another unit of the same kind."""
        factor = _kind_and_size(self.unit)[1] / _kind_and_size(unit)[1]
        return replace(self, unit=unit, low=self.low * factor, high=self.high * factor)


class AmountSpread(FrozenModel):
    """The least, median and greatest amount of a thing over videos, in one unit."""

    thing: str = ""
    """word for what is measured ("flour"), "" if the step is measured ("bake for 20 minutes")"""
    unit: str | None = None
    """unit of the amounts: the one that most videos use, None for a bare count"""
    low: float
    """least amount"""
    median: float
    """median amount. Of a range, its middle counts"""
    high: float
    """greatest amount"""
    videos: tuple[str, ...]
    """ids of the videos that state an amount"""


def step_amounts(video: str, text: str) -> list[StatedAmount]:
    """Return the amounts that the text of a step states ("2 eggs", "20 minutes").

    A bare number without a thing is left out.

    Args:
        video: id of the video, for the results.
        text: the step's text.
    """
    # Quantities name a thing by its stem, and people read the word.
    word_of_stem = {stem(word): word for word in tokens(text)}
    amounts = []
    for quantity in find_quantities(text):
        thing = ""
        if quantity.thing and quantity.kind not in KINDS_OF_STEP:
            thing = word_of_stem.get(quantity.thing, quantity.thing)
        # A bare number without its thing says nothing of a step.
        if quantity.kind == COUNT_KIND and not thing:
            continue
        unit = quantity.unit or None
        if quantity.kind == TEMPERATURE_KIND:
            unit = f"degrees {quantity.unit}".strip()
        amounts.append(StatedAmount(video, thing, unit, quantity.low, quantity.high))
    return amounts


def material_amounts(video: str, material: Material) -> list[StatedAmount]:
    """Return the total amounts of a material in a video, one for each kind of unit.

    Args:
        video: id of the video, for the results.
        material: the material, with all amounts that are said.
    """
    totals: dict[str, StatedAmount] = {}
    for stated in material.amounts:
        # Amounts of one kind are added up, in the first one's unit.
        amount = StatedAmount(video, "", stated.unit, stated.low, stated.high)
        total = totals.get(amount.kind)
        if total is not None:
            amount = amount.in_unit(total.unit)
            amount = replace(amount, low=total.low + amount.low, high=total.high + amount.high)
        totals[amount.kind] = amount
    return list(totals.values())


def amount_spreads(amounts: Iterable[StatedAmount]) -> tuple[AmountSpread, ...]:
    """Return least, median and greatest amount of each thing over videos.

    Amounts in units that do not convert into each other have a spread of their own. Spreads over
    most videos come first.
    """
    # Amounts can be compared where units convert into each other.
    of_kind: dict[tuple[str, str], list[StatedAmount]] = defaultdict(list)
    for amount in amounts:
        of_kind[stem(amount.thing), amount.kind].append(amount)
    spreads = map(_summarize_amounts, of_kind.values())
    return tuple(sorted(spreads, key=lambda spread: len(spread.videos), reverse=True))


def format_spread(spread: AmountSpread) -> str:
    """Return a spread as text: "1-3 cup flour, median 2"."""
    text = f"{spread.low:g}"
    if spread.high > spread.low:
        text += f"-{spread.high:g}"
    text = " ".join(filter(None, (text, spread.unit, spread.thing)))
    if spread.high > spread.low:
        text += f", median {spread.median:g}"
    return text


def _summarize_amounts(amounts: Sequence[StatedAmount]) -> AmountSpread:
    # The thing and the unit that most videos use.
    thing = Counter(amount.thing for amount in amounts).most_common(1)[0][0]
    unit = Counter(amount.unit for amount in amounts).most_common(1)[0][0]
    converted = [amount.in_unit(unit) for amount in amounts]
    # Of a range, its middle counts for the median.
    middle = statistics.median((amount.low + amount.high) / 2 for amount in converted)
    return AmountSpread(
        thing=thing,
        unit=unit,
        low=round(min(amount.low for amount in converted), DIGITS_AFTER_POINT),
        median=round(middle, DIGITS_AFTER_POINT),
        high=round(max(amount.high for amount in converted), DIGITS_AFTER_POINT),
        videos=tuple(dict.fromkeys(amount.video for amount in amounts)),
    )


def _kind_and_size(unit: str | None) -> tuple[str, float]:
    """Return the physical quantity of a unit, and its size in the base unit of that quantity."""
    name = unit or COUNT_KIND
    return UNIT_KINDS.get(name, (name, 1.0))
