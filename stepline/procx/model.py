"""The network that finds and describes the steps of a silent video: ProcX section 5, appendix D and figure 8.

    levels = encoder(pyramid(values))                 4 scales, deformable self-attention
    q_l, box_l, sure_l, count_l = decoder(queries)    N learned queries; every layer moves the boxes of the one before
    sentence = captioner(q, fused(levels))            of the queries that are asked

Source: ProcX; what it leaves open is PDVC's code, as `model_settings.py` lists. Letters: B videos, R rows, N queries,
L decoder layers, P positions of all levels, D width, M captions, A tokens of what is said.

What each decoder layer says of its queries: how sure, where, and how many steps there are.

Letters: B videos, N queries, D width, C counts.

Layers of the visual encoder and of the localisation decoder; each block's sum is normalised after it, as in PDVC.

Letters: B videos, P positions of all levels, N queries, L levels, D width.

Features at several temporal scales, where in the video each position stands, and all scales as one.

Letters: B videos, R rows, C width of a feature row, D width, L levels, P positions of all levels one after the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.procx.batch import Videos
from stepline.procx.captioner import CaptionContext, Captioner
from stepline.procx.deformable_attention import DeformableAttention
from stepline.procx.losses import Predictions, Temperature
from stepline.procx.lstm_captioner import LstmCaptioner
from stepline.procx.settings import ModelSettings
from stepline.training.layers import Dropout, FeedForward, Linear

PRIOR_PROBABILITY = 0.01  # P(a query found a step) at the start; RetinaNet, PDVC's code
LOGIT_EPSILON = 1e-5  # shares of a video are kept so far from 0 and 1 before their logit; Deformable DETR
INITIAL_LENGTH_LOGIT = -2.0  # logit of a box's length at the start, about an eighth of the video; PDVC's code


class PredictionHeads(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """The three heads of one decoder layer. first: whether it is the first layer, whose boxes begin short."""

    def __init__(self, settings: ModelSettings, *, first: bool) -> None:
        super().__init__()
        width = settings.attention.width
        self.sure = nn.Linear(width, 1)
        self.box = nn.Sequential(Linear(width, width), nn.ReLU(), Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
        self.count = nn.Linear(width, settings.most_steps + 1)
        nn.init.constant_(self.sure.bias, -math.log((1 - PRIOR_PROBABILITY) / PRIOR_PROBABILITY))
        nn.init.zeros_(self.box[-1].weight)
        nn.init.zeros_(self.box[-1].bias)
        if first:
            nn.init.constant_(self.box[-1].bias[1:], INITIAL_LENGTH_LOGIT)

    def forward(self, queries: Tensor, references: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits of confidence (B, N), boxes (B, N, 2) float32, and logits of counts (B, C).

        references: (B, N, 1), points, or (B, N, 2), boxes, in [0, 1], which the boxes move from.
        """
        moved = self.box(queries).float()  # (B, N, 2)
        near = logit(references.float())
        moved = torch.cat((moved[..., : near.shape[-1]] + near, moved[..., near.shape[-1] :]), dim=-1)
        return self.sure(queries)[..., 0], moved.sigmoid(), self.count(queries.amax(dim=1))


def logit(share: Tensor) -> Tensor:
    """Return the logit of shares, finite at 0 and 1, where no gradient passes."""
    return share.logit(eps=LOGIT_EPSILON)


class EncoderLayer(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Positions read each other at a few points, then a feed-forward."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.attention = DeformableAttention(settings.attention)
        self.attention_norm = nn.LayerNorm(settings.attention.width)
        self.feed = ResidualFeedForward(settings)
        self.drop = Dropout(settings.dropout)

    def forward(
        self, rows: Tensor, places: Tensor, references: Tensor, lengths: Sequence[int], pad: Tensor | None
    ) -> Tensor:
        """Return rows (B, P, D) after the layer. places: as rows; references: (B, P, L, 1); pad: (B, P)."""
        read = self.attention(rows + places, references, rows, lengths, pad)
        return self.feed(self.attention_norm(rows + self.drop(read)))


class DecoderLayer(nn.Module):  # type: ignore[misc]
    """Queries see each other, then a few points of the video, then a feed-forward."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width = settings.attention.width
        self.among = SelfAttention(width, settings.attention.heads)
        self.among_norm = nn.LayerNorm(width)
        self.attention = DeformableAttention(settings.decoder_attention)
        self.attention_norm = nn.LayerNorm(width)
        self.feed = ResidualFeedForward(settings)
        self.drop = Dropout(settings.dropout)

    def forward(
        self,
        queries: Tensor,
        places: Tensor,
        references: Tensor,
        levels: Tensor,
        lengths: Sequence[int],
        pad: Tensor | None,
    ) -> Tensor:
        """Return queries (B, N, D) after the layer. references: (B, N, L, 1 or 2); levels: (B, P, D); pad: (B, P)."""
        seen = self.among(queries + places, queries)
        queries = self.among_norm(queries + self.drop(seen))
        read = self.attention(queries + places, references, levels, lengths, pad)
        return self.feed(self.attention_norm(queries + self.drop(read)))


class SelfAttention(nn.Module):  # type: ignore[misc]
    """Every query sees every query of its video."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.asked = Linear(width, 2 * width)  # queries and keys
        self.value, self.out = Linear(width, width), Linear(width, width)

    def forward(self, placed: Tensor, rows: Tensor) -> Tensor:
        """Return what rows (B, N, D) read of each other, (B, N, D); placed: rows with their places, which are asked."""
        parts = (*self.asked(placed).chunk(2, dim=-1), self.value(rows))
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)  # (B, H, N, D/H)
        mixed: Tensor = self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        return mixed


