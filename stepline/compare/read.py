"""The records of a folder, or of a search in it, as people have corrected them."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from stepline.errors import StoreError
from stepline.library.corrected_library import CorrectedLibrary, open_corrections, video_id
from stepline.library.record_files import record_files
from stepline.library.search import SearchIndex
from stepline.progress import Progress
from stepline.records import Record
from stepline.storage import read_record

FOLDER_CURE = "give a folder that `stepline steps` wrote"


def read_folder(folder: Path) -> list[Record]:
    """Return the records below a folder, sorted by path. JSON files of other kinds are passed over.

    Raises StoreError where the folder is missing or holds no record.
    """
    records = []
    reason = ""
    with _folder_corrections(folder) as corrections:
        for name in record_files(folder):
            try:
                records.append(_corrected(folder, name, corrections))
            except StoreError as error:
                reason = f" (such as {error})"
    if not records:
        raise StoreError(f"{folder}: holds no record{reason}; {FOLDER_CURE}")
    return records


def search_folder(
    folder: Path, query: str, *, most: int, progress: Progress | None = None
) -> list[Record]:
    """Return the records below a folder whose videos answer a query, the best first.

    most: how many at most. Raises StoreError where the folder is missing or no video answers,
    ModelError without the weights of MiniLM, and SettingsError for a query without a word.
    """
    # The index finds names, and the records are read as people have corrected them.
    with _folder_corrections(folder) as corrections:
        with closing(SearchIndex(folder, corrections=corrections)) as index:
            index.update(progress)
            names = index.search_videos(query, most)
        records = [_corrected(folder, name, corrections) for name in names]
    if not records:
        cure = "ask in other words, or leave --query out"
        raise StoreError(f"{folder}: no video answers {query!r}; {cure}")
    return records


@contextmanager
def _folder_corrections(folder: Path) -> Iterator[CorrectedLibrary | None]:
    """Yield the corrections of a folder, None where it has none. Raises StoreError where it is
    missing."""
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; {FOLDER_CURE}")
    corrections = open_corrections(folder)
    try:
        yield corrections
    finally:
        if corrections is not None:
            corrections.close()


def _corrected(folder: Path, name: str, corrections: CorrectedLibrary | None) -> Record:
    """Return the record in a file as people have corrected it."""
    record = read_record(folder / name)
    # Without corrections, the database is not asked for the record.
    if corrections is None or not corrections.revision(video_id(name)):
        return record
    return corrections.corrected_record(name)
