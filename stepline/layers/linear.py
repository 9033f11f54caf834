"""A linear layer, by the faster of the two libraries that PyTorch on a CPU holds.

PyTorch multiplies float32 on a CPU by MKL, which adds a bias in a pass of its own, and knows AMD's processors less
well than oneDNN, whose product is 8 to 15 % faster there and adds it on the way. Both are float32 throughout; they
differ by rounding. What is small, or on another device, or under autocast, goes PyTorch's own way.
Letters: N rows, C width in, F width out.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

LARGE = 2**27  # multiplications from which it pays: oneDNN takes 0.3 ms to prepare for a shape that it has not met
Product: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Linear(nn.Linear):  # type: ignore[misc]   # torch is untyped to mypy here
    """nn.Linear by `affine`."""

    def forward(self, rows: Tensor) -> Tensor:
        """Return (..., F) for rows (..., C)."""
        return affine(rows, self.weight, self.bias)


def affine(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return rows (..., C) times weight (F, C) transposed, plus bias (F): (..., F)."""
    if not own(rows) or rows.shape[:-1].numel() * weight.numel() < LARGE:
        return F.linear(rows, weight, bias)
    flat = rows.reshape(-1, rows.shape[-1])  # (N, C)
    return _Affine.apply(flat, weight, bias).view(*rows.shape[:-1], len(weight))


def own(rows: Tensor) -> bool:
    """Return whether rows are of a kind that goes the project's own way: float32 on a CPU, no autocast, no compiler."""
    if torch.compiler.is_compiling():  # which fuses better than any of it
        return False
    return rows.device.type == "cpu" and rows.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


def product(rows: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
    """Return `affine` of rows (N, C), or its positive part, without a gradient."""
    if ONEDNN is not None and len(rows) * weight.numel() >= LARGE:
        return ONEDNN(rows, weight, bias, "relu" if relu else "none", [], "")
    out = F.linear(rows, weight, bias)
    return out.relu_() if relu else out


def _onednn() -> Any:
    """Return oneDNN's linear layer as PyTorch's compiler calls it; None in a build without it."""
    found = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return torch.ops.mkldnn._linear_pointwise if found else None


ONEDNN = _onednn()


class _Affine(Function):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        context.save_for_backward(rows, weight)
        return product(rows, weight, bias)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        rows, weight = context.saved_tensors
        gradient = gradient.contiguous()
        to_rows = product(gradient, weight.t(), None) if context.needs_input_grad[0] else None  # (N, C)
        return to_rows, gradient.t() @ rows, gradient.sum(0)
