"""Whether a step that would replace narration changes a number, a unit or a negation. Beyond the
paper.

Polarity is what a text denies and what it affirms: "do not season" against "season".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stepline.writing.extractive.english import word_set
from stepline.writing.quantities import (
    COUNT_KIND,
    FUNCTION_WORDS,
    Quantity,
    quantities,
    stem,
    tokens,
)

NEGATIVE_WORDS = word_set(
    "not never no without avoid cannot cant dont wont doesnt didnt isnt shouldnt nor neither none nothing"
)
# words of meaning after a cue that it denies, within its clause; speech has no commas to end one
MAX_DENIED_WORDS = 4
CLAUSE_ENDS = frozenset(",.;:!?()") | {"but", "then", "just", "instead", "otherwise"}

# With a negative word, but nothing of what is to be done is denied.
NOT_NEGATIVE = re.compile(
    r"\b(?:(?:do not|don't|dont|never) (?:forget|worry|hesitate|mind)|(?:do not|don't|dont) (?:know|think|get me wrong)"
    r"|not only|not to mention|no matter|no problem|no worries|no doubt|why not|if not|or not|not sure"
    r"|without further ado|(?:can't|cannot) (?:wait|go wrong|stress)|no more than|no less than|not less than"
    r"|isn't it|aren't they|doesn't it|no time|whether or not)\b"
)


@dataclass(frozen=True)
class Polarity:
    """What a text denies: denied, affirmed: stems; negative: whether it denies anything."""

    denied: frozenset[str]
    affirmed: frozenset[str]
    negative: bool

    def clashes(self, other: "Polarity") -> bool:
        """Tell whether one denies what the other affirms, or only one of the two denies
        anything."""
        if self.negative != other.negative:
            return True
        return self._denies(other) or other._denies(self)

    def _denies(self, other: "Polarity") -> bool:
        """Tell whether this one denies what the other affirms, or has "uncover" where that has
        "cover"."""
        if self.denied & other.affirmed - self.affirmed:
            return True
        undone = {word[2:] for word in self.affirmed if word.startswith("un")}
        return not undone.isdisjoint(other.affirmed - self.affirmed)


def polarity(text: str) -> Polarity:
    """Return what a text denies and what it affirms."""
    words = tokens(NOT_NEGATIVE.sub(" ", text.lower().replace("’", "'")))
    denied: set[str] = set()
    affirmed: set[str] = set()
    reach = 0  # words that the last cue still denies
    negative = False
    for word in words:
        if word in CLAUSE_ENDS:
            reach = 0
        elif word in NEGATIVE_WORDS or word.endswith("n't"):
            reach = MAX_DENIED_WORDS
            negative = True
        elif word[0].isalpha() and word not in FUNCTION_WORDS:
            stems = denied if reach else affirmed
            stems.add(stem(word))
            reach = max(0, reach - 1)
    return Polarity(frozenset(denied), frozenset(affirmed), negative)


CHANGED_NUMBER = "the step changes a number"
CHANGED_UNIT = "the step changes a unit"
CHANGED_NEGATION = "the step changes a negation"
NEW_NUMBER = "the step states a number that is not said"
CHANGE_REASONS = (CHANGED_NUMBER, CHANGED_UNIT, CHANGED_NEGATION, NEW_NUMBER)


def change(narration: str, step: str, *, new_numbers: bool = True) -> str | None:
    """Return which of CHANGES a step makes to what is said; None where it makes none.

    Amounts of one kind (time, volume, ...) agree when each one of the step is said, or each one
    said is in the step; amounts of the same thing must be equal. Silence is no contradiction unless
    new_numbers is False.
    """
    spoken = quantities(narration)
    written = quantities(step)
    changed = _changed_amount(spoken, written)
    if changed is not None:
        return changed
    if not new_numbers and not _are_within(written, spoken):
        return NEW_NUMBER
    return CHANGED_NEGATION if polarity(narration).clashes(polarity(step)) else None


def _changed_amount(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> str | None:
    for kind in dict.fromkeys(amount.kind for amount in written):
        said_of_kind = [amount for amount in spoken if amount.kind == kind]
        written_of_kind = [amount for amount in written if amount.kind == kind]
        if said_of_kind:
            # each amount of the one must be in the other
            if not _are_within(written_of_kind, said_of_kind) and not _are_within(
                said_of_kind, written_of_kind
            ):
                return (
                    CHANGED_UNIT if _same_figures(said_of_kind, written_of_kind) else CHANGED_NUMBER
                )
        elif kind != COUNT_KIND:
            measures = [amount for amount in spoken if amount.kind != COUNT_KIND]
            if _same_figures(measures, written_of_kind):
                return CHANGED_UNIT
    return CHANGED_NUMBER if _same_thing_in_other_amounts(spoken, written) else None


def _are_within(amounts: Sequence[Quantity], others: Sequence[Quantity]) -> bool:
    """Tell whether each amount agrees with one of the others of its kind."""
    return all(
        any(amount.kind == other.kind and amount.agrees(other) for other in others)
        for amount in amounts
    )


def _same_figures(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> bool:
    figures = {(amount.low, amount.high) for amount in spoken}
    return any((amount.low, amount.high) in figures and amount.unit for amount in written)


def _same_thing_in_other_amounts(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> bool:
    """Tell whether one cup of flour became two, though another "two cups" is said as well."""
    for amount in written:
        thing = (amount.thing, amount.kind)
        same = [other for other in spoken if other.thing and (other.thing, other.kind) == thing]
        if same and not any(amount.agrees(other) for other in same):
            return True
    return False
