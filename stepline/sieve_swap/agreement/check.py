"""Whether a step that would replace narration changes a number, a unit or a negation. Beyond the paper."""

from collections.abc import Sequence

from stepline.sieve_swap.agreement.negation import polarity
from stepline.sieve_swap.agreement.quantities import COUNT, Quantity, quantities

NUMBER, UNIT, NEGATION, NEW = (
    "the step changes a number",
    "the step changes a unit",
    "the step changes a negation",
    "the step states a number that is not said",
)
CHANGES = (NUMBER, UNIT, NEGATION, NEW)


def change(narration: str, step: str, *, new_numbers: bool = True) -> str | None:
    """Return which of CHANGES a step makes to what is said; None where it makes none.

    Amounts of one kind (time, volume, ...) agree when each one of the step is said, or each one said is in the step;
    amounts of the same thing must be equal. Silence is no contradiction unless new_numbers is False.
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
        if not spoken and kind != COUNT and _same_figures([a for a in said if a.kind != COUNT], written):
            return UNIT
    return NUMBER if _same_thing_in_other_amounts(said, stated) else None


def _one_within_the_other(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> bool:
    return all(_said(amount, spoken) for amount in written) or all(_said(amount, written) for amount in spoken)


def _said(amount: Quantity, others: Sequence[Quantity]) -> bool:
    return any(amount.kind == other.kind and amount.agrees(other) for other in others)


def _same_figures(spoken: Sequence[Quantity], written: Sequence[Quantity]) -> bool:
    figures = {(amount.low, amount.high) for amount in spoken}
    return any((amount.low, amount.high) in figures and amount.unit for amount in written)


def _same_thing_in_other_amounts(said: Sequence[Quantity], stated: Sequence[Quantity]) -> bool:
    """Tell whether one cup of flour became two, though another "two cups" is said as well."""
    for amount in stated:
        same = [other for other in said if other.thing and (other.thing, other.kind) == (amount.thing, amount.kind)]
        if same and not any(amount.agrees(other) for other in same):
            return True
    return False
