"""Sources read into shards of documents, a fixed number each: what is read survives a kill."""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from stepline.files.atomic_files import write_atomic
from stepline.files.parquet import ParquetReader
from stepline.limits import parse_json
from stepline.sieve_swap.text_base.documents import Document, DocumentOrRejected
from stepline.sieve_swap.text_base.manifest import MAX_EXAMPLES
from stepline.sieve_swap.text_base.parquet_tables import (
    ColumnType,
    Row,
    reject_damaged_table,
    write_table,
)
from stepline.sieve_swap.text_base.readers import read_source
from stepline.sieve_swap.text_base.settings import TextBaseSettings

log = logging.getLogger(__name__)

SHARD_COLUMNS: dict[str, ColumnType] = {
    "id": "text",
    "title": "text",
    "source": "text",
    "licence": "text",
    "texts": "texts",
    "ingredients": "texts",
    "origin": "int32",  # number of the source
}


class Tally:
    """Counts of rejected items of one source by reason, with the first locations of each."""

    def __init__(
        self, counts: dict[str, int] | None = None, examples: dict[str, list[str]] | None = None
    ) -> None:
        self.counts = Counter(counts or {})
        self.examples = dict(examples or {})

    def add(self, reason: str, place: str) -> None:
        """Count a rejected item."""
        self.counts[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(place)


def read_shards(
    sources: Sequence[Path], work: Path, settings: TextBaseSettings, licence: str | None
) -> tuple[list[Path], list[Tally]]:
    """Return the shards of documents, in order, and what was left out of each source. Reading
    resumes where a kill ended it.

    A shard holds `settings.shard` documents. A .json next to it, written last, has the state of the
    reading by its end.
    """
    # the shards of an earlier run
    shards: list[Path] = []
    item_count = 0
    tallies = [Tally() for _ in sources]
    is_complete = False
    shard = work / "read-00000.parquet"
    while (state_file := shard.with_suffix(".json")).exists():
        state = parse_json(state_file.read_text(encoding="utf-8"))
        item_count = state["seen"]
        tallies = [Tally(**tally) for tally in state["tallies"]]
        is_complete = state["ended"]
        shards.append(shard)
        shard = work / f"read-{len(shards):05d}.parquet"
    # Those that follow. Readers cannot skip, so what an earlier run read is passed over.
    items = islice(_items(sources, settings, licence), item_count, None)
    while not is_complete:
        rows: list[Row] = []
        for origin, item in items:
            item_count += 1
            if isinstance(item, Document):
                rows.append(_row(item, origin))
            else:
                location = f"{item.location}: {item.value}" if item.value else item.location
                tallies[origin].add(item.reason, location)
            if len(rows) == settings.shard:
                break
        # A shard that is not full is the last one.
        is_complete = len(rows) < settings.shard
        shard = work / f"read-{len(shards):05d}.parquet"
        write_table(rows, SHARD_COLUMNS, shard, settings.shard)
        state = {"seen": item_count, "tallies": list(map(vars, tallies)), "ended": is_complete}
        write_atomic(shard.with_suffix(".json"), json.dumps(state))
        log.info("read %d documents", len(shards) * settings.shard + len(rows))
        shards.append(shard)
    return shards, tallies


def read_shard(path: Path) -> list[Row]:
    """Return the documents of a shard, as rows of SHARD_COLUMNS."""
    with reject_damaged_table(path, "remove it and build again"):
        return list(ParquetReader(path).rows())


def _items(
    sources: Sequence[Path], settings: TextBaseSettings, licence: str | None
) -> Iterator[tuple[int, DocumentOrRejected]]:
    for origin, source in enumerate(sources):
        for item in read_source(source, settings, licence):
            yield origin, item


def _row(document: Document, origin: int) -> Row:
    return {
        "id": document.id,
        "title": document.title,
        "source": document.source,
        "licence": document.licence,
        "texts": [step.text for step in document.steps],
        "ingredients": list(document.ingredients),
        "origin": origin,
    }
