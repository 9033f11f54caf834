"""Plain arrays on disk: numbers and nothing else, memory-mapped; what they are is told by the file's ending."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.errors import StoreError
from stepline.store import atomic_path

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
