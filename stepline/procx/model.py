"""The network that finds and describes the steps of a silent video: ProcX section 5, appendix D and figure 8.

    levels = encoder(pyramid(values))                 4 scales, deformable self-attention
    q_l, box_l, sure_l, count_l = decoder(queries)    N learned queries; every layer moves the boxes of the one before
    sentence = captioner(q, fused(levels))            of the queries that are asked

Source: ProcX; what it leaves open is PDVC's code, as `model_settings.py` lists. Letters: B videos, R rows, N queries,
L decoder layers, P positions of all levels, D width, M captions, A tokens of what is said.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.procx.batch import Videos
from stepline.procx.captioner import Captioner, Context
from stepline.procx.contrast import Temperature
from stepline.procx.heads import Heads
from stepline.procx.layers import DecoderLayer, EncoderLayer
from stepline.procx.losses import Proposed
from stepline.procx.lstm_captioner import LstmCaptioner
from stepline.procx.model_settings import ModelSettings
from stepline.procx.pyramid import Places, Pyramid, fused, middles, standardised


@dataclass(frozen=True)
class Seen:
    """What the network made of a batch.

    queries: (L, B, N, D) after each decoder layer. levels: (B, P, D), `lengths` positions of each level one after the
    other; fused: (B, R, D), None where the captioner does not look at it; empty: as in `Videos`.
    """

    proposed: Proposed
    queries: Tensor
    levels: Tensor
    lengths: tuple[int, ...]
    fused: Tensor | None
    empty: Tensor | None


class Chosen(Protocol):
    """Queries to be captioned, by decoder layer, video and number, (M,) each; `matching.Pairs` is one."""

    @property
    def layer(self) -> Tensor:
        """Decoder layer."""

    @property
    def video(self) -> Tensor:
        """Row of the batch."""

    @property
    def query(self) -> Tensor:
        """Number of the query."""


@dataclass(frozen=True)
class Picked:
    """Queries that somebody picked, (M,) each."""

    layer: Tensor
    video: Tensor
    query: Tensor


def chosen(layer: int, video: Tensor, query: Tensor) -> Picked:
    """Return queries (M,) of videos (M,) at one decoder layer, -1 for the last."""
    return Picked(torch.full_like(video, layer), video, query)


class ProcX(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """ProcX's network, or PDVC's by its settings; fresh until weights are loaded. vocabulary: how many tokens."""

    def __init__(self, settings: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        width, layers = settings.attention.width, settings.decoder_layers
        self.pyramid, self.places = Pyramid(settings), Places(settings)
        self.encoder = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.encoder_layers))
        self.queries, self.query_places = nn.Embedding(settings.queries, width), nn.Embedding(settings.queries, width)
        self.reference = nn.Linear(width, 1)
        self.decoder = nn.ModuleList(DecoderLayer(settings) for _ in range(layers))
        self.heads = nn.ModuleList(Heads(settings, first=layer == 0) for layer in range(layers))
        transformer = settings.captioner.kind == "transformer"
        self.fused_norm = nn.LayerNorm(width) if transformer and settings.fuse else None  # else they drown the query
        self.captioner: Captioner | LstmCaptioner = (
            Captioner(settings.captioner, vocabulary)
            if transformer
            else LstmCaptioner(settings.captioner, vocabulary, settings.attention)
        )
        self.temperature = Temperature()
        nn.init.xavier_uniform_(self.reference.weight)
        nn.init.zeros_(self.reference.bias)

    def forward(self, videos: Videos) -> Seen:
        """Return what every decoder layer says of the videos. Raises ShapeError for values of another width."""
        values = videos.values
        if values.ndim != 3 or values.shape[2] != self.settings.features or not values.shape[1]:
            wanted = f"(videos, rows, {self.settings.features})"
            raise ShapeError(f"features must be {wanted}, not {tuple(values.shape)}; set model.features to their width")
        levels, lengths, pad = self._encode(videos)
        queries, proposed = self._decode(levels, lengths, pad)
        rows = None if self.fused_norm is None else self.fused_norm(fused(levels, lengths))
        return Seen(proposed, queries, levels, lengths, rows, videos.empty)

    def _encode(self, videos: Videos) -> tuple[Tensor, tuple[int, ...], Tensor | None]:
        """Return the encoded levels (B, P, D), their lengths, and which of their positions are of empty videos."""
        values = standardised(videos.values) if self.settings.standardise else videos.values
        levels = self.pyramid(values)
        lengths = tuple(level.shape[1] for level in levels)
        rows = torch.cat(levels, dim=1)  # (B, P, D)
        places = self.places(lengths, videos.durations)
        pad = _pad(rows, videos.empty)
        where = middles(lengths, rows)[None, :, None, None]
        references = where.expand(len(rows), -1, len(lengths), -1)  # (B, P, L, 1)
        for layer in self.encoder:
            rows = layer(rows, places, references, lengths, pad)
        return rows, lengths, pad

    def _decode(self, levels: Tensor, lengths: tuple[int, ...], pad: Tensor | None) -> tuple[Tensor, Proposed]:
        """Return the queries of every layer (L, B, N, D), and what is said of them."""
        size = (len(levels), -1, -1)
        queries, places = self.queries.weight.expand(size), self.query_places.weight.expand(size)  # (B, N, D) each
        start = references = self.reference(self.query_places.weight).sigmoid().expand(size)  # (B, N, 1)
        kept, said = [], []
        for layer, heads in zip(self.decoder, self.heads, strict=True):
            beside = references[:, :, None].expand(-1, -1, len(lengths), -1)  # (B, N, levels, 1 or 2)
            queries = layer(queries, places, beside, levels, lengths, pad)
            kept.append(queries)
            said.append(heads(queries, references))
            references = said[-1][1].detach() if self.settings.refine else start
        logits, boxes, counts = (torch.stack(part) for part in zip(*said, strict=True))
        return torch.stack(kept), Proposed(logits, boxes, counts)

    def context(self, seen: Seen, asked: Chosen, said: Tensor | None = None, said_pad: Tensor | None = None) -> Context:
        """Return what the captions of M queries are about. said: (M, A) tokens spoken around each, and their mask."""
        place = (asked.layer, asked.video, asked.query)
        queries = seen.queries[place]
        if self.settings.captioner.kind == "lstm":
            boxes = seen.proposed.boxes[place].detach()  # (M, 2)
            pad = _pad(seen.levels, seen.empty)
            return Context(
                queries, video=asked.video, feature_pad=pad, levels=seen.levels, lengths=seen.lengths, boxes=boxes
            )
        if seen.fused is None:
            return Context(queries, transcript=said, transcript_pad=said_pad)
        return Context(queries, seen.fused, asked.video, _pad(seen.fused, seen.empty), said, said_pad)


def _pad(rows: Tensor, empty: Tensor | None) -> Tensor | None:
    """Return which rows (B, P, D) are of empty videos, (B, P); None: none."""
    return None if empty is None else empty[:, None].expand(rows.shape[:2])
