"""How attention spreads over the points that it samples, with and without a look at the keys (ProcX, figure 3).

A query and head spreads over exp(entropy of its weights) points: 1 where one point has all, 16 where all are alike.
Letters: B videos, N queries, H heads, L levels, P points, D width of a head.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from stepline.evaluate.statistics import Floats
from stepline.plots import grouped, plot_style
from stepline.procx.attention import DeformableAttention
from stepline.procx.batch import Sample, videos
from stepline.procx.model import ProcX
from stepline.procx.reading import products
from stepline.procx.taps import taps

AT_ONCE = 16  # videos


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def spread_points(network: ProcX, samples: Sequence[Sample]) -> Floats:
    """Return over how many points each query and head of the last decoder layer spreads, (videos N H,)."""
    found: list[Tensor] = []

    def look(module: DeformableAttention, given: tuple[Tensor, Tensor, Tensor, Sequence[int]], _: Tensor) -> None:
        weights = point_weights(module, *given[:4])
        found.append(torch.special.entr(weights).sum(dim=-1).exp().flatten())

    handle = network.decoder[-1].attention.register_forward_hook(look)
    try:
        for first in range(0, len(samples), AT_ONCE):
            part = samples[first : first + AT_ONCE]
            network(videos([one.values for one in part], [one.duration for one in part], network.settings.rows))
    finally:
        handle.remove()
    spread: Floats = torch.cat(found).double().numpy()
    return spread


def point_weights(
    module: DeformableAttention, query: Tensor, references: Tensor, memory: Tensor, lengths: Sequence[int]
) -> Tensor:
    """Return what each sampled point counts, (B, N, H, L P), summing to 1: equation 10 or 12."""
    heads = module.settings.heads
    if module.settings.form == "vanilla":
        weights: Tensor = module.weights(query).unflatten(-1, (heads, -1)).softmax(dim=-1)
        return weights
    read = taps(module.locations(query, references, lengths), lengths, module.settings.padding, backward=False)
    key, asked = (part.unflatten(-1, (heads, -1)) for part in (module.key(memory), module.query(query)))
    return (products(asked, key, read) / math.sqrt(asked.shape[-1])).softmax(dim=-1)


def spread_plot(spreads: dict[str, Floats]) -> str:
    """Return the histograms of several networks as one SVG file that stands alone."""
    series = {name: Counter(np.rint(2 * points).astype(int).tolist()) for name, points in spreads.items()}
    counts = {name: {str(key): count for key, count in sorted(found.items())} for name, found in series.items()}
    svg = grouped(counts, "points over which a query and head spreads", bar=0.5)
    opened, rest = svg.split(">", 1)
    return f'{opened} xmlns="http://www.w3.org/2000/svg"><style>{plot_style()}</style>{rest}\n'
