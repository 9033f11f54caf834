"""A random part of a stream of unknown length: the same part in whatever order the stream comes."""

import hashlib
import heapq
from typing import Generic, TypeVar

T = TypeVar("T")


class Some(Generic[T]):
    """At most `count` of all that is added, each equally likely; chosen by its name and the seed alone."""

    def __init__(self, count: int, *, seed: int = 0) -> None:
        self._count, self._seed = count, seed
        self._held: list[tuple[int, str, T]] = []  # a heap, the largest number first
        self.seen = 0

    def add(self, name: str, thing: T) -> None:
        """Consider a thing; names are unique."""
        self.seen += 1
        entry = (-number(self._seed, name), name, thing)
        if len(self._held) < self._count:
            heapq.heappush(self._held, entry)
        elif self._count and entry[0] > self._held[0][0]:
            heapq.heapreplace(self._held, entry)

    def chosen(self) -> list[tuple[str, T]]:
        """Return what is held, sorted by name."""
        return sorted(((name, thing) for _, name, thing in self._held), key=lambda pair: pair[0])


def number(seed: int, name: str) -> int:
    """Return 64 bits of a name that another seed makes others."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "big")
