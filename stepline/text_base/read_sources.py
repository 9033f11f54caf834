"""Sources read into shards of documents, a fixed number each: what is read survives a kill."""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from stepline.atomic_files import atomic_path, write_atomic
from stepline.errors import StoreError
from stepline.limits import parse_json
from stepline.parquet import ParquetError, ParquetReader
from stepline.text_base.documents import Document, DocumentOrRejected
from stepline.text_base.manifest import EXAMPLES
from stepline.text_base.readers import read_source
from stepline.text_base.settings import TextBaseSettings

log = logging.getLogger(__name__)

FIELDS = ("id", "title", "source", "licence", "texts", "ingredients", "origin")


class Tally:
    """Why things were left out, counted, with the first places of each reason; one a source."""

    def __init__(
        self, counts: dict[str, int] | None = None, examples: dict[str, list[str]] | None = None
    ) -> None:
        self.counts = Counter(counts or {})
        self.examples = dict(examples or {})

    def add(self, reason: str, place: str) -> None:
        """Count one."""
        self.counts[reason] += 1
        found = self.examples.setdefault(reason, [])
        if len(found) < EXAMPLES:
            found.append(place)


def read_shards(
    sources: Sequence[Path], work: Path, settings: TextBaseSettings, licence: str | None
) -> tuple[list[Path], list[Tally]]:
    """Return the shards of documents, in order, and what was left out of each source; reads on
    where a kill ended it.

    A shard holds `settings.shard` documents; beside it a .json tells how many items were read by
    its end.
    """
    shards: list[Path] = []
    seen, tallies, ended = 0, [Tally() for _ in sources], False
    while (state := _state(work, len(shards))) is not None:
        shards.append(work / f"read-{len(shards):05d}.parquet")
        seen, tallies, ended = state
    items = islice(_items(sources, settings, licence), seen, None) if not ended else iter(())
    while not ended:
        rows: list[dict[str, Any]] = []
        for origin, item in items:
            seen += 1
            if isinstance(item, Document):
                rows.append(_row(item, origin))
            else:
                tallies[origin].add(
                    item.reason, f"{item.location}: {item.value}" if item.value else item.location
                )
            if len(rows) == settings.shard:
                break
        ended = len(rows) < settings.shard
        shards.append(_write(work, len(shards), rows, (seen, tallies, ended)))
        log.info("read %d documents", (len(shards) - 1) * settings.shard + len(rows))
    return shards, tallies


def read_shard(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a shard, as rows of FIELDS."""
    try:
        return list(ParquetReader(path).rows())
    except ParquetError as error:
        raise StoreError(f"{path}: not readable ({error}); remove it and build again") from error


def _items(
    sources: Sequence[Path], settings: TextBaseSettings, licence: str | None
) -> Iterator[tuple[int, DocumentOrRejected]]:
    for origin, source in enumerate(sources):
        for item in read_source(source, settings, licence):
            yield origin, item


def _row(document: Document, origin: int) -> dict[str, Any]:
    return {
        "id": document.id,
        "title": document.title,
        "source": document.source,
        "licence": document.licence,
        "texts": [step.text for step in document.steps],
        "ingredients": list(document.ingredients),
        "origin": origin,
    }


def _write(
    work: Path, number: int, rows: list[dict[str, Any]], state: tuple[int, list[Tally], bool]
) -> Path:
    """Write a shard, then the state that makes it count."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    text, texts = arrow.string(), arrow.list_(arrow.string())
    schema = arrow.schema(
        list(zip(FIELDS, (text, text, text, text, texts, texts, arrow.int32()), strict=True))
    )
    path = work / f"read-{number:05d}.parquet"
    with atomic_path(path) as partial:
        parquet.write_table(
            arrow.Table.from_pylist(rows, schema=schema), partial, compression="zstd"
        )
    seen, tallies, ended = state
    told = [{"counts": dict(tally.counts), "examples": tally.examples} for tally in tallies]
    write_atomic(
        path.with_suffix(".json"), json.dumps({"seen": seen, "tallies": told, "ended": ended})
    )
    return path


def _state(work: Path, number: int) -> tuple[int, list[Tally], bool] | None:
    """Return what was written after a shard: items read, tallies, whether it was the last; None
    where there is none."""
    try:
        state = parse_json((work / f"read-{number:05d}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return state["seen"], [Tally(**tally) for tally in state["tallies"]], state["ended"]
