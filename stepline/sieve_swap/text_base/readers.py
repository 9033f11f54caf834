"""Readers of how-to texts: csv (RecipeNLG), JSON, Parquet, plain text, and folders of them.

csv, Parquet   a text per row, read row by row. A list cell of csv is a JSON list (RecipeNLG) or a line
               per step. A row that breaks the rules of csv costs only itself
JSON           an object of texts by id, a list, JSON lines, or one text, read an item at a time:
               recipe collections, schema.org recipes (also in "@graph"), wikiHow-style articles
.txt, .md      a text per file, with numbered lists, headings and paragraphs

Names that end in .gz are unpacked.
"""

import codecs
import csv
import gzip
import lzma
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, cast

from stepline.errors import DatasetError
from stepline.files.atomic_files import files_below
from stepline.files.parquet import ParquetError, ParquetReader
from stepline.limits import parse_json
from stepline.records import Rejected, RejectedKind
from stepline.sieve_swap.text_base.base import Document
from stepline.sieve_swap.text_base.json_stream import JsonError, StreamingJsonReader
from stepline.sieve_swap.text_base.settings import TextBaseSettings
from stepline.sieve_swap.text_base.split_steps import split_into_steps, strip_markup

DocumentOrRejected = Document | Rejected

# The fields that hold something, by the names that forms of how-to texts give them.
TITLE_FIELDS = ("title", "name", "task_full_name", "recipe_name", "headline", "task", "heading")
STEP_FIELDS = (
    "steps",
    "directions",
    "instructions",
    "recipeInstructions",
    "recipe_instructions",
    "method",
    "procedure",
    "simplified_headline_list",
    "headlines",
    "headline_list",
    "step_list",
    "preparation",
    "sections",
    "methods",
)
PART_FIELDS = (
    "itemListElement",
    "steps",
    "text",
    "headline",
    "step",
    "description",
    "name",
    "content",
    "title",
)
ID_FIELDS = ("id", "slug", "recipe_id", "article_id", "")
SOURCE_FIELDS = ("url", "link", "source_url", "article_url", "video_url", "source")
LICENCE_FIELDS = ("licence", "license")
NESTED_FIELDS = ("task_text", "recipe", "article", "content")  # where some forms keep the rest
# a key that holds all items
WRAPPER_KEYS = ("@graph", "recipes", "articles", "data", "items", "database", "documents")
MAX_SECTION_DEPTH = 8  # levels of sections within sections
MAX_REASON_CHARS = 200  # of an error in the list of what was left out

BLOCK_BYTES = 1 << 16  # of JSON, read at a time
MAX_ITEM_CHARS = 16 << 20  # of one text in JSON
MAX_LINE_BYTES = 4 << 20  # of csv; a longer line is skipped unread
MAX_ROW_LINES = 1_000  # lines that one quoted row of csv may span
BATCH_ROWS = 1_000  # rows of a Parquet file in memory at a time

FILE_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)  # what a cut or broken file raises

# files about a folder, which hold no how-to texts
EXCLUDED_STEMS = (
    "readme",
    "license",
    "licence",
    "copying",
    "notice",
    "changelog",
    "source",
    "contributing",
)


@dataclass(frozen=True)
class SourceFile:
    """A file of how-to texts, with the settings for reading it.

    Attributes:
        path: path of the file.
        settings: limits on the length of documents and steps.
        licence: licence of the texts that state none themselves. None: unknown.
    """

    path: Path
    settings: TextBaseSettings
    licence: str | None

    def reject(
        self, reason: str, value: object = "", *, key: str = "", what: RejectedKind = "document"
    ) -> Rejected:
        """Return a rejected item of the file, with its location.

        Args:
            reason: why the item is left out.
            value: the offending value.
            key: key of the item in the file. "": the whole file is rejected.
            what: kind of the rejected thing.
        """
        location = f"{self.path.name}, {key}" if key else self.path.name
        return Rejected(what, reason, location=location, value=str(value)[:MAX_REASON_CHARS])


