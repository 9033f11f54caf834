"""The records of a folder, or of a search in it, as people have corrected them."""

from contextlib import closing
from pathlib import Path

from stepline.errors import StoreError
from stepline.library.folder_records import corrected, folder_corrections, read_folder_records
from stepline.library.search import SearchIndex
from stepline.library.video_search import find_records
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
    for _, record in read_folder_records(folder):
        if isinstance(record, Record):
            records.append(record)
        else:
            reason = f" (such as {record})"
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
    with folder_corrections(folder) as corrections:
        with closing(SearchIndex(folder, corrections=corrections)) as index:
            index.update(progress)
            names = find_records(index, query, most)
        records = []
        for name in names:
            record = read_record(folder / name)
            records.append(corrected(record, name, corrections))
    if not records:
        cure = "ask in other words, or leave --query out"
        raise StoreError(f"{folder}: no video answers {query!r}; {cure}")
    return records
