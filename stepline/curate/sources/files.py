"""The files behind a run's videos: found by id, known by a stamp that tells a change, named without
this machine.

names       which id a file's name gives, and what kind of file it is
FileIndex   the files of a folder by id, in arrays and not in objects: a million take some 100 MiB
FileStamps  stamps of files that a list names one by one, some looked at alone, many of one folder by its listing
addresses   whole ones from relative ones, and back; a dataset names no folder of a machine
CaptionIndex, SideFolders    what stands beside the videos, by id, in files and folders that the settings name
"""

import hashlib
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, TextIO, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.curate.settings import SourceSettings
from stepline.curate.stage import VideoItem
from stepline.errors import DatasetError
from stepline.features.import_files import item_id
from stepline.pipeline.sources import VIDEO_SUFFIXES
from stepline.remote import FileEntry, RemotePath
from stepline.remote.filesystems import allow_host, host_of, may_lead
from stepline.remote.settings import MIB, RemoteSettings
from stepline.text_base.json_stream import JsonDamage, JsonObjectReader

CAPTIONS = (".vtt", ".srt", ".json3", ".json", ".csv")  # the first that is there is taken
LISTS = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")
ABOUT = ".info.json"  # what downloaders note of a video; no captions
LONGEST_LANGUAGE = 8  # letters, as of zh-Hant
# fields of a VideoItem
STAMPS = {"video": "stamp", "captions": "captions_stamp", "features": "features_stamp"}

# The id that a file's name gives, with the rank of its ending (the least is taken); None where it
# is no such file.
FileId: TypeAlias = Callable[[str], tuple[str, int] | None]


def video_id(name: str) -> tuple[str, int] | None:
    """Return the stem of a video's file name; None for any other file."""
    stem, ending = _split(name)
    return (stem, 0) if stem and ending in VIDEO_SUFFIXES else None


def captions_id(name: str) -> tuple[str, int] | None:
    """Return the id that a captions file is named after, with or without a language: ID.vtt,
    ID.en.vtt.

    The rank puts .vtt before .srt before .json before .csv, and a file without a language before
    those with one.
    """
    stem, ending = _split(name)
    if not stem or ending not in CAPTIONS or name.lower().endswith(ABOUT):
        return None
    rank = CAPTIONS.index(ending)
    base, dot, language = stem.rpartition(".")
    if dot and base and len(language) <= LONGEST_LANGUAGE and language.replace("-", "").isalpha():
        return base, rank + len(CAPTIONS)
    return stem, rank


def features_id(name: str) -> tuple[str, int] | None:
    """Return the id that a file of features is named after: ID.npy, ID.mp4.npy, ID.pth.tar,
    ID.safetensors."""
    id = item_id(name.rpartition("/")[2])
    return None if id is None else (id, 0)


def is_list(name: str) -> bool:
    """Return whether a file's name says that it is a list of videos."""
    return name.lower().removesuffix(".gz").endswith(LISTS)


def _split(name: str) -> tuple[str, str]:
    stem, dot, ending = name.rpartition("/")[2].rpartition(".")
    return stem, f"{dot}{ending.lower()}"


BLOCK = 65_536  # files held as objects at once


@dataclass(frozen=True)
class StampedFile:
    """A file: its address, and what tells that it changed."""

    url: str
    stamp: str


class FileIndex:
    """The files of a folder, looked up by id."""

    def __init__(self, folder: RemotePath, entries: Iterator[FileEntry], id_of: FileId) -> None:
        self._folder = folder
        blocks = [
            self._block(block, id_of) for block in iter(lambda: list(islice(entries, BLOCK)), [])
        ]
        keys, ranks, names, stamps = ([block[column] for block in blocks] for column in range(4))
        key: npt.NDArray[np.bytes_] = np.concatenate([np.empty(0, "S1"), *keys])
        rank = np.concatenate([np.empty(0, np.int64), *ranks])
        order = np.lexsort((rank, key))
        self.keys = key[order]
        self._names, self._stamps = _take(names, order), _take(stamps, order)

    @staticmethod
    def _block(block: Sequence[FileEntry], id_of: FileId) -> tuple[Any, Any, Any, Any]:
        import pyarrow as arrow

        rows = [(entry, known) for entry in block if (known := id_of(entry.name)) is not None]
        keys = np.array([known[0].encode() for _, known in rows] or [b""], "S")[: len(rows)]
        ranks = np.array([known[1] for _, known in rows], np.int64)
        names, stamps = [entry.name for entry, _ in rows], [entry.fingerprint for entry, _ in rows]
        return keys, ranks, arrow.array(names, "string"), arrow.array(stamps, "string")

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[str, StampedFile]]:
        """Yield every id and file, sorted by id; an id whose name several files give comes several
        times."""
        for row in range(len(self.keys)):
            yield self.keys[row].decode(errors="replace"), self._at(row)

    def find(self, id: str) -> StampedFile | None:
        """Return the file of an id; None where there is none."""
        wanted = id.encode()
        row = int(np.searchsorted(self.keys, wanted))
        return self._at(row) if row < len(self.keys) and self.keys[row] == wanted else None

    def _at(self, row: int) -> StampedFile:
        return StampedFile((self._folder / self._names[row].as_py()).url, self._stamps[row].as_py())


