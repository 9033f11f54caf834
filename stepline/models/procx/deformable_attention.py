"""Multi-scale deformable attention over time, in plain PyTorch: ProcX section 5, equations 9 to 12.

Each query reads a few points of every temporal level, near a reference. Vanilla attention (equation
10, Deformable DETR) weighs the points by the query alone. Key-aware attention (equation 12,
Lite-DETR) weighs them by the keys at these points:

    output[b, n, h] = sum_p weight[b, n, h, p] value(location p),  value(x): linear between two
    neighbouring rows

Two functions with their own gradients compute it, because linear interpolation commutes with sums
and dot products. `gather_weighted_sum` sums the rows next to each point as an embedding bag, without
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
    """Table rows and interpolation weights for the sampling points of deformable attention. B
    videos, N queries, H heads, L levels, P points per level, M positions of all levels, K = 2 L P.

    Attributes:
        left_weight: (B, N, H, L P) interpolation weight of the row to the left of each point.
        right_weight: (B, N, H, L P) interpolation weight of the row to the right of each point.
        position: (B, N, H, K) int32 in [0, M): positions of all left rows, then of all right rows.
        row: (B, N, H, K) int32: the same rows as indices into the flattened table (B, M, H).
        query_row: row of the query in the flattened table (B, N, H), for each entry of
            `entry_order`. Empty without gradients.
        entry_order: indices into the flattened `row` that sort its entries by table row. Empty
            without gradients.
        row_start: (B M H,) index in `entry_order` of the first entry of each table row. Empty
            without gradients.
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
        """The tensors `position`, `row`, `query_row`, `entry_order` and `row_start`, in the order
        in which the two autograd functions take them."""
        return (self.position, self.row, self.query_row, self.entry_order, self.row_start)


def sampling_points(locations: Tensor, lengths: Sequence[int], *, backward: bool) -> SamplingPoints:
    """Return the rows and weights that linear interpolation at the sampling locations uses.

    The T positions of a level have their centers at (0.5, 1.5, ...) / T. Values beyond the
    outermost centers fall to zero within one position, as in the CUDA kernels. An empty level is
    zero everywhere. A NaN location has NaN weights.

    Args:
        locations: (B, N, H, L, P) sampling locations. [0, 1] covers a level, locations outside are
            allowed.
        lengths: number of positions of each level.
        backward: whether the indices for gradients of the values are computed too.
    """
    heads = locations.shape[2]
    numbers = torch.tensor(lengths, dtype=locations.dtype, device=locations.device)  # (L,)
    # of every head, level and point: long rows broadcast fast, short ones slowly
    length = numbers[:, None].expand(locations.shape[2:]).flatten()  # (H L P,)
    position_in_level = locations.flatten(2) * length - 0.5  # (B, N, H L P)
    # the positions on both sides of each location, and their weights by its fraction between them
    floor = position_in_level.detach().floor()
    fraction = position_in_level - floor  # (B, N, H L P) in [0, 1)
    floor = floor.nan_to_num(0.0)
    below, below_exists = _clamp_position(floor, length)
    above, above_exists = _clamp_position(floor + 1, length)
    left_weight = ((1 - fraction) * below_exists).unflatten(2, (heads, -1))  # (B, N, H, L P)
    right_weight = (fraction * above_exists).unflatten(2, (heads, -1))

    position, row = _table_row_numbers(below, above, lengths, heads)
    entries = _entries_by_row(row, sum(lengths), backward=backward)
    return SamplingPoints(left_weight, right_weight, position, row, *entries)


