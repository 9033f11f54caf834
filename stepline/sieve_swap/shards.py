"""Files of a run's output: each named by its place in the input and by a digest of all that decides its bytes.

A run that was killed finds what is done by these names, and goes on; a file is written whole or not at all.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from stepline.errors import StoreError
from stepline.records import Record
from stepline.store import atomic_path, remove, sweep, to_json

TRAIN, VALIDATION, LEFT_OUT = "train", "validation", "left_out"
PAIRS, PARTS = "pairs", "parts"
FOLDERS = (TRAIN, VALIDATION, LEFT_OUT, PAIRS, PARTS)
CUT = 16  # hex digits of a digest in a file's name


@dataclass(frozen=True)
class PairedVideo:
    """What pairing says of one video. reason: why it stays out, None where it comes in. Best document first."""

    video: str
    reason: str | None
    split: str | None
    documents: list[int] = field(default_factory=list)
    iou: list[float] = field(default_factory=list)
    recall: list[float] = field(default_factory=list)
    evaluation: list[str] = field(default_factory=list)


def digest(*parts: object) -> str:
    """Return a digest of plain values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:CUT]


def name(number: int, *parts: object) -> str:
    """Return the stem of a part's files: its number, then a digest of what decides them."""
    return f"{number:05d}-{digest(*parts)}"


def write_pairs(rows: Sequence[PairedVideo], path: Path) -> None:
    """Write what pairing found, a row a video, as Parquet."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    texts = arrow.list_(arrow.string())
    schema = arrow.schema(
        [
            ("video", arrow.string()),
            ("reason", arrow.string()),
            ("split", arrow.string()),
            ("documents", arrow.list_(arrow.int64())),
            ("iou", arrow.list_(arrow.float64())),
            ("recall", arrow.list_(arrow.float64())),
            ("evaluation", texts),
        ]
    )
    with atomic_path(path) as partial:
        parquet.write_table(arrow.Table.from_pylist([asdict(row) for row in rows], schema=schema), partial)


def read_pairs(path: Path) -> list[PairedVideo]:
    """Return the rows of a file of pairs. Raises StoreError for a damaged one."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        return [PairedVideo(**row) for row in parquet.read_table(path).to_pylist()]
    except (OSError, arrow.ArrowException, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path}: not a readable file of pairs ({reason}); remove it and run again") from error


def write_records(records: Sequence[Record], split: str, path: Path) -> None:
    """Write records as Parquet, sorted by id, with columns for their split and their texts; `read_parquet` reads it."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

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
    kinds = {"texts": arrow.list_(arrow.string()), "starts": arrow.list_(arrow.float64())}
    kinds["ends"] = kinds["starts"]
    columns = ("id", "video", "task", "split", "texts", "starts", "ends", "record")
    schema = arrow.schema([(column, kinds.get(column, arrow.string())) for column in columns])
    with atomic_path(path) as partial:
        parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), partial, compression="zstd")


def swept(out: Path) -> None:
    """Remove what killed runs left half-written."""
    for folder in (out, *(out / name for name in FOLDERS)):
        if folder.is_dir():
            sweep(folder)


def keep_only(out: Path, wanted: Iterable[Path]) -> int:
    """Remove files of earlier runs over other videos or texts; return how many. Only the run's own folders."""
    kept = set(wanted)
    stale = [file for file in _ours(out) if file not in kept]
    for file in stale:
        remove(file)
    return len(stale)


def _ours(out: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((out / folder).glob("[0-9]*-*.*"))
