"""Multi-scale deformable attention over time, in plain PyTorch: ProcX section 5, equations 9 to 12.

Each query reads a few points of every temporal level, near a reference. Vanilla attention (equation 10; Deformable
DETR) weighs them by the query alone; key-aware attention (equation 12; Lite-DETR) by the keys at these points.
Letters: B videos, N queries, M positions of all levels one after the other, H heads, L levels, P points a level,
D width of a head, C width.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.layers.linear import Linear
from stepline.procx.reading import mix, products
from stepline.procx.settings import AttentionSettings, Padding
from stepline.procx.taps import Taps, taps


def deformable_attention(
    value: Tensor, locations: Tensor, weights: Tensor, lengths: Sequence[int], padding: Padding = "zero"
) -> Tensor:
    """Return values (B, M, H, D) read at locations (B, N, H, L, P), times weights of that shape, summed: (B, N, H, D).

    lengths: positions of each level, M in all; a level may be empty. locations: in [0, 1] of their level, or outside,
    where `padding` says what is read; `taps.taps` says how. The result is of the value's dtype.
    Raises ShapeError where the shapes do not fit together.
    Source: equations 9 and 10, the sum. In the words of the code that it replaces: `grid_sample`, align_corners=False.
    """
    _check(value, locations, lengths)
    if weights.shape != locations.shape:
        raise ShapeError(f"weights must be {tuple(locations.shape)}, as the locations, not {tuple(weights.shape)}")
    read = _taps(locations, lengths, padding, value)
    return mix(value, weights.flatten(3).to(read.left.dtype), read)


def key_aware_attention(
    query: Tensor, key: Tensor, value: Tensor, locations: Tensor, lengths: Sequence[int], padding: Padding = "zero"
) -> Tensor:
    """Return values (B, M, H, D) read at locations (B, N, H, L, P), weighted by the keys read there: (B, N, H, D).

    query: (B, N, H, D); key: as value. The weights are the softmax of query times key / sqrt(D) over all L P points
    of a query and head. A point in padding has a zero key and a zero value, and takes part in the softmax.
    Raises ShapeError where the shapes do not fit together.
    Source: equations 11 and 12, with the scaling that the text of the paper and Lite-DETR have.
    """
    _check(value, locations, lengths)
    if key.shape != value.shape or query.shape != (*locations.shape[:3], value.shape[-1]):
        wanted = f"{(*locations.shape[:3], value.shape[-1])} and {tuple(value.shape)}"
        raise ShapeError(f"query and key must be {wanted}, not {tuple(query.shape)} and {tuple(key.shape)}")
    read = _taps(locations, lengths, padding, key, value)
    logits = products(query, key, read) / math.sqrt(query.shape[-1])  # (B, N, H, L P)
    return mix(value, logits.softmax(dim=-1), read)


class DeformableAttention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """The layer: projections, points near references, and one of the two attentions.

    Vanilla attention is that of PDVC; key-aware attention has Lite-DETR's query and key projections instead of
    learned weights. Points start as there, spread to both sides of the reference, farther with every head and point.
    """

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__()
        self.settings = settings
        width, count = settings.width, settings.heads * settings.levels * settings.points
        self.offsets = Linear(width, count)
        self.value = Linear(width, width)
        self.out = Linear(width, width)
        if settings.form == "key-aware":
            self.query, self.key = Linear(width, width), Linear(width, width)
        else:
            self.weights = Linear(width, count)
        self._start()

    def _start(self) -> None:
        """Set weights as Deformable DETR does."""
        for name, layer in self.named_children():
            nn.init.zeros_(layer.bias)
            if name in ("offsets", "weights"):
                nn.init.zeros_(layer.weight)
            else:
                nn.init.xavier_uniform_(layer.weight)
        heads, levels, points = self.settings.heads, self.settings.levels, self.settings.points
        side = (torch.arange(heads) * (2 * math.pi / heads)).cos()  # (H,), in [-1, 1]
        spread = side[:, None, None] * torch.arange(1, points + 1)  # (H, 1, P)
        with torch.no_grad():
            self.offsets.bias.copy_(spread.expand(heads, levels, points).flatten())

    def forward(
        self,
        query: Tensor,
        references: Tensor,
        memory: Tensor,
        lengths: Sequence[int],
        memory_pad: Tensor | None = None,
    ) -> Tensor:
        """Return queries (B, N, C) attended by memory (B, M, C), the levels one after the other: (B, N, C).

        references: (B, N, L, 1), points, or (B, N, L, 2), boxes (centre, length), in [0, 1] of each level.
        memory_pad: (B, M), True on padding, which is read as zeros. Raises ShapeError where shapes do not fit.
        """
        heads = self.settings.heads
        locations = self.locations(query, references, lengths)
        value = self._heads(self.value(memory), memory_pad)
        if self.settings.form == "key-aware":
            key = self._heads(self.key(memory), memory_pad)
            asked = self.query(query).unflatten(-1, (heads, -1))  # (B, N, H, D)
            read = key_aware_attention(asked, key, value, locations, lengths, self.settings.padding)
        else:
            weights = self.weights(query).to(locations.dtype).unflatten(-1, (heads, -1)).softmax(dim=-1)
            read = deformable_attention(value, locations, weights.view_as(locations), lengths, self.settings.padding)
        return self.out(read.flatten(2))

    def locations(self, query: Tensor, references: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return where each query's points lie, (B, N, H, L, P) in [0, 1] of each level or outside; equation 9.

        An offset of 1 is a position of its level beside a point, and 1 / P of half of its length beside a box.
        """
        shape = (*query.shape[:2], self.settings.levels)
        if references.shape[:-1] != shape or references.shape[-1] not in (1, 2) or len(lengths) != shape[-1]:
            wanted = f"{(*shape, 1)} or {(*shape, 2)}, for {shape[-1]} levels"
            raise ShapeError(f"references must be {wanted}, not {tuple(references.shape)} for {len(lengths)}")
        references = _exact(references)[:, :, None, :, :, None]  # (B, N, 1, L, 1 or 2, 1)
        offsets = self.offsets(query).to(references.dtype)
        offsets = offsets.unflatten(-1, (self.settings.heads, self.settings.levels, self.settings.points))
        if references.shape[4] == 2:
            unit = references[..., 1, :] * (0.5 / self.settings.points)
        else:
            length = torch.tensor(lengths, dtype=references.dtype, device=references.device)
            unit = 1 / length.clamp(min=1)[:, None]  # (L, 1)
        return references[..., 0, :] + offsets * unit

    def _heads(self, rows: Tensor, pad: Tensor | None) -> Tensor:
        """Return rows (B, M, C) by heads, (B, M, H, D), padding zero."""
        if pad is not None:
            rows = rows.masked_fill(pad[..., None], 0.0)
        return rows.unflatten(-1, (self.settings.heads, -1))


def _exact(positions: Tensor) -> Tensor:
    """Return positions in float32 at least: half precision would round them to tenths of a row."""
    return positions if positions.dtype == torch.float64 else positions.float()


def _taps(locations: Tensor, lengths: Sequence[int], padding: Padding, *tables: Tensor) -> Taps:
    backward = torch.is_grad_enabled() and any(table.requires_grad for table in tables)
    return taps(_exact(locations), lengths, padding, backward=backward)


def _check(value: Tensor, locations: Tensor, lengths: Sequence[int]) -> None:
    """Raise ShapeError unless value (B, M, H, D), locations (B, N, H, L, P) and lengths fit together."""
    total = sum(lengths)
    if not total or value.ndim != 4 or value.shape[1] != total:
        raise ShapeError(f"levels of {tuple(lengths)} positions need {total}, at least 1, not {tuple(value.shape)}")
    videos, _, heads, _ = value.shape
    if locations.ndim != 5 or (*locations.shape[0::2][:2], locations.shape[3]) != (videos, heads, len(lengths)):
        wanted = f"({videos}, queries, {heads}, {len(lengths)}, points)"
        raise ShapeError(f"locations must be {wanted}, not {tuple(locations.shape)}")
