"""Readers of how-to texts as JSON and as plain text.

JSON: an object of them by id, a list, JSON lines, or a file for each. It is read an item at a time.
Covers recipe collections, schema.org recipes (also in "@graph") and wikiHow-style articles. Text:
.txt and .md files, a how-to text in each, with numbered lists, headings and paragraphs.
"""

import codecs
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import BinaryIO, TypeAlias

from stepline.limits import parse_json
from stepline.sieve_swap.text_base.documents import DocumentOrRejected
from stepline.sieve_swap.text_base.json_stream import JsonError, JsonWindow
from stepline.sieve_swap.text_base.readers.item import (
    FILE_DAMAGE,
    INGREDIENT_FIELDS,
    NESTED_FIELDS,
    STEP_FIELDS,
    SourceFile,
    file_format,
    open_unpacked,
    read_item,
)

BLOCK_BYTES = 1 << 16  # read at a time
MAX_ITEM_CHARS = 16 << 20
MAX_REASON_CHARS = 200  # of an error in the list of what was left out
# a key that holds all items
WRAPPER_KEYS = ("@graph", "recipes", "articles", "data", "items", "database", "documents")
# keys of one text, whatever they hold
TEXT_KEYS = {*STEP_FIELDS, *NESTED_FIELDS, *INGREDIENT_FIELDS}
_SPACE_AND_COMMAS = re.compile(r"[\s,]*")

KeyedItem: TypeAlias = tuple[str, object]  # the key in its file, "" where it has none


def read_json(file: SourceFile) -> Iterator[DocumentOrRejected]:
    """Yield the documents of a JSON or JSON-lines file, and what was left out. Raises DatasetError
    if unreadable."""
    is_lines = file_format(file.path) in (".jsonl", ".ndjson")
    with open_unpacked(file.path) as stream:
        items = _lines(stream) if is_lines else _items(_window(stream))
        try:
            for number, (key_of_item, item) in enumerate(items):
                key = key_of_item or str(number)
                if isinstance(item, Exception):
                    reason = item.__cause__ or item
                    yield file.reject("broken JSON", _shorten_reason(reason), key=key)
                else:
                    yield from read_item(item, key, file)
        except UnicodeDecodeError as error:
            yield file.reject("not UTF-8", _shorten_reason(error))
        except FILE_DAMAGE as error:
            yield file.reject("file cut off", _shorten_reason(error))


def _shorten_reason(error: BaseException) -> str:
    return str(error)[:MAX_REASON_CHARS]


def _lines(stream: BinaryIO) -> Iterator[KeyedItem]:
    while line := stream.readline(MAX_ITEM_CHARS):
        if not line.strip():
            continue
        try:
            yield "", parse_json(line)
        except (ValueError, RecursionError) as error:
            yield "", error


def _window(stream: BinaryIO) -> JsonWindow:
    # A read may end in the middle of a letter.
    decoder = codecs.getincrementaldecoder("utf-8-sig")()

    def read(size: int) -> str:
        data = stream.read(size)
        return decoder.decode(data, final=not data)

    return JsonWindow(read, block=BLOCK_BYTES, most=MAX_ITEM_CHARS, skipped=_SPACE_AND_COMMAS)


def _items(window: JsonWindow) -> Iterator[KeyedItem]:
    """Yield (key, item) of the top-level list or object, and of what follows it: JSON lines in a
    .json file. A single how-to text is one item."""
    try:
        opening = _next_character(window)
        if opening == "[":
            yield from _items_of_list(window)
        elif opening == "{":
            yield from _items_by_key(window)
        else:
            raise JsonError(f"starts with {opening!r}, not with a list or an object")
        while window.peek():
            yield "", window.value()
    except JsonError as error:
        yield "", error


def _next_character(window: JsonWindow) -> str:
    """Return the next character that is not a space or comma, and step over it."""
    character = window.peek()
    if not character:
        raise JsonError("the file ends too early")
    window.place += 1
    return character


def _items_of_list(window: JsonWindow) -> Iterator[KeyedItem]:
    while window.peek() != "]":
        yield "", window.value()
    window.place += 1


def _items_by_key(window: JsonWindow) -> Iterator[KeyedItem]:
    """Yield the values of an object by key. An object that has steps itself is one item, without a
    key."""
    fields: dict[str, object] = {}  # of one text
    while window.peek() != "}":
        key = window.value()
        if not isinstance(key, str) or _next_character(window) != ":":
            raise JsonError("an object's key and colon are expected")
        # A key such as "recipes" holds all items.
        if key in WRAPPER_KEYS and window.peek() in ("[", "{"):
            opening = _next_character(window)
            yield from _items_of_list(window) if opening == "[" else _items_by_key(window)
            continue
        value = window.value()
        # After the first field of a text, all that follows belongs to it.
        if fields or key in TEXT_KEYS:
            fields[key] = value
        elif isinstance(value, list):
            yield key, {"steps": value}
        elif isinstance(value, dict):
            yield key, value
        else:
            fields[key] = value
    window.place += 1
    # Only an object with steps of its own is a text.
    if not fields.keys().isdisjoint((*STEP_FIELDS, *NESTED_FIELDS)):
        yield "", fields


