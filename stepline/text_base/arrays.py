"""Numbers on disk, memory-mapped: flat integer arrays whose type the file's ending names, and vectors as .npy.

VectorStore joins the vectors of all parts of a base into one table that is never loaded whole.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError, StoreError
from stepline.records import Matrix
from stepline.storage import atomic_path
from stepline.text_base.exact import Rows

KINDS: dict[str, np.dtype[Any]] = {".u32": np.dtype("<u4"), ".u64": np.dtype("<u8"), ".i64": np.dtype("<i8")}


def write_arrays(path: Path, pieces: Iterable[npt.NDArray[Any]]) -> None:
    """Write the pieces one after another, whole or not at all."""
    with atomic_path(path) as partial, partial.open("wb") as file:
        for piece in pieces:
            file.write(np.ascontiguousarray(piece, dtype=KINDS[path.suffix]).tobytes())
        file.flush()


def read_array(path: Path, width: int = 0) -> npt.NDArray[Any]:
    """Return a memory-mapped array, (N,) or (N, width). Raises StoreError when it is missing or cut off."""
    kind = KINDS[path.suffix]
    try:
        size = path.stat().st_size
        shape = (size // kind.itemsize,) if width == 0 else (size // (kind.itemsize * width), width)
        if size == 0:
            return np.empty(shape, dtype=kind)
        found: npt.NDArray[Any] = np.memmap(path, dtype=kind, mode="r").reshape(shape)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: not readable ({error}); build the text base again") from error
    return found


def write_vectors(path: Path, pieces: Iterable[npt.NDArray[Any]], shape: tuple[int, int], precision: str) -> None:
    """Write rows of vectors as one .npy of a known shape, a piece at a time, whole or not at all."""
    kind = np.dtype(precision).newbyteorder("<")
    with atomic_path(path) as partial, partial.open("wb") as file:
        header = {"descr": kind.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for piece in pieces:
            file.write(np.ascontiguousarray(piece, dtype=kind).tobytes())
        file.flush()


def read_vectors(path: Path) -> npt.NDArray[Any]:
    """Return a memory-mapped .npy (N, D). Raises StoreError when it is missing or damaged."""
    try:
        found: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise StoreError(f"{path}: not readable ({error}); build the text base again") from error
    return found


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
