"""Totals over all items from what a sample of them took, by their sizes where sizes tell anything.

n sampled items, N items, B draws of the sample.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.evaluate.statistics import Floats

Rows: TypeAlias = npt.NDArray[np.int64]


def totals(spent: Floats, chosen: Floats, everything: Floats, drawn: Rows, generator: np.random.Generator) -> Floats:
    """Return (B,) sums over N items: of a line through size where it foretells better than the mean, else of the mean.

    spent, chosen: (n,) what each sampled item took, and its size; everything: (N,) sizes; drawn: (B, n) which items a
    draw holds, the first all. Sizes beyond the sample's count as its largest, since nothing is known there; what the
    line leaves over in the sample is added for all, so that a wrong line does no harm on the whole. Each draw but the
    first has the noise of N single items added.
    """
    count = len(everything)
    sizes = np.clip(everything, chosen.min(), chosen.max())
    x, y = chosen[drawn], spent[drawn]  # (B, n)
    if foretells(chosen, spent):
        fixed, slope = line(x, y)
    else:
        fixed, slope = y.mean(axis=1), np.zeros(len(y))
    rest = y - fixed[:, None] - slope[:, None] * x
    noise = generator.normal(size=len(drawn)) * rest.std(axis=1) * np.sqrt(count)
    noise[0] = 0.0
    sums = fixed * count + slope * sizes.sum() + rest.mean(axis=1) * count
    return np.asarray(np.maximum(0.0, sums + noise))


def line(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return a and b (B,) of the least-squares lines a + b x through points (B, n), with neither below 0."""
    apart = x - x.mean(axis=1, keepdims=True)
    variance = (apart**2).sum(axis=1)
    slope = np.divide((apart * y).sum(axis=1), variance, out=np.zeros(len(x)), where=variance > 0)
    slope = np.maximum(0.0, slope)
    fixed = y.mean(axis=1) - slope * x.mean(axis=1)
    squares = np.maximum(1e-300, (x**2).sum(axis=1))
    return np.maximum(0.0, fixed), np.where(fixed < 0, (x * y).sum(axis=1) / squares, slope)


def foretells(x: Floats, y: Floats) -> bool:
    """Tell whether a line through the others foretells each item (n,) better than their mean does."""
    others = np.array([np.delete(np.arange(len(x)), place) for place in range(len(x))])
    fixed, slope = line(x[others], y[others])
    by_line = y - fixed - slope * np.clip(x, x[others].min(axis=1), x[others].max(axis=1))
    by_mean = y - y[others].mean(axis=1)
    return bool((by_line**2).sum() < (by_mean**2).sum())
