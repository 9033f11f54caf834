"""Any source to entries: what kind it is, what is wanted of it, in the order of ids.

A folder or bucket of videos, with their captions beside them or in a folder of their own.
"""

from collections.abc import Iterator
from dataclasses import replace

from stepline.curate.remote import DEFAULTS as PLACES
from stepline.curate.remote import RemotePath
from stepline.curate.settings import RemoteSettings, SourceSettings
from stepline.curate.sources.files import (
    Files,
    SideFolders,
    Stamps,
    absolute,
    captions_id,
    is_list,
    relative_address,
    video_id,
)
from stepline.curate.sources.howto100m import read_howto100m
from stepline.curate.sources.lists import read_list
from stepline.curate.sources.select import Choice, Entry, in_order
from stepline.curate.sources.webdataset import BRACES, read_webdataset
from stepline.curate.stage import Item
from stepline.errors import DatasetError
from stepline.sieve_swap.videos import VIDEOS


def read_folder(place: RemotePath, beside: SideFolders) -> Iterator[Entry]:
    """Yield every video below a folder, its id the file's stem. Raises DatasetError where there is none."""
    videos = Files(place, place.list(), video_id)
    if not len(videos):
        raise DatasetError(f"{place.display_url}: no video in it; give the folder of videos, a list of them, or tars")
    own = None if beside.has_captions else Files(place, place.list(), captions_id)
    for id, video in videos:
        captions = own.find(id) if own is not None else None
        item = Item(
            id, video.url, video.stamp,
            captions.url if captions else None, captions.stamp if captions else "",
        )  # fmt: skip
        yield beside.completed(item)


DEFAULTS = SourceSettings()


def read_source(url: str, settings: SourceSettings = DEFAULTS, places: RemoteSettings = PLACES) -> Iterator[Entry]:
    """Yield the videos of a folder, list, set of tars or HowTo100M, sorted by id, each an Item or Rejected.

    url: a path, or s3://, gs://, http(s)://. Memory does not grow with the source beyond about 100 bytes a video
    that a folder lists. Raises DatasetError or StoreError, in one line, where the source cannot be read as a whole.
    """
    place, choice = absolute(RemotePath(url, places)), Choice(settings)
    for entry in in_order(choice.made(_entries(place, settings, choice, places))):
        if isinstance(entry, Item) and entry.video is not None:
            entry = replace(entry, path=relative_address(entry.video, place.url))
        yield entry


def _entries(place: RemotePath, settings: SourceSettings, choice: Choice, places: RemoteSettings) -> Iterator[Entry]:
    kind = settings.kind if settings.kind != "auto" else _kind(place)
    if kind == "howto100m":
        return read_howto100m(place, settings, choice, places)
    beside = SideFolders(settings, places)
    if kind == "list":
        return read_list(place, settings.columns, choice, beside, Stamps(places, look=settings.stamps))
    if kind == "webdataset":
        return read_webdataset(place, beside)
    return read_folder(place, beside)


def _kind(place: RemotePath) -> str:
    """Return what an address is: by its name, else by what it holds."""
    if place.name == VIDEOS:
        return "howto100m"
    if place.name.endswith(".tar") or BRACES.search(place.url):
        return "webdataset"
    if is_list(place.name):
        return "list"
    if (path := place.local) is not None and not path.exists():
        raise DatasetError(
            f"{place.display_url}: is not there; give a folder of videos, a list of them, tars or HowTo100M"
        )
    if path is not None and path.is_file():
        raise DatasetError(
            f"{place.display_url}: one file is no source; give its folder, or `stepline steps` for one video"
        )
    if (place / VIDEOS).exists():
        return "howto100m"
    first = next(place.list(), None)
    return "webdataset" if first is not None and first.name.endswith(".tar") else "folder"