def read_source(
    path: Path, settings: TextBaseSettings = TextBaseSettings(), licence: str | None = None
) -> Iterator[DocumentOrRejected]:
    """Yield the documents of a source, and what was left out with the reason.

    The files of a folder are read in order of their names. Hidden files, and files about the folder
    such as README and LICENSE, are not read.

    Args:
        path: file or folder of how-to texts.
        settings: limits on the length of documents and steps.
        licence: licence of the texts whose file states none. None: unknown.

    Raises DatasetError when there is nothing to read.
    """
    for file in source_files(path):
        source_file = SourceFile(file, settings, licence)
        try:
            yield from READER_OF_SUFFIX[text_suffix(file)](source_file)
        except UnicodeDecodeError as error:
            yield source_file.reject("not UTF-8", error)
        except (*FILE_DAMAGE, ParquetError) as error:
            yield source_file.reject("file cut off", error)


def source_files(path: Path) -> list[Path]:
    """Return the sorted files of a source. Raises DatasetError if there is no file."""
    suffixes = ", ".join(READER_OF_SUFFIX)
    if not path.exists():
        raise DatasetError(f"{path}: no such file or folder; give a text base's sources")
    if path.is_file():
        suffix = text_suffix(path)
        if suffix not in READER_OF_SUFFIX:
            name = repr(suffix or "without ending")
            raise DatasetError(f"{path}: form {name} unknown; known: {suffixes}")
        return [path]
    files = []
    for file in files_below(path):
        is_hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        is_text = text_suffix(file) in READER_OF_SUFFIX and file.stem.lower() not in EXCLUDED_STEMS
        if is_text and not is_hidden:
            files.append(file)
    if not files:
        raise DatasetError(f"{path}: holds no file that ends in {suffixes}")
    return files


