"""Files that Stepline writes into folders which others may have filled: never through a link.

A folder from elsewhere, such as a library, may hold something else where Stepline keeps its own
files. It may be a link, a pipe or a second name of one of the user's files.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from stepline.errors import StoreError


def open_own_file(path: Path, *, append: bool = False) -> BinaryIO:
    """Open a file to read and write, without a buffer, or make it. Its content stays.

    append: each write goes to its end. Raises StoreError as `check_own_file` does, OSError where it
    cannot be opened.
    """
    # A link is refused, and a pipe keeps no one waiting.
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if append:
        flags |= os.O_APPEND
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        check_own_file(path)
        descriptor = os.open(path, flags)
    file = os.fdopen(descriptor, "r+b", buffering=0)
    try:
        _check_state(path, os.fstat(descriptor))
    except StoreError:
        file.close()
        raise
    return file


def check_own_file(path: Path) -> None:
    """Raise StoreError where a link, a folder, a device or a file with a second name is in a file's
    place."""
    try:
        state = path.lstat()
    except FileNotFoundError:
        return
    _check_state(path, state)


def check_own_folder(folder: Path) -> None:
    """Raise StoreError where a folder that Stepline writes into is a link, or holds one."""
    for path in (folder, *folder.glob("*"), *folder.glob(".*")):
        if path.is_symlink():
            raise StoreError(f"{path}: is a link, and Stepline would write there; remove it")


def _check_state(path: Path, state: os.stat_result) -> None:
    reason = None
    cure = "remove it"
    if stat.S_ISLNK(state.st_mode):
        reason = "is a link"
    elif not stat.S_ISREG(state.st_mode):
        reason = "is not a plain file"
    elif state.st_nlink > 1:
        # Writing here would change the file of the other name.
        reason = "has another name too"
        cure = "put a copy in its place"
    if reason is not None:
        raise StoreError(f"{path}: {reason}, and Stepline would write there; {cure}")
