"""Layers of the visual encoder and of the localisation decoder; each block's sum is normalised after it, as in PDVC.

Letters: B videos, P positions of all levels, N queries, L levels, D width.
"""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from stepline.layers import feed_forward
from stepline.layers.dropout import Drop
from stepline.layers.linear import Linear
from stepline.procx.attention import DeformableAttention
from stepline.procx.model_settings import ModelSettings


class EncoderLayer(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Positions read each other at a few points, then a feed-forward."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.attention = DeformableAttention(settings.attention)
        self.attention_norm = nn.LayerNorm(settings.attention.width)
        self.feed = FeedForward(settings)
        self.drop = Drop(settings.dropout)

    def forward(
        self, rows: Tensor, places: Tensor, references: Tensor, lengths: Sequence[int], pad: Tensor | None
    ) -> Tensor:
        """Return rows (B, P, D) after the layer. places: as rows; references: (B, P, L, 1); pad: (B, P)."""
        read = self.attention(rows + places, references, rows, lengths, pad)
        return self.feed(self.attention_norm(rows + self.drop(read)))


class DecoderLayer(nn.Module):  # type: ignore[misc]
    """Queries see each other, then a few points of the video, then a feed-forward."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width = settings.attention.width
        self.among = SelfAttention(width, settings.attention.heads)
        self.among_norm = nn.LayerNorm(width)
        self.attention = DeformableAttention(settings.decoder_attention)
        self.attention_norm = nn.LayerNorm(width)
        self.feed = FeedForward(settings)
        self.drop = Drop(settings.dropout)

    def forward(
        self,
        queries: Tensor,
        places: Tensor,
        references: Tensor,
        levels: Tensor,
        lengths: Sequence[int],
        pad: Tensor | None,
    ) -> Tensor:
        """Return queries (B, N, D) after the layer. references: (B, N, L, 1 or 2); levels: (B, P, D); pad: (B, P)."""
        seen = self.among(queries + places, queries)
        queries = self.among_norm(queries + self.drop(seen))
        read = self.attention(queries + places, references, levels, lengths, pad)
        return self.feed(self.attention_norm(queries + self.drop(read)))


class SelfAttention(nn.Module):  # type: ignore[misc]
    """Every query sees every query of its video."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.asked = Linear(width, 2 * width)  # queries and keys
        self.value, self.out = Linear(width, width), Linear(width, width)

    def forward(self, placed: Tensor, rows: Tensor) -> Tensor:
        """Return what rows (B, N, D) read of each other, (B, N, D); placed: rows with their places, which are asked."""
        parts = (*self.asked(placed).chunk(2, dim=-1), self.value(rows))
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)  # (B, H, N, D/H)
        mixed: Tensor = self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        return mixed


class FeedForward(nn.Module):  # type: ignore[misc]
    """Two linear layers with ReLU between them, added to what they read, and the norm of it."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width = settings.attention.width
        self.feed = feed_forward.FeedForward(width, settings.feed_forward, settings.dropout)
        self.drop, self.norm = Drop(settings.dropout), nn.LayerNorm(width)

    def forward(self, rows: Tensor) -> Tensor:
        """Return (B, N, D) for rows (B, N, D)."""
        fed = self.feed(rows.flatten(0, 1)).view(rows.shape)
        return self.norm(rows + self.drop(fed))