def _take(columns: Sequence[Any], order: npt.NDArray[np.int64]) -> Any:
    import pyarrow as arrow

    whole = (
        arrow.chunked_array(columns, "string").combine_chunks()
        if columns
        else arrow.array([], "string")
    )
    return whole.take(arrow.array(order))


FEW = 100  # files of a folder elsewhere that are asked for one by one before the folder is listed
FOLDERS = 4  # listings kept at a time


class FileStamps:
    """Tells the stamp of any address; None where there is no such file. look=False: "" for every
    address."""

    def __init__(self, settings: RemoteSettings, *, look: bool) -> None:
        self._settings, self._look = settings, look
        self._asked: Counter[str] = Counter()
        self._listed = lru_cache(FOLDERS)(self._listing)

    def of(self, url: str) -> str | None:
        """Return the stamp of a file. Raises StoreError where its server refuses to answer."""
        if not self._look:
            return ""
        file = RemotePath(url, self._settings)
        if (path := file.local) is not None:
            try:
                status = os.stat(path)
            except OSError:
                return None
            return f"{status.st_size}-{status.st_mtime_ns}"
        folder, _, name = url.rpartition("/")
        self._asked[folder] += 1
        if self._asked[folder] > FEW and file.byte_range is None and not url.startswith("http"):
            listed = self._listed(folder).find(name)
            return None if listed is None else listed.stamp
        return file.fingerprint() if file.exists() else None

    def _listing(self, folder: str) -> FileIndex:
        path = RemotePath(folder, self._settings)
        return FileIndex(path, path.list(), lambda name: (name, 0))


def absolute_path(path: RemotePath) -> RemotePath:
    """Return a path that processes with another working folder find, too."""
    if path.local is None or path.url.startswith("file://"):
        return path
    return RemotePath(os.path.abspath(path.local), path.settings)


def root_of(source: str) -> str:
    """Return what the addresses of a source are relative to: a folder itself, the folder that a
    file stands in."""
    bare = RemotePath(source).display_url.rstrip("/")
    is_file = is_list(bare) or bare.endswith(".tar")
    return (
        (bare.rpartition("/")[0] or ("/" if bare.startswith("/") else "."))
        if is_file
        else bare or "/"
    )


def whole_address(value: str, root: str) -> str:
    """Return a value as it is where it is a URL or an absolute path, else below the root."""
    if "://" in value or value.startswith("/"):
        return value
    return f"{root.rstrip('/')}/{value.removeprefix('./')}"


LONGEST_LINE = 2**20  # characters of a list's line


def text_lines(source: RemotePath, text: TextIO) -> Iterator[str]:
    """Yield the lines of a list, none of them endless, and from elsewhere no more than may be
    fetched, unpacked.

    Raises DatasetError for one that goes on.
    """
    size, largest = 0, source.settings.largest * MIB
    while line := text.readline(LONGEST_LINE):
        size += len(line)
        if len(line) == LONGEST_LINE:
            cure = "write the list again"
            raise DatasetError(
                f"{source.display_url}: a line has {LONGEST_LINE} characters and more; {cure}"
            )
        if size > largest and source.local is None:
            raise DatasetError(
                f"{source.display_url}: unpacks to more than places.largest; raise that"
            )
        yield line


def refusal_reason(address: str, source: RemotePath) -> str | None:
    """Return why a list may not name an address; None where it may, as a list of this machine
    always does.

    One from elsewhere names files of its own host, unless the settings allow others or files of
    this machine.
    """
    if source.local is not None:
        return None
    whole = RemotePath(address)
    while whole.byte_range is not None:
        whole = whole.byte_range[0]
    if whole.local is not None:
        allowed = source.settings.files
        return (
            None
            if allowed
            else "its row names a file of this machine; where you trust it, --set places.files=true"
        )
    if not address.isprintable() or "\\" in address:
        return "its row names no plain address; correct the list"
    host = host_of(whole.url)
    if not may_lead(host_of(source.url), host, source.settings):
        return f"its row names another host; {allow_host(host)}"
    return None


