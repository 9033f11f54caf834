"""The search of the studio, in a thread of its own."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from stepline.library.corrected_library import CorrectedLibrary
from stepline.library.search import Moment, SearchIndex, open_index
from stepline.progress import StoppedError

MAX_INDEX_AGE_SECONDS = 2.0  # then the search looks for records that changed


class LibrarySearch:
    """Searches a library. SQLite's connection to the index belongs to the one thread."""

    def __init__(self, library: CorrectedLibrary) -> None:
        self._library = library
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._index: SearchIndex | None = None
        self._indexed = -MAX_INDEX_AGE_SECONDS
        self._is_closed = False

    async def search(
        self, query: str, max_moments: int, names: frozenset[str] | None
    ) -> Sequence[Moment]:
        """Return the moments that answer a query. Without the weights of MiniLM, only words count.

        Args:
            query: what is looked for.
            max_moments: maximal number of moments.
            names: the record files that are searched. None: all.
        """
        return await asyncio.wrap_future(
            self._thread.submit(self._search, query, max_moments, names)
        )

    def _search(
        self, query: str, max_moments: int, names: frozenset[str] | None
    ) -> Sequence[Moment]:
        # The first search opens the index.
        if self._index is None:
            self._index = open_index(self._library.folder, self._library)
        if time.monotonic() > self._indexed + MAX_INDEX_AGE_SECONDS:
            self._index.update(self._check_open)
            self._indexed = time.monotonic()
        return self._index.search(query, max_moments, names)

    def _check_open(self, *_: object) -> None:
        """Raise StoppedError once the search is closed, between two records of an update."""
        if self._is_closed:
            raise StoppedError

    def close(self) -> None:
        """Close the index. An update ends after the record that it reads."""
        self._is_closed = True
        if self._index is not None:
            self._thread.submit(self._index.close)
        self._thread.shutdown()
