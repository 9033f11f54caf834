"""The records of a folder, as people have corrected them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepline.errors import StoreError
from stepline.library.corrected_library import CorrectedLibrary, open_corrections, video_id
from stepline.library.record_files import record_files
from stepline.records import Record
from stepline.storage import read_record


def read_folder_records(folder: Path) -> Iterator[tuple[Path, Record | StoreError]]:
    """Yield the JSON files below a folder, sorted by path, each with its record, or with why it holds
    none.

    Raises StoreError where the folder is missing, or its corrections cannot be read.
    """
    with folder_corrections(folder) as corrections:
        for name in record_files(folder):
            try:
                record = read_record(folder / name)
            except StoreError as error:
                yield folder / name, error
                continue
            yield folder / name, corrected(record, name, corrections)


@contextmanager
def folder_corrections(folder: Path) -> Iterator[CorrectedLibrary | None]:
    """Yield the corrections of a folder, None where it has none. Raises StoreError where it is
    missing."""
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; give a folder that `stepline steps` wrote")
    corrections = open_corrections(folder)
    try:
        yield corrections
    finally:
        if corrections is not None:
            corrections.close()


def corrected(record: Record, name: str, corrections: CorrectedLibrary | None) -> Record:
    """Return the record in the file `name` as people have corrected it."""
    # Without corrections, the database is not asked for the record.
    if corrections is None or not corrections.revision(video_id(name)):
        return record
    return corrections.corrected_record(name)


def read_corrected_record(path: Path) -> Record:
    """Return the record in a file, as people have corrected it in the library of its folder.

    Raises StoreError where the file holds no record.
    """
    record = read_record(path)
    with folder_corrections(path.parent) as corrections:
        return corrected(record, path.name, corrections)
