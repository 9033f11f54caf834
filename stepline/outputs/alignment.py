"""The alignment of steps and seconds as a small .npz file.

numpy reads the seven arrays without Stepline. The scores (K, T) of MIN_SCORE or more are stored row
by row, as a CSR matrix of scipy.

    data (N,) float32, columns (N,) int32, starts (K + 1,) int64    row k: from starts[k] to starts[k + 1]
    shape (2,) int64, rate () columns a second, kind () "probability" or "cosine", texts (K,)
"""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.errors import StoreError
from stepline.records import Alignment, Matrix

MAX_SCORES = 200_000_000  # of a file that is read: 0.8 GB in memory
MIN_SCORE = 0.01  # below which a score is not stored, and read back as 0
# what numpy raises for a file that is not its own, or that lacks an array
READ_ERRORS = (OSError, KeyError, ValueError, IndexError, TypeError, zipfile.BadZipFile)


def alignment_npz(alignment: Alignment | None) -> bytes | None:
    """Return an alignment (steps by seconds) as the bytes of a .npz file. None stays None."""
    if alignment is None:
        return None
    scores = alignment.scores
    # As CSR: the scores row by row, and where each row begins.
    is_stored = scores >= MIN_SCORE  # (K, T)
    starts = np.concatenate([[0], is_stored.sum(axis=1).cumsum()])
    _, columns = is_stored.nonzero()
    stream = io.BytesIO()
    np.savez_compressed(
        stream,
        data=scores[is_stored],
        columns=columns.astype(np.int32),
        starts=starts.astype(np.int64),
        shape=np.array(scores.shape, np.int64),
        rate=np.array(alignment.rate),
        kind=np.array(alignment.kind),
        texts=np.array(alignment.texts, dtype=np.str_),
    )
    return stream.getvalue()


def read_alignment(path: Path | str) -> Alignment:
    """Return the alignment that `stepline steps --format alignment` wrote. Scores not stored are 0.

    Raises StoreError for a missing file, and for a file that holds no alignment.
    """
    try:
        # A pickle could run code.
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            scores = _dense_scores(arrays)
            texts = tuple(arrays["texts"].tolist())
            return Alignment(texts, scores, float(arrays["rate"]), arrays["kind"].item())
    except READ_ERRORS as error:
        raise StoreError(
            f"{path}: no alignment that can be read ({error}); write it again with `stepline steps "
            "--format alignment --force`"
        ) from error


def _dense_scores(arrays: Mapping[str, npt.NDArray[Any]]) -> Matrix:
    """Return the scores (K, T) of a file's arrays. Raises ValueError for more than MAX_SCORES."""
    # The shape is the file's claim, so it is checked before memory is taken.
    steps, columns = arrays["shape"].tolist()
    if not 0 <= steps * columns <= MAX_SCORES:
        raise ValueError(f"{steps} x {columns} scores, more than {MAX_SCORES}")
    counts = np.diff(arrays["starts"])  # (K,)
    rows = np.repeat(np.arange(steps), counts)  # (N,)
    scores = np.zeros((steps, columns), np.float32)
    scores[rows, arrays["columns"]] = arrays["data"]
    return scores
