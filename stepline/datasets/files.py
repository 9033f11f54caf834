"""Files as they come: JSON, CSV and text, gzipped or not, archives or folders of one JSON file a
video.

`Node` is a value in a JSON tree that knows its place in the file, so that an error can name it.

Texts with times in columns: HowToStep's steps and the narrations of HowTo100M (captions,
sentencified, WhisperX).

    {id: {"start": [s], "end": [s], "text": [..]}}   in one file, or one such object a file named after its video
    {"segments": [{start, end, text, words}]}        WhisperX, one file a video; words may lack their times

The folder or the .tar.gz archive of such files is read as well.
"""

import csv
import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from stepline.atomic_files import files_below
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder
from stepline.errors import DatasetError
from stepline.limits import (
    ANNOTATIONS,
    LimitError,
    TarHeader,
    read_limited,
    read_member,
    unpack_limited,
)
from stepline.limits import parse_json as json_tree

Tree: TypeAlias = Any  # a JSON value: the one place where no type is known yet

WHICH = "so none of the files that are read; check which one it is"
GZIP = b"\x1f\x8b"
TAR = b"ustar"
TAR_MARK = 257  # bytes from the start, POSIX tar


class RepeatedKeyError(ValueError):
    """A key that stands twice in one JSON object."""


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes, unpacked when it is gzipped whatever its name. Raises DatasetError."""
    try:
        data = read_limited(path, ANNOTATIONS)
        return unpack_limited(data, ANNOTATIONS) if data[:2] == GZIP else data
    except LimitError as error:
        raise DatasetError(f"{path}: {error}, {WHICH}") from error
    except IsADirectoryError as error:
        raise DatasetError(f"{path}: is a folder; give the annotation file in it") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DatasetError(f"{path}: its gzip is damaged ({error}); download it again") from error
    except OSError as error:
        cure = "`stepline datasets` says where to get it"
        raise DatasetError(f"{path}: cannot be read ({error.strerror}); {cure}") from error


def read_text(path: Path) -> str:
    """Return a text file (UTF-8, a byte order mark is left out), unpacked when gzipped."""
    return _decode(path, read_bytes(path))


def _decode(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error


def read_json(path: Path) -> Tree:
    """Return a JSON file's tree. Raises DatasetError for damage and for a key that stands twice in
    one object."""
    return parse_json(str(path), _decode(path, read_bytes(path)))


def parse_json(name: str, text: str) -> Tree:
    """Return the tree of JSON text; `name` is what an error calls it."""
    try:
        return json_tree(text, _without_repeats)
    except RepeatedKeyError as error:
        raise DatasetError(
            f"{name}: key {error} stands twice in one object; keep one of them"
        ) from error
    except json.JSONDecodeError as error:
        location = f"line {error.lineno}, column {error.colno}"
        raise DatasetError(
            f"{name}: not valid JSON at {location} ({error.msg}); correct it or get it again"
        ) from error
    except ValueError as error:
        raise DatasetError(
            f"{name}: JSON that cannot be read ({error}); correct it or get it again"
        ) from error


def _without_repeats(pairs: list[tuple[str, Tree]]) -> dict[str, Tree]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        raise RepeatedKeyError(repr(next(key for key, _ in pairs if key in seen or seen.add(key))))  # type: ignore[func-returns-value]
    return made


def read_csv(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line, row) of a CSV or TSV file with a header that holds `columns`. Raises
    DatasetError otherwise."""
    text = read_text(path)
    delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        missing = [column for column in columns if column not in (rows.fieldnames or ())]
        if missing:
            raise DatasetError(
                f"{path}: line 1 lacks the column {missing[0]!r}; it needs {', '.join(columns)}"
            )
        for row in rows:
            if any(row[column] is None for column in columns):
                raise DatasetError(
                    f"{path}: line {rows.line_num} has too few cells; it needs {', '.join(columns)}"
                )
            yield rows.line_num, row
    except csv.Error as error:
        raise DatasetError(
            f"{path}: line {rows.line_num} is not valid CSV ({error}); download it again"
        ) from error


def read_headless_csv(path: Path, cells: int) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of a CSV file without a header; every line must hold that many cells."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            row = [cell.strip() for cell in line.split(",", cells - 1)]
            if len(row) != cells:
                raise DatasetError(
                    f"{path}: line {number} holds {len(row)} cells, not {cells}; download it again"
                )
            yield number, row


