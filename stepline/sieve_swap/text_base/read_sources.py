"""Sources read into shards of documents, a fixed number each: what is read survives a kill."""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from stepline.files.atomic_files import write_atomic
from stepline.files.parquet import ParquetReader
from stepline.limits import parse_json
from stepline.sieve_swap.text_base.documents import Document, DocumentOrRejected
from stepline.sieve_swap.text_base.manifest import MAX_EXAMPLES
from stepline.sieve_swap.text_base.parquet_tables import ColumnType, Row, damage_of, write_table
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


@dataclass(frozen=True)
class ReadingState:
    """How far sources are read: items so far, what was left out of each source, whether everything
    is read."""

    items: int
    tallies: list["Tally"]
    is_complete: bool


class Tally:
    """Why things of one source were left out, counted, with the first locations of each reason."""

    def __init__(
        self, counts: dict[str, int] | None = None, examples: dict[str, list[str]] | None = None
    ) -> None:
        self.counts = Counter(counts or {})
        self.examples = dict(examples or {})

    def add(self, reason: str, place: str) -> None:
        """Count one."""
        self.counts[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(place)


def read_shards(
    sources: Sequence[Path], work: Path, settings: TextBaseSettings, licence: str | None
) -> tuple[list[Path], list[Tally]]:
    """Return the shards of documents, in order, and what was left out of each source. Reads on
    where a kill ended it.

    A shard holds `settings.shard` documents. A .json next to it reports how many items were read by
    its end.
    """
    # the shards of an earlier run
    shards: list[Path] = []
    shard = _shard_path(work, 0)
    state = ReadingState(0, [Tally() for _ in sources], False)
    while (stored_state := _read_state(shard)) is not None:
        shards.append(shard)
        shard = _shard_path(work, len(shards))
        state = stored_state
    # those that follow
    # Readers cannot skip, so what an earlier run read is passed over.
    all_items = _items(sources, settings, licence)
    items = islice(all_items, state.items, None)
    count = state.items
    tallies = state.tallies
    while not state.is_complete:
        rows: list[Row] = []
        for origin, item in items:
            count += 1
            if isinstance(item, Document):
                rows.append(_row(item, origin))
            else:
                location = item.location
                if item.value:
                    location = f"{location}: {item.value}"
                tallies[origin].add(item.reason, location)
            if len(rows) == settings.shard:
                break
        # A shard that is not full is the last one.
        is_complete = len(rows) < settings.shard
        state = ReadingState(count, tallies, is_complete)
        shard = _shard_path(work, len(shards))
        write_table(rows, SHARD_COLUMNS, shard, settings.shard)
        _write_state(state, shard)
        log.info("read %d documents", len(shards) * settings.shard + len(rows))
        shards.append(shard)
    return shards, tallies


def _shard_path(work: Path, number: int) -> Path:
    return work / f"read-{number:05d}.parquet"


def read_shard(path: Path) -> list[Row]:
    """Return the documents of a shard, as rows of SHARD_COLUMNS."""
    with damage_of(path, "remove it and build again"):
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


def _write_state(state: ReadingState, shard: Path) -> None:
    """Write the state after a shard, which makes the shard count."""
    tallies = []
    for tally in state.tallies:
        counts = dict(tally.counts)
        tallies.append({"counts": counts, "examples": tally.examples})
    stored = {"seen": state.items, "tallies": tallies, "ended": state.is_complete}
    write_atomic(shard.with_suffix(".json"), json.dumps(stored))


def _read_state(shard: Path) -> ReadingState | None:
    """Return the state after a shard, None for a shard that does not exist."""
    try:
        text = shard.with_suffix(".json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    stored = parse_json(text)
    tallies = [Tally(**tally) for tally in stored["tallies"]]
    return ReadingState(stored["seen"], tallies, stored["ended"])
