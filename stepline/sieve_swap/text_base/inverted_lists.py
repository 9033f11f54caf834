"""Approximate search of our own: vectors sorted into lists around centroids, each list compared with its queries.

Many queries are asked at once, so the work goes list by list and every comparison is a matrix product; searching query
by query instead is bound by memory, not by arithmetic. C lists, P lists probed a query.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stepline.records import Matrix
from stepline.sieve_swap.text_base.arrays import read_array, read_vectors, write_arrays, write_vectors
from stepline.sieve_swap.text_base.exact import Nearest, Rows, as_tensor, best_device, nearest_exact

if TYPE_CHECKING:
    from stepline.sieve_swap.text_base.vectors import VectorStore

ROUNDS = 6  # of k-means
POINTS = 32  # vectors a centroid is trained on
QUERIES = 32_768  # queries asked together
PIECE = 16_384  # vectors copied at a time
FILES = ("centroids.npy", "bounds.i64", "order.i64", "vectors.npy")


class InvertedLists:
    """An index in a folder: centroids (C, D), the vectors in the order of their lists, and their rows."""

    def __init__(self, folder: Path) -> None:
        self._centroids = np.asarray(read_vectors(folder / "centroids.npy"), dtype=np.float32)
        self._bounds = np.asarray(read_array(folder / "bounds.i64"))  # (C + 1,)
        self._order = read_array(folder / "order.i64")
        self._vectors = read_vectors(folder / "vectors.npy")

    def efforts(self) -> list[int]:
        """Return the numbers of lists worth trying: 1, 2, 3, 4, 6, 8, 12, ... up to all."""
        count = len(self._centroids)
        steps = sorted({max(1, part << power) for power in range(24) for part in (1, 3)} | {count})
        return [lists for lists in steps if lists <= count]

    def search(self, queries: Matrix, k: int, effort: int) -> tuple[Rows, Matrix]:
        """Return what `nearest_exact` does, found in the `effort` lists whose centroids are nearest."""
        found = [self._search(queries[at : at + QUERIES], k, effort) for at in range(0, len(queries), QUERIES)]
        rows = np.concatenate([np.empty((0, k), np.int64), *(rows for rows, _ in found)])
        return rows, np.concatenate([np.empty((0, k), np.float32), *(cosines for _, cosines in found)])

    def _search(self, queries: Matrix, k: int, effort: int) -> tuple[Rows, Matrix]:
        import torch

        effort = min(effort, len(self._centroids))
        device = best_device()
        lists, _ = nearest_exact(queries, [(0, self._centroids)], effort)  # (N, P)
        order = np.argsort(lists, axis=None, kind="stable")
        askers = torch.from_numpy(order // effort).to(device)
        edges = np.searchsorted(lists.ravel()[order], np.arange(len(self._centroids) + 1))
        asked = torch.from_numpy(np.ascontiguousarray(queries, dtype=np.float32)).to(device)
        best = Nearest(len(queries), k, device)
        with torch.inference_mode():
            for number in np.flatnonzero(np.diff(edges)).tolist():
                start, end = self._bounds[number : number + 2]
                if start < end:
                    some = askers[edges[number] : edges[number + 1]]  # (n,)
                    vectors = as_tensor(self._vectors[start:end], device)  # (m, D)
                    rows = torch.from_numpy(np.array(self._order[start:end])).to(device)
                    best.offer(some, asked[some] @ vectors.T, rows)
        return best.result()


def build_lists(vectors: "VectorStore", folder: Path, *, seed: int, memory: int, progress: Callable[[], None]) -> None:
    """Write the lists of all vectors. memory: bytes for training; the same vectors and seed give the same bytes."""
    count, width = len(vectors), vectors.width
    lists = int(min(max(1, count // 8), max(16, 1 << round(np.log2(4 * np.sqrt(max(1, count)))))))
    most = max(1, min(POINTS * lists, memory // (8 * width)))
    rng = np.random.default_rng(seed)
    sample = np.sort(rng.choice(count, size=min(count, most), replace=False))
    centroids = _train(vectors.take(sample), lists, rng)
    near = np.concatenate([np.empty(0, np.int64), *_assigned(vectors, centroids, progress)])
    order = np.argsort(near, kind="stable")
    write_vectors(folder / "centroids.npy", [centroids], centroids.shape, "float32")
    write_arrays(folder / "bounds.i64", [np.searchsorted(near[order], np.arange(len(centroids) + 1))])
    write_arrays(folder / "order.i64", [order])
    write_vectors(folder / "vectors.npy", _pieces(vectors, order), (count, width), vectors.precision)


def _train(points: Matrix, count: int, rng: np.random.Generator) -> Matrix:
    """Return unit centroids (C, D) by spherical k-means; one that lost all its points starts again at a point."""
    count = min(count, len(points))
    centroids = points[np.sort(rng.choice(len(points), size=count, replace=False))]
    for _ in range(ROUNDS):
        nearest, _ = nearest_exact(points, [(0, centroids)])
        order = np.argsort(nearest[:, 0], kind="stable")
        counts = np.bincount(nearest[:, 0], minlength=count)
        filled = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[filled]
        sums = np.empty_like(centroids)
        sums[filled] = np.add.reduceat(points[order], starts, axis=0)
        empty = np.flatnonzero(counts == 0)
        sums[empty] = points[np.sort(rng.choice(len(points), size=len(empty), replace=False))]
        centroids = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    return centroids.astype(np.float32)


def _assigned(vectors: "VectorStore", centroids: Matrix, progress: Callable[[], None]) -> Iterator[Rows]:
    for _, block in vectors.blocks(PIECE):
        yield nearest_exact(np.asarray(block, dtype=np.float32), [(0, centroids)])[0][:, 0]
        progress()


def _pieces(vectors: "VectorStore", order: Rows) -> Iterator[npt.NDArray[Any]]:
    for at in range(0, len(order), PIECE):
        yield vectors.take(order[at : at + PIECE])
