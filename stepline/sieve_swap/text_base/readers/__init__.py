"""Readers of how-to texts: RecipeNLG's csv, JSON of recipes and articles, Parquet, plain text, and
folders of them."""

from collections.abc import Callable, Iterator
from pathlib import Path

from stepline.errors import DatasetError
from stepline.files.atomic_files import files_below
from stepline.sieve_swap.text_base.documents import DocumentOrRejected
from stepline.sieve_swap.text_base.readers.documents import read_json, read_text
from stepline.sieve_swap.text_base.readers.item import SourceFile, file_format
from stepline.sieve_swap.text_base.readers.tables import read_csv, read_parquet
from stepline.sieve_swap.text_base.settings import TextBaseSettings

READER_OF_FORMAT: dict[str, Callable[[SourceFile], Iterator[DocumentOrRejected]]] = {
    ".csv": read_csv,
    ".json": read_json,
    ".jsonl": read_json,
    ".ndjson": read_json,
    ".parquet": read_parquet,
    ".txt": read_text,
    ".md": read_text,
    ".markdown": read_text,
}

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


def read_source(
    path: Path, settings: TextBaseSettings | None = None, licence: str | None = None
) -> Iterator[DocumentOrRejected]:
    """Yield the documents of a file, or of a folder's files by name, and what was left out with its
    reason.

    A folder's hidden files and those about it (README, LICENSE...) are not sources. licence: of
    lines whose file states none. Raises DatasetError when there is nothing to read.
    """
    settings = settings or TextBaseSettings()
    for file in source_files(path):
        yield from READER_OF_FORMAT[file_format(file)](SourceFile(file, settings, licence))


def source_files(path: Path) -> list[Path]:
    """Return the files that a source is made of, sorted. Raises DatasetError for none."""
    if not path.exists():
        raise DatasetError(f"{path}: no such file or folder; give a text base's sources")
    if path.is_file():
        ending = file_format(path)
        if ending not in READER_OF_FORMAT:
            raise DatasetError(
                f"{path}: form {ending or 'without ending'!r} unknown; "
                f"known: {', '.join(READER_OF_FORMAT)}"
            )
        return [path]
    files = []
    for file in files_below(path):
        is_hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        is_text = file_format(file) in READER_OF_FORMAT and file.stem.lower() not in EXCLUDED_STEMS
        if is_text and not is_hidden:
            files.append(file)
    if not files:
        raise DatasetError(f"{path}: holds no file that ends in {', '.join(READER_OF_FORMAT)}")
    return files
