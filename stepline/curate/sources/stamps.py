"""Stamps of files that a list names one by one: some are looked at alone, many of one folder by its listing."""

import os
from collections import Counter
from functools import lru_cache

from stepline.curate.places import Place
from stepline.curate.settings import PlaceSettings
from stepline.curate.sources.files import Files

FEW = 100  # files of a folder elsewhere that are asked for one by one before the folder is listed
FOLDERS = 4  # listings kept at a time


class Stamps:
    """Tells the stamp of any address; None where there is no such file. look=False: "" for every address."""

    def __init__(self, settings: PlaceSettings, *, look: bool) -> None:
        self._settings, self._look = settings, look
        self._asked: Counter[str] = Counter()
        self._listed = lru_cache(FOLDERS)(self._listing)

    def of(self, url: str) -> str | None:
        """Return the stamp of a file. Raises StoreError where its server refuses to answer."""
        if not self._look:
            return ""
        place = Place(url, self._settings)
        if (path := place.local) is not None:
            try:
                status = os.stat(path)
            except OSError:
                return None
            return f"{status.st_size}-{status.st_mtime_ns}"
        folder, _, name = url.rpartition("/")
        self._asked[folder] += 1
        if self._asked[folder] > FEW and place.part is None and not url.startswith("http"):
            found = self._listed(folder).find(name)
            return None if found is None else found.stamp
        return place.stamp() if place.exists() else None

    def _listing(self, folder: str) -> Files:
        place = Place(folder, self._settings)
        return Files(place, place.list(), lambda name: (name, 0))
