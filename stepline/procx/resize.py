"""Features of any length brought to the fixed length that the network takes (ProcX section 6.3: 256 rows).

Row i of L stands at i (T - 1) / (L - 1) of the T rows: the first and the last row are kept. Source: PDVC, as released.
Letters: T feature rows, L rows asked for, C width.
"""

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.records import Matrix

ResizeMethod: TypeAlias = Literal["nearest", "linear"]
Rows: TypeAlias = npt.NDArray[np.int64]


def resize(values: Matrix, size: int, method: ResizeMethod = "nearest") -> Matrix:
    """Return features (T, C) as (size, C) float32; a single row is repeated.

    Raises ShapeError when there is no row, or `size` is not positive.
    """
    if values.ndim != 2 or not len(values):
        raise ShapeError(f"features must be (rows, width) with a row at least, not {values.shape}; extract them again")
    if method == "nearest":
        return np.asarray(values[nearest_rows(len(values), size)], dtype=np.float32)
    places = np.arange(size) * (len(values) - 1) / max(1, size - 1)
    low = np.minimum(places.astype(np.int64), max(0, len(values) - 2))
    share = (places - low)[:, None]
    high = np.minimum(low + 1, len(values) - 1)
    return np.asarray(values[low] * (1 - share) + values[high] * share, dtype=np.float32)  # (L, C)


def nearest_rows(length: int, size: int) -> Rows:
    """Return which of `length` rows stands nearest to each of `size` places, (size,); a half rounds down.

    In whole numbers, so that a half is one. Raises ShapeError when either is not positive.
    """
    if length < 1 or size < 1:
        raise ShapeError(f"{length} rows cannot be resized to {size}; both must be at least 1")
    apart = max(1, size - 1)
    doubled = 2 * np.arange(size, dtype=np.int64) * (length - 1) - apart  # 2 (place - 1/2), times `apart`
    return np.maximum(0, -(-doubled // (2 * apart)))
