"""Shards of read documents made one part of the base: its lines merged, its documents pointing at
rows.

A part's files: steps.parquet (a row per line), documents.parquet (a row per document, in its own
wording), and arrays. The first arrays are keys and key_rows (the key of normal words -> its row),
bands, pairs and ends (sketches of its lines). The others are identities (keys of its documents'
ids), holder_rows and holders (which documents hold a row). The first occurrence of a line
represents all. What was read earlier never changes its row. Memory: 40 bytes per line read, and
what sorting may use.

Lines are merged by exact keys first, then near-duplicates by their sketches. Every line either
represents itself or is merged into the earliest line that says the same. So a line that has a row
is never dropped by what is appended later. Each merged line is within the threshold of the one that
represents it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.sieve_swap.text_base.near_duplicates import (
    BAND_COUNT,
    Hashes,
    Sketch,
    jaccard,
    line_key,
    sketch,
    text_key,
)
from stepline.sieve_swap.text_base.parquet_tables import ColumnType, Row, write_table
from stepline.sieve_swap.text_base.read_sources import Tally, read_shard
from stepline.sieve_swap.text_base.settings import TextBaseSettings
from stepline.sieve_swap.text_base.vectors import Rows, read_array, write_arrays

Array: TypeAlias = npt.NDArray[Any]  # of any numbers
Flags: TypeAlias = npt.NDArray[np.bool_]
LinePair: TypeAlias = tuple[int, int]  # a line and an earlier one

HASH_SORT_BYTES = 64  # that sorting one hash takes: hash, place, order, marks
HASH_BITS = 64
MAX_RANGES = 1 << 16  # of hashes that are sorted one after another
# lines with one band's hash that a line is compared with. More are hardly more alike.
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


def first_occurrences(keys: Sequence[Hashes], memory: int) -> Rows:
    """Return for each key the position of the first equal key: (N,) int64.

    keys: N in all, several arrays one after another (memory-mapped is fine). memory: bytes to sort
    in.
    """
    count = sum(map(len, keys))
    firsts = np.arange(count, dtype=np.int64)
    for positions, edges in _equal_groups(keys, memory):
        # Sorting is stable, so the first of a group is its earliest key.
        firsts[positions] = np.repeat(positions[edges[:-1]], np.diff(edges))
    return firsts


def near_duplicates(
    sketches: Sequence[Sketch], known_count: int, threshold: float, memory: int
) -> Rows:
    """Return for each line the position of its representative, itself without a near-duplicate:
    (N,) int64.

    known_count: how many of the lines were merged before, which stay. threshold: Jaccard likeness
    of the word pairs, 1 merges nothing.
    """
    count = sum(len(part.ends) for part in sketches)
    representatives = np.arange(count, dtype=np.int64)
    if threshold >= 1.0:
        return representatives
    lines = _SketchWordPairs(sketches)
    # the earliest line near each
    earliest = np.full(count, count, dtype=np.int64)
    _, band_count = sketches[0].bands.shape
    for band in range(band_count):
        keys = [part.bands[:, band] for part in sketches]
        for row, leader in _candidate_pairs(keys, known_count, memory):
            if leader >= earliest[row]:
                continue
            if jaccard(lines[row], lines[leader]) >= threshold:
                earliest[row] = leader
    # the line that represents the near one may be farther, so it is compared too
    for row in np.flatnonzero(earliest < count).tolist():
        near = earliest[row]
        leader = int(representatives[near])
        if leader == near or jaccard(lines[row], lines[leader]) >= threshold:
            representatives[row] = leader
    return representatives


class _SketchWordPairs:
    """Word-pair hashes of lines, over several sketches."""

    def __init__(self, sketches: Sequence[Sketch]) -> None:
        self._sketches = sketches
        self._starts = np.cumsum([0, *(len(part.ends) for part in sketches)])

    def __getitem__(self, row: int) -> npt.NDArray[np.uint32]:
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        part = self._sketches[number]
        line = int(row - self._starts[number])
        start = part.ends[line - 1] if line else 0
        return np.asarray(part.pairs[start : part.ends[line]])


def _candidate_pairs(keys: Sequence[Hashes], known_count: int, memory: int) -> Iterator[LinePair]:
    """Yield (line, earlier line) for lines from `known_count` on that share a hash, at most
    MAX_CANDIDATES earlier ones each."""
    for positions, edges in _equal_groups(keys, memory):
        for group in np.flatnonzero(np.diff(edges) > 1).tolist():
            members = positions[edges[group] : edges[group + 1]].tolist()
            for number, member in enumerate(members):
                if member < known_count:
                    continue
                for leader in members[: min(number, MAX_CANDIDATES)]:
                    yield member, leader


def _equal_groups(keys: Sequence[Hashes], memory: int) -> Iterator[tuple[Rows, Rows]]:
    """Yield (places, edges) of all keys: places[edges[n] : edges[n + 1]] have equal keys, in their
    order.

    Keys are sorted by ranges of the hash, one after another, each within the memory.
    """
    starts = np.cumsum([0, *map(len, keys)])
    sort_bytes = int(starts[-1]) * HASH_SORT_BYTES
    range_count = 1
    while sort_bytes > memory * range_count and range_count < MAX_RANGES:
        range_count *= 2
    range_bits = range_count.bit_length() - 1
    shift = np.uint64(HASH_BITS - range_bits)
    for number in range(range_count):
        # the hashes of this range and their places
        positions = []
        hashes = []
        for start, array in zip(starts, keys, strict=False):
            rows = np.arange(len(array))
            if range_count > 1:  # a shift by all 64 bits is undefined
                rows = np.flatnonzero(array >> shift == np.uint64(number))
            positions.append(rows + start)
            hashes.append(np.asarray(array[rows]))
        if not any(map(len, hashes)):
            continue
        # equal ones side by side
        all_hashes = np.concatenate(hashes)
        order = np.argsort(all_hashes, kind="stable")
        ordered = all_hashes[order]
        is_edge = np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])
        yield np.concatenate(positions)[order], np.flatnonzero(is_edge)


@dataclass(frozen=True)
class Counts:
    """Counts of one part: documents, lines read, merged as equal and as near, added, and
    (documents, lines) per source."""

    documents: int
    lines: int
    same: int
    near: int
    steps: int
    by_source: tuple[tuple[int, int], ...]


def write_tables(
    shards: Sequence[Path],
    parts: Sequence[Path],
    part: Path,
    tallies: Sequence[Tally],
    settings: TextBaseSettings,
) -> Counts:
    """Write a part's tables and arrays, and return their counts.

    Documents whose id was read before are left out and counted in the tallies.

    Args:
        shards: files of the documents that were read, in order.
        parts: folders of the earlier parts, in order.
        part: folder of the new one.
        tallies: what was left out of each source.
        settings: of the base.
    """
    documents = _NewDocuments(shards, parts, part, tallies, settings.memory << 20)
    line_rows, is_first, near_count = _merge_lines(documents, parts, part, settings)
    steps = _new_lines(documents, is_first)
    write_table(steps, STEP_COLUMNS, part / "steps.parquet", STEP_GROUP_ROWS)
    # of each source
    document_counts = [0] * len(tallies)
    line_counts = [0] * len(tallies)

    def documents_with_rows() -> Iterator[Row]:
        start = 0
        for row in documents:
            end = start + len(row["texts"])
            document_counts[row["origin"]] += 1
            line_counts[row["origin"]] += end - start
            yield row | {"rows": line_rows[start:end].tolist()}
            start = end

    path = part / "documents.parquet"
    write_table(documents_with_rows(), DOCUMENT_COLUMNS, path, DOCUMENT_GROUP_ROWS)
    _write_documents_of_rows(documents, line_rows, parts, part)
    step_count = int(is_first.sum())
    return Counts(
        documents=sum(document_counts),
        lines=len(line_rows),
        same=len(line_rows) - step_count - near_count,
        near=near_count,
        steps=step_count,
        by_source=tuple(zip(document_counts, line_counts, strict=True)),
    )


def _line_sketch(part: Path) -> Sketch:
    """Return the sketch of a part's lines, memory-mapped."""
    return Sketch(
        bands=read_array(part / "bands.u64", BAND_COUNT),
        pairs=read_array(part / "pairs.u32"),
        ends=read_array(part / "ends.i64"),
    )


