"""What stands in folders of its own, by id: videos, captions and ready features that the settings name."""

from collections.abc import Callable
from dataclasses import replace

from stepline.curate.items import Item
from stepline.curate.places import Place
from stepline.curate.settings import PlaceSettings, SourceSettings
from stepline.curate.sources.addresses import absolute
from stepline.curate.sources.caption_file import CaptionFile
from stepline.curate.sources.endings import captions_id, features_id, video_id
from stepline.curate.sources.files import Files
from stepline.errors import DatasetError


class Beside:
    """The folders that `source.videos`, `source.captions` and `source.features` name; read once, when first needed."""

    def __init__(self, settings: SourceSettings, places: PlaceSettings) -> None:
        self._videos = _files(settings.videos, places, video_id, "videos")
        self._features = _files(settings.features, places, features_id, "features")
        captions = settings.captions or ""
        self._captions = (
            CaptionFile(absolute(Place(captions, places)))
            if captions.lower().endswith(".json")
            else _files(captions or None, places, captions_id, "captions")
        )

    @property
    def has_captions(self) -> bool:
        """Whether the settings say where captions are."""
        return self._captions is not None

    def completed(self, item: Item) -> Item:
        """Return an item with what the folders hold of it; what it names itself stays."""
        video = self._videos.find(item.id) if self._videos is not None and item.video is None else None
        captions = self._captions.find(item.id) if self._captions is not None and item.captions is None else None
        features = self._features.find(item.id) if self._features is not None and item.features is None else None
        if video is not None:
            item = replace(item, video=video.url, stamp=video.stamp)
        if captions is not None:
            item = replace(item, captions=captions.url, captions_stamp=captions.stamp)
        if features is not None:
            item = replace(item, features=features.url, features_stamp=features.stamp)
        return item


def _files(
    url: str | None, places: PlaceSettings, id_of: Callable[[str], tuple[str, int] | None], what: str
) -> Files | None:
    if url is None:
        return None
    place = absolute(Place(url, places))
    files = Files(place, place.list(), id_of)
    if not len(files):
        raise DatasetError(f"source.{what} {place.shown}: no file of {what} in it; correct the folder")
    return files
