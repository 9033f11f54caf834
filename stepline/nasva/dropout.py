"""Dropout that does not cost as much as the matrix product beside it.

On a CPU PyTorch draws one 64-bit number an element, and keeps the mask in float32; here four elements share one, and
the mask is kept in a byte, or not at all where ReLU comes first: what is positive is what was kept. On other devices
PyTorch's own, which is fused there.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

LANES = 4   # 16-bit lanes of a 64-bit number, one an element; a share is thus met to 1 / 65536


def drop(rows: Tensor, share: float, training: bool) -> Tensor:
    """Return rows with a share of elements set to 0 and the rest scaled to the same mean; as they are at rest."""
    if not training or not share or not rows.numel():
        return rows
    return _Drop.apply(rows, share) if rows.device.type == "cpu" else F.dropout(rows, share)


def relu_drop_(rows: Tensor, share: float, training: bool) -> Tensor:
    """Return `drop` of the rows' positive part; rows (N, F), the widest of all tensors, are overwritten."""
    if not training or not share or not rows.numel():
        return F.relu(rows, inplace=True)
    return _ReluDrop.apply(rows, share) if rows.device.type == "cpu" else F.dropout(F.relu_(rows), share)


def _kept(rows: Tensor, share: float) -> Tensor:
    """Return which elements stay, bool of the rows' shape, from torch's generator."""
    numbers = torch.empty(-(-rows.numel() // LANES), dtype=torch.int64).random_(-(2**63), None)
    lanes = numbers.view(torch.int16)[: rows.numel()]   # each even over [-32768, 32768)
    return (lanes < round((1 - share) * 65536) - 32768).view(rows.shape)


class _Drop(Function):  # type: ignore[misc]   # torch is untyped to mypy here
    @staticmethod
    def forward(context: Any, rows: Tensor, share: float) -> Tensor:
        kept = _kept(rows, share)
        context.save_for_backward(kept)
        context.scale = 1 / (1 - share)
        return (rows * kept).mul_(context.scale)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kept,) = context.saved_tensors
        return (gradient * kept).mul_(context.scale), None


class _ReluDrop(Function):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, rows: Tensor, share: float) -> Tensor:
        context.scale = 1 / (1 - share)
        rows.relu_().mul_(_kept(rows, share)).mul_(context.scale)
        context.mark_dirty(rows)
        context.save_for_backward(rows)   # which the next product keeps anyway
        return rows

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (shown,) = context.saved_tensors
        return torch.ops.aten.threshold_backward(gradient, shown, 0).mul_(context.scale), None
