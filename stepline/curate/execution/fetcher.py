"""Files of open videos on this machine: fetched ahead of their tasks within a bound, removed after
them.

A file of this machine is used where it is.
"""

import shutil
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from stepline.curate.stage import VideoItem
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import RemoteSettings

PARALLEL_FETCHES = 2  # files fetched at the same time
MAX_SUFFIX_CHARS = 16  # of an address, that the copy's name keeps


def file_urls(item: VideoItem) -> Mapping[str, str]:
    """Return the addresses of an item's files: "media", "captions", "features"."""
    urls = {}
    if item.video is not None:
        urls["media"] = item.video
    if item.captions is not None:
        urls["captions"] = item.captions
    if item.features is not None:
        urls["features"] = item.features
    return urls


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
        self._folder_count = 0
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
        paths = {}
        for name in names:
            fetch = files.pending.get(name)
            # A finished fetch is taken over when its file is asked for.
            if fetch is not None and fetch.done():
                path = fetch.result()
                del files.pending[name]
                files.here[name] = path
                files.size += path.stat().st_size
            if name in files.here:
                paths[name] = files.here[name]
        if len(paths) < len(names):
            return None
        return paths

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
            self._folder_count += 1
            folder = self._scratch / f"video-{self._folder_count}"
            self._videos[item.id] = VideoFiles(folder)
        return self._videos[item.id]

    def _has_room(self, files: VideoFiles) -> bool:
        """Return whether one more file may be fetched. A video that has begun gets all it needs, or
        it would wait."""
        if files.size or files.pending:
            return True
        # A video that has fetched nothing yet waits until the others take less than the bound.
        pending = size = 0
        for video in self._videos.values():
            pending += len(video.pending)
            size += video.size
        return size < self._bound and pending < 2 * PARALLEL_FETCHES


def _fetch(source: RemotePath, target: Path) -> Path:
    source.fetch(target)
    return target
