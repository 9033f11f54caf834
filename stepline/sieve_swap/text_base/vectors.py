"""The vectors of all parts of a base as one table that is never loaded whole."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.records import Matrix
from stepline.sieve_swap.text_base.arrays import read_vectors
from stepline.sieve_swap.text_base.exact import Rows

PIECE = 65_536  # vectors offered at a time


class VectorStore:
    """Memory-mapped unit vectors (N, D); row n of part p comes after all rows of earlier parts."""

    def __init__(self, files: Sequence[Path], width: int, precision: str) -> None:
        self.width = width
        self.precision = precision
        self._arrays = [read_vectors(file) for file in files]
        for file, array in zip(files, self._arrays, strict=True):
            if array.ndim != 2 or array.shape[1] != width:
                raise ShapeError(f"{file}: vectors {array.shape}, not (N, {width}); build the text base again")
        self._starts = np.cumsum([0, *map(len, self._arrays)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def blocks(self, size: int = PIECE) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield (row of the first, vectors) over all parts, at most `size` at a time."""
        for start, array in zip(self._starts, self._arrays, strict=False):
            for at in range(0, len(array), size):
                yield int(start) + at, array[at : at + size]

    def take(self, rows: Rows | Sequence[int]) -> Matrix:
        """Return the vectors of these rows (len(rows), D) as float32. Raises ShapeError for a row that is not there."""
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < len(self)):
            raise ShapeError(f"rows {wanted.min()} to {wanted.max()}: the base has {len(self)}")
        found = np.empty((len(wanted), self.width), dtype=np.float32)
        parts = np.searchsorted(self._starts, wanted, side="right") - 1
        for part in np.unique(parts):
            here = parts == part
            found[here] = self._arrays[part][wanted[here] - self._starts[part]]
        return found
