"""Deformable attention over time as its formula reads: points sampled level by level with
grid_sample.

What stepline/models/procx/deformable_attention.py is tested against. Letters as there: B, N,
M, H, L, P, D.
"""

import math

import torch
import torch.nn.functional as F


def sampled(table, locations, lengths):
    """Return rows of a table (B, M, H, D) at locations (B, N, H, L, P): (B H, D, N, L P)."""
    videos, _, heads, width = table.shape
    levels = []
    for level, rows in enumerate(table.split(list(lengths), dim=1)):
        level_locations = locations[:, :, :, level]  # (B, N, H, P)
        level_locations = level_locations.transpose(1, 2).flatten(0, 1)  # (B H, N, P)
        # grid_sample counts from -1 to 1
        across = 2 * level_locations - 1
        if rows.shape[1]:
            picture = rows.permute(0, 2, 3, 1)  # (B, H, D, T)
            picture = picture.reshape(videos * heads, width, 1, rows.shape[1])
            grid = torch.stack((across, torch.zeros_like(across)), dim=-1)
            points = F.grid_sample(picture, grid, padding_mode="zeros", align_corners=False)
        else:
            points = table.new_zeros(videos * heads, width, *across.shape[1:])
        levels.append(points)  # (B H, D, N, P)
    return torch.stack(levels, dim=-2).flatten(-2)


def deformable(value, locations, weights, lengths):
    """Return (B, N, H, D): sampled values, weighted by weights (B, N, H, L, P)."""
    values = sampled(value, locations, lengths)  # (B H, D, N, L P)
    shares = weights.transpose(1, 2).flatten(0, 1)  # (B H, N, L, P)
    shares = shares.flatten(2)[:, None]  # (B H, 1, N, L P)
    mixed = (values * shares).sum(-1)  # (B H, D, N)
    by_head = mixed.unflatten(0, (len(value), -1))  # (B, H, D, N)
    return by_head.permute(0, 3, 1, 2)


def key_aware(query, key, value, locations, lengths, *, together=False):
    """Return (B, N, H, D): sampled values, weighted by softmax(query sampled key / sqrt(D)).

    together: keys and values are sampled in one call. Else in two, as in Lite-DETR.
    """
    if together:
        table = torch.cat((key, value), dim=-1)
        points = sampled(table, locations, lengths)
        keys, values = points.chunk(2, dim=1)
    else:
        keys = sampled(key, locations, lengths)
        values = sampled(value, locations, lengths)
    queries = query.transpose(1, 2).flatten(0, 1)  # (B H, N, D)
    queries = queries[:, :, None]  # (B H, N, 1, D)
    keys = keys.permute(0, 2, 1, 3)  # (B H, N, D, L P)
    logits = (queries @ keys) / math.sqrt(query.shape[-1])  # (B H, N, 1, L P)
    values = values.permute(0, 2, 3, 1)  # (B H, N, L P, D)
    mixed = logits.softmax(-1) @ values  # (B H, N, 1, D)
    by_head = mixed.squeeze(2).unflatten(0, (len(value), -1))  # (B, H, N, D)
    return by_head.transpose(1, 2)


def layer(attend, query, references, memory, lengths):
    """Return what a layer gives, (B, N, C), its points sampled."""
    settings = attend.settings
    heads = (settings.heads, -1)
    locations = attend.locations(query, references, lengths)
    value = attend.value(memory).unflatten(-1, heads)
    if settings.form == "vanilla":
        logits = attend.weights(query).unflatten(-1, heads)
        weights = logits.softmax(-1).view_as(locations)
        mixed = deformable(value, locations, weights, lengths)
    else:
        queries = attend.query(query).unflatten(-1, heads)
        keys = attend.key(memory).unflatten(-1, heads)
        mixed = key_aware(queries, keys, value, locations, lengths)
    return attend.out(mixed.flatten(2))
