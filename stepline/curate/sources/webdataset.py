"""WebDataset tars: one video per key, with its captions and what is known of it, read in place.

    000123.mp4, 000123.vtt (or .srt, or .json with text and times), 000123.json ({"title": ...,
    "duration": ...}), 000123.npy

The id of a video is its key: in a folder 00000 of the tar, 00000--000123.

Only headers are read here. A member is a part of its tar, and fetched as one when its turn comes.
"""

import re
import tarfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import BinaryIO, cast

from stepline.curate.sources.files import (
    AmbiguousCaptionsError,
    SideFolders,
    StampedFile,
    captions_id,
    choose_language,
    features_id,
    video_id,
    with_file,
)
from stepline.curate.stage import FOLDER_MARK, SourceEntry, VideoItem, rejected_video
from stepline.errors import DatasetError
from stepline.files.remote import RemotePath
from stepline.language_tags import split_language
from stepline.limits import MAX_SECOND, LimitError, TarHeader, parse_json_text

NUMBER_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")  # shard-{00000..00099}.tar
READ_BYTES = 64 * 1024  # at a time; a header has 512
MAX_HEADER_BYTES = 2**20
MAX_JSON_BYTES = 2**20  # of a .json that may be looked into
MAX_NUMBER_DIGITS = 12  # of a tar's number
MAX_TARS = 1_000_000  # that an address may mean
TEXT_FIELDS = ("title", "task", "category")  # of a .json


def read_webdataset(source: RemotePath, side_folders: SideFolders) -> Iterator[SourceEntry]:
    """Yield the videos of a tar, of every tar in a folder, or of numbered ones:
    shard-{00000..00099}.tar."""
    for tar in find_tars(source):
        # The tar's fingerprint is part of each member's stamp.
        stamp = tar.fingerprint()
        count = 0
        try:
            with tar.open(READ_BYTES) as file, _open_archive(file) as archive:
                members = (member for member in archive if member.isreg() and _key(member))
                # Members of a key are next to each other in a WebDataset tar.
                for key, group in groupby(members, _key):
                    count += 1
                    yield _item(key, list(group), tar, stamp, side_folders)
        except (tarfile.TarError, EOFError) as error:
            if count:  # what is before the damage is whole
                reason = f"the rest of this tar cannot be read ({error}); download it again"
                yield rejected_video(tar.name, reason)
                continue
            what = f"{tar.display_url}: not a tar that can be read in place ({error})"
            cure = "unpack it where it is compressed, else download it again"
            raise DatasetError(f"{what}; {cure}") from error


def _open_archive(file: BinaryIO) -> tarfile.TarFile:
    headers = cast(BinaryIO, _TarHeaders(file))
    return tarfile.open(fileobj=headers, mode="r:", tarinfo=TarHeader)


class _TarHeaders:
    """A tar's file that is read for its headers only. One that claims to be huge is damage, and
    takes no memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int) -> bytes:
        """Return bytes of a header. Raises tarfile's ReadError for more than any header has."""
        if size > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return self._file.read(size)


def find_tars(source: RemotePath) -> list[RemotePath]:
    """Return the tars that an address means, sorted by name. Raises DatasetError where it means no
    tar."""
    numbered = NUMBER_RANGE.search(source.url)
    if numbered:
        first, last = numbered.groups()
        if len(last) > MAX_NUMBER_DIGITS or int(last) - int(first) >= MAX_TARS:
            what = f"{source.display_url}: more than {MAX_TARS} tars"
            raise DatasetError(f"{what}; give a folder of them, or fewer")
        # Numbers are filled with zeros to the length of the first.
        numbered_tars = []
        for number in range(int(first), int(last) + 1):
            url = NUMBER_RANGE.sub(str(number).zfill(len(first)), source.url, count=1)
            numbered_tars.append(RemotePath(url, source.settings))
        return numbered_tars
    if source.name.endswith(".tar"):
        return [source]
    tars = sorted(entry.name for entry in source.list([]) if entry.name.endswith(".tar"))
    if not tars:
        cure = "give a tar, a folder of them, or shard-{00000..00099}.tar"
        raise DatasetError(f"{source.display_url}: no .tar in it; {cure}")
    return [source / name for name in tars]


