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

from stepline.layers.dropout import thin
from stepline.layers.linear import Linear, own, product

BLOCK = 1024  # rows a block: 8 MB at F 2048, which the allocator keeps for the next one


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
    """What is kept is scaled by the first layer's weights, which are fewer than what it makes of the rows."""

    @staticmethod
    def forward(
        context: Any, rows: Tensor, wide: Tensor, wide_bias: Tensor, narrow: Tensor, narrow_bias: Tensor, share: float
    ) -> Tensor:
        scale = context.scale = 1 / (1 - share)
        learns = any(context.needs_input_grad)
        wide, wide_bias = (wide * scale, wide_bias * scale) if share else (wide, wide_bias)
        shown, out = [], rows.new_empty(len(rows), len(narrow))
        for block, into in zip(rows.split(BLOCK), out.split(BLOCK), strict=True):
            inner = product(block, wide, wide_bias, relu=True)  # (BLOCK, F)
            if share:
                thin(inner, share)
            into.copy_(product(inner, narrow, narrow_bias))
            shown += [inner] if learns else []
        context.save_for_backward(rows, wide, narrow, *shown)  # what is positive is what was kept
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, wide, narrow, *shown = context.saved_tensors
        scale, gradient = context.scale, gradient.contiguous()
        to_rows, to_wide, to_narrow = torch.empty_like(rows), wide.new_zeros(wide.shape[::-1]), torch.zeros_like(narrow)
        to_wide_bias = wide.new_zeros(len(wide))
        blocks = zip(shown, *(whole.split(BLOCK) for whole in (rows, gradient, to_rows)), strict=True)
        for inner, block, above, into in blocks:
            to_narrow += product(above.t(), inner.t(), None)
            below = product(above, narrow.t(), None)  # (BLOCK, F)
            torch.ops.aten.threshold_backward.grad_input(below, inner, 0, grad_input=below)
            to_wide += product(block.t(), below.t(), None)  # (D, F): faster than its transpose
            to_wide_bias += below.sum(0)
            into.copy_(product(below, wide.t(), None))
        to_wide = to_wide.mul_(scale).t().contiguous()
        return to_rows, to_wide, to_wide_bias.mul_(scale), to_narrow, gradient.sum(0), None