_HEADING_LINE = re.compile(r"^#{1,6}\s+(.*)$")
_COLON_HEADING = re.compile(r"^([A-Z][\w ]{2,40}):$")
_UNDERLINE_LINE = re.compile(r"^(=+|-{3,})$")
_NUMBERED_LINE = re.compile(
    r"^\s*(?:\(?\d{1,3}\s*[.)]|step\s+\d{1,3}\s*[.:)-]?)\s+(.*)$", re.IGNORECASE
)
_BULLET_LINE = re.compile(r"^\s*[-*+•‣]\s+(.*)$")
_INGREDIENT_HEADINGS = re.compile(
    r"\b(ingredients?|materials?|supplies|tools|you(?:'ll)? (?:will )?need|parts list)\b",
    re.IGNORECASE,
)
_FIELD_LINE = re.compile(r"^(title|licence|license|source|url|link)\s*:\s*(.+)$", re.IGNORECASE)
_FENCE_LINE = "---"


def read_text(file: SourceFile) -> Iterator[DocumentOrRejected]:
    """Yield the document of a text file, or why it was left out. Raises DatasetError when it cannot
    be opened.

    Numbered items are the steps. Without any, they are the bullets outside lists of ingredients and
    materials. Without these, they are the sentences of the paragraphs. The title is the first
    heading, else the file's name.
    """
    # A character of UTF-8 has at most four bytes.
    most = 4 * file.settings.longest_document  # bytes
    try:
        with open_unpacked(file.path) as stream:
            data = stream.read(most + 1)
    except FILE_DAMAGE as error:
        yield file.reject("file cut off", _shorten_reason(error))
        return
    if len(data) > most:
        yield file.reject("document too long", f"more than {most} bytes")
    elif b"\0" in data:
        yield file.reject("binary junk")
    else:
        try:
            text = data.decode("utf-8-sig")
            yield from read_item(_parse_text(text), file.stem, file)
        except UnicodeDecodeError:
            yield file.reject("not UTF-8")


def _parse_text(text: str) -> dict[str, object]:
    """Return title, steps, ingredients and the fields of a front matter."""
    fields, lines = _front_matter(text.splitlines())
    title = ""
    is_ingredients = False  # within a list of ingredients or materials
    blocks: dict[str, list[str]] = {"numbered": [], "bullets": [], "paragraphs": [], "needs": []}
    current_block: list[str] = []  # whose last item a wrapped line continues
    for line, next_line in zip_longest(lines, lines[1:], fillvalue=""):
        heading = _heading(line, next_line)
        stripped = line.strip()
        if heading is not None:
            title = title or heading
            is_ingredients = _INGREDIENT_HEADINGS.search(heading) is not None
            current_block = []
        elif not stripped:
            current_block = []
        elif not _UNDERLINE_LINE.match(stripped):
            kind, text = _classify_line(line)
            if kind == "paragraphs" and current_block:
                current_block[-1] += f" {stripped}"
            else:
                current_block = blocks["needs" if is_ingredients else kind]
                current_block.append(text)
    # Numbers mark steps better than bullets, and those better than paragraphs.
    steps = blocks["numbered"] or blocks["bullets"] or blocks["paragraphs"]
    return {"title": title, "steps": steps, "ingredients": blocks["needs"]} | fields


def _classify_line(line: str) -> tuple[str, str]:
    """Return the kind of a line, and its text without the list mark."""
    if match := _NUMBERED_LINE.match(line):
        return "numbered", match[1]
    if match := _BULLET_LINE.match(line):
        return "bullets", match[1]
    return "paragraphs", line.strip()


def _heading(line: str, next_line: str) -> str | None:
    text = line.strip()
    if match := _HEADING_LINE.match(line) or _COLON_HEADING.match(text):
        return match[1].strip("# ")
    is_underlined = _UNDERLINE_LINE.match(next_line.strip()) is not None
    return text if text and is_underlined and not _BULLET_LINE.match(line) else None


def _front_matter(lines: list[str]) -> tuple[dict[str, object], list[str]]:
    """Return the known fields between two lines of `---` at the top, and the lines after them."""
    stripped = [line.strip() for line in lines]
    if stripped[:1] != [_FENCE_LINE] or _FENCE_LINE not in stripped[1:]:
        return {}, lines
    end = stripped.index(_FENCE_LINE, 1)
    fields: dict[str, object] = {}
    for line in stripped[1:end]:
        if match := _FIELD_LINE.match(line):
            fields[match[1].lower()] = match[2].strip("\"' ")
    return fields, lines[end + 1 :]
