"""A shard: one float16 matrix in a safetensors file, written whole and read in place."""

import json
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import StoreError
from stepline.store import atomic_path

Half: TypeAlias = npt.NDArray[np.float16]

NAME = "values"  # of the one tensor
LENGTH = 8  # bytes that tell how long the header is; safetensors' format


def write_shard(values: Half, path: Path) -> None:
    """Write a matrix (N, D), whole or not at all."""
    from safetensors.numpy import save_file

    with atomic_path(path) as partial:
        save_file({NAME: values}, partial)


def map_shard(path: Path) -> Half:
    """Return the matrix of a shard, its rows read from disk when they are looked at. Raises StoreError."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(LENGTH), "little")
            size = path.stat().st_size
            header = json.loads(file.read(length)) if length <= size else {}
        entry = header[NAME]
        rows, width = entry["shape"]
        if entry["dtype"] != "F16" or LENGTH + length + 2 * rows * width != size:
            raise ValueError(f"{entry['dtype']} {entry['shape']} in {size} bytes")
        return np.memmap(path, np.float16, "r", LENGTH + length, (rows, width)).view(np.ndarray)  # slices are cheap
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path}: not a whole shard of features ({reason}); import the features again") from error
