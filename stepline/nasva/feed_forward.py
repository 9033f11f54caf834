"""The feed-forward of a transformer layer, where two thirds of the network's arithmetic are.

On a CPU it goes over the rows in blocks that stay in the cache: what is wide is made, cut at 0 and dropped from while
it is near, backward too, and its gradient, the widest of all tensors, is never whole.
Letters: N rows, D width, F inner width.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from stepline.nasva.dropout import kept
from stepline.nasva.linear import Linear, own, product

BLOCK = 1024   # rows a block: 8 MB at F 2048, which the allocator keeps for the next one


class FeedForward(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Two linear layers with ReLU and dropout between them."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.wide = Linear(width, inner)
        self.narrow = Linear(inner, width)
        self.dropout = dropout

    def forward(self, rows: Tensor) -> Tensor:
        """Return (N, D) for rows (N, D)."""
        share = self.dropout if self.training else 0.0
        wide, narrow = self.wide, self.narrow
        if own(rows) and len(rows):
            return _Blocks.apply(rows, wide.weight, wide.bias, narrow.weight, narrow.bias, share)
        return narrow(F.dropout(F.relu(wide(rows)), share))


class _Blocks(Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        context: Any, rows: Tensor, wide: Tensor, wide_bias: Tensor, narrow: Tensor, narrow_bias: Tensor, share: float
    ) -> Tensor:
        context.scale = 1 / (1 - share)
        learns = any(context.needs_input_grad)
        shown, out = [], rows.new_empty(len(rows), len(narrow))
        for block, into in zip(rows.split(BLOCK), out.split(BLOCK), strict=True):
            inner = product(block, wide, wide_bias, relu=True)   # (BLOCK, F)
            if share:
                inner.mul_(kept(inner, share)).mul_(context.scale)
            into.copy_(product(inner, narrow, narrow_bias))
            shown += [inner] if learns else []
        context.save_for_backward(rows, wide, narrow, *shown)   # what is positive is what was kept
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, wide, narrow, *shown = context.saved_tensors
        gradient = gradient.contiguous()
        to_rows, to_wide, to_narrow = (torch.zeros_like(given) for given in (rows, wide, narrow))
        to_wide_bias = wide.new_zeros(len(wide))
        blocks = zip(shown, *(whole.split(BLOCK) for whole in (rows, gradient, to_rows)), strict=True)
        for inner, block, above, into in blocks:
            to_narrow.addmm_(above.t(), inner)
            below = product(above, narrow.t(), None)   # (BLOCK, F)
            torch.ops.aten.threshold_backward.grad_input(below, inner, 0, grad_input=below)
            below.mul_(context.scale)
            to_wide.addmm_(below.t(), block)
            to_wide_bias += below.sum(0)
            into.copy_(product(below, wide.t(), None))
        return to_rows, to_wide, to_wide_bias, to_narrow, gradient.sum(0), None
