"""Multi-scale deformable attention over time, in plain PyTorch: ProcX section 5, equations 9 to 12.

Each query reads a few points of every temporal level, near a reference. Vanilla attention (equation
10, Deformable DETR) weighs them by the query alone. Key-aware attention (equation 12, Lite-DETR)
weighs them by the keys at these points:

    output[b, n, h] = sum_p weight[b, n, h, p] value(location p),  value(x): linear between two
    neighbouring rows

Two functions with hand-made gradients carry it, since linear interpolation commutes with sum and
dot product. `weighted_gather` sums the rows next to each point without sampling a value. It is an
embedding bag. So is every gradient of a table, over the points in the order of the rows that they
read. `gather_dot_products` reads the products of queries and sampled keys from one dense product.
Each has the formula that it equals in its docstring. Letters: B videos, N queries, M positions of
all levels one after the other, H heads, L levels. P points per level, D width of a head, C width.
K = 2 L P rows are read by a query and head: those on the left of its points, then those on the
right. A table is (B, M, H, D), and its row of (b, m, h) has the number (b M + m) H + h.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function

from stepline.errors import ShapeError
from stepline.models.procx.settings import AttentionSettings
from stepline.models.training.layers import Linear


@dataclass(frozen=True)
class SamplingPoints:
    """Where every query and head reads: two neighbouring rows per point, and the weight of each.

    left_weight, right_weight: (B, N, H, L P), of the rows on the left and on the right. Gradients
    reach the locations through them.
    position: (B, N, H, K) int32 in [0, M), lefts then rights.
    row: as numbers of table rows.
    reader, order, start: the same by the row that is read, for gradients of a table. Row r is read
    by the entries order[start[r]:start[r + 1]] of the flat `row`. They belong to the rows `reader`
    of a table (B, N, H, D) of queries. Empty where no gradient is wanted.
    """

    left_weight: Tensor
    right_weight: Tensor
    position: Tensor
    row: Tensor
    reader: Tensor
    order: Tensor
    start: Tensor

    @property
    def rows(self) -> tuple[Tensor, ...]:
        """Which rows are read, and by what, as `_WeightedGather` and `_GatherDotProducts` take
        it."""
        return (self.position, self.row, self.reader, self.order, self.start)


def sampling_points(locations: Tensor, lengths: Sequence[int], *, backward: bool) -> SamplingPoints:
    """Return the rows and weights that locations (B, N, H, L, P) read, each in [0, 1] of its level
    or outside.

    A level of T positions has their centres at (0.5, 1.5, ...) / T and is linear between two. One
    position beyond the outermost is zero, as the CUDA kernels have it. An empty level is zero
    everywhere. A location that is NaN has NaN for weights. backward: whether gradients of a table
    are wanted.
    """
    heads = locations.shape[2]
    numbers = torch.tensor(lengths, dtype=locations.dtype, device=locations.device)  # (L,)
    # of every head, level and point: long rows broadcast fast, short ones slowly
    length = numbers[:, None].expand(locations.shape[2:])
    length = length.flatten()  # (H L P,)
    place = locations.flatten(2) * length
    place = place - 0.5  # (B, N, H L P), in positions of its level
    # the positions on both sides of each place, and their weights by its fraction between them
    floor = place.detach().floor()
    fraction = place - floor  # (B, N, H L P) in [0, 1)
    floor = floor.nan_to_num(0.0)
    below, below_exists = _nearest_position(floor, length)
    above, above_exists = _nearest_position(floor + 1, length)
    left_weight = (1 - fraction) * below_exists
    right_weight = fraction * above_exists
    left_weight = left_weight.unflatten(2, (heads, -1))  # (B, N, H, L P)
    right_weight = right_weight.unflatten(2, (heads, -1))

    position, row = _table_rows(below, above, lengths, heads)
    readers = _readers(row, sum(lengths), backward=backward)
    return SamplingPoints(left_weight, right_weight, position, row, *readers)


def _nearest_position(position: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest positions of a level to whole numbers, and 1 where they are that number,
    else 0.

    In arithmetic, which on a CPU takes a tenth of what comparing takes.
    """
    nearest = position.clamp(torch.zeros_like(length), (length - 1).clamp(min=0))
    is_equal = (1 - (position - nearest).abs()).clamp(min=0)
    return nearest, is_equal * (length > 0).to(length.dtype)


def _table_rows(
    below: Tensor, above: Tensor, lengths: Sequence[int], heads: int
) -> tuple[Tensor, Tensor]:
    """Return positions and table rows, both (B, N, H, K) int32, of whole positions (B, N, H L P) in
    their levels."""
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


