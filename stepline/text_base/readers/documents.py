"""Readers of how-to texts as JSON and as plain text.

JSON: an object of them by id, a list, JSON lines, or a file each; an item at a time. Covers recipe
collections, schema.org recipes (also in "@graph") and wikiHow-style articles. Text: .txt and .md
files, a how-to text each, with numbered lists, headings and paragraphs.
"""

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from stepline.limits import parse_json
from stepline.records import Rejected
from stepline.text_base.documents import DocumentOrRejected
from stepline.text_base.readers.item import (
    DAMAGE,
    INGREDIENTS,
    NESTED,
    STEPS,
    ItemLocation,
    file_format,
    open_bytes,
    read_item,
    stem,
)
from stepline.text_base.settings import TextBaseSettings

PIECE = 1 << 16  # characters read at a time
LONGEST_ITEM = 16 << 20  # characters of one item
# a key that holds all items
WRAPPERS = ("@graph", "recipes", "articles", "data", "items", "database", "documents")
FIELDS = {*STEPS, *NESTED, *INGREDIENTS}  # keys of one text, whatever they hold
_SPACE = re.compile(r"[\s,]*")


class _BrokenError(ValueError):
    """The rest of a file cannot be read as JSON."""


def read_json(
    path: Path, settings: TextBaseSettings, licence: str | None
) -> Iterator[DocumentOrRejected]:
    """Yield the documents of a JSON or JSON-lines file, and what was left out. Raises DatasetError
    if unreadable."""
    with open_bytes(path) as file:
        try:
            items = (
                _lines(file)
                if file_format(path) in (".jsonl", ".ndjson")
                else _items(_Window(file))
            )
            for number, (key, item) in enumerate(items):
                place = ItemLocation(path.name, stem(path), key or str(number), licence)
                if isinstance(item, _BrokenError):
                    yield Rejected(
                        "document", "broken JSON", location=str(place), value=str(item)[:200]
                    )
                else:
                    yield from read_item(item, place, settings)
        except UnicodeDecodeError as error:
            yield Rejected("document", "not UTF-8", location=path.name, value=str(error)[:200])
        except DAMAGE as error:
            yield Rejected("document", "file cut off", location=path.name, value=str(error)[:200])


def _lines(file: BinaryIO) -> Iterator[tuple[str, object]]:
    while line := file.readline(LONGEST_ITEM):
        if not line.strip():
            continue
        try:
            yield "", parse_json(line)
        except (ValueError, RecursionError) as error:
            yield "", _BrokenError(str(error))


def _items(window: "_Window") -> Iterator[tuple[str, object]]:
    """Yield (key, item) of the top-level list or object; a single how-to text is one item."""
    try:
        opening = window.token()
        if opening == "[":
            yield from _listed(window)
        elif opening == "{":
            yield from _keyed(window)
        else:
            yield "", _BrokenError(f"starts with {opening!r}, not with a list or an object")
        if opening == "[" or opening == "{":
            yield from _concatenated(window)
    except (_BrokenError, RecursionError) as error:
        yield "", _BrokenError(str(error))


def _concatenated(window: "_Window") -> Iterator[tuple[str, object]]:
    """Yield what follows the first value: JSON lines in a .json file."""
    while window.peek():
        yield "", window.value()


def _listed(window: "_Window") -> Iterator[tuple[str, object]]:
    while window.peek() != "]":
        yield "", window.value()
    window.token()


def _keyed(window: "_Window") -> Iterator[tuple[str, object]]:
    """Yield the values of an object by key; an object that has steps itself is one item, without a
    key."""
    whole: dict[str, object] = {}
    while window.peek() != "}":
        key = window.value()
        if not isinstance(key, str) or window.token() != ":":
            raise _BrokenError("an object's key and colon are expected")
        if key in WRAPPERS and window.peek() in ("[", "{"):
            yield from _listed(window) if window.token() == "[" else _keyed(window)
            continue
        value = window.value()
        if whole or not isinstance(value, (dict, list)) or key in FIELDS:
            whole[key] = value  # fields of one text
        else:
            yield key, {"steps": value} if isinstance(value, list) else value
    window.token()
    if any(name in whole for name in (*STEPS, *NESTED)):
        yield "", whole


class _Window:
    """A window that moves over a JSON text; holds one item and a piece more."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._ended = False
        self._scan = json.JSONDecoder().raw_decode

    def peek(self) -> str:
        """Return the next character that is no space or comma; "" at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or not self._more(PIECE):
                return self._text[self._at : self._at + 1]

    def token(self) -> str:
        """Return that character and step over it."""
        found = self.peek()
        if not found:
            raise _BrokenError("the file ends too early")
        self._at += 1
        return found

    def value(self) -> object:
        """Return the next value. Raises _BrokenError where there is none, or it is too long."""
        self.peek()
        size = PIECE
        while True:
            try:
                found, end = self._scan(self._text, self._at)
                if end < len(self._text) or self._ended or not self._more(PIECE):
                    self._at = end
                    return found
            except ValueError as error:
                if len(self._text) - self._at > LONGEST_ITEM or not self._more(size):
                    raise _BrokenError(str(error)) from error
                size *= 2  # so that a long item is scanned a few times only

    def _more(self, size: int) -> bool:
        """Read on, forgetting what was passed; False at the end of the file."""
        if self._ended:
            return False
        piece = self._file.read(size)
        self._ended = not piece
        self._text = self._text[self._at :] + self._decode.decode(piece, final=self._ended)
        self._at = 0
        return not self._ended


