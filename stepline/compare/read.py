"""The records of a folder, as people have corrected them."""

from pathlib import Path

from stepline.compare.procedure import LeftOutVideo
from stepline.errors import StoreError
from stepline.library.corrected_library import CorrectedLibrary, open_corrections, video_id
from stepline.library.record_files import record_files
from stepline.records import Record
from stepline.storage import DamagedRecordError, read_record

FOLDER_CURE = "give a folder that `stepline steps` wrote"


def read_folder(folder: Path) -> tuple[list[Record], list[LeftOutVideo]]:
    """Return the records in a folder with the corrections of people, sorted by path.

    The second value lists the records that cannot be read. Other JSON files are ignored. Raises
    StoreError if the folder is missing or has no record.
    """
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; {FOLDER_CURE}")
    corrections = open_corrections(folder)
    records = []
    damaged = []
    reason = ""
    try:
        for name in record_files(folder):
            try:
                records.append(_corrected_record(folder, name, corrections))
            except DamagedRecordError as error:
                reason = f" (such as {error})"
                path = Path(name)
                damaged.append(LeftOutVideo(id=path.stem, title=path.name, reason=str(error)))
            except StoreError as error:
                reason = f" (such as {error})"
    finally:
        if corrections is not None:
            corrections.close()
    if not records:
        raise StoreError(f"{folder}: holds no record{reason}; {FOLDER_CURE}")
    return records, damaged


def _corrected_record(folder: Path, name: str, corrections: CorrectedLibrary | None) -> Record:
    record = read_record(folder / name)
    # Without corrections, the database is not asked for the record.
    if corrections is None or not corrections.revision(video_id(name)):
        return record
    return corrections.corrected_record(name)
