"""The nearest vectors, found by comparing with all: blocked matrix products in PyTorch, on a GPU where there is one.

N queries, D width, k neighbours. Memory is two tiles and what the caller holds.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.records import Matrix

if TYPE_CHECKING:
    from torch import Tensor

Rows: TypeAlias = npt.NDArray[np.int64]
Block: TypeAlias = tuple[int, npt.NDArray[Any]]  # the row of its first vector, vectors (n, D) of any float

TILE = 4_096  # base vectors compared at once
QUERIES = 1_024  # queries compared at once; the tile of scores is 16 MiB and stays near the cores
NOTHING = -1  # row of a neighbour that does not exist; its cosine is -1, too


class Nearest:
    """The best k of each query so far; tiles of scores are offered in any order."""

    def __init__(self, count: int, k: int, device: str) -> None:
        import torch

        self.k = k
        self.rows = torch.full((count, k), NOTHING, dtype=torch.int64, device=device)
        self.cosines = torch.full((count, k), float("-inf"), device=device)

    def offer(self, queries: "Tensor", scores: "Tensor", rows: "Tensor") -> None:
        """Take scores (n, m) of the queries with these numbers (n,) against these rows (m,), ascending.

        No query is offered a row twice. Equal cosines go to the lower row.
        """
        import torch

        best = scores.amax(dim=1)  # (n,)
        better = torch.nonzero(best >= self.cosines[queries, -1]).squeeze(1)
        if not len(better):
            return
        places = queries[better]
        if self.k == 1:
            found = scores[better].argmax(dim=1, keepdim=True)  # (b, 1), the first of equal ones
            tile = best[better].unsqueeze(1)
        else:
            tile, found = top(scores[better], min(self.k, scores.shape[1]))  # (b, <= k)
        cosines = torch.cat([self.cosines[places], tile], dim=1)
        candidates = torch.cat([self.rows[places], rows[found]], dim=1)
        by_row = torch.argsort(candidates, dim=1, stable=True)
        cosines, candidates = cosines.gather(1, by_row), candidates.gather(1, by_row)
        order = torch.argsort(cosines, dim=1, descending=True, stable=True)[:, : self.k]
        self.cosines[places] = cosines.gather(1, order)
        self.rows[places] = candidates.gather(1, order)

    def result(self) -> tuple[Rows, Matrix]:
        """Return rows (N, k) and cosines (N, k)."""
        missing = self.rows == NOTHING
        return self.rows.cpu().numpy(), self.cosines.masked_fill(missing, -1.0).clamp(-1.0, 1.0).cpu().numpy()


def top(scores: "Tensor", k: int) -> tuple["Tensor", "Tensor"]:
    """Return the k greatest of each row and their columns, (n, k) both; equal ones the lower column first to last."""
    import torch

    values, columns = scores.topk(k, dim=1)
    tied = torch.nonzero((scores >= values[:, -1:]).sum(dim=1) > k).squeeze(1)  # topk cuts ties anyhow
    if len(tied):
        columns[tied] = torch.argsort(scores[tied], dim=1, descending=True, stable=True)[:, :k]
        values[tied] = scores[tied].gather(1, columns[tied])
    return values, columns


def nearest_exact(queries: Matrix, blocks: Iterable[Block], k: int = 1) -> tuple[Rows, Matrix]:
    """Return the k nearest rows of each query, best first, and their cosines: (N, k) int64, (N, k) float32.

    queries: (N, D) unit vectors. Where fewer than k rows exist the rest are -1 with cosine -1; equal cosines go to
    the lower row. Raises ShapeError for widths that differ or k < 1.
    """
    import torch

    if k < 1 or queries.ndim != 2:
        raise ShapeError(f"queries {queries.shape}, k {k}: need (N, D) and k >= 1")
    device = best_device()
    asked = torch.from_numpy(np.ascontiguousarray(queries, dtype=np.float32)).to(device)  # (N, D)
    best = Nearest(len(queries), k, device)
    room = torch.empty(QUERIES * TILE, device=device)
    with torch.inference_mode():
        for first, vectors in blocks:
            if vectors.ndim != 2 or vectors.shape[1] != queries.shape[1]:
                raise ShapeError(f"vectors {vectors.shape} for queries {queries.shape}: the widths must agree")
            for start in range(0, len(vectors), TILE):
                tile = as_tensor(vectors[start : start + TILE], device)  # (m, D)
                rows = torch.arange(first + start, first + start + len(tile), device=device)
                for at in range(0, len(asked), QUERIES):
                    some = asked[at : at + QUERIES]  # (n, D)
                    scores = room[: len(some) * len(tile)].view(len(some), len(tile))
                    torch.mm(some, tile.T, out=scores)  # (n, m)
                    best.offer(torch.arange(at, at + len(some), device=device), scores, rows)
    return best.result()


def as_tensor(vectors: npt.NDArray[Any], device: str) -> "Tensor":
    """Return stored vectors as float32 on the device."""
    import torch

    copied = np.array(vectors)  # read from disk here; memory-mapped rows cannot be written to
    if not copied.dtype.isnative:
        copied = copied.astype(copied.dtype.newbyteorder("="))
    return torch.from_numpy(copied).to(device).float()


def best_device() -> str:
    """Return "cuda" where PyTorch sees a GPU, else "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
