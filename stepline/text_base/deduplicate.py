"""Shards of read documents made one part of the base: its lines merged, its documents pointing at
rows.

A part's files: steps.parquet (a row a line), documents.parquet (a row a document, in its own
wording), and arrays: keys and key_rows (the key of normal words -> its row), bands, pairs and ends
(sketches of its lines), identities (keys of its documents' ids), holder_rows and holders (which
documents hold a row). The first occurrence of a line stands for all; what was read earlier never
changes its row. Memory: 40 bytes a line read, beside what sorting may use.

Lines are merged by exact keys first, then near-duplicates by their sketches. Every line either
stands for itself or for the earliest line that says the same; so a line that was kept is never
dropped by what is appended later, and each merged line is within the threshold of the one that
stands for it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.atomic_files import atomic_path
from stepline.text_base.near_duplicates import (
    BANDS,
    Hashes,
    Sketch,
    jaccard,
    line_key,
    sketch,
    text_key,
)
from stepline.text_base.read_sources import Tally, read_shard
from stepline.text_base.settings import TextBaseSettings
from stepline.text_base.vectors import read_array, write_arrays

Rows: TypeAlias = npt.NDArray[np.int64]

ROW_BYTES = 64  # that sorting one hash takes: hash, place, order, marks
CROWD = 50  # lines with one band's hash that a line is compared with; more are hardly more alike


def first_places(keys: Sequence[Hashes], memory: int) -> Rows:
    """Return for each key the place of the first key equal to it: (N,) int64.

    keys: N in all, several arrays one after another (memory-mapped is fine). memory: bytes to sort
    in.
    """
    count = sum(map(len, keys))
    found = np.arange(count, dtype=np.int64)
    for places, hashes in _slices(keys, memory):
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        leaders = order[begins][np.cumsum(begins) - 1]
        found[places[order]] = places[leaders]
    return found


def near_duplicates(sketches: Sequence[Sketch], known: int, threshold: float, memory: int) -> Rows:
    """Return for each line the place of the line that stands for it, itself where none is near:
    (N,) int64.

    known: the first lines, merged before; they stay. threshold: Jaccard likeness of the word pairs,
    1 merges nothing.
    """
    count = sum(len(part.keys) for part in sketches)
    stands = np.arange(count, dtype=np.int64)
    if threshold >= 1.0:
        return stands
    lines = _Pairs(sketches)
    earliest = np.full(count, count, dtype=np.int64)
    for band in range(sketches[0].bands.shape[1]):
        for row, leader in _candidates([part.bands[:, band] for part in sketches], known, memory):
            if leader < earliest[row] and jaccard(lines[row], lines[leader]) >= threshold:
                earliest[row] = leader
    for row in np.flatnonzero(earliest < count).tolist():
        leader = int(stands[earliest[row]])  # the line that stands for the near one may be farther
        if leader == earliest[row] or jaccard(lines[row], lines[leader]) >= threshold:
            stands[row] = leader
    return stands


class _Pairs:
    """The word pairs of lines that are kept in several sketches."""

    def __init__(self, sketches: Sequence[Sketch]) -> None:
        self._sketches = sketches
        self._starts = np.cumsum([0, *(len(part.keys) for part in sketches)])

    def __getitem__(self, row: int) -> npt.NDArray[np.uint32]:
        part = int(np.searchsorted(self._starts, row, side="right")) - 1
        place = int(row - self._starts[part])
        ends = self._sketches[part].ends
        return np.asarray(self._sketches[part].pairs[ends[place - 1] if place else 0 : ends[place]])


def _candidates(keys: Sequence[Hashes], known: int, memory: int) -> Iterator[tuple[int, int]]:
    """Yield (line, earlier line) for lines from `known` on that share a hash, at most CROWD earlier
    ones each."""
    for places, hashes in _slices(keys, memory):
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        edges = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]]))
        sizes = np.diff(edges)
        for start, size in zip(edges[:-1][sizes > 1], sizes[sizes > 1], strict=True):
            members = places[order[start : start + size]]
            for place in range(1, int(size)):
                if members[place] >= known:
                    yield from (
                        (int(members[place]), int(leader))
                        for leader in members[: min(place, CROWD)]
                    )


def _slices(keys: Sequence[Hashes], memory: int) -> Iterator[tuple[Rows, Hashes]]:
    """Yield (places, hashes) of all keys in turn, by ranges of the hash, so that equal ones come
    together."""
    count = sum(map(len, keys))
    parts = 1
    while count * ROW_BYTES > memory * parts and parts < 1 << 16:
        parts *= 2
    shift = np.uint64(64 - parts.bit_length() + 1)
    starts = np.cumsum([0, *map(len, keys)])
    for part in range(parts):
        places, hashes = [], []
        for start, array in zip(starts, keys, strict=False):
            here = (
                np.arange(len(array))
                if parts == 1
                else np.flatnonzero((array >> shift) == np.uint64(part))
            )
            places.append(here + start)
            hashes.append(np.asarray(array[here]))
        if sum(map(len, hashes)):
            yield np.concatenate(places), np.concatenate(hashes)


STEP_GROUP = 4_096  # rows of steps.parquet that are read together when one is asked for
DOCUMENT_GROUP = 1_000  # the same of documents.parquet
PIECE = 1 << 20  # numbers copied at a time

Row = dict[str, Any]


@dataclass(frozen=True)
class Counts:
    """What one part holds: documents, lines read, merged as equal and as near, added; (documents,
    lines) a source."""

    documents: int
    read: int
    same: int
    near: int
    steps: int
    by_source: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _MergeResult:
    """rows: (N,) the row of every line read. firsts: (N,) bool, which of them bring a new row."""

    rows: Rows
    firsts: npt.NDArray[np.bool_]
    near: int


def write_tables(
    shards: Sequence[Path],
    parts: Sequence[Path],
    part: Path,
    tallies: Sequence[Tally],
    settings: TextBaseSettings,
) -> Counts:
    """Write a part's tables and arrays from its shards. parts: the folders of earlier parts, in
    order.

    Documents whose id was read before are left out and counted in the tallies.
    """
    kept = _kept(shards, parts, part, tallies, settings.memory << 20)
    merged = _merge(shards, kept, parts, part, settings)
    _write_steps(_kept_rows(shards, kept), merged, part / "steps.parquet")
    read = _write_documents(_kept_rows(shards, kept), merged, part / "documents.parquet")
    _write_holders(_kept_rows(shards, kept), merged, parts, part)
    steps = int(merged.firsts.sum())
    by_source = tuple(read.get(origin, (0, 0)) for origin in range(len(tallies)))
    same = len(merged.rows) - steps - merged.near
    return Counts(int(kept.sum()), len(merged.rows), same, merged.near, steps, by_source)


def line_sketch(part: Path) -> Sketch:
    """Return the sketch of a part's lines, memory-mapped; in place of keys stands the first band,
    for its length."""
    bands = read_array(part / "bands.u64", BANDS)
    return Sketch(bands[:, 0], bands, read_array(part / "pairs.u32"), read_array(part / "ends.i64"))


def _kept(
    shards: Sequence[Path], parts: Sequence[Path], part: Path, tallies: Sequence[Tally], memory: int
) -> npt.NDArray[np.bool_]:
    """Return which documents stay: the first of each id."""
    before = [read_array(folder / "identities.u64") for folder in parts]
    known = sum(map(len, before))
    keys = np.array(
        [text_key(row["id"]) for shard in shards for row in read_shard(shard)], dtype=np.uint64
    )
    kept = first_places([*before, keys], memory)[known:] == np.arange(known, known + len(keys))
    number = 0
    for shard in shards if not kept.all() else ():
        for row in read_shard(shard):
            if not kept[number]:
                tallies[row["origin"]].add("duplicate id", row["id"])
            number += 1
    write_arrays(part / "identities.u64", [keys[kept]])
    return np.asarray(kept)


def _kept_rows(shards: Sequence[Path], kept: npt.NDArray[np.bool_]) -> Iterator[Row]:
    stays = iter(kept.tolist())
    for shard in shards:
        yield from (row for row in read_shard(shard) if next(stays))


# ---------------------------------------------------------------- merging


def _merge(
    shards: Sequence[Path],
    kept: npt.NDArray[np.bool_],
    parts: Sequence[Path],
    part: Path,
    settings: TextBaseSettings,
) -> _MergeResult:
    """Find the row of every line; write the part's keys and sketches."""
    memory = settings.memory << 20
    old_keys = [read_array(folder / "keys.u64") for folder in parts]
    known_keys = sum(map(len, old_keys))
    keys = np.fromiter(
        (line_key(text) for row in _kept_rows(shards, kept) for text in row["texts"]),
        dtype=np.uint64,
    )
    first = first_places([*old_keys, keys], memory)[known_keys:]
    distinct = np.flatnonzero(first == np.arange(known_keys, known_keys + len(keys)))
    _write_sketches(
        shards, kept, first == np.arange(known_keys, known_keys + len(keys)), part / "work"
    )
    sketches = [*map(line_sketch, parts), line_sketch(part / "work")]
    known = sum(len(found.ends) for found in sketches[:-1])
    stands = near_duplicates(sketches, known, settings.merge, memory)[known:]
    alone = stands == np.arange(known, known + len(stands))
    ranks = np.cumsum(alone) - 1 + known
    row_of = (
        np.where(stands < known, stands, ranks[np.maximum(stands - known, 0)])
        if len(stands)
        else stands
    )
    _write_part_sketches(part, keys[distinct], row_of, alone)
    old_rows = np.concatenate(
        [np.empty(0, np.int64), *(read_array(folder / "key_rows.i64") for folder in parts)]
    )
    rows = np.concatenate([old_rows, np.full(len(keys), -1, np.int64)])
    rows[distinct + known_keys] = row_of
    firsts = np.zeros(len(keys), dtype=bool)
    firsts[distinct[alone]] = True
    return _MergeResult(rows[first], firsts, int((~alone).sum()))


