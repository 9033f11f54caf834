"""The approximate nearest-neighbour index of a base: built, its recall measured against exact
search, opened.

It is an inverted file: vectors sorted into lists around k-means centroids. Many queries are asked
together, so the work goes list by list and every comparison is a matrix product. Searching query by
query instead is bound by memory, not by arithmetic. C lists, P lists probed per query.
"""

from pathlib import Path

import numpy as np

from stepline.errors import StoreError
from stepline.files.digests import sha256
from stepline.networks.device import current_device
from stepline.numeric import unit_rows
from stepline.records import Matrix
from stepline.sieve_swap.text_base.manifest import (
    CurvePoint,
    IndexEntry,
    Manifest,
    read_manifest,
    write_manifest,
)
from stepline.sieve_swap.text_base.settings import INDEX_ENGINE, TextBaseSettings
from stepline.sieve_swap.text_base.vectors import (
    Nearest,
    Neighbours,
    Rows,
    VectorStore,
    as_tensor,
    nearest_exact,
    read_array,
    read_vectors,
    write_arrays,
    write_vectors,
)

KMEANS_ROUNDS = 6
VECTORS_PER_CENTROID = 32  # that it is trained on
MIN_LISTS = 16  # where there are vectors enough
MIN_LIST_VECTORS = 8  # vectors per list on average, at least
QUERIES_TOGETHER = 32_768  # queries asked together
BLOCK_VECTORS = 16_384  # copied at a time
MAX_EFFORT_POWER = 24  # of 2, in the efforts worth trying
INVERTED_LISTS_FILES = ("centroids.npy", "bounds.i64", "order.i64", "vectors.npy")


