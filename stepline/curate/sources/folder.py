"""A folder or bucket of videos, with their captions beside them or in a folder of their own."""

from collections.abc import Iterator

from stepline.curate.items import Item
from stepline.curate.places import Place
from stepline.curate.sources.beside import Beside
from stepline.curate.sources.endings import captions_id, video_id
from stepline.curate.sources.files import Files
from stepline.curate.sources.sorting import Entry
from stepline.errors import DatasetError


def read_folder(place: Place, beside: Beside) -> Iterator[Entry]:
    """Yield every video below a folder, its id the file's stem. Raises DatasetError where there is none."""
    videos = Files(place, place.list(), video_id)
    if not len(videos):
        raise DatasetError(f"{place.shown}: no video in it; give the folder of videos, a list of them, or tars")
    own = None if beside.has_captions else Files(place, place.list(), captions_id)
    for id, video in videos:
        captions = own.find(id) if own is not None else None
        item = Item(
            id, video.url, video.stamp,
            captions.url if captions else None, captions.stamp if captions else "",
        )  # fmt: skip
        yield beside.completed(item)
