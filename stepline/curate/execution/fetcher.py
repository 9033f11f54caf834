"""Files of open videos on this machine: fetched ahead of their tasks within a bound, removed after
them.

A file of this machine is used where it is.
"""

import itertools
import shutil
from collections.abc import Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from stepline.curate.stage import VideoItem
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import RemoteSettings

PARALLEL_FETCHES = 2  # files fetched at the same time
MAX_SUFFIX_CHARS = 16  # of an address, that the copy's name keeps


def file_urls(item: VideoItem) -> dict[str, str]:
    """Return the addresses of an item's files: "media", "captions", "features"."""
    urls = {"media": item.video, "captions": item.captions, "features": item.features}
    return {name: url for name, url in urls.items() if url is not None}


@dataclass
class VideoFiles:
    """The files of one open video on this machine: those that are here, those on their way."""

    folder: Path
    here: dict[str, Path] = field(default_factory=dict)
    pending: "dict[str, Future[Path]]" = field(default_factory=dict)
    size: int = 0  # bytes of what was fetched


class Fetcher:
    """Fetches files of videos while others are worked on, within a bound.

    bound: bytes that fetched files may take before the next one waits. One is always fetched,
    however large.
    """

    def __init__(self, scratch: Path, bound: int, settings: RemoteSettings) -> None:
        self._scratch = scratch
        self._bound = bound
        self._settings = settings
        self._videos: dict[str, VideoFiles] = {}
        self._numbers = itertools.count(1)  # of the folders
        self._threads = ThreadPoolExecutor(PARALLEL_FETCHES, thread_name_prefix="fetch")

    def prefetch(self, item: VideoItem, names: Iterable[str]) -> None:
        """Fetch files of an item, as far as the bound allows. Asking again costs nothing."""
        files = self._files_of(item)
        for name in names:
            if name in files.here or name in files.pending:
                continue
            source = RemotePath(file_urls(item)[name], self._settings)
            # A file of this machine needs no copy.
            if source.local is not None:
                files.here[name] = source.local
            elif self._has_room(files):
                # Readers need the suffix of its own name. The rest may be anything.
                suffix = Path(source.name).suffix[:MAX_SUFFIX_CHARS]
                target = files.folder / f"{name}{suffix}"
                files.pending[name] = self._threads.submit(_fetch, source, target)

    def local_files(self, item: VideoItem, names: Collection[str]) -> dict[str, Path] | None:
        """Return where files of an item are, or None while one is on its way. Raises SteplineError
        where one failed."""
        files = self._files_of(item)
        for name in names:
            # A finished fetch is taken over when its file is asked for.
            fetch = files.pending.get(name)
            if fetch is not None and fetch.done():
                files.here[name] = fetch.result()
                files.size += files.here[name].stat().st_size
                del files.pending[name]
        paths = {name: files.here[name] for name in names if name in files.here}
        return paths if len(paths) == len(names) else None

    def release(self, item: VideoItem) -> None:
        """Remove what was fetched for an item."""
        files = self._videos.pop(item.id, None)
        if files is None:
            return
        for fetch in files.pending.values():
            if not fetch.cancel():
                # waits for one that is under way, which would write into the folder
                fetch.exception()
        shutil.rmtree(files.folder, ignore_errors=True)

    def close(self) -> None:
        """Stop fetching and remove everything."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for files in self._videos.values():
            shutil.rmtree(files.folder, ignore_errors=True)

    def _files_of(self, item: VideoItem) -> VideoFiles:
        if item.id not in self._videos:
            number = next(self._numbers)
            self._videos[item.id] = VideoFiles(self._scratch / f"video-{number}")
        return self._videos[item.id]

    def _has_room(self, files: VideoFiles) -> bool:
        """Return whether one more file may be fetched. A video that has begun gets all it needs, or
        it would wait."""
        if files.size or files.pending:
            return True
        # A video that has fetched nothing yet waits until the others take less than the bound.
        pending = sum(len(video.pending) for video in self._videos.values())
        size = sum(video.size for video in self._videos.values())
        return size < self._bound and pending < 2 * PARALLEL_FETCHES


def _fetch(source: RemotePath, target: Path) -> Path:
    source.fetch(target)
    return target
