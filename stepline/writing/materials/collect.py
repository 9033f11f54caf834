"""What the work of a narration needs: materials with their amounts, and tools, each listed once.

sentences   only those that describe a step or say what is needed, by the tagger
mentions    the things that these name, by amounts and grammar (mentions)
kinds       whether a thing is a material or a tool, by its name (thing_kinds.json)
merging     several mentions of one thing become one
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from stepline.limits import load_packaged_json
from stepline.numeric import softmax
from stepline.records import Amount, Material, Sentence
from stepline.text import embed
from stepline.text.narration.words import SENTENCE_KINDS
from stepline.writing.extractive.narration import ParsedNarration
from stepline.writing.materials.mentions import ThingMention, find_mentions, make_amount_record
from stepline.writing.quantities import UNIT_KINDS

ThingKind = Literal["material", "tool", "other"]
THING_KINDS: tuple[ThingKind, ...] = get_args(ThingKind)
WEIGHTS_FILE = "thing_kinds.json"

Array = npt.NDArray[np.float32]


def predict_thing_kinds(names: Sequence[str]) -> Array:
    """Return P(material), P(tool) and P(other) of a thing by its name, for N names, (N, 3)."""
    weights, biases = _read_weights()
    vectors = embed([name.lower() for name in names])  # (N, D)
    probabilities: Array = softmax(vectors @ weights.T + biases)
    return probabilities


@cache
def _read_weights() -> tuple[Array, Array]:
    content = load_packaged_json("stepline.writing.materials", WEIGHTS_FILE)
    return np.array(content["weights"], np.float32), np.array(content["biases"], np.float32)


# Probabilities of a sentence, by the tagger.
# P(it describes a step or lists what is needed) from which it is read
MIN_WORK_PROBABILITY = 0.5
MIN_MEASURED_WORK_PROBABILITY = 0.3  # the same of what is measured, in grams or cups
# P(it is left to the viewer), from which what it measures is not needed
MIN_OPTION_PROBABILITY = 0.5
MIN_LIST_PROBABILITY = 0.5  # P(it lists what is needed) from which all that it names counts
# Probabilities of a thing, by its name.
# P(neither material nor tool) of what is measured in grams or cups
MAX_OTHER_PROBABILITY = 0.9
MIN_LISTED_THING_PROBABILITY = 0.5  # P(either) of what is listed as needed
MIN_COUNTED_MATERIAL_PROBABILITY = 0.5  # P(material) of what is counted
MIN_UNMEASURED_MATERIAL_PROBABILITY = 0.75  # P(material) of what is added without an amount
MIN_TOOL_PROBABILITY = 0.5  # P(tool) of what the work is done with or in


@dataclass(frozen=True)
class NeededThings:
    """The materials and tools of a narration, in order of their first mention."""

    materials: tuple[Material, ...] = ()
    tools: tuple[Material, ...] = ()


@dataclass(frozen=True)
class _UnitMention:
    """A mention of a thing in a narration.

    Attributes:
        mention: the name, role and amount.
        unit: index of the spoken sentence.
        is_ingredient_list: whether the sentence lists ingredients or tools.
    """

    mention: ThingMention
    unit: int
    is_ingredient_list: bool


@dataclass(frozen=True)
class _NeededThing:
    """A material or tool that the work needs, merged from its mentions in the narration.

    Attributes:
        mention: the first mention.
        amounts: the stated amounts, different ones only.
        at: second at which its name is first spoken.
        sources: indices of the transcript sentences that name it.
        is_listed: whether the amount is stated in a list of what is needed, which is the total.
    """

    mention: ThingMention
    amounts: tuple[Amount, ...]
    at: float
    sources: tuple[int, ...]
    is_listed: bool


def find_materials(
    narration: ParsedNarration, *, is_screen_recording: bool = False
) -> NeededThings:
    """Return the materials and tools that the work of a narration needs, with amounts, seconds and
    source sentences.

    Of a screen recording, what is only used is left out: it is on the screen.
    """
    rows = list(_all_mentions(narration))
    if is_screen_recording:
        rows = [row for row in rows if not _is_only_used(row)]
    probabilities = predict_thing_kinds([row.mention.name for row in rows])
    materials: list[_NeededThing] = []
    tools: list[_NeededThing] = []
    for row, probability in zip(rows, probabilities, strict=True):
        thing = _make_thing(row, narration)
        kind = _thing_kind(row, probability, materials, tools)
        if kind == "material":
            _add_or_merge(materials, thing)
        elif kind == "tool":
            _add_or_merge(tools, replace(thing, amounts=()))
    return NeededThings(_as_records(materials), _as_records(tools))


def _all_mentions(narration: ParsedNarration) -> Iterator[_UnitMention]:
    """Yield the mentions in sentences that describe a step or list what is needed, by the tagger."""
    rows = zip(narration.docs, narration.sentence_tags, strict=True)
    for number, (doc, tags) in enumerate(rows):
        kinds = dict(zip(SENTENCE_KINDS, map(float, tags.kind_probabilities), strict=True))
        work_probability = kinds["step"] + kinds["items"]
        if work_probability < MIN_MEASURED_WORK_PROBABILITY:
            continue
        is_work = work_probability >= MIN_WORK_PROBABILITY
        is_ingredient_list = kinds["items"] >= MIN_LIST_PROBABILITY
        is_option = kinds["option"] >= MIN_OPTION_PROBABILITY
        for mention in find_mentions(doc, is_ingredient_list=is_ingredient_list):
            is_measured = _is_measured(mention) and not is_option
            if is_work or is_measured:
                yield _UnitMention(mention, number, is_ingredient_list)


def _is_measured(mention: ThingMention) -> bool:
    """Return whether a mention has an amount in grams, cups or metres."""
    if mention.amount is None:
        return False
    unit = mention.amount.unit
    return unit in UNIT_KINDS or unit[:1].isdigit()  # "14 oz can"


def _is_only_used(row: _UnitMention) -> bool:
    """Return whether a mention is neither listed as needed nor added, and has no number."""
    amount = row.mention.amount
    is_used = row.mention.role in ("used", "with", "amount") and not row.is_ingredient_list
    return is_used and (amount is None or amount.is_article)


def _thing_kind(
    row: _UnitMention,
    probability: Array,
    materials: Sequence[_NeededThing],
    tools: Sequence[_NeededThing],
) -> ThingKind:
    """Return the kind of a mention: that of an earlier mention of the same thing, else a kind by its
    name and role.

    Args:
        row: the mention.
        probability: P of each of THING_KINDS by the name, (3,).
        materials: the materials that were named before.
        tools: the tools that were named before.
    """
    mention = row.mention
    if mention.role != "used" and _find_same(materials, mention) is not None:
        return "material"
    if _find_same(tools, mention) is not None:
        return "tool"
    material = float(probability[THING_KINDS.index("material")])
    tool = float(probability[THING_KINDS.index("tool")])
    if _is_measured(mention):
        return "material" if material + tool > 1 - MAX_OTHER_PROBABILITY else "other"
    kind_in_context = _listed_kind if row.is_ingredient_list else _named_kind
    return kind_in_context(mention, material, tool)


def _named_kind(mention: ThingMention, material: float, tool: float) -> ThingKind:
    """Return the kind of a thing in a step. A tool is neither counted nor added.

    Args:
        mention: without a measured amount.
        material: P(it is a material), by its name.
        tool: P(it is a tool), by its name.
    """
    amount = mention.amount
    is_counted = amount is not None and not amount.is_article
    min_probability = MIN_UNMEASURED_MATERIAL_PROBABILITY
    if is_counted or mention.role == "some":
        min_probability = MIN_COUNTED_MATERIAL_PROBABILITY
    if material >= min_probability:
        return "material"
    is_no_tool = is_counted or mention.role in ("some", "added") or _has_unit(mention)
    return "other" if is_no_tool or tool < MIN_TOOL_PROBABILITY else "tool"


def _listed_kind(mention: ThingMention, material: float, tool: float) -> ThingKind:
    """Return the kind of a thing in a list of what is needed: material, tool or other. A tool has
    no amount with a unit.

    Args:
        mention: without a measured amount.
        material: P(it is a material), by its name.
        tool: P(it is a tool), by its name.
    """
    if material + tool < MIN_LISTED_THING_PROBABILITY:
        return "other"
    if material >= tool:
        return "material"
    return "other" if _has_unit(mention) or mention.role == "some" else "tool"


def _has_unit(mention: ThingMention) -> bool:
    """Return whether a mention has an amount with a unit, even "slice"."""
    return mention.amount is not None and bool(mention.amount.unit)


def _make_thing(row: _UnitMention, narration: ParsedNarration) -> _NeededThing:
    """Return a mention as a thing, with its source sentence and the second at which it is spoken."""
    unit = narration.units[row.unit]
    doc = narration.docs[row.unit]
    # Words of a doc are parted by one space, so the spaces before a token count them.
    unit_word_index = sum(bool(token.whitespace_) for token in doc[: row.mention.token_index])
    word_positions = list(unit.word_positions())
    number, word_index = word_positions[min(unit_word_index, len(word_positions) - 1)]
    sentence = unit.sentences[number - unit.first_sentence]
    amount = row.mention.amount
    amounts = () if amount is None else (make_amount_record(doc, amount),)
    return _NeededThing(
        mention=row.mention,
        amounts=amounts,
        at=_word_start(sentence, word_index),
        sources=(number,),
        is_listed=row.is_ingredient_list and bool(amounts),
    )


def _word_start(sentence: Sentence, word_index: int) -> float:
    """Return the second at which a word of a sentence starts. Without word times it is the start of
    the sentence."""
    if len(sentence.words) == len(sentence.text.split()):
        span = sentence.words[word_index].span
        if span is not None:
            return span.start
    return sentence.span.start


def _add_or_merge(things: list[_NeededThing], thing: _NeededThing) -> None:
    """Append a thing to a list, or merge it into the same thing there, in place."""
    number = _find_same(things, thing.mention)
    if number is None:
        things.append(thing)
    else:
        things[number] = _merge_things(things[number], thing)


def _find_same(things: Sequence[_NeededThing], mention: ThingMention) -> int | None:
    """Return the index of the first thing that a mention can name."""
    numbers = range(len(things))
    return next((n for n in numbers if _can_be_same_thing(things[n].mention, mention)), None)


def _can_be_same_thing(earlier: ThingMention, later: ThingMention) -> bool:
    """Return whether a later mention can name the same thing as an earlier one.

    Their last words are equal. Each word of the later name is in the earlier one, or the later name
    has no amount and holds all words of the earlier one.
    """
    earlier_lemmas = set(earlier.lemmas)
    later_lemmas = set(later.lemmas)
    adds_words = earlier_lemmas < later_lemmas and later.amount is None
    has_same_noun = earlier.lemmas[-1] == later.lemmas[-1]
    return has_same_noun and (later_lemmas <= earlier_lemmas or adds_words)


def _merge_things(first: _NeededThing, repeat: _NeededThing) -> _NeededThing:
    """Return a thing with the amounts and source sentences of a further mention added."""
    return replace(
        first,
        amounts=_merge_amounts(first, repeat),
        sources=tuple(dict.fromkeys((*first.sources, *repeat.sources))),
        is_listed=first.is_listed or repeat.is_listed,
    )


def _merge_amounts(first: _NeededThing, repeat: _NeededThing) -> tuple[Amount, ...]:
    """Return the different amounts of two mentions of one thing. A list of what is needed states the
    total, so its amounts replace the others.

    A part of an earlier amount ("a cup of the milk") adds none, and neither does "an egg".
    """
    is_part = repeat.mention.is_definite and bool(first.amounts)
    if first.is_listed or is_part:
        return first.amounts
    if repeat.is_listed or not first.amounts:
        return repeat.amounts
    if not _has_unit(repeat.mention):
        return first.amounts
    amounts = list(first.amounts)
    for amount_to_add in repeat.amounts:
        known_amounts = [(amount.low, amount.high, amount.unit) for amount in amounts]
        if (amount_to_add.low, amount_to_add.high, amount_to_add.unit) not in known_amounts:
            amounts.append(amount_to_add)
    return tuple(amounts)


def _as_records(things: Sequence[_NeededThing]) -> tuple[Material, ...]:
    return tuple(
        Material(name=thing.mention.name, amounts=thing.amounts, at=thing.at, sources=thing.sources)
        for thing in things
    )


def materials_of_first_sentences(
    things: Sequence[Material], sentences: int
) -> tuple[Material, ...]:
    """Return the things that the first `sentences` transcript sentences name, with only these
    sentences as sources."""
    things_named = []
    for thing in things:
        sources = tuple(source for source in thing.sources if source < sentences)
        if sources:
            things_named.append(thing.model_copy(update={"sources": sources}))
    return tuple(things_named)
