"""How large each video is, and a sample that holds small and large ones in their true shares."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepline.curate.items import Item
from stepline.evaluate.statistics import Floats


@dataclass(frozen=True)
class Sizes:
    """values: (N,) of all items, by `kind`: their seconds, else the bytes of their files, else all alike."""

    kind: str
    values: Floats


def sizes(items: Sequence[Item]) -> Sizes:
    """Return what is known of every item's size without opening it."""
    if all(item.duration is not None for item in items):
        return Sizes("duration", np.array([item.duration for item in items], dtype=np.float64))
    found = [_bytes(item.stamp) for item in items]
    if all(size is not None for size in found):
        return Sizes("bytes", np.array(found, dtype=np.float64))
    return Sizes("alike", np.ones(len(items)))


def _bytes(stamp: str) -> int | None:
    """Return the bytes that a stamp begins with ("4711-...")."""
    head = stamp.partition("-")[0]
    return int(head) if head.isdigit() else None


def sample(values: Floats, count: int, seed: int) -> list[int]:
    """Return the places of `count` items, one at random of each of `count` equal parts in order of size.

    The first third, the second and the last hold small and large ones alike, so that each stands for the whole.
    """
    generator = np.random.default_rng(seed)
    order = np.argsort(values, kind="stable")
    parts = np.array_split(order, min(count, len(order)))
    chosen = [int(generator.choice(part)) for part in parts]
    return [chosen[place] for start in range(3) for place in range(start, len(chosen), 3)]
