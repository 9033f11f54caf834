"""Which videos to sample for a forecast: small and large ones in their true proportions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from stepline.curate.forecast.extrapolation import Rows
from stepline.curate.stage import VideoItem
from stepline.evaluate.bootstrap import Floats


@dataclass(frozen=True)
class ItemSizes:
    """values: (N,) of all items, by `kind`: their seconds, else the bytes of their files, else all
    alike."""

    kind: str
    values: Floats


def known_sizes(items: Sequence[VideoItem]) -> ItemSizes:
    """Return what is known of every item's size without opening it."""
    # Seconds say most of the work, then the bytes of a file.
    durations = [item.duration for item in items]
    if None not in durations:
        seconds = np.array(durations, dtype=np.float64)
        return ItemSizes("duration", seconds)
    # A stamp begins with the bytes: "4711-..."
    sizes = []
    for item in items:
        size, _, _ = item.stamp.partition("-")
        sizes.append(size)
    are_numbers = [size.isdigit() for size in sizes]
    if all(are_numbers):
        file_bytes = np.array(sizes, dtype=np.float64)
        return ItemSizes("bytes", file_bytes)
    count = len(items)
    alike = np.ones(count)
    return ItemSizes("alike", alike)


def draw_stratified(values: Floats, count: int, seed: int) -> list[int]:
    """Return the rows of `count` items, at random, small and large ones in their true proportions.

    A shorter draw is the first part of a longer one. Later parts hold the proportions nearly as
    well.
    """
    # Sorted by size, so that a half holds the small ones and a half the large ones.
    order = np.argsort(values, kind="stable")
    rng = np.random.default_rng(seed)
    rows = _alternate(order, rng)
    sample = islice(rows, count)
    return list(sample)


def _alternate(order: Rows, rng: np.random.Generator) -> Iterator[int]:
    """Yield all rows by turns from either half of their order, within each half likewise, which
    half first by chance.

    A van der Corput sequence, scrambled as Owen does, of ranks in place of fractions. Of an odd
    number one row, drawn at random, comes at a random place. So every row is as likely to be among
    the first.
    """
    if len(order) % 2:
        count = len(order)
        odd, position = rng.integers(count, size=2)
        even_order = np.delete(order, odd)
        others = _alternate(even_order, rng)
        # One row is taken out, which leaves an even number to halve.
        yield from islice(others, position)
        yield int(order[odd])
        yield from others
    elif len(order):
        halves = np.split(order, 2)
        # Which half begins is drawn, so that small videos are not always first.
        direction = rng.choice((-1, 1))
        first, second = halves[::direction]
        first_rows = _alternate(first, rng)
        second_rows = _alternate(second, rng)
        pairs = zip(first_rows, second_rows, strict=True)
        in_turn = chain.from_iterable(pairs)
        yield from in_turn
