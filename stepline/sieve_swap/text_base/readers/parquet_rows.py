"""How-to texts as Parquet: a row each, with the same column names as JSON and csv have."""

from collections.abc import Iterator
from pathlib import Path

from stepline.errors import DatasetError
from stepline.sieve_swap.text_base.lines import Read, Rejected
from stepline.sieve_swap.text_base.readers.files import stem
from stepline.sieve_swap.text_base.readers.item import (
    IDS,
    INGREDIENTS,
    LICENCES,
    NESTED,
    SOURCES,
    STEPS,
    TITLES,
    Place,
    read_item,
)
from stepline.sieve_swap.text_base.settings import TextBaseSettings

BATCH = 1_000  # rows in memory at once


def read_parquet(path: Path, settings: TextBaseSettings, licence: str | None) -> Iterator[Read]:
    """Yield the documents of a Parquet file and the rows left out, a batch at a time.

    Raises DatasetError when it is not Parquet or no column holds steps.
    """
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        file = parquet.ParquetFile(path)
    except (OSError, arrow.ArrowException) as error:
        raise DatasetError(f"{path}: not a Parquet file ({str(error).splitlines()[0]}); write it again") from error
    known = {*TITLES, *STEPS, *INGREDIENTS, *IDS, *SOURCES, *LICENCES, *NESTED}
    columns = [name for name in file.schema_arrow.names if name in known]
    if not set(columns) & {*STEPS, *NESTED}:
        raise DatasetError(f"{path}: no column of steps; name one of them {', '.join(STEPS[:4])}")
    number = 0
    try:
        for batch in file.iter_batches(batch_size=BATCH, columns=columns):
            for item in batch.to_pylist():
                yield from read_item(item, Place(path.name, stem(path), str(number), licence), settings)
                number += 1
    except (OSError, ValueError, arrow.ArrowException) as error:
        yield Rejected("file cut off", path.name, str(error).splitlines()[0][:200])
