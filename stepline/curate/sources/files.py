"""The files of the videos of a source: found by id, each with a stamp that changes with the file.

FileIndex: files of a folder by id. CaptionsFiles: captions files of a folder by video, language
codes included. CaptionIndex: HowTo100M's captions of all videos in one JSON file. SideFolders:
files by id in the folders that settings name.
"""

import hashlib
import io
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from operator import itemgetter
from typing import Any, TextIO

from stepline.curate.settings import SourceSettings
from stepline.curate.sources.addresses import absolute_path
from stepline.curate.stage import SourceEntry, VideoItem, reject_video
from stepline.errors import DatasetError
from stepline.features.import_files import item_id
from stepline.files.remote import FileEntry, RemotePath
from stepline.files.remote.settings import BYTES_PER_MIB, RemoteSettings
from stepline.language_tags import language_of_tag, split_language
from stepline.pipeline.sources import FOLDER_SUFFIXES, VIDEO_SUFFIXES
from stepline.sieve_swap.text_base.json_stream import JsonFileError, JsonObjectReader

CAPTIONS_SUFFIXES = (
    ".vtt",
    ".srt",
    ".sbv",
    ".json3",
    ".json",
    ".csv",
)  # the first that is there is used
ABOUT_SUFFIX = ".info.json"  # what downloaders note of a video; no captions
# Field of a VideoItem -> the field of its stamp.
STAMP_FIELDS = {"video": "stamp", "captions": "captions_stamp", "features": "features_stamp"}

# The id that a file's name gives, with the rank of its ending (the least is used). None if it is
# not such a file.
FileId = Callable[[str], tuple[str, int] | None]


def video_id(name: str) -> tuple[str, int] | None:
    """Return (stem, 0) of the file name of a video, None for any other file. 0 is the rank of its
    ending."""
    stem, suffix = _stem_and_suffix(name)
    return None if not stem or suffix not in VIDEO_SUFFIXES else (stem, 0)


def captions_id(name: str) -> tuple[str, int] | None:
    """Return (stem, rank) of the file name of captions, None for any other file.

    The stem includes the language, such as ID.en. The lowest rank is preferred: .vtt, then .srt,
    then the other formats.
    """
    stem, suffix = _stem_and_suffix(name)
    if not stem or suffix not in CAPTIONS_SUFFIXES or name.lower().endswith(ABOUT_SUFFIX):
        return None
    return stem, CAPTIONS_SUFFIXES.index(suffix)


def features_file_id(name: str) -> tuple[str, int] | None:
    """Return (video id, 0) for the file name of features, such as ID.npy or ID.mp4.npy. None for
    any other file.

    0 is the rank of the file's ending. All endings of feature files have the same rank.
    """
    # The same rule by which ready features are found elsewhere.
    id = item_id(name.rpartition("/")[2])
    return None if id is None else (id, 0)


def _stem_and_suffix(path: str) -> tuple[str, str]:
    stem, dot, ending = path.rpartition("/")[2].rpartition(".")
    return stem, f"{dot}{ending.lower()}"


@dataclass(frozen=True)
class StampedFile:
    """A file and its stamp.

    Attributes:
        url: URL or path of the file.
        stamp: text that changes with the contents, such as size and modification time.
    """

    url: str
    stamp: str


class FileIndex:
    """The files of a folder by id.

    Args:
        folder: the folder.
        entries: listing of the folder.
        id_of: returns the id and rank of a file name, None for files to ignore.
    """

    def __init__(self, folder: RemotePath, entries: Iterable[FileEntry], id_of: FileId) -> None:
        self._folder = folder
        # By id: rank, name and stamp of each file.
        self._files: dict[str, list[tuple[int, str, str]]] = {}
        for entry in entries:
            id_and_rank = id_of(entry.name)
            if id_and_rank is not None:
                id, rank = id_and_rank
                self._files.setdefault(id, []).append((rank, entry.name, entry.fingerprint))
        self._ids = sorted(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, id: object) -> bool:
        return id in self._files

    def __iter__(self) -> Iterator[tuple[str, StampedFile]]:
        """Yield all (id, file) pairs, sorted by id, then rank. Several files may have one id."""
        for id in self._ids:
            for file in sorted(self._files[id], key=itemgetter(0)):
                yield id, self._stamped_file(file)

    def find(self, id: str) -> StampedFile | None:
        """Return the file of an id that has the lowest rank. None without one."""
        files = self._files.get(id)
        return self._stamped_file(min(files, key=itemgetter(0))) if files else None

    def ids_with_prefix(self, start: str) -> list[str]:
        """Return the ids that begin with `start`, sorted."""
        row = bisect_left(self._ids, start)
        return list(takewhile(lambda id: id.startswith(start), islice(self._ids, row, None)))

    def _stamped_file(self, file: tuple[int, str, str]) -> StampedFile:
        _, name, stamp = file
        return StampedFile((self._folder / name).url, stamp)


