"""The JSON files of a library's folder, and when each changed.

    folder = RecordFolder(Path("out"))
    folder.files()
    folder.files()   # looks at each file, and reads no folder that has not changed

A folder's time changes when an entry comes, goes or is replaced. It does not change when a file is
written over in its place. So each file is asked for its time and size, but folders are read again
only when their own time changed.
"""

import contextlib
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from stepline.outputs.shared_folder import SHARE_MARK

Stamp: TypeAlias = tuple[int, int]  # of a file: time of change (ns) and size (bytes)

# A folder may change twice within one tick of its file system's clock, 2 s at most (FAT). So what
# was read that soon after a change may lack an entry, and is read again.
CLOCK_TICK_SECONDS = 2.5
# Some file systems over a network give folders no time that changes, so none is believed for long.
MAX_LISTING_SECONDS = 10.0


@dataclass(frozen=True)
class FolderListing:
    """What a folder held: its JSON files, links among them, and its folders, as paths below the
    library.

    mtime_ns: its modification time. first_read_time, last_read_time: when that time was read
    first, and when the folder was read last (s, monotonic).
    """

    files: tuple[str, ...]
    links: frozenset[str]
    folders: tuple[str, ...]
    mtime_ns: int
    first_read_time: float
    last_read_time: float

    def is_unchanged(self, now: float) -> bool:
        """Return whether the listing is up to date. now: the folder's modification time, in ns."""
        is_older_than_tick = self.last_read_time - self.first_read_time > CLOCK_TICK_SECONDS
        return is_older_than_tick and now - self.last_read_time < MAX_LISTING_SECONDS


class RecordFolder:
    """The JSON files below a folder that may hold records, for one thread at a time.

    allowed: real paths of other folders that links may lead to. Copies in shared folders, and
    hidden files, are left out.
    """

    def __init__(self, folder: Path, allowed: Sequence[Path] = ()) -> None:
        self._top = os.fspath(folder)
        self._inside = (real_path(folder), *allowed)
        self._listings: dict[str, FolderListing] = {}
        self._names: list[str] = []
        self._links: frozenset[str] = frozenset()

    def files(self) -> dict[str, Stamp]:
        """Return the stamp of each file, by its path below the folder, sorted by path."""
        self._read_folders()
        stamps = {}
        for name in self._names:
            path = f"{self._top}/{name}"
            # A link may lead to what its user did not allow.
            if name in self._links and not is_below(Path(path), self._inside):
                continue
            try:
                state = os.stat(path)
            except OSError:  # gone by now, or a link to nowhere: no file that can be read
                continue
            if stat.S_ISREG(state.st_mode):
                stamps[name] = (state.st_mtime_ns, state.st_size)
        return stamps

    def _read_folders(self) -> None:
        """Read the folders that have changed, and arrange the names of their files."""
        listings: dict[str, FolderListing] = {}
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            # a folder may be gone by now, or another user's: nothing in it can be read
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                listings[folder] = self._listing(folder)
                waiting += listings[folder].folders
        # No folder changed, so the sorted names are the same.
        if listings == self._listings:
            return
        self._listings = listings
        names: list[str] = []
        for listing in listings.values():
            names += listing.files
        # By the parts of the path, so that a folder's files stay together.
        self._names = sorted(names, key=lambda name: name.split("/"))
        self._links = frozenset().union(*(listing.links for listing in listings.values()))

    def _listing(self, folder: str) -> FolderListing:
        path = f"{self._top}/{folder}"
        mtime_ns = os.stat(path).st_mtime_ns
        now = time.monotonic()
        first_read_time = now

        # what the last look found, where it still holds
        listing = self._listings.get(folder)
        if listing is not None and listing.mtime_ns == mtime_ns:
            if listing.is_unchanged(now):
                return listing
            first_read_time = listing.first_read_time

        # what is there now
        files: list[str] = []
        links: list[str] = []
        folders: list[str] = []
        for entry in _entries(path):
            name = f"{folder}/{entry.name}" if folder else entry.name
            # A folder that was written to be shared holds copies of records.
            if entry.name == SHARE_MARK and folder:
                return FolderListing((), frozenset(), (), mtime_ns, first_read_time, now)
            if entry.is_dir(follow_symlinks=False):
                folders.append(name)
            elif entry.name.endswith(".json") and not entry.name.startswith("."):
                files.append(name)
                if entry.is_symlink():
                    links.append(name)
        return FolderListing(
            files=tuple(files),
            links=frozenset(links),
            folders=tuple(folders),
            mtime_ns=mtime_ns,
            first_read_time=first_read_time,
            last_read_time=now,
        )


def _entries(path: str) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return list(entries)


def record_files(folder: Path, allowed: Sequence[Path] = ()) -> dict[str, Stamp]:
    """Return the JSON files of a folder that may hold records. See RecordFolder."""
    return RecordFolder(folder, allowed).files()


def file_stamp(path: Path) -> Stamp:
    """Return the time of change and the size of a file."""
    state = path.stat()
    return state.st_mtime_ns, state.st_size


def real_path(path: Path) -> Path:
    """Return a path without links."""
    return Path(os.path.realpath(path))


def is_below(path: Path, folders: Sequence[Path]) -> bool:
    """Return whether a path is inside one of the folders. folders: resolved paths."""
    real = real_path(path)
    return any(real.is_relative_to(folder) for folder in folders)
