"""Approximate nearest-neighbour indexes of a base: built, their recall measured against exact
search, opened.

InvertedLists is our own: vectors sorted into lists around k-means centroids. Many queries are asked
at once, so the work goes list by list and every comparison is a matrix product; searching query by
query instead is bound by memory, not by arithmetic. C lists, P lists probed a query. FaissIndex is
FAISS (Johnson et al. 2019), an optional library: flat, inverted file, graph (HNSW, Malkov 2018).
"""

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from stepline.atomic_files import atomic_path
from stepline.device import current_device
from stepline.errors import ModelError, StoreError
from stepline.numeric import unit_rows
from stepline.records import Matrix
from stepline.text_base.manifest import (
    CurvePoint,
    IndexEntry,
    Manifest,
    read_manifest,
    write_manifest,
)
from stepline.text_base.settings import Engine, TextBaseSettings
from stepline.text_base.vectors import (
    NO_ROW,
    Nearest,
    Rows,
    VectorStore,
    as_tensor,
    nearest_exact,
    read_array,
    read_vectors,
    write_arrays,
    write_vectors,
)
from stepline.weights import sha256

KMEANS_ROUNDS = 6
VECTORS_PER_CENTROID = 32  # that it is trained on
MIN_LIST_VECTORS = 8  # vectors a list on average, at least
QUERIES_TOGETHER = 32_768  # queries asked together
BLOCK_VECTORS = 16_384  # copied at a time
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
        steps = {part << power for power in range(24) for part in (1, 3)}
        return sorted({lists for lists in steps if lists < count} | {count})

    def search(self, queries: Matrix, k: int, effort: int) -> tuple[Rows, Matrix]:
        """Return what `nearest_exact` does, found in the `effort` lists whose centroids are
        nearest."""
        rows = np.empty((len(queries), k), np.int64)
        cosines = np.empty((len(queries), k), np.float32)
        for start in range(0, len(queries), QUERIES_TOGETHER):
            chunk = slice(start, start + QUERIES_TOGETHER)
            rows[chunk], cosines[chunk] = self._search(queries[chunk], k, effort)
        return rows, cosines

    def _search(self, queries: Matrix, k: int, effort: int) -> tuple[Rows, Matrix]:
        import torch

        effort = min(effort, len(self._centroids))
        device = current_device().name
        lists, _ = nearest_exact(queries, [(0, self._centroids)], effort)  # (N, P)
        order = np.argsort(lists, axis=None, kind="stable")
        askers = torch.from_numpy(order // effort).to(device)
        edges = np.searchsorted(lists.ravel()[order], np.arange(len(self._centroids) + 1))
        all_queries = as_tensor(queries, device)
        best = Nearest(len(queries), k, device)
        with torch.inference_mode():
            for number in np.flatnonzero(np.diff(edges)).tolist():
                start, end = self._bounds[number : number + 2]
                if start < end:
                    numbers = askers[edges[number] : edges[number + 1]]  # (n,)
                    vectors = as_tensor(self._vectors[start:end], device)  # (m, D)
                    rows = torch.from_numpy(np.array(self._order[start:end])).to(device)
                    best.offer(numbers, all_queries[numbers] @ vectors.T, rows)
        return best.result()


def build_lists(vectors: VectorStore, folder: Path, *, seed: int, memory: int) -> None:
    """Write the lists of all vectors. memory: bytes for training; the same vectors and seed give
    the same bytes."""
    count = len(vectors)
    lists = _list_count(count, MIN_LIST_VECTORS)
    rng = np.random.default_rng(seed)
    centroids = _train(_training_vectors(vectors, lists, memory, rng), lists, rng)
    nearest = [np.empty(0, np.int64)]
    for _, block in vectors.blocks(BLOCK_VECTORS):
        nearest.append(nearest_exact(block, [(0, centroids)])[0][:, 0])
    list_of = np.concatenate(nearest)
    order = np.argsort(list_of, kind="stable")
    bounds = np.searchsorted(list_of[order], np.arange(len(centroids) + 1))
    starts = range(0, count, BLOCK_VECTORS)
    blocks = (vectors.take(order[start : start + BLOCK_VECTORS]) for start in starts)
    write_vectors(folder / "centroids.npy", [centroids], centroids.shape, "float32")
    write_arrays(folder / "bounds.i64", [bounds])
    write_arrays(folder / "order.i64", [order])
    write_vectors(folder / "vectors.npy", blocks, (count, vectors.width), vectors.precision)


def _list_count(count: int, smallest: int) -> int:
    """Return how many lists serve so many vectors: about 4 sqrt(count), a power of two, each of
    `smallest` vectors at least."""
    power = round(np.log2(4 * np.sqrt(max(1, count))))
    return int(min(max(1, count // smallest), max(16, 1 << power)))


def _training_vectors(
    vectors: VectorStore, lists: int, memory: int, rng: np.random.Generator
) -> Matrix:
    """Return a sample of the vectors on which so many centroids are trained within the memory, in
    bytes."""
    most = max(1, min(VECTORS_PER_CENTROID * lists, memory // (8 * vectors.width)))
    return vectors.take(_sample(rng, len(vectors), most))


def _sample(rng: np.random.Generator, count: int, size: int) -> Rows:
    """Return `size` of so many rows, or all, ascending."""
    return np.sort(rng.choice(count, size=min(count, size), replace=False))


def _train(points: Matrix, count: int, rng: np.random.Generator) -> Matrix:
    """Return unit centroids (C, D) by spherical k-means; one that lost all its points starts again
    at a point."""
    count = min(count, len(points))
    centroids = points[_sample(rng, len(points), count)]
    for _ in range(KMEANS_ROUNDS):
        nearest = nearest_exact(points, [(0, centroids)])[0][:, 0]
        order = np.argsort(nearest, kind="stable")
        counts = np.bincount(nearest, minlength=count)
        filled = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[filled]
        sums = np.empty_like(centroids)
        sums[filled] = np.add.reduceat(points[order], starts, axis=0)
        empty = np.flatnonzero(counts == 0)
        sums[empty] = points[_sample(rng, len(points), len(empty))]
        centroids = unit_rows(sums)
    return centroids.astype(np.float32)


FAISS_FILES = ("index.faiss",)
GRAPH_LINKS = 32  # neighbours of a node in the graph
GRAPH_BUILD_EFFORT = 80  # nodes looked at when one is added to the graph
MIN_FAISS_LIST_VECTORS = 39  # vectors a list on average, at least, as FAISS asks for
PROBE_COUNTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256)  # lists worth trying


def library() -> Any:
    """Return the module faiss. Raises ModelError, with the cure, where it is not installed."""
    try:
        import faiss
    except ImportError as error:
        raise ModelError(
            "FAISS is not installed: pip install 'stepline[ann]', or choose engine exact or lists, which need nothing"
        ) from error
    return faiss


class FaissIndex:
    """A FAISS index in a folder."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self._faiss = library()
        self._engine = engine
        try:
            self._index = self._faiss.read_index(str(folder / "index.faiss"))
        except RuntimeError as error:  # FAISS raises no narrower class
            reason = str(error).splitlines()[-1][:200]
            raise StoreError(
                f"{folder}: not readable ({reason}); `stepline text-base index` builds it"
            ) from error

    def efforts(self) -> list[int]:
        """Return the values of nprobe or ef worth trying; one for a flat index."""
        if self._engine == "flat":
            return [1]
        if self._engine == "hnsw":
            return [16, 32, 64, 128, 256, 512, 1024]
        count = int(self._index.nlist)
        return [*(lists for lists in PROBE_COUNTS if lists < count), count]

    def search(self, queries: Matrix, k: int, effort: int) -> tuple[Rows, Matrix]:
        """Return what `nearest_exact` does, as far as the index finds it."""
        if self._engine == "ivf":
            self._index.nprobe = effort
        elif self._engine == "hnsw":
            self._index.hnsw.efSearch = max(effort, k)
        cosines, rows = self._index.search(np.ascontiguousarray(queries, dtype=np.float32), k)
        cosines = np.where(rows == NO_ROW, -1.0, cosines).clip(-1.0, 1.0)
        return rows.astype(np.int64), cosines.astype(np.float32)


def build_faiss(
    vectors: VectorStore, folder: Path, engine: Engine, *, seed: int, memory: int
) -> None:
    """Write a FAISS index of all vectors. The graph is built by one thread, so that it has the same
    bytes each time."""
    faiss = library()
    width = vectors.width
    threads = faiss.omp_get_max_threads()
    if engine == "flat":
        index = faiss.IndexFlatIP(width)
    elif engine == "hnsw":
        index = faiss.IndexHNSWFlat(width, GRAPH_LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = GRAPH_BUILD_EFFORT
        faiss.omp_set_num_threads(1)
    else:
        lists = _list_count(len(vectors), MIN_FAISS_LIST_VECTORS)
        quantizer = faiss.IndexFlatIP(width)
        index = faiss.IndexIVFFlat(quantizer, width, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.seed = seed
        rng = np.random.default_rng(seed)
        index.train(_training_vectors(vectors, lists, memory, rng))
    try:
        for _, block in vectors.blocks():
            index.add(np.asarray(block, dtype=np.float32))
    finally:
        faiss.omp_set_num_threads(threads)
    with atomic_path(folder / "index.faiss") as partial:
        faiss.write_index(index, str(partial))


MAX_PROBES = 500  # lines whose nearest other line is asked for, to measure recall
COSINE_TOLERANCE = 1e-5  # below the exact neighbour's cosine, within which one is as near


class Index(Protocol):
    """What finds the nearest rows, more or less surely by its effort."""

    def efforts(self) -> list[int]:
        """Return the efforts worth trying, ascending."""

    def search(self, queries: Matrix, k: int, effort: int) -> tuple[Rows, Matrix]:
        """Return rows (N, k) and cosines (N, k), best first; -1 where nothing was found."""


def add_index(folder: Path, settings: TextBaseSettings) -> IndexEntry:
    """Build the index that `settings.engine` names, measure it, and enter it into the manifest;
    return its entry.

    An index that is there for these vectors and this recall stays. Raises StoreError when the
    folder holds no base.
    """
    manifest = require_manifest(folder)
    purpose = (settings.engine, manifest.steps, settings.recall)
    for entry in manifest.indexes:
        if (entry.engine, entry.steps, entry.wanted) == purpose:
            return entry
    vectors = open_vectors(folder, manifest)
    index_folder = folder / "indexes" / settings.engine
    index_folder.mkdir(parents=True, exist_ok=True)
    seed = settings.seed
    memory = settings.memory << 20
    if settings.engine == "lists":
        build_lists(vectors, index_folder, seed=seed, memory=memory)
        names: tuple[str, ...] = INVERTED_LISTS_FILES
    else:
        build_faiss(vectors, index_folder, settings.engine, seed=seed, memory=memory)
        names = FAISS_FILES
    curve, probes = measure_recall(open_index(folder, settings.engine), vectors, settings)
    entry = IndexEntry(
        engine=settings.engine,
        steps=len(vectors),
        effort=curve[-1].effort if curve else 1,
        recall=curve[-1].recall if curve else 1.0,
        wanted=settings.recall,
        probes=probes,
        curve=curve,
        files={name: sha256(index_folder / name) for name in names},
    )
    others = [other for other in manifest.indexes if other.engine != settings.engine]
    write_manifest(manifest.model_copy(update={"indexes": (*others, entry)}), folder)
    return entry


def measure_recall(
    index: Index, vectors: VectorStore, settings: TextBaseSettings
) -> tuple[tuple[CurvePoint, ...], int]:
    """Return recall@1 by effort, up to the least effort that reaches the recall asked for, and how
    many were asked.

    Asked is the nearest other line of seeded lines: queries as real as the base itself. A neighbour
    as near as the exact one counts, too.
    """
    count = len(vectors)
    if count < 2:
        return (), 0
    probes = _sample(np.random.default_rng(settings.seed), count, MAX_PROBES)
    queries = vectors.take(probes)
    true = _other(probes, *nearest_exact(queries, vectors.blocks(), 2))
    curve: list[CurvePoint] = []
    for effort in index.efforts():
        cosines = _other(probes, *index.search(queries, 2, effort))
        recall = round(float((cosines >= true - COSINE_TOLERANCE).mean()), 4)
        curve.append(CurvePoint(effort=effort, recall=recall))
        if recall >= settings.recall:
            break
    return tuple(curve), len(probes)


def _other(probes: Rows, rows: Rows, cosines: Matrix) -> Matrix:
    """Return the cosine of the best of two rows that is not the probe itself; -1 where none was
    found."""
    return np.where(rows[:, 0] == probes, cosines[:, 1], cosines[:, 0]).astype(np.float32)


def open_index(folder: Path, engine: Engine) -> Index:
    """Return an index of a base. Raises StoreError where it is missing or damaged, ModelError
    without FAISS."""
    index_folder = folder / "indexes" / engine
    if engine == "lists":
        return InvertedLists(index_folder)
    return FaissIndex(index_folder, engine)


def open_vectors(folder: Path, manifest: Manifest) -> VectorStore:
    """Return the vectors of a base."""
    files = [folder / "parts" / part.name / "vectors.npy" for part in manifest.parts]
    return VectorStore(files, manifest.width, manifest.precision)


def require_manifest(folder: Path) -> Manifest:
    """Return the manifest of a base. Raises StoreError, with the cure, where there is none."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise StoreError(
            f"{folder}: no text base here; `stepline text-base build SOURCE --out {folder}` makes one"
        )
    return manifest
