"""Deformable attention over time as its formula reads: points sampled level by level with
grid_sample.

What stepline/procx/deformable_attention.py is measured and tested against. Letters as there: B, N,
M, H, L, P, D.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.procx.deformable_attention import DeformableAttention

MODES = {"zero": "zeros", "border": "border"}


def sampled(table: Tensor, locations: Tensor, lengths: Sequence[int], padding: str) -> Tensor:
    """Return rows of a table (B, M, H, D) at locations (B, N, H, L, P), by levels: (B H, D, N, L
    P)."""
    videos, _, heads, width = table.shape
    found = []
    for level, rows in enumerate(table.split(list(lengths), dim=1)):
        # (B H, D, 1, T)
        picture = rows.permute(0, 2, 3, 1).reshape(videos * heads, width, 1, rows.shape[1])
        across = 2 * locations[:, :, :, level].transpose(1, 2).flatten(0, 1) - 1  # (B H, N, P)
        if rows.shape[1]:
            grid = torch.stack((across, torch.zeros_like(across)), dim=-1)
            found.append(
                F.grid_sample(picture, grid, padding_mode=MODES[padding], align_corners=False)
            )
        else:
            found.append(table.new_zeros(videos * heads, width, *across.shape[1:]))
    return torch.stack(found, dim=-2).flatten(-2)


def deformable(
    value: Tensor, locations: Tensor, weights: Tensor, lengths: Sequence[int], padding: str = "zero"
) -> Tensor:
    """Return (B, N, H, D): sampled values, weighted by weights (B, N, H, L, P)."""
    values = sampled(value, locations, lengths, padding)  # (B H, D, N, L P)
    shares = weights.transpose(1, 2).flatten(0, 1).flatten(2)[:, None]  # (B H, 1, N, L P)
    mixed = (values * shares).sum(-1)  # (B H, D, N)
    return mixed.unflatten(0, (len(value), -1)).permute(0, 3, 1, 2)


def key_aware(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    locations: Tensor,
    lengths: Sequence[int],
    padding: str = "zero",
    *,
    together: bool = False,
) -> Tensor:
    """Return (B, N, H, D): sampled values, weighted by the softmax of query times sampled key /
    sqrt(D).

    together: keys and values are sampled in one call. Else in two, as in Lite-DETR.
    """
    if together:
        keys, values = sampled(torch.cat((key, value), dim=-1), locations, lengths, padding).chunk(
            2, dim=1
        )
    else:
        keys, values = (sampled(table, locations, lengths, padding) for table in (key, value))
    asked = query.transpose(1, 2).flatten(0, 1)[:, :, None]  # (B H, N, 1, D)
    logits = (asked @ keys.permute(0, 2, 1, 3)) / math.sqrt(query.shape[-1])  # (B H, N, 1, L P)
    mixed = logits.softmax(-1) @ values.permute(0, 2, 3, 1)  # (B H, N, 1, D)
    return mixed.squeeze(2).unflatten(0, (len(value), -1)).transpose(1, 2)


def layer(
    attend: DeformableAttention,
    query: Tensor,
    references: Tensor,
    memory: Tensor,
    lengths: Sequence[int],
) -> Tensor:
    """Return what a layer gives, (B, N, C), its points sampled."""
    settings = attend.settings
    locations = attend.locations(query, references, lengths)
    value = attend.value(memory).unflatten(-1, (settings.heads, -1))
    if settings.form == "vanilla":
        weights = (
            attend.weights(query).unflatten(-1, (settings.heads, -1)).softmax(-1).view_as(locations)
        )
        mixed = deformable(value, locations, weights, lengths, settings.padding)
    else:
        asked, key = (
            part.unflatten(-1, (settings.heads, -1))
            for part in (attend.query(query), attend.key(memory))
        )
        mixed = key_aware(asked, key, value, locations, lengths, settings.padding)
    return attend.out(mixed.flatten(2))
