"""Multi-scale deformable attention over time, in plain PyTorch: ProcX section 5, equations 9 to 12.

Each query reads a few points of every temporal level, near a reference. Vanilla attention (equation
10, Deformable DETR) weighs the points by the query alone. Key-aware attention (equation 12,
Lite-DETR) weighs them by the keys at these points:

    output[b, n, h] = sum_p weight[b, n, h, p] value(location p),  value(x): linear between two
    neighbouring rows

Two functions with their own gradients compute it, because linear interpolation commutes with sums
and dot products. `weighted_gather` sums the rows next to each point as an embedding bag, without
sampling a value. Gradients of a table are embedding bags too, over the points in the order of the
rows that they read. `gather_dot_products` reads the products of queries and sampled keys from one
dense product. Letters: B videos, N queries, M positions of all levels one after the other, H heads,
L levels, P points per level, D width of a head, C width. A query and head read K = 2 L P rows: those
on the left of their points, then those on the right. A table is (B, M, H, D), and its row of
(b, m, h) has the number (b M + m) H + h.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function

from stepline.models.procx.settings import AttentionSettings
from stepline.models.training.layers import Linear


@dataclass(frozen=True)
class SamplingPoints:
    """The two neighbouring rows that every query and head reads at each point, and their weights.

    Attributes:
        left_weight: (B, N, H, L P) weight of the row on the left of each point. Gradients
            reach the locations through both weights.
        right_weight: (B, N, H, L P) weight of the row on the right.
        position: (B, N, H, K) int32 in [0, M), lefts then rights.
        row: (B, N, H, K) int32, the same as numbers of table rows.
        query_row: row of a table (B, N, H, D) of queries that each sorted entry belongs to.
        entry_order: entries of the flat `row`, sorted by the table row that they read.
        row_start: first entry of each table row in `entry_order`. The last three are empty
            where no gradient is wanted.
    """

    left_weight: Tensor
    right_weight: Tensor
    position: Tensor
    row: Tensor
    query_row: Tensor
    entry_order: Tensor
    row_start: Tensor

    @property
    def index_tensors(self) -> tuple[Tensor, ...]:
        """The row numbers, in the order that `_WeightedGather` and `_GatherDotProducts` take
        them."""
        return (self.position, self.row, self.query_row, self.entry_order, self.row_start)


def sampling_points(locations: Tensor, lengths: Sequence[int], *, backward: bool) -> SamplingPoints:
    """Return the rows and weights that locations read.

    A level of T positions has their centres at (0.5, 1.5, ...) / T and is linear between two.
    One position beyond the outermost is zero, as in the CUDA kernels. An empty level is zero
    everywhere. A location that is NaN has NaN for weights.

    Args:
        locations: (B, N, H, L, P), in [0, 1] of each level or outside.
        lengths: positions of each level.
        backward: whether gradients of a table are wanted.
    """
    heads = locations.shape[2]
    numbers = torch.tensor(lengths, dtype=locations.dtype, device=locations.device)  # (L,)
    # of every head, level and point: long rows broadcast fast, short ones slowly
    length = numbers[:, None].expand(locations.shape[2:])
    length = length.flatten()  # (H L P,)
    position_in_level = locations.flatten(2) * length
    position_in_level = position_in_level - 0.5  # (B, N, H L P), in positions of its level
    # the positions on both sides of each location, and their weights by its fraction between them
    floor = position_in_level.detach().floor()
    fraction = position_in_level - floor  # (B, N, H L P) in [0, 1)
    floor = floor.nan_to_num(0.0)
    below, below_exists = _clamp_position(floor, length)
    above, above_exists = _clamp_position(floor + 1, length)
    left_weight = (1 - fraction) * below_exists
    right_weight = fraction * above_exists
    left_weight = left_weight.unflatten(2, (heads, -1))  # (B, N, H, L P)
    right_weight = right_weight.unflatten(2, (heads, -1))

    position, row = _table_row_numbers(below, above, lengths, heads)
    entries = _entries_by_row(row, sum(lengths), backward=backward)
    return SamplingPoints(left_weight, right_weight, position, row, *entries)


def _clamp_position(position: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Return whole numbers clamped to the positions of a level, and 1 where clamping changed
    nothing, else 0.

    In arithmetic, which on a CPU takes a tenth of the time of comparing.
    """
    nearest = position.clamp(torch.zeros_like(length), (length - 1).clamp(min=0))
    is_equal = (1 - (position - nearest).abs()).clamp(min=0)
    return nearest, is_equal * (length > 0).to(length.dtype)


