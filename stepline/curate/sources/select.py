"""Which of a source's videos are wanted: by category, by a list of ids, and none that evaluates."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from stepline.curate.settings import SourceSettings
from stepline.curate.stage import SourceEntry, reject_video
from stepline.datasets.excluded import read_excluded
from stepline.datasets.files import read_text
from stepline.errors import DatasetError
from stepline.records import Rejected

# HTM-370K is this category of HowTo100M (NaSVA section 4.1)
PRESET_CATEGORIES = {"htm-370k": ("Food and Entertaining",)}
ABSENT_ID = "is in the list of wanted ids, and not in the source"
MAX_NAMED_CATEGORIES = 8  # in an error


class SourceFilter:
    """Selects the videos of a source by id and category, without those of evaluation sets.

    settings: wanted ids and categories, and lists of evaluation videos.

    Raises DatasetError for unreadable lists of ids.
    """

    def __init__(self, settings: SourceSettings) -> None:
        self._categories = settings.categories
        if settings.preset and not self._categories:
            self._categories = PRESET_CATEGORIES[settings.preset]
        self._ids: set[str] | None = None
        if settings.ids is not None:
            self._ids = _read_ids(settings.ids)
        self._excluded = read_excluded(settings.excluded)
        self._ids_met: set[str] = set()
        self._other_categories: set[str] = set()
        self._accepted = False

    def accepts(self, id: str, category: str | None) -> bool:
        """Return whether a video is selected by its id and category. category: None if unknown."""
        # Ids first, then categories, which not every source knows.
        if self._ids is not None:
            if id not in self._ids:
                return False
            self._ids_met.add(id)
        if self._categories and category not in self._categories:
            if len(self._other_categories) < MAX_NAMED_CATEGORIES:
                self._other_categories.add(str(category))
            return False
        self._accepted = True
        return True

    def filter_entries(self, entries: Iterable[SourceEntry]) -> Iterator[SourceEntry]:
        """Yield the selected entries, and refusals.

        Videos of evaluation sets, and wanted ids that the source lacks, are refused. All other
        videos that are not selected are left out silently.

        Raises DatasetError if no video has a wanted category.
        """
        for entry in entries:
            if isinstance(entry, Rejected):
                yield entry
            elif self.accepts(entry.id, entry.category):
                sets = self._excluded.datasets_with(entry.id)
                if sets:
                    yield reject_video(entry.id, f"evaluates: a video of {', '.join(sets)}")
                else:
                    yield entry
        # Categories that never come are a mistake in the settings.
        if self._other_categories and not self._accepted:
            others = ", ".join(sorted(self._other_categories))
            raise DatasetError(
                f"source.categories {', '.join(self._categories)}: no video is of them; "
                f"the source has {others}"
            )
        if self._ids is not None:
            for id in sorted(self._ids - self._ids_met):
                yield reject_video(id, ABSENT_ID)


def _read_ids(path: Path) -> set[str]:
    """Return the first word of each line of a file. Lines that begin with # are comments."""
    ids = set()
    for line in read_text(path).splitlines():
        words = line.split()
        if words and not line.startswith("#"):
            ids.add(words[0].rstrip(","))
    if not ids:
        raise DatasetError(f"{path}: holds no id; give one per line")
    return ids
