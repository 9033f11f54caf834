"""Readers of annotation files: JSON, CSV and text, gzipped or not, archives and folders.

`Node` is a value in a JSON tree that knows its location in the file, so that an error can name it.
"""

import csv
import gzip
import io
import json
import math
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any

from stepline.errors import DatasetError
from stepline.files.atomic_files import files_below
from stepline.limits import (
    MAX_ANNOTATIONS_BYTES,
    LimitError,
    TarHeader,
    read_limited,
    read_member,
    unpack_limited,
)
from stepline.limits import parse_json as json_tree

Tree = Any  # a JSON value: the one place where no type is known yet

TOO_LARGE_CURE = "so none of the files that are read; check which one it is"
GZIP_MAGIC = b"\x1f\x8b"
TAR_MAGIC = b"ustar"
TAR_MAGIC_OFFSET = 257  # bytes from the start, POSIX tar
JSON_ENDINGS = (".json", ".json.gz")
MAX_QUOTED_CHARS = 60  # of a value in an error


# word of a file's name -> split
SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, unpacked if they are gzipped, whatever the name of the file.

    Raises DatasetError for a file that cannot be read.
    """
    try:
        return _unpack_gzip(read_limited(path, MAX_ANNOTATIONS_BYTES))
    except LimitError as error:
        raise DatasetError(f"{path}: {error}, {TOO_LARGE_CURE}") from error
    except IsADirectoryError as error:
        raise DatasetError(f"{path}: is a folder; give the annotation file in it") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DatasetError(f"{path}: its gzip is damaged ({error}); download it again") from error
    except OSError as error:
        raise DatasetError(
            f"{path}: cannot be read ({error.strerror}); `stepline datasets` says where to get it"
        ) from error


def _unpack_gzip(data: bytes) -> bytes:
    if not data.startswith(GZIP_MAGIC):
        return data
    return unpack_limited(data, MAX_ANNOTATIONS_BYTES)


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, unpacked if it is gzipped, without byte order mark."""
    return _decode_utf8(path, read_bytes(path))


