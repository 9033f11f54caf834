"""Size and depth limits of all readers of untrusted files.

    read_limited              the bytes of a file, also of an endless device
    unpack_limited            the content of a gzip
    read_member               a file in a tar
    check_zip                 whether a zip (.npz, .pth) unpacks to more than is allowed
    parse_json, parse_toml    values of limited depth
    read_safetensors_header   the tensor table of a safetensors file
    replace_surrogates        text with U+FFFD for lone surrogates, which JSON can hold

Exceeding a limit raises LimitError, a ValueError as for a malformed file: the reader adds the file
name and the cure.
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
from typing import Any, BinaryIO

Tree = Any  # what JSON or TOML holds: no type is known yet

MIB_BYTES = 2**20  # bytes
# bytes of a TOML file; all settings of all commands are some 20 KiB
MAX_SETTINGS_BYTES = MIB_BYTES // 4
MAX_LINES_BYTES = 64 * MIB_BYTES  # bytes of a user's text lines; a million have some 40 MiB
MAX_CAPTIONS_BYTES = 256 * MIB_BYTES  # bytes of a caption file
# bytes of one record; an hour of speech with word times is some 2 MiB
MAX_RECORD_BYTES = 256 * MIB_BYTES
# bytes of a dataset's file, unpacked. HowTo100M's captions are read as a stream instead
MAX_ANNOTATIONS_BYTES = 4096 * MIB_BYTES
# bytes of one video's features in an archive. Ten hours of 2,048 float32 per second are 282 MiB
MAX_FEATURES_BYTES = 4096 * MIB_BYTES
# bytes after which a device, such as /dev/zero or a terminal, counts as endless
MAX_DEVICE_BYTES = 16 * MIB_BYTES
# bytes of the header of a safetensors file, as its own library allows
MAX_HEADER_BYTES = 100 * MIB_BYTES
# nested lists and objects. A record has 8, pydantic and json.dumps support some 200
MAX_DEPTH = 100
MAX_TRANSCRIPT_WORDS = 1_000_000  # of one transcript; 12 hours of fast speech are 150,000
MAX_CUE_CHARS = 20_000  # of one caption cue; a minute of fast speech is 1,500
MAX_TEXTS = 100_000  # text lines that are searched in one video
MAX_SECOND = 360_000.0  # s (100 h); no time in a video is later

# a dotted TOML key with too many parts
_KEY_PART = r"""(?:\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*)"""
DEEP_KEY = re.compile(f"{_KEY_PART}{{{MAX_DEPTH}}}")
# an escaped surrogate in JSON. A pair of them is one character
ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# Python's time for thousands of digits grows with their square
LONG_NUMBER_REASON = "written with too long a number"


class LimitError(ValueError):
    """A limit of size, depth or number is exceeded. The message names it."""


def read_limited(path: Path, max_bytes: int) -> bytes:
    """Return the bytes of a file, of which at most `max_bytes` are allowed.

    Raises LimitError for a larger file, OSError for an unreadable file.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        allowed_bytes = (
            min(max_bytes, MAX_DEVICE_BYTES) if stat.S_ISCHR(status.st_mode) else max_bytes
        )
        data = _read_up_to(file, allowed_bytes + 1, status.st_size + 1)
    if len(data) > allowed_bytes:
        raise LimitError(f"larger than {max_bytes / MIB_BYTES:g} MiB")
    return data


def _read_up_to(file: BinaryIO | gzip.GzipFile, max_bytes: int, expected: int) -> bytes:
    """Return at most `max_bytes` bytes of a file. expected: bytes that the first read requests."""
    block = file.read(min(max_bytes, max(expected, 1)))
    blocks = [block]
    remaining = max_bytes - len(block)
    while block and remaining > 0:
        block = file.read(min(remaining, MIB_BYTES))
        blocks.append(block)
        remaining -= len(block)
    return b"".join(blocks)


