"""Where deformable attention reads: two neighbouring rows a point, and what each counts.

Letters: B videos, N queries, M positions of all levels one after the other, H heads, L levels, P points a level,
K = 2 L P taps of a query and head: the rows on the left of its points, then those on the right; D width of a head.
A table is (B, M, H, D), and its row of (b, m, h) has the number (b M + m) H + h.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stepline.procx.settings import Padding


@dataclass(frozen=True)
class Taps:
    """What every query and head reads.

    left, right: (B, N, H, L P), what the rows on the left and on the right count at each point; gradients reach the
    locations through them. position: (B, N, H, K) int32 in [0, M), lefts then rights; row: as numbers of table rows.
    reader, order, start: the same taps by the row that they read, for gradients of a table. Row r is read by the taps
    order[start[r]:start[r + 1]] of the flat `row`, which belong to the rows `reader` of a table (B, N, H, D) of
    queries. Empty where no gradient is wanted.
    """

    left: Tensor
    right: Tensor
    position: Tensor
    row: Tensor
    reader: Tensor
    order: Tensor
    start: Tensor


def taps(locations: Tensor, lengths: Sequence[int], padding: Padding, *, backward: bool) -> Taps:
    """Return the taps of points at locations (B, N, H, L, P), each in [0, 1] of its level or outside.

    A level of T positions has their centres at (0.5, 1.5, ...) / T and is linear between two. Beyond the outermost,
    zero padding has zeros one position farther, border padding goes on as it ends; an empty level is zero everywhere.
    A location that is NaN has NaN for shares. backward: whether gradients of a table are wanted.
    """
    heads = locations.shape[2]
    length = _each(lengths, locations)  # (H L P,): long rows broadcast fast, short ones slowly
    place = locations.flatten(2) * length - 0.5  # (B, N, H L P), in positions of its level
    if padding == "border":
        inside = (place > 0) & (place < length - 1)
        place = torch.where(inside, place, place.detach().clamp(torch.zeros_like(length), length - 1))
    floor = place.detach().floor()
    part = place - floor  # (B, N, H L P) in [0, 1)
    floor = floor.nan_to_num(0.0)
    (left, left_holds), (right, right_holds) = _held(floor, length), _held(floor + 1, length)
    left_share, right_share = (
        share.unflatten(2, (heads, -1)) for share in ((1 - part) * left_holds, part * right_holds)
    )  # (B, N, H, L P)
    position, row = _numbers(left, right, lengths, heads)
    return Taps(left_share, right_share, position, row, *_readers(row, sum(lengths), backward=backward))


def _each(lengths: Sequence[int], locations: Tensor) -> Tensor:
    """Return the length of every head's, level's and point's level, (H L P,) of the locations' kind."""
    numbers = torch.tensor(lengths, dtype=locations.dtype, device=locations.device)  # (L,)
    return numbers[:, None].expand(locations.shape[2:]).flatten()


def _held(place: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest positions of a level to whole places, and 1 where they are that place, else 0.

    In arithmetic, which on a CPU takes a tenth of what comparing takes.
    """
    nearest = place.clamp(torch.zeros_like(length), (length - 1).clamp(min=0))
    return nearest, (1 - (place - nearest).abs()).clamp(min=0) * (length > 0).to(length.dtype)


def _numbers(left: Tensor, right: Tensor, lengths: Sequence[int], heads: int) -> tuple[Tensor, Tensor]:
    """Return positions and rows, both (B, N, H, K) int32, of whole places (B, N, H L P) in their levels."""
    total = sum(lengths)
    starts = [min(sum(lengths[:level]), total - 1) for level in range(len(lengths))]  # an empty one needs some place
    points = left.shape[2] // (heads * len(lengths))
    start = torch.tensor(starts, dtype=torch.int32, device=left.device)[:, None].expand(-1, points)  # (L, P)
    sides = [side.int().unflatten(2, (heads, -1)) for side in (left, right)]
    position = torch.cat(sides, dim=3) + start.flatten().repeat(2)  # (B, N, H, K)
    first = _count(len(left), left.device)[:, None] * (total * heads) + _count(heads, left.device)  # (B, H)
    return position, position * heads + first[:, None, :, None]


def _readers(row: Tensor, total: int, *, backward: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return reader, order and start of `Taps`, all of them (0,) unless wanted."""
    if not backward:
        nothing = row.new_empty(0)
        return nothing, nothing, nothing
    videos, _, heads, count = row.shape
    ordered, order = row.flatten().sort(stable=True)
    start = torch.searchsorted(ordered, _count(videos * total * heads, row.device), out_int32=True)
    return torch.div(order, count, rounding_mode="floor").int(), order, start


def _count(end: int, device: torch.device) -> Tensor:
    """Return 0, 1, ... below an end, int32."""
    return torch.arange(end, dtype=torch.int32, device=device)
