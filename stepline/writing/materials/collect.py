"""What the work of a narration needs: materials with their amounts, and tools, each named once.

sentences   only those that tell a step or say what is needed, by the tagger
mentions    what they name, by quantity and grammar (mentions)
kinds       what is a material, what a tool, by its name (thing_kinds)
merging     what is named again is one thing
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from stepline.narration.words import SENTENCE_KINDS
from stepline.records import Amount, Material
from stepline.writing.extractive.reading import NarrationReading, NarrationUnit
from stepline.writing.materials.mentions import Mention, find_mentions
from stepline.writing.materials.thing_kinds import thing_kinds
from stepline.writing.quantities import UNITS

if TYPE_CHECKING:
    from spacy.tokens import Doc

MIN_WORK: Final = 0.5  # P(a sentence tells a step or lists what is needed) from which it is read
MIN_MEASURED: Final = 0.3  # the same of what is measured, in grams or cups
MIN_OPTION: Final = 0.5  # P(it is left to the viewer), from which what it measures is not needed
MIN_LIST: Final = 0.5  # P(it lists what is needed) from which all that it names counts
MAX_OTHER: Final = 0.9  # P(neither material nor tool) of what is measured in grams or cups
MIN_LISTED: Final = 0.5  # P(either) of what is listed as needed
MIN_COUNTED: Final = 0.5  # P(material) of what is counted
MIN_BARE: Final = 0.75  # P(material) of what is added without an amount
MIN_TOOL: Final = 0.5  # P(tool) of what the work is done with or in


@dataclass(frozen=True)
class NeededThings:
    """What a narration says is needed, in the order of the first naming."""

    materials: tuple[Material, ...] = ()
    tools: tuple[Material, ...] = ()


@dataclass(frozen=True)
class _Thing:
    """A thing while others are merged into it. is_listed: its amount is of the list of what is
    needed, which says how much in all."""

    mention: Mention
    amounts: tuple[Amount, ...]
    at: float
    sources: tuple[int, ...]
    is_listed: bool


def find_materials(narration: NarrationReading) -> NeededThings:
    """Return the materials and tools that a narration says are used, each with when it is named."""
    rows = list(_all_mentions(narration))
    chances = thing_kinds([mention.name for _, mention, _ in rows])
    materials: list[_Thing] = []
    tools: list[_Thing] = []
    for (number, mention, is_list), (material, tool, _) in zip(rows, chances, strict=True):
        thing = _thing(mention, narration.units[number], narration.docs[number], is_list=is_list)
        if mention.role != "used" and _find(materials, mention) is not None:
            _add(materials, thing)
        elif _find(tools, mention) is not None:
            _add(tools, replace(thing, amounts=()))
        elif _is_material(mention, float(material), float(tool), is_list=is_list):
            _add(materials, thing)
        elif _is_tool(mention, float(material), float(tool), is_list=is_list):
            _add(tools, replace(thing, amounts=()))
    return NeededThings(tuple(map(_material, materials)), tuple(map(_material, tools)))


def _all_mentions(narration: NarrationReading) -> Iterator[tuple[int, Mention, bool]]:
    """Yield what sentences of the work name: the number of the unit, the mention, whether the unit
    lists what is needed."""
    for number, (doc, reading) in enumerate(zip(narration.docs, narration.readings, strict=True)):
        step = reading.step_probability
        items = float(reading.kinds[SENTENCE_KINDS.index("items")])
        option = float(reading.kinds[SENTENCE_KINDS.index("option")])
        if step + items < MIN_MEASURED:
            continue
        is_list = items >= MIN_LIST
        for mention in find_mentions(doc, is_list=is_list):
            is_measured = mention.amount is not None and mention.amount.unit in UNITS
            is_measured = is_measured and option < MIN_OPTION
            if step + items >= MIN_WORK or is_measured:
                yield number, mention, is_list


def _is_material(mention: Mention, material: float, tool: float, *, is_list: bool) -> bool:
    amount = mention.amount
    if amount is not None and amount.unit in UNITS:
        return material + tool > 1 - MAX_OTHER
    if is_list:
        return material >= tool and material + tool >= MIN_LISTED
    if mention.role == "some" or (amount is not None and not amount.is_article):
        return material >= MIN_COUNTED
    return material >= MIN_BARE


def _is_tool(mention: Mention, material: float, tool: float, *, is_list: bool) -> bool:
    amount = mention.amount
    if mention.role in ("some", "added") or (amount is not None and amount.unit):
        return False
    if is_list:
        return tool > material and material + tool >= MIN_LISTED
    is_several = amount is not None and not amount.is_article
    return tool >= MIN_TOOL and not is_several


def _thing(mention: Mention, unit: NarrationUnit, doc: "Doc", *, is_list: bool) -> _Thing:
    """Return a mention with its sentence, and the second at which that begins to name it."""
    word = sum(bool(token.whitespace_) for token in doc[: mention.at])
    places = list(unit.places())
    number, place = places[min(word, len(places) - 1)]
    sentence = unit.sentences[number - unit.first]
    at = sentence.span.start
    if len(sentence.words) == len(sentence.text.split()):
        span = sentence.words[place].span
        at = span.start if span is not None else at
    amounts: tuple[Amount, ...] = ()
    amount = mention.amount
    if amount is not None and not amount.is_article:
        text = doc[amount.begin : amount.end].text
        amounts = (Amount(low=amount.low, high=amount.high, unit=amount.unit or None, text=text),)
    elif amount is not None:
        amounts = (Amount(low=1.0, high=1.0, text=doc[amount.begin : amount.end].text),)
    return _Thing(mention, amounts, at, (number,), is_list and bool(amounts))


def _add(things: list[_Thing], thing: _Thing) -> None:
    """Add a thing, or what is new of it to the one that it is."""
    number = _find(things, thing.mention)
    if number is None:
        things.append(thing)
    else:
        things[number] = _merged(things[number], thing)


def _find(things: Sequence[_Thing], mention: Mention) -> int | None:
    """Return the number of the first thing that a mention can be of."""
    for number, thing in enumerate(things):
        if _is_same(thing.mention, mention):
            return number
    return None


def _is_same(earlier: Mention, later: Mention) -> bool:
    """Return whether a later naming can be of the same thing: the same noun, and no word that the
    first does not have, unless it only says how the thing was prepared."""
    if earlier.lemmas[-1] != later.lemmas[-1]:
        return False
    before, after = set(earlier.lemmas), set(later.lemmas)
    return after <= before or (before < after and later.amount is None)


def _merged(first: _Thing, again: _Thing) -> _Thing:
    """Return the first naming with the amounts of both; those of a list are of all that is used."""
    amounts = first.amounts
    is_part = again.mention.is_definite and bool(amounts)  # of what was told before
    if not first.is_listed and not is_part:
        earlier = {(amount.low, amount.high, amount.unit) for amount in amounts}
        new = [a for a in again.amounts if (a.low, a.high, a.unit) not in earlier]
        if again.is_listed:
            amounts = again.amounts
        elif not amounts or (again.mention.amount and again.mention.amount.unit):
            amounts = (*amounts, *new)
    sources = tuple(dict.fromkeys((*first.sources, *again.sources)))
    is_listed = first.is_listed or again.is_listed
    return replace(first, amounts=amounts, sources=sources, is_listed=is_listed)


def _material(thing: _Thing) -> Material:
    name = thing.mention.name
    return Material(name=name, amounts=thing.amounts, at=thing.at, sources=thing.sources)


def materials_within(things: Sequence[Material], sentences: int) -> tuple[Material, ...]:
    """Return the things that the first so many sentences name, each with those of its sentences."""
    things_inside = []
    for thing in things:
        sources = tuple(source for source in thing.sources if source < sentences)
        if sources:
            things_inside.append(thing.model_copy(update={"sources": sources}))
    return tuple(things_inside)