class ResidualFeedForward(nn.Module):  # type: ignore[misc]
    """Two linear layers with ReLU between them, added to what they read, and the norm of it."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width = settings.attention.width
        self.feed = FeedForward(width, settings.feed_forward, settings.dropout)
        self.drop, self.norm = Dropout(settings.dropout), nn.LayerNorm(width)

    def forward(self, rows: Tensor) -> Tensor:
        """Return (B, N, D) for rows (B, N, D)."""
        fed = self.feed(rows.flatten(0, 1)).view(rows.shape)
        return self.norm(rows + self.drop(fed))


CHANNELS_PER_GROUP = (
    16  # channels normalised together: the 32 groups of PDVC's width 512; a lone one would lose its level
)
PERIOD = 10_000  # of the slowest sine; PDVC's code


def standardise(values: Tensor) -> Tensor:
    """Return features (B, R, C) scaled so that the numbers of each video are 1 on average; zero stays zero.

    Unit rows have numbers near 1 / sqrt(C), which the convolutions' biases outgrow before the contents are learned.
    """
    size = values.float().square().mean(dim=(1, 2), keepdim=True).sqrt()  # (B, 1, 1)
    return values / size.clamp(min=1e-12)


class FeaturePyramid(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Levels of half the length each: a linear map of the rows, then strided convolutions. Source: PDVC's code."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width, levels = settings.attention.width, settings.attention.levels
        given = [settings.features if level <= 1 else width for level in range(levels)]
        self.steps = nn.ModuleList(_step(wide, width, level) for level, wide in enumerate(given))

    def forward(self, values: Tensor) -> list[Tensor]:
        """Return each level of rows (B, R, C), the finest first: (B, R / 2^level, D), halves rounded up."""
        rows = values.transpose(1, 2)  # (B, C, R)
        levels = [self.steps[0](rows)]
        for step in self.steps[1:]:  # the second level is made of the features, as PDVC's code has it
            rows = step(rows)  # (B, D, R / 2^level)
            levels.append(rows)
        return [level.transpose(1, 2) for level in levels]


def _step(width_in: int, width: int, level: int) -> nn.Sequential:
    kernel = {"kernel_size": 1} if level == 0 else {"kernel_size": 3, "stride": 2, "padding": 1}
    convolution = nn.Conv1d(width_in, width, **kernel)
    nn.init.xavier_uniform_(convolution.weight)
    nn.init.zeros_(convolution.bias)
    return nn.Sequential(convolution, nn.GroupNorm(width // math.gcd(CHANNELS_PER_GROUP, width), width))


class PositionalEncoding(nn.Module):  # type: ignore[misc]
    """What is added to say where a position stands, how long the video is, and which level it is of.

    Half of the width are sines of the share of the video that has passed, half a linear map of the duration as a row
    of ones; PDVC's code. With `longest_duration` 0 all are sines.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width, self.longest = settings.attention.width, settings.longest_duration
        self.sines = width // 2 if self.longest else width
        self.duration = nn.Linear(self.longest, width - self.sines) if self.longest else None
        self.level = nn.Parameter(torch.randn(settings.attention.levels, width))

    def forward(self, lengths: Sequence[int], durations: Tensor) -> Tensor:
        """Return the places of all levels' positions, (B, P, D) float32. durations: (B,) seconds."""
        device = durations.device
        share = torch.cat([(torch.arange(length, device=device) + 1) / (length + EPSILON) for length in lengths])
        sines = sinusoidal_encoding(share, self.sines).expand(len(durations), -1, -1)  # (B, P, D / 2)
        if self.duration is not None:
            passed = torch.arange(self.longest, device=device) < durations[:, None].floor()  # (B, 256)
            long = self.duration(passed.to(self.level.dtype))[:, None]  # (B, 1, D / 2)
            sines = torch.cat((sines, long.expand(-1, sines.shape[1], -1)), dim=-1)
        return sines + torch.repeat_interleave(self.level, torch.tensor(lengths, device=device), dim=0)


EPSILON = 1e-6  # PDVC's code


def sinusoidal_encoding(share: Tensor, width: int) -> Tensor:
    """Return sines and cosines in turn, of `width` in all, for shares (P,) of a video: (P, width)."""
    slow = torch.arange(width, device=share.device) // 2 * 2 / width  # (width,)
    angle = share[:, None] * (2 * math.pi) / PERIOD**slow  # (P, width)
    return torch.stack((angle[:, 0::2].sin(), angle[:, 1::2].cos()), dim=2).flatten(1)


