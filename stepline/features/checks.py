"""What can be wrong with features: a few fixed wordings, so that what was dropped can be counted."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import StoreError
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


@dataclass(frozen=True)
class Dropped:
    """An item that is not in the store. reason: one of the wordings above; value: what was found instead."""

    id: str
    place: str
    reason: str
    value: str = ""


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


def count_reasons(dropped: Iterable[Dropped]) -> dict[str, int]:
    """Return how many were dropped for each reason, the most frequent first."""
    return dict(Counter(each.reason for each in dropped).most_common())


def write_dropped(dropped: Iterable[Dropped], path: Path) -> None:
    """Write what was dropped, a JSON line each."""
    write_atomic(path, "".join(json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in dropped))


def read_dropped(path: Path) -> tuple[Dropped, ...]:
    """Return what `write_dropped` wrote; nothing where there is no such file."""
    if not path.exists():
        return ()
    try:
        return tuple(Dropped(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"{path}: not a list of dropped items ({error}); remove it") from error