def unpack_limited(data: bytes, max_bytes: int) -> bytes:
    """Return the decompressed bytes of gzip data.

    Raises LimitError for more than `max_bytes` bytes, and the errors of Python's gzip for damaged data.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        unpacked = _read_up_to(file, max_bytes + 1, MIB_BYTES)
    if len(unpacked) > max_bytes:
        raise LimitError(f"unpacks to more than {max_bytes / MIB_BYTES:g} MiB")
    return unpacked


def read_member(archive: tarfile.TarFile, member: tarfile.TarInfo, max_bytes: int) -> bytes:
    """Return the bytes of one file in a tar archive.

    Args:
        archive: the open archive.
        member: header of the file.
        max_bytes: maximal number of bytes.

    Raises LimitError for a larger file, and the errors of Python's tarfile for a damaged archive.
    """
    if member.size > max_bytes:
        raise LimitError(f"larger than {max_bytes / MIB_BYTES:g} MiB")
    file = archive.extractfile(member)
    return b"" if file is None else file.read()


def check_zip(source: Path | bytes, max_bytes: int | None = None) -> None:
    """Raise LimitError if a zip archive decompresses to more than `max_bytes` bytes.

    NumPy's .npz and torch's .pth are zip archives. Other files pass the check.

    Args:
        source: path or content of the file.
        max_bytes: maximal number of bytes. None means the size of the archive itself, since torch does
            not compress its archives.

    Raises zipfile.BadZipFile for a damaged archive.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    if not zipfile.is_zipfile(file):
        return
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if max_bytes is None:
        max_bytes = len(source) if isinstance(source, bytes) else source.stat().st_size
    if unpacked > max_bytes:
        raise LimitError(
            f"unpacks to {unpacked / MIB_BYTES:.0f} MiB, more than {max_bytes / MIB_BYTES:.0f}"
        )


def parse_json(
    text: str | bytes, pairs: Callable[[list[tuple[str, Tree]]], Tree] | None = None
) -> Tree:
    """Return the values in a JSON text.

    Args:
        text: the JSON text.
        pairs: converts the (key, value) pairs of a JSON object, as `object_pairs_hook` of
            `json.loads` does. None means a dict.

    Raises ValueError: JSONDecodeError, UnicodeDecodeError (also for surrogates encoded in UTF-8) or
    LimitError.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text))
    with _parser_limits():
        tree = json.loads(text, object_pairs_hook=pairs)
    # With few brackets nothing nests deeply, so most trees need no walk.
    has_few_brackets = text.count("[") + text.count("{") <= MAX_DEPTH
    return tree if has_few_brackets else _check_depth(tree)


def read_safetensors_header(file: BinaryIO) -> tuple[Tree, int]:
    """Return the tensor table of a safetensors file, and the byte offset of the tensor data.

    Raises ValueError if the file is not a safetensors file.
    """
    length = int.from_bytes(file.read(8), "little")
    return parse_json(file.read(min(length, MAX_HEADER_BYTES))), 8 + length


def parse_toml(text: str) -> dict[str, Tree]:
    """Return the values in a TOML text.

    Raises ValueError: TOMLDecodeError, a number of too many digits, or LimitError.
    """
    if DEEP_KEY.search(text):  # before tomllib, whose time grows with their square
        raise LimitError(f"nested deeper than {MAX_DEPTH}")
    with _parser_limits():
        tree = tomllib.loads(text)
    return dict(_check_depth(tree))


@contextmanager
def _parser_limits() -> Iterator[None]:
    """Convert Python's own parser limits to LimitError."""
    try:
        yield
    except RecursionError as error:
        raise LimitError(f"nested deeper than {MAX_DEPTH}") from error
    except ValueError as error:
        if "integer string conversion" in str(error):
            raise LimitError(LONG_NUMBER_REASON) from error
        raise


def _check_depth(tree: Tree) -> Tree:
    """Return a tree of values. Raises LimitError if it is nested deeper than MAX_DEPTH."""
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
    """Return the text with U+FFFD for each lone surrogate. Surrogate pairs become one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@cache
def load_packaged_json(package: str, file: str) -> Tree:
    """Return the values of a JSON file in a Python package, cached per process."""
    return json.loads(resources.files(package).joinpath(file).read_text(encoding="utf-8"))


def parse_json_text(text: str | bytes) -> Tree:
    """Return the values of JSON text as `parse_json` does, with U+FFFD for lone surrogates."""
    tree = parse_json(text)
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    if ESCAPED_SURROGATE.search(text) is None:
        return tree
    return json.loads(replace_surrogates(json.dumps(tree, ensure_ascii=False)))


def is_storable(text: str) -> bool:
    """Return whether a text has no lone surrogate and so can be stored as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class TarHeader(tarfile.TarInfo):
    """A tar header class for `tarfile.open` that reports truncated and damaged archives.

    tarfile itself takes a truncation or a damaged header for the end of the archive.
    """

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "TarHeader":
        """Return the next header. Raises tarfile.ReadError for damage before the end."""
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.HeaderError as error:
            if type(error).__name__ == "EOFHeaderError":  # the empty block that ends an archive
                raise
            raise tarfile.ReadError(f"cut off or damaged at byte {tarfile_.offset}") from error
