"""Search by FAISS (Johnson et al. 2019), an optional library: flat, inverted file, graph (HNSW, Malkov 2018)."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stepline.errors import ModelError, StoreError
from stepline.records import Matrix
from stepline.sieve_swap.text_base.exact import NOTHING, Rows
from stepline.sieve_swap.text_base.settings import Engine
from stepline.store import atomic_path

if TYPE_CHECKING:
    from stepline.sieve_swap.text_base.vectors import VectorStore

FILES = ("index.faiss",)
LINKS = 32  # neighbours of a node in the graph
BUILD_EFFORT = 80  # nodes looked at when one is added to the graph
POINTS = 32  # vectors a centroid is trained on


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
            raise StoreError(f"{folder}: not readable ({reason}); `stepline text-base index` builds it") from error

    def efforts(self) -> list[int]:
        """Return the values of nprobe or ef worth trying; one for a flat index."""
        if self._engine == "flat":
            return [1]
        if self._engine == "hnsw":
            return [16, 32, 64, 128, 256, 512, 1024]
        lists = int(self._index.nlist)
        return sorted({n for n in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256) if n < lists} | {lists})

    def search(self, queries: Matrix, k: int, effort: int) -> tuple[Rows, Matrix]:
        """Return what `nearest_exact` does, as far as the index finds it."""
        if self._engine == "ivf":
            self._index.nprobe = effort
        elif self._engine == "hnsw":
            self._index.hnsw.efSearch = max(effort, k)
        cosines, rows = self._index.search(np.ascontiguousarray(queries, dtype=np.float32), k)
        cosines = np.where(rows == NOTHING, -1.0, cosines).clip(-1.0, 1.0)
        return rows.astype(np.int64), cosines.astype(np.float32)


def build_faiss(
    vectors: "VectorStore", folder: Path, engine: Engine, *, seed: int, memory: int, progress: Callable[[], None]
) -> None:
    """Write a FAISS index of all vectors. The graph is built by one thread, so that it has the same bytes each time."""
    faiss = library()
    count, width = len(vectors), vectors.width
    inner = faiss.METRIC_INNER_PRODUCT
    threads = faiss.omp_get_max_threads()
    if engine == "flat":
        index = faiss.IndexFlatIP(width)
    elif engine == "hnsw":
        index = faiss.IndexHNSWFlat(width, LINKS, inner)
        index.hnsw.efConstruction = BUILD_EFFORT
        faiss.omp_set_num_threads(1)
    else:
        lists = int(min(max(1, count // 39), max(16, 1 << round(np.log2(4 * np.sqrt(max(1, count)))))))
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, lists, inner)
        index.cp.seed = seed
        most = max(1, min(POINTS * lists, memory // (8 * width)))
        rng = np.random.default_rng(seed)
        index.train(vectors.take(np.sort(rng.choice(count, size=min(count, most), replace=False))))
    try:
        for _, block in vectors.blocks():
            index.add(np.asarray(block, dtype=np.float32))
            progress()
    finally:
        faiss.omp_set_num_threads(threads)
    with atomic_path(folder / "index.faiss") as partial:
        faiss.write_index(index, str(partial))
