"""Layers of the text decoder: attention that remembers keys, and the feed-forward; normalised before each.

Letters: M captions, R rows that are written at a time (M times the beam), W tokens, S places remembered, H heads,
D width.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.layers.dropout import Drop
from stepline.layers.linear import Linear


class Readable(Protocol):
    """What may be attended to."""

    def __len__(self) -> int:
        """Return of how many captions it is, M."""

    def read(self, query: Tensor) -> Tensor:
        """Return what queries (M, H, W, D/H) read, (M, H, W, D/H)."""


@dataclass(frozen=True)
class Memory:
    """Keys and values (M, H, S, D/H) of what may be attended to; keep (M, 1, 1, S), None: all of it."""

    keys: Tensor
    values: Tensor
    keep: Tensor | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, query: Tensor, keep: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return what queries (M, H, W, D/H) read, (M, H, W, D/H). keep: (M, 1, W, S) in place of its own."""
        keep = self.keep if keep is None else keep
        mixed: Tensor = F.scaled_dot_product_attention(query, self.keys, self.values, keep, is_causal=causal)
        return mixed

    def joined(self, other: "Memory") -> "Memory":
        """Return the memory with what comes after it."""
        keys, values = torch.cat((self.keys, other.keys), dim=2), torch.cat((self.values, other.values), dim=2)
        if self.keep is None and other.keep is None:
            return Memory(keys, values)
        return Memory(keys, values, torch.cat((_kept(self), _kept(other)), dim=3))

    def take(self, rows: Tensor) -> "Memory":
        """Return what these captions remember, (R,) indices."""
        return Memory(self.keys[rows], self.values[rows], None if self.keep is None else self.keep[rows])


def _kept(memory: Memory) -> Tensor:
    if memory.keep is not None:
        return memory.keep
    captions, _, places, _ = memory.keys.shape
    return torch.ones(captions, 1, 1, places, dtype=torch.bool, device=memory.keys.device)


class Attention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Multi-head attention to a memory that was made before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.remembered = Linear(width, width), Linear(width, 2 * width)
        self.out = Linear(width, width)

    def remember(self, rows: Tensor, pad: Tensor | None = None) -> Memory:
        """Return rows (M, S, D) as keys and values. pad: (M, S), True where a row is padding."""
        keys, values = self.remembered(rows).chunk(2, dim=-1)  # (M, S, D) each
        keep = None if pad is None else ~pad[:, None, None]  # (M, 1, 1, S)
        return Memory(self._apart(keys), self._apart(values), keep)

    def forward(self, rows: Tensor, memory: Readable) -> Tensor:
        """Return rows (R, W, D) attended to what M captions see; R may be a multiple of M, caption by caption."""
        each = len(rows) // len(memory) if len(memory) else 1  # R/M
        grouped = rows.reshape(len(memory), each * rows.shape[1], rows.shape[2])  # (M, R/M W, D)
        mixed = memory.read(self._apart(self.query(grouped)))  # (M, H, R/M W, D/H)
        return self.out(mixed.transpose(1, 2).reshape(rows.shape))

    def among(self, rows: Tensor, *, keep: Tensor | None = None, causal: bool = False) -> Tensor:
        """Return rows (M, W, D) attended to each other. keep: (M, 1, W, W); causal: row w attends up to w alone."""
        query = self._apart(self.query(rows))  # (M, H, W, D/H)
        mixed = self.remember(rows).read(query, keep, causal=causal)
        return self.out(mixed.transpose(1, 2).reshape(rows.shape))

    def _apart(self, rows: Tensor) -> Tensor:
        """Return (M, S, D) as (M, H, S, D/H)."""
        return rows.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Layer(nn.Module):  # type: ignore[misc]
    """Words attend to words, then to a context if the layer has one, then a feed-forward; each normalised first."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float, *, crosses: bool) -> None:
        super().__init__()
        self.within, self.within_norm = Attention(width, heads), nn.LayerNorm(width)
        self.across = Attention(width, heads) if crosses else None
        self.across_norm = nn.LayerNorm(width) if crosses else None
        self.feed = nn.Sequential(Linear(width, inner), nn.GELU(), Drop(dropout), Linear(inner, width))
        self.feed_norm, self.drop = nn.LayerNorm(width), Drop(dropout)

    def forward(
        self, rows: Tensor, context: Readable | None = None, *, keep: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Return rows (M, W, D) after the layer; keep and causal as in `Attention.among`, of the words."""
        rows = rows + self.drop(self.within.among(self.within_norm(rows), keep=keep, causal=causal))
        return self._rest(rows, context)

    def go_on(self, rows: Tensor, past: Memory | None, context: Memory | None) -> tuple[Tensor, Memory]:
        """Return the next word's row (R, 1, D) after the layer, and the past (R, H, S, D/H) with that word in it."""
        normed = self.within_norm(rows)
        here = self.within.remember(normed)
        past = here if past is None else past.joined(here)
        return self._rest(rows + self.drop(self.within(normed, past)), context), past

    def _rest(self, rows: Tensor, context: Readable | None) -> Tensor:
        if self.across is not None and self.across_norm is not None and context is not None:
            rows = rows + self.drop(self.across(self.across_norm(rows), context))
        return rows + self.drop(self.feed(self.feed_norm(rows)))