def _table_row_numbers(
    below: Tensor, above: Tensor, lengths: Sequence[int], heads: int
) -> tuple[Tensor, Tensor]:
    """Return positions in the table and numbers of table rows, both (B, N, H, K) int32, of the
    positions below and above each point (B, N, H L P) in their levels."""
    device = below.device

    # where each level begins. An empty one at the end needs some row
    total = sum(lengths)
    starts = [min(sum(lengths[:level]), total - 1) for level in range(len(lengths))]
    start = torch.tensor(starts, dtype=torch.int32, device=device)
    points = below.shape[2] // (heads * len(lengths))
    start = start.repeat_interleave(points).repeat(2)  # (K,)

    below_by_head = below.int().unflatten(2, (heads, -1))
    above_by_head = above.int().unflatten(2, (heads, -1))
    both = torch.cat((below_by_head, above_by_head), dim=3)
    position = both + start  # (B, N, H, K)
    video_first = _int_range(len(below), device)[:, None] * (total * heads)
    first = video_first + _int_range(heads, device)  # (B, H)
    return position, position * heads + first[:, None, :, None]


def _entries_by_row(row: Tensor, total: int, *, backward: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return query_row, entry_order and row_start of `SamplingPoints`, all (0,) unless
    `backward`."""
    if not backward:
        nothing = row.new_empty(0)
        return nothing, nothing, nothing
    videos, _, heads, count = row.shape
    ordered, entry_order = row.flatten().sort(stable=True)
    rows = _int_range(videos * total * heads, row.device)
    start = torch.searchsorted(ordered, rows, out_int32=True)
    return torch.div(entry_order, count, rounding_mode="floor").int(), entry_order, start


def _int_range(end: int, device: torch.device) -> Tensor:
    return torch.arange(end, dtype=torch.int32, device=device)


def weighted_gather(value: Tensor, weight: Tensor, points: SamplingPoints) -> Tensor:
    """Return the weighted sum of the values at each query's points, (B, N, H, D).

    output[b, n, h] = sum_k w[b, n, h, k] value[b, position[b, n, h, k], h], where w is the
    weight of the point times that of the side.

    Args:
        value: (B, M, H, D).
        weight: (B, N, H, L P) of each point.
        points: that each query reads.
    """
    on_left = weight * points.left_weight
    on_right = weight * points.right_weight
    both = torch.cat((on_left, on_right), dim=3)  # (B, N, H, K)
    total: Tensor = _WeightedGather.apply(value.contiguous(), both, *points.index_tensors)
    return total  # (B, N, H, D)


def gather_dot_products(query: Tensor, key: Tensor, points: SamplingPoints) -> Tensor:
    """Return the dot products of queries with the keys at their points, (B, N, H, L P).

    output[b, n, h, p] = query[b, n, h] . key(location p): the products with the rows on the
    left and the right of the point, each times that side's weight. In the dtype of these
    weights.

    Args:
        query: (B, N, H, D).
        key: (B, M, H, D).
        points: that each query reads.
    """
    products = _GatherDotProducts.apply(query.contiguous(), key.contiguous(), *points.index_tensors)
    products = products.to(points.left_weight.dtype)  # (B, N, H, K)
    on_left, on_right = products.chunk(2, dim=3)  # (B, N, H, L P) each
    between: Tensor = on_left * points.left_weight + on_right * points.right_weight
    return between


class _WeightedGather(Function):  # type: ignore[misc]   # torch is untyped to mypy here
    """`weighted_gather` with its gradients."""

    @staticmethod
    def forward(context: Any, table: Tensor, weight: Tensor, *points: Tensor) -> Tensor:
        context.save_for_backward(table, weight, *points)
        return _gather_sum(table, weight, points[1])

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        table, weight, position, _, *entries = context.saved_tensors
        gradient = gradient.contiguous()
        table_gradient = None
        weight_gradient = None
        if context.needs_input_grad[0]:
            table_gradient = _scatter_sum(gradient, weight, table, *entries)
        if context.needs_input_grad[1]:
            weight_gradient = _gather_products(gradient, table, position).to(weight.dtype)
        return table_gradient, weight_gradient, None, None, None, None, None


class _GatherDotProducts(Function):  # type: ignore[misc]
    """`gather_dot_products` with its gradients."""

    @staticmethod
    def forward(context: Any, query: Tensor, table: Tensor, *points: Tensor) -> Tensor:
        context.save_for_backward(query, table, *points)
        return _gather_products(query, table, points[0])

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, table, _, row, *entries = context.saved_tensors
        gradient = gradient.contiguous()
        query_gradient = None
        table_gradient = None
        if context.needs_input_grad[0]:
            query_gradient = _gather_sum(table, gradient, row)
        if context.needs_input_grad[1]:
            table_gradient = _scatter_sum(query, gradient, table, *entries)
        return query_gradient, table_gradient, None, None, None, None, None


def _gather_sum(table: Tensor, weight: Tensor, row: Tensor) -> Tensor:
    """Return the weighted sum of table rows: rows of these numbers (B, N, H, K), times weight (B,
    N, H, K): (B, N, H, D)."""
    width = table.shape[-1]
    flat = table.view(-1, width)  # (B M H, D)
    reads = weight.shape[-1]
    weights = weight.to(table.dtype)
    weights = weights.view(-1, reads)  # (B N H, K)
    rows = row.view(weights.shape)
    bags = F.embedding_bag(rows, flat, mode="sum", per_sample_weights=weights)
    return bags.view(*row.shape[:3], width)


def _scatter_sum(
    query: Tensor,
    weight: Tensor,
    table: Tensor,
    query_row: Tensor,
    entry_order: Tensor,
    start: Tensor,
) -> Tensor:
    """Return for each table row the sum of the queries (B, N, H, D) that read it, times their
    weight. It is the transpose of `_gather_sum`, of the table's shape."""
    flat = query.view(-1, query.shape[-1])  # (B N H, D)
    by_reader = weight.view(-1).index_select(0, entry_order)
    weights = by_reader.to(query.dtype)  # (B N H K,)
    bags = F.embedding_bag(query_row, flat, start, mode="sum", per_sample_weights=weights)
    return bags.view_as(table)


def _gather_products(query: Tensor, table: Tensor, position: Tensor) -> Tensor:
    """Return the dot products of queries with the table's rows at positions, (B, N, H, K), read
    from dense products. On a CPU head by head, so that the dense products of a head stay in
    the cache."""
    # the cells (B, H, N K) of a dense (N, M) table of products
    videos, count, heads, reads = position.shape
    positions = table.shape[1]
    numbers = _int_range(count, position.device)
    row_offset = numbers[:, None] * positions  # (N, 1)
    cells = position.transpose(1, 2) + row_offset
    cells = cells.flatten(2)

    if query.device.type != "cpu" or torch.compiler.is_compiling():
        dense = torch.einsum("bnhd,bmhd->bhnm", query, table)
        products = dense.flatten(2).gather(2, cells.long())
    else:
        products = query.new_empty(cells.shape)
        dense = query.new_empty(count, positions)
        for video in range(videos):
            for head in range(heads):
                keys = table[video, :, head]
                torch.mm(query[video, :, head], keys.t(), out=dense)  # (N, M)
                out = products[video, head]
                torch.index_select(dense.view(-1), 0, cells[video, head], out=out)
    return products.view(videos, heads, count, reads).transpose(1, 2).contiguous()


def deformable_attention(
    value: Tensor, locations: Tensor, weights: Tensor, lengths: Sequence[int]
) -> Tensor:
    """Return the weighted sum of values read at locations, (B, N, H, D), in the values' dtype.

    Args:
        value: (B, M, H, D).
        locations: (B, N, H, L, P), in [0, 1] of their level or outside, as `sampling_points`
            reads them.
        weights: (B, N, H, L, P).
        lengths: positions of each level, M in all. A level may be empty.

    Source: equations 9 and 10, the sum. It equals `grid_sample` with align_corners=False.
    """
    points = _build_points(locations, lengths, value)
    by_point = weights.flatten(3).to(points.left_weight.dtype)
    return weighted_gather(value, by_point, points)


def key_aware_attention(
    query: Tensor, key: Tensor, value: Tensor, locations: Tensor, lengths: Sequence[int]
) -> Tensor:
    """Return the sum of values read at locations, weighted by the keys read there: (B, N, H, D).

    The weights are the softmax of query times key / sqrt(D) over all L P points of a query and
    head. A point in padding has a zero key and a zero value, and takes part in the softmax.

    Args:
        query: (B, N, H, D).
        key: (B, M, H, D).
        value: (B, M, H, D).
        locations: (B, N, H, L, P).
        lengths: positions of each level, M in all.

    Source: equations 11 and 12, with the scaling that the text of the paper and Lite-DETR
    have.
    """
    width = value.shape[-1]
    points = _build_points(locations, lengths, key, value)
    products = gather_dot_products(query, key, points)
    logits = products / math.sqrt(width)  # (B, N, H, L P)
    return weighted_gather(value, logits.softmax(dim=-1), points)


class DeformableAttention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """A deformable attention layer: projections, points near references, and one of the two
    attentions.

    Vanilla attention is that of PDVC. Key-aware attention has Lite-DETR's query and key
    projections instead of learned weights. Offsets begin as in PDVC: to both sides of the
    reference, farther with every point.
    """

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__()
        self.settings = settings
        width = settings.width
        count = settings.heads * settings.levels * settings.points
        self.offsets = Linear(width, count)
        self.value = Linear(width, width)
        self.out = Linear(width, width)
        if settings.form == "key-aware":
            self.query = Linear(width, width)
            self.key = Linear(width, width)
        else:
            self.weights = Linear(width, count)
        self._initialise()

    def _initialise(self) -> None:
        """Set weights as Deformable DETR does."""
        for name, layer in self.named_children():
            nn.init.zeros_(layer.bias)
            if name in ("offsets", "weights"):
                nn.init.zeros_(layer.weight)
            else:
                nn.init.xavier_uniform_(layer.weight)

        # the axis of time of directions on a square: the larger of cosine and sine is 1
        heads = self.settings.heads
        points = self.settings.points
        turn = 2 * math.pi / heads
        angles = torch.arange(heads) * turn  # (H,)
        cosine = angles.cos()
        sine = angles.sin()
        side = cosine / torch.maximum(cosine.abs(), sine.abs())  # (H,)
        numbers = torch.arange(1, points + 1)
        spread = side[:, None, None] * numbers  # (H, 1, P)
        spread = spread.expand(heads, self.settings.levels, points)
        with torch.no_grad():
            self.offsets.bias.copy_(spread.flatten())

    def forward(
        self,
        query: Tensor,
        references: Tensor,
        memory: Tensor,
        lengths: Sequence[int],
        memory_pad: Tensor | None = None,
    ) -> Tensor:
        """Return queries attended to memory, (B, N, C).

        Args:
            query: (B, N, C).
            references: (B, N, L, 1) points, or (B, N, L, 2) boxes (centre, length), in [0, 1]
                of each level.
            memory: (B, M, C), the levels one after the other.
            lengths: positions of each level.
            memory_pad: (B, M), True on padding, which is read as zeros.
        """
        locations = self.locations(query, references, lengths)
        value = self._split_heads(self.value(memory), memory_pad)
        if self.settings.form == "key-aware":
            key = self._split_heads(self.key(memory), memory_pad)
            by_head = self._split_heads(self.query(query))  # (B, N, H, D)
            attended = key_aware_attention(by_head, key, value, locations, lengths)
        else:
            logits = self.weights(query).to(locations.dtype)
            logits = self._split_heads(logits)  # (B, N, H, L P)
            weights = logits.softmax(dim=-1).view_as(locations)
            attended = deformable_attention(value, locations, weights, lengths)
        return self.out(attended.flatten(2))

    def locations(self, query: Tensor, references: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the locations that each query reads, (B, N, H, L, P) in [0, 1] of each level or
        outside: equation 9.

        An offset of 1 is one position of the level from a point, and 1 / P of half the length
        from a box.

        Args:
            query: (B, N, C).
            references: (B, N, L, 1) points, or (B, N, L, 2) boxes.
            lengths: positions of each level.
        """
        levels = self.settings.levels
        points = self.settings.points
        references = _as_float32(references)
        references = references[:, :, None, :, :, None]  # (B, N, 1, L, 1 or 2, 1)
        offsets = self.offsets(query).to(references.dtype)
        offsets = offsets.unflatten(-1, (-1, levels, points))  # (B, N, H, L, P)
        if references.shape[4] == 2:
            unit = references[..., 1, :] * (0.5 / points)
        else:
            length = torch.tensor(lengths, dtype=references.dtype, device=references.device)
            at_least_one = length.clamp(min=1)
            unit = 1 / at_least_one[:, None]  # (L, 1)
        return references[..., 0, :] + offsets * unit

    def _split_heads(self, rows: Tensor, pad: Tensor | None = None) -> Tensor:
        if pad is not None:
            rows = rows.masked_fill(pad[..., None], 0.0)
        return rows.unflatten(-1, (self.settings.heads, -1))


def _as_float32(positions: Tensor) -> Tensor:
    """Return positions in float32 at least, because half precision would round them to tenths of
    a row."""
    return positions if positions.dtype == torch.float64 else positions.float()


def _build_points(locations: Tensor, lengths: Sequence[int], *tables: Tensor) -> SamplingPoints:
    """Return the sampling points, with row numbers for the gradients of `tables` where these are
    trained."""
    is_trained = any(table.requires_grad for table in tables)
    backward = torch.is_grad_enabled() and is_trained
    return sampling_points(_as_float32(locations), lengths, backward=backward)