class AmbiguousCaptionsError(DatasetError):
    """Raised if a video has captions in several languages and none without a language."""


class CaptionsFiles:
    """The captions files of a folder.

    Args:
        files: captions files by stem, which includes the language.
        videos: ids of the videos. Captions belong to the video with the longest matching id.
    """

    def __init__(self, files: FileIndex, videos: Container[str]) -> None:
        self._files = files
        self._videos = videos

    def find(self, id: str) -> StampedFile | None:
        """Return the captions of a video: ID.vtt, or else ID.LANGUAGE.vtt. None without captions.

        Raises AmbiguousCaptionsError for several languages.
        """
        file = self._files.find(id)
        if file is not None:
            return file
        # Only names that begin with the id and a point can be its captions.
        stems = []
        languages = set()
        for stem in self._files.ids_with_prefix(f"{id}."):
            base, ending = split_language(stem)
            if base == id and stem not in self._videos:
                stems.append(stem)
                languages.add(language_of_tag(ending.partition(".")[0]) or "")
        if len(languages) > 1:
            names = ", ".join(sorted(languages))
            raise AmbiguousCaptionsError(
                f"its captions are in several languages ({names}); name the one that is meant "
                f"{id}.vtt, or take the others away"
            )
        if not stems:
            return None
        return self._files.find(min(stems, key=lambda stem: (len(stem), stem)))

    def ids_without_video(self) -> list[str]:
        """Return the ids of captions files without a video, sorted.

        JSON and tables are ignored, as they may hold other data.
        """
        ids: dict[str, None] = {}
        for stem, file in self._files:
            base, _ = split_language(stem)
            has_video = stem in self._videos or base in self._videos
            if not has_video and _stem_and_suffix(file.url)[1] in FOLDER_SUFFIXES:
                ids[base] = None
        return list(ids)


def file_stamp(url: str, settings: RemoteSettings) -> str | None:
    """Return a text that changes with the contents of a file, None if the file does not exist.

    Args:
        url: URL or path of the file.
        settings: limits and retries of remote files.

    Raises StoreError if the server refuses access.
    """
    file = RemotePath(url, settings)
    return file.fingerprint() if file.exists() else None


MAX_LINE_CHARS = 2**20  # of a list


def read_text_lines(source: RemotePath, text: TextIO) -> Iterator[str]:
    """Yield the lines of a list of videos.

    Args:
        source: the list, for messages and limits.
        text: its open text.

    Raises DatasetError for a line that is too long, and for a remote list that is too large.
    """
    size = 0
    max_size = source.settings.largest * BYTES_PER_MIB
    while line := text.readline(MAX_LINE_CHARS):
        size += len(line)
        if len(line) == MAX_LINE_CHARS:
            raise DatasetError(
                f"{source.display_url}: a line has {MAX_LINE_CHARS} characters and more; "
                "write the list again"
            )
        if source.local is None and size > max_size:
            raise DatasetError(
                f"{source.display_url}: unpacks to more than places.largest; raise that"
            )
        yield line


# A character for each byte: what the structure of JSON needs, and offsets in bytes.
BYTE_ENCODING = "latin-1"
DIGEST_BYTES = 8  # of a sha256 that are kept
UTF8_MARK = b"\xef\xbb\xbf"  # which some editors put first


