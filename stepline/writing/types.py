"""What a step writer returns."""

from dataclasses import dataclass

from stepline.records import Rejected, Step


@dataclass(frozen=True)
class WrittenSteps:
    """The steps in the order in which they are told, what was refused and why, and what the user should know.

    steps: ids "1", "2", ...; every one cites its sentences; spans, at and status are empty until it is grounded.
    notes: one line each, for example that a deadline passed and another writer served a part.
    """

    steps: tuple[Step, ...] = ()
    dropped: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()