def _write_sketches(
    shards: Sequence[Path], kept: npt.NDArray[np.bool_], new: npt.NDArray[np.bool_], work: Path
) -> None:
    """Write the sketches of the lines marked as new, a shard at a time."""
    flags = iter(new.tolist())
    stays = iter(kept.tolist())
    total = 0
    with ExitStack() as stack:
        bands, pairs, ends = (
            stack.enter_context((work / name).open("wb"))
            for name in ("bands.u64", "pairs.u32", "ends.i64")
        )
        for shard in shards:
            rows = [row for row in read_shard(shard) if next(stays)]
            found = sketch([text for row in rows for text in row["texts"] if next(flags)])
            bands.write(found.bands.tobytes())
            pairs.write(found.pairs.tobytes())
            ends.write((found.ends + total).tobytes())
            total += len(found.pairs)


def _write_part_sketches(
    part: Path, keys: npt.NDArray[np.uint64], row_of: Rows, alone: npt.NDArray[np.bool_]
) -> None:
    """Write the keys of all distinct lines and the sketches of those that stand for themselves."""
    write_arrays(part / "keys.u64", [keys])
    write_arrays(part / "key_rows.i64", [row_of])
    found = line_sketch(part / "work")
    sizes = np.diff(found.ends, prepend=0)
    write_arrays(
        part / "bands.u64",
        (found.bands[at : at + PIECE][alone[at : at + PIECE]] for at in _starts(alone)),
    )
    write_arrays(part / "ends.i64", [np.cumsum(sizes[alone])])
    marks = np.repeat(alone, sizes)
    write_arrays(
        part / "pairs.u32",
        (found.pairs[at : at + PIECE][marks[at : at + PIECE]] for at in _starts(marks)),
    )


