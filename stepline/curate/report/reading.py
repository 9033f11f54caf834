"""What a run has left in OUT, read for the report: records, failures, where they come from, verdicts so far."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stepline.curate.places import Place
from stepline.curate.stage import Failure
from stepline.curate.units import FAILURES
from stepline.errors import StoreError
from stepline.records import Record
from stepline.store import read_parquet

DATASET = "dataset"


def read_dataset(out: Place) -> Iterator[Record]:
    """Yield the records of the dataset below OUT, kept and left out. Raises StoreError where there is no dataset."""
    folder = out / DATASET / "data"
    names = sorted(found.name for found in folder.list()) if folder.exists() else []
    shards = [name for name in names if name.endswith(".parquet")]
    if not shards:
        raise StoreError(f"{folder.shown}: no dataset yet; `stepline curate` writes it when all stages are done")
    for name in shards:
        path = (folder / name).local
        if path is not None:
            yield from read_parquet(path)
        else:
            with tempfile.TemporaryDirectory(prefix="stepline-") as scratch:
                copy = Path(scratch) / "shard.parquet"
                (folder / name).fetch(copy)
                yield from read_parquet(copy)


def read_failures(out: Place) -> list[Failure]:
    """Return every failure that the run noted, sorted by stage and id."""
    folder = out / FAILURES
    if out.local is not None and not folder.exists():
        return []
    found = [_failure(folder / entry.name) for entry in folder.list() if entry.name.endswith(".json")]
    return sorted(found, key=lambda failure: (failure.stage, failure.id))


def _failure(place: Place) -> Failure:
    try:
        return Failure(**json.loads(place.read()))
    except (ValueError, TypeError) as error:
        raise StoreError(f"{place.shown}: not a failure that Stepline wrote ({error}); remove it") from error


def read_provenance(out: Place) -> dict[str, str]:
    """Return what the run and the dataset say of themselves, name -> JSON."""
    places = {"dataset.json": out / DATASET / "dataset.json", "run.json": out / "run.json"}
    return {name: place.read().decode("utf-8", "replace") for name, place in places.items() if place.exists()}
