"""Attention whose positions enter queries and keys alone, and the feed-forward beside it.

Letters: B batch, N queries, M keys, H heads, D width. `key_keep` (B, 1, 1, M) is True where a key may be seen.
The place of a row is projected once for all videos: (x + p) W = x W + p W, and p W has no B.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.nasva.dropout import relu_drop_


class Attention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Multi-head attention with one packed projection; dropout of its weights is off unless asked for."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.project = nn.Linear(width, 3 * width)   # rows: query, key, value
        self.out = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.project.weight)   # as nn.MultiheadAttention, whose own the release keeps

    def within(self, rows: Tensor, place: Tensor | None, key_keep: Tensor) -> Tensor:
        """Return rows (B, N, D) attended by themselves. place: (N, D) or (B, N, D)."""
        query, key, value = self.project(rows).chunk(3, dim=-1)   # each (B, N, D)
        if place is not None:
            width = rows.shape[-1]
            at_query, at_key = F.linear(place, self.project.weight[: 2 * width]).chunk(2, dim=-1)
            query, key = query + at_query, key + at_key
        return self._attend(query, key, value, key_keep)

    def across(
        self, rows: Tensor, place: Tensor | None, memory: Tensor, memory_place: Tensor | None, key_keep: Tensor
    ) -> Tensor:
        """Return rows (B, N, D) attended by memory (B, M, D); places as in `within`."""
        width = rows.shape[-1]
        weight, bias = self.project.weight, self.project.bias
        query = F.linear(rows if place is None else rows + place, weight[:width], bias[:width])   # (B, N, D)
        key, value = F.linear(memory, weight[width:], bias[width:]).chunk(2, dim=-1)   # each (B, M, D)
        if memory_place is not None:
            key = key + F.linear(memory_place, weight[width : 2 * width])
        return self._attend(query, key, value, key_keep)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, key_keep: Tensor) -> Tensor:
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (query, key, value))
        drop = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, key_keep, drop)   # (B, H, N, D/H)
        return self.out(mixed.transpose(1, 2).flatten(2))   # (B, N, D)


class FeedForward(nn.Module):  # type: ignore[misc]
    """Two linear layers with ReLU and dropout between them."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.wide = nn.Linear(width, inner)
        self.narrow = nn.Linear(inner, width)
        self.dropout = dropout

    def forward(self, rows: Tensor) -> Tensor:
        """Return (B, N, D) for rows (B, N, D)."""
        inner = self.wide(rows.flatten(0, 1))   # (B N, F), flat: what is no view can be overwritten for nothing
        return self.narrow(relu_drop_(inner, self.dropout, self.training)).view(rows.shape)


def keys_to_see(key_pad: Tensor) -> Tensor:
    """Return the keys that attention may see, (B, 1, 1, M); where all are padding, all, so that nothing is NaN."""
    return (~key_pad | key_pad.all(dim=1, keepdim=True))[:, None, None, :]


def sine_positions(count: int, width: int, device: torch.device) -> Tensor:
    """Return fixed positions (count, width): sines in even columns, cosines in odd ones, base 10000."""
    steps = torch.arange(0, width, 2, device=device, dtype=torch.float32)
    angles = torch.arange(count, device=device, dtype=torch.float32)[:, None] * torch.exp(steps * (-LOG_BASE / width))
    return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)   # (count, width)


LOG_BASE = 9.210340371976184   # ln 10000; Vaswani et al. 2017
