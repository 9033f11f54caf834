"""How attention spreads over the points that it samples, with and without a look at the keys.

A query and head spreads over exp(entropy of its weights) points, 1 where one point has all, 16
where all are alike. ProcX, figure 3. Letters: B videos, N queries, H heads, L levels, P points, D
width of a head.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from stepline.evaluate.bootstrap import Floats
from stepline.models.procx.batch import StepSample, stack_videos
from stepline.models.procx.deformable_attention import (
    DeformableAttention,
    gather_dot_products,
    sampling_points,
)
from stepline.models.procx.model import ProcX

BATCH_VIDEOS = 16  # videos


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def spread_points(network: ProcX, samples: Sequence[StepSample]) -> Floats:
    """Return over how many points the queries and heads of the last decoder layer spread.

    Its shape is (videos N H,).
    """
    spreads: list[Tensor] = []

    def record_spread(
        module: DeformableAttention, inputs: tuple[Tensor, Tensor, Tensor, Sequence[int]], _: Tensor
    ) -> None:
        weights = point_weights(module, *inputs[:4])
        entropy = torch.special.entr(weights).sum(dim=-1)
        spreads.append(entropy.exp().flatten())

    # a hook reads the layer's inputs while the network runs
    handle = network.decoder[-1].attention.register_forward_hook(record_spread)
    try:
        for first in range(0, len(samples), BATCH_VIDEOS):
            part = samples[first : first + BATCH_VIDEOS]
            values = [sample.values for sample in part]
            durations = [sample.duration for sample in part]
            network(stack_videos(values, durations, network.settings.rows))
    finally:
        handle.remove()
    spread: Floats = torch.cat(spreads).double().numpy()
    return spread


def point_weights(
    module: DeformableAttention,
    query: Tensor,
    references: Tensor,
    memory: Tensor,
    lengths: Sequence[int],
) -> Tensor:
    """Return the weight of every sampled point, (B, N, H, L P), sum 1: equation 10 or 12."""
    heads = module.settings.heads
    if module.settings.form == "vanilla":
        weights: Tensor = module.weights(query).unflatten(-1, (heads, -1)).softmax(dim=-1)
        return weights
    locations = module.locations(query, references, lengths)
    points = sampling_points(locations, lengths, module.settings.padding, backward=False)
    key = module.key(memory).unflatten(-1, (heads, -1))
    head_query = module.query(query).unflatten(-1, (heads, -1))
    products = gather_dot_products(head_query, key, points)  # (B, N, H, L P)
    return (products / math.sqrt(head_query.shape[-1])).softmax(dim=-1)