def _decode_utf8(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error


def read_json(path: Path) -> Tree:
    """Return the value in a JSON file.

    Raises DatasetError for a damaged file, and for an object that holds one key twice.
    """
    return parse_json(str(path), _decode_utf8(path, read_bytes(path)))


def read_node(path: Path, *names: str) -> "Node":
    """Return the root value of a JSON file.

    Args:
        path: the file, or a folder that holds it.
        names: possible names of the file in a folder. The first one that exists is read.
    """
    file = find_required_file(path, *names) if names else path
    return Node(read_json(file), str(file))


def parse_json(name: str, text: str) -> Tree:
    """Return the value in a JSON text.

    Args:
        name: name of the file, for error messages.
        text: the JSON text.
    """
    try:
        return json_tree(text, partial(_require_unique_keys, name))
    except json.JSONDecodeError as error:
        raise DatasetError(
            f"{name}: not valid JSON at line {error.lineno}, column {error.colno} ({error.msg}); "
            "correct it or get it again"
        ) from error
    except ValueError as error:
        raise DatasetError(
            f"{name}: JSON that cannot be read ({error}); correct it or get it again"
        ) from error


def _require_unique_keys(name: str, pairs: list[tuple[str, Tree]]) -> dict[str, Tree]:
    entries = dict(pairs)
    # Python itself would silently keep the last one.
    if len(entries) != len(pairs):
        ((most_repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise DatasetError(
            f"{name}: key {most_repeated!r} is twice in one object; keep one of them"
        )
    return entries


def read_csv(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line number, column -> cell) of each row of a CSV or TSV file with a header.

    Raises DatasetError where the header lacks one of `columns`.
    """
    text = read_text(path)
    first_line, _, _ = text.partition("\n")
    delimiter = "\t" if "\t" in first_line else ","
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        missing = [column for column in columns if column not in (rows.fieldnames or ())]
        if missing:
            raise DatasetError(
                f"{path}: line 1 lacks the column {missing[0]!r}; it needs {', '.join(columns)}"
            )
        for row in rows:
            # The reader fills cells that a row lacks with None.
            if any(row[column] is None for column in columns):
                raise DatasetError(
                    f"{path}: line {rows.line_num} has too few cells; it needs {', '.join(columns)}"
                )
            yield rows.line_num, row
    except csv.Error as error:
        raise DatasetError(
            f"{path}: line {rows.line_num} is not valid CSV ({error}); download it again"
        ) from error


def read_headless_csv(path: Path, cell_count: int) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each row of a CSV file without a header.

    Args:
        path: path of the file.
        cell_count: number of cells of a row. Further commas belong to the last cell.

    Raises DatasetError for a line with fewer cells.
    """
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            cells = [cell.strip() for cell in line.split(",", cell_count - 1)]
            if len(cells) != cell_count:
                raise DatasetError(
                    f"{path}: line {number} holds {len(cells)} cells, not {cell_count}"
                    "; download it again"
                )
            yield number, cells


def read_json_files(path: Path) -> Iterator[tuple[str, str, Tree]]:
    """Yield (location, stem, value) of every JSON file in a folder or tar archive, or of one file.

    The files of a folder come in order of their names. The stem is the file's name without its
    ending: the id of the video where a file holds one video. For a single file the stem is "".
    """
    if path.is_dir():
        files = [file for file in files_below(path) if file.name.endswith(JSON_ENDINGS)]
        if not files:
            raise DatasetError(f"{path}: holds no .json file; give the folder that does")
        for file in files:
            yield str(file), stem(file.name), read_json(file)
    elif _is_tar(path):
        yield from _archive_members(path)
    else:
        yield str(path), "", read_json(path)


def stem(name: str) -> str:
    """Return a file's name without .json or .json.gz. Of other names the last ending is cut."""
    for ending in (".json.gz", ".json", ".gz"):
        if name.endswith(ending):
            return name[: -len(ending)]
    return name.rpartition(".")[0] or name


def split_of_name(name: str) -> str | None:
    """Return the split that a file's name states, such as train for yc2_train.json, or None."""
    words = re.split("[._-]", name.lower())
    return next((SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS), None)


def _is_tar(path: Path) -> bool:
    length = TAR_MAGIC_OFFSET + len(TAR_MAGIC)
    try:
        with path.open("rb") as file:
            start = file.read(length)
        # A gzip may hold a tar.
        if start.startswith(GZIP_MAGIC):
            with gzip.open(path) as file:
                start = file.read(length)
    except (OSError, EOFError, zlib.error):
        return False  # read_json reports the fault
    return start.endswith(TAR_MAGIC) and len(start) == length


def _archive_members(path: Path) -> Iterator[tuple[str, str, Tree]]:
    try:
        # mode "r" finds the compression itself
        with tarfile.open(path, tarinfo=TarHeader) as archive:
            for member in archive:
                if not member.isfile() or not member.name.endswith(JSON_ENDINGS):
                    continue
                name = f"{path}:{member.name}"
                try:
                    data = _unpack_gzip(read_member(archive, member, MAX_ANNOTATIONS_BYTES))
                except LimitError as error:
                    raise DatasetError(f"{name}: {error}, {TOO_LARGE_CURE}") from error
                tree = parse_json(name, _decode_utf8(Path(name), data))
                yield name, stem(Path(member.name).name), tree
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split())  # tarfile reports its attempts on several lines
        raise DatasetError(f"{path}: a damaged archive ({reason}); download it again") from error


def annotation_files(path: Path, patterns: Sequence[str], cure: str) -> list[Path]:
    """Return `path` if it is a file, else the sorted files of the folder that match a pattern.

    Args:
        path: file or folder.
        patterns: glob patterns of file names.
        cure: advice in the DatasetError that is raised where no file matches.
    """
    if not path.is_dir():
        return [path]
    files = {file for pattern in patterns for file in path.glob(pattern)}
    if not files:
        raise DatasetError(f"{path}: holds no {' or '.join(patterns)}; {cure}")
    return sorted(files)


def find_required_file(path: Path, *names: str) -> Path:
    """Return `path` if it is a file, else the first of several files that the folder holds.

    Args:
        path: file or folder.
        names: names of the files, which `find_file` looks for.

    Raises DatasetError if the folder holds none of them.
    """
    if not path.is_dir():
        return path
    file = find_file(path, *names)
    if file is None:
        raise DatasetError(
            f"{path}: holds no {' or '.join(names)}"
            "; `stepline datasets` says which files are needed"
        )
    return file


def find_file(folder: Path, *names: str) -> Path | None:
    """Return the first of several files that a folder holds, None if it holds none.

    The files may also be gzipped, and in the subfolder `data` or `annotations`.

    Args:
        folder: the folder.
        names: names of the files without .gz.
    """
    for name in names:
        for parent in (folder, folder / "data", folder / "annotations"):
            for file in (parent / name, parent / (name + ".gz")):
                if file.is_file():
                    return file
    return None


class Node:
    """A JSON value together with its location in the file.

    Every method that returns a value checks its type. If the type is wrong, it raises DatasetError
    with the file and the location.

    Attributes:
        value: the JSON value.
        key: key or index of the value in its parent. For the root, it is the name of the file.
        parent: the object or list that holds the value, None for the root.
    """

    __slots__ = ("key", "parent", "value")

    def __init__(self, value: Tree, key: str, parent: "Node | None" = None) -> None:
        self.value = value
        self.key = key
        self.parent = parent

    @property
    def location(self) -> str:
        """Name of the file, then the keys and indices that lead to the value."""
        # A key may hold line ends, and an error is one line.
        if self.parent is None:
            return self.key
        key = self.key
        if not key.isprintable():
            key = repr(key)[1:-1]
        if self.parent.parent is None:
            return f"{self.parent.location}: {key}"
        return f"{self.parent.location}{key}"

    def error(self, need: str) -> DatasetError:
        """Return the error for a value of the wrong type. need: description of the right type."""
        return DatasetError(
            f"{self.location}: {quote_value(self.value)} is not {need}; correct it or download the "
            "file again"
        )

    def _typed_value(self, kind: type | UnionType, need: str) -> Tree:
        """Return the value if it is of a type and not boolean, else raise DatasetError.

        Args:
            kind: the required type.
            need: description of the type, for the message.
        """
        if not isinstance(self.value, kind) or isinstance(self.value, bool):
            raise self.error(need)
        return self.value

    def _child(self, key: str) -> "Node":
        name = f".{key}" if self.parent else key
        return Node(self.value[key], name, self)

    def entries(self) -> Iterator[tuple[str, "Node"]]:
        """Yield (key, value) of each entry of an object."""
        for key in self._typed_value(dict, "an object"):
            yield key, self._child(key)

    def rows(self) -> Iterator["Node"]:
        """Yield the items of a list."""
        for index, value in enumerate(self._typed_value(list, "a list")):
            yield Node(value, f"[{index}]", self)

    def get(self, *keys: str) -> "Node | None":
        """Return the value of the first of several keys that the object has and that is not null,
        else None.
        """
        tree = self._typed_value(dict, "an object")
        for key in keys:
            if tree.get(key) is not None:
                return self._child(key)
        return None

    def __getitem__(self, key: str) -> "Node":
        node = self.get(key)
        if node is None:
            raise DatasetError(
                f"{self.location}: lacks {key!r}; is this the right file for this dataset?"
            )
        return node

    def optional_text(self, key: str) -> str | None:
        """Return the string under a key. None if the object lacks the key or holds null."""
        node = self.get(key)
        return None if node is None else node.text()

    def optional_number(self, key: str) -> float | None:
        """Return the number under a key. None if the object lacks the key or holds null."""
        node = self.get(key)
        return None if node is None else node.number()

    def optional_rows(self, key: str) -> "list[Node]":
        """Return the items of the list under a key, [] if the object lacks it or holds null."""
        node = self.get(key)
        return [] if node is None else list(node.rows())

    def text(self) -> str:
        """Return the value as a string."""
        return str(self._typed_value(str, "text"))

    def texts(self) -> tuple[str, ...]:
        """Return the items of a list of strings."""
        return tuple(row.text() for row in self.rows())

    def name(self) -> str:
        """Return the value as an id: a string, or a whole number as text."""
        try:
            return str(self._typed_value(str | int, "an id (text or a whole number)"))
        except ValueError as error:  # more digits than Python writes out
            raise DatasetError(
                f"{self.location}: a number with thousands of digits is not an id; correct it"
            ) from error

    def number(self) -> float:
        """Return the value as a number. A string that states a number is read too."""
        try:
            return float(self._typed_value(int | float | str, "a number"))
        except ValueError as error:
            raise self.error("a number") from error
        except OverflowError:
            return math.inf

    def pair(self) -> tuple[float, float]:
        """Return the two numbers of a list [start, end], such as the seconds of a segment."""
        if not isinstance(self.value, list) or len(self.value) != 2:
            raise self.error("a pair of two numbers")
        start, end = self.rows()
        return start.number(), end.number()

    def span(self) -> tuple[float, float]:
        """Return the numbers under the keys `start` and `end` of an object."""
        return self["start"].number(), self["end"].number()

    def pairs(self) -> Iterator[tuple[tuple[float, float], "Node"]]:
        """Yield ((start, end), sentence) of each segment of a video.

        The object must hold two parallel lists, `timestamps` and `sentences`.
        """
        times = list(self["timestamps"].rows())
        texts = list(self["sentences"].rows())
        if len(times) != len(texts):
            raise DatasetError(
                f"{self.location}: {len(times)} timestamps but {len(texts)} sentences; they go in "
                "pairs"
            )
        for time, text in zip(times, texts, strict=True):
            yield time.pair(), text


def quote_value(value: Tree) -> str:
    """Return a JSON value as text for an error message, shortened and on one line."""
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python writes out
        return "a huge number"
    if len(text) > MAX_QUOTED_CHARS:
        text = text[:MAX_QUOTED_CHARS] + "…"
    return text
