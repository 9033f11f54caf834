"""Reading rows by taps, with gradients: the two products of deformable attention.

Linear interpolation commutes with the dot product. So a query meets sampled keys without a key being sampled: its
products with all positions are one dense product, from which two neighbours are read a point. And values are never
sampled either: every output is one weighted sum of the rows that its taps name (an embedding bag), and so is every
gradient of a table, over the taps in the order of the rows that they read.
Letters as in taps.py: B, N, M, H, K, D.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function

from stepline.procx.taps import Taps


def mix(value: Tensor, weight: Tensor, taps: Taps) -> Tensor:
    """Return values (B, M, H, D) at each query's points, times weight (B, N, H, L P), summed: (B, N, H, D)."""
    each = torch.cat((weight * taps.left, weight * taps.right), dim=3)  # (B, N, H, K)
    mixed: Tensor = _Mix.apply(value.contiguous(), each, taps.position, taps.row, taps.reader, taps.order, taps.start)
    return mixed


def products(query: Tensor, key: Tensor, taps: Taps) -> Tensor:
    """Return the products of queries (B, N, H, D) with keys (B, M, H, D) at their points, (B, N, H, L P).

    In the dtype of the taps' shares.
    """
    query, key = query.contiguous(), key.contiguous()
    found = _Products.apply(query, key, taps.position, taps.row, taps.reader, taps.order, taps.start)
    left, right = found.to(taps.left.dtype).chunk(2, dim=3)
    read: Tensor = left * taps.left + right * taps.right
    return read


class _Mix(Function):  # type: ignore[misc]   # torch is untyped to mypy here
    @staticmethod
    def forward(context: Any, table: Tensor, weight: Tensor, *taps: Tensor) -> Tensor:
        context.save_for_backward(table, weight, *taps)
        _, row, *_ = taps
        return _mixed(table, weight, row)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        table, weight, position, _, reader, order, start = context.saved_tensors
        gradient = gradient.contiguous()
        wanted = context.needs_input_grad
        to_table = _spread(gradient, weight, table, reader, order, start) if wanted[0] else None
        to_weight = _products(gradient, table, position).to(weight.dtype) if wanted[1] else None
        return to_table, to_weight, None, None, None, None, None


class _Products(Function):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, query: Tensor, table: Tensor, *taps: Tensor) -> Tensor:
        context.save_for_backward(query, table, *taps)
        position, *_ = taps
        return _products(query, table, position)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, table, _, row, reader, order, start = context.saved_tensors
        gradient = gradient.contiguous()
        wanted = context.needs_input_grad
        to_query = _mixed(table, gradient, row) if wanted[0] else None
        to_table = _spread(query, gradient, table, reader, order, start) if wanted[1] else None
        return to_query, to_table, None, None, None, None, None


def _mixed(table: Tensor, weight: Tensor, row: Tensor) -> Tensor:
    """Return the table's rows of these numbers (B, N, H, K), times weight (B, N, H, K), summed: (B, N, H, D)."""
    flat = table.view(-1, table.shape[-1])  # (B M H, D)
    shares = weight.to(table.dtype).view(-1, weight.shape[-1])  # (B N H, K)
    bags = F.embedding_bag(row.view(-1, row.shape[-1]), flat, mode="sum", per_sample_weights=shares)
    return bags.view(*row.shape[:3], table.shape[-1])


def _spread(query: Tensor, weight: Tensor, table: Tensor, reader: Tensor, order: Tensor, start: Tensor) -> Tensor:
    """Return for each row of the table the queries (B, N, H, D) that read it, times their weight, summed.

    Of the table's shape: the transpose of `_mixed`.
    """
    flat = query.view(-1, query.shape[-1])  # (B N H, D)
    shares = weight.view(-1).index_select(0, order).to(query.dtype)  # (B N H K,)
    return F.embedding_bag(reader, flat, start, mode="sum", per_sample_weights=shares).view_as(table)


def _products(query: Tensor, table: Tensor, position: Tensor) -> Tensor:
    """Return the products of queries with the table's rows at positions, (B, N, H, K), read from dense ones.

    On a CPU a head at a time, whose dense products stay in the cache.
    """
    videos, count, heads, taps = position.shape
    places = table.shape[1]
    line = torch.arange(0, count * places, places, dtype=torch.int32, device=position.device)[:, None]  # (N, 1)
    cells = (position.transpose(1, 2) + line).flatten(2)  # (B, H, N K), of a dense (N, M)
    if query.device.type != "cpu" or torch.compiler.is_compiling():
        dense = torch.einsum("bnhd,bmhd->bhnm", query, table).flatten(2)  # (B, H, N M)
        found = dense.gather(2, cells.long())
    else:
        found = query.new_empty(cells.shape)
        dense = query.new_empty(count, places)
        for video in range(videos):
            for head in range(heads):
                torch.mm(query[video, :, head], table[video, :, head].t(), out=dense)  # (N, M)
                torch.index_select(dense.view(-1), 0, cells[video, head], out=found[video, head])
    return found.view(videos, heads, count, taps).transpose(1, 2).contiguous()
