"""The records of a folder, or of a search in it, as people have corrected them."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from stepline.errors import StoreError
from stepline.library.corrected_library import CorrectedLibrary, open_corrections, video_id
from stepline.library.record_files import record_files
from stepline.library.search import SearchIndex
from stepline.library.video_search import find_records
from stepline.progress import Progress
from stepline.records import Record
from stepline.storage import read_record

CURE = "give a folder that `stepline steps` wrote"


def read_folder(folder: Path) -> list[Record]:
    """Return the records below a folder, sorted by path; JSON files of other kinds are passed over.

    Raises StoreError where the folder is missing or holds no record.
    """
    records = []
    reason = ""
    with _corrected_library(folder) as corrections:
        for name in record_files(folder):
            try:
                record = read_record(folder / name)
            except StoreError as error:
                reason = f" (such as {error})"
                continue
            records.append(_corrected(record, name, corrections))
    if not records:
        raise StoreError(f"{folder}: holds no record{reason}; {CURE}")
    return records


def search_folder(
    folder: Path, query: str, *, most: int, progress: Progress | None = None
) -> list[Record]:
    """Return the records below a folder whose videos answer a query, the best first.

    most: how many at most. Raises StoreError where the folder is missing or no video answers,
    ModelError without the weights of MiniLM, and SettingsError for a query without a word.
    """
    with _corrected_library(folder) as corrections:
        with closing(SearchIndex(folder, corrections=corrections)) as index:
            index.update(progress)
            names = find_records(index, query, most)
        records = []
        for name in names:
            record = read_record(folder / name)
            records.append(_corrected(record, name, corrections))
    if not records:
        cure = "ask in other words, or leave --query out"
        raise StoreError(f"{folder}: no video answers {query!r}; {cure}")
    return records


@contextmanager
def _corrected_library(folder: Path) -> Iterator[CorrectedLibrary | None]:
    """Yield the corrections of a folder, None where it has none."""
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; {CURE}")
    corrections = open_corrections(folder)
    try:
        yield corrections
    finally:
        if corrections is not None:
            corrections.close()


def _corrected(record: Record, name: str, corrections: CorrectedLibrary | None) -> Record:
    """Return the record in the file `name` as people have corrected it."""
    if corrections is None or not corrections.revision(video_id(name)):
        return record
    return corrections.corrected_record(name)
