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
    """
    not never no without avoid cannot cant dont wont doesnt didnt isnt shouldnt nor neither none
    nothing
    """
)
# words of meaning after a cue that it denies, within its clause. Speech has no commas to end one.
MAX_DENIED_WORDS = 4
CLAUSE_ENDS = frozenset(",.;:!?()") | {"but", "then", "just", "instead", "otherwise"}

# With a negative word, but nothing of what is to be done is denied.
NOT_NEGATIVE = re.compile(
    r"\b(?:(?:do not|don't|dont|never) (?:forget|worry|hesitate|mind)"
    r"|(?:do not|don't|dont) (?:know|think|get me wrong)"
    r"|not only|not to mention|no matter|no problem|no worries|no doubt|why not|if not|or not"
    r"|not sure|without further ado|(?:can't|cannot) (?:wait|go wrong|stress)"
    r"|no more than|no less than|not less than"
    r"|isn't it|aren't they|doesn't it|no time|whether or not)\b"
)


@dataclass(frozen=True)
class Polarity:
    """Negation in a text. denied, affirmed: word stems. negative: whether it negates anything."""

    denied: frozenset[str]
    affirmed: frozenset[str]
    negative: bool

    def contradicts(self, other: "Polarity") -> bool:
        """Return whether one denies what the other affirms, or only one of the two denies
        anything."""
        if self.negative != other.negative:
            return True
        return self._contradicts(other) or other._contradicts(self)

    def _contradicts(self, other: "Polarity") -> bool:
        """Return whether this one denies what the other affirms, or has "uncover" where that has
        "cover"."""
        affirmed_by_other_only = other.affirmed - self.affirmed
        contradicted = {word[2:] for word in self.affirmed if word.startswith("un")}
        return bool((self.denied | contradicted) & affirmed_by_other_only)


def polarity(text: str) -> Polarity:
    """Return the negated and the affirmed word stems of a text."""
    # Set phrases go first: their negative words deny nothing.
    lowered = text.lower().replace("’", "'")
    words = tokens(NOT_NEGATIVE.sub(" ", lowered))
    denied: set[str] = set()
    affirmed: set[str] = set()
    denied_words_left = 0  # words that the last cue still denies
    negative = False
    for word in words:
        if word in CLAUSE_ENDS:
            denied_words_left = 0
        elif word in NEGATIVE_WORDS or word.endswith("n't"):
            denied_words_left = MAX_DENIED_WORDS
            negative = True
        elif word[0].isalpha() and word not in FUNCTION_WORDS:
            if denied_words_left:
                denied.add(stem(word))
                denied_words_left -= 1
            else:
                affirmed.add(stem(word))
    return Polarity(frozenset(denied), frozenset(affirmed), negative)


CHANGED_NUMBER = "the step changes a number"
CHANGED_UNIT = "the step changes a unit"
CHANGED_NEGATION = "the step changes a negation"


def contradiction(narration: str, step: str) -> str | None:
    """Return why a step contradicts the narration that it replaces (CHANGED_NUMBER, CHANGED_UNIT or
    CHANGED_NEGATION), None where it does not.

    Amounts of one kind (time, volume, ...) agree when each one of the step is said, or each one
    said is in the step. Amounts of the same thing must be equal. A number that only the step states
    is no contradiction.
    """
    changed = _changed_amount(quantities(narration), quantities(step))
    if changed is None and polarity(narration).contradicts(polarity(step)):
        return CHANGED_NEGATION
    return changed


def _changed_amount(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> str | None:
    kinds = dict.fromkeys(amount.kind for amount in written)
    # Amounts of one kind, with those of that kind that are said.
    for kind in kinds:
        spoken_of_kind = [amount for amount in spoken if amount.kind == kind]
        written_of_kind = [amount for amount in written if amount.kind == kind]
        if spoken_of_kind:
            if not _all_amounts_agree(spoken_of_kind, written_of_kind):
                if _have_same_numbers(spoken_of_kind, written_of_kind):
                    return CHANGED_UNIT
                return CHANGED_NUMBER
        elif kind != COUNT_KIND:
            # None is said, but the same figure with another unit is a change too.
            measures = [amount for amount in spoken if amount.kind != COUNT_KIND]
            if _have_same_numbers(measures, written_of_kind):
                return CHANGED_UNIT
    return CHANGED_NUMBER if _same_thing_in_other_amounts(spoken, written) else None


def _all_amounts_agree(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> bool:
    """Return whether both sides state the same amounts."""
    return _amounts_are_contained(written, spoken) or _amounts_are_contained(spoken, written)


def _amounts_are_contained(amounts: Sequence[Quantity], others: Sequence[Quantity]) -> bool:
    """Return whether each amount agrees with one of the others of its kind."""
    for amount in amounts:
        same_kind = [other for other in others if other.kind == amount.kind]
        if not any(amount.agrees(other) for other in same_kind):
            return False
    return True


def _have_same_numbers(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> bool:
    figures = {(amount.low, amount.high) for amount in spoken}
    with_unit = [amount for amount in written if amount.unit]
    return any((amount.low, amount.high) in figures for amount in with_unit)


def _same_thing_in_other_amounts(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> bool:
    """Return whether one cup of flour became two, though another "two cups" is also said."""
    spoken_with_thing = [amount for amount in spoken if amount.thing]
    for amount in written:
        same = []
        for other in spoken_with_thing:
            if other.thing == amount.thing and other.kind == amount.kind:
                same.append(other)
        if same and not any(amount.agrees(other) for other in same):
            return True
    return False