def _readers(row: Tensor, total: int, *, backward: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return reader, order and start of `SamplingPoints`, all of them (0,) unless wanted."""
    if not backward:
        nothing = row.new_empty(0)
        return nothing, nothing, nothing
    videos, _, heads, count = row.shape
    ordered, order = row.flatten().sort(stable=True)
    rows = _int_range(videos * total * heads, row.device)
    start = torch.searchsorted(ordered, rows, out_int32=True)
    return torch.div(order, count, rounding_mode="floor").int(), order, start


def _int_range(end: int, device: torch.device) -> Tensor:
    """Return 0, 1, ... below an end, int32."""
    return torch.arange(end, dtype=torch.int32, device=device)


def weighted_gather(value: Tensor, weight: Tensor, points: SamplingPoints) -> Tensor:
    """Return values (B, M, H, D) at each query's points, times weight (B, N, H, L P), summed: (B,
    N, H, D).

    output[b, n, h] = sum_k w[b, n, h, k] value[b, position[b, n, h, k], h], w: weight times each
    side's own.
    """
    on_left = weight * points.left_weight
    on_right = weight * points.right_weight
    both = torch.cat((on_left, on_right), dim=3)  # (B, N, H, K)
    total: Tensor = _WeightedGather.apply(value.contiguous(), both, *points.rows)
    return total  # (B, N, H, D)


def gather_dot_products(query: Tensor, key: Tensor, points: SamplingPoints) -> Tensor:
    """Return the products of queries (B, N, H, D) with keys (B, M, H, D) at their points, (B, N, H,
    L P).

    output[b, n, h, p] = query[b, n, h] . key(location p). These are the products with the rows on
    its left and right, each times that side's weight. In the dtype of these weights.
    """
    products = _GatherDotProducts.apply(query.contiguous(), key.contiguous(), *points.rows)
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
        table, weight, position, _, *readers = context.saved_tensors
        gradient = gradient.contiguous()
        to_table = None
        to_weight = None
        if context.needs_input_grad[0]:
            to_table = _scatter_sum(gradient, weight, table, *readers)
        if context.needs_input_grad[1]:
            to_weight = _gather_products(gradient, table, position).to(weight.dtype)
        return to_table, to_weight, None, None, None, None, None


class _GatherDotProducts(Function):  # type: ignore[misc]
    """`gather_dot_products` with its gradients."""

    @staticmethod
    def forward(context: Any, query: Tensor, table: Tensor, *points: Tensor) -> Tensor:
        context.save_for_backward(query, table, *points)
        return _gather_products(query, table, points[0])

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, table, _, row, *readers = context.saved_tensors
        gradient = gradient.contiguous()
        to_query = None
        to_table = None
        if context.needs_input_grad[0]:
            to_query = _gather_sum(table, gradient, row)
        if context.needs_input_grad[1]:
            to_table = _scatter_sum(query, gradient, table, *readers)
        return to_query, to_table, None, None, None, None, None


def _gather_sum(table: Tensor, weight: Tensor, row: Tensor) -> Tensor:
    """Return the table's rows of these numbers (B, N, H, K), times weight (B, N, H, K), summed: (B,
    N, H, D)."""
    width = table.shape[-1]
    flat = table.view(-1, width)  # (B M H, D)
    reads = weight.shape[-1]
    weights = weight.to(table.dtype)
    weights = weights.view(-1, reads)  # (B N H, K)
    rows = row.view(weights.shape)
    bags = F.embedding_bag(rows, flat, mode="sum", per_sample_weights=weights)
    return bags.view(*row.shape[:3], width)


def _scatter_sum(
    query: Tensor, weight: Tensor, table: Tensor, reader: Tensor, order: Tensor, start: Tensor
) -> Tensor:
    """Return for each row of the table the queries (B, N, H, D) that read it, times their weight,
    summed.

    Of the table's shape: the transpose of `_gather_sum`.
    """
    flat = query.view(-1, query.shape[-1])  # (B N H, D)
    by_reader = weight.view(-1).index_select(0, order)
    weights = by_reader.to(query.dtype)  # (B N H K,)
    bags = F.embedding_bag(reader, flat, start, mode="sum", per_sample_weights=weights)
    return bags.view_as(table)


def _gather_products(query: Tensor, table: Tensor, position: Tensor) -> Tensor:
    """Return the products of queries with the table's rows at positions, (B, N, H, K), read from
    dense ones.

    On a CPU a head at a time, whose dense products stay in the cache.
    """
    # the cells (B, H, N K) of a dense (N, M) table of products
    videos, count, heads, reads = position.shape
    positions = table.shape[1]
    numbers = _int_range(count, position.device)
    line = numbers[:, None] * positions  # (N, 1)
    cells = position.transpose(1, 2) + line
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
    """Return values (B, M, H, D) read at locations (B, N, H, L, P), times weights of that shape,
    summed: (B, N, H, D).

    lengths: positions of each level, M in all. A level may be empty.
    locations: in [0, 1] of their level, or outside. `sampling_points` says what is read. The
    result is of the value's dtype.
    Raises ShapeError where the shapes do not fit together.
    Source: equations 9 and 10, the sum. It equals `grid_sample` with align_corners=False.
    """
    _check(value, locations, lengths)
    if weights.shape != locations.shape:
        expected = f"{tuple(locations.shape)}, as the locations"
        raise ShapeError(f"weights must be {expected}, not {tuple(weights.shape)}")
    points = _points_of(locations, lengths, value)
    by_point = weights.flatten(3).to(points.left_weight.dtype)
    return weighted_gather(value, by_point, points)


def key_aware_attention(
    query: Tensor, key: Tensor, value: Tensor, locations: Tensor, lengths: Sequence[int]
) -> Tensor:
    """Return values (B, M, H, D) read at locations (B, N, H, L, P), weighted by the keys read
    there: (B, N, H, D).

    query: (B, N, H, D). key: as value. The weights are the softmax of query times key / sqrt(D)
    over all L P points of a query and head. A point in padding has a zero key and a zero value, and
    takes part in the softmax.
    Raises ShapeError where the shapes do not fit together.
    Source: equations 11 and 12, with the scaling that the text of the paper and Lite-DETR have.
    """
    _check(value, locations, lengths)
    width = value.shape[-1]
    query_shape = (*locations.shape[:3], width)
    if key.shape != value.shape or query.shape != query_shape:
        expected = f"{query_shape} and {tuple(value.shape)}"
        shapes = f"{tuple(query.shape)} and {tuple(key.shape)}"
        raise ShapeError(f"query and key must be {expected}, not {shapes}")
    points = _points_of(locations, lengths, key, value)
    products = gather_dot_products(query, key, points)
    logits = products / math.sqrt(width)  # (B, N, H, L P)
    return weighted_gather(value, logits.softmax(dim=-1), points)


class DeformableAttention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """The layer: projections, points near references, and one of the two attentions.

    Vanilla attention is that of PDVC. Key-aware attention has Lite-DETR's query and key projections
    instead of learned weights. Points start as there, spread to both sides of the reference,
    farther with every head and point.
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
        """Return queries (B, N, C) attended by memory (B, M, C), the levels one after the other:
        (B, N, C).

        references: (B, N, L, 1), points, or (B, N, L, 2), boxes (centre, length), in [0, 1] of each
        level.
        memory_pad: (B, M), True on padding, which is read as zeros. Raises ShapeError where shapes
        do not fit.
        """
        locations = self.locations(query, references, lengths)
        value = self._by_head(self.value(memory), memory_pad)
        if self.settings.form == "key-aware":
            key = self._by_head(self.key(memory), memory_pad)
            by_head = self._by_head(self.query(query))  # (B, N, H, D)
            attended = key_aware_attention(by_head, key, value, locations, lengths)
        else:
            logits = self.weights(query).to(locations.dtype)
            logits = self._by_head(logits)  # (B, N, H, L P)
            weights = logits.softmax(dim=-1).view_as(locations)
            attended = deformable_attention(value, locations, weights, lengths)
        return self.out(attended.flatten(2))

    def locations(self, query: Tensor, references: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return where each query's points are, (B, N, H, L, P) in [0, 1] of each level or outside:
        equation 9.

        An offset of 1 is a position of its level from a point, and 1 / P of half of its length
        from a box.
        """
        levels = self.settings.levels
        points = self.settings.points
        shape = (*query.shape[:2], levels)
        point_shape = (*shape, 1)
        box_shape = (*shape, 2)
        if references.shape not in (point_shape, box_shape) or len(lengths) != levels:
            expected = f"{point_shape} or {box_shape}, for {levels} levels"
            raise ShapeError(
                f"references must be {expected}, not {tuple(references.shape)} for {len(lengths)}"
            )
        references = _exact(references)
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

    def _by_head(self, rows: Tensor, pad: Tensor | None = None) -> Tensor:
        """Return rows (B, M, C) by heads, (B, M, H, D), padding zero."""
        if pad is not None:
            rows = rows.masked_fill(pad[..., None], 0.0)
        return rows.unflatten(-1, (self.settings.heads, -1))


def _exact(positions: Tensor) -> Tensor:
    """Return positions in float32 at least: half precision would round them to tenths of a row."""
    return positions if positions.dtype == torch.float64 else positions.float()


def _points_of(locations: Tensor, lengths: Sequence[int], *tables: Tensor) -> SamplingPoints:
    """Return the sampling points, with what gradients of the `tables` need where they are
    wanted."""
    is_trained = any(table.requires_grad for table in tables)
    backward = torch.is_grad_enabled() and is_trained
    return sampling_points(_exact(locations), lengths, backward=backward)


def _check(value: Tensor, locations: Tensor, lengths: Sequence[int]) -> None:
    """Raise ShapeError unless value (B, M, H, D), locations (B, N, H, L, P) and lengths fit
    together."""
    total = sum(lengths)
    if not total or value.ndim != 4 or value.shape[1] != total:
        expected = f"levels of {tuple(lengths)} positions need {total}, at least 1"
        raise ShapeError(f"{expected}, not {tuple(value.shape)}")
    videos, _, heads, _ = value.shape
    fitting = (videos, heads, len(lengths))
    shape = tuple(locations.shape)
    if len(shape) != 5 or (shape[0], *shape[2:4]) != fitting:
        expected = f"({videos}, queries, {heads}, {len(lengths)}, points)"
        raise ShapeError(f"locations must be {expected}, not {shape}")
