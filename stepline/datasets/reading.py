"""What a reader gives: records, what it rejected with the reason, and the split each record belongs to."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from stepline.records import Record

What: TypeAlias = Literal["video", "duration", "step", "span", "sentence"]


@dataclass(frozen=True)
class Rejected:
    """One thing that does not fit the data model, and why.

    id: of the record. what: its kind. text: of the step or sentence. reason: one of a few fixed wordings, so that
    they can be counted. value: what stood in the file.
    """

    id: str
    what: What
    text: str
    reason: str
    value: str = ""


@dataclass(frozen=True)
class Entry:
    """One item of a dataset as its reader yields it; `record` is None where nothing of it could be kept.

    subset: the split's name as the dataset writes it. spoken: sentences that carry no time of their own, which no
    Transcript can hold.
    """

    id: str
    record: Record | None
    subset: str | None = None
    rejected: tuple[Rejected, ...] = ()
    spoken: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """A whole dataset in memory: its records in the file's order, and everything that was left out of them.

    subsets: record id -> split, for the records that have one. spoken: record id -> sentences without times.
    """

    name: str
    records: tuple[Record, ...]
    rejected: tuple[Rejected, ...] = ()
    subsets: Mapping[str, str] = field(default_factory=dict)
    spoken: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def reasons(self) -> dict[str, int]:
        """Return how many rows each "what: reason" rejected, the most frequent first."""
        return dict(Counter(f"{row.what}: {row.reason}" for row in self.rejected).most_common())
