"""Folders in which an earlier version of the studio shared copies of records and videos.

A shared folder often is in the library that it was copied from. Its mark distinguishes its copies
from the library's own files.
"""

import os
from pathlib import Path

SHARE_MARK = ".stepline-share"  # an empty file in each shared folder


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
