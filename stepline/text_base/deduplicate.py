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
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.text_base.near_duplicates import (
    BAND_COUNT,
    Hashes,
    Sketch,
    jaccard,
    line_key,
    sketch,
    text_key,
)
from stepline.text_base.parquet_tables import ColumnType, Row, write_table
from stepline.text_base.read_sources import Tally, read_shard
from stepline.text_base.settings import TextBaseSettings
from stepline.text_base.vectors import Rows, read_array, write_arrays

Flags: TypeAlias = npt.NDArray[np.bool_]

HASH_SORT_BYTES = 64  # that sorting one hash takes: hash, place, order, marks
# lines with one band's hash that a line is compared with; more are hardly more alike
MAX_CANDIDATES = 50
STEP_GROUP_ROWS = 4_096  # of steps.parquet that are read together when one is asked for
DOCUMENT_GROUP_ROWS = 1_000  # the same of documents.parquet
COPY_NUMBERS = 1 << 20  # numbers of an array copied at a time

STEP_COLUMNS: dict[str, ColumnType] = {
    "id": "text",
    "text": "text",
    "document": "text",
    "position": "int32",
    "source": "text",
    "licence": "text",
}
DOCUMENT_COLUMNS: dict[str, ColumnType] = {
    "id": "text",
    "title": "text",
    "source": "text",
    "licence": "text",
    "texts": "texts",
    "ingredients": "texts",
    "rows": "int64s",
}


def first_places(keys: Sequence[Hashes], memory: int) -> Rows:
    """Return for each key the place of the first key equal to it: (N,) int64.

    keys: N in all, several arrays one after another (memory-mapped is fine). memory: bytes to sort
    in.
    """
    firsts = np.arange(sum(map(len, keys)), dtype=np.int64)
    for places, edges in _equal_groups(keys, memory):
        firsts[places] = np.repeat(places[edges[:-1]], np.diff(edges))
    return firsts


def near_duplicates(
    sketches: Sequence[Sketch], known_count: int, threshold: float, memory: int
) -> Rows:
    """Return for each line the place of the line that stands for it, itself where none is near:
    (N,) int64.

    known_count: how many of the lines were merged before; they stay. threshold: Jaccard likeness of the
    word pairs, 1 merges nothing.
    """
    count = sum(len(part.keys) for part in sketches)
    stands = np.arange(count, dtype=np.int64)
    if threshold >= 1.0:
        return stands
    lines = _Pairs(sketches)
    earliest = np.full(count, count, dtype=np.int64)
    for band in range(sketches[0].bands.shape[1]):
        keys = [part.bands[:, band] for part in sketches]
        for row, leader in _candidates(keys, known_count, memory):
            if leader < earliest[row] and jaccard(lines[row], lines[leader]) >= threshold:
                earliest[row] = leader
    for row in np.flatnonzero(earliest < count).tolist():
        leader = int(stands[earliest[row]])  # the line that stands for the near one may be farther
        if leader == earliest[row] or jaccard(lines[row], lines[leader]) >= threshold:
            stands[row] = leader
    return stands


class _Pairs:
    """The word pairs of lines that several sketches hold."""

    def __init__(self, sketches: Sequence[Sketch]) -> None:
        self._sketches = sketches
        self._starts = np.cumsum([0, *(len(part.keys) for part in sketches)])

    def __getitem__(self, row: int) -> npt.NDArray[np.uint32]:
        part = int(np.searchsorted(self._starts, row, side="right")) - 1
        place = int(row - self._starts[part])
        ends = self._sketches[part].ends
        start = ends[place - 1] if place else 0
        return np.asarray(self._sketches[part].pairs[start : ends[place]])


def _candidates(keys: Sequence[Hashes], known_count: int, memory: int) -> Iterator[tuple[int, int]]:
    """Yield (line, earlier line) for lines from `known_count` on that share a hash, at most
    MAX_CANDIDATES earlier ones each."""
    for places, edges in _equal_groups(keys, memory):
        for group in np.flatnonzero(np.diff(edges) > 1).tolist():
            members = places[edges[group] : edges[group + 1]].tolist()
            for n, member in enumerate(members[1:], start=1):
                if member >= known_count:
                    for leader in members[: min(n, MAX_CANDIDATES)]:
                        yield member, leader


