"""How large, how deep and how many: what the readers of files that others wrote allow, in one
place.

read_limited         the bytes of a file, however endless it is
unpack_limited       what a gzip holds, however small the gzip is
read_member          a file in a tar, however small the tar is
check_zip            whether a zip (.npz, .pth) unpacks to more than is allowed
parse_json           JSON to plain values, no deeper than the package can walk
parse_toml           TOML to plain values, the same
read_safetensors_header   what a safetensors file says of its tensors
replace_surrogates   text that can be written: halves of surrogate pairs, which JSON can hold, become U+FFFD

What goes beyond a limit raises LimitError, a ValueError as a malformed file does: a reader names
the file and the cure.
"""

import gzip
import io
import json
import os
import re
import stat
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

Tree: TypeAlias = Any  # what JSON or TOML holds: no type is known yet

MIB_BYTES = 2**20  # bytes
# bytes of a TOML file; all settings of all commands are some 20 KiB
MAX_SETTINGS_BYTES = MIB_BYTES // 4
MAX_LINES_BYTES = 64 * MIB_BYTES  # bytes of a user's own lines; a million have some 40 MiB
MAX_CAPTIONS_BYTES = 256 * MIB_BYTES  # bytes of a caption file
# bytes of one record; an hour of speech with word times is some 2 MiB
MAX_RECORD_BYTES = 256 * MIB_BYTES
# bytes of a dataset's file, unpacked. HowTo100M's captions are read as a stream instead
MAX_ANNOTATIONS_BYTES = 4096 * MIB_BYTES
# bytes of one video's features in an archive. Ten hours of 2,048 float32 per second are 282 MiB
MAX_FEATURES_BYTES = 4096 * MIB_BYTES
# bytes after which a device, such as /dev/zero, counts as endless: no one types more
MAX_DEVICE_BYTES = 16 * MIB_BYTES
# bytes of the header of a safetensors file, as its own library allows
MAX_HEADER_BYTES = 100 * MIB_BYTES
# lists and objects inside each other. A record has 8, pydantic and json.dumps follow some 200
MAX_DEPTH = 100
MAX_TRANSCRIPT_WORDS = 1_000_000  # of one transcript; 12 hours of fast speech are 150,000
MAX_CUE_CHARS = 20_000  # characters of one cue; a minute of fast speech is 1,500
MAX_TEXTS = 100_000  # lines that are looked for in one video
MAX_SECOND = 360_000.0  # s (100 h); no time in a video is later

# of a TOML key, too many
_KEY_PART = r"""(?:\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*)"""
KEY_PARTS = re.compile(f"{_KEY_PART}{{{MAX_DEPTH}}}")
# in JSON, an escaped surrogate. Two in order are one letter
SURROGATE_HALF = re.compile(r"\\u[dD][89a-fA-F]")
# thousands of digits, which take Python's square of time
LONG_NUMBER_REASON = "written with too long a number"


class LimitError(ValueError):
    """Something larger, deeper or more than a reader allows. The message says which limit it is."""


def read_limited(path: Path, most: int) -> bytes:
    """Return the bytes of a file. Raises LimitError where it has more than `most`, OSError where it
    cannot be read."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        max_bytes = min(most, MAX_DEVICE_BYTES) if stat.S_ISCHR(status.st_mode) else most
        data = _read_up_to(file, max_bytes + 1, status.st_size + 1)
    if len(data) > max_bytes:
        raise LimitError(f"larger than {most / MIB_BYTES:g} MiB")
    return data


def _read_up_to(file: BinaryIO | gzip.GzipFile, most: int, likely: int) -> bytes:
    """Return at most `most` bytes. likely: how many there will be. A larger first read takes memory
    for them."""
    block = file.read(min(most, max(likely, 1)))
    blocks = [block]
    remaining = most - len(block)
    while block and remaining > 0:
        block = file.read(min(remaining, MIB_BYTES))
        blocks.append(block)
        remaining -= len(block)
    return b"".join(blocks)


def unpack_limited(data: bytes, most: int) -> bytes:
    """Return what a gzip holds. Raises LimitError where it has more than `most` bytes, else as gzip
    does."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        unpacked = _read_up_to(file, most + 1, MIB_BYTES)
    if len(unpacked) > most:
        raise LimitError(f"unpacks to more than {most / MIB_BYTES:g} MiB")
    return unpacked


def read_member(archive: tarfile.TarFile, member: tarfile.TarInfo, most: int) -> bytes:
    """Return the bytes of a tar's member, those of a sparse one too. Raises LimitError, or as
    tarfile does."""
    if member.size > most:
        raise LimitError(f"larger than {most / MIB_BYTES:g} MiB")
    file = archive.extractfile(member)
    return b"" if file is None else file.read()


