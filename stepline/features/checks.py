"""Why features are rejected: a few fixed wordings, so that what was left out can be counted."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import StoreError
from stepline.records import Rejected
from stepline.storage import write_atomic

UNREADABLE = "the file cannot be read"
DAMAGED = "its shard is damaged"
NOT_ROWS = "it holds no (rows, width) of float numbers"
EMPTY = "it has no row"
NOT_FINITE = "it holds NaN or infinity"
TOO_GREAT = "its values are beyond half precision"
OTHER_WIDTH = "its width is another"
TWICE = "its id came before"
BAD_ID = "its id is no plain name"
OTHER_ID = "it says that it is another item"
OTHER_COUNT = "its texts or times are not as many as its rows"

MOST = float(np.finfo(np.float16).max)
DROPPED = "dropped.jsonl"  # beside the shards


def rejection_reason(values: Any, width: int | None) -> tuple[str, str] | None:
    """Return the reason why an array cannot be features, with what it holds instead; None where it can be.

    width: what it must be, None where any will do.
    """
    if not isinstance(values, np.ndarray):
        return NOT_ROWS, type(values).__name__
    if values.ndim != 2 or values.shape[1] == 0 or not np.issubdtype(values.dtype, np.floating):
        return NOT_ROWS, f"{values.dtype} {values.shape}"
    if not len(values):
        return EMPTY, str(values.shape)
    if width is not None and values.shape[1] != width:
        return OTHER_WIDTH, f"{values.shape[1]}, not {width}"
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        return NOT_FINITE, f"row {int(np.flatnonzero(~finite)[0])}"
    greatest = float(np.abs(values).max())
    return (TOO_GREAT, f"{greatest:g}") if greatest > MOST else None


def write_dropped(dropped: Iterable[Rejected], path: Path) -> None:
    """Write what was dropped, a JSON line each."""
    rows = [{"id": row.id, "place": row.location, "reason": row.reason, "value": row.value} for row in dropped]
    write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_dropped(path: Path) -> tuple[Rejected, ...]:
    """Return what `write_dropped` wrote; nothing where there is no such file."""
    if not path.exists():
        return ()
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return tuple(
            Rejected("features", row["reason"], id=row["id"], value=row.get("value", ""), location=row["place"])
            for row in rows
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{path}: not a list of dropped items ({error}); remove it") from error