def _starts(array: npt.NDArray[Any]) -> range:
    return range(0, len(array), PIECE)


# ---------------------------------------------------------------- tables


def _write_steps(rows: Iterable[Row], merged: _MergeResult, path: Path) -> None:
    import pyarrow as arrow

    text = arrow.string()
    fields = {
        "id": text,
        "text": text,
        "document": text,
        "position": arrow.int32(),
        "source": text,
        "licence": text,
    }
    _write_table(_first_lines(rows, merged), fields, path, STEP_GROUP)


def _first_lines(rows: Iterable[Row], merged: _MergeResult) -> Iterator[Row]:
    flags = iter(merged.firsts.tolist())
    for row in rows:
        same = {"document": row["id"], "source": row["source"], "licence": row["licence"]}
        for position, text in enumerate(row["texts"]):
            if next(flags):
                yield {"id": f"{row['id']}#{position}", "text": text, "position": position} | same


def _write_documents(
    rows: Iterable[Row], merged: _MergeResult, path: Path
) -> dict[int, tuple[int, int]]:
    """Write the documents; return how many documents and lines each source gave."""
    import pyarrow as arrow

    text, texts = arrow.string(), arrow.list_(arrow.string())
    fields = {
        "id": text,
        "title": text,
        "source": text,
        "licence": text,
        "texts": texts,
        "ingredients": texts,
    }
    documents: Counter[int] = Counter()
    lines: Counter[int] = Counter()

    def told() -> Iterator[Row]:
        at = 0
        for row in rows:
            count = len(row["texts"])
            documents[row["origin"]] += 1
            lines[row["origin"]] += count
            yield row | {"rows": merged.rows[at : at + count].tolist()}
            at += count

    _write_table(told(), fields | {"rows": arrow.list_(arrow.int64())}, path, DOCUMENT_GROUP)
    return {origin: (count, lines[origin]) for origin, count in documents.items()}


def _write_table(rows: Iterable[Row], fields: dict[str, Any], path: Path, group: int) -> None:
    """Write rows as Parquet, `group` rows a row group, so that row n lies in group n // group."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    schema = arrow.schema(list(fields.items()))
    waiting: list[Row] = []
    with (
        atomic_path(path) as partial,
        parquet.ParquetWriter(partial, schema, compression="zstd") as writer,
    ):
        for row in rows:
            waiting.append({name: row[name] for name in fields})
            if len(waiting) == group:
                writer.write_table(
                    arrow.Table.from_pylist(waiting, schema=schema), row_group_size=group
                )
                waiting = []
        if waiting:
            writer.write_table(
                arrow.Table.from_pylist(waiting, schema=schema), row_group_size=group
            )


def _write_holders(
    rows: Iterable[Row], merged: _MergeResult, parts: Sequence[Path], part: Path
) -> None:
    """Write which documents hold each row, sorted by row: two arrays side by side, no pair
    twice."""
    before = sum(len(read_array(folder / "identities.u64")) for folder in parts)
    counts = np.fromiter((len(row["texts"]) for row in rows), dtype=np.int64)
    numbers = np.repeat(np.arange(before, before + len(counts)), counts)
    order = np.lexsort((numbers, merged.rows))
    held, holders = merged.rows[order], numbers[order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (held[1:] != held[:-1]) | (holders[1:] != holders[:-1])
    write_arrays(part / "holder_rows.i64", [held[fresh]])
    write_arrays(part / "holders.i64", [holders[fresh]])