class InvertedLists:
    """An index in a folder: centroids (C, D), the vectors in the order of their lists, and their
    rows."""

    def __init__(self, folder: Path) -> None:
        self._centroids = np.asarray(read_vectors(folder / "centroids.npy"), dtype=np.float32)
        self._bounds = np.asarray(read_array(folder / "bounds.i64"))  # (C + 1,)
        self._order = read_array(folder / "order.i64")
        self._vectors = read_vectors(folder / "vectors.npy")

    def efforts(self) -> list[int]:
        """Return the numbers of lists worth trying: 1, 2, 3, 4, 6, 8, 12, ... up to all."""
        count = len(self._centroids)
        efforts = {count}
        for power in range(MAX_EFFORT_POWER):
            efforts.add(1 << power)
            efforts.add(3 << power)
        return [effort for effort in sorted(efforts) if effort <= count]

    def search(self, queries: Matrix, k: int, effort: int) -> Neighbours:
        """Return what `nearest_exact` returns, found in the `effort` lists whose centroids are
        nearest."""
        rows = np.empty((len(queries), k), np.int64)
        cosines = np.empty((len(queries), k), np.float32)
        for start in range(0, len(queries), QUERIES_TOGETHER):
            chunk = slice(start, start + QUERIES_TOGETHER)
            rows[chunk], cosines[chunk] = self._search(queries[chunk], k, effort)
        return rows, cosines

    def _search(self, queries: Matrix, k: int, effort: int) -> Neighbours:
        import torch

        list_count = len(self._centroids)
        effort = min(effort, list_count)
        device = current_device().name
        # the queries that ask each list: those of list number c are query_of[edges[c]:edges[c + 1]]
        lists, _ = nearest_exact(queries, [(0, self._centroids)], effort)  # (N, P)
        order = np.argsort(lists, axis=None, kind="stable")
        query_of = torch.from_numpy(order // effort).to(device)
        edges = np.searchsorted(lists.ravel()[order], np.arange(list_count + 1))
        probed_lists = np.flatnonzero(np.diff(edges))
        # list by list, all queries that ask it together
        all_queries = as_tensor(queries, device)
        best = Nearest(len(queries), k, device)
        with torch.inference_mode():
            for number in probed_lists.tolist():
                start, end = self._bounds[number : number + 2]
                if start == end:
                    continue
                first, last = edges[number : number + 2]
                numbers = query_of[first:last]  # (n,)
                vectors = as_tensor(self._vectors[start:end], device)  # (m, D)
                rows = torch.from_numpy(np.array(self._order[start:end])).to(device)
                scores = all_queries[numbers] @ vectors.T  # (n, m)
                best.add_scores(numbers, scores, rows)
        return best.result()


def build_lists(vectors: VectorStore, folder: Path, *, seed: int, memory: int) -> None:
    """Write the lists of all vectors. The same vectors and seed give the same bytes.

    Args:
        vectors: of a base.
        folder: of the index.
        seed: of the k-means.
        memory: bytes that training may use.
    """
    count = len(vectors)
    # about 4 sqrt(count) lists, a power of two, with at least MIN_LIST_VECTORS vectors each
    lists = max(MIN_LISTS, 1 << round(np.log2(4 * np.sqrt(max(1, count)))))
    lists = min(max(1, count // MIN_LIST_VECTORS), lists)
    rng = np.random.default_rng(seed)
    # a sample, on which the centroids are trained: a float32 per number, and its copy in the order
    # of the centroids
    sample_size = max(1, min(VECTORS_PER_CENTROID * lists, memory // (8 * vectors.width)))
    sample = vectors.take(_sample_rows(rng, count, sample_size))
    centroids = _train_centroids(sample, lists, rng)
    # the list of every vector, and the order of the vectors by their lists
    block_lists = [np.empty(0, np.int64)]
    for _, block in vectors.blocks(BLOCK_VECTORS):
        block_lists.append(_nearest_centroids(block, centroids))
    list_of = np.concatenate(block_lists)
    order = np.argsort(list_of, kind="stable")
    bounds = np.searchsorted(list_of[order], np.arange(len(centroids) + 1))
    write_vectors(folder / "centroids.npy", [centroids], centroids.shape, "float32")
    write_arrays(folder / "bounds.i64", [bounds])
    write_arrays(folder / "order.i64", [order])
    # the vectors in that order, a block at a time
    starts = range(0, count, BLOCK_VECTORS)
    blocks = (vectors.take(order[start : start + BLOCK_VECTORS]) for start in starts)
    shape = (count, vectors.width)
    write_vectors(folder / "vectors.npy", blocks, shape, vectors.precision)


def _nearest_centroids(vectors: Matrix, centroids: Matrix) -> Rows:
    """Return the number of the centroid nearest to each vector, (N,)."""
    rows, _ = nearest_exact(vectors, [(0, centroids)])
    return rows[:, 0]


def _sample_rows(rng: np.random.Generator, count: int, size: int) -> Rows:
    """Return `size` of `count` rows, or all, ascending."""
    return np.sort(rng.choice(count, size=min(count, size), replace=False))


def _train_centroids(points: Matrix, count: int, rng: np.random.Generator) -> Matrix:
    """Return unit centroids (C, D) by spherical k-means. One that lost all its points starts again
    at a point."""
    point_count = len(points)
    count = min(count, point_count)
    centroids = points[_sample_rows(rng, point_count, count)]
    for _ in range(KMEANS_ROUNDS):
        # points by their nearest centroid
        nearest = _nearest_centroids(points, centroids)
        order = np.argsort(nearest, kind="stable")
        counts = np.bincount(nearest, minlength=count)
        # the sum of the points of each centroid, or another point where it has none
        filled_lists = np.flatnonzero(counts)
        filled_starts = (np.cumsum(counts) - counts)[filled_lists]
        sums = np.empty_like(centroids)
        sums[filled_lists] = np.add.reduceat(points[order], filled_starts, axis=0)
        empty = np.flatnonzero(counts == 0)
        sums[empty] = points[_sample_rows(rng, point_count, len(empty))]
        centroids = unit_rows(sums)
    return centroids.astype(np.float32)


RANDOM_SEED = 0  # of the k-means and of the probes
MAX_PROBES = 500  # lines whose nearest other line is asked for, to measure recall
COSINE_TOLERANCE = 1e-5  # below the exact neighbour's cosine; what is within it is as near


def add_index(folder: Path, settings: TextBaseSettings) -> IndexEntry:
    """Build the index of a base, measure it, and enter it into the manifest. Return its entry.

    An index that is there for these vectors and this recall stays. Raises StoreError when the
    folder holds no base.
    """
    manifest = require_manifest(folder)
    # One that serves already.
    for entry in manifest.indexes:
        purpose = (entry.engine, entry.steps, entry.wanted)
        if purpose == (INDEX_ENGINE, manifest.steps, settings.recall):
            return entry
    # build
    vectors = open_vectors(folder, manifest)
    index_folder = folder / "indexes" / INDEX_ENGINE
    index_folder.mkdir(parents=True, exist_ok=True)
    build_lists(vectors, index_folder, seed=RANDOM_SEED, memory=settings.memory << 20)
    # measure. A base of fewer than two lines has no curve.
    curve, probes = measure_recall(open_index(folder), vectors, settings)
    entry = IndexEntry(
        engine=INDEX_ENGINE,
        steps=len(vectors),
        effort=curve[-1].effort if curve else 1,
        recall=curve[-1].recall if curve else 1.0,
        wanted=settings.recall,
        probes=probes,
        curve=curve,
        files={name: sha256(index_folder / name) for name in INVERTED_LISTS_FILES},
    )
    others = [other for other in manifest.indexes if other.engine != INDEX_ENGINE]
    write_manifest(manifest.model_copy(update={"indexes": (*others, entry)}), folder)
    return entry


def measure_recall(
    index: InvertedLists, vectors: VectorStore, settings: TextBaseSettings
) -> tuple[tuple[CurvePoint, ...], int]:
    """Return recall@1 by effort, up to the least effort that reaches the recall asked for, and the
    number of queries.

    The queries are lines of the base itself, drawn by the seed. Each asks for its nearest other
    line. A neighbour as near as the exact one also counts.
    """
    count = len(vectors)
    if count < 2:
        return (), 0
    # Lines of the base, and their exact neighbours.
    rng = np.random.default_rng(RANDOM_SEED)
    probes = _sample_rows(rng, count, MAX_PROBES)
    queries = vectors.take(probes)
    exact_rows, exact_cosines = nearest_exact(queries, vectors.blocks(), 2)
    least = _best_other_cosine(probes, exact_rows, exact_cosines) - COSINE_TOLERANCE
    # From the least effort to the first that reaches the recall.
    curve: list[CurvePoint] = []
    for effort in index.efforts():
        rows, row_cosines = index.search(queries, 2, effort)
        is_within_tolerance = _best_other_cosine(probes, rows, row_cosines) >= least
        recall = round(float(is_within_tolerance.mean()), 4)
        curve.append(CurvePoint(effort=effort, recall=recall))
        if recall >= settings.recall:
            break
    return tuple(curve), len(probes)


def _best_other_cosine(probes: Rows, rows: Rows, cosines: Matrix) -> Matrix:
    """Return the cosine of the best of two rows that is not the probe itself, -1 where none was
    found."""
    # A probe is its own nearest line, unless an equal line comes before it.
    first_cosines, second_cosines = cosines.T
    others: Matrix = np.where(rows[:, 0] == probes, second_cosines, first_cosines)
    return others.astype(np.float32)


def open_index(folder: Path) -> InvertedLists:
    """Return the index of a base. Raises StoreError where it is missing or damaged."""
    return InvertedLists(folder / "indexes" / INDEX_ENGINE)


def open_vectors(folder: Path, manifest: Manifest) -> VectorStore:
    """Return the vectors of a base."""
    part_folder = folder / "parts"
    files = [part_folder / part.name / "vectors.npy" for part in manifest.parts]
    return VectorStore(files, manifest.width, manifest.precision)


def require_manifest(folder: Path) -> Manifest:
    """Return the manifest of a base. Raises StoreError, with the cure, for a folder without a
    base."""
    manifest = read_manifest(folder)
    if manifest is None:
        cure = f"`stepline text-base build SOURCE --out {folder}` makes one"
        raise StoreError(f"{folder}: no text base here; {cure}")
    return manifest