class _NewDocuments:
    """The documents of some shards whose id no earlier document has. Their ids' keys are
    written."""

    def __init__(
        self,
        shards: Sequence[Path],
        parts: Sequence[Path],
        part: Path,
        tallies: Sequence[Tally],
        memory: int,
    ) -> None:
        self._shards = shards
        earlier_keys = [read_array(folder / "identities.u64") for folder in parts]
        rows = chain.from_iterable(map(read_shard, shards))
        keys = np.array([text_key(row["id"]) for row in rows], dtype=np.uint64)
        _, self._is_new = _first_occurrence_flags(earlier_keys, keys, memory)
        if not self._is_new.all():
            rows = chain.from_iterable(map(read_shard, shards))
            for row, is_new in zip(rows, self._is_new, strict=True):
                if not is_new:
                    tallies[row["origin"]].add("duplicate id", row["id"])
        write_arrays(part / "identities.u64", [keys[self._is_new]])

    def by_shard(self) -> Iterator[list[Row]]:
        """Yield the new documents of one shard after another."""
        flags = iter(self._is_new.tolist())
        for shard in self._shards:
            yield [row for row in read_shard(shard) if next(flags)]

    def __iter__(self) -> Iterator[Row]:
        return chain.from_iterable(self.by_shard())


def _first_occurrence_flags(
    earlier: Sequence[Hashes], keys: Hashes, memory: int
) -> tuple[Rows, Flags]:
    """Return the position of the first equal key, among earlier and these keys, and whether it
    is that key itself."""
    earlier_count = sum(map(len, earlier))
    all_firsts = first_occurrences([*earlier, keys], memory)
    firsts = all_firsts[earlier_count:]
    return firsts, firsts == np.arange(earlier_count, len(all_firsts))


