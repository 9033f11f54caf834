"""The records of a folder, as people have corrected them."""

from pathlib import Path

from stepline.errors import StoreError
from stepline.library.folder_records import read_folder_records
from stepline.records import Record


def read_folder(folder: Path) -> list[Record]:
    """Return the records below a folder, sorted by path; JSON files of other kinds are passed over.

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
        cure = "give a folder that `stepline steps` wrote"
        raise StoreError(f"{folder}: holds no record{reason}; {cure}")
    return records
