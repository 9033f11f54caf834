"""Attention whose positions enter queries and keys alone.

Letters: B batch, N queries of a video, M keys of it, R rows of all videos, H heads, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.layers.linear import Linear, affine
from stepline.nasva.rows import Rows


class Attention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Multi-head attention with one packed projection; dropout of its weights is off unless asked for."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.project = nn.Linear(width, 3 * width)  # rows: query, key, value
        self.out = Linear(width, width)
        nn.init.xavier_uniform_(self.project.weight)  # as nn.MultiheadAttention, whose own the release keeps

    def within(self, rows: Tensor, place: Tensor | None, layout: Rows) -> Tensor:
        """Return rows (R, D) attended by those of their own video. place: (R, D)."""
        if place is None:
            query, key, value = self._project(rows, 0, 3)  # each (R, D)
        else:
            query, key = self._project(rows + place, 0, 2)
            (value,) = self._project(rows, 2, 3)
        return self._attend(query, key, value, layout, layout)

    def across(
        self,
        rows: Tensor,
        place: Tensor | None,
        layout: Rows,
        memory: Tensor,
        memory_place: Tensor | None,
        memory_layout: Rows,
    ) -> Tensor:
        """Return rows (R, D) attended by the memory of their video; places as in `within`."""
        (query,) = self._project(rows if place is None else rows + place, 0, 1)  # (R, D)
        if memory_place is None:
            key, value = self._project(memory, 1, 3)
        else:
            (key,) = self._project(memory + memory_place, 1, 2)
            (value,) = self._project(memory, 2, 3)
        return self._attend(query, key, value, layout, memory_layout)

    def _project(self, rows: Tensor, first: int, end: int) -> tuple[Tensor, ...]:
        """Return parts `first` to `end` of query, key and value, each (R, D)."""
        part = slice(first * rows.shape[-1], end * rows.shape[-1])
        parts: tuple[Tensor, ...] = affine(rows, self.project.weight[part], self.project.bias[part]).chunk(
            end - first, dim=-1
        )
        return parts

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, layout: Rows, seen: Rows) -> Tensor:
        if layout.even and seen.even:
            query, key, value = (part.unflatten(0, (seen.batch, -1)) for part in (query, key, value))  # (B, N or M, D)
            return self.out(self._mix(query, key, value, seen.key_keep).flatten(0, 1))
        keeps = [None] * seen.batch if seen.key_keep is None else seen.key_keep.split(1)
        mixed = []
        for one, keys, values, keep in zip(
            query.split(layout.lengths), key.split(seen.lengths), value.split(seen.lengths), keeps, strict=True
        ):
            mixed.append(self._mix(one[None], keys[None], values[None], keep)[0] if len(one) else one)  # (N, D)
        return self.out(torch.cat(mixed))  # (R, D)

    def _mix(self, query: Tensor, key: Tensor, value: Tensor, key_keep: Tensor | None) -> Tensor:
        """Return values (B, M, D) mixed for each query, (B, N, D)."""
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (query, key, value))
        drop = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, key_keep, drop)  # (B, H, N, D/H)
        return mixed.transpose(1, 2).flatten(2)  # (B, N, D)


def sine_positions(count: int, width: int, device: torch.device) -> Tensor:
    """Return fixed positions (count, width): sines in even columns, cosines in odd ones, base 10000."""
    steps = torch.arange(0, width, 2, device=device, dtype=torch.float32)
    angles = torch.arange(count, device=device, dtype=torch.float32)[:, None] * torch.exp(steps * (-LOG_BASE / width))
    return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)  # (count, width)


LOG_BASE = 9.210340371976184  # ln 10000; Vaswani et al. 2017