class CaptionIndex:
    """Index of HowTo100M's caption.json: byte range and digest of the captions of each video.

    file_path: the JSON file. It is read once, with one video in memory.

    Raises DatasetError for a damaged or compressed file.
    """

    def __init__(self, file_path: RemotePath) -> None:
        self._path = file_path
        # By id: the first and last byte of the captions, and their digest.
        self._parts: dict[bytes, tuple[int, int, bytes]] = {}
        with file_path.open() as file:
            # The mark is not part of the JSON, but of every offset.
            offset = len(UTF8_MARK) if file.read(len(UTF8_MARK)) == UTF8_MARK else 0
            file.seek(offset)
            reader = JsonObjectReader(io.TextIOWrapper(file, encoding=BYTE_ENCODING, newline=""))
            for key, value in reader.read_members():
                if isinstance(value, JsonFileError):
                    raise DatasetError(
                        f"{file_path.display_url}: {f'{key} '.lstrip()}{value.reason}; "
                        "unpack it where it is compressed, else download it again"
                    )
                start, end = reader.last_range
                digest = hashlib.sha256(reader.last_source.encode(BYTE_ENCODING)).digest()
                part = (offset + start, offset + end, digest[:DIGEST_BYTES])
                self._parts.setdefault(key.encode(BYTE_ENCODING), part)

    def __len__(self) -> int:
        return len(self._parts)

    def find(self, id: str) -> StampedFile | None:
        """Return the byte range with the captions of a video as a file, None without captions."""
        part = self._parts.get(id.encode(errors="replace"))
        if part is None:
            return None
        start, end, digest = part
        url = f"{self._path.url}#bytes={start}-{end}/{id}.json"
        return StampedFile(url, digest.hex())


class SideFolders:
    """The folders of the settings `source.videos`, `source.captions` and `source.features`, which
    hold further files of the videos by id.

    Args:
        settings: names the folders.
        remote: limits and retries of remote files.
    """

    def __init__(self, settings: SourceSettings, remote: RemoteSettings) -> None:
        # HowTo100M's one file of captions, or a folder with a file for each video.
        captions = settings.captions or ""
        videos = _index_folder(settings.videos, remote, video_id, "videos")
        self._indexes: dict[str, FileIndex | CaptionIndex | CaptionsFiles | None] = {
            "video": videos,
            "features": _index_folder(settings.features, remote, features_file_id, "features"),
        }
        if captions.lower().endswith(".json"):
            self._indexes["captions"] = CaptionIndex(absolute_path(RemotePath(captions, remote)))
        else:
            files = _index_folder(captions, remote, captions_id, "captions")
            self._indexes["captions"] = files and CaptionsFiles(files, videos or ())

    @property
    def has_captions(self) -> bool:
        """Whether the settings name a folder or file of captions."""
        return self._indexes["captions"] is not None

    def add_files(self, item: VideoItem) -> VideoItem:
        """Return a video with the files of its id from the folders. Files that it has already stay.

        Raises AmbiguousCaptionsError if its captions are in several languages.
        """
        for field, index in self._indexes.items():
            if index is None or getattr(item, field) is not None:
                continue
            file = index.find(item.id)
            if file is not None:
                item = with_file(item, field, file)
        return item

    def make_entry(self, item: VideoItem, no_file: str) -> SourceEntry:
        """Return a video with the files of its id from the folders, or its refusal.

        A video is refused if its captions are ambiguous, or if it has no file at all.

        Args:
            item: the video.
            no_file: reason of the refusal without a file.
        """
        try:
            item = self.add_files(item)
        except AmbiguousCaptionsError as error:
            return reject_video(item.id, str(error))
        return item if item.has_files else reject_video(item.id, no_file)


def with_file(item: VideoItem, field: str, file: StampedFile) -> VideoItem:
    """Return a video with one of its files set.

    Args:
        item: the video.
        field: kind of the file: "video", "captions" or "features".
        file: the file and its stamp.
    """
    changes: dict[str, Any] = {field: file.url, STAMP_FIELDS[field]: file.stamp}
    return replace(item, **changes)


def _index_folder(
    url: str | None, remote: RemoteSettings, id_of: FileId, kind: str
) -> FileIndex | None:
    if not url:
        return None
    folder = absolute_path(RemotePath(url, remote))
    files = FileIndex(folder, folder.list([]), id_of)
    if not len(files):
        raise DatasetError(
            f"source.{kind} {folder.display_url}: no file of {kind} in it; correct the folder"
        )
    return files
