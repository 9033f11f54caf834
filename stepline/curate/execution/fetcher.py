"""The files of open videos on this machine: fetched while other videos are worked on, removed after
their video.

A file of this machine is used where it is. How many videos are open (engine.ahead) bounds the files.
"""

import itertools
import shutil
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from stepline.curate.stage import VideoItem
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import RemoteSettings

PARALLEL_FETCHES = 2  # files fetched at the same time
MAX_SUFFIX_CHARS = 16  # of an address, that the copy's name keeps


def file_urls(item: VideoItem) -> dict[str, str]:
    """Return the URLs of the files of a video by kind: "media", "captions", "features"."""
    urls = {"media": item.video, "captions": item.captions, "features": item.features}
    return {name: url for name, url in urls.items() if url is not None}


class FileDownloader:
    """Downloads the files of videos into a scratch folder, in background threads.

    Args:
        scratch: folder for downloaded files.
        settings: limits and retries of downloads.
    """

    def __init__(self, scratch: Path, settings: RemoteSettings) -> None:
        self._scratch = scratch
        self._settings = settings
        self._files: dict[str, dict[str, Future[Path]]] = {}  # by id of the video and kind
        self._folders: dict[str, Path] = {}  # by id of the video
        self._numbers = itertools.count(1)  # of the folders
        self._threads = ThreadPoolExecutor(PARALLEL_FETCHES, thread_name_prefix="fetch")

    def start_downloads(self, item: VideoItem, kinds: Collection[str]) -> None:
        """Start to download files of a video in background threads. Local files are used where they
        are.

        Args:
            item: the video with the URLs of its files.
            kinds: kinds of the files: "media", "captions", "features".
        """
        folder = self._scratch / f"video-{next(self._numbers)}"
        self._folders[item.id] = folder
        files: dict[str, Future[Path]] = {}
        for name in sorted(kinds):
            source = RemotePath(file_urls(item)[name], self._settings)
            if source.local is not None:
                files[name] = Future()
                files[name].set_result(source.local)
            else:
                # Readers need the suffix of its own name. The rest may be anything.
                suffix = Path(source.name).suffix[:MAX_SUFFIX_CHARS]
                files[name] = self._threads.submit(_fetch, source, folder / f"{name}{suffix}")
        self._files[item.id] = files

    def local_files(self, item: VideoItem, kinds: Collection[str]) -> dict[str, Path] | None:
        """Return the local paths of files of a video by kind. None while one is being downloaded.

        kinds: kinds of the files, all of which were opened.

        Raises SteplineError if a download failed.
        """
        files = self._files.get(item.id, {})
        if not all(files[kind].done() for kind in kinds):
            return None
        return {kind: files[kind].result() for kind in kinds}

    def delete_files(self, item: VideoItem) -> None:
        """Delete the downloaded files of a video."""
        for fetch in self._files.pop(item.id, {}).values():
            if not fetch.cancel():
                fetch.exception()  # waits for one that would write into the folder
        shutil.rmtree(self._folders.pop(item.id, self._scratch / "none"), ignore_errors=True)

    def close(self) -> None:
        """Stop all downloads. The downloaded files stay."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def _fetch(source: RemotePath, target: Path) -> Path:
    source.fetch(target)
    return target
