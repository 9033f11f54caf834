"""Which of a source's videos are wanted: by category, by a list of ids, and none that evaluates."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from stepline.curate.items import Item, Refused
from stepline.curate.settings import SourceSettings
from stepline.curate.sources.sorting import Entry
from stepline.datasets.excluded import read_excluded
from stepline.datasets.source import read_text
from stepline.errors import DatasetError

PRESETS = {"htm-370k": ("Food and Entertaining",)}  # HTM-370K is this category of HowTo100M; NaSVA section 4.1
ABSENT = "is in the list of wanted ids, and not in the source"
SHOWN = 8  # categories that an error names


class Choice:
    """What the settings want. Raises DatasetError for lists that cannot be read."""

    def __init__(self, settings: SourceSettings) -> None:
        self._categories = settings.categories or (PRESETS[settings.preset] if settings.preset else ())
        self._wanted = None if settings.ids is None else _ids(settings.ids)
        self._excluded = read_excluded(settings.excluded)
        self._seen: set[str] = set()
        self._others: set[str] = set()
        self._kept = False

    def takes(self, id: str, category: str | None) -> bool:
        """Return whether a video is wanted; asked before its files are looked at."""
        if self._wanted is not None:
            if id not in self._wanted:
                return False
            self._seen.add(id)
        if self._categories and category not in self._categories:
            if len(self._others) < SHOWN:
                self._others.add(str(category))
            return False
        self._kept = True
        return True

    def made(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the wanted entries. Videos of evaluation sets, and wanted ids that never come, are refused.

        What is of another category or not in the list of ids is no part of the run, and is not told one by one.
        Raises DatasetError where the wanted categories never come, though others do.
        """
        for entry in entries:
            if isinstance(entry, Refused):
                yield entry
            elif self.takes(entry.id, entry.category):
                yield self._evaluated(entry)
        if self._others and not self._kept:
            wanted, known = ", ".join(self._categories), ", ".join(sorted(self._others))
            raise DatasetError(f"source.categories {wanted}: no video is of them; the source has {known}")
        for id in sorted((self._wanted or frozenset()) - self._seen):
            yield Refused(id, ABSENT)

    def _evaluated(self, item: Item) -> Entry:
        held = self._excluded.of(item.id)
        return Refused(item.id, f"evaluates: a video of {', '.join(held)}") if held else item


def _ids(path: Path) -> frozenset[str]:
    """Return the first words of a file's lines; # begins a comment line."""
    lines = (line.split() for line in read_text(path).splitlines() if not line.startswith("#"))
    ids = frozenset(words[0].rstrip(",") for words in lines if words)
    if not ids:
        raise DatasetError(f"{path}: holds no id; give one a line")
    return ids
