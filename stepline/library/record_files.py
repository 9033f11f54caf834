"""The JSON files of a library's folder, and when each changed."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from stepline.outputs.shared_folder import SHARE_MARK

Stamp = tuple[int, int]  # of a file: modification time (ns) and size (bytes)


def record_files(folder: Path, allowed: Sequence[Path] = ()) -> dict[str, Stamp]:
    """Return path -> (modification time in ns, bytes) of each JSON file below a folder.

    Paths are relative to the folder. Hidden files, copies in shared folders, and links out of the
    folder and the allowed folders are left out. So are paths that are not UTF-8, which neither JSON
    nor a database can hold.

    Args:
        folder: the library's folder.
        allowed: other folders that links to files may lead to, as paths without links.
    """
    top = os.fspath(folder)
    inside = (real_path(folder), *allowed)
    stamps: dict[str, Stamp] = {}
    # `walk` follows no link to a folder, and passes over a folder that is gone or another user's.
    for path, folders, files in os.walk(top):
        # A folder that was written to be shared holds copies of records.
        if SHARE_MARK in files and path != top:
            folders.clear()
            continue
        for name in files:
            if not name.endswith(".json") or name.startswith("."):
                continue
            file = os.path.join(path, name)
            # A link may lead to what its user did not allow.
            if os.path.islink(file) and not is_below(Path(file), inside):
                continue
            try:
                state = os.stat(file)
            except OSError:  # gone by now, or a link to nowhere: no file that can be read
                continue
            relative = os.path.relpath(file, top)
            is_utf8 = relative.encode(errors="replace").decode() == relative
            if is_utf8 and stat.S_ISREG(state.st_mode):
                stamps[relative] = (state.st_mtime_ns, state.st_size)
    # By the parts of the path, so that a folder's files stay together.
    return dict(sorted(stamps.items(), key=lambda item: item[0].split("/")))


def file_stamp(path: Path) -> Stamp:
    """Return (modification time in ns, bytes) of a file."""
    state = path.stat()
    return state.st_mtime_ns, state.st_size


def is_existing_file(path: Path) -> bool:
    """Return whether a path, which a record may name, leads to a file. A path that no disk takes
    leads to none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def real_path(path: Path) -> Path:
    """Return an absolute path in which all links are resolved."""
    return Path(os.path.realpath(path))


def is_below(path: Path, folders: Sequence[Path]) -> bool:
    """Return whether a path, with its links resolved, is inside one of the folders.

    folders: paths without links.
    """
    real = real_path(path)
    return any(real.is_relative_to(folder) for folder in folders)
