"""One how-to text as JSON, csv or Parquet hold it, made a Document: many names for a title and for
steps.

Also what all readers open files with: plain or gzip, errors in one line.
"""

import gzip
import lzma
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast

from stepline.errors import DatasetError
from stepline.records import Rejected, RejectedKind
from stepline.sieve_swap.text_base.documents import Document, DocumentOrRejected
from stepline.sieve_swap.text_base.settings import TextBaseSettings
from stepline.sieve_swap.text_base.split_steps import single_steps, strip_markup

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
INGREDIENT_FIELDS = (
    "ingredients",
    "recipeIngredient",
    "recipe_ingredients",
    "materials",
    "supplies",
    "tools",
)
ID_FIELDS = ("id", "slug", "recipe_id", "article_id", "")
SOURCE_FIELDS = ("url", "link", "source_url", "article_url", "video_url", "source")
LICENCE_FIELDS = ("licence", "license")
NESTED_FIELDS = ("task_text", "recipe", "article", "content")  # where some forms keep the rest
MAX_SECTION_DEPTH = 8  # levels of sections within sections


@dataclass(frozen=True)
class SourceFile:
    """A file of how-to texts, and how it is read. licence: of texts that state none themselves."""

    path: Path
    settings: TextBaseSettings
    licence: str | None = None

    @cached_property
    def stem(self) -> str:
        """Its name without endings: recipes for recipes.json.gz."""
        name = self.path.name
        while (ending := Path(name).suffix) and len(ending) <= 9 and Path(name).stem:
            name = Path(name).stem
        return name

    def reject(
        self, reason: str, value: str = "", *, key: str = "", what: RejectedKind = "document"
    ) -> Rejected:
        """Return a Rejected with its location. key: of the item, "" for the file."""
        location = f"{self.path.name}, {key}" if key else self.path.name
        return Rejected(what, reason, location=location, value=value)


def read_item(item: object, key: str, file: SourceFile) -> Iterator[DocumentOrRejected]:
    """Yield the rejected parts of an item, then its Document if one step remains.

    key: of the item in its file, or its row.
    """
    if not isinstance(item, Mapping):
        yield file.reject("not a document", type(item).__name__, key=key)
        return
    fields = _merge_nested_fields(item)
    texts = list(nested_texts(first(fields, STEP_FIELDS), 0))
    size = sum(map(len, texts))
    if size > file.settings.longest_document:
        yield file.reject("document too long", f"{size} characters", key=key)
        return
    # A text may hold several steps.
    steps: list[str] = []
    for step in (step for text in texts for step in single_steps(text)):
        if len(step) <= file.settings.longest_step:
            steps.append(step)
        else:
            yield file.reject("step too long", f"{len(step)} characters", key=key, what="step")
    if not steps:
        names = f"fields {', '.join(map(str, item))}"
        yield file.reject("no steps", names[:200], key=key)
        return
    yield _document(fields, steps, key, file)


def _document(
    fields: Mapping[str, object], steps: Sequence[str], key: str, file: SourceFile
) -> Document:
    identity = one_line(first(fields, ID_FIELDS)) or key
    if identity.isdigit():  # a bare number gets the file's name before it
        identity = f"{file.stem}-{identity}"
    source = one_line(first(fields, SOURCE_FIELDS)) or file.path.name
    licence = one_line(first(fields, LICENCE_FIELDS)) or file.licence
    title = one_line(first(fields, TITLE_FIELDS)) or key.replace("-", " ").replace("_", " ")
    ingredients = map(one_line, nested_texts(first(fields, INGREDIENT_FIELDS), 0))
    return Document.from_texts(identity, title, steps, source, licence, filter(None, ingredients))


def first(fields: Mapping[str, object], names: Sequence[str]) -> object:
    """Return the first non-empty field among `names`, or None."""
    return next(
        (fields[name] for name in names if fields.get(name) not in (None, "", [], {})), None
    )


def nested_texts(value: object, depth: int) -> Iterator[str]:
    """Yield the strings of a nested value: a string, a list, or sections of steps."""
    if isinstance(value, str):
        yield value
    elif depth >= MAX_SECTION_DEPTH:
        return
    elif isinstance(value, Mapping):
        yield from nested_texts(first(value, PART_FIELDS), depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for part in value:
            yield from nested_texts(part, depth + 1)


def one_line(value: object) -> str:
    """Return a text or number as one clean line, "" for anything else."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    # Cut before it is cleaned, which takes time, and again after.
    return " ".join(strip_markup(str(value)[:2_000]).split())[:500]


def _merge_nested_fields(item: Mapping[object, object]) -> dict[str, object]:
    """Return the fields, those of a nested part taking second place."""
    fields = {str(key): value for key, value in item.items()}
    for name in NESTED_FIELDS:
        inner = fields.get(name)
        if isinstance(inner, Mapping):
            # The outer fields win.
            fields = {str(key): value for key, value in inner.items()} | fields
    return fields


FILE_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)  # what a cut or broken file raises


@contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """Yield a file's bytes, unpacked where its name ends in .gz. Raises DatasetError where it
    cannot be opened."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DatasetError(
            f"{path}: cannot be read ({error.strerror}); give a file that can be"
        ) from error
    with raw, gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw as file:
        yield cast(BinaryIO, file)


def file_format(path: Path) -> str:
    """Return the ending that states a file's form, .gz aside: ".json" for recipes.json.gz."""
    return (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()
