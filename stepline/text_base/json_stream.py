"""The members of one huge JSON object, one at a time: HowTo100M's captions are gigabytes in one
object."""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

BLOCK = 1 << 20  # characters read at a time
LONGEST = 64 << 20  # characters that one member may have


@dataclass(frozen=True)
class JsonDamage:
    """What ends the reading of a file, or a member that is too long."""

    reason: str


def json_members(path: Path) -> Iterator[tuple[str, object]]:
    """Yield key and value of each member of the object in a JSON file (or .gz); a Damage last where
    it breaks off.

    Held at once: one member and a block. Bytes that are not UTF-8 become U+FFFD.
    """
    try:
        with _opened(path) as file:
            yield from JsonObjectReader(file).members()
    except (OSError, EOFError, zlib.error) as error:
        yield "", JsonDamage(f"cannot be read to its end ({error})")


def _opened(path: Path) -> IO[str]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace")
    return path.open(encoding="utf-8-sig", errors="replace")


class JsonObjectReader:
    """A buffer over a text file: `text[place:]` is what has not been read.

    last: from which character of the file to which the last value lies; source: its text.
    """

    def __init__(self, file: IO[str]) -> None:
        self.file, self.text, self.place, self.decoder = file, "", 0, json.JSONDecoder()
        self.passed = 0  # characters before those of `text`
        self.last, self.source = (0, 0), ""

    def members(self) -> Iterator[tuple[str, object]]:
        """Yield key and value of each member, and a Damage last where the file breaks off."""
        if self._next() != "{":
            yield "", JsonDamage("is no JSON object")
            return
        self.place += 1
        while True:
            mark = self._next()
            if mark == "}":
                return
            if mark == ",":
                self.place += 1
                continue
            key = (
                self._value()
                if mark == '"'
                else JsonDamage(f"has {mark!r} where a key should begin")
            )
            if not isinstance(key, str):
                yield (
                    "",
                    key
                    if isinstance(key, JsonDamage)
                    else JsonDamage("has a key that is no string"),
                )
                return
            if self._next() != ":":
                yield key, JsonDamage("lacks a colon behind a key")
                return
            self.place += 1
            self._next()
            value = self._value()
            yield key, value
            if isinstance(value, JsonDamage):
                return

    def _next(self) -> str:
        """Return the next character that is no space, reading on where needed; "" at the end."""
        while True:
            while self.place < len(self.text):
                if not self.text[self.place].isspace():
                    return self.text[self.place]
                self.place += 1
            if not self._more():
                return ""

    def _value(self) -> object:
        """Return the value that begins here; a value that touches the buffer's end may go on, so
        more is read first."""
        size = BLOCK
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.place)
                if end < len(self.text) or not self._more():
                    self.last = (self.passed + self.place, self.passed + end)
                    self.source, self.place = self.text[self.place : end], end
                    return cast(object, value)
            except (json.JSONDecodeError, RecursionError) as error:
                if len(self.text) - self.place > LONGEST:
                    return JsonDamage(f"has a member of more than {LONGEST} characters")
                if isinstance(error, RecursionError) or not self._more(size):
                    return JsonDamage(f"breaks off or is no JSON ({str(error)[:100]})")
                size *= 2

    def _more(self, size: int = BLOCK) -> bool:
        block = self.file.read(size)
        self.passed += self.place
        self.text, self.place = self.text[self.place :] + block, 0
        return bool(block)