def _equal_groups(keys: Sequence[Hashes], memory: int) -> Iterator[tuple[Rows, Rows]]:
    """Yield (places, edges) of all keys: places[edges[n] : edges[n + 1]] have equal keys, in their
    order.

    Keys are sorted by ranges of the hash, one after another, each within the memory.
    """
    count = sum(map(len, keys))
    parts = 1
    while count * HASH_SORT_BYTES > memory * parts and parts < 1 << 16:
        parts *= 2
    shift = np.uint64(64 - parts.bit_length() + 1)
    starts = np.cumsum([0, *map(len, keys)])
    for part in range(parts):
        places = []
        hashes = []
        for start, array in zip(starts, keys, strict=False):
            # a shift by all 64 bits is undefined
            in_part = array >= 0 if parts == 1 else (array >> shift) == np.uint64(part)
            rows = np.flatnonzero(in_part)
            places.append(rows + start)
            hashes.append(np.asarray(array[rows]))
        if not any(map(len, hashes)):
            continue
        joined = np.concatenate(hashes)
        order = np.argsort(joined, kind="stable")
        is_new = joined[order][1:] != joined[order][:-1]
        edges = np.flatnonzero(np.concatenate([[True], is_new, [True]]))
        yield np.concatenate(places)[order], edges


@dataclass(frozen=True)
class Counts:
    """What one part holds: documents, lines read, merged as equal and as near, added; (documents,
    lines) a source."""

    documents: int
    lines: int
    same: int
    near: int
    steps: int
    by_source: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _MergeResult:
    """rows: (N,) the row of every line read. firsts: (N,) bool, which of them bring a new row."""

    rows: Rows
    firsts: Flags
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
    new = _NewDocuments(shards, parts, part, tallies, settings.memory << 20)
    merged = _merge(new, parts, part, settings)
    steps = _first_lines(new.rows(), merged.firsts)
    write_table(steps, STEP_COLUMNS, part / "steps.parquet", STEP_GROUP_ROWS)
    documents: Counter[int] = Counter()  # by the number of their source
    lines: Counter[int] = Counter()

    def documents_with_rows() -> Iterator[Row]:
        start = 0
        for row in new.rows():
            count = len(row["texts"])
            documents[row["origin"]] += 1
            lines[row["origin"]] += count
            yield row | {"rows": merged.rows[start : start + count].tolist()}
            start += count

    path = part / "documents.parquet"
    write_table(documents_with_rows(), DOCUMENT_COLUMNS, path, DOCUMENT_GROUP_ROWS)
    _write_holders(new.rows(), merged, parts, part)
    step_count = int(merged.firsts.sum())
    return Counts(
        documents.total(),
        len(merged.rows),
        len(merged.rows) - step_count - merged.near,
        merged.near,
        step_count,
        tuple((documents[origin], lines[origin]) for origin in range(len(tallies))),
    )


def line_sketch(part: Path) -> Sketch:
    """Return the sketch of a part's lines, memory-mapped; in place of keys stands the first band,
    for its length."""
    bands = read_array(part / "bands.u64", BAND_COUNT)
    return Sketch(bands[:, 0], bands, read_array(part / "pairs.u32"), read_array(part / "ends.i64"))


class _NewDocuments:
    """The documents of some shards whose id no earlier document has; their ids' keys are written."""

    def __init__(
        self,
        shards: Sequence[Path],
        parts: Sequence[Path],
        part: Path,
        tallies: Sequence[Tally],
        memory: int,
    ) -> None:
        earlier = [read_array(folder / "identities.u64") for folder in parts]
        ids = (row["id"] for shard in shards for row in read_shard(shard))
        keys = np.array([text_key(id) for id in ids], dtype=np.uint64)
        self._shards = shards
        self._is_new = _are_first(earlier, keys, memory)[1]
        if not self._is_new.all():
            flags = iter(self._is_new.tolist())
            for row in (row for shard in shards for row in read_shard(shard)):
                if not next(flags):
                    tallies[row["origin"]].add("duplicate id", row["id"])
        write_arrays(part / "identities.u64", [keys[self._is_new]])

    def by_shard(self) -> Iterator[list[Row]]:
        """Yield those of one shard after another."""
        flags = iter(self._is_new.tolist())
        for shard in self._shards:
            yield [row for row in read_shard(shard) if next(flags)]

    def rows(self) -> Iterator[Row]:
        """Yield all of them."""
        return chain.from_iterable(self.by_shard())


def _are_first(earlier: Sequence[Hashes], keys: Hashes, memory: int) -> tuple[Rows, Flags]:
    """Return the place of the first key equal to each, among earlier ones and these, and whether it
    is that key itself."""
    known_count = sum(map(len, earlier))
    firsts = first_places([*earlier, keys], memory)[known_count:]
    return firsts, firsts == np.arange(known_count, known_count + len(keys))


# ---------------------------------------------------------------- merging


