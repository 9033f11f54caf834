"""Huge JSON texts read a value at a time: HowTo100M's captions are gigabytes in one object."""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

BLOCK_CHARS = 1 << 20  # read at a time
MAX_MEMBER_CHARS = 64 << 20  # of one member of an object
# beyond a value that show where it ends: "1" may go on as "1e+5"
LOOKAHEAD_CHARS = 3

_ANY_SPACE = re.compile(r"\s*")


class JsonError(ValueError):
    """Raised for a JSON text that is cut off, is not valid, or holds a value that is too long."""


@dataclass(frozen=True)
class JsonFileError:
    """A fault of a JSON file: invalid syntax, a file that is cut off, or a member that is too long.

    Attributes:
        reason: text of the fault.
    """

    reason: str


def read_json_members(path: Path) -> Iterator[tuple[str, object]]:
    """Yield (key, value) of each member of the object in a JSON file, which may be gzipped.

    If the file is cut off or invalid, the last value is a JsonFileError. Only one member and one
    block of text are in memory. Bytes that are not UTF-8 become U+FFFD.
    """
    try:
        with _open_text(path) as file:
            yield from JsonObjectReader(file).read_members()
    except (OSError, EOFError, zlib.error) as error:
        yield "", JsonFileError(f"cannot be read to its end ({error})")


def _open_text(path: Path) -> IO[str]:
    with path.open("rb") as file:
        # gzip by its first bytes, whatever the name is.
        is_packed = file.read(2) == b"\x1f\x8b"
    if is_packed:
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace")
    return path.open(encoding="utf-8-sig", errors="replace")


class StreamingJsonReader:
    """Reads the values of a large JSON text one by one.

    `text[position:]` is the part that was read from the file but is not parsed yet.

    Args:
        read_more: function that takes a number of characters, and returns at most that many more
            characters of the text. It returns "" at the end.
        block: number of characters that are read at a time.
        max_value_chars: maximal number of characters of one value.
        skipped: pattern of the characters between values, which are skipped.

    Attributes:
        last_range: start and end of the last value, in characters of the whole text.
        last_source: JSON text of the last value.
    """

    def __init__(
        self,
        read_more: Callable[[int], str],
        *,
        block: int,
        max_value_chars: int,
        skipped: re.Pattern[str] = _ANY_SPACE,
    ) -> None:
        self._read_more = read_more
        self._block = block
        self._max_value_chars = max_value_chars
        self._skipped = skipped
        self._decode = json.JSONDecoder().raw_decode
        self.text = ""
        self.position = 0
        self.dropped_chars = 0  # characters before those of `text`
        self.last_range = (0, 0)
        self.last_source = ""

    def peek(self) -> str:
        """Return the next character that does not match `skipped`, and stay before it. "" at the
        end of the text."""
        while True:
            match = self._skipped.match(self.text, self.position)
            self.position = match.end() if match else self.position
            if self.position < len(self.text) or not self._read_block(self._block):
                return self.text[self.position : self.position + 1]

    def read_value(self) -> object:
        """Return the next value. Raises JsonError for invalid or too long JSON."""
        self.peek()
        size = self._block
        while True:
            try:
                value, end = self._decode(self.text, self.position)
            except (ValueError, RecursionError) as error:
                # An error may only mean that the value goes on.
                if len(self.text) - self.position > self._max_value_chars:
                    reason = f"has a member of more than {self._max_value_chars} characters"
                    raise JsonError(reason) from error
                if isinstance(error, RecursionError) or not self._read_block(size):
                    reason = f"breaks off or is not JSON ({str(error)[:100]})"
                    raise JsonError(reason) from error
                size *= 2  # so that a long value is scanned a few times only
                continue
            length = end - self.position
            # A value that ends with the window may go on.
            if end + LOOKAHEAD_CHARS <= len(self.text) or not self._read_block(self._block):
                self.last_source = self.text[self.position : self.position + length]
                start = self.dropped_chars + self.position
                self.last_range = (start, start + length)
                self.position += length
                return cast(object, value)

    def _read_block(self, size: int) -> bool:
        """Read the next block and drop parsed text. Return False at the end of the file."""
        block = self._read_more(size)
        self.dropped_chars += self.position
        self.text = self.text[self.position :] + block
        self.position = 0
        return bool(block)


class JsonObjectReader(StreamingJsonReader):
    """Reads the members of the JSON object in a text file, one at a time."""

    def __init__(self, file: IO[str]) -> None:
        super().__init__(file.read, block=BLOCK_CHARS, max_value_chars=MAX_MEMBER_CHARS)

    def read_members(self) -> Iterator[tuple[str, object]]:
        """Yield (key, value) of each member of the object.

        If the file is cut off or invalid, the last value is a JsonFileError.
        """
        if self.peek() != "{":
            yield "", JsonFileError("is not a JSON object")
            return
        self.position += 1
        while (mark := self.peek()) != "}":
            if mark == ",":
                self.position += 1
                continue
            key = ""
            try:
                if mark != '"':
                    raise JsonError(f"has {mark!r} where a key should begin")
                key = str(self.read_value())
                if self.peek() != ":":
                    raise JsonError("lacks a colon behind a key")
                self.position += 1
                value = self.read_value()
            except JsonError as error:
                yield key, JsonFileError(str(error))
                return
            yield key, value
