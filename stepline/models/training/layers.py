"""Layers that several networks share, with fast kernels for CPUs.

linear       F.linear by oneDNN. PyTorch multiplies float32 on a CPU by MKL, which adds the bias in a second pass and
             is less tuned for AMD processors: oneDNN is 8-15 % faster there. Results differ by rounding.
dropout      F.dropout with one 64-bit random number for four elements and a mask of one byte per element. PyTorch
             draws one number per element and keeps the mask in float32.
FeedForward  narrow(dropout(relu(wide(rows)))), two thirds of a transformer's arithmetic, block by block: the wide
             tensor of a block stays in the cache, forward and backward, and never exists as a whole.
log_sum_exp_of_products
             logsumexp(rows columns^T + offset), block by block: the matrix of products never exists as a whole.

On other devices, under autocast or a compiler, and for other number types, PyTorch's own layers run
(`use_cpu_kernels`). Without the kernels, training on a CPU takes 1.4 to 1.56 times as long and 2.4
times the memory. tests/training/test_layers.py compares each kernel with PyTorch's layer, gradients
included. Letters: N rows, C input width, F output or inner width, D width.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

# multiplications from which it pays: oneDNN takes 0.3 ms to prepare for a shape that it has not met
MIN_ONEDNN_PRODUCTS = 2**27


class Linear(nn.Linear):  # type: ignore[misc]   # torch is untyped to mypy here
    """Linear layer like nn.Linear, with a faster product on CPUs."""

    def forward(self, rows: Tensor) -> Tensor:
        """Return the output rows (..., F) for input rows (..., C)."""
        return linear(rows, self.weight, self.bias)


def linear(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return rows times the transposed weight, plus the bias: (..., F). Fast on CPUs.

    Args:
        rows: (..., C) input rows.
        weight: (F, C) matrix of the layer.
        bias: (F,) vector of the layer.
    """
    if not use_cpu_kernels(rows):
        return F.linear(rows, weight, bias)
    # Few products do not pay for what oneDNN prepares.
    *outer, width = rows.shape
    if rows.shape[:-1].numel() * weight.numel() < MIN_ONEDNN_PRODUCTS:
        return F.linear(rows, weight, bias)
    flat = rows.reshape(-1, width)  # (N, C)
    return _LinearOneDnn.apply(flat, weight, bias).view(*outer, len(weight))


def use_cpu_kernels(rows: Tensor) -> bool:
    """Return whether the CPU kernels of this module can be used for a tensor of rows.

    They need float32 on a CPU, without autocast and without torch.compile.
    """
    if torch.compiler.is_compiling():  # which fuses better than any of it
        return False
    if rows.device.type != "cpu" or rows.dtype != torch.float32:
        return False
    return not torch.is_autocast_enabled("cpu")


def linear_no_grad(
    rows: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False
) -> Tensor:
    """Return the output (N, F) of a linear layer without recording gradients.

    Args:
        rows: (N, C) input rows.
        weight: (F, C) matrix of the layer.
        bias: (F,) vector of the layer. None: no bias.
        relu: whether ReLU is applied to the output.
    """
    if ONEDNN_LINEAR is not None and len(rows) * weight.numel() >= MIN_ONEDNN_PRODUCTS:
        activation = "relu" if relu else "none"
        return ONEDNN_LINEAR(rows, weight, bias, activation, [], "")
    out = F.linear(rows, weight, bias)
    return out.relu_() if relu else out


# oneDNN's linear layer as PyTorch's compiler calls it (None in a build without it)
ONEDNN_LINEAR: Any = None
if torch.backends.mkldnn.is_available():
    ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None)


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
        to_rows = None
        if context.needs_input_grad[0]:
            to_rows = linear_no_grad(gradient, weight.t(), None)  # (N, C)
        return to_rows, gradient.t() @ rows, gradient.sum(0)


LANES_PER_NUMBER = 4  # of 16 bits, one per element; a rate is thus met to 1 / 65536
MAX_SEED = 2**63 - 1
ELEMENTS_PER_CHUNK = 2**18  # that stay in the cache while they are drawn for


def dropout(rows: Tensor, rate: float, training: bool) -> Tensor:
    """Return rows with dropout: a random fraction of elements is 0, the others are scaled up.

    Args:
        rows: tensor of any shape.
        rate: fraction of the elements that are set to 0. The others are divided by 1 - rate.
        training: False returns the rows unchanged.
    """
    if not training or not rate or not rows.numel():
        return rows
    if rows.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(rows, rate)
    return _ByteMaskDropout.apply(rows, rate)