_HEADING = re.compile(r"^#{1,6}\s+(.*)$")
_COLON_HEADING = re.compile(r"^([A-Z][\w ]{2,40}):$")
_UNDERLINE = re.compile(r"^(=+|-{3,})$")
_NUMBERED = re.compile(r"^\s*(?:\(?\d{1,3}\s*[.)]|step\s+\d{1,3}\s*[.:)-]?)\s+(.*)$", re.IGNORECASE)
_BULLET = re.compile(r"^\s*[-*+•‣]\s+(.*)$")
_NEEDS = re.compile(
    r"\b(ingredients?|materials?|supplies|tools|you(?:'ll)? (?:will )?need|parts list)\b",
    re.IGNORECASE,
)
_FIELD = re.compile(r"^(title|licence|license|source|url|link)\s*:\s*(.+)$", re.IGNORECASE)
_FENCE = "---"


def read_text(
    path: Path, settings: TextBaseSettings, licence: str | None
) -> Iterator[DocumentOrRejected]:
    """Yield the document of a text file, or why it was left out. Raises DatasetError when it cannot
    be opened.

    Numbered items are the steps; without any, the bullets outside lists of ingredients and
    materials; without these, the sentences of the paragraphs. The title is the first heading, else
    the file's name.
    """
    place = ItemLocation(path.name, stem(path), stem(path), licence)
    try:
        with open_bytes(path) as file:
            data = file.read(4 * settings.longest_document + 1)
    except DAMAGE as error:
        yield Rejected("document", "file cut off", location=path.name, value=str(error)[:200])
        return
    if len(data) > 4 * settings.longest_document:
        yield Rejected(
            "document",
            "document too long",
            location=path.name,
            value=f"more than {len(data) - 1} bytes",
        )
        return
    if b"\0" in data:
        yield Rejected("document", "binary junk", location=path.name)
        return
    try:
        yield from read_item(_parsed(data.decode("utf-8-sig")), place, settings)
    except UnicodeDecodeError:
        yield Rejected("document", "not UTF-8", location=path.name)


def _parsed(text: str) -> dict[str, object]:
    """Return title, steps, ingredients and the fields of a front matter."""
    fields, lines = _front_matter(text.splitlines())
    title = ""
    needs = False
    found: dict[str, list[str]] = {"numbered": [], "bullets": [], "paragraphs": [], "needs": []}
    run: list[str] = []  # where a wrapped line goes on
    for line, following in zip(lines, [*lines[1:], ""], strict=False):  # a text may have no line
        heading = _heading(line, following)
        if heading is not None:
            title = title or heading
            needs = _NEEDS.search(heading) is not None
            run = []
        elif not line.strip():
            run = []
        elif not _UNDERLINE.match(line.strip()):
            run = _placed(line, needs, found, run)
    steps = found["numbered"] or found["bullets"] or found["paragraphs"]
    return {"title": title, "steps": steps, "ingredients": found["needs"]} | fields


def _placed(line: str, needs: bool, found: dict[str, list[str]], run: list[str]) -> list[str]:
    """Put a line where it belongs, or at the end of the item that it continues; return the list
    that grew."""
    for kind, pattern in (("numbered", _NUMBERED), ("bullets", _BULLET)):
        if match := pattern.match(line):
            return _started(found["needs" if needs else kind], match[1])
    if run:
        run[-1] += f" {line.strip()}"
        return run
    return _started(found["needs" if needs else "paragraphs"], line.strip())


def _started(items: list[str], text: str) -> list[str]:
    items.append(text)
    return items


def _heading(line: str, following: str) -> str | None:
    if match := _HEADING.match(line) or _COLON_HEADING.match(line.strip()):
        return match[1].strip("# ")
    underlined = line.strip() and _UNDERLINE.match(following.strip()) and not _BULLET.match(line)
    return line.strip() if underlined else None


def _front_matter(lines: list[str]) -> tuple[dict[str, object], list[str]]:
    """Return the known fields between two lines of `---` at the top, and the lines after them."""
    if (
        not lines
        or lines[0].strip() != _FENCE
        or _FENCE not in (line.strip() for line in lines[1:])
    ):
        return {}, lines
    end = next(n for n, line in enumerate(lines[1:], 1) if line.strip() == _FENCE)
    matches = (_FIELD.match(line.strip()) for line in lines[1:end])
    return {match[1].lower(): match[2].strip("\"' ") for match in matches if match}, lines[
        end + 1 :
    ]
