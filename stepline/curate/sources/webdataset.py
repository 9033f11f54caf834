"""WebDataset tars: a video a key, with its captions and what is known of it beside it, read where
they lie.

    000123.mp4, 000123.vtt (or .srt, or .json with text and times), 000123.json ({"title": ...,
    "duration": ...}), 000123.npy

Only headers are read here; a member is a part of its tar, and fetched as one when its turn comes.
"""

import re
import tarfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import BinaryIO

from stepline.curate.sources.files import SideFolders, captions_id, features_id, video_id
from stepline.curate.sources.select import Entry
from stepline.curate.stage import VideoItem, rejected_video
from stepline.errors import DatasetError
from stepline.limits import LATEST, LimitError, TarHeader, parse_json_text
from stepline.remote import RemotePath

BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")  # shard-{00000..00099}.tar
HEADERS = 64 * 1024  # bytes read at a time; a header has 512
LARGEST = 2**20  # bytes of a .json that may be looked into
DIGITS, MOST_TARS = 12, 1_000_000  # of a tar's number; that an address may mean
ABOUT = ("title", "task", "category", "duration")


def read_webdataset(source: RemotePath, side_folders: SideFolders) -> Iterator[Entry]:
    """Yield the videos of a tar, of every tar in a folder, or of numbered ones:
    shard-{00000..00099}.tar."""
    for tar in find_tars(source):
        stamp, found = tar.fingerprint(), False
        try:
            with (
                tar.open(HEADERS) as file,
                tarfile.open(fileobj=_TarHeaders(file), mode="r:", tarinfo=TarHeader) as archive,  # type: ignore[call-overload]
            ):
                members = (member for member in archive if member.isreg() and _key(member))
                for key, group in groupby(members, _key):
                    found = True
                    yield _item(key, list(group), tar, stamp, side_folders)
        except (tarfile.TarError, EOFError) as error:
            if found:  # what stands before the damage is whole
                yield rejected_video(
                    tar.name, f"the rest of this tar cannot be read ({error}); download it again"
                )
                continue
            cure = "unpack it where it is compressed, else download it again"
            raise DatasetError(
                f"{tar.display_url}: not a tar that can be read in place ({error}); {cure}"
            ) from error


class _TarHeaders:
    """A tar's file of which only headers are read; one that claims to be huge is damage, and takes
    no memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        """Return bytes of a header. Raises tarfile's ReadError for more than any header has."""
        if size > LARGEST:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return self._file.read(size)


def find_tars(source: RemotePath) -> list[RemotePath]:
    """Return the tars that an address means, sorted by name. Raises DatasetError where there is
    none."""
    numbered = BRACES.search(source.url)
    if numbered:
        first, last = numbered.groups()
        if len(last) > DIGITS or int(last) - int(first) >= MOST_TARS:
            raise DatasetError(
                f"{source.display_url}: more than {MOST_TARS} tars; give a folder of them, or fewer"
            )
        numbers = (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
        return [
            RemotePath(BRACES.sub(number, source.url, count=1), source.settings)
            for number in numbers
        ]
    if source.name.endswith(".tar"):
        return [source]
    tars = sorted(entry.name for entry in source.list([]) if entry.name.endswith(".tar"))
    if not tars:
        cure = "give a tar, a folder of them, or shard-{00000..00099}.tar"
        raise DatasetError(f"{source.display_url}: no .tar in it; {cure}")
    return [source / name for name in tars]


def _key(member: tarfile.TarInfo) -> str:
    return member.name.rpartition("/")[2].partition(".")[0]


def _item(
    key: str,
    members: Sequence[tarfile.TarInfo],
    tar: RemotePath,
    stamp: str,
    side_folders: SideFolders,
) -> Entry:
    def part(member: tarfile.TarInfo | None) -> tuple[str | None, str]:
        if member is None:
            return None, ""
        first, last = member.offset_data, member.offset_data + member.size
        return (
            f"{tar.url}#bytes={first}-{last}/{member.name.rpartition('/')[2]}",
            f"{stamp}+{first}-{last}",
        )

    videos = [member for member in members if video_id(member.name)]
    if len(videos) > 1:
        return rejected_video(
            key, f"its key has {len(videos)} videos in the tar; give each a key of its own"
        )
    try:
        about, is_captions = _about(members, tar)
    except LimitError as error:
        return rejected_video(key, f"its .json is {error}")
    captions = sorted(
        (known[1], member.name, member)
        for member in members
        if (known := captions_id(member.name))
        and (is_captions or not member.name.endswith(".json"))
    )
    features = next((member for member in members if features_id(member.name)), None)
    named = [
        part(videos[0] if videos else None),
        part(captions[0][2] if captions else None),
        part(features),
    ]
    flat = [cell for pair in named for cell in pair]
    item = side_folders.completed(VideoItem(key, *flat, **about))  # type: ignore[arg-type]   # addresses and stamps in turn
    if item.video is None and item.captions is None and item.features is None:
        return rejected_video(key, "its key holds neither a video nor captions nor features")
    return item


def _about(
    members: Sequence[tarfile.TarInfo], tar: RemotePath
) -> tuple[dict[str, str | float], bool]:
    """Return what a key's .json says of its video, and whether it holds captions instead. Raises
    LimitError."""
    member = next((m for m in members if m.name.endswith(".json") and 0 < m.size <= LARGEST), None)
    if member is None:
        return {}, True
    text = tar.read(member.offset_data, member.offset_data + member.size)
    try:
        tree = parse_json_text(text)
    except LimitError:
        raise
    except ValueError:
        return {}, False  # no captions either
    if (
        not isinstance(tree, dict)
        or {"segments", "events"} & set(tree)
        or {"text", "start", "end"} <= set(tree)
    ):
        return {}, True
    about: dict[str, str | float] = {
        name: tree[name] for name in ABOUT[:3] if isinstance(tree.get(name), str) and tree[name]
    }
    duration = tree.get("duration")
    if (
        isinstance(duration, (int, float))
        and not isinstance(duration, bool)
        and 0 < duration <= LATEST
    ):
        about["duration"] = float(duration)
    return about, False
