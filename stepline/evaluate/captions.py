"""What every caption metric takes: items, each a hypothesis with its references, all tokenised."""

from collections.abc import Sequence
from typing import NamedTuple

from stepline.errors import DatasetError


class Item(NamedTuple):
    """One hypothesis and the references it is held against."""

    references: tuple[str, ...]
    hypothesis: str


def require_items(items: Sequence[Item]) -> None:
    """Raise DatasetError for no items at all, or an item without references."""
    if not items:
        raise DatasetError("no captions to score; give at least one hypothesis with its references")
    for index, item in enumerate(items):
        if not item.references:
            raise DatasetError(f"item {index} ({item.hypothesis[:60]!r}) has no reference caption; give at least one")