def check_zip(source: Path | bytes, most: int | None = None) -> None:
    """Raise LimitError where a zip, as .npz and .pth are, unpacks to more than `most` bytes. Any
    other file passes.

    Without `most`: to more than the file has, for torch packs nothing. Raises zipfile.BadZipFile.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    if not zipfile.is_zipfile(file):
        return
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if most is None:
        most = len(source) if isinstance(source, bytes) else source.stat().st_size
    if unpacked > most:
        raise LimitError(
            f"unpacks to {unpacked / MIB_BYTES:.0f} MiB, more than {most / MIB_BYTES:.0f}"
        )


def parse_json(
    text: str | bytes, pairs: Callable[[list[tuple[str, Tree]]], Tree] | None = None
) -> Tree:
    """Return what JSON holds. pairs: makes an object of its members, as `json.loads` takes it.

    Raises ValueError: JSONDecodeError, UnicodeDecodeError (halves of surrogate pairs in UTF-8 too)
    or LimitError.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text))
    with _parser_limits():
        tree = json.loads(text, object_pairs_hook=pairs)
    # With few brackets nothing nests deeply, so most trees need no walk.
    has_few_brackets = text.count("[") + text.count("{") <= MAX_DEPTH
    return tree if has_few_brackets else _not_too_deep(tree)


def read_safetensors_header(file: BinaryIO) -> tuple[Tree, int]:
    """Return the header of a safetensors file, and the byte at which its numbers begin.

    Raises ValueError for another file.
    """
    length = int.from_bytes(file.read(8), "little")
    return parse_json(file.read(min(length, MAX_HEADER_BYTES))), 8 + length


def parse_toml(text: str) -> dict[str, Tree]:
    """Return what TOML holds. Raises ValueError: TOMLDecodeError, a number of too many digits, or
    LimitError."""
    if KEY_PARTS.search(text):  # before tomllib, whose time grows with their square
        raise LimitError(f"nested deeper than {MAX_DEPTH}")
    with _parser_limits():
        tree = tomllib.loads(text)
    return dict(_not_too_deep(tree))


@contextmanager
def _parser_limits() -> Iterator[None]:
    """Raise LimitError for what a parser of Python refuses by limits of its own."""
    try:
        yield
    except RecursionError as error:
        raise LimitError(f"nested deeper than {MAX_DEPTH}") from error
    except ValueError as error:
        if "integer string conversion" in str(error):
            raise LimitError(LONG_NUMBER_REASON) from error
        raise


def _not_too_deep(tree: Tree) -> Tree:
    """Return the tree. Raises LimitError where it nests deeper than MAX_DEPTH."""
    level = [tree]
    # A level at a time, so that depth costs no recursion.
    for _ in range(MAX_DEPTH):
        next_level: list[Tree] = []
        for node in level:
            if isinstance(node, dict):
                next_level += node.values()
            elif isinstance(node, list):
                next_level += node
        level = [child for child in next_level if isinstance(child, dict | list)]
        if not level:
            return tree
    raise LimitError(f"nested deeper than {MAX_DEPTH}")


def replace_surrogates(text: str) -> str:
    """Return the text with U+FFFD for each half of a surrogate pair that is alone. Pairs become
    their letter."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    return encoded.decode("utf-16-le", "replace")


@cache
def packaged_json(package: str, file: str) -> Tree:
    """Return what a JSON file that is shipped in a package holds. It is read once a process."""
    return json.loads(resources.files(package).joinpath(file).read_text(encoding="utf-8"))


def parse_json_text(text: str | bytes) -> Tree:
    """Return what JSON holds, as `parse_json` does, every text in it one that can be written."""
    tree = parse_json(text)
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    if SURROGATE_HALF.search(text) is None:
        return tree
    return json.loads(replace_surrogates(json.dumps(tree, ensure_ascii=False)))


def is_storable(text: str) -> bool:
    """Return whether a text can be stored: half a surrogate pair, which JSON can hold, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class TarHeader(tarfile.TarInfo):
    """A member of a tar that ends where it says: without the two empty blocks at its end it was cut
    off.

    tarfile itself takes such an end, or a damaged header, for the end of the archive.
    """

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "TarHeader":
        """Return the next member. Raises tarfile.ReadError where none can be read and the archive
        has not ended."""
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.HeaderError as error:
            if type(error).__name__ == "EOFHeaderError":  # the empty block that ends an archive
                raise
            raise tarfile.ReadError(f"cut off or damaged at byte {tarfile_.offset}") from error