def read_json_files(path: Path) -> Iterator[tuple[str, str, Tree]]:
    """Yield (place, stem, tree) of every JSON file in a folder or tar archive in name order, or of
    the one file.

    The stem is the video's id where a file holds one video; for a single file it is "".
    """
    if path.is_dir():
        files = [file for file in files_below(path) if file.name.endswith((".json", ".json.gz"))]
        if not files:
            raise DatasetError(f"{path}: holds no .json file; give the folder that does")
        for file in files:
            yield str(file), stem(file.name), read_json(file)
    elif _is_tar(path):
        yield from _archive_members(path)
    else:
        yield str(path), "", read_json(path)


def stem(name: str) -> str:
    """Return a file's name without .json, .json.gz or its last ending."""
    for ending in (".json.gz", ".json", ".gz"):
        if name.endswith(ending):
            return name[: -len(ending)]
    return name.rpartition(".")[0] or name


def _is_tar(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(TAR_MARK + len(TAR))
        if start[:2] == GZIP:
            with gzip.open(path) as file:
                start = file.read(TAR_MARK + len(TAR))
    except (OSError, EOFError, zlib.error):
        return False  # read_json says what is wrong with it
    return start[TAR_MARK:] == TAR


def _archive_members(path: Path) -> Iterator[tuple[str, str, Tree]]:
    try:
        # mode "r" finds the compression itself
        with tarfile.open(path, tarinfo=TarHeader) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith((".json", ".json.gz")):
                    name = f"{path}:{member.name}"
                    try:
                        data = read_member(archive, member, ANNOTATIONS)
                        data = unpack_limited(data, ANNOTATIONS) if data[:2] == GZIP else data
                    except LimitError as error:
                        raise DatasetError(f"{name}: {error}, {WHICH}") from error
                    yield (
                        name,
                        stem(Path(member.name).name),
                        parse_json(name, _decode(Path(name), data)),
                    )
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split())  # tarfile tells in several lines what it tried
        raise DatasetError(f"{path}: a damaged archive ({reason}); download it again") from error


def file_in(path: Path, *names: str) -> Path:
    """Return `path` itself, or for a folder the first of `names` (or its .gz) in it. Raises
    DatasetError."""
    if not path.is_dir():
        return path
    found = find_file(path, *names)
    if found is None:
        raise DatasetError(
            f"{path}: holds no {' or '.join(names)}; `stepline datasets` says which files are needed"
        )
    return found


def find_file(folder: Path, *names: str) -> Path | None:
    """Return the first of `names`, or its .gz, that stands in the folder or in its `data` or
    `annotations` folder."""
    folders = (folder, folder / "data", folder / "annotations")
    candidates = (
        location / (name + ending)
        for name in names
        for location in folders
        for ending in ("", ".gz")
    )
    return next((file for file in candidates if file.is_file()), None)


SHOWN = 60  # characters of a value that an error quotes