def _key(member: tarfile.TarInfo) -> str:
    """Return what the members of a video share, as an id, or "" for a hidden file. It is their
    folder, and their name up to its first point."""
    folder, _, _ = member.name.removeprefix("./").rpartition("/")
    stem = _stem(member)
    if not stem:
        return ""
    parts = [part for part in folder.split("/") if part]
    return FOLDER_MARK.join([*parts, stem])


def _stem(member: tarfile.TarInfo) -> str:
    _, _, name = member.name.rpartition("/")
    stem, _, _ = name.partition(".")
    return stem


def _item(
    key: str,
    members: Sequence[tarfile.TarInfo],
    tar: RemotePath,
    stamp: str,
    side_folders: SideFolders,
) -> SourceEntry:
    # What a key holds: one video, what is known of it, captions.
    videos = [member for member in members if video_id(member.name)]
    if len(videos) > 1:
        reason = f"its key has {len(videos)} videos in the tar; give each a key of its own"
        return rejected_video(key, reason)
    try:
        about, is_captions = _about(members, tar)
    except LimitError as error:
        return rejected_video(key, f"its .json is {error}")
    try:
        captions = _captions(members, with_json=is_captions)
    except AmbiguousCaptionsError as error:
        return rejected_video(key, str(error))
    # What the members of the key are.
    files = {
        "video": next(iter(videos), None),
        "captions": captions,
        "features": next((member for member in members if features_id(member.name)), None),
    }
    # Each file is a range of the tar's bytes.
    item = VideoItem(key, **about)  # type: ignore[arg-type]   # the fields' own types
    for field, file in files.items():
        if file is not None:
            first, last = file.offset_data, file.offset_data + file.size
            url = f"{tar.url}#bytes={first}-{last}/{file.name.rpartition('/')[2]}"
            item = with_file(item, field, StampedFile(url, f"{stamp}+{first}-{last}"))
    return side_folders.entry(item, "its key holds neither a video nor captions nor features")


def _captions(members: Sequence[tarfile.TarInfo], *, with_json: bool) -> tarfile.TarInfo | None:
    """Return the captions among the members of a key: of its name, else with a language behind it.

    Raises AmbiguousCaptionsError for several languages.
    """
    name = _stem(members[0])
    ranked: dict[str, list[tuple[int, str, tarfile.TarInfo]]] = {}
    for member in members:
        # By stem, the best form of captions first.
        named = captions_id(member.name)
        if named is not None and (with_json or not member.name.endswith(".json")):
            ranked.setdefault(named[0], []).append((named[1], member.name, member))
    stem: str | None = name
    if name not in ranked:
        own = [other for other in ranked if split_language(other)[0] == name]
        stem = choose_language(name, own)
    if stem is None:
        return None
    _, _, member = min(ranked[stem])
    return member


def _about(
    members: Sequence[tarfile.TarInfo], tar: RemotePath
) -> tuple[dict[str, str | float], bool]:
    """Return what a key's .json says of its video, and whether it holds captions instead. Raises
    LimitError."""
    # A small JSON may hold facts, or captions in one of several forms.
    named = (member for member in members if member.name.endswith(".json"))
    member = next((member for member in named if 0 < member.size <= MAX_JSON_BYTES), None)
    if member is None:
        return {}, True
    text = tar.read(member.offset_data, member.offset_data + member.size)
    try:
        tree = parse_json_text(text)
    except LimitError:
        raise
    except ValueError:
        return {}, False  # no captions either
    if not isinstance(tree, dict):
        return {}, True
    # Keys that captions of video sites, or of HowTo100M, have.
    if tree.keys() & {"segments", "events"} or tree.keys() >= {"text", "start", "end"}:
        return {}, True
    about: dict[str, str | float] = {}
    for name in TEXT_FIELDS:
        if isinstance(tree.get(name), str) and tree[name]:
            about[name] = tree[name]
    duration = tree.get("duration")
    if isinstance(duration, (int, float)) and duration is not True and 0 < duration <= MAX_SECOND:
        about["duration"] = float(duration)
    return about, False
