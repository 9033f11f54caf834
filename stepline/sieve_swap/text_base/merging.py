"""Which of many lines are one: exact keys first, then near-duplicates by their sketches; memory stays bounded.

Every line either stands for itself or for the earliest line that says the same; so a line that was kept is never
dropped by what is appended later, and each merged line is within the threshold of the one that stands for it.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.sieve_swap.text_base.likeness import Hashes, Sketch, jaccard

Rows: TypeAlias = npt.NDArray[np.int64]

ROW_BYTES = 64  # that sorting one hash takes: hash, place, order, marks
CROWD = 50  # lines with one band's hash that a line is compared with; more are hardly more alike


def first_places(keys: Sequence[Hashes], memory: int) -> Rows:
    """Return for each key the place of the first key equal to it: (N,) int64.

    keys: N in all, several arrays one after another (memory-mapped is fine). memory: bytes to sort in.
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
    """Return for each line the place of the line that stands for it, itself where none is near: (N,) int64.

    known: the first lines, merged before; they stay. threshold: Jaccard likeness of the word pairs, 1 merges nothing.
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
    """Yield (line, earlier line) for lines from `known` on that share a hash, at most CROWD earlier ones each."""
    for places, hashes in _slices(keys, memory):
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        edges = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]]))
        sizes = np.diff(edges)
        for start, size in zip(edges[:-1][sizes > 1], sizes[sizes > 1], strict=True):
            members = places[order[start : start + size]]
            for place in range(1, int(size)):
                if members[place] >= known:
                    yield from ((int(members[place]), int(leader)) for leader in members[: min(place, CROWD)])


def _slices(keys: Sequence[Hashes], memory: int) -> Iterator[tuple[Rows, Hashes]]:
    """Yield (places, hashes) of all keys in turn, by ranges of the hash, so that equal ones come together."""
    count = sum(map(len, keys))
    parts = 1
    while count * ROW_BYTES > memory * parts and parts < 1 << 16:
        parts *= 2
    shift = np.uint64(64 - parts.bit_length() + 1)
    starts = np.cumsum([0, *map(len, keys)])
    for part in range(parts):
        places, hashes = [], []
        for start, array in zip(starts, keys, strict=False):
            here = np.arange(len(array)) if parts == 1 else np.flatnonzero((array >> shift) == np.uint64(part))
            places.append(here + start)
            hashes.append(np.asarray(array[here]))
        if sum(map(len, hashes)):
            yield np.concatenate(places), np.concatenate(hashes)