class Node:
    """A JSON value and its place; every accessor checks the type and raises DatasetError naming
    file and place."""

    __slots__ = ("key", "parent", "value")

    def __init__(self, value: Tree, key: str, parent: "Node | None" = None) -> None:
        self.value = value
        self.key = key
        self.parent = parent

    @property
    def location(self) -> str:
        """Say where the value stands: the file, then keys and indices."""
        if self.parent is None:
            return self.key
        return (
            self.parent.location
            + (": " if self.parent.parent is None else "")
            + on_one_line(self.key)
        )

    def error(self, need: str) -> DatasetError:
        """Return the error for a value that is not what is needed."""
        return DatasetError(
            f"{self.location}: {quoted(self.value)} is not {need}; correct it or download the file again"
        )

    def entries(self) -> Iterator[tuple[str, "Node"]]:
        """Yield the keys and values of an object."""
        if not isinstance(self.value, dict):
            raise self.error("an object")
        for key, value in self.value.items():
            yield key, Node(value, f".{key}" if self.parent else key, self)

    def rows(self) -> Iterator["Node"]:
        """Yield the items of a list."""
        if not isinstance(self.value, list):
            raise self.error("a list")
        for index, value in enumerate(self.value):
            yield Node(value, f"[{index}]", self)

    def get(self, *keys: str) -> "Node | None":
        """Return the value of the first of these keys that the object holds, None where it holds
        none or null."""
        if not isinstance(self.value, dict):
            raise self.error("an object")
        for key in keys:
            if self.value.get(key) is not None:
                return Node(self.value[key], f".{key}" if self.parent else key, self)
        return None

    def __getitem__(self, key: str) -> "Node":
        found = self.get(key)
        if found is None:
            raise DatasetError(
                f"{self.location}: lacks {key!r}; is this the right file for this dataset?"
            )
        return found

    def optional_text(self, *keys: str) -> str | None:
        """Return the string under the first of these keys that the object holds, None where it
        holds none or null."""
        found = self.get(*keys)
        return found.text() if found else None

    def text(self) -> str:
        """Return a string."""
        if not isinstance(self.value, str):
            raise self.error("text")
        return self.value

    def name(self) -> str:
        """Return an id: a string, or a whole number written out."""
        if isinstance(self.value, bool) or not isinstance(self.value, str | int):
            raise self.error("an id (text or a whole number)")
        try:
            return str(self.value)
        except ValueError as error:  # more digits than Python writes out
            raise DatasetError(
                f"{self.location}: a number with thousands of digits is no id; correct it"
            ) from error

    def number(self) -> float:
        """Return a number, also one written as a string; NaN and infinity come through."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float | str):
            raise self.error("a number")
        try:
            return float(self.value)
        except ValueError as error:
            raise self.error("a number") from error
        except OverflowError:
            return float("inf")

    def pair(self) -> tuple[float, float]:
        """Return two numbers, as a segment is written."""
        if not isinstance(self.value, list) or len(self.value) != 2:
            raise self.error("a pair of two numbers")
        start, end = self.rows()
        return start.number(), end.number()


def on_one_line(text: str) -> str:
    """Return text as an error can show it: line breaks and other unprintable characters escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


def quoted(value: Tree) -> str:
    """Return a value as an error shows it: shortened, on one line."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    try:
        shown = repr(value)
    except ValueError:  # an integer with more digits than Python writes out
        return "a huge number"
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"


COLUMNS = ("start", "end", "text")


def read_steps(path: Path) -> Iterator[DatasetEntry]:
    """Yield HowToStep's videos: steps that a language model wrote, with times that a model
    estimated."""
    for id, video in _videos(path):
        builder = RecordBuilder(id)
        for index, (start, end, text) in enumerate(_rows(video)):
            builder.add_span(str(index), text, start, end)
        yield builder.entry(machine=True)


def read_narrations(path: Path) -> Iterator[DatasetEntry]:
    """Yield HowTo100M's videos with what is said in them; overlapping and repeated cues are kept as
    they are."""
    for id, video in _videos(path):
        builder = RecordBuilder(id)
        for start, end, text in _rows(video):
            builder.add_sentence(text, start, end)
        yield builder.entry(language=video.optional_text("language"))


def _videos(path: Path) -> Iterator[tuple[str, Node]]:
    for location, stem, tree in read_json_files(path):
        root = Node(tree, location)
        if root.get(*COLUMNS) is not None or root.get("segments") is not None:
            yield stem or Path(location).name.partition(".")[0], root
        else:
            yield from root.entries()


def _rows(video: Node) -> list[tuple[float, float, str]]:
    segments = video.get("segments")
    if segments is not None:
        return [_segment(row) for row in segments.rows()]
    starts, ends, texts = (list(video[column].rows()) for column in COLUMNS)
    if not len(starts) == len(ends) == len(texts):
        counts = f"{len(starts)} starts, {len(ends)} ends and {len(texts)} texts"
        raise DatasetError(f"{video.location}: {counts}; the columns must be equally long")
    columns = zip(starts, ends, texts, strict=True)
    return [(start.number(), end.number(), text.text()) for start, end, text in columns]


def _segment(row: Node) -> tuple[float, float, str]:
    # WhisperX leaves them out where its alignment failed
    start, end = row.get("start"), row.get("end")
    missing = float("nan")
    return (
        start.number() if start else missing,
        end.number() if end else missing,
        row["text"].text(),
    )
