"""Addresses inside a source: whole ones from relative ones, and back; a dataset names no folder of a machine."""

import os

from stepline.curate.places import Place
from stepline.curate.sources.endings import is_list


def absolute(place: Place) -> Place:
    """Return a place that processes with another working folder find, too."""
    path = place.local
    return place if path is None or place.url.startswith("file://") else Place(os.path.abspath(path), place.settings)


def root_of(source: str) -> str:
    """Return what the addresses of a source are relative to: a folder itself, the folder that a file stands in."""
    bare = Place(source).shown.rstrip("/")
    is_file = is_list(bare) or bare.endswith(".tar")
    return (bare.rpartition("/")[0] or ("/" if bare.startswith("/") else ".")) if is_file else bare or "/"


def whole_address(value: str, root: str) -> str:
    """Return a value as it is where it is a URL or an absolute path, else below the root."""
    if "://" in value or value.startswith("/"):
        return value
    return f"{root.rstrip('/')}/{value.removeprefix('./')}"


def relative_address(url: str, source: str) -> str:
    """Return where a file lies relative to its source.

    One from elsewhere keeps its URL without user, password and query; a path of this machine keeps its name alone.
    """
    root, bare = root_of(source).rstrip("/") + "/", Place(url).shown
    if bare.startswith(root):
        return bare.removeprefix(root)
    if root == "./" and "://" not in bare and not bare.startswith("/"):
        return bare.removeprefix("./")
    return bare if "://" in bare and not bare.startswith("file://") else Place(url).name