def text_suffix(path: Path) -> str:
    """Return the suffix that states the format of a file, such as ".json" for recipes.json.gz."""
    return (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()


@contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """Yield a file opened for reading bytes, unpacked if its name ends in .gz.

    Raises DatasetError if the file cannot be opened.
    """
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DatasetError(
            f"{path}: cannot be read ({error.strerror}); give a file that can be"
        ) from error
    with raw, gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw as file:
        yield cast(BinaryIO, file)


# ---------------------------------------------------------------- one text, in any form


def read_item(item: object, key: str, file: SourceFile) -> Iterator[DocumentOrRejected]:
    """Yield the rejected parts of one how-to text, then its Document if a step remains.

    Args:
        item: the how-to text, as a JSON, csv or Parquet file holds it.
        key: key of the text in its file, such as "row N" in a csv file.
        file: the file that holds it.
    """
    if not isinstance(item, Mapping):
        yield file.reject("not a document", type(item).__name__, key=key)
        return
    fields = _merge_nested_fields(item)
    texts = list(flatten_texts(first_field(fields, STEP_FIELDS), 0))
    size = sum(map(len, texts))
    if size > file.settings.longest_document:
        yield file.reject("document too long", f"{size} characters", key=key)
        return
    # A text may hold several steps.
    steps: list[str] = []
    for step in (step for text in texts for step in split_into_steps(text)):
        if len(step) <= file.settings.longest_step:
            steps.append(step)
        else:
            yield file.reject("step too long", f"{len(step)} characters", key=key, what="step")
    if not steps:
        yield file.reject("no steps", f"fields {', '.join(map(str, item))}", key=key)
        return
    id = to_one_line(first_field(fields, ID_FIELDS)) or key.removeprefix("row ")
    if id.isdigit():  # a bare number gets the file's name before it
        id = f"{_bare_stem(file.path)}-{id}"
    title = to_one_line(first_field(fields, TITLE_FIELDS)) or key.replace("-", " ").replace(
        "_", " "
    )
    yield Document.from_texts(
        id,
        title,
        steps,
        to_one_line(first_field(fields, SOURCE_FIELDS)) or file.path.name,
        to_one_line(first_field(fields, LICENCE_FIELDS)) or file.licence,
    )


def _bare_stem(path: Path) -> str:
    """Return the name of a file without all its endings: recipes for recipes.json.gz."""
    name = path.name
    while (ending := Path(name).suffix) and len(ending) <= 9 and Path(name).stem:
        name = Path(name).stem
    return name


def first_field(fields: Mapping[str, object], names: Sequence[str]) -> object:
    """Return the value of the first non-empty field among `names`, or None."""
    values = (fields.get(name) for name in names)
    return next((value for value in values if value not in (None, "", [], {})), None)


def flatten_texts(value: object, depth: int) -> Iterator[str]:
    """Yield the strings in a nested value: a string, a list, or sections of steps.

    depth: nesting level of `value`, 0 for the outermost value. Levels from MAX_SECTION_DEPTH on are
    left out.
    """
    if isinstance(value, str):
        yield value
    elif depth >= MAX_SECTION_DEPTH:
        return
    elif isinstance(value, Mapping):
        yield from flatten_texts(first_field(value, PART_FIELDS), depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for part in value:
            yield from flatten_texts(part, depth + 1)


def to_one_line(value: object) -> str:
    """Return a text or number as one line without markup. "" for any other value."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    # Cut before it is cleaned, which takes time, and again after.
    return " ".join(strip_markup(str(value)[:2_000]).split())[:500]


def _merge_nested_fields(item: Mapping[object, object]) -> dict[str, object]:
    fields = {str(key): value for key, value in item.items()}
    for name in NESTED_FIELDS:
        inner = fields.get(name)
        if isinstance(inner, Mapping):
            # The outer fields win.
            fields = {str(key): value for key, value in inner.items()} | fields
    return fields


# ---------------------------------------------------------------- tables


def _read_csv(file: SourceFile) -> Iterator[DocumentOrRejected]:
    with open_unpacked(file.path) as stream:
        rows = _read_csv_rows(stream)
        try:
            first_row = next(rows, "empty file")
        except FILE_DAMAGE as error:
            raise DatasetError(f"{file.path}: not readable ({error}); download it again") from error
        header: list[str] = []
        if not isinstance(first_row, str):
            header = [name.strip().lstrip("\ufeff") for name in first_row]
        _require_step_column(file.path, header, STEP_FIELDS)
        for number, row in enumerate(rows, start=1):
            key = f"row {number}"
            if isinstance(row, str):
                yield file.reject(row, key=key)
            elif len(row) != len(header):
                columns = f"{len(row)} instead of {len(header)}"
                yield file.reject("wrong number of columns", columns, key=key)
            else:
                fields: dict[str, object] = dict(zip(header, row, strict=True))
                try:
                    # A list of steps may be JSON in its cell.
                    for name in set(header).intersection(STEP_FIELDS):
                        text = str(fields[name])
                        if text.lstrip().startswith("["):
                            fields[name] = parse_json(text)
                except (ValueError, RecursionError) as error:
                    yield file.reject("broken list cell", f"{name}: {error}", key=key)
                else:
                    yield from read_item(fields, key, file)


def _require_step_column(path: Path, columns: Sequence[str], names: Sequence[str]) -> None:
    if not set(columns).intersection(names):
        known = ", ".join(STEP_FIELDS[:4])
        raise DatasetError(f"{path}: no column of steps; the header must name one of {known}")


def _read_csv_rows(file: BinaryIO) -> Iterator[list[str] | str]:
    """Yield each row of a csv file as its cells, or as the reason why the row is left out."""
    # The limit is the whole process's, so it is never lowered.
    csv.field_size_limit(max(csv.field_size_limit(), 2 * MAX_LINE_BYTES))
    ahead: deque[bytes] = deque()  # lines behind an open quote, which are read again
    while line := ahead.popleft() if ahead else _read_line(file):
        if not line.strip():
            continue
        # A cell in quotes may hold line breaks. An odd number of quotes is still open.
        lines = [line]
        quote_count = line.count(b'"')
        while quote_count % 2 and len(lines) < MAX_ROW_LINES:
            line = ahead.popleft() if ahead else _read_line(file)
            if not line or sum(map(len, lines)) > MAX_LINE_BYTES:
                break
            lines.append(line)
            quote_count += line.count(b'"')
        data = b"".join(lines)
        if len(lines[0]) >= MAX_LINE_BYTES:
            yield "line too long"
        elif quote_count % 2:
            ahead.extendleft(reversed(lines[1:]))
            yield "quote never closed"
        elif b"\0" in data:
            yield "binary junk"
        else:
            try:
                yield next(csv.reader([data.decode("utf-8")], strict=True))
            except UnicodeDecodeError:
                yield "not UTF-8"
            except csv.Error:
                yield "broken csv row"


def _read_line(file: BinaryIO) -> bytes:
    """Return the next line, cut at MAX_LINE_BYTES, or b"" at the end of the file."""
    line = remainder = file.readline(MAX_LINE_BYTES)
    while len(remainder) == MAX_LINE_BYTES and not remainder.endswith(b"\n"):
        remainder = file.readline(MAX_LINE_BYTES)
    return line


def _read_parquet(file: SourceFile) -> Iterator[DocumentOrRejected]:
    try:
        table = ParquetReader(file.path)
    except ParquetError as error:
        raise DatasetError(f"{file.path}: not a Parquet file ({error}); write it again") from error
    step_columns = (*STEP_FIELDS, *NESTED_FIELDS)
    _require_step_column(file.path, table.columns, step_columns)
    known = {*step_columns, *TITLE_FIELDS, *ID_FIELDS, *SOURCE_FIELDS, *LICENCE_FIELDS}
    columns = [name for name in table.columns if name in known]
    for number, item in enumerate(table.rows(columns, BATCH_ROWS)):
        yield from read_item(item, str(number), file)


# ---------------------------------------------------------------- JSON

KeyedItem = tuple[str, object]  # the key in its file, "" where it has none


def _read_json(file: SourceFile) -> Iterator[DocumentOrRejected]:
    with open_unpacked(file.path) as stream:
        if text_suffix(file.path) in (".jsonl", ".ndjson"):
            items = _read_json_lines(stream)
        else:
            items = _read_json_items(_open_json_reader(stream))
        for number, (key_of_item, item) in enumerate(items):
            key = key_of_item or str(number)
            if isinstance(item, Exception):
                yield file.reject("broken JSON", item.__cause__ or item, key=key)
            else:
                yield from read_item(item, key, file)


def _read_json_lines(stream: BinaryIO) -> Iterator[KeyedItem]:
    while line := stream.readline(MAX_ITEM_CHARS):
        if not line.strip():
            continue
        try:
            yield "", parse_json(line)
        except (ValueError, RecursionError) as error:
            yield "", error


def _open_json_reader(stream: BinaryIO) -> StreamingJsonReader:
    # A read may end in the middle of a letter.
    decoder = codecs.getincrementaldecoder("utf-8-sig")()

    def read(size: int) -> str:
        data = stream.read(size)
        return decoder.decode(data, final=not data)

    return StreamingJsonReader(
        read, block=BLOCK_BYTES, max_value_chars=MAX_ITEM_CHARS, skipped=re.compile(r"[\s,]*")
    )


def _read_json_items(reader: StreamingJsonReader) -> Iterator[KeyedItem]:
    """Yield (key, item) of the top-level list or object of a JSON text.

    A single how-to text is one item. Further values after the first are items too, so that JSON
    lines in a .json file can be read.
    """
    try:
        yield from _read_items(reader)
        while reader.peek():
            yield "", reader.read_value()
    except JsonError as error:
        yield "", error


def _consume_character(reader: StreamingJsonReader) -> str:
    """Read the next character that is no space or comma, and return it."""
    character = reader.peek()
    if not character:
        raise JsonError("the file ends too early")
    reader.position += 1
    return character


def _read_items(reader: StreamingJsonReader) -> Iterator[KeyedItem]:
    """Yield (key, item) of the list or object that begins next."""
    opening = _consume_character(reader)
    if opening == "{":
        yield from _read_object_items(reader)
    elif opening == "[":
        while reader.peek() != "]":
            yield "", reader.read_value()
        reader.position += 1
    else:
        raise JsonError(f"starts with {opening!r}, not with a list or an object")


def _read_object_items(reader: StreamingJsonReader) -> Iterator[KeyedItem]:
    """Yield (key, value) of each entry of an object.

    An object that has steps itself is yielded as one item, without a key.
    """
    fields: dict[str, object] = {}  # of one text
    own_steps = (*STEP_FIELDS, *NESTED_FIELDS)
    while reader.peek() != "}":
        key = reader.read_value()
        if not isinstance(key, str) or _consume_character(reader) != ":":
            raise JsonError("an object's key and colon are expected")
        # A key such as "recipes" holds all items.
        if key in WRAPPER_KEYS and reader.peek() in ("[", "{"):
            yield from _read_items(reader)
            continue
        value = reader.read_value()
        # After the first field of a text, what follows may belong to it.
        if fields or key in own_steps or not isinstance(value, list | dict):
            fields[key] = value
        else:
            yield key, {"steps": value} if isinstance(value, list) else value
    reader.position += 1
    if not fields.keys().isdisjoint(own_steps):
        yield "", fields
        return
    # Without steps of its own it is no text: its objects are, such as those after a version.
    for key, value in fields.items():
        if isinstance(value, dict):
            yield key, value


# ---------------------------------------------------------------- plain text

_HEADING_LINE = re.compile(r"^#{1,6}\s+(.*)$")
_COLON_HEADING = re.compile(r"^([A-Z][\w ]{2,40}):$")
_UNDERLINE_LINE = re.compile(r"^(=+|-{3,})$")
_NUMBERED_LINE = re.compile(
    r"^\s*(?:\(?\d{1,3}\s*[.)]|step\s+\d{1,3}\s*[.:)-]?)\s+(.*)$", re.IGNORECASE
)
_BULLET_LINE = re.compile(r"^\s*[-*+•‣]\s+(.*)$")
_MATERIAL_HEADING = re.compile(
    r"\b(ingredients?|materials?|supplies|tools|you(?:'ll)? (?:will )?need|parts list)\b",
    re.IGNORECASE,
)
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|$)", re.DOTALL)
_FRONT_MATTER_FIELD = re.compile(
    r"^(title|licence|license|source|url|link)\s*:\s*(.+)$", re.I | re.M
)


def _read_text(file: SourceFile) -> Iterator[DocumentOrRejected]:
    """Yield the document in a text file, or why it was left out.

    The steps are the numbered items. A text without numbered items gives its bullets, except those
    in lists of ingredients and materials. A text without bullets gives the sentences of its
    paragraphs. The title is the first heading, else the name of the file.
    """
    # A character of UTF-8 has at most four bytes.
    max_bytes = 4 * file.settings.longest_document
    with open_unpacked(file.path) as stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        yield file.reject("document too long", f"more than {max_bytes} bytes")
    elif b"\0" in data:
        yield file.reject("binary junk")
    else:
        yield from read_item(_parse_markdown(data.decode("utf-8-sig")), file.path.stem, file)


def _parse_markdown(text: str) -> dict[str, object]:
    """Return the title, the steps and the YAML front matter of a Markdown or plain text, by field name.

    "title" is the first heading, "" without one. "steps" are the items of numbered lists, else of
    bulleted lists, else the paragraphs. Each `name: value` line of the front matter is a field.
    """
    fields: dict[str, object] = {}
    front_matter = _FRONT_MATTER.match(text)
    if front_matter:
        text = text[front_matter.end() :]
        for name, value in _FRONT_MATTER_FIELD.findall(front_matter[1]):
            fields[name.lower()] = value.strip("\"' ")
    lines = text.splitlines()
    title = ""
    is_materials = False  # within a list of ingredients or materials
    blocks: dict[str, list[str]] = {"numbered": [], "bullets": [], "paragraphs": []}
    current_block: list[str] = []  # whose last item a wrapped line continues
    for line, next_line in zip_longest(lines, lines[1:], fillvalue=""):
        heading = _heading_text(line, next_line)
        stripped = line.strip()
        if heading is not None:
            title = title or heading
            is_materials = _MATERIAL_HEADING.search(heading) is not None
            current_block = []
        elif not stripped:
            current_block = []
        elif not _UNDERLINE_LINE.match(stripped):
            kind, item = _classify_line(line)
            if kind == "paragraphs" and current_block:
                current_block[-1] += f" {stripped}"
            else:
                current_block = [] if is_materials else blocks[kind]
                current_block.append(item)
    # Numbers mark steps better than bullets, and those better than paragraphs.
    return {"title": title, "steps": next(filter(None, blocks.values()), [])} | fields


def _classify_line(line: str) -> tuple[str, str]:
    """Return "numbered", "bullets" or "paragraphs", and the line's text without the list mark."""
    if match := _NUMBERED_LINE.match(line):
        return "numbered", match[1]
    if match := _BULLET_LINE.match(line):
        return "bullets", match[1]
    return "paragraphs", line.strip()


def _heading_text(line: str, next_line: str) -> str | None:
    text = line.strip()
    if match := _HEADING_LINE.match(line) or _COLON_HEADING.match(text):
        return match[1].strip("# ")
    is_underlined = _UNDERLINE_LINE.match(next_line.strip()) is not None
    return text if text and is_underlined and not _BULLET_LINE.match(line) else None


READER_OF_SUFFIX: dict[str, Callable[[SourceFile], Iterator[DocumentOrRejected]]] = {
    ".csv": _read_csv,
    ".json": _read_json,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".parquet": _read_parquet,
    ".txt": _read_text,
    ".md": _read_text,
    ".markdown": _read_text,
}
