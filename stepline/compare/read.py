"""The records of a folder, as people have corrected them."""

from pathlib import Path

from stepline.errors import StoreError
from stepline.library.corrected_library import open_corrections, video_id
from stepline.library.record_files import record_files
from stepline.records import Record
from stepline.storage import read_record


def read_folder(folder: Path) -> list[Record]:
    """Return the records below a folder, sorted by path; JSON files of other kinds are passed over.

    Raises StoreError where the folder is missing or holds no record.
    """
    cure = "give a folder that `stepline steps` wrote"
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; {cure}")
    corrections = open_corrections(folder)
    records = []
    reason = ""
    try:
        for name in record_files(folder):
            try:
                record = read_record(folder / name)
            except StoreError as error:
                reason = f" (such as {error})"
                continue
            if corrections is not None and corrections.revision(video_id(name)):
                record = corrections.corrected_record(name)
            records.append(record)
    finally:
        if corrections is not None:
            corrections.close()
    if not records:
        raise StoreError(f"{folder}: holds no record{reason}; {cure}")
    return records
