"""NaSVA's network: from the features of a video and K texts to how well each text fits each second.

    h_v = phi_v(x_v), h_j = phi_j(x_j)            projections to D, with positions p_v and, for texts in order, p_j
    o_v = encoder(h_v), o_j = decoder(h_j, o_v)   texts are queries, seconds are keys and values
    A[k, t] = cos(z_j[k], z_v[t])                 z: projections of o to d

Source: NaSVA, section 3.2. Differs, as the released weights need it: LayerNorm on the projections,
and positions that are added to queries and keys at every attention, never to values. `form="paper"`
does as printed. Inside the network a batch is one matrix of rows: the seconds, or the texts, of all
its videos (`PackedRows`). Letters: B batch, K texts, T feature rows. N rows of one video with
padding (K or T), R rows of a batch in the matrix, M keys of a video. C input width, D width, H
heads, d projection, L decoder layers.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.models.nasva.settings import AlignerNetworkSettings
from stepline.models.training.batches import Batch
from stepline.models.training.layers import Dropout, FeedForward, Linear, linear

# fraction of padding from which leaving it out pays for attention video by video
PACKING_PAYS = 1 / 32
LOG_10000 = 9.210340371976184  # of the positions; Vaswani et al. 2017
INIT_STD = 0.02  # standard deviation of fresh weights; released code
# a vector shorter than this has no direction: its cosines are 0, and so are its gradients
MIN_LENGTH = 1e-6


@dataclass(frozen=True)
class AlignerOutput:
    """Output of the network for a batch.

    Attributes:
        text: (L, B, K, d) unit vectors of the texts after each decoder layer, float32.
        video: (B, T, d) unit vectors of the seconds, float32.
        alignability_logits: (B, K) logits that a text is shown at all. None: the network has no such head.
    """

    text: Tensor
    video: Tensor
    alignability_logits: Tensor | None

    @property
    def scores(self) -> Tensor:
        """Alignment matrix A of the last decoder layer: cosines (B, K, T). Values on padding are
        meaningless."""
        return compute_dot_products(self.text[-1:], self.video)[0]  # (B, K, T)


def compute_dot_products(text: Tensor, video: Tensor) -> Tensor:
    """Return the dot products (L, B, K, T) of texts and seconds, in float32 even under autocast.

    Args:
        text: (L, B, K, d) vectors of K texts of B videos after L decoder layers.
        video: (B, T, d) vectors of T seconds.
    """
    with torch.autocast(video.device.type, enabled=False):
        return torch.einsum("lbkd,btd->lbkt", text, video)


@dataclass(frozen=True)
class PackedRows:
    """Layout of the rows of a batch in one matrix, without padding where that is faster.

    On a CPU, rows of padding are left out, and attention goes video by video, without a mask. With
    little padding, or on another device, all rows stay and a mask says which keys are real. Scores
    are the same.

    Attributes:
        video_count: B, number of videos.
        max_length: N, number of rows of the longest video, to which the others are padded.
        lengths: number of rows of each video that are in the matrix.
        index: (R,) which of the B x N rows are in the matrix. None: all.
        key_keep: (B, 1, 1, N) True on keys that attention may see. None: all keys in the matrix.
    """

    video_count: int
    max_length: int
    lengths: tuple[int, ...]
    index: Tensor | None
    key_keep: Tensor | None

    @classmethod
    def from_padding_mask(cls, pad: Tensor, *, keep_fully_padded: bool) -> "PackedRows":
        """Return the layout for rows with padding (B, N).

        keep_fully_padded: keep all rows of a video that is padding only, so that attention has
        something to see.
        """
        batch, longest = pad.shape
        full = (longest,) * batch
        if pad.device.type != "cpu":
            # To ask a GPU how much is padding would wait for all that it still has to do.
            return cls(batch, longest, full, None, make_key_mask(pad))
        # On a CPU padding costs as much as real rows.
        keep = ~pad  # (B, N)
        if keep_fully_padded:
            keep = make_key_mask(pad)[:, 0, 0]
        padding = pad.numel() - int(keep.sum())
        if padding == 0:
            return cls(batch, longest, full, None, None)
        if padding < PACKING_PAYS * pad.numel():
            return cls(batch, longest, full, None, make_key_mask(pad))
        # Only the real rows, in the order of the videos.
        index = keep.flatten().nonzero().squeeze(1)  # (R,)
        return cls(batch, longest, tuple(keep.sum(dim=1).tolist()), index, None)

    @property
    def has_padding_rows(self) -> bool:
        """Whether the matrix is all B x N rows, padding included."""
        return self.index is None

    def pack(self, values: Tensor) -> Tensor:
        """Return values (B, N, D) as one matrix (R, D)."""
        flat = values.flatten(0, 1)
        return flat if self.index is None else flat[self.index]

    def unpack(self, rows: Tensor) -> Tensor:
        """Return rows (..., R, D) as (..., B, N, D), with 0 on padding that was left out."""
        if self.index is not None:
            # Real rows go back to their places, padding stays 0.
            *outer, _, width = rows.shape
            padded = rows.new_zeros(*outer, self.video_count * self.max_length, width)
            rows = padded.index_copy(-2, self.index, rows)
        return rows.unflatten(-2, (self.video_count, self.max_length))


def make_key_mask(pad: Tensor) -> Tensor:
    """Return a mask (B, 1, 1, N) of the keys that attention may see. All keys of a video of padding
    only are visible, to avoid NaN."""
    return (~pad | pad.all(dim=1, keepdim=True))[:, None, None, :]


@dataclass(frozen=True)
class RowsWithPositions:
    """Rows of a batch in a packed matrix, and the positional encodings that every attention adds to
    queries and keys.

    Attributes:
        values: (R, D) the R rows.
        positions: (R, D) their positional encodings. None: these were added to the values already.
        layout: which row of the batch each of the R rows is.
    """

    values: Tensor
    positions: Tensor | None
    layout: PackedRows

    @property
    def with_positions(self) -> Tensor:
        """The rows plus their positions, (R, D)."""
        return self.values if self.positions is None else self.values + self.positions


class AlignerAttention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Multi-head attention with one packed projection. Positions enter queries and keys, not
    values."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.project = nn.Linear(width, 3 * width)  # rows: query, key, value
        self.out = Linear(width, width)
        # as nn.MultiheadAttention, whose own the release keeps
        nn.init.xavier_uniform_(self.project.weight)

    def self_attend(self, rows: RowsWithPositions) -> Tensor:
        """Return the self-attention output (R, D). Each row attends to the rows of its own video."""
        if rows.positions is None:
            query, key, value = self._project(rows.values, 0, 3)  # each (R, D)
        else:
            query, key = self._project(rows.with_positions, 0, 2)
            (value,) = self._project(rows.values, 2, 3)
        return self._attend(query, key, value, rows.layout, rows.layout)

    def cross_attend(self, rows: RowsWithPositions, memory: RowsWithPositions) -> Tensor:
        """Return the cross-attention output (R, D). Each row attends to the memory rows of its own
        video.

        Args:
            rows: (R, D) rows that make the queries, such as texts.
            memory: rows that make keys and values, such as seconds.
        """
        (query,) = self._project(rows.with_positions, 0, 1)  # (R, D)
        # Without positions one product makes keys and values together.
        if memory.positions is None:
            key, value = self._project(memory.values, 1, 3)
        else:
            (key,) = self._project(memory.with_positions, 1, 2)
            (value,) = self._project(memory.values, 2, 3)
        return self._attend(query, key, value, rows.layout, memory.layout)

    def _project(self, rows: Tensor, first: int, end: int) -> tuple[Tensor, ...]:
        """Return the projections of rows (R, D), each (R, D). Projections 0, 1 and 2 make query,
        key and value.

        Args:
            rows: (R, D) input rows.
            first: number of the first projection.
            end: number after the last projection.
        """
        width = rows.shape[-1]
        part = slice(first * width, end * width)
        projected = linear(rows, self.project.weight[part], self.project.bias[part])
        parts: tuple[Tensor, ...] = projected.chunk(end - first, dim=-1)
        return parts

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, layout: PackedRows, memory: PackedRows
    ) -> Tensor:
        # As many rows of each video: one attention of all.
        if layout.has_padding_rows and memory.has_padding_rows:
            shape = (memory.video_count, -1)
            query = query.unflatten(0, shape)  # (B, N, D)
            key = key.unflatten(0, shape)  # (B, M, D)
            value = value.unflatten(0, shape)
            mixed = self._compute_attention(query, key, value, memory.key_keep)
            return self.out(mixed.flatten(0, 1))

        # video by video
        keeps = [None] * memory.video_count
        if memory.key_keep is not None:
            keeps = memory.key_keep.split(1)
        queries = query.split(layout.lengths)
        keys = key.split(memory.lengths)
        values = value.split(memory.lengths)
        by_video = []
        for rows, own_keys, own_values, keep in zip(queries, keys, values, keeps, strict=True):
            # A video without texts has nothing to mix.
            if len(rows):
                mixed = self._compute_attention(rows[None], own_keys[None], own_values[None], keep)
                rows = mixed[0]
            by_video.append(rows)  # (N, D)
        return self.out(torch.cat(by_video))  # (R, D)

    def _compute_attention(
        self, query: Tensor, key: Tensor, value: Tensor, key_keep: Tensor | None
    ) -> Tensor:
        """Return the multi-head attention softmax(Q K^T / sqrt(D / H)) V, (B, N, D).

        Args:
            query: (B, N, D) query vectors, which are split into H heads.
            key: (B, M, D) key vectors.
            value: (B, M, D) value vectors.
            key_keep: (B, 1, 1, M), True on keys that attention may see. None: all keys.
        """
        queries, keys, values = (
            rows.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, N or M, D/H)
            for rows in (query, key, value)
        )
        rate = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(queries, keys, values, key_keep, rate)
        return mixed.transpose(1, 2).flatten(2)  # (B, N, D)


def _make_attention(settings: AlignerNetworkSettings) -> AlignerAttention:
    return AlignerAttention(settings.width, settings.heads, settings.attention_dropout)


class AlignerEncoderLayer(nn.Module):  # type: ignore[misc]
    """Self-attention of seconds, then a feed-forward, each with a residual connection and LayerNorm
    after it."""

    def __init__(self, settings: AlignerNetworkSettings) -> None:
        super().__init__()
        self.attention = _make_attention(settings)
        self.feed = FeedForward(settings.width, settings.feed_forward, settings.dropout)
        self.attention_norm = nn.LayerNorm(settings.width)
        self.feed_norm = nn.LayerNorm(settings.width)
        self.dropout = Dropout(settings.dropout)

    def forward(self, seconds: RowsWithPositions) -> RowsWithPositions:
        """Return the rows of the seconds after the layer, in the same layout."""
        attended = self.attention.self_attend(seconds)  # (R, D)
        rows = self.attention_norm(seconds.values + self.dropout(attended))
        rows = self.feed_norm(rows + self.dropout(self.feed(rows)))
        return replace(seconds, values=rows)


class AlignerDecoderLayer(nn.Module):  # type: ignore[misc]
    """Self-attention of texts, cross-attention to seconds, then a feed-forward, each with a
    residual connection and LayerNorm after it."""

    def __init__(self, settings: AlignerNetworkSettings) -> None:
        super().__init__()
        self.self_attention = _make_attention(settings)
        self.cross_attention = _make_attention(settings)
        self.feed = FeedForward(settings.width, settings.feed_forward, settings.dropout)
        self.self_norm = nn.LayerNorm(settings.width)
        self.cross_norm = nn.LayerNorm(settings.width)
        self.feed_norm = nn.LayerNorm(settings.width)
        self.dropout = Dropout(settings.dropout)

    def forward(self, texts: RowsWithPositions, seconds: RowsWithPositions) -> RowsWithPositions:
        """Return the rows of the texts after the layer, in the same layout.

        Args:
            texts: rows of the texts, which attend to one another and to the seconds.
            seconds: rows of the seconds after the encoder.
        """
        attended = self.self_attention.self_attend(texts)  # (R, D)
        rows = self.self_norm(texts.values + self.dropout(attended))
        texts = replace(texts, values=rows)
        attended = self.cross_attention.cross_attend(texts, seconds)  # (R, D)
        rows = self.cross_norm(texts.values + self.dropout(attended))
        update = self.feed(rows)
        rows = self.feed_norm(rows + self.dropout(update))
        return replace(texts, values=rows)


class Aligner(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """NaSVA's network, a transformer encoder over seconds and a decoder over texts, with randomly
    initialised weights."""

    def __init__(self, settings: AlignerNetworkSettings) -> None:
        super().__init__()
        self.settings = settings
        width = settings.width
        self.video_in = _make_projection(settings.video_width, settings)
        self.text_in = _make_projection(settings.text_width, settings)
        # `text_place` is the name in files: their learned positions.
        self.text_place = nn.Embedding(settings.text_positions, width)
        self.encoder = nn.ModuleList(
            AlignerEncoderLayer(settings) for _ in range(settings.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            AlignerDecoderLayer(settings) for _ in range(settings.decoder_layers)
        )
        self.decoder_norm = nn.LayerNorm(width)
        self.video_out = nn.Linear(width, settings.projection)
        self.text_out = nn.Linear(width, settings.projection)
        self.alignable = nn.Linear(width, 1) if settings.alignability else None
        self.apply(_init_weights)

    def forward(self, batch: Batch) -> AlignerOutput:
        """Return the network's output for B videos: unit vectors of K texts after each decoder
        layer, of T seconds, and alignability logits.

        batch: video feature rows (B, T, C), text vectors (B, K, C) and padding masks.

        Raises ShapeError for inputs that do not fit the settings.
        """
        self._check_batch(batch)

        # the seconds see each other
        layout = PackedRows.from_padding_mask(batch.video_pad, keep_fully_padded=True)
        video = self.video_in(self._scale_rows(layout.pack(batch.video)))  # (R, D)
        batch_size, count, _ = batch.video.shape
        positions = make_sine_positions(count, self.settings.width, batch.video.device)  # (T, D)
        positions = positions.expand(batch_size, -1, -1)  # (B, T, D)
        seconds = self._add_positions(video, positions, layout)
        for layer in self.encoder:
            seconds = layer(seconds)

        # the texts see each other and the seconds
        layout = PackedRows.from_padding_mask(batch.text_pad, keep_fully_padded=False)
        text = self.text_in(self._scale_rows(layout.pack(batch.text)))  # (R, D)
        texts = self._add_positions(text, self._select_text_positions(batch), layout)
        outputs = []
        for layer in self.decoder:
            texts = layer(texts, seconds)
            outputs.append(self.decoder_norm(texts.values))
        return self._make_output(torch.stack(outputs), texts.layout, seconds)

    def _make_output(
        self, text: Tensor, layout: PackedRows, seconds: RowsWithPositions
    ) -> AlignerOutput:
        """Return unit vectors of texts and seconds, and alignability logits, for all videos of the
        batch.

        Vectors are float32 even under autocast: a bf16 cosine near 1 has an error of 0.06 after the
        division by tau.

        Args:
            text: (L, R, D) packed text rows after each decoder layer.
            layout: layout of the text rows.
            seconds: rows of the seconds after the encoder.
        """
        with torch.autocast(text.device.type, enabled=False):
            text = text.float()  # (L, R, D)
            alignable = None
            # The head reads the last layer alone.
            if self.alignable is not None:
                alignable = layout.unpack(self.alignable(text[-1])).squeeze(-1)  # (B, K)
            text_vectors = _normalize(self.text_out(text))
            video_vectors = _normalize(self.video_out(seconds.values.float()))
            return AlignerOutput(
                layout.unpack(text_vectors), seconds.layout.unpack(video_vectors), alignable
            )

    def _add_positions(
        self, rows: Tensor, positions: Tensor, layout: PackedRows
    ) -> RowsWithPositions:
        """Return rows (R, D) with positions (B, N, D), which the paper's form adds to the rows at
        once."""
        packed = layout.pack(positions)
        if self.settings.form == "paper":
            return RowsWithPositions(rows + packed, None, layout)
        return RowsWithPositions(rows, packed, layout)

    def _select_text_positions(self, batch: Batch) -> Tensor:
        """Return the learned positions of the texts (B, K, D), zero for texts in no order."""
        count = batch.text.shape[1]
        # (K, D) or fewer: `_check` lets it be unordered only
        learned = self.text_place.weight[:count]
        learned = F.pad(learned, (0, 0, 0, count - len(learned)))  # (K, D)
        return learned * batch.ordered[:, None, None]  # (B, K, D)

    def _scale_rows(self, rows: Tensor) -> Tensor:
        """Return rows (R, C) scaled to mean square 1 each, or unchanged, as the setting
        `feature_scale` says. A row of zeros stays zero."""
        if self.settings.feature_scale == "none":
            return rows
        mean_square = rows.square().mean(dim=-1, keepdim=True)
        return rows * mean_square.clamp(min=MIN_LENGTH**2).rsqrt()

    def _check_batch(self, batch: Batch) -> None:
        settings = self.settings
        widths = {
            "video": (batch.video, settings.video_width),
            "text": (batch.text, settings.text_width),
        }
        for name, (rows, width) in widths.items():
            if rows.shape[-1] != width:
                raise ShapeError(
                    f"{name} features have width {rows.shape[-1]}, the model takes {width}; use "
                    "its own"
                )
        videos, seconds, _ = batch.video.shape
        if not videos or not seconds:
            raise ShapeError(f"the video needs at least one feature row, not {(videos, seconds)}")
        texts = batch.text.shape[1]
        if texts > settings.text_positions and bool(batch.ordered.any()):
            raise ShapeError(
                f"{texts} texts in order are more than the {settings.text_positions} positions "
                "that the model has learned; give fewer at a time, or in no order"
            )


def make_sine_positions(count: int, width: int, device: torch.device) -> Tensor:
    """Return fixed positions (count, width): sines in even columns, cosines in odd ones, base
    10000."""
    steps = torch.arange(0, width, 2, device=device, dtype=torch.float32)
    numbers = torch.arange(count, device=device, dtype=torch.float32)
    angles = numbers[:, None] * torch.exp(steps * (-LOG_10000 / width))
    return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)  # (count, width)


def _make_projection(width: int, settings: AlignerNetworkSettings) -> nn.Module:
    layers: list[nn.Module] = [Linear(width, settings.width)]
    if settings.form == "released":
        layers.append(nn.LayerNorm(settings.width))
    return nn.Sequential(*layers)


def _init_weights(module: nn.Module) -> None:
    """Draw fresh weights as the released code does. The packed attention projections keep
    Xavier's."""
    if isinstance(module, AlignerAttention):
        # children come first, so this undoes what follows for them
        nn.init.xavier_uniform_(module.project.weight)
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.trunc_normal_(module.weight, std=INIT_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def _normalize(rows: Tensor) -> Tensor:
    """Return rows (..., D) scaled to length 1. A row of zeros stays 0 and gets gradient 0, where
    plain normalization would give a huge one."""
    square = rows.square().sum(dim=-1, keepdim=True)
    # Clamped first: `where` also passes on the NaN of the side that it does not take.
    scaled = rows * square.clamp(min=MIN_LENGTH**2).rsqrt()
    return torch.where(square > MIN_LENGTH**2, scaled, torch.zeros_like(rows))
