"""Files of the parts of a run: paired videos, and records.

Each file is named by the part's number and a digest of all inputs that decide its bytes. So a run
that was killed finds the finished files by name, and continues. A file is written whole or not at
all.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from stepline.errors import StoreError, first_line
from stepline.files.atomic_files import remove_file, remove_partial_files
from stepline.files.parquet import ParquetError, ParquetReader, write_rows
from stepline.records import Record
from stepline.storage import to_json

# folders of a run's output
TRAIN_SPLIT = "train"
VALIDATION_SPLIT = "validation"
LEFT_OUT = "left_out"
PAIRS_FOLDER = "pairs"
PARTS_FOLDER = "parts"
RUN_FOLDERS = (TRAIN_SPLIT, VALIDATION_SPLIT, LEFT_OUT, PAIRS_FOLDER, PARTS_FOLDER)
DIGEST_DIGITS = 16  # hex digits of a digest in a file's name


@dataclass(frozen=True)
class PairedVideo:
    """The result of pairing one video with documents, one row of a pairs file.

    Attributes:
        video: id of the video.
        reason: why the video is excluded. None: it is included.
        split: "train" or "validation". None: the video is excluded or has no paired document.
        documents: numbers of the paired documents, the best one first.
        iou: token-IoU with each document.
        recall: token-recall with each document.
        evaluation: names of the evaluation sets that contain the video.
    """

    video: str
    reason: str | None
    split: str | None
    documents: list[int] = field(default_factory=list)
    iou: list[float] = field(default_factory=list)
    recall: list[float] = field(default_factory=list)
    evaluation: list[str] = field(default_factory=list)


def hash_values(*parts: object) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of the values, written as JSON."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]


def part_file_stem(number: int, *parts: object) -> str:
    """Return the common file name, without ending, of the files of a part.

    Args:
        number: number of the part, from 0.
        parts: all inputs that decide the files. Their digest is in the name.
    """
    return f"{number:05d}-{hash_values(*parts)}"


def write_pairs(rows: Sequence[PairedVideo], path: Path) -> None:
    """Write the documents that videos were paired with as a Parquet file, one row per video."""
    columns = {
        "video": "string",
        "reason": "string",
        "split": "string",
        "documents": "list:int64",
        "iou": "list:float64",
        "recall": "list:float64",
        "evaluation": "list:string",
    }
    write_rows(map(asdict, rows), columns, path, compression="snappy")


def read_pairs(path: Path) -> list[PairedVideo]:
    """Return the videos of a part and the documents that they were paired with, from the file that
    `write_pairs` wrote. Raises StoreError for a damaged file."""
    try:
        return [PairedVideo(**row) for row in ParquetReader(path).rows()]
    except (ParquetError, TypeError) as error:
        reason = first_line(error)
        raise StoreError(
            f"{path}: not a readable file of pairs ({reason}); remove it and run again"
        ) from error


def write_records(records: Sequence[Record], split: str, path: Path) -> None:
    """Write records as a Parquet file, sorted by id, which `read_parquet` can read.

    Args:
        records: the records.
        split: name of the split of all records, which is stored in a column.
        path: path of the file.
    """
    rows = [
        {
            "id": record.id,
            "video": record.video.id,
            "task": record.video.task,
            "split": split,
            "texts": [step.text for step in record.steps],
            "starts": [step.spans[0].start for step in record.steps],
            "ends": [step.spans[0].end for step in record.steps],
            "record": to_json(record),
        }
        for record in sorted(records, key=lambda record: record.id)
    ]
    names = ("id", "video", "task", "split", "texts", "starts", "ends", "record")
    lists = {"texts": "list:string", "starts": "list:float64", "ends": "list:float64"}
    write_rows(rows, dict.fromkeys(names, "string") | lists, path)


def remove_leftovers(out: Path, words: Path) -> None:
    """Remove the partial files of runs that were killed.

    Args:
        out: folder of the run.
        words: folder of the documents' content words.
    """
    for folder in (out, words, *(out / name for name in RUN_FOLDERS)):
        if folder.is_dir():
            remove_partial_files(folder)


def remove_stale_files(out: Path, files: Iterable[Path]) -> int:
    """Remove the part files that earlier runs with other inputs left, and return their number.

    Args:
        out: folder of the run.
        files: part files that are kept.
    """
    current = set(files)
    stale = []
    for folder in RUN_FOLDERS:
        # Only names that a run gives: a number and a digest.
        stale += sorted(set((out / folder).glob("[0-9]*-*.*")) - current)
    for file in stale:
        remove_file(file)
    return len(stale)