def fuse_levels(levels: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return all levels (B, P, D) stretched to the finest and added up, (B, R, D): appendix D, Multi-Scale Fusion."""
    finest, *coarser = levels.split(list(lengths), dim=1)
    total = finest
    for level in coarser:
        stretched = F.interpolate(level.transpose(1, 2), size=lengths[0], mode="linear", align_corners=False)
        total = total + stretched.transpose(1, 2)
    return total


def reference_points(lengths: Sequence[int], like: Tensor) -> Tensor:
    """Return the share of the video that has passed at the middle of each position, (P,)."""
    return torch.cat([(torch.arange(length, device=like.device) + 0.5) / length for length in lengths])


@dataclass(frozen=True)
class ModelOutput:
    """What the network made of a batch.

    queries: (L, B, N, D) after each decoder layer. levels: (B, P, D), `lengths` positions of each level one after the
    other; fused: (B, R, D), None where the captioner does not look at it; empty: as in `Videos`.
    """

    proposed: Predictions
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
class QueryIndex:
    """Queries that somebody picked, (M,) each."""

    layer: Tensor
    video: Tensor
    query: Tensor


def chosen(layer: int, video: Tensor, query: Tensor) -> QueryIndex:
    """Return queries (M,) of videos (M,) at one decoder layer, -1 for the last."""
    return QueryIndex(torch.full_like(video, layer), video, query)


class ProcX(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """ProcX's network, or PDVC's by its settings; fresh until weights are loaded. vocabulary: how many tokens."""

    def __init__(self, settings: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        width, layers = settings.attention.width, settings.decoder_layers
        self.pyramid, self.places = FeaturePyramid(settings), PositionalEncoding(settings)
        self.encoder = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.encoder_layers))
        self.queries, self.query_places = nn.Embedding(settings.queries, width), nn.Embedding(settings.queries, width)
        self.reference = nn.Linear(width, 1)
        self.decoder = nn.ModuleList(DecoderLayer(settings) for _ in range(layers))
        self.heads = nn.ModuleList(PredictionHeads(settings, first=layer == 0) for layer in range(layers))
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

    def forward(self, videos: Videos) -> ModelOutput:
        """Return what every decoder layer says of the videos. Raises ShapeError for values of another width."""
        values = videos.values
        if values.ndim != 3 or values.shape[2] != self.settings.features or not values.shape[1]:
            wanted = f"(videos, rows, {self.settings.features})"
            raise ShapeError(f"features must be {wanted}, not {tuple(values.shape)}; set model.features to their width")
        levels, lengths, pad = self._encode(videos)
        queries, proposed = self._decode(levels, lengths, pad)
        rows = None if self.fused_norm is None else self.fused_norm(fuse_levels(levels, lengths))
        return ModelOutput(proposed, queries, levels, lengths, rows, videos.empty)

    def _encode(self, videos: Videos) -> tuple[Tensor, tuple[int, ...], Tensor | None]:
        """Return the encoded levels (B, P, D), their lengths, and which of their positions are of empty videos."""
        values = standardise(videos.values) if self.settings.standardise else videos.values
        levels = self.pyramid(values)
        lengths = tuple(level.shape[1] for level in levels)
        rows = torch.cat(levels, dim=1)  # (B, P, D)
        places = self.places(lengths, videos.durations)
        pad = _pad(rows, videos.empty)
        where = reference_points(lengths, rows)[None, :, None, None]
        references = where.expand(len(rows), -1, len(lengths), -1)  # (B, P, L, 1)
        for layer in self.encoder:
            rows = layer(rows, places, references, lengths, pad)
        return rows, lengths, pad

    def _decode(self, levels: Tensor, lengths: tuple[int, ...], pad: Tensor | None) -> tuple[Tensor, Predictions]:
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
        return torch.stack(kept), Predictions(logits, boxes, counts)

    def context(
        self, seen: ModelOutput, asked: Chosen, said: Tensor | None = None, said_pad: Tensor | None = None
    ) -> CaptionContext:
        """Return what the captions of M queries are about. said: (M, A) tokens spoken around each, and their mask."""
        place = (asked.layer, asked.video, asked.query)
        queries = seen.queries[place]
        if self.settings.captioner.kind == "lstm":
            boxes = seen.proposed.boxes[place].detach()  # (M, 2)
            pad = _pad(seen.levels, seen.empty)
            return CaptionContext(
                queries, video=asked.video, feature_pad=pad, levels=seen.levels, lengths=seen.lengths, boxes=boxes
            )
        if seen.fused is None:
            return CaptionContext(queries, transcript=said, transcript_pad=said_pad)
        return CaptionContext(queries, seen.fused, asked.video, _pad(seen.fused, seen.empty), said, said_pad)


def _pad(rows: Tensor, empty: Tensor | None) -> Tensor | None:
    """Return which rows (B, P, D) are of empty videos, (B, P); None: none."""
    return None if empty is None else empty[:, None].expand(rows.shape[:2])
