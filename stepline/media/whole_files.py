"""Whether a file has its end, by the lengths that its container names: one that is still being
copied lacks it."""

import os
import struct
from pathlib import Path
from typing import BinaryIO

MOVIE_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"moof", b"styp"})
EBML_ID = b"\x1a\x45\xdf\xa3"  # of Matroska and WebM
SEGMENT_ID = b"\x18\x53\x80\x67"
MAX_BOXES = 100_000  # fragmented files have two for every few seconds


def has_its_end(path: Path) -> bool:
    """Whether a file is known to be whole: mp4 and its kin, Matroska, WebM and AVI name their
    length.

    False for those of other kinds, and where the file does not say it. Raises OSError where it
    cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(12)
        if head[4:8] in MOVIE_BOXES:
            return _are_boxes_whole(file, size)
        if head[:4] == EBML_ID:
            return _is_segment_whole(file, size)
        if head[:4] == b"RIFF":
            return _are_chunks_whole(file, size)
    return False


def _are_boxes_whole(file: BinaryIO, size: int) -> bool:
    """Whether the boxes of an mp4 end where it does, with an index among them."""
    kinds: set[bytes] = set()
    start = 0
    for _ in range(MAX_BOXES):
        # moov is the index, mdat and moof hold what it lists.
        if start == size:
            return b"moov" in kinds and bool(kinds & {b"mdat", b"moof"})
        file.seek(start)
        head = file.read(16)
        if len(head) < 8:
            return False
        # A length of 1 means that 64 bits of it follow the kind.
        length, kind = struct.unpack_from(">I4s", head)
        if length == 1 and len(head) == 16:
            (length,) = struct.unpack_from(">Q", head, 8)
        if length < 8 or start + length > size:
            return False
        kinds.add(kind)
        start += length
    return False


def _are_chunks_whole(file: BinaryIO, size: int) -> bool:
    """Whether the chunks of an AVI end where it does. Long AVIs have several chunks."""
    start = 0
    for _ in range(MAX_BOXES):
        if size - 1 <= start <= size:
            return start > 0
        file.seek(start)
        head = file.read(8)
        if len(head) < 8 or head[:4] != b"RIFF":
            return False
        length = 8 + int(struct.unpack_from("<I", head, 4)[0])
        if start + length > size:
            return False
        start += length + length % 2
    return False


def _is_segment_whole(file: BinaryIO, size: int) -> bool:
    """Whether the segment of a Matroska file is as long as it names itself."""
    # The head, then the segment, which holds all the rest.
    file.seek(4)
    length = _read_length(file)
    if length is None:
        return False
    file.seek(length, os.SEEK_CUR)
    if file.read(4) != SEGMENT_ID:
        return False
    length = _read_length(file)
    return length is not None and file.tell() + length == size


def _read_length(file: BinaryIO) -> int | None:
    """Return the length that is here. None where it is unknown, as while it is written."""
    first = file.read(1)
    if not first or not first[0]:
        return None
    # The zero bits before the first one bit say how many more bytes follow.
    width = 9 - first[0].bit_length()  # bytes
    value = int.from_bytes(first + file.read(width - 1), "big") - (1 << 7 * width)
    # Ones alone: the length is not known.
    return None if value == (1 << 7 * width) - 1 else value