class Dropout(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Dropout layer, faster than nn.Dropout on CPUs. It changes rows in training only."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows of any shape, with dropout in training, else unchanged."""
        return dropout(rows, self.rate, self.training)


def draw_keep_masks(count: int, rate: float) -> Iterator[Tensor]:
    """Yield random dropout masks over `count` elements, in chunks of flat bool tensors on the CPU:
    True for an element that stays.

    The seed is drawn from torch's generator.

    Args:
        count: number of elements of all chunks together.
        rate: fraction of the elements that is dropped.
    """
    seed = torch.empty((), dtype=torch.int64).random_(MAX_SEED)
    generator = np.random.SFC64(int(seed))
    # Lanes are signed 16-bit numbers, so the limit counts from -32768.
    limit = round((1 - rate) * 65536) - 32768
    for start in range(0, count, ELEMENTS_PER_CHUNK):
        size = min(ELEMENTS_PER_CHUNK, count - start)
        # Whole 64-bit numbers. The last may have lanes to spare.
        numbers = generator.random_raw(-(-size // LANES_PER_NUMBER))
        lanes = numbers.view(np.int16)[:size]  # each even over [-32768, 32768)
        yield torch.from_numpy(lanes < limit)


def dropout_in_place(rows: Tensor, rate: float) -> None:
    """Set a fraction `rate` of the elements of contiguous CPU rows to 0, in place. The others are
    not scaled."""
    chunks = rows.view(-1).split(ELEMENTS_PER_CHUNK)
    masks = draw_keep_masks(rows.numel(), rate)
    for chunk, kept_mask in zip(chunks, masks, strict=True):
        chunk.mul_(mask_to_factors(kept_mask, chunk))


def mask_to_factors(kept_mask: Tensor, like: Tensor) -> Tensor:
    """Return a bool mask as numbers 1 (True) and 0 (False), in the dtype of another tensor.

    PyTorch multiplies by numbers faster than by bool.

    Args:
        kept_mask: bool mask, True for elements that dropout keeps.
        like: tensor that has the dtype of the result.
    """
    return kept_mask.view(torch.int8).to(like.dtype)


class _ByteMaskDropout(Function):  # type: ignore[misc]   # torch is untyped to mypy here
    @staticmethod
    def forward(context: Any, rows: Tensor, rate: float) -> Tensor:
        mask = torch.cat(list(draw_keep_masks(rows.numel(), rate))).view(rows.shape)
        context.save_for_backward(mask)
        context.scale = 1 / (1 - rate)
        return mask_to_factors(mask, rows).mul_(rows).mul_(context.scale)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = context.saved_tensors
        return mask_to_factors(mask, gradient).mul_(gradient).mul_(context.scale), None


ROWS_PER_BLOCK = 1024  # rows a block: 8 MB at F 2048, which the allocator keeps for the next one


class FeedForward(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Feed-forward block of a transformer: two linear layers with ReLU and dropout between."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.wide = Linear(width, inner)
        self.narrow = Linear(inner, width)
        self.dropout = dropout

    def forward(self, rows: Tensor) -> Tensor:
        """Return the output rows (N, D) of the block for input rows (N, D)."""
        rate = self.dropout if self.training else 0.0
        wide = self.wide
        narrow = self.narrow
        # In blocks that stay in the cache.
        if use_cpu_kernels(rows) and len(rows):
            return _BlockwiseFeedForward.apply(
                rows, wide.weight, wide.bias, narrow.weight, narrow.bias, rate
            )
        # The plain form, which the blocks equal.
        return narrow(F.dropout(F.relu(wide(rows)), rate))


class _BlockwiseFeedForward(Function):  # type: ignore[misc]
    """Feed-forward block with its gradient, computed for some rows at a time.

    The dropout scale 1 / (1 - rate) multiplies the first layer's weights. They are fewer than the
    layer's outputs.

    Its inputs are rows (N, D), the weights and biases of the wide layer (D to F) and of the narrow layer
    (F to D), and the dropout rate.
    """

    @staticmethod
    def forward(
        context: Any,
        rows: Tensor,
        wide_weight: Tensor,
        wide_bias: Tensor,
        narrow_weight: Tensor,
        narrow_bias: Tensor,
        rate: float,
    ) -> Tensor:
        # What is not dropped grows by 1 / (1 - rate), so that the mean stays.
        context.scale = 1 / (1 - rate)
        if rate:
            wide_weight = wide_weight * context.scale
            wide_bias = wide_bias * context.scale
        learns = any(context.needs_input_grad)
        hidden = []
        # Block by block, so that the hidden layer is never whole.
        out = rows.new_empty(len(rows), len(narrow_weight))
        blocks = rows.split(ROWS_PER_BLOCK)
        for block, target in zip(blocks, out.split(ROWS_PER_BLOCK), strict=True):
            inner = linear_no_grad(block, wide_weight, wide_bias, relu=True)  # (BLOCK, F)
            if rate:
                dropout_in_place(inner, rate)
            target.copy_(linear_no_grad(inner, narrow_weight, narrow_bias))
            if learns:
                hidden.append(inner)
        context.save_for_backward(
            rows, wide_weight, narrow_weight, *hidden
        )  # what is positive was not dropped
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # Gradients, summed over blocks. The order of the six is that of forward's arguments.
        rows, wide_weight, narrow_weight, *hidden = context.saved_tensors
        gradient = gradient.contiguous()
        rows_gradient = torch.empty_like(rows)
        wide_gradient = wide_weight.new_zeros(wide_weight.shape[::-1])
        narrow_gradient = torch.zeros_like(narrow_weight)
        wide_bias_gradient = wide_weight.new_zeros(len(wide_weight))
        blocks = rows.split(ROWS_PER_BLOCK)
        gradients = gradient.split(ROWS_PER_BLOCK)
        targets = rows_gradient.split(ROWS_PER_BLOCK)
        for inner, block, above, target in zip(hidden, blocks, gradients, targets, strict=True):
            narrow_gradient += linear_no_grad(above.t(), inner.t(), None)
            below = linear_no_grad(above, narrow_weight.t(), None)  # (BLOCK, F)
            # ReLU and dropout together: what either made 0 passes no gradient.
            torch.ops.aten.threshold_backward.grad_input(below, inner, 0, grad_input=below)
            # (D, F): faster than its transpose
            wide_gradient += linear_no_grad(block.t(), below.t(), None)
            wide_bias_gradient += below.sum(0)
            target.copy_(linear_no_grad(below, wide_weight.t(), None))
        # The scale was in the weights of the first layer, so it is in their gradients too.
        wide_gradient = wide_gradient.mul_(context.scale).t().contiguous()
        wide_bias_gradient = wide_bias_gradient.mul_(context.scale)
        return (
            rows_gradient,
            wide_gradient,
            wide_bias_gradient,
            narrow_gradient,
            gradient.sum(0),
            None,
        )


LOG_SUM_EXP_ROWS = 128  # rows whose products are in memory at a time: 5 MB for 9,600 columns


def log_sum_exp_of_products(
    rows: Tensor, columns: Tensor, offset: Tensor, *, floor: float
) -> Tensor:
    """Return log sum exp(rows columns^T + offset) over the F columns, (N,).

    Args:
        rows: (N, D) vectors.
        columns: (F, D) vectors. Each row is multiplied with each column.
        offset: (F,) number added to the products with each column. -inf leaves a column out.
        floor: finite lower bound of the results on the CPU kernels, so that a row whose offsets are
            all -inf has no gradient instead of NaN. The plain form returns -inf there.
    """
    if use_cpu_kernels(rows):
        return _BlockwiseLogSumExp.apply(rows, columns, offset, floor)
    # In float32, whatever autocast says.
    with torch.autocast(rows.device.type, enabled=False):
        return torch.addmm(offset, rows, columns.T).logsumexp(dim=1)


class _BlockwiseLogSumExp(Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        context: Any, rows: Tensor, columns: Tensor, offset: Tensor, floor: float
    ) -> Tensor:
        # The empty block is for no rows at all, which cannot be joined.
        blocks = [rows.new_zeros(0)]
        for block in rows.split(LOG_SUM_EXP_ROWS):
            blocks.append(torch.addmm(offset, block, columns.T).logsumexp(dim=1))
        sums = torch.cat(blocks).clamp_(min=floor)
        context.save_for_backward(rows, columns, offset, sums)
        return sums

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        rows, columns, offset, sums = context.saved_tensors
        to_rows = torch.zeros_like(rows)
        to_columns = torch.zeros_like(columns)
        parts = (whole.split(LOG_SUM_EXP_ROWS) for whole in (rows, sums, gradient, to_rows))
        for block, total, above, target in zip(*parts, strict=True):
            # Products are made again, so that they are never whole. Their softmax is the gradient.
            shares = torch.addmm(offset, block, columns.T)  # (N, F)
            shares.sub_(total[:, None]).exp_()
            shares.mul_(above[:, None])
            target.copy_(shares @ columns)
            to_columns.addmm_(shares.T, block)
        return to_rows, to_columns, None, None
