"""The files of a folder by the id that their names give, in arrays and not in objects: a million take some 100 MiB."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.curate.places import Found, Place

BLOCK = 65_536  # files held as objects at once

Cells = npt.NDArray[np.bytes_]


@dataclass(frozen=True)
class Stamped:
    """A file: its address, and what tells that it changed."""

    url: str
    stamp: str


class Files:
    """What a folder holds, looked up by id.

    id_of: the id that a name gives with the rank of its ending (the least is taken), None where it is no such file.
    """

    def __init__(self, folder: Place, found: Iterator[Found], id_of: Callable[[str], tuple[str, int] | None]) -> None:
        self._folder = folder
        blocks = [self._block(block, id_of) for block in _blocks(found)]
        keys, ranks, names, stamps = ([block[place] for block in blocks] for place in range(4))
        key: Cells = np.concatenate([np.empty(0, "S1"), *keys])
        rank = np.concatenate([np.empty(0, np.int64), *ranks])
        order = np.lexsort((rank, key))
        self.keys = key[order]
        self._names, self._stamps = _taken(names, order), _taken(stamps, order)

    @staticmethod
    def _block(block: Sequence[Found], id_of: Callable[[str], tuple[str, int] | None]) -> tuple[Any, Any, Any, Any]:
        import pyarrow as arrow

        rows = [(each, known) for each in block if (known := id_of(each.name)) is not None]
        keys = np.array([known[0].encode() for _, known in rows] or [b""], "S")[: len(rows)]
        ranks = np.array([known[1] for _, known in rows], np.int64)
        return (
            keys,
            ranks,
            arrow.array([e.name for e, _ in rows], "string"),
            arrow.array([e.stamp for e, _ in rows], "string"),
        )

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[str, Stamped]]:
        """Yield every id and file, sorted by id; an id whose name several files give comes several times."""
        for row in range(len(self.keys)):
            yield self.keys[row].decode(errors="replace"), self._at(row)

    def find(self, id: str) -> Stamped | None:
        """Return the file of an id; None where there is none."""
        wanted = id.encode()
        row = int(np.searchsorted(self.keys, wanted))
        return self._at(row) if row < len(self.keys) and self.keys[row] == wanted else None

    def _at(self, row: int) -> Stamped:
        return Stamped((self._folder / self._names[row].as_py()).url, self._stamps[row].as_py())


def _blocks(found: Iterator[Found]) -> Iterator[list[Found]]:
    while block := list(islice(found, BLOCK)):
        yield block


def _taken(columns: Sequence[Any], order: npt.NDArray[np.int64]) -> Any:
    import pyarrow as arrow

    whole = arrow.chunked_array(columns, "string").combine_chunks() if columns else arrow.array([], "string")
    return whole.take(arrow.array(order))
