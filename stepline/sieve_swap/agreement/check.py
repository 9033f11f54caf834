"""Whether a step that would replace narration changes a number, a unit or a negation. Beyond the
paper.

Polarity is what a text denies and what it affirms: "do not season" against "season".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stepline.writing.extractive.english import word_set
from stepline.writing.quantities import COUNT, FUNCTION, Quantity, quantities, stem, tokens

CUES = word_set(
    "not never no without avoid cannot cant dont wont doesnt didnt isnt shouldnt nor neither none nothing"
)
# words of meaning after a cue that it denies, within its clause; speech has no commas to end one
SCOPE = 4
STOPS = frozenset(",.;:!?()") | {"but", "then", "just", "instead", "otherwise"}

# With a negative word, but nothing of what is to be done is denied.
EXEMPT = re.compile(
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
        if (self.denied & other.affirmed - self.affirmed) or (
            other.denied & self.affirmed - other.affirmed
        ):
            return True
        return _undone(self.affirmed, other.affirmed) or _undone(other.affirmed, self.affirmed)


def _undone(one: frozenset[str], other: frozenset[str]) -> bool:
    """Tell whether the one has "uncover" where the other has "cover", and not the other way
    round."""
    return any(word.startswith("un") and word[2:] in other and word[2:] not in one for word in one)


def polarity(text: str) -> Polarity:
    """Return what a text denies and what it affirms."""
    words = tokens(EXEMPT.sub(" ", text.lower().replace("’", "'")))
    denied: set[str] = set()
    affirmed: set[str] = set()
    reach, negative = 0, False
    for word in words:
        if word in STOPS:
            reach = 0
        elif word in CUES or word.endswith("n't"):
            reach, negative = SCOPE, True
        elif word[0].isalpha() and word not in FUNCTION:
            (denied if reach else affirmed).add(stem(word))
            reach = max(0, reach - 1)
    return Polarity(frozenset(denied), frozenset(affirmed), negative)


NUMBER, UNIT, NEGATION, NEW = (
    "the step changes a number",
    "the step changes a unit",
    "the step changes a negation",
    "the step states a number that is not said",
)
CHANGES = (NUMBER, UNIT, NEGATION, NEW)


def change(narration: str, step: str, *, new_numbers: bool = True) -> str | None:
    """Return which of CHANGES a step makes to what is said; None where it makes none.

    Amounts of one kind (time, volume, ...) agree when each one of the step is said, or each one
    said is in the step; amounts of the same thing must be equal. Silence is no contradiction unless
    new_numbers is False.
    """
    said, stated = quantities(narration), quantities(step)
    found = _changed_amount(said, stated)
    if found is not None:
        return found
    if not new_numbers and not all(_said(amount, said) for amount in stated):
        return NEW
    return NEGATION if polarity(narration).clashes(polarity(step)) else None


def _changed_amount(said: Sequence[Quantity], stated: Sequence[Quantity]) -> str | None:
    for kind in dict.fromkeys(amount.kind for amount in stated):
        spoken = [amount for amount in said if amount.kind == kind]
        written = [amount for amount in stated if amount.kind == kind]
        if spoken and not _one_within_the_other(spoken, written):
            return UNIT if _same_figures(spoken, written) else NUMBER
        if (
            not spoken
            and kind != COUNT
            and _same_figures([a for a in said if a.kind != COUNT], written)
        ):
            return UNIT
    return NUMBER if _same_thing_in_other_amounts(said, stated) else None


def _one_within_the_other(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> bool:
    return all(_said(amount, spoken) for amount in written) or all(
        _said(amount, written) for amount in spoken
    )


def _said(amount: Quantity, others: Sequence[Quantity]) -> bool:
    return any(amount.kind == other.kind and amount.agrees(other) for other in others)


def _same_figures(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> bool:
    figures = {(amount.low, amount.high) for amount in spoken}
    return any((amount.low, amount.high) in figures and amount.unit for amount in written)


def _same_thing_in_other_amounts(said: Sequence[Quantity], stated: Sequence[Quantity]) -> bool:
    """Tell whether one cup of flour became two, though another "two cups" is said as well."""
    for amount in stated:
        same = [
            other
            for other in said
            if other.thing and (other.thing, other.kind) == (amount.thing, amount.kind)
        ]
        if same and not any(amount.agrees(other) for other in same):
            return True
    return False
