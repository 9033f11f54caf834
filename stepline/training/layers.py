"""A linear layer, by the faster of the two libraries that PyTorch on a CPU holds.

PyTorch multiplies float32 on a CPU by MKL, which adds a bias in a pass of its own, and knows AMD's processors less
well than oneDNN, whose product is 8 to 15 % faster there and adds it on the way. Both are float32 throughout; they
differ by rounding. What is small, or on another device, or under autocast, goes PyTorch's own way.
Letters: N rows, C width in, F width out.

The feed-forward of a transformer layer, where two thirds of the network's arithmetic are.

On a CPU it goes over the rows in blocks that stay in the cache: what is wide is made, cut at 0 and dropped from while
it is near, backward too, and its gradient, the widest of all tensors, is never whole.
Letters: N rows, D width, F inner width.

Dropout that does not cost as much as the matrix product beside it.

On a CPU PyTorch draws one 64-bit number an element from a slow generator, and keeps the mask in float32; here four
elements share one, torch's generator gives the seed alone, and the mask is kept in a byte. On other devices PyTorch's
own, which is fused there.

Parts of networks that several systems use, as fast as a CPU allows.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

ONEDNN_PAYS = (
    2**27
)  # multiplications from which it pays: oneDNN takes 0.3 ms to prepare for a shape that it has not met
Product: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Linear(nn.Linear):  # type: ignore[misc]   # torch is untyped to mypy here
    """nn.Linear by `linear`."""

    def forward(self, rows: Tensor) -> Tensor:
        """Return (..., F) for rows (..., C)."""
        return linear(rows, self.weight, self.bias)


def linear(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return rows (..., C) times weight (F, C) transposed, plus bias (F): (..., F)."""
    if not use_cpu_kernels(rows) or rows.shape[:-1].numel() * weight.numel() < ONEDNN_PAYS:
        return F.linear(rows, weight, bias)
    flat = rows.reshape(-1, rows.shape[-1])  # (N, C)
    return _LinearOneDnn.apply(flat, weight, bias).view(*rows.shape[:-1], len(weight))


def use_cpu_kernels(rows: Tensor) -> bool:
    """Return whether rows are of a kind that goes the project's own way: float32 on a CPU, no autocast, no compiler."""
    if torch.compiler.is_compiling():  # which fuses better than any of it
        return False
    return rows.device.type == "cpu" and rows.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


