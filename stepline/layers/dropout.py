"""Dropout that does not cost as much as the matrix product beside it.

On a CPU PyTorch draws one 64-bit number an element from a slow generator, and keeps the mask in float32; here four
elements share one, torch's generator gives the seed alone, and the mask is kept in a byte. On other devices PyTorch's
own, which is fused there.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

LANES = 4  # 16-bit lanes of a 64-bit number, one an element; a share is thus met to 1 / 65536
SEEDS = 2**63 - 1
CHUNK = 2**18  # elements that stay in the cache while they are drawn for


def drop(rows: Tensor, share: float, training: bool) -> Tensor:
    """Return rows with a share of elements set to 0 and the rest scaled to the same mean; as they are at rest."""
    if not training or not share or not rows.numel():
        return rows
    ours = rows.device.type == "cpu" and not torch.compiler.is_compiling()
    return _Drop.apply(rows, share) if ours else F.dropout(rows, share)


class Drop(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """`drop` as a part of a network."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows of any shape, a share of their elements dropped in training."""
        return drop(rows, self.share, self.training)


def kept(count: int, share: float) -> Iterator[Tensor]:
    """Yield which of `count` elements stay when a share is dropped, bool, a chunk at a time; CPU.

    The seed is drawn from torch's generator.
    """
    numbers = np.random.SFC64(int(torch.empty((), dtype=torch.int64).random_(SEEDS)))
    most = round((1 - share) * 65536) - 32768
    for start in range(0, count, CHUNK):
        here = min(CHUNK, count - start)
        lanes = numbers.random_raw(-(-here // LANES)).view(np.int16)[:here]  # each even over [-32768, 32768)
        yield torch.from_numpy(lanes < most)


def thin(rows: Tensor, share: float) -> None:
    """Set a share of the elements of contiguous rows to 0, in place, and leave the rest as they are; CPU."""
    chunks = rows.view(-1).split(CHUNK)
    for chunk, stays in zip(chunks, kept(rows.numel(), share), strict=True):
        chunk.mul_(as_numbers(stays, chunk))


def as_numbers(stays: Tensor, like: Tensor) -> Tensor:
    """Return 1 and 0 for True and False; PyTorch multiplies by them faster than by bool."""
    return stays.view(torch.int8).to(like.dtype)


class _Drop(Function):  # type: ignore[misc]   # torch is untyped to mypy here
    @staticmethod
    def forward(context: Any, rows: Tensor, share: float) -> Tensor:
        mask = torch.cat(list(kept(rows.numel(), share))).view(rows.shape)
        context.save_for_backward(mask)
        context.scale = 1 / (1 - share)
        return as_numbers(mask, rows).mul_(rows).mul_(context.scale)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = context.saved_tensors
        return as_numbers(mask, gradient).mul_(gradient).mul_(context.scale), None
