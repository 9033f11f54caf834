"""The grounding network: features of a video and K sentences to how well each sentence fits each second.

    h_v = phi_v(x_v), h_j = phi_j(x_j)            projections to D, with places p_v and, for texts in order, p_j
    o_v = encoder(h_v), o_j = decoder(h_j, o_v)   texts are queries, seconds keys and values
    A[k, t] = cos(z_j[k], z_v[t])                 z: projections of o to d

Source: NaSVA, section 3.2. Differs, as the released weights need it: LayerNorm on the projections, places added to
queries and keys at every attention and never to values; `form="paper"` does as printed.
Letters: B batch, K texts, T feature rows, C input width, D width, d projection, L decoder layers; inside the network
a batch is one matrix of R rows, the seconds or the texts of all its videos (`rows.py`).

Attention whose positions enter queries and keys alone.

Letters: B batch, N queries of a video, M keys of it, R rows of all videos, H heads, D width.

How the rows of a batch lie in one matrix while the network works on them: without padding where that pays.

On a CPU rows of padding are left out, and attention goes video by video, with no mask; where little is padded, or on
another device, all rows stay and a mask says which keys are real. Scores are the same.
Letters: B batch, N sequence length with padding, R rows in the matrix.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.nasva.network_settings import ModelSettings
from stepline.training.batches import Batch
from stepline.training.layers import FeedForward, Linear, dropout, linear

PAYS = 1 / 32  # share of padding from which leaving it out pays for attention that goes video by video


@dataclass(frozen=True)
class Rows:
    """lengths: of each video's rows in the matrix; index: (R,) which of the B x N rows these are, None where all.

    key_keep: (B, 1, 1, N), True where attention may see a row; None where it may see all that are in the matrix.
    """

    batch: int
    longest: int
    lengths: tuple[int, ...]
    index: Tensor | None
    key_keep: Tensor | None

    @classmethod
    def of(cls, pad: Tensor, *, never_none: bool) -> "Rows":
        """Return how rows with padding (B, N) are to lie. never_none: a video of nothing but padding keeps all of it,
        so that attention has something to see."""
        batch, longest = pad.shape
        full = (longest,) * batch
        if pad.device.type != "cpu":  # to ask it how much is padding would wait for it
            return cls(batch, longest, full, None, keys_to_see(pad))
        keep = keys_to_see(pad)[:, 0, 0] if never_none else ~pad  # (B, N)
        lost = pad.numel() - int(keep.sum())
        if not lost:
            return cls(batch, longest, full, None, None)
        if lost < PAYS * pad.numel():
            return cls(batch, longest, full, None, keys_to_see(pad))
        index = keep.flatten().nonzero().squeeze(1)  # (R,)
        return cls(batch, longest, tuple(keep.sum(dim=1).tolist()), index, None)

    @property
    def even(self) -> bool:
        """Whether the matrix is (B, N) rows, those of padding among them."""
        return self.index is None

    def pack(self, values: Tensor) -> Tensor:
        """Return values (B, N, D) as one matrix (R, D)."""
        flat = values.flatten(0, 1)
        return flat if self.index is None else flat[self.index]

    def unpack(self, rows: Tensor) -> Tensor:
        """Return rows (..., R, D) as (..., B, N, D), 0 on padding that was left out."""
        if self.index is not None:
            apart = rows.new_zeros(*rows.shape[:-2], self.batch * self.longest, rows.shape[-1])
            rows = apart.index_copy(-2, self.index, rows)
        return rows.unflatten(-2, (self.batch, self.longest))


def keys_to_see(pad: Tensor) -> Tensor:
    """Return the keys that attention may see, (B, 1, 1, N); where all are padding, all, so that nothing is NaN."""
    return (~pad | pad.all(dim=1, keepdim=True))[:, None, None, :]


class Attention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Multi-head attention with one packed projection; dropout of its weights is off unless asked for."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.project = nn.Linear(width, 3 * width)  # rows: query, key, value
        self.out = Linear(width, width)
        nn.init.xavier_uniform_(self.project.weight)  # as nn.MultiheadAttention, whose own the release keeps

    def within(self, rows: Tensor, place: Tensor | None, layout: Rows) -> Tensor:
        """Return rows (R, D) attended by those of their own video. place: (R, D)."""
        if place is None:
            query, key, value = self._project(rows, 0, 3)  # each (R, D)
        else:
            query, key = self._project(rows + place, 0, 2)
            (value,) = self._project(rows, 2, 3)
        return self._attend(query, key, value, layout, layout)

    def across(
        self,
        rows: Tensor,
        place: Tensor | None,
        layout: Rows,
        memory: Tensor,
        memory_place: Tensor | None,
        memory_layout: Rows,
    ) -> Tensor:
        """Return rows (R, D) attended by the memory of their video; places as in `within`."""
        (query,) = self._project(rows if place is None else rows + place, 0, 1)  # (R, D)
        if memory_place is None:
            key, value = self._project(memory, 1, 3)
        else:
            (key,) = self._project(memory + memory_place, 1, 2)
            (value,) = self._project(memory, 2, 3)
        return self._attend(query, key, value, layout, memory_layout)

    def _project(self, rows: Tensor, first: int, end: int) -> tuple[Tensor, ...]:
        """Return parts `first` to `end` of query, key and value, each (R, D)."""
        part = slice(first * rows.shape[-1], end * rows.shape[-1])
        parts: tuple[Tensor, ...] = linear(rows, self.project.weight[part], self.project.bias[part]).chunk(
            end - first, dim=-1
        )
        return parts

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, layout: Rows, seen: Rows) -> Tensor:
        if layout.even and seen.even:
            query, key, value = (part.unflatten(0, (seen.batch, -1)) for part in (query, key, value))  # (B, N or M, D)
            return self.out(self._mix(query, key, value, seen.key_keep).flatten(0, 1))
        keeps = [None] * seen.batch if seen.key_keep is None else seen.key_keep.split(1)
        mixed = []
        for one, keys, values, keep in zip(
            query.split(layout.lengths), key.split(seen.lengths), value.split(seen.lengths), keeps, strict=True
        ):
            mixed.append(self._mix(one[None], keys[None], values[None], keep)[0] if len(one) else one)  # (N, D)
        return self.out(torch.cat(mixed))  # (R, D)

    def _mix(self, query: Tensor, key: Tensor, value: Tensor, key_keep: Tensor | None) -> Tensor:
        """Return values (B, M, D) mixed for each query, (B, N, D)."""
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (query, key, value))
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, key_keep, dropout)  # (B, H, N, D/H)
        return mixed.transpose(1, 2).flatten(2)  # (B, N, D)


def sine_positions(count: int, width: int, device: torch.device) -> Tensor:
    """Return fixed positions (count, width): sines in even columns, cosines in odd ones, base 10000."""
    steps = torch.arange(0, width, 2, device=device, dtype=torch.float32)
    angles = torch.arange(count, device=device, dtype=torch.float32)[:, None] * torch.exp(steps * (-LOG_BASE / width))
    return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)  # (count, width)


LOG_BASE = 9.210340371976184  # ln 10000; Vaswani et al. 2017


SPREAD = 0.02  # standard deviation of fresh weights; released code
FAINT = 1e-6  # a vector shorter than this has no direction: its cosines are 0, and so are its gradients


@dataclass(frozen=True)
class Aligned:
    """What the network says of a batch: text (L, B, K, d) and video (B, T, d) unit vectors, float32, and logits.

    alignable: (B, K) logits that the text is shown at all, None without that head.
    """

    text: Tensor
    video: Tensor
    alignable: Tensor | None

    @property
    def scores(self) -> Tensor:
        """A of the last decoder layer, cosines (B, K, T); padded rows and columns mean nothing."""
        return products(self.text[-1:], self.video)[0]  # (B, K, T)

    def layers(self, count: int) -> Tensor:
        """A of the last `count` decoder layers, cosines (count, B, K, T)."""
        return products(self.text[-count:], self.video)  # (count, B, K, T)


def products(text: Tensor, video: Tensor) -> Tensor:
    """Return the products of text (L, B, K, d) and video (B, T, d), (L, B, K, T), in float32 whatever autocast says."""
    with torch.autocast(video.device.type, enabled=False):
        return torch.einsum("lbkd,btd->lbkt", text, video)


class Aligner(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """NaSVA's network, fresh until weights are loaded."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings
        self.video_in = _projection(settings.video_width, settings)
        self.text_in = _projection(settings.text_width, settings)
        self.text_place = nn.Embedding(settings.text_positions, settings.width)
        self.encoder = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(settings) for _ in range(settings.decoder_layers))
        self.decoder_norm = nn.LayerNorm(settings.width)
        self.video_out = nn.Linear(settings.width, settings.projection)
        self.text_out = nn.Linear(settings.width, settings.projection)
        self.alignable = nn.Linear(settings.width, 1) if settings.alignability else None
        self.apply(_freshen)

    def forward(self, batch: Batch) -> Aligned:
        """Return how the texts of a batch fit its seconds. Raises ShapeError for inputs that do not fit."""
        self._check(batch)
        seconds, texts = Rows.of(batch.video_pad, never_none=True), Rows.of(batch.text_pad, never_none=False)
        video = self.video_in(self._scale(seconds.pack(batch.video)))  # (R, D)
        video, video_place = self._place(video, seconds.pack(self._seconds(batch)))
        for layer in self.encoder:
            video = layer(video, video_place, seconds)
        text = self.text_in(self._scale(texts.pack(batch.text)))  # (R, D)
        text, text_place = self._place(text, texts.pack(self._order(batch)))
        outputs = []
        for layer in self.decoder:
            text = layer(text, text_place, texts, video, video_place, seconds)
            outputs.append(self.decoder_norm(text))
        return self._compare(torch.stack(outputs), video, texts, seconds)

    def _compare(self, text: Tensor, video: Tensor, texts: Rows, seconds: Rows) -> Aligned:
        """Return unit vectors, float32 whatever autocast says: a bf16 cosine near 1 errs by 0.06 after tau."""
        with torch.autocast(video.device.type, enabled=False):
            text, video = text.float(), video.float()  # (L, R, D), (R, D)
            head = self.alignable
            alignable = texts.unpack(head(text[-1])).squeeze(-1) if head is not None else None  # (B, K)
            shown, seen = texts.unpack(_unit(self.text_out(text))), seconds.unpack(_unit(self.video_out(video)))
            return Aligned(shown, seen, alignable)

    def _place(self, rows: Tensor, place: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the rows, and the places that attention is to add; the paper adds them here, once."""
        return (rows, place) if self.settings.form == "released" else (rows + place, None)

    def _seconds(self, batch: Batch) -> Tensor:
        """Return the fixed places of seconds, (B, T, D)."""
        place = sine_positions(batch.video.shape[1], self.settings.width, batch.video.device)  # (T, D)
        return place.expand(len(batch.video), -1, -1)

    def _order(self, batch: Batch) -> Tensor:
        """Return the learned places of the texts, zero where they are in no order, (B, K, D)."""
        place = self.text_place.weight[: batch.text.shape[1]]  # (K, D) or fewer: `_check` lets it be unordered only
        place = nn.functional.pad(place, (0, 0, 0, batch.text.shape[1] - len(place)))  # (K, D)
        return place * batch.ordered[:, None, None]  # (B, K, D)

    def _scale(self, rows: Tensor) -> Tensor:
        """Return the rows with mean square 1 each, or as they are; a row of zeros stays."""
        if self.settings.feature_scale == "none":
            return rows
        return rows * rows.square().mean(dim=-1, keepdim=True).clamp(min=FAINT**2).rsqrt()

    def _check(self, batch: Batch) -> None:
        settings = self.settings
        widths = {"video": (batch.video, settings.video_width), "text": (batch.text, settings.text_width)}
        for name, (rows, width) in widths.items():
            if rows.shape[-1] != width:
                raise ShapeError(f"{name} features have width {rows.shape[-1]}, the model takes {width}; use its own")
        if not batch.video.shape[0] or not batch.video.shape[1]:
            raise ShapeError(f"the video needs at least one feature row, not {tuple(batch.video.shape[:2])}")
        if batch.text.shape[1] > settings.text_positions and bool(batch.ordered.any()):
            raise ShapeError(
                f"{batch.text.shape[1]} texts in order are more than the {settings.text_positions} places that the "
                "model has learned; give fewer at a time, or in no order"
            )


class EncoderLayer(nn.Module):  # type: ignore[misc]
    """Seconds attend to seconds, then a feed-forward; each added, then normalised."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.attention = Attention(settings.width, settings.heads, settings.attention_dropout)
        self.feed = FeedForward(settings.width, settings.feed_forward, settings.dropout)
        self.attention_norm, self.feed_norm = (nn.LayerNorm(settings.width) for _ in range(2))
        self.dropout = settings.dropout

    def forward(self, video: Tensor, place: Tensor | None, layout: Rows) -> Tensor:
        """Return (R, D) for video (R, D)."""
        video = self.attention_norm(video + self._drop(self.attention.within(video, place, layout)))
        return self.feed_norm(video + self._drop(self.feed(video)))

    def _drop(self, rows: Tensor) -> Tensor:
        return dropout(rows, self.dropout, self.training)


class DecoderLayer(nn.Module):  # type: ignore[misc]
    """Texts attend to texts, then to seconds, then a feed-forward; each added, then normalised."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.self_attention = Attention(settings.width, settings.heads, settings.attention_dropout)
        self.cross_attention = Attention(settings.width, settings.heads, settings.attention_dropout)
        self.feed = FeedForward(settings.width, settings.feed_forward, settings.dropout)
        self.self_norm, self.cross_norm, self.feed_norm = (nn.LayerNorm(settings.width) for _ in range(3))
        self.dropout = settings.dropout

    def forward(
        self,
        text: Tensor,
        place: Tensor | None,
        layout: Rows,
        video: Tensor,
        video_place: Tensor | None,
        video_layout: Rows,
    ) -> Tensor:
        """Return (R, D) for text (R, D) and the rows of the video."""
        text = self.self_norm(text + self._drop(self.self_attention.within(text, place, layout)))
        seen = self.cross_attention.across(text, place, layout, video, video_place, video_layout)  # (R, D)
        text = self.cross_norm(text + self._drop(seen))
        return self.feed_norm(text + self._drop(self.feed(text)))

    def _drop(self, rows: Tensor) -> Tensor:
        return dropout(rows, self.dropout, self.training)


def _projection(given: int, settings: ModelSettings) -> nn.Module:
    linear = Linear(given, settings.width)
    return nn.Sequential(linear, nn.LayerNorm(settings.width)) if settings.form == "released" else nn.Sequential(linear)


def _freshen(module: nn.Module) -> None:
    """Draw fresh weights as the released code does; packed attention projections keep Xavier's."""
    if isinstance(module, Attention):
        nn.init.xavier_uniform_(module.project.weight)  # children come first, so this undoes what follows for them
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.trunc_normal_(module.weight, std=SPREAD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def _unit(rows: Tensor) -> Tensor:
    """Return the rows at length 1; a row of no length stays 0 and passes no gradient, instead of a huge one."""
    square = rows.square().sum(dim=-1, keepdim=True)
    return torch.where(square > FAINT**2, rows * square.clamp(min=FAINT**2).rsqrt(), torch.zeros_like(rows))