# ---------------------------------------------------------------- merging


def _merge_lines(
    documents: _NewDocuments, parts: Sequence[Path], part: Path, settings: TextBaseSettings
) -> tuple[Rows, Flags, int]:
    """Return the row of every line, whether a line brings a new row, and how many near-duplicates
    were merged. Write the part's keys and sketches."""
    memory = settings.memory << 20
    work_folder = part / "work"
    # lines of the same normal words
    old_keys = [read_array(folder / "keys.u64") for folder in parts]
    texts = (text for row in documents for text in row["texts"])
    keys = np.fromiter(map(line_key, texts), dtype=np.uint64)
    first, is_distinct = _first_occurrence_flags(old_keys, keys, memory)
    _write_sketches(documents, is_distinct, work_folder)
    # distinct lines that are near an earlier one
    old_sketches = list(map(_line_sketch, parts))
    sketches = [*old_sketches, _line_sketch(work_folder)]
    known_count = sum(len(old.ends) for old in old_sketches)
    all_representatives = near_duplicates(sketches, known_count, settings.merge, memory)
    representatives = all_representatives[known_count:]
    is_representative = representatives == np.arange(known_count, len(all_representatives))
    # the row of each distinct line: an old one, or the next free one
    row_of = representatives
    if len(representatives):
        new_rows = np.cumsum(is_representative) - 1 + known_count
        new_representatives = np.maximum(representatives - known_count, 0)
        is_old = representatives < known_count
        row_of = np.where(is_old, representatives, new_rows[new_representatives])
    distinct = np.flatnonzero(is_distinct)
    # the keys of all distinct lines, the sketches of those that represent themselves
    write_arrays(part / "keys.u64", [keys[distinct]])
    write_arrays(part / "key_rows.i64", [row_of])
    lines = sketches[-1]
    sizes = np.diff(lines.ends, prepend=0)
    write_arrays(part / "bands.u64", _flagged_rows(lines.bands, is_representative))
    write_arrays(part / "ends.i64", [np.cumsum(sizes[is_representative])])
    write_arrays(
        part / "pairs.u32", _flagged_rows(lines.pairs, np.repeat(is_representative, sizes))
    )
    # the row of every line, by the first line of the same words
    old_rows = [read_array(folder / "key_rows.i64") for folder in parts]
    own_rows = np.full(len(keys), -1, np.int64)
    own_rows[distinct] = row_of
    is_first = np.zeros(len(keys), dtype=bool)
    is_first[distinct[is_representative]] = True
    return np.concatenate([*old_rows, own_rows])[first], is_first, int((~is_representative).sum())


def _write_sketches(documents: _NewDocuments, is_distinct: Flags, work: Path) -> None:
    """Write the sketches of the distinct lines, a shard at a time."""
    flags = iter(is_distinct.tolist())
    total = 0
    with (
        (work / "bands.u64").open("wb") as bands,
        (work / "pairs.u32").open("wb") as pairs,
        (work / "ends.i64").open("wb") as ends,
    ):
        for rows in documents.by_shard():
            texts = [text for row in rows for text in row["texts"] if next(flags)]
            shard_sketch = sketch(texts)
            bands.write(shard_sketch.bands.tobytes())
            pairs.write(shard_sketch.pairs.tobytes())
            ends.write((shard_sketch.ends + total).tobytes())
            total += len(shard_sketch.pairs)


def _flagged_rows(array: Array, marks: Flags) -> Iterator[Array]:
    """Yield the rows of an array whose flag is set, a piece at a time."""
    for start in range(0, len(marks), COPY_NUMBERS):
        piece = slice(start, start + COPY_NUMBERS)
        yield array[piece][marks[piece]]


# ---------------------------------------------------------------- tables


def _new_lines(rows: Iterable[Row], firsts: Flags) -> Iterator[Row]:
    """Yield the lines that add a new row."""
    flags = iter(firsts.tolist())
    for row in rows:
        document = row["id"]
        for position, text in enumerate(row["texts"]):
            if next(flags):
                yield {
                    "id": f"{document}#{position}",
                    "text": text,
                    "document": document,
                    "position": position,
                    "source": row["source"],
                    "licence": row["licence"],
                }


def _write_documents_of_rows(
    documents: Iterable[Row], line_rows: Rows, parts: Sequence[Path], part: Path
) -> None:
    """Write which documents hold each row, sorted by row: two arrays side by side, no pair
    twice."""
    # the document of every line
    known_count = sum(len(read_array(folder / "identities.u64")) for folder in parts)
    counts = np.array([len(row["texts"]) for row in documents], dtype=np.int64)
    numbers = np.repeat(np.arange(known_count, known_count + len(counts)), counts)
    # by row, then by document
    order = np.lexsort((numbers, line_rows))
    rows = line_rows[order]
    documents_of_rows = numbers[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (rows[1:] != rows[:-1]) | (documents_of_rows[1:] != documents_of_rows[:-1])
    write_arrays(part / "holder_rows.i64", [rows[is_new]])
    write_arrays(part / "holders.i64", [documents_of_rows[is_new]])