def relative_address(url: str, source: str) -> str:
    """Return where a file lies relative to its source.

    One from elsewhere keeps its URL without user, password and query; a path of this machine keeps
    its name alone.
    """
    root, bare = root_of(source).rstrip("/") + "/", RemotePath(url).display_url
    if bare.startswith(root):
        return bare.removeprefix(root)
    if root == "./" and "://" not in bare and not bare.startswith("/"):
        return bare.removeprefix("./")
    return bare if "://" in bare and not bare.startswith("file://") else RemotePath(url).name


# a character for each byte: what the structure of JSON needs, and offsets in bytes
BYTES = "latin-1"
DIGEST = 8  # bytes of a digest that are kept
MARK = b"\xef\xbb\xbf"  # of UTF-8, which some editors put first


class CaptionIndex:
    """HowTo100M's captions of all videos in one JSON object: where each video's lie, and a digest
    of them.

    The file is read once, with one video in memory; captions are then parts of the file.
    Raises DatasetError for a file that is damaged, compressed or of another form.
    """

    def __init__(self, file_path: RemotePath) -> None:
        self._path = file_path
        keys: list[bytes] = []
        spans: list[tuple[int, int]] = []
        digests: list[bytes] = []
        with file_path.open() as file:
            offset = len(MARK) if file.read(len(MARK)) == MARK else 0
            file.seek(offset)
            reader = JsonObjectReader(io.TextIOWrapper(file, encoding=BYTES, newline=""))
            for key, value in reader.members():
                if isinstance(value, JsonDamage):
                    cure = "unpack it where it is compressed, else download it again"
                    raise DatasetError(
                        f"{file_path.display_url}: {f'{key} '.lstrip()}{value.reason}; {cure}"
                    )
                start, end = reader.last
                keys.append(key.encode(BYTES))
                spans.append((offset + start, offset + end))
                digests.append(hashlib.sha256(reader.source.encode(BYTES)).digest()[:DIGEST])
        order = np.argsort(np.array(keys or [b""], "S"), kind="stable")[: len(keys)]
        self._keys = np.array(keys or [b""], "S")[order]
        self._spans = np.array(spans, np.int64).reshape(-1, 2)[order]
        self._digests = [digests[row] for row in order]

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, id: str) -> StampedFile | None:
        """Return the part of the file that holds a video's captions; None where it has none."""
        wanted = id.encode()
        row = int(np.searchsorted(self._keys, wanted))
        if row == len(self._keys) or self._keys[row] != wanted:
            return None
        start, end = self._spans[row]
        return StampedFile(
            f"{self._path.url}#bytes={start}-{end}/{id}.json", self._digests[row].hex()
        )


class SideFolders:
    """The folders that `source.videos`, `source.captions` and `source.features` name; read once,
    when first needed."""

    def __init__(self, settings: SourceSettings, places: RemoteSettings) -> None:
        self._videos = _files(settings.videos, places, video_id, "videos")
        self._features = _files(settings.features, places, features_id, "features")
        captions = settings.captions or ""
        self.captions = (
            CaptionIndex(absolute_path(RemotePath(captions, places)))
            if captions.lower().endswith(".json")
            else _files(captions or None, places, captions_id, "captions")
        )

    def completed(self, item: VideoItem) -> VideoItem:
        """Return an item with what the folders hold of it; what it names itself stays."""
        indexes = {"video": self._videos, "captions": self.captions, "features": self._features}
        for field, index in indexes.items():
            if (
                index is not None
                and getattr(item, field) is None
                and (file := index.find(item.id)) is not None
            ):
                item = with_file(item, field, file)
        return item


def with_file(item: VideoItem, field: str, file: StampedFile) -> VideoItem:
    """Return an item with a file as its video, captions or features."""
    changes: dict[str, Any] = {field: file.url, STAMPS[field]: file.stamp}
    return replace(item, **changes)


def _files(url: str | None, places: RemoteSettings, id_of: FileId, what: str) -> FileIndex | None:
    if url is None:
        return None
    folder = absolute_path(RemotePath(url, places))
    files = FileIndex(folder, folder.list([]), id_of)
    if not len(files):
        raise DatasetError(
            f"source.{what} {folder.display_url}: no file of {what} in it; correct the folder"
        )
    return files