def linear_no_grad(rows: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
    """Return `linear` of rows (N, C), or its positive part, without a gradient."""
    if ONEDNN is not None and len(rows) * weight.numel() >= ONEDNN_PAYS:
        return ONEDNN(rows, weight, bias, "relu" if relu else "none", [], "")
    out = F.linear(rows, weight, bias)
    return out.relu_() if relu else out


def _onednn() -> Any:
    """Return oneDNN's linear layer as PyTorch's compiler calls it; None in a build without it."""
    found = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return torch.ops.mkldnn._linear_pointwise if found else None


ONEDNN = _onednn()


class _LinearOneDnn(Function):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        context.save_for_backward(rows, weight)
        return linear_no_grad(rows, weight, bias)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        rows, weight = context.saved_tensors
        gradient = gradient.contiguous()
        to_rows = linear_no_grad(gradient, weight.t(), None) if context.needs_input_grad[0] else None  # (N, C)
        return to_rows, gradient.t() @ rows, gradient.sum(0)


LANES = 4  # 16-bit lanes of a 64-bit number, one an element; a share is thus met to 1 / 65536
SEEDS = 2**63 - 1
CHUNK = 2**18  # elements that stay in the cache while they are drawn for


def dropout(rows: Tensor, share: float, training: bool) -> Tensor:
    """Return rows with a share of elements set to 0 and the rest scaled to the same mean; as they are at rest."""
    if not training or not share or not rows.numel():
        return rows
    ours = rows.device.type == "cpu" and not torch.compiler.is_compiling()
    return _ByteMaskDropout.apply(rows, share) if ours else F.dropout(rows, share)


class Dropout(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """`dropout` as a part of a network."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows of any shape, a share of their elements dropped in training."""
        return dropout(rows, self.share, self.training)


def keep_masks(count: int, share: float) -> Iterator[Tensor]:
    """Yield which of `count` elements stay when a share is dropped, bool, a chunk at a time; CPU.

    The seed is drawn from torch's generator.
    """
    numbers = np.random.SFC64(int(torch.empty((), dtype=torch.int64).random_(SEEDS)))
    most = round((1 - share) * 65536) - 32768
    for start in range(0, count, CHUNK):
        here = min(CHUNK, count - start)
        lanes = numbers.random_raw(-(-here // LANES)).view(np.int16)[:here]  # each even over [-32768, 32768)
        yield torch.from_numpy(lanes < most)


def dropout_(rows: Tensor, share: float) -> None:
    """Set a share of the elements of contiguous rows to 0, in place, and leave the rest as they are; CPU."""
    chunks = rows.view(-1).split(CHUNK)
    for chunk, stays in zip(chunks, keep_masks(rows.numel(), share), strict=True):
        chunk.mul_(as_factors(stays, chunk))


def as_factors(stays: Tensor, like: Tensor) -> Tensor:
    """Return 1 and 0 for True and False; PyTorch multiplies by them faster than by bool."""
    return stays.view(torch.int8).to(like.dtype)


class _ByteMaskDropout(Function):  # type: ignore[misc]   # torch is untyped to mypy here
    @staticmethod
    def forward(context: Any, rows: Tensor, share: float) -> Tensor:
        mask = torch.cat(list(keep_masks(rows.numel(), share))).view(rows.shape)
        context.save_for_backward(mask)
        context.scale = 1 / (1 - share)
        return as_factors(mask, rows).mul_(rows).mul_(context.scale)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = context.saved_tensors
        return as_factors(mask, gradient).mul_(gradient).mul_(context.scale), None


ROWS_A_BLOCK = 1024  # rows a block: 8 MB at F 2048, which the allocator keeps for the next one


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
        if use_cpu_kernels(rows) and len(rows):
            return _BlockwiseFeedForward.apply(rows, wide.weight, wide.bias, narrow.weight, narrow.bias, share)
        return narrow(F.dropout(F.relu(wide(rows)), share))


class _BlockwiseFeedForward(Function):  # type: ignore[misc]
    """What is kept is scaled by the first layer's weights, which are fewer than what it makes of the rows."""

    @staticmethod
    def forward(
        context: Any, rows: Tensor, wide: Tensor, wide_bias: Tensor, narrow: Tensor, narrow_bias: Tensor, share: float
    ) -> Tensor:
        scale = context.scale = 1 / (1 - share)
        learns = any(context.needs_input_grad)
        wide, wide_bias = (wide * scale, wide_bias * scale) if share else (wide, wide_bias)
        shown, out = [], rows.new_empty(len(rows), len(narrow))
        for block, into in zip(rows.split(ROWS_A_BLOCK), out.split(ROWS_A_BLOCK), strict=True):
            inner = linear_no_grad(block, wide, wide_bias, relu=True)  # (BLOCK, F)
            if share:
                dropout_(inner, share)
            into.copy_(linear_no_grad(inner, narrow, narrow_bias))
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
        blocks = zip(shown, *(whole.split(ROWS_A_BLOCK) for whole in (rows, gradient, to_rows)), strict=True)
        for inner, block, above, into in blocks:
            to_narrow += linear_no_grad(above.t(), inner.t(), None)
            below = linear_no_grad(above, narrow.t(), None)  # (BLOCK, F)
            torch.ops.aten.threshold_backward.grad_input(below, inner, 0, grad_input=below)
            to_wide += linear_no_grad(block.t(), below.t(), None)  # (D, F): faster than its transpose
            to_wide_bias += below.sum(0)
            into.copy_(linear_no_grad(below, wide.t(), None))
        to_wide = to_wide.mul_(scale).t().contiguous()
        return to_rows, to_wide, to_wide_bias.mul_(scale), to_narrow, gradient.sum(0), None
