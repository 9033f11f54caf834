"""Contradictions between a step and the narration that it would replace: another number, another unit, or
a negation. Beyond the paper.

Polarity is what a text negates and what it affirms: "do not season" against "season".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stepline.writing.extractive.english import word_set
from stepline.writing.quantities import (
    COUNT_KIND,
    STOP_WORDS,
    Quantity,
    find_quantities,
    stem,
    tokens,
)

NEGATIVE_WORDS = word_set(
    """
    not never no without avoid cannot cant dont wont doesnt didnt isnt shouldnt nor neither none
    nothing
    """
)
# content words that a negative word covers, within its clause. Speech has no commas to end a clause.
MAX_NEGATED_WORDS = 4
CLAUSE_ENDS = frozenset(",.;:!?()") | {"but", "then", "just", "instead", "otherwise"}

# Phrases with a negative word that negate no action.
NOT_NEGATIVE = re.compile(
    r"\b(?:(?:do not|don't|dont|never) (?:forget|worry|hesitate|mind)"
    r"|(?:do not|don't|dont) (?:know|think|get me wrong)"
    r"|not only|not to mention|no matter|no problem|no worries|no doubt|why not|if not|or not"
    r"|not sure|without further ado|(?:can't|cannot) (?:wait|go wrong|stress)"
    r"|no more than|no less than|not less than"
    r"|isn't it|aren't they|doesn't it|no time|whether or not)\b"
)


@dataclass(frozen=True)
class NegationPolarity:
    """The negated and the affirmed words of a text.

    Attributes:
        negated: stems of the words that a negation covers.
        affirmed: stems of the other content words.
        is_negated: whether the text holds any negation.
    """

    negated: frozenset[str]
    affirmed: frozenset[str]
    is_negated: bool

    def contradicts(self, other: "NegationPolarity") -> bool:
        """Return whether two texts contradict each other in their negations.

        They do if one text negates a word that the other affirms, or if only one text holds a
        negation.
        """
        if self.is_negated != other.is_negated:
            return True
        return self._negates(other) or other._negates(self)

    def _negates(self, other: "NegationPolarity") -> bool:
        """Return whether this text negates a word that only the other text affirms.

        "Uncover" negates "cover".
        """
        affirmed_by_other_only = other.affirmed - self.affirmed
        contradicted = {word[2:] for word in self.affirmed if word.startswith("un")}
        return bool((self.negated | contradicted) & affirmed_by_other_only)


def text_polarity(text: str) -> NegationPolarity:
    """Return the negated and the affirmed word stems of a text."""
    # Set phrases go first: their negative words negate no action.
    words = tokens(NOT_NEGATIVE.sub(" ", text.lower().replace("’", "'")))
    negated: set[str] = set()
    affirmed: set[str] = set()
    negated_words_left = 0  # words that the last negative word still covers
    is_negated = False
    for word in words:
        if word in CLAUSE_ENDS:
            negated_words_left = 0
        elif word in NEGATIVE_WORDS or word.endswith("n't"):
            negated_words_left = MAX_NEGATED_WORDS
            is_negated = True
        elif word[0].isalpha() and word not in STOP_WORDS:
            if negated_words_left:
                negated.add(stem(word))
                negated_words_left -= 1
            else:
                affirmed.add(stem(word))
    return NegationPolarity(frozenset(negated), frozenset(affirmed), is_negated)


CHANGED_NUMBER = "the step changes a number"
CHANGED_UNIT = "the step changes a unit"
CHANGED_NEGATION = "the step changes a negation"


def find_contradiction(narration: str, step: str) -> str | None:
    """Return why a written step contradicts the narration that it would replace, None if it agrees
    with the narration.

    The reason is CHANGED_NUMBER, CHANGED_UNIT or CHANGED_NEGATION. Amounts of one kind (time,
    volume, ...) agree if every amount of the step is in the narration, or every amount of the
    narration is in the step. Amounts of the same thing must be equal. A number that only the step
    states is no contradiction.
    """
    changed = _amount_contradiction(find_quantities(narration), find_quantities(step))
    if changed is None and text_polarity(narration).contradicts(text_polarity(step)):
        return CHANGED_NEGATION
    return changed


def _amount_contradiction(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> str | None:
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
    return CHANGED_NUMBER if _has_same_thing_in_other_amounts(spoken, written) else None


def _all_amounts_agree(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> bool:
    return _amounts_are_contained(written, spoken) or _amounts_are_contained(spoken, written)


def _amounts_are_contained(amounts: Sequence[Quantity], others: Sequence[Quantity]) -> bool:
    """Return whether each amount agrees with one of the other amounts of its kind."""
    for amount in amounts:
        same_kind = [other for other in others if other.kind == amount.kind]
        if not any(amount.can_be_equal(other) for other in same_kind):
            return False
    return True


def _have_same_numbers(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> bool:
    figures = {(amount.low, amount.high) for amount in spoken}
    with_unit = [amount for amount in written if amount.unit]
    return any((amount.low, amount.high) in figures for amount in with_unit)


def _has_same_thing_in_other_amounts(
    spoken: Sequence[Quantity], written: Sequence[Quantity]
) -> bool:
    """Return whether one thing has different amounts in the two texts.

    An example is "one cup of flour" and "two cups of flour".
    """
    spoken_with_thing = [amount for amount in spoken if amount.thing]
    for amount in written:
        same = [
            other
            for other in spoken_with_thing
            if other.thing == amount.thing and other.kind == amount.kind
        ]
        if same and not any(amount.can_be_equal(other) for other in same):
            return True
    return False
