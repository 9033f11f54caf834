"""What the dataset stages hand on, one folder each.

records.parquet    Records sorted by id, as `stepline.store.read_parquet` reads them
left_out.jsonl     a line an item that is not among them: id, stage, kind, reason; sorted by id
features           a feature store of the videos (of `gather` alone)
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from stepline.curate.stage import Failure, Gathered
from stepline.errors import StoreError
from stepline.records import Record
from stepline.store import read_parquet, write_atomic, write_parquet

RECORDS, LEFT_OUT, FEATURES = "records.parquet", "left_out.jsonl", "features"
ORDER = ("visible", "clean", "refine", "sieve-swap", "gather")  # whose records a stage reads: the last of the recipe's


def write_dataset(folder: Path, records: Iterable[Record], left_out: Mapping[str, Failure]) -> int:
    """Write records, sorted by id already, and what was left out; return how many records."""
    count = write_parquet(records, folder / RECORDS)
    write_atomic(folder / LEFT_OUT, "".join(_line(left_out[id]) for id in sorted(left_out)))
    return count


def _line(failure: Failure) -> str:
    """Return a failure as a line, without how often it was tried: a run that was retried makes the same dataset."""
    told = {name: value for name, value in asdict(failure).items() if name != "attempts"}
    return json.dumps(told, ensure_ascii=False) + "\n"


def read_left_out(folder: Path) -> dict[str, Failure]:
    """Return what a stage's folder leaves out, by id. Raises StoreError for a damaged file."""
    path = folder / LEFT_OUT
    try:
        found = [Failure(**json.loads(line)) for line in path.read_text(encoding="utf-8").split("\n") if line]
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"{path}: not a list of what is left out ({error}); remove the stage's folder") from error
    return {one.id: one for one in found}


def last_folder(gathered: Gathered) -> Path:
    """Return the folder whose records a dataset stage goes on with."""
    return next(gathered.folders[name] for name in ORDER if name in gathered.folders)


def last_records(gathered: Gathered) -> Iterator[Record]:
    """Yield the records that a dataset stage goes on with."""
    return read_parquet(last_folder(gathered) / RECORDS)
