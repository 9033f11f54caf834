"""Vectors and other arrays of a text base: on disk, memory-mapped, and searched exactly.

Flat integer arrays have the type that the file's ending names. Vectors are .npy. VectorStore joins
the vectors of all parts of a base into one table that is never loaded whole. `nearest_exact`
compares with all of them: blocked matrix products in PyTorch, on a GPU where there is one. Its
memory is two tiles and what the caller holds. N queries, D width, k neighbours.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError, StoreError
from stepline.files.atomic_files import atomic_path
from stepline.networks.device import current_device
from stepline.records import Matrix

if TYPE_CHECKING:
    from torch import Tensor

Rows: TypeAlias = npt.NDArray[np.int64]
Array: TypeAlias = npt.NDArray[Any]  # of any numbers
NumberType: TypeAlias = np.dtype[Any]
# the row of its first vector, vectors (n, D) of any float
Block: TypeAlias = tuple[int, Array]
Neighbours: TypeAlias = tuple[Rows, Matrix]  # rows (N, k) and cosines (N, k) of N queries


# the types of flat arrays, by the ending of their file
ARRAY_TYPES: dict[str, NumberType] = {
    ".u32": np.dtype("<u4"),
    ".u64": np.dtype("<u8"),
    ".i64": np.dtype("<i8"),
}


def write_arrays(path: Path, pieces: Iterable[Array]) -> None:
    """Write the pieces one after another, whole or not at all."""
    type = ARRAY_TYPES[path.suffix]
    with atomic_path(path) as partial, partial.open("wb") as file:
        _write_pieces(file, pieces, type)


def _write_pieces(file: BinaryIO, pieces: Iterable[Array], type: NumberType) -> None:
    for piece in pieces:
        file.write(np.ascontiguousarray(piece, dtype=type).tobytes())


def read_array(path: Path, width: int = 0) -> Array:
    """Return a memory-mapped array, (N,) or (N, width). Raises StoreError when it is missing or cut
    off."""
    type = ARRAY_TYPES[path.suffix]
    with _reject_damaged_array(path):
        shape = (-1, width) if width else (-1,)
        # an empty file cannot be mapped
        if path.stat().st_size == 0:
            return np.empty((0, *shape[1:]), dtype=type)
        return np.memmap(path, dtype=type, mode="r").reshape(shape)


@contextmanager
def _reject_damaged_array(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, EOFError) as error:
        raise StoreError(f"{path}: not readable ({error}); build the text base again") from error


def write_vectors(
    path: Path, pieces: Iterable[Array], shape: tuple[int, int], precision: str
) -> None:
    """Write rows of vectors as one .npy of a known shape, a piece at a time, whole or not at
    all."""
    type = np.dtype(precision).newbyteorder("<")
    with atomic_path(path) as partial, partial.open("wb") as file:
        # of the .npy format
        header = {"descr": type.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        _write_pieces(file, pieces, type)


def read_vectors(path: Path) -> Array:
    """Return a memory-mapped .npy (N, D). Raises StoreError when it is missing or damaged."""
    with _reject_damaged_array(path):
        vectors: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return vectors


BLOCK_VECTORS = 65_536  # offered at a time


class VectorStore:
    """Memory-mapped unit vectors (N, D). Row n of part p comes after all rows of earlier parts."""

    def __init__(self, files: Sequence[Path], width: int, precision: str) -> None:
        self.width = width
        self.precision = precision
        self._arrays = list(map(read_vectors, files))
        for file, array in zip(files, self._arrays, strict=True):
            if array.shape[1:] != (width,):
                shapes = f"vectors {array.shape}, not (N, {width})"
                raise ShapeError(f"{file}: {shapes}; build the text base again")
        self._starts = np.cumsum([0, *map(len, self._arrays)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def blocks(self, size: int = BLOCK_VECTORS) -> Iterator[Block]:
        """Yield (row of the first, vectors) over all parts, at most `size` at a time."""
        for part, array in enumerate(self._arrays):
            start = int(self._starts[part])
            for offset in range(0, len(array), size):
                yield start + offset, array[offset : offset + size]

    def take(self, rows: Rows | Sequence[int]) -> Matrix:
        """Return the vectors of these rows (len(rows), D) as float32. Raises ShapeError for a row
        that is not there."""
        rows = np.asarray(rows, dtype=np.int64)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise ShapeError(f"rows {rows.min()} to {rows.max()}: the base has {len(self)}")
        vectors = np.empty((len(rows), self.width), dtype=np.float32)
        # each row is read from the last part that starts at it or before
        parts = np.searchsorted(self._starts, rows, side="right") - 1
        for part in np.unique(parts):
            in_part = parts == part
            vectors[in_part] = self._arrays[part][rows[in_part] - self._starts[part]]
        return vectors


TILE_VECTORS = 4_096  # base vectors compared at a time
TILE_QUERIES = 1_024  # queries compared at a time; a tile of scores is 16 MiB, near the cores
NO_ROW = -1  # row of a neighbour that does not exist; its cosine is -1, too


class Nearest:
    """Running top k of each query. Tiles of scores may be added in any order."""

    def __init__(self, count: int, k: int, device: str) -> None:
        import torch

        self.k = k
        self.rows = torch.full((count, k), NO_ROW, dtype=torch.int64, device=device)
        self.cosines = torch.full((count, k), float("-inf"), device=device)

    def add_scores(self, queries: "Tensor", scores: "Tensor", rows: "Tensor") -> None:
        """Take scores (n, m) of the queries with these numbers (n,) against these rows (m,),
        ascending.

        No query is offered a row twice. Equal cosines go to the lower row.
        """
        import torch

        # only queries with a score that may enter their best k: b of n
        best = scores.amax(dim=1)  # (n,)
        better = torch.nonzero(best >= self.cosines[queries, -1]).squeeze(1)  # (b,)
        if not len(better):
            return
        numbers = queries[better]
        better_scores = scores[better]  # (b, m)
        if self.k == 1:
            # the first of equal ones
            columns = better_scores.argmax(dim=1, keepdim=True)  # (b, 1)
            best_scores = best[better].unsqueeze(1)
        else:
            width = min(self.k, scores.shape[1])
            best_scores, columns = top(better_scores, width)  # (b, <= k)
        cosines = torch.cat([self.cosines[numbers], best_scores], dim=1)
        candidates = torch.cat([self.rows[numbers], rows[columns]], dim=1)
        # by row, then by cosine: equal cosines stay in the order of their rows
        by_row = torch.argsort(candidates, dim=1, stable=True)
        candidates = candidates.gather(1, by_row)
        cosines = cosines.gather(1, by_row)
        best_k = torch.argsort(cosines, dim=1, descending=True, stable=True)[:, : self.k]
        self.cosines[numbers] = cosines.gather(1, best_k)
        self.rows[numbers] = candidates.gather(1, best_k)

    def result(self) -> Neighbours:
        """Return rows (N, k) and cosines (N, k)."""
        cosines = self.cosines.masked_fill(self.rows == NO_ROW, -1.0).clamp(-1.0, 1.0)
        return self.rows.cpu().numpy(), cosines.cpu().numpy()


def top(scores: "Tensor", k: int) -> tuple["Tensor", "Tensor"]:
    """Return the k greatest of each row and their columns, (n, k) both. Of equal ones the lower
    column comes first."""
    import torch

    values, columns = scores.topk(k, dim=1)
    # topk keeps any of the columns that tie for the last rank, so rows with ties are sorted
    least = values[:, -1:]
    tied_rows = torch.nonzero((scores >= least).sum(dim=1) > k).squeeze(1)
    if len(tied_rows):
        tied_scores = scores[tied_rows]
        order = torch.argsort(tied_scores, dim=1, descending=True, stable=True)
        columns[tied_rows] = order[:, :k]
        values[tied_rows] = tied_scores.gather(1, order[:, :k])
    return values, columns


def nearest_exact(queries: Matrix, blocks: Iterable[Block], k: int = 1) -> Neighbours:
    """Return the k nearest rows of each query, best first, and their cosines: (N, k) int64, (N, k)
    float32.

    queries: (N, D) unit vectors. Where fewer than k rows exist the rest are -1 with cosine -1.
    Equal cosines go to the lower row. Raises ShapeError for widths that differ or k < 1.
    """
    import torch

    if k < 1 or queries.ndim != 2:
        raise ShapeError(f"queries {queries.shape}, k {k}: need (N, D) and k >= 1")
    device = current_device().name
    query_count, width = queries.shape
    all_queries = as_tensor(queries, device)  # (N, D)
    numbers = torch.arange(query_count, device=device)
    best = Nearest(query_count, k, device)
    # the scores of every tile are written here
    score_memory = torch.empty(TILE_QUERIES * TILE_VECTORS, device=device)
    with torch.inference_mode():
        for first_row, vectors in blocks:
            if vectors.shape[1:] != (width,):
                shapes = f"vectors {vectors.shape} for queries {queries.shape}"
                raise ShapeError(f"{shapes}: the widths must agree")
            for start in range(0, len(vectors), TILE_VECTORS):
                tile = as_tensor(vectors[start : start + TILE_VECTORS], device)  # (m, D)
                row = first_row + start
                rows = torch.arange(row, row + len(tile), device=device)
                for first_query in range(0, query_count, TILE_QUERIES):
                    chunk = slice(first_query, first_query + TILE_QUERIES)
                    chunk_queries = all_queries[chunk]  # (n, D)
                    shape = (len(chunk_queries), len(tile))
                    scores = score_memory[: shape[0] * shape[1]].view(shape)
                    torch.mm(chunk_queries, tile.T, out=scores)  # (n, m)
                    best.add_scores(numbers[chunk], scores, rows)
    return best.result()


def as_tensor(vectors: Array, device: str) -> "Tensor":
    """Return stored vectors as float32 on the device."""
    import torch

    # read from disk here. Torch takes no memory-mapped rows, and no foreign order of bytes.
    native_type = vectors.dtype.newbyteorder("=")
    tensor = torch.from_numpy(np.array(vectors, dtype=native_type, order="C"))
    return tensor.to(device).float()
