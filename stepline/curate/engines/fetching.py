"""Files of videos on this machine's disk, fetched while others are worked on, within a bound, and removed after."""

import shutil
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from stepline.curate.engines.open_video import urls
from stepline.curate.items import Item
from stepline.curate.places import Place
from stepline.curate.settings import PlaceSettings

AT_ONCE = 2  # files fetched at the same time


@dataclass
class Held:
    """The files of one open video: those that are here, those on their way."""

    folder: Path
    here: dict[str, Path] = field(default_factory=dict)
    coming: "dict[str, Future[Path]]" = field(default_factory=dict)
    size: int = 0  # bytes of what was fetched


class Fetcher:
    """Brings what is elsewhere; what is on this machine is used where it is.

    bound: bytes that fetched files may take before the next one waits; one is always fetched, however large.
    """

    def __init__(self, scratch: Path, bound: int, settings: PlaceSettings) -> None:
        self._scratch, self._bound, self._settings = scratch, bound, settings
        self._held: dict[str, Held] = {}
        self._made = 0
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fetch")

    def want(self, item: Item, names: Iterable[str]) -> None:
        """Have files of an item brought, as far as the bound allows; asking again costs nothing."""
        held = self._of(item)
        for name in names:
            if name in held.here or name in held.coming:
                continue
            place = Place(urls(item)[name], self._settings)
            if place.local is not None:
                held.here[name] = place.local
            elif self._room(held):
                # Its own name's ending tells readers what it is; the rest may be anything.
                target = held.folder / f"{name}{Path(place.name).suffix[:16]}"
                held.coming[name] = self._threads.submit(_fetched, place, target)

    def ready(self, item: Item, names: Iterable[str]) -> dict[str, Path] | None:
        """Return where files of an item are; None while one is on its way. Raises SteplineError where one failed."""
        held = self._of(item)
        wanted = list(names)
        for name in wanted:
            coming = held.coming.get(name)
            if coming is not None and coming.done():
                path = coming.result()
                del held.coming[name]
                held.here[name] = path
                held.size += path.stat().st_size
        return {name: held.here[name] for name in wanted} if all(name in held.here for name in wanted) else None

    def release(self, item: Item) -> None:
        """Remove what was fetched for an item."""
        held = self._held.pop(item.id, None)
        if held is not None:
            for coming in held.coming.values():
                if not coming.cancel():
                    coming.exception()  # waits for one that is under way, which would write into the folder
            shutil.rmtree(held.folder, ignore_errors=True)

    def close(self) -> None:
        """Stop fetching and remove everything."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for held in self._held.values():
            shutil.rmtree(held.folder, ignore_errors=True)

    def _of(self, item: Item) -> Held:
        if item.id not in self._held:
            self._made += 1
            self._held[item.id] = Held(self._scratch / f"video-{self._made}")
        return self._held[item.id]

    def _room(self, held: Held) -> bool:
        """Tell whether one more file may be fetched; a video that has begun gets all it needs, or it would wait."""
        coming = sum(len(other.coming) for other in self._held.values())
        taken = sum(other.size for other in self._held.values())
        return bool(held.size or held.coming) or (taken < self._bound and coming < 2 * AT_ONCE)


def _fetched(place: Place, target: Path) -> Path:
    place.fetch(target)
    return target
