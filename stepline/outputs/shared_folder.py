"""Folders that hold copies of records and videos for others, and what else a folder holds.

A shared folder often is in the library that it was copied from. Its mark distinguishes it from a
folder of someone else, and its copies from the library's own files.
"""

import os
from pathlib import Path

from stepline.errors import StoreError
from stepline.files.atomic_files import check_own_file, check_writable, open_own_file

SHARE_MARK = ".stepline-share"  # an empty file in each shared folder


def claim_shared_folder(folder: Path) -> None:
    """Make a shared folder, or take one that Stepline made earlier.

    Raises StoreError where it holds other files, or a link through which something would be written
    elsewhere.
    """
    mark = folder / SHARE_MARK
    check_own_file(mark)
    if folder.is_dir() and any(folder.iterdir()) and not mark.exists():
        raise StoreError(f"{folder}: holds other files; give another folder")
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(parent, name)
            if path.is_symlink():
                raise StoreError(f"{path}: is a link; remove it, or give another folder")
    check_writable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    open_own_file(mark).close()


def unshared_files_below(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted by path, without those of shared folders in it."""
    files = []
    for parent, folders, names in os.walk(folder):
        if SHARE_MARK in names and Path(parent) != folder:
            # os.walk goes no deeper where its list of folders is emptied.
            folders.clear()
            continue
        for name in names:
            path = Path(parent, name)
            if path.is_file():
                files.append(path)
    return sorted(files)
