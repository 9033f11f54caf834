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
from pathlib import Path
from typing import BinaryIO, cast

from stepline.errors import DatasetError
from stepline.records import Rejected
from stepline.text_base.documents import Document, DocumentOrRejected, TextStep
from stepline.text_base.settings import TextBaseSettings
from stepline.text_base.split_steps import single_steps, strip_markup

TITLES = ("title", "name", "task_full_name", "recipe_name", "headline", "task", "heading")
STEPS = (
    *(
        "steps",
        "directions",
        "instructions",
        "recipeInstructions",
        "recipe_instructions",
        "method",
        "procedure",
    ),
    *(
        "simplified_headline_list",
        "headlines",
        "headline_list",
        "step_list",
        "preparation",
        "sections",
        "methods",
    ),
)
PARTS = (
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
INGREDIENTS = (
    "ingredients",
    "recipeIngredient",
    "recipe_ingredients",
    "materials",
    "supplies",
    "tools",
)
IDS = ("id", "slug", "recipe_id", "article_id", "")
SOURCES = ("url", "link", "source_url", "article_url", "video_url", "source")
LICENCES = ("licence", "license")
NESTED = ("task_text", "recipe", "article", "content")  # where some forms keep the rest
DEEPEST = 8  # levels of sections within sections


@dataclass(frozen=True)
class ItemLocation:
    """Where an item stands: file, name of the file without endings, key or row, licence that the
    caller stated."""

    file: str
    stem: str
    key: str
    licence: str | None = None

    def __str__(self) -> str:
        return f"{self.file}, {self.key}"


def read_item(
    item: object, place: ItemLocation, settings: TextBaseSettings
) -> Iterator[DocumentOrRejected]:
    """Yield what was left out of an item, then its Document if one step remains."""
    if not isinstance(item, Mapping):
        yield Rejected("document", "not a document", location=str(place), value=type(item).__name__)
        return
    fields = _flat(item)
    texts = list(strings(first(fields, STEPS), 0))
    if (size := sum(map(len, texts))) > settings.longest_document:
        yield Rejected(
            "document", "document too long", location=str(place), value=f"{size} characters"
        )
        return
    steps: list[str] = []
    for step in (step for text in texts for step in single_steps(text)):
        if len(step) <= settings.longest_step:
            steps.append(step)
        else:
            yield Rejected(
                "step", "step too long", location=str(place), value=f"{len(step)} characters"
            )
    if not steps:
        yield Rejected(
            "document",
            "no steps",
            location=str(place),
            value=f"fields {', '.join(map(str, item))}"[:200],
        )
        return
    yield _document(fields, steps, place)


def _document(fields: Mapping[str, object], steps: Sequence[str], place: ItemLocation) -> Document:
    identity = identify(one_line(first(fields, IDS)) or place.key, place.stem)
    source = one_line(first(fields, SOURCES)) or place.file
    licence = one_line(first(fields, LICENCES)) or place.licence
    title = one_line(first(fields, TITLES)) or place.key.replace("-", " ").replace("_", " ")
    lines = tuple(
        TextStep(f"{identity}#{n}", step, identity, n, source, licence)
        for n, step in enumerate(steps)
    )
    ingredients = tuple(
        one_line(text) for text in strings(first(fields, INGREDIENTS), 0) if one_line(text)
    )
    return Document(identity, title, lines, source, licence, ingredients)


def identify(key: str, stem: str) -> str:
    """Return a document's id: its own key; a bare number gets the file's name before it, as
    "recipes-12"."""
    return f"{stem}-{key}" if key.isdigit() else key


def first(fields: Mapping[str, object], names: Sequence[str]) -> object:
    """Return the first field among `names` that holds something, else None."""
    return next(
        (fields[name] for name in names if fields.get(name) not in (None, "", [], {})), None
    )


def strings(value: object, depth: int) -> Iterator[str]:
    """Yield the texts in a string, a list, or a list of sections and steps, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and depth < DEEPEST:
        yield from strings(first(value, PARTS), depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and depth < DEEPEST:
        for part in value:
            yield from strings(part, depth + 1)


def one_line(value: object) -> str:
    """Return a text or number as one clean line; "" for anything else."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    return " ".join(strip_markup(str(value)[:2_000]).split())[:500]


def _flat(item: Mapping[object, object]) -> dict[str, object]:
    """Return the fields, those of a nested part taking second place."""
    fields = {str(key): value for key, value in item.items()}
    for name in NESTED:
        inner = fields.get(name)
        if isinstance(inner, Mapping):
            fields = {**{str(key): value for key, value in inner.items()}, **fields}
    return fields


DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)  # what a cut or broken file raises
ENDINGS = (".gz",)


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Yield a file's bytes, unpacked where its name ends in .gz. Raises DatasetError where it
    cannot be opened."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DatasetError(
            f"{path}: cannot be read ({error.strerror}); give a file that can be"
        ) from error
    with raw, gzip.GzipFile(fileobj=raw) if path.suffix in ENDINGS else raw as file:
        yield cast(BinaryIO, file)


def stem(path: Path) -> str:
    """Return a file's name without its endings: recipes for recipes.json.gz."""
    name = path.name
    while (ending := Path(name).suffix) and len(ending) <= 9 and Path(name).stem:
        name = Path(name).stem
    return name


def file_format(path: Path) -> str:
    """Return the ending that tells a file's form, .gz aside: ".json" for recipes.json.gz."""
    return (Path(path.stem) if path.suffix in ENDINGS else path).suffix.lower()
