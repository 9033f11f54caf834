"""Amounts and times that several videos state of one thing, with their spread."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepline.records import FrozenModel, Material
from stepline.writing.quantities import COUNT, UNITS, quantities, stem, tokens


@dataclass(frozen=True)
class StatedAmount:
    """An amount, low to high, that a video states of a thing. thing: "" where it is of the step.

    unit: None for a bare count.
    """

    video: str
    thing: str
    unit: str | None
    low: float
    high: float

    @property
    def kind(self) -> str:
        """What units can be converted into each other: volume, mass, time; else the unit itself."""
        unit = self.unit or COUNT
        return UNITS[unit][0] if unit in UNITS else unit

    def middle_in(self, unit: str | None) -> float:
        """Return the middle of low and high in another unit of the same kind."""
        factor = _unit_size(self.unit) / _unit_size(unit)
        return (self.low + self.high) / 2 * factor

    def range_in(self, unit: str | None) -> tuple[float, float]:
        """Return low and high in another unit of the same kind."""
        factor = _unit_size(self.unit) / _unit_size(unit)
        return self.low * factor, self.high * factor


class AmountSpread(FrozenModel):
    """The least, median and greatest amount of a thing over videos, in one unit.

    thing: a word of the step, "" where the amount is of the step itself ("bake for 20 minutes").
    unit: the one that most videos use; None for a bare count. videos: ids.
    """

    thing: str = ""
    unit: str | None = None
    low: float
    median: float
    high: float
    videos: tuple[str, ...]


def step_amounts(video: str, text: str) -> list[StatedAmount]:
    """Return the amounts that the text of a step states; bare counts only with their thing."""
    words = tokens(text)
    amounts = []
    for quantity in quantities(text):
        thing = ""
        # times and temperatures are of the step, whatever word comes next
        if quantity.thing and quantity.kind not in ("time", "temperature"):
            stems = (word for word in words if stem(word) == quantity.thing)
            thing = next(stems, quantity.thing)
        if quantity.kind == COUNT and not thing:
            continue
        unit = quantity.unit or None
        if quantity.kind == "temperature":
            unit = f"degrees {quantity.unit}".strip()
        amounts.append(StatedAmount(video, thing, unit, quantity.low, quantity.high))
    return amounts


def material_amounts(video: str, material: Material) -> list[StatedAmount]:
    """Return what a video needs of a material: its amounts of one kind of unit are added up."""
    stated = [StatedAmount(video, "", a.unit, a.low, a.high) for a in material.amounts]
    totals: dict[str, StatedAmount] = {}
    for amount in stated:
        total = totals.get(amount.kind)
        if total is not None:
            low, high = amount.range_in(total.unit)
            amount = StatedAmount(video, "", total.unit, total.low + low, total.high + high)
        totals[amount.kind] = amount
    return list(totals.values())


def amount_spreads(amounts: Iterable[StatedAmount]) -> tuple[AmountSpread, ...]:
    """Return the spread of each thing and kind of unit, those of most videos first."""
    of_kind: dict[tuple[str, str], list[StatedAmount]] = defaultdict(list)
    for amount in amounts:
        of_kind[stem(amount.thing), amount.kind].append(amount)
    spreads = [_spread(group) for group in of_kind.values()]
    spreads.sort(key=lambda spread: -len(spread.videos))
    return tuple(spreads)


def spread_text(spread: AmountSpread) -> str:
    """Return a spread as people write it: "1-3 cup flour, median 2"."""
    text = f"{spread.low:g}"
    if spread.high > spread.low:
        text += f"-{spread.high:g}"
    text = " ".join(filter(None, (text, spread.unit, spread.thing)))
    if spread.high > spread.low:
        text += f", median {spread.median:g}"
    return text


def _spread(amounts: Sequence[StatedAmount]) -> AmountSpread:
    unit = Counter(amount.unit for amount in amounts).most_common(1)[0][0]
    ranges = [amount.range_in(unit) for amount in amounts]
    median = statistics.median(amount.middle_in(unit) for amount in amounts)
    return AmountSpread(
        thing=Counter(amount.thing for amount in amounts).most_common(1)[0][0],
        unit=unit,
        low=round(min(low for low, _ in ranges), 3),
        median=round(median, 3),
        high=round(max(high for _, high in ranges), 3),
        videos=tuple(dict.fromkeys(amount.video for amount in amounts)),
    )


def _unit_size(unit: str | None) -> float:
    return UNITS[unit][1] if unit in UNITS else 1.0
