"""Approximate nearest-neighbour indexes of a base: built, their recall measured against exact
search, opened.

InvertedLists is our own: vectors sorted into lists around k-means centroids. Many queries are asked
together, so the work goes list by list and every comparison is a matrix product. Searching query by
query instead is bound by memory, not by arithmetic. C lists, P lists probed per query. FaissIndex
is FAISS (Johnson et al. 2019), an optional library: flat, inverted file, graph (HNSW, Malkov 2018).
"""

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from stepline.errors import ModelError, StoreError
from stepline.files.atomic_files import atomic_path
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
from stepline.sieve_swap.text_base.settings import Engine, TextBaseSettings
from stepline.sieve_swap.text_base.vectors import (
    NO_ROW,
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
        centroids = read_vectors(folder / "centroids.npy")
        self._centroids = np.asarray(centroids, dtype=np.float32)
        bounds = read_array(folder / "bounds.i64")  # (C + 1,)
        self._bounds = np.asarray(bounds)
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
        """Return what `nearest_exact` does, found in the `effort` lists whose centroids are
        nearest."""
        query_count = len(queries)
        shape = (query_count, k)
        rows = np.empty(shape, np.int64)
        cosines = np.empty(shape, np.float32)
        for start in range(0, query_count, QUERIES_TOGETHER):
            chunk = slice(start, start + QUERIES_TOGETHER)
            chunk_rows, chunk_cosines = self._search(queries[chunk], k, effort)
            rows[chunk] = chunk_rows
            cosines[chunk] = chunk_cosines
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
        asked_lists = np.flatnonzero(np.diff(edges))
        # list by list, all queries that ask it together
        all_queries = as_tensor(queries, device)
        best = Nearest(len(queries), k, device)
        with torch.inference_mode():
            for number in asked_lists.tolist():
                start, end = self._bounds[number : number + 2]
                if start == end:
                    continue
                first, last = edges[number : number + 2]
                numbers = query_of[first:last]  # (n,)
                list_vectors = self._vectors[start:end]
                list_rows = self._order[start:end]
                vectors = as_tensor(list_vectors, device)  # (m, D)
                rows = torch.from_numpy(np.array(list_rows)).to(device)
                scores = all_queries[numbers] @ vectors.T  # (n, m)
                best.offer(numbers, scores, rows)
        return best.result()


def build_lists(vectors: VectorStore, folder: Path, *, seed: int, memory: int) -> None:
    """Write the lists of all vectors. memory: bytes for training. The same vectors and seed give
    the same bytes."""
    count = len(vectors)
    lists = _list_count(count, MIN_LIST_VECTORS)
    rng = np.random.default_rng(seed)
    centroids = _train(_training_vectors(vectors, lists, memory, rng), lists, rng)
    # the list of every vector, and the order of the vectors by their lists
    block_lists = [np.empty(0, np.int64)]
    for _, block in vectors.blocks(BLOCK_VECTORS):
        block_lists.append(_nearest_centroids(block, centroids))
    list_of = np.concatenate(block_lists)
    order = np.argsort(list_of, kind="stable")
    list_numbers = np.arange(len(centroids) + 1)
    bounds = np.searchsorted(list_of[order], list_numbers)
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


def _list_count(count: int, smallest: int) -> int:
    """Return the number of lists for `count` vectors: about 4 sqrt(count), a power of two, with at
    least `smallest` vectors per list."""
    root = np.sqrt(max(1, count))
    power = round(np.log2(4 * root))
    lists = max(MIN_LISTS, 1 << power)
    most = max(1, count // smallest)
    return int(min(most, lists))


def _training_vectors(
    vectors: VectorStore, lists: int, memory: int, rng: np.random.Generator
) -> Matrix:
    """Return a sample of the vectors on which the centroids of `lists` are trained within the
    memory, in bytes."""
    # A float32 per number, and its copy in the order of the centroids.
    vector_bytes = 8 * vectors.width
    size = min(VECTORS_PER_CENTROID * lists, memory // vector_bytes)
    size = max(1, size)
    rows = _sample(rng, len(vectors), size)
    return vectors.take(rows)


def _sample(rng: np.random.Generator, count: int, size: int) -> Rows:
    """Return `size` of `count` rows, or all, ascending."""
    size = min(count, size)
    return np.sort(rng.choice(count, size=size, replace=False))


def _train(points: Matrix, count: int, rng: np.random.Generator) -> Matrix:
    """Return unit centroids (C, D) by spherical k-means. One that lost all its points starts again
    at a point."""
    point_count = len(points)
    count = min(count, point_count)
    centroids = points[_sample(rng, point_count, count)]
    for _ in range(KMEANS_ROUNDS):
        # points by their nearest centroid
        nearest = _nearest_centroids(points, centroids)
        order = np.argsort(nearest, kind="stable")
        counts = np.bincount(nearest, minlength=count)
        # the sum of the points of each centroid, or another point where it has none
        filled = np.flatnonzero(counts)
        filled_starts = (np.cumsum(counts) - counts)[filled]
        sums = np.empty_like(centroids)
        sums[filled] = np.add.reduceat(points[order], filled_starts, axis=0)
        empty = np.flatnonzero(counts == 0)
        new_points = _sample(rng, point_count, len(empty))
        sums[empty] = points[new_points]
        centroids = unit_rows(sums)
    return centroids.astype(np.float32)


FAISS_FILES = ("index.faiss",)
GRAPH_LINKS = 32  # neighbours of a node in the graph
GRAPH_BUILD_EFFORT = 80  # nodes compared when one is added to the graph
MIN_FAISS_LIST_VECTORS = 39  # vectors a list on average, at least, as FAISS asks for
MAX_REASON_CHARS = 200  # of what FAISS says about a file that it cannot read
GRAPH_EFFORTS = (16, 32, 64, 128, 256, 512, 1024)  # values of ef worth trying
PROBE_COUNTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256)  # lists worth trying


def library() -> Any:
    """Return the module faiss. Raises ModelError, with the cure, where it is not installed."""
    try:
        import faiss
    except ImportError as error:
        cure = "pip install 'stepline[ann]', or choose engine exact or lists, which need nothing"
        raise ModelError(f"FAISS is not installed: {cure}") from error
    return faiss


class FaissIndex:
    """A FAISS index in a folder."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self._faiss = library()
        self._engine = engine
        try:
            self._index = self._faiss.read_index(str(folder / "index.faiss"))
        except RuntimeError as error:  # FAISS raises no narrower class
            reason = str(error).splitlines()[-1][:MAX_REASON_CHARS]
            fault = f"{folder}: not readable ({reason})"
            raise StoreError(f"{fault}; `stepline text-base index` builds it") from error

    def efforts(self) -> list[int]:
        """Return the values of nprobe or ef worth trying, one for a flat index."""
        if self._engine == "flat":
            return [1]
        if self._engine == "hnsw":
            return list(GRAPH_EFFORTS)
        count = int(self._index.nlist)
        probe_counts = [lists for lists in PROBE_COUNTS if lists < count]
        return [*probe_counts, count]

    def search(self, queries: Matrix, k: int, effort: int) -> Neighbours:
        """Return what `nearest_exact` does, as far as the index finds it."""
        if self._engine == "ivf":
            self._index.nprobe = effort
        elif self._engine == "hnsw":
            # The graph returns no more rows than it compares.
            self._index.hnsw.efSearch = max(effort, k)
        query_array = np.ascontiguousarray(queries, dtype=np.float32)
        cosines, rows = self._index.search(query_array, k)
        cosines = np.where(rows == NO_ROW, -1.0, cosines)
        cosines = cosines.clip(-1.0, 1.0)
        rows = rows.astype(np.int64)
        return rows, cosines.astype(np.float32)


def build_faiss(
    vectors: VectorStore, folder: Path, engine: Engine, *, seed: int, memory: int
) -> None:
    """Write a FAISS index of all vectors. The graph is built by one thread, so that it has the same
    bytes each time."""
    faiss = library()
    width = vectors.width
    threads = faiss.omp_get_max_threads()
    # Vectors have unit length, so their inner product is the cosine.
    if engine == "flat":
        index = faiss.IndexFlatIP(width)
    elif engine == "hnsw":
        index = faiss.IndexHNSWFlat(width, GRAPH_LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = GRAPH_BUILD_EFFORT
        faiss.omp_set_num_threads(1)
    else:
        # Lists around centroids, which are trained on a sample.
        lists = _list_count(len(vectors), MIN_FAISS_LIST_VECTORS)
        quantizer = faiss.IndexFlatIP(width)
        index = faiss.IndexIVFFlat(quantizer, width, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.seed = seed
        points = _training_vectors(vectors, lists, memory, np.random.default_rng(seed))
        index.train(points)
    # Block by block: only the index holds all vectors in memory.
    try:
        for _, block in vectors.blocks():
            index.add(np.asarray(block, dtype=np.float32))
    finally:
        faiss.omp_set_num_threads(threads)
    with atomic_path(folder / "index.faiss") as partial:
        faiss.write_index(index, str(partial))


RANDOM_SEED = 0  # of the index's k-means and of the probes
MAX_PROBES = 500  # lines whose nearest other line is asked for, to measure recall
COSINE_TOLERANCE = 1e-5  # below the exact neighbour's cosine; what is within it is as near


class Index(Protocol):
    """What finds the nearest rows, more or less surely by its effort."""

    def efforts(self) -> list[int]:
        """Return the efforts worth trying, ascending."""

    def search(self, queries: Matrix, k: int, effort: int) -> Neighbours:
        """Return rows (N, k) and cosines (N, k), best first, -1 where nothing was found."""


def add_index(folder: Path, settings: TextBaseSettings) -> IndexEntry:
    """Build the index that `settings.engine` names, measure it, and enter it into the manifest.
    Return its entry.

    An index that is there for these vectors and this recall stays. Raises StoreError when the
    folder holds no base.
    """
    manifest = require_manifest(folder)
    engine = settings.engine
    purpose = (engine, manifest.steps, settings.recall)
    # One that serves already.
    for entry in manifest.indexes:
        if (entry.engine, entry.steps, entry.wanted) == purpose:
            return entry
    # build
    vectors = open_vectors(folder, manifest)
    index_folder = folder / "indexes" / engine
    index_folder.mkdir(parents=True, exist_ok=True)
    memory = settings.memory << 20
    if engine == "lists":
        build_lists(vectors, index_folder, seed=RANDOM_SEED, memory=memory)
        names: tuple[str, ...] = INVERTED_LISTS_FILES
    else:
        build_faiss(vectors, index_folder, engine, seed=RANDOM_SEED, memory=memory)
        names = FAISS_FILES
    # measure. A base of fewer than two lines has no curve.
    index = open_index(folder, engine)
    curve, probes = measure_recall(index, vectors, settings)
    effort = 1
    recall = 1.0
    if curve:
        effort = curve[-1].effort
        recall = curve[-1].recall
    entry = IndexEntry(
        engine=engine,
        steps=len(vectors),
        effort=effort,
        recall=recall,
        wanted=settings.recall,
        probes=probes,
        curve=curve,
        files={name: sha256(index_folder / name) for name in names},
    )
    others = [other for other in manifest.indexes if other.engine != engine]
    indexes = (*others, entry)
    new_manifest = manifest.model_copy(update={"indexes": indexes})
    write_manifest(new_manifest, folder)
    return entry


def measure_recall(
    index: Index, vectors: VectorStore, settings: TextBaseSettings
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
    probes = _sample(rng, count, MAX_PROBES)
    queries = vectors.take(probes)
    exact_rows, exact_cosines = nearest_exact(queries, vectors.blocks(), 2)
    least = _other(probes, exact_rows, exact_cosines) - COSINE_TOLERANCE
    # From the least effort to the first that reaches the recall.
    curve: list[CurvePoint] = []
    for effort in index.efforts():
        rows, row_cosines = index.search(queries, 2, effort)
        is_near_enough = _other(probes, rows, row_cosines) >= least
        share = float(is_near_enough.mean())
        recall = round(share, 4)
        curve.append(CurvePoint(effort=effort, recall=recall))
        if recall >= settings.recall:
            break
    return tuple(curve), len(probes)


def _other(probes: Rows, rows: Rows, cosines: Matrix) -> Matrix:
    """Return the cosine of the best of two rows that is not the probe itself, -1 where none was
    found."""
    # A probe is its own nearest line, unless an equal line comes before it.
    first_rows = rows[:, 0]
    first_cosines, second_cosines = cosines.T
    others: Matrix = np.where(first_rows == probes, second_cosines, first_cosines)
    return others.astype(np.float32)


def open_index(folder: Path, engine: Engine) -> Index:
    """Return an index of a base. Raises StoreError where it is missing or damaged, ModelError
    without FAISS."""
    index_folder = folder / "indexes" / engine
    if engine == "lists":
        return InvertedLists(index_folder)
    return FaissIndex(index_folder, engine)


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
