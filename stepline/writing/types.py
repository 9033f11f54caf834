"""What a step writer returns."""

import re
from dataclasses import dataclass

from stepline.records import Rejected, Step, StepKind

# Between two sentences about one action. After a longer pause it is done again.
MAX_ACTION_PAUSE_SECONDS = 30.0

# A negated imperative: "don't move them", "be careful not to tear it". "don't forget to stir" is one
# to do.
_CONDITION_PATTERN = re.compile(r"\b(?:if|unless|in (?:the )?(?:case|event) (?:of|that)|in case)\b")
_AVOID_PATTERN = re.compile(
    r"(?:\w+ly |please |also |and |but |you )*"
    r"(?:(?:do not|don't|dont|must not|mustn't|should not|shouldn't|cannot|can't|try not to|never)"
    r"(?! (?:forget|hesitate|worry|be afraid|be scared|be shy|neglect|fail)\b)"
    r"|avoid\b|refrain from|(?:be careful|take care|make sure|be sure)(?: that)?(?: you)?"
    r" (?:not\b|never\b|do not\b|don't\b))"
)


@dataclass(frozen=True)
class WrittenSteps:
    """The steps in spoken order, the rejected ones with reasons, and notes for the user.

    Args:
        steps: ids "1", "2", ... with source sentences; spans, at and status are empty until
            grounding.
        dropped: rejected sentences and steps.
        notes: one line each, for example that a deadline passed and another writer wrote a part.
    """

    steps: tuple[Step, ...] = ()
    dropped: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()


def is_conditional(text: str) -> bool:
    """Return whether an English instruction is conditional: "call for help if the burn is severe"."""
    return bool(_CONDITION_PATTERN.search(text.lower()))


def instruction_kind(text: str) -> StepKind:
    """Return whether an English instruction says what to do or what to avoid.

    Other languages count as "do".
    """
    plain = text.lower().replace("\u2019", "'")
    plain = " ".join(plain.split())
    if _AVOID_PATTERN.match(plain):
        return "avoid"
    return "do"