def _merge(
    new: _NewDocuments, parts: Sequence[Path], part: Path, settings: TextBaseSettings
) -> _MergeResult:
    """Find the row of every line; write the part's keys and sketches."""
    memory = settings.memory << 20
    # lines of the same normal words
    old_keys = [read_array(folder / "keys.u64") for folder in parts]
    texts = (text for row in new.rows() for text in row["texts"])
    keys = np.fromiter(map(line_key, texts), dtype=np.uint64)
    first, is_distinct = _are_first(old_keys, keys, memory)
    _write_sketches(new, is_distinct, part / "work")
    # distinct lines that are near an earlier one
    sketches = [*map(line_sketch, parts), line_sketch(part / "work")]
    known_count = sum(len(earlier.ends) for earlier in sketches[:-1])
    stands = near_duplicates(sketches, known_count, settings.merge, memory)[known_count:]
    alone = stands == np.arange(known_count, known_count + len(stands))
    row_of = stands  # of each distinct line
    if len(stands):
        ranks = np.cumsum(alone) - 1 + known_count
        row_of = np.where(stands < known_count, stands, ranks[np.maximum(stands - known_count, 0)])
    distinct = np.flatnonzero(is_distinct)
    _write_part_sketches(part, keys[distinct], row_of, alone)
    # the row of every line, by the first line of the same words
    old_rows = [read_array(folder / "key_rows.i64") for folder in parts]
    new_rows = np.full(len(keys), -1, np.int64)
    new_rows[distinct] = row_of
    firsts = np.zeros(len(keys), dtype=bool)
    firsts[distinct[alone]] = True
    return _MergeResult(np.concatenate([*old_rows, new_rows])[first], firsts, int((~alone).sum()))


def _write_sketches(new: _NewDocuments, is_distinct: Flags, work: Path) -> None:
    """Write the sketches of the distinct lines, a shard at a time."""
    flags = iter(is_distinct.tolist())
    total = 0
    with ExitStack() as stack:
        bands, pairs, ends = (
            stack.enter_context((work / name).open("wb"))
            for name in ("bands.u64", "pairs.u32", "ends.i64")
        )
        for rows in new.by_shard():
            shard_sketch = sketch([text for row in rows for text in row["texts"] if next(flags)])
            bands.write(shard_sketch.bands.tobytes())
            pairs.write(shard_sketch.pairs.tobytes())
            ends.write((shard_sketch.ends + total).tobytes())
            total += len(shard_sketch.pairs)


def _write_part_sketches(part: Path, keys: Hashes, row_of: Rows, alone: Flags) -> None:
    """Write the keys of all distinct lines and the sketches of those that stand for themselves."""
    write_arrays(part / "keys.u64", [keys])
    write_arrays(part / "key_rows.i64", [row_of])
    lines = line_sketch(part / "work")
    sizes = np.diff(lines.ends, prepend=0)
    write_arrays(part / "bands.u64", _marked(lines.bands, alone))
    write_arrays(part / "ends.i64", [np.cumsum(sizes[alone])])
    write_arrays(part / "pairs.u32", _marked(lines.pairs, np.repeat(alone, sizes)))


def _marked(array: npt.NDArray[Any], marks: Flags) -> Iterator[npt.NDArray[Any]]:
    """Yield the marked rows of an array, a piece at a time."""
    for start in range(0, len(marks), COPY_NUMBERS):
        piece = slice(start, start + COPY_NUMBERS)
        yield array[piece][marks[piece]]


# ---------------------------------------------------------------- tables


def _first_lines(rows: Iterable[Row], firsts: Flags) -> Iterator[Row]:
    """Yield the lines that bring a new row."""
    flags = iter(firsts.tolist())
    for row in rows:
        shared = {"document": row["id"], "source": row["source"], "licence": row["licence"]}
        for position, text in enumerate(row["texts"]):
            if next(flags):
                yield {"id": f"{row['id']}#{position}", "text": text, "position": position} | shared


def _write_holders(
    rows: Iterable[Row], merged: _MergeResult, parts: Sequence[Path], part: Path
) -> None:
    """Write which documents hold each row, sorted by row: two arrays side by side, no pair
    twice."""
    known_count = sum(len(read_array(folder / "identities.u64")) for folder in parts)
    counts = np.fromiter((len(row["texts"]) for row in rows), dtype=np.int64)
    documents = np.repeat(np.arange(known_count, known_count + len(counts)), counts)
    order = np.lexsort((documents, merged.rows))
    pairs = np.stack([merged.rows[order], documents[order]])  # (2, N)
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (pairs[:, 1:] != pairs[:, :-1]).any(axis=0)
    write_arrays(part / "holder_rows.i64", [pairs[0, is_new]])
    write_arrays(part / "holders.i64", [pairs[1, is_new]])
