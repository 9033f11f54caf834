"""The grounding network: features of a video and K sentences to how well each sentence fits each second.

    h_v = phi_v(x_v), h_j = phi_j(x_j)            projections to D, with places p_v and, for texts in order, p_j
    o_v = encoder(h_v), o_j = decoder(h_j, o_v)   texts are queries, seconds keys and values
    A[k, t] = cos(z_j[k], z_v[t])                 z: projections of o to d

Source: NaSVA, section 3.2. Differs, as the released weights need it: LayerNorm on the projections, places added to
queries and keys at every attention and never to values; `form="paper"` does as printed.
Letters: B batch, K texts, T feature rows, C input width, D width, d projection, L decoder layers; inside the network
a batch is one matrix of R rows, the seconds or the texts of all its videos (`rows.py`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stepline.batches import Batch
from stepline.errors import ShapeError
from stepline.layers.dropout import drop
from stepline.layers.feed_forward import FeedForward
from stepline.layers.linear import Linear
from stepline.nasva.attention import Attention, sine_positions
from stepline.nasva.model_settings import ModelSettings
from stepline.nasva.rows import Rows

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
        return drop(rows, self.dropout, self.training)


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
        return drop(rows, self.dropout, self.training)


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
