"""Vectors and other arrays of a text base: on disk, memory-mapped, and searched exactly.

Flat integer arrays have the type that the file's ending names; vectors are .npy. VectorStore joins
the vectors of all parts of a base into one table that is never loaded whole. `nearest_exact`
compares with all of them: blocked matrix products in PyTorch, on a GPU where there is one. N
queries, D width, k neighbours; memory is two tiles and what the caller holds.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.atomic_files import atomic_path
from stepline.device import current_device
from stepline.errors import ShapeError, StoreError
from stepline.records import Matrix

if TYPE_CHECKING:
    from torch import Tensor

Rows: TypeAlias = npt.NDArray[np.int64]
# the row of its first vector, vectors (n, D) of any float
Block: TypeAlias = tuple[int, npt.NDArray[Any]]


# the types of flat arrays, by the ending of their file
ARRAY_TYPES: dict[str, np.dtype[Any]] = {
    ".u32": np.dtype("<u4"),
    ".u64": np.dtype("<u8"),
    ".i64": np.dtype("<i8"),
}


def write_arrays(path: Path, pieces: Iterable[npt.NDArray[Any]]) -> None:
    """Write the pieces one after another, whole or not at all."""
    with atomic_path(path) as partial, partial.open("wb") as file:
        _write_pieces(file, pieces, ARRAY_TYPES[path.suffix])


def _write_pieces(file: BinaryIO, pieces: Iterable[npt.NDArray[Any]], type: np.dtype[Any]) -> None:
    for piece in pieces:
        file.write(np.ascontiguousarray(piece, dtype=type).tobytes())


def read_array(path: Path, width: int = 0) -> npt.NDArray[Any]:
    """Return a memory-mapped array, (N,) or (N, width). Raises StoreError when it is missing or cut
    off."""
    type = ARRAY_TYPES[path.suffix]
    with _damage_of(path):
        count = path.stat().st_size // type.itemsize
        shape = (count,) if width == 0 else (count // width, width)
        if path.stat().st_size == 0:
            return np.empty(shape, dtype=type)
        array: npt.NDArray[Any] = np.memmap(path, dtype=type, mode="r").reshape(shape)
    return array


@contextmanager
def _damage_of(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, EOFError) as error:
        raise StoreError(f"{path}: not readable ({error}); build the text base again") from error


def write_vectors(
    path: Path, pieces: Iterable[npt.NDArray[Any]], shape: tuple[int, int], precision: str
) -> None:
    """Write rows of vectors as one .npy of a known shape, a piece at a time, whole or not at
    all."""
    type = np.dtype(precision).newbyteorder("<")
    with atomic_path(path) as partial, partial.open("wb") as file:
        header = {"descr": type.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        _write_pieces(file, pieces, type)


def read_vectors(path: Path) -> npt.NDArray[Any]:
    """Return a memory-mapped .npy (N, D). Raises StoreError when it is missing or damaged."""
    with _damage_of(path):
        vectors: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return vectors


BLOCK_VECTORS = 65_536  # offered at a time


class VectorStore:
    """Memory-mapped unit vectors (N, D); row n of part p comes after all rows of earlier parts."""

    def __init__(self, files: Sequence[Path], width: int, precision: str) -> None:
        self.width = width
        self.precision = precision
        self._arrays = [read_vectors(file) for file in files]
        for file, array in zip(files, self._arrays, strict=True):
            if array.ndim != 2 or array.shape[1] != width:
                raise ShapeError(
                    f"{file}: vectors {array.shape}, not (N, {width}); build the text base again"
                )
        self._starts = np.cumsum([0, *map(len, self._arrays)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def blocks(self, size: int = BLOCK_VECTORS) -> Iterator[Block]:
        """Yield (row of the first, vectors) over all parts, at most `size` at a time."""
        for start, array in zip(self._starts, self._arrays, strict=False):
            for at in range(0, len(array), size):
                yield int(start) + at, array[at : at + size]

    def take(self, rows: Rows | Sequence[int]) -> Matrix:
        """Return the vectors of these rows (len(rows), D) as float32. Raises ShapeError for a row
        that is not there."""
        rows = np.asarray(rows, dtype=np.int64)
        if rows.size and not (rows.min() >= 0 and rows.max() < len(self)):
            raise ShapeError(f"rows {rows.min()} to {rows.max()}: the base has {len(self)}")
        vectors = np.empty((len(rows), self.width), dtype=np.float32)
        parts = np.searchsorted(self._starts, rows, side="right") - 1
        for part in np.unique(parts):
            in_part = parts == part
            vectors[in_part] = self._arrays[part][rows[in_part] - self._starts[part]]
        return vectors


TILE_VECTORS = 4_096  # base vectors compared at a time
TILE_QUERIES = 1_024  # queries compared at a time; a tile of scores is 16 MiB, near the cores
NO_ROW = -1  # row of a neighbour that does not exist; its cosine is -1, too


class Nearest:
    """The best k of each query so far; tiles of scores are offered in any order."""

    def __init__(self, count: int, k: int, device: str) -> None:
        import torch

        self.k = k
        self.rows = torch.full((count, k), NO_ROW, dtype=torch.int64, device=device)
        self.cosines = torch.full((count, k), float("-inf"), device=device)

    def offer(self, queries: "Tensor", scores: "Tensor", rows: "Tensor") -> None:
        """Take scores (n, m) of the queries with these numbers (n,) against these rows (m,),
        ascending.

        No query is offered a row twice. Equal cosines go to the lower row.
        """
        import torch

        best = scores.amax(dim=1)  # (n,)
        better = torch.nonzero(best >= self.cosines[queries, -1]).squeeze(1)
        if not len(better):
            return
        places = queries[better]
        if self.k == 1:
            columns = scores[better].argmax(dim=1, keepdim=True)  # (b, 1), the first of equal ones
            tile = best[better].unsqueeze(1)
        else:
            tile, columns = top(scores[better], min(self.k, scores.shape[1]))  # (b, <= k)
        cosines = torch.cat([self.cosines[places], tile], dim=1)
        candidates = torch.cat([self.rows[places], rows[columns]], dim=1)
        # by row, then by cosine: equal cosines stay in the order of their rows
        by_row = torch.argsort(candidates, dim=1, stable=True)
        cosines = cosines.gather(1, by_row)
        by_cosine = torch.argsort(cosines, dim=1, descending=True, stable=True)[:, : self.k]
        self.cosines[places] = cosines.gather(1, by_cosine)
        self.rows[places] = candidates.gather(1, by_row).gather(1, by_cosine)

    def result(self) -> tuple[Rows, Matrix]:
        """Return rows (N, k) and cosines (N, k)."""
        cosines = self.cosines.masked_fill(self.rows == NO_ROW, -1.0).clamp(-1.0, 1.0)
        return self.rows.cpu().numpy(), cosines.cpu().numpy()


def top(scores: "Tensor", k: int) -> tuple["Tensor", "Tensor"]:
    """Return the k greatest of each row and their columns, (n, k) both; equal ones the lower column
    first to last."""
    import torch

    values, columns = scores.topk(k, dim=1)
    # topk cuts ties anyhow
    tied = torch.nonzero((scores >= values[:, -1:]).sum(dim=1) > k).squeeze(1)
    if len(tied):
        columns[tied] = torch.argsort(scores[tied], dim=1, descending=True, stable=True)[:, :k]
        values[tied] = scores[tied].gather(1, columns[tied])
    return values, columns


def nearest_exact(queries: Matrix, blocks: Iterable[Block], k: int = 1) -> tuple[Rows, Matrix]:
    """Return the k nearest rows of each query, best first, and their cosines: (N, k) int64, (N, k)
    float32.

    queries: (N, D) unit vectors. Where fewer than k rows exist the rest are -1 with cosine -1;
    equal cosines go to the lower row. Raises ShapeError for widths that differ or k < 1.
    """
    import torch

    if k < 1 or queries.ndim != 2:
        raise ShapeError(f"queries {queries.shape}, k {k}: need (N, D) and k >= 1")
    device = current_device().name
    all_queries = as_tensor(queries, device)  # (N, D)
    best = Nearest(len(queries), k, device)
    room = torch.empty(TILE_QUERIES * TILE_VECTORS, device=device)
    with torch.inference_mode():
        for first, vectors in blocks:
            if vectors.ndim != 2 or vectors.shape[1] != queries.shape[1]:
                raise ShapeError(
                    f"vectors {vectors.shape} for queries {queries.shape}: the widths must agree"
                )
            for start in range(0, len(vectors), TILE_VECTORS):
                tile = as_tensor(vectors[start : start + TILE_VECTORS], device)  # (m, D)
                rows = torch.arange(first + start, first + start + len(tile), device=device)
                for at in range(0, len(all_queries), TILE_QUERIES):
                    chunk = all_queries[at : at + TILE_QUERIES]  # (n, D)
                    scores = room[: len(chunk) * len(tile)].view(len(chunk), len(tile))
                    torch.mm(chunk, tile.T, out=scores)  # (n, m)
                    best.offer(torch.arange(at, at + len(chunk), device=device), scores, rows)
    return best.result()


def as_tensor(vectors: npt.NDArray[Any], device: str) -> "Tensor":
    """Return stored vectors as float32 on the device."""
    import torch

    # read from disk here; torch takes no memory-mapped rows, and no foreign order of bytes
    copied = np.array(vectors, dtype=vectors.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(copied).to(device).float()
