"""Any source to entries: what kind it is, what is wanted of it, in the order of ids.

Here too the plainest kind: a folder or bucket of videos, with their captions in it or in a folder
of their own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from stepline.curate.settings import SourceSettings
from stepline.curate.sources.addresses import absolute_path, is_list, relative_address
from stepline.curate.sources.files import (
    AmbiguousCaptionsError,
    CaptionsFiles,
    FileIndex,
    SideFolders,
    captions_id,
    video_id,
    with_file,
)
from stepline.curate.sources.howto100m import read_howto100m
from stepline.curate.sources.lists import read_list
from stepline.curate.sources.select import SourceFilter
from stepline.curate.stage import SourceEntry, VideoItem, reject_video
from stepline.errors import DatasetError
from stepline.files.remote import DEFAULT_SETTINGS as REMOTE_DEFAULTS
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import RemoteSettings
from stepline.records import Rejected
from stepline.sieve_swap.videos import VIDEOS_FILE


def read_folder(source: RemotePath, side_folders: SideFolders) -> Iterator[SourceEntry]:
    """Yield the videos below a folder, and what is refused. The id of a video is its file stem.

    Captions without a video are entries of their own. Unreadable folders and ambiguous captions are
    refused.

    Args:
        source: the folder.
        side_folders: further files by id.

    Raises DatasetError if the folder has neither videos nor captions.
    """
    # The videos below the folder, and what of it cannot be read.
    skipped: list[tuple[str, str]] = []
    videos = FileIndex(source, source.list(skipped), video_id)
    yield from (reject_video(name, reason) for name, reason in skipped)
    # Captions are next to the videos, unless the settings name a folder of them.
    captions = None
    alone = []
    if not side_folders.has_captions:
        captions = CaptionsFiles(FileIndex(source, source.list([]), captions_id), videos)
        alone = captions.ids_without_video()
    if not len(videos) and not alone:
        raise DatasetError(
            f"{source.display_url}: no video in it; give the folder of videos or captions, or a list of them"
        )
    # Captions without a video are an entry of their own.
    with_video = (with_file(VideoItem(id), "video", video) for id, video in videos)
    for item in chain(with_video, map(VideoItem, alone)):
        try:
            file = captions.find(item.id) if captions is not None else None
            if file is not None:
                item = with_file(item, "captions", file)
            yield side_folders.add_files(item)
        except AmbiguousCaptionsError as error:
            yield reject_video(item.id, str(error))


SOURCE_DEFAULTS = SourceSettings()


def read_source(
    url: str, settings: SourceSettings = SOURCE_DEFAULTS, remote: RemoteSettings = REMOTE_DEFAULTS
) -> Iterator[SourceEntry]:
    """Yield the videos of a source and its refused entries, sorted by id.

    Args:
        url: folder, list or HowTo100M table: a path, s3://, gs:// or http(s)://.
        settings: which videos are selected, and where their other files are.
        remote: limits and retries of remote files.

    Raises DatasetError or StoreError if the source cannot be read.
    """
    source = absolute_path(RemotePath(url, remote))
    source_filter = SourceFilter(settings)
    entries = _limit_count(source, _read_entries(source, settings, source_filter, remote))
    for entry in sort_by_id(source_filter.filter_entries(entries)):
        # What a dataset says of its place, without a path of this machine.
        if isinstance(entry, VideoItem) and entry.video is not None:
            entry = replace(entry, path=relative_address(entry.video, source.url))
        yield entry


MAX_ID_CHARS = 200  # an id names files
# reasons of refused entries
REPEATED_ID = (
    "its id came before in the source; ids must be unique, "
    "so give the videos other names or a list with ids"
)
INVALID_ID = (
    "its id is not a plain name "
    "(empty, over 200 letters, or with a slash, a line break or a control character)"
)


def sort_by_id(entries: Iterable[SourceEntry]) -> Iterator[SourceEntry]:
    """Yield entries sorted by id. Repeated ids, and ids that cannot name a file, are refused."""
    last: str | None = None
    for number, entry in sorted(enumerate(entries, start=1), key=lambda row: row[1].id):
        id = entry.id
        if isinstance(entry, Rejected):
            reason = entry.reason
        elif id == last:
            reason = REPEATED_ID
        elif _is_valid_id(id):
            last = id
            yield entry
            continue
        else:
            reason = INVALID_ID
        yield reject_video(id[:MAX_ID_CHARS] or f"item {number}", reason)


def _is_valid_id(id: str) -> bool:
    if not 0 < len(id) <= MAX_ID_CHARS:
        return False
    return id.isprintable() and not {"/", "\\"} & set(id)


def _limit_count(source: RemotePath, entries: Iterator[SourceEntry]) -> Iterator[SourceEntry]:
    for number, entry in enumerate(entries):
        if number == source.settings.most and source.local is None:
            raise DatasetError(
                f"{source.display_url}: it has more videos than places.most={number}; raise that"
            )
        yield entry


def _read_entries(
    source: RemotePath,
    settings: SourceSettings,
    source_filter: SourceFilter,
    remote: RemoteSettings,
) -> Iterator[SourceEntry]:
    kind: str = settings.kind
    if kind == "auto":
        kind = _detect_kind(source)
    if kind == "howto100m":
        return read_howto100m(source, settings, source_filter, remote)
    side_folders = SideFolders(settings, remote)
    if kind == "list":
        return read_list(source, settings, source_filter, side_folders)
    return read_folder(source, side_folders)


def _detect_kind(source: RemotePath) -> str:
    """Return the kind of a source from its name or contents: "howto100m", "list" or "folder"."""
    if source.name == VIDEOS_FILE:
        return "howto100m"
    if source.name.endswith(".tar"):
        raise DatasetError(f"{source.display_url}: tars are not read; unpack them into a folder")
    if is_list(source.name):
        return "list"
    path = source.local
    if path is not None and not path.exists():
        raise DatasetError(
            f"{source.display_url}: is not there; give a folder of videos, a list of them or HowTo100M"
        )
    if path is not None and path.is_file():
        raise DatasetError(
            f"{source.display_url}: one file is not a source; give its folder, or `stepline steps` for one video"
        )
    return "howto100m" if (source / VIDEOS_FILE).exists() else "folder"