def _clamp_position(position: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Return positions clamped to those of their level, and a mask that is 1 for positions that
    exist in the level and 0 for others. Both have the shape of `position`.

    The mask is computed by arithmetic, since comparisons take ten times as long on a CPU.

    Args:
        position: (B, N, H L P) whole numbers, which may be outside of the level.
        length: (H L P,) number of positions of the level of each point.
    """
    nearest = position.clamp(torch.zeros_like(length), (length - 1).clamp(min=0))
    is_equal = (1 - (position - nearest).abs()).clamp(min=0)
    return nearest, is_equal * (length > 0).to(length.dtype)


def _table_row_numbers(
    below: Tensor, above: Tensor, lengths: Sequence[int], heads: int
) -> tuple[Tensor, Tensor]:
    """Return the `position` and `row` tensors of `SamplingPoints`.

    Args:
        below: (B, N, H L P) position in the level to the left of each point.
        above: (B, N, H L P) position in the level to the right of each point.
        lengths: number of positions of each level.
        heads: H.
    """
    device = below.device
    # the first position of each level. An empty level at the end gets the last position
    total = sum(lengths)
    starts = [min(sum(lengths[:level]), total - 1) for level in range(len(lengths))]
    start = torch.tensor(starts, dtype=torch.int32, device=device)
    points = below.shape[2] // (heads * len(lengths))
    start = start.repeat_interleave(points).repeat(2)  # (K,)

    sides = [side.int().unflatten(2, (heads, -1)) for side in (below, above)]
    position = torch.cat(sides, dim=3) + start  # (B, N, H, K)
    video_first = _int_range(len(below), device)[:, None] * (total * heads)
    first = video_first + _int_range(heads, device)  # (B, H)
    return position, position * heads + first[:, None, :, None]


def _entries_by_row(row: Tensor, total: int, *, backward: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return query_row, entry_order and row_start of `SamplingPoints`.

    Args:
        row: (B, N, H, K) table rows of `SamplingPoints`.
        total: M, number of positions of all levels.
        backward: whether they are needed for gradients. False: empty tensors.
    """
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


def gather_weighted_sum(value: Tensor, weight: Tensor, points: SamplingPoints) -> Tensor:
    """Return the weighted sum of interpolated values at each query's sampling points, (B, N, H, D).

    output[b, n, h] = sum_k w[b, n, h, k] value[b, position[b, n, h, k], h]. The sum is over the K =
    2 L P rows to the left and right of the L P sampling points. w is the attention weight of the
    point times the interpolation weight of that row.

    Args:
        value: (B, M, H, D) values of M positions and H heads.
        weight: (B, N, H, L P) attention weight of each point.
        points: sampling points of the N queries.
    """
    sides = (weight * points.left_weight, weight * points.right_weight)
    both = torch.cat(sides, dim=3)  # (B, N, H, K)
    total: Tensor = _WeightedGather.apply(value.contiguous(), both, *points.index_tensors)
    return total  # (B, N, H, D)


def gather_dot_products(query: Tensor, key: Tensor, points: SamplingPoints) -> Tensor:
    """Return the dot products of queries with the interpolated keys at their sampling points, (B,
    N, H, L P), in the dtype of the interpolation weights.

    Args:
        query: (B, N, H, D) queries of H heads.
        key: (B, M, H, D) keys of M positions.
        points: sampling points of the N queries.
    """
    products = _GatherDotProducts.apply(query.contiguous(), key.contiguous(), *points.index_tensors)
    products = products.to(points.left_weight.dtype)  # (B, N, H, K)
    on_left, on_right = products.chunk(2, dim=3)  # (B, N, H, L P) each
    between: Tensor = on_left * points.left_weight + on_right * points.right_weight
    return between


class _WeightedGather(Function):  # type: ignore[misc]   # torch is untyped to mypy here
    """`gather_weighted_sum` with its gradients."""

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
    """Return the weighted sum of table rows of each query, (B, N, H, D).

    Args:
        table: (B, M, H, D) values.
        weight: (B, N, H, K) weight of each row.
        row: (B, N, H, K) index of each row in the flattened table.
    """
    width = table.shape[-1]
    flat = table.view(-1, width)  # (B M H, D)
    weights = weight.to(table.dtype).view(-1, weight.shape[-1])  # (B N H, K)
    bags = F.embedding_bag(row.view(weights.shape), flat, mode="sum", per_sample_weights=weights)
    return bags.view(*row.shape[:3], width)


def _scatter_sum(
    query: Tensor,
    weight: Tensor,
    table: Tensor,
    query_row: Tensor,
    entry_order: Tensor,
    start: Tensor,
) -> Tensor:
    """Return for each table row the weighted sum of the queries that sample it, (B, M, H, D). This
    is the transpose of `_gather_sum`.

    Args:
        query: (B, N, H, D) queries.
        weight: (B, N, H, K) weight of each row that a query samples.
        table: a tensor in the shape of the result.
        query_row: see `SamplingPoints`.
        entry_order: see `SamplingPoints`.
        start: `row_start` of `SamplingPoints`.
    """
    flat = query.view(-1, query.shape[-1])  # (B N H, D)
    weights = weight.view(-1).index_select(0, entry_order).to(query.dtype)  # (B N H K,)
    bags = F.embedding_bag(query_row, flat, start, mode="sum", per_sample_weights=weights)
    return bags.view_as(table)


def _gather_products(query: Tensor, table: Tensor, position: Tensor) -> Tensor:
    """Return the dot products (B, N, H, K) of queries with table rows, taken from the dense product
    of all queries and rows.

    On a CPU one head is computed at a time, so that its dense product fits into the cache.

    Args:
        query: (B, N, H, D) queries.
        table: (B, M, H, D) keys or values.
        position: (B, N, H, K) position of each row that a query samples.
    """
    # the cells (B, H, N K) of a dense (N, M) table of products
    videos, count, heads, reads = position.shape
    positions = table.shape[1]
    row_offset = _int_range(count, position.device)[:, None] * positions  # (N, 1)
    cells = (position.transpose(1, 2) + row_offset).flatten(2)
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
    """Return the weighted sum of values sampled at locations, (B, N, H, D), in the dtype of the
    values.

    Args:
        value: (B, M, H, D) values of M positions and H heads.
        locations: (B, N, H, L, P) sampling locations. [0, 1] covers a level, locations outside are
            allowed.
        weights: (B, N, H, L, P) attention weights of P points on each of L levels.
        lengths: number of positions of each level. They sum to M. A level may be empty.

    Source: equations 9 and 10. The result equals that of `grid_sample` with align_corners=False.
    """
    points = _build_points(locations, lengths, value)
    by_point = weights.flatten(3).to(points.left_weight.dtype)
    return gather_weighted_sum(value, by_point, points)


def key_aware_attention(
    query: Tensor, key: Tensor, value: Tensor, locations: Tensor, lengths: Sequence[int]
) -> Tensor:
    """Return the sum of values sampled at locations, weighted by the keys sampled there, (B, N, H,
    D).

    The weights are the softmax of query times key / sqrt(D) over all L P points of a query and
    head. A point in padding has a zero key and a zero value, and is included in the softmax.

    Args:
        query: (B, N, H, D) N queries of H heads.
        key: (B, M, H, D) keys of M positions.
        value: (B, M, H, D) values of M positions.
        locations: (B, N, H, L, P) sampling locations. [0, 1] covers a level, locations outside are
            allowed.
        lengths: number of positions of each of the L levels. They sum to M.

    Source: equations 11 and 12, with the scaling of the paper's text and of Lite-DETR.
    """
    points = _build_points(locations, lengths, key, value)
    products = gather_dot_products(query, key, points)
    logits = products / math.sqrt(value.shape[-1])  # (B, N, H, L P)
    return gather_weighted_sum(value, logits.softmax(dim=-1), points)


class DeformableAttention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Deformable attention layer, vanilla or key-aware by its settings.

    Vanilla attention is PDVC's. Key-aware attention replaces learned weights by query and key
    projections, as in Lite-DETR. Initial offsets are PDVC's: on both sides of the reference,
    farther with every point.

    settings: sizes and form of the attention.
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
        """Set the initial weights of Deformable DETR."""
        for name, layer in self.named_children():
            nn.init.zeros_(layer.bias)
            if name in ("offsets", "weights"):
                nn.init.zeros_(layer.weight)
            else:
                nn.init.xavier_uniform_(layer.weight)

        # the axis of time of directions on a square: the larger of cosine and sine is 1
        heads = self.settings.heads
        points = self.settings.points
        angles = torch.arange(heads) * (2 * math.pi / heads)  # (H,)
        cosine = angles.cos()
        side = cosine / torch.maximum(cosine.abs(), angles.sin().abs())  # (H,)
        spread = side[:, None, None] * torch.arange(1, points + 1)  # (H, 1, P)
        with torch.no_grad():
            self.offsets.bias.copy_(spread.expand(heads, self.settings.levels, points).flatten())

    def forward(
        self,
        query: Tensor,
        references: Tensor,
        memory: Tensor,
        lengths: Sequence[int],
        memory_pad: Tensor | None = None,
    ) -> Tensor:
        """Return the attention output of N queries, (B, N, C).

        Args:
            query: (B, N, C) queries.
            references: (B, N, L, 1) reference points, or (B, N, L, 2) boxes (center, length), as
                fractions of each of L levels.
            memory: (B, M, C) rows of all levels, concatenated.
            lengths: number of positions of each level. They sum to M.
            memory_pad: (B, M), True on padding, whose values are zero. None: no padding.
        """
        locations = self.locations(query, references, lengths)
        value = self._split_heads(self.value(memory), memory_pad)
        if self.settings.form == "key-aware":
            key = self._split_heads(self.key(memory), memory_pad)
            by_head = self._split_heads(self.query(query))  # (B, N, H, D)
            attended = key_aware_attention(by_head, key, value, locations, lengths)
        else:
            logits = self._split_heads(self.weights(query).to(locations.dtype))  # (B, N, H, L P)
            weights = logits.softmax(dim=-1).view_as(locations)
            attended = deformable_attention(value, locations, weights, lengths)
        return self.out(attended.flatten(2))

    def locations(self, query: Tensor, references: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the sampling locations of each query, (B, N, H, L, P), by equation 9. [0, 1]
        covers a level, locations outside are possible.

        For a reference point, an offset of 1 is one position of the level. For a box, it is 1 / P
        of half the box's length.

        Args:
            query: (B, N, C) queries.
            references: (B, N, L, 1) reference points, or (B, N, L, 2) boxes (center, length), as
                fractions of each level.
            lengths: number of positions of each level.
        """
        levels = self.settings.levels
        points = self.settings.points
        references = _as_float32(references)[:, :, None, :, :, None]  # (B, N, 1, L, 1 or 2, 1)
        offsets = self.offsets(query).to(references.dtype)
        offsets = offsets.unflatten(-1, (-1, levels, points))  # (B, N, H, L, P)
        if references.shape[4] == 2:
            unit = references[..., 1, :] * (0.5 / points)
        else:
            length = torch.tensor(lengths, dtype=references.dtype, device=references.device)
            unit = 1 / length.clamp(min=1)[:, None]  # (L, 1)
        return references[..., 0, :] + offsets * unit

    def _split_heads(self, rows: Tensor, pad: Tensor | None = None) -> Tensor:
        if pad is not None:
            rows = rows.masked_fill(pad[..., None], 0.0)
        return rows.unflatten(-1, (self.settings.heads, -1))


def _as_float32(positions: Tensor) -> Tensor:
    """Return sampling positions of any shape as float32, or unchanged if they are float64. Half
    precision would round them to tenths of a row."""
    return positions if positions.dtype == torch.float64 else positions.float()


def _build_points(locations: Tensor, lengths: Sequence[int], *tables: Tensor) -> SamplingPoints:
    """Return the sampling points of locations. Indices for gradients are computed only if one of
    `tables` needs a gradient.

    Args:
        locations: (B, N, H, L, P) sampling locations.
        lengths: number of positions of each level.
        tables: keys and values that are sampled.
    """
    backward = torch.is_grad_enabled() and any(table.requires_grad for table in tables)
    return sampling_points(_as_float32(locations), lengths, backward=backward)
