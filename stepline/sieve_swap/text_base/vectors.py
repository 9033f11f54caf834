"""The vectors of a text base: written, memory-mapped, and searched exactly.

They are one .npy file of N unit rows, never loaded whole. `nearest_exact` compares queries with all
rows by blocked matrix products in PyTorch, on a GPU where there is one. Its memory is two tiles and
what the caller holds.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError, StoreError
from stepline.files.atomic_files import atomic_path
from stepline.networks.device import current_device
from stepline.records import Matrix

if TYPE_CHECKING:
    from torch import Tensor

Rows = npt.NDArray[np.int64]
Vectors = npt.NDArray[Any]  # (N, D) of any float type
Neighbours = tuple[Rows, Matrix]  # rows (N, k) and cosines (N, k) of N queries

TILE_VECTORS = 4_096  # base vectors compared at a time
TILE_QUERIES = 1_024  # queries compared at a time; a tile of scores is 16 MiB, near the cores
NO_ROW = -1  # row of a neighbour that does not exist; its cosine is -1, too


def write_vectors(
    path: Path, blocks: Iterable[Vectors], shape: tuple[int, int], precision: str
) -> None:
    """Write blocks of vectors as one .npy file. The file is written completely or not at all.

    Args:
        path: path of the file.
        blocks: (n, D) vectors, one block after another.
        shape: (N, D) of all blocks together.
        precision: type of the numbers in the file, "float16" or "float32".
    """
    dtype = np.dtype(precision).newbyteorder("<")
    with atomic_path(path) as partial, partial.open("wb") as file:
        header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype=dtype).tobytes())


def read_vectors(path: Path) -> Vectors:
    """Return the vectors (N, D) in a .npy file, memory-mapped.

    Raises StoreError when the file is missing or damaged.
    """
    try:
        vectors: Vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise StoreError(f"{path}: not readable ({error}); build the text base again") from error
    return vectors


def nearest_exact(
    queries: Matrix, vectors: Vectors, k: int = 1, rows: Rows | None = None
) -> Neighbours:
    """Return the rows and cosines of the k nearest vectors of each query, the nearest first.

    Rows are int64 (N, k), cosines are float32 (N, k). Equal cosines are sorted by row.

    Args:
        queries: (N, D) unit vectors.
        vectors: (M, D) unit vectors that are searched.
        k: number of vectors per query. If fewer exist, the rest are row -1 with cosine -1.
        rows: numbers of the rows of `vectors` that are searched, ascending. None: all rows.

    Raises ShapeError for widths that differ or k < 1.
    """
    import torch

    if k < 1 or queries.ndim != 2 or queries.shape[1:] != vectors.shape[1:]:
        raise ShapeError(
            f"queries {queries.shape} for vectors {vectors.shape}, k {k}: the widths must agree, "
            "and k be at least 1"
        )
    device = current_device().name
    query_count = len(queries)
    all_queries = _as_tensor(queries, device)  # (N, D)
    best_rows = torch.full((query_count, k), NO_ROW, dtype=torch.int64, device=device)
    best_cosines = torch.full((query_count, k), float("-inf"), device=device)
    # the scores of every tile are written here
    score_memory = torch.empty(TILE_QUERIES * TILE_VECTORS, device=device)
    with torch.inference_mode():
        for start in range(0, len(vectors) if rows is None else len(rows), TILE_VECTORS):
            part: slice | Rows = slice(start, start + TILE_VECTORS)
            if rows is not None:
                part = rows[part]
            tile = _as_tensor(vectors[part], device)  # (m, D)
            tile_rows = torch.arange(start, start + len(tile), device=device)
            if rows is not None:
                tile_rows = torch.from_numpy(part).to(device)
            for first in range(0, query_count, TILE_QUERIES):
                chunk = slice(first, first + TILE_QUERIES)
                chunk_queries = all_queries[chunk]  # (n, D)
                shape = (len(chunk_queries), len(tile))
                scores = score_memory[: shape[0] * shape[1]].view(shape)
                torch.mm(chunk_queries, tile.T, out=scores)  # (n, m)
                _update_best(best_rows[chunk], best_cosines[chunk], scores, tile_rows)
    cosines = best_cosines.masked_fill(best_rows == NO_ROW, -1.0).clamp(-1.0, 1.0)
    return best_rows.cpu().numpy(), cosines.cpu().numpy()


def _update_best(
    best_rows: "Tensor", best_cosines: "Tensor", scores: "Tensor", rows: "Tensor"
) -> None:
    """Update the best rows and cosines (n, k) of n queries in place.

    Args:
        best_rows: rows found so far.
        best_cosines: cosines found so far.
        scores: (n, m) cosines of m more rows.
        rows: (m,) numbers of these rows, higher than all numbers found so far.
    """
    import torch

    # only queries with a score that enters their best k: b of n
    best = scores.amax(dim=1)  # (n,)
    better = torch.nonzero(best > best_cosines[:, -1]).squeeze(1)  # (b,)
    if not len(better):
        return
    k = best_cosines.shape[1]
    if k == 1:
        # argmax is the first of equal scores
        best_rows[better] = rows[scores[better].argmax(dim=1, keepdim=True)]
        best_cosines[better] = best[better, None]
        return
    top_scores, columns = _top_scores(scores[better], min(k, scores.shape[1]))  # (b, <= k)
    cosines = torch.cat([best_cosines[better], top_scores], dim=1)
    candidates = torch.cat([best_rows[better], rows[columns]], dim=1)
    # The sort is stable, so equal cosines stay in the order of their rows.
    best_k = torch.argsort(cosines, dim=1, descending=True, stable=True)[:, :k]
    best_cosines[better] = cosines.gather(1, best_k)
    best_rows[better] = candidates.gather(1, best_k)


def _top_scores(scores: "Tensor", k: int) -> tuple["Tensor", "Tensor"]:
    """Return the k greatest scores of each row and their columns, (n, k) each, in the order of the
    columns. Of scores that tie for the last place, those in lower columns are taken.
    """
    import torch

    values, columns = scores.topk(k, dim=1)
    # topk takes any of the columns that tie for the last rank, so rows with ties are sorted
    tied_rows = torch.nonzero((scores >= values[:, -1:]).sum(dim=1) > k).squeeze(1)
    if len(tied_rows):
        order = torch.argsort(scores[tied_rows], dim=1, descending=True, stable=True)
        columns[tied_rows] = order[:, :k]
    columns = columns.sort(dim=1).values
    return scores.gather(1, columns), columns


def _as_tensor(vectors: Vectors, device: str) -> "Tensor":
    """Return stored vectors as a float32 tensor on a device."""
    import torch

    # read from disk here. Torch takes no memory-mapped rows, and no foreign order of bytes.
    native_type = vectors.dtype.newbyteorder("=")
    return torch.from_numpy(np.array(vectors, dtype=native_type, order="C")).to(device).float()
