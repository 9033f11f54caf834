"""The addresses of a run's files: whole ones from relative ones, and back.

A dataset names no folder of a machine, and a list from elsewhere names files of its own host.
"""

import os

from stepline.files.remote import RemotePath
from stepline.files.remote.filesystems import host_advice, host_of, is_redirect_allowed

LIST_SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")


def is_list(name: str) -> bool:
    """Return whether a file name, such as videos.csv, has the suffix of a list of videos."""
    return name.lower().removesuffix(".gz").endswith(LIST_SUFFIXES)


def absolute_path(path: RemotePath) -> RemotePath:
    """Return a path that is valid in any working folder. URLs are returned unchanged."""
    if path.local is None or path.url.startswith("file://"):
        return path
    return RemotePath(os.path.abspath(path.local), path.settings)


def source_root(source: str) -> str:
    """Return the folder to which the addresses of a source are relative.

    It is the folder itself, or the folder that contains the list. User, password and query of a URL
    are removed.

    source: URL or path of a folder or list of videos.
    """
    # Without user, password and query, which say nothing of where it is.
    bare = RemotePath(source).display_url.rstrip("/")
    if not is_list(bare):
        return bare or "/"
    folder, slash, _ = bare.rpartition("/")
    return folder or slash or "."


def make_absolute_address(value: str, root: str) -> str:
    """Return a URL or absolute path unchanged, and a relative path below the folder `root`."""
    if "://" in value or value.startswith("/"):
        return value
    return f"{root.rstrip('/')}/{value.removeprefix('./')}"


def refusal_reason(address: str, source: RemotePath) -> str | None:
    """Return why a list of videos may not name a file, or None if it may.

    A local list may name any file. A remote list may name only files of its own host, unless the
    settings allow more.

    Args:
        address: URL or path of the file.
        source: the list of videos.
    """
    if source.local is not None:
        return None
    # A part of a file names the file, which may itself be a part.
    whole = RemotePath(address)
    while whole.byte_range is not None:
        whole = whole.byte_range[0]
    if whole.local is not None:
        if source.settings.files:
            return None
        return "its row names a file of this machine; where you trust it, --set places.files=true"
    if not address.isprintable() or "\\" in address:
        return "its row names no plain address; correct the list"
    host = host_of(whole.url)
    if is_redirect_allowed(host_of(source.url), host, source.settings):
        return None
    return f"its row names another host; {host_advice(host)}"


def relative_address(url: str, source: str) -> str:
    """Return the address of a file relative to its source, as the dataset publishes it.

    A URL elsewhere is returned without credentials. A local file outside the source becomes its
    name.

    Args:
        url: URL or path of the file.
        source: URL or path of the folder or list of videos.
    """
    root = source_root(source).rstrip("/") + "/"
    # Below the source, else a public address, else the name alone.
    path = RemotePath(url)
    bare = path.display_url
    is_url = "://" in bare
    if bare.startswith(root) or (root == "./" and not is_url and not bare.startswith("/")):
        return bare.removeprefix(root)
    return bare if is_url and not bare.startswith("file://") else path.name
