"""What a text base holds: how-to documents, each a title and its steps, with source and licence on
every line."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeAlias

from stepline.records import Rejected


@dataclass(frozen=True, slots=True)
class TextStep:
    """One human-written step.

    id: "document#position", both of the line that was read first. document: that document's id.
    position: from 0, its place there. source: a link or a file's name. licence: None where no source
    stated one.
    """

    id: str
    text: str
    document: str
    position: int
    source: str
    licence: str | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """One how-to text. steps: in their order, single steps, in the document's own wording."""

    id: str
    title: str
    steps: tuple[TextStep, ...]
    source: str
    licence: str | None = None
    ingredients: tuple[str, ...] = ()

    @classmethod
    def from_texts(
        cls,
        id: str,
        title: str,
        texts: Iterable[str],
        source: str,
        licence: str | None,
        ingredients: Iterable[str],
    ) -> Self:
        """Return the document whose steps have these texts."""
        steps = tuple(
            TextStep(f"{id}#{position}", text, id, position, source, licence)
            for position, text in enumerate(texts)
        )
        return cls(id, title, steps, source, licence, tuple(ingredients))


DocumentOrRejected: TypeAlias = Document | Rejected
