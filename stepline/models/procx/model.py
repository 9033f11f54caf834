"""The network that finds and describes the steps of a silent video: ProcX section 5, appendix D and
figure 8.

    levels = encoder(pyramid(values))                 4 scales, deformable self-attention
    q_l, box_l, confidence_l, count_l = decoder(queries)   N learned queries; every layer moves the boxes of the last
    words_l = word_decoder(word queries, box_l)       a second set of queries, with `query_form` "roles"
    sentence = captioner(words or q, fuse_levels(levels))   of the queries that are asked

Each block's sum is normalised after it, as in PDVC. Attributes that are modules or parameters
(`sure`, `places`, `among`, ...) are keys of the weights on disk, so their names stay.
Source: ProcX. What it leaves open is PDVC's code, as `settings.py` lists. Letters: B videos, R
rows, F width of a feature row, L decoder layers or levels, P positions of all levels one after the
other. N queries, C counts, M captions, H heads, D width.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.models.procx.batch import VideoBatch
from stepline.models.procx.captioner import CaptionContext, Captioner
from stepline.models.procx.deformable_attention import DeformableAttention
from stepline.models.procx.lstm_captioner import LstmCaptioner
from stepline.models.procx.matcher import QueryIndex
from stepline.models.procx.settings import ModelSettings, PositionForm
from stepline.models.training.layers import Dropout, FeedForward, Linear

PRIOR_PROBABILITY = 0.01  # P(a query found a step) at the start; RetinaNet, PDVC's code
LOGIT_EPSILON = 1e-5  # positions are kept so far from 0 and 1 before their logit; Deformable DETR
# of a box's length at the start, about an eighth of the video. PDVC's code
INITIAL_LENGTH_LOGIT = -2.0
# normalised together: the 32 groups of PDVC's width 512. A lone one would lose its level
CHANNELS_PER_GROUP = 16
SINE_PERIOD = 10_000  # of the slowest sine; PDVC's code
LENGTH_EPSILON = 1e-6  # PDVC's code
# rows from the beginning of a row to where its position is. 0.5: PDVC's code
POSITION_OFFSETS: Mapping[PositionForm, float] = {"middle": 0.5, "end": 1.0}
LEAST_TEMPERATURE = 0.01  # CLIP


@dataclass(frozen=True)
class Predictions:
    """Outputs of the prediction heads at all L decoder layers, in order.

    Attributes:
        logits: (L, B, N) confidence logits of N queries in B videos.
        boxes: (L, B, N, 2) predicted center and length as fractions of the video.
        counts: (L, B, C) logits of the step counts 0 to C - 1.
    """

    logits: Tensor
    boxes: Tensor
    counts: Tensor


@dataclass(frozen=True)
class ModelOutput:
    """Output of the network for B videos.

    Attributes:
        predictions: confidence, box and step count of each decoder layer.
        queries: (L, B, N, D) N query vectors of width D after each of L decoder layers.
        word_queries: (L, B, N, D) query vectors from which captions are written. They are `queries`
            unless `query_form` is "roles".
        levels: (B, P, D) encoder outputs of all temporal scales, concatenated.
        lengths: number of positions of each temporal scale. They sum to P.
        fused: (B, R, D) sum of all scales at the finest resolution, for the captioner. None: the
            captioner does not use it.
        empty: (B,), True for a video without feature rows. None: every video has rows.
    """

    predictions: Predictions
    queries: Tensor
    word_queries: Tensor
    levels: Tensor
    lengths: tuple[int, ...]
    fused: Tensor | None
    empty: Tensor | None


def standardise(values: Tensor) -> Tensor:
    """Return features (B, R, F) scaled to a root mean square of 1 per video. Features of zero stay
    zero.

    The values of unit rows are near 1 / sqrt(F), too small against the initial biases of the
    convolutions.
    """
    size = values.float().square().mean(dim=(1, 2), keepdim=True).sqrt()  # (B, 1, 1)
    return values / size.clamp(min=1e-12)


class FeaturePyramid(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Temporal pyramid of a video's features. The first level keeps all rows, each further level
    halves the number of rows by a strided convolution. Source: PDVC's code."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width = settings.attention.width
        self.steps = nn.ModuleList()
        for level in range(settings.attention.levels):
            # the second level is made of the features too, as PDVC's code has it
            width_in = settings.features if level <= 1 else width
            self.steps.append(_pyramid_step(width_in, width, level))

    def forward(self, values: Tensor) -> list[Tensor]:
        """Return the levels of the pyramid, finest first. Level l from 0 is (B, R / 2^l, D), where the
        number of rows is rounded up.

        values: (B, R, F) feature rows of B videos.
        """
        rows = values.transpose(1, 2)  # (B, F, R)
        levels = [self.steps[0](rows)]
        for step in self.steps[1:]:
            rows = step(rows)  # (B, D, R / 2^level)
            levels.append(rows)
        return [level.transpose(1, 2) for level in levels]


def _pyramid_step(width_in: int, width: int, level: int) -> nn.Sequential:
    if level == 0:
        convolution = nn.Conv1d(width_in, width, kernel_size=1)
    else:
        convolution = nn.Conv1d(width_in, width, kernel_size=3, stride=2, padding=1)
    nn.init.xavier_uniform_(convolution.weight)
    nn.init.zeros_(convolution.bias)
    groups = width // math.gcd(CHANNELS_PER_GROUP, width)
    return nn.Sequential(convolution, nn.GroupNorm(groups, width))


class PositionalEncoding(nn.Module):  # type: ignore[misc]
    """Encoding of the relative time, the video's duration and the pyramid level of each position.

    Half of the channels are sines and cosines of the position as a fraction of the video. The other
    half is a linear map of the duration, given as a vector with 1 for each elapsed second and 0
    after it. If `longest_duration` is 0, all channels are sines and cosines. A learned vector of the
    level is added. Source: PDVC's code.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width = settings.attention.width
        self.longest = settings.longest_duration
        self.offset = POSITION_OFFSETS[settings.position_form]
        self.sines = width
        self.duration: nn.Linear | None = None
        if self.longest:
            self.sines = width // 2
            self.duration = nn.Linear(self.longest, width - self.sines)
        self.level = nn.Parameter(torch.randn(settings.attention.levels, width))

    def forward(self, lengths: Sequence[int], durations: Tensor) -> Tensor:
        """Return the encoding of the P positions of all levels, (B, P, D) float32.

        Args:
            lengths: number of positions of each level. They sum to P.
            durations: (B,) length of each video in seconds.
        """
        device = durations.device

        # the fraction of the video that has passed
        fractions = []
        for length in lengths:
            rows = torch.arange(length, device=device) + self.offset
            fractions.append(rows / (length + LENGTH_EPSILON))
        sines = sinusoidal_encoding(torch.cat(fractions), self.sines)
        encoding = sines.expand(len(durations), -1, -1)  # (B, P, D / 2)

        # how long the video is
        if self.duration is not None:
            seconds = torch.arange(self.longest, device=device)
            is_elapsed = seconds < durations[:, None].floor()  # (B, 256)
            duration = self.duration(is_elapsed.to(self.level.dtype))[:, None]  # (B, 1, D / 2)
            by_position = duration.expand(-1, encoding.shape[1], -1)
            encoding = torch.cat((encoding, by_position), dim=-1)  # (B, P, D)

        # which level it is of
        counts = torch.tensor(lengths, device=device)
        level = torch.repeat_interleave(self.level, counts, dim=0, output_size=sum(lengths))
        return encoding + level


def sinusoidal_encoding(fraction: Tensor, width: int) -> Tensor:
    """Return the sinusoidal encoding of positions, (P, width), with alternating sines and cosines.

    Args:
        fraction: (P,) positions as fractions of the video.
        width: number of channels.
    """
    slow = torch.arange(width, device=fraction.device) // 2 * 2 / width  # (width,)
    angle = fraction[:, None] * (2 * math.pi) / SINE_PERIOD**slow  # (P, width)
    return torch.stack((angle[:, 0::2].sin(), angle[:, 1::2].cos()), dim=2).flatten(1)


def reference_points(lengths: Sequence[int], like: Tensor) -> Tensor:
    """Return the center of each position of all levels as a fraction of the video, (P,).

    Args:
        lengths: number of positions of each level. They sum to P.
        like: any tensor on the device on which the result is needed.
    """
    device = like.device
    return torch.cat([(torch.arange(length, device=device) + 0.5) / length for length in lengths])


def fuse_levels(levels: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return the sum of all levels at the finest resolution, (B, R, D).

    Args:
        levels: (B, P, D) encoder outputs of all levels, concatenated.
        lengths: number of positions of each level. The first is R, they sum to P.

    Source: appendix D, Multi-Scale Fusion.
    """
    finest, *coarser = levels.split(list(lengths), dim=1)
    total = finest
    for level in coarser:
        stretched = F.interpolate(
            level.transpose(1, 2), size=lengths[0], mode="linear", align_corners=False
        )
        total = total + stretched.transpose(1, 2)
    return total


class EncoderLayer(nn.Module):  # type: ignore[misc]
    """Encoder layer: deformable self-attention, then a feed-forward block."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.attention = DeformableAttention(settings.attention)
        self.attention_norm = nn.LayerNorm(settings.attention.width)
        self.feed = ResidualFeedForward(settings)
        self.drop = Dropout(settings.dropout)

    def forward(
        self,
        rows: Tensor,
        encoding: Tensor,
        references: Tensor,
        lengths: Sequence[int],
        pad: Tensor | None,
    ) -> Tensor:
        """Return the rows (B, P, D) after the layer.

        Args:
            rows: (B, P, D) rows of all pyramid levels, concatenated.
            encoding: (B, P, D) positional encoding.
            references: (B, P, L, 1) reference point of each row on each level, as fractions of the
                video.
            lengths: number of positions of each level. They sum to P.
            pad: (B, P), True on padding. None: no padding.
        """
        attended = self.attention(rows + encoding, references, rows, lengths, pad)
        return self.feed(self.attention_norm(rows + self.drop(attended)))


class DecoderLayer(nn.Module):  # type: ignore[misc]
    """Decoder layer: self-attention of the queries, deformable cross-attention to the video, then a
    feed-forward block."""

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
        encoding: Tensor,
        references: Tensor,
        levels: Tensor,
        lengths: Sequence[int],
        pad: Tensor | None,
    ) -> Tensor:
        """Return the queries (B, N, D) after the layer.

        Args:
            queries: (B, N, D) N query vectors per video.
            encoding: (B, N, D) positional encoding of the queries.
            references: (B, N, L, 1) reference points, or (B, N, L, 2) boxes (center, length), as
                fractions of the video.
            levels: (B, P, D) encoder outputs of all pyramid levels, concatenated.
            lengths: number of positions of each level. They sum to P.
            pad: (B, P), True on padding. None: no padding.
        """
        attended = self.among(queries + encoding, queries)
        queries = self.among_norm(queries + self.drop(attended))
        attended = self.attention(queries + encoding, references, levels, lengths, pad)
        return self.feed(self.attention_norm(queries + self.drop(attended)))


class SelfAttention(nn.Module):  # type: ignore[misc]
    """Multi-head self-attention among the queries of a video."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.asked = Linear(width, 2 * width)  # queries and keys
        self.value = Linear(width, width)
        self.out = Linear(width, width)
        # PDVC's code has queries, keys and values as one matrix (3 D, D), whose Xavier bound is this
        bound = math.sqrt(6 / (width + 3 * width))
        nn.init.uniform_(self.asked.weight, -bound, bound)
        nn.init.uniform_(self.value.weight, -bound, bound)
        nn.init.xavier_uniform_(self.out.weight)
        for layer in (self.asked, self.value, self.out):
            nn.init.zeros_(layer.bias)

    def forward(self, encoded: Tensor, rows: Tensor) -> Tensor:
        """Return the self-attention output of N queries of B videos, (B, N, D).

        Args:
            encoded: (B, N, D) query vectors plus positional encoding, from which attention queries
                and keys are computed.
            rows: (B, N, D) query vectors, from which attention values are computed.
        """
        queries, keys = self.asked(encoded).chunk(2, dim=-1)
        attended_rows = F.scaled_dot_product_attention(
            *map(self._split_heads, (queries, keys, self.value(rows)))
        )  # (B, H, N, D/H)
        return self.out(attended_rows.transpose(1, 2).flatten(2))

    def _split_heads(self, rows: Tensor) -> Tensor:
        return rows.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class ResidualFeedForward(nn.Module):  # type: ignore[misc]
    """Feed-forward block of two linear layers with ReLU, a residual connection and a LayerNorm."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width = settings.attention.width
        self.feed = FeedForward(width, settings.feed_forward, settings.dropout)
        self.drop = Dropout(settings.dropout)
        self.norm = nn.LayerNorm(width)
        for layer in (self.feed.wide, self.feed.narrow):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the output (B, N, D) of the block for rows (B, N, D)."""
        update = self.feed(rows.flatten(0, 1)).view(rows.shape)
        return self.norm(rows + self.drop(update))


class PredictionHeads(nn.Module):  # type: ignore[misc]
    """Confidence, box and step-count heads of one decoder layer.

    Args:
        settings: sizes of the network.
        first: whether it is the first decoder layer, whose initial boxes are short.
    """

    def __init__(self, settings: ModelSettings, *, first: bool) -> None:
        super().__init__()
        width = settings.attention.width
        self.sure = nn.Linear(width, 1)  # confidence
        first_layer = Linear(width, width)
        second_layer = Linear(width, width)
        box_out = nn.Linear(width, 2)
        self.box = nn.Sequential(first_layer, nn.ReLU(), second_layer, nn.ReLU(), box_out)
        self.count = nn.Linear(width, settings.most_steps + 1)
        nn.init.constant_(self.sure.bias, -math.log((1 - PRIOR_PROBABILITY) / PRIOR_PROBABILITY))
        nn.init.zeros_(box_out.weight)
        nn.init.zeros_(box_out.bias)
        if first:
            nn.init.constant_(box_out.bias[1:], INITIAL_LENGTH_LOGIT)

    def forward(self, queries: Tensor, references: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return confidence logits (B, N), boxes (B, N, 2) float32 as (center, length), and
        step-count logits (B, C).

        Args:
            queries: (B, N, D) query vectors after the layer.
            references: (B, N, 1) points or (B, N, 2) boxes as fractions of the video. The heads
                predict offsets from them.
        """
        # (B, N, 1 or 2), no gradient passes at 0 and 1
        start = references.float().logit(eps=LOGIT_EPSILON)
        move, length = self.box(queries).float().tensor_split([start.shape[-1]], dim=-1)
        boxes = torch.cat((move + start, length), dim=-1).sigmoid()  # (B, N, 2)
        return self.sure(queries)[..., 0], boxes, self.count(queries.amax(dim=1))


class Temperature(nn.Module):  # type: ignore[misc]
    """Learned temperature sigma of the contrastive loss (equation 15), at least 0.01.

    start: initial value. The paper states none. CoCa and CLIP use 0.07.
    """

    def __init__(self, start: float = 0.07) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.tensor(math.log(start)))

    def forward(self) -> Tensor:
        """Return sigma as a scalar tensor."""
        return self.logarithm.exp().clamp(min=LEAST_TEMPERATURE)


class ProcX(nn.Module):  # type: ignore[misc]
    """ProcX's network with fresh weights, or PDVC's, depending on the settings.

    Args:
        settings: sizes and forms of the network.
        vocabulary: number of tokens in the caption vocabulary.
    """

    def __init__(self, settings: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        width = settings.attention.width

        # the video
        self.pyramid = FeaturePyramid(settings)
        self.places = PositionalEncoding(settings)
        self.encoder = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.encoder_layers))

        # the queries
        self.queries = nn.Embedding(settings.queries, width)
        self.query_places = nn.Embedding(settings.queries, width)
        self.reference = nn.Linear(width, 1)
        self.decoder = _decoder_layers(settings)
        self.heads = nn.ModuleList(
            PredictionHeads(settings, first=layer == 0) for layer in range(settings.decoder_layers)
        )
        if settings.query_form == "roles":
            self.word_queries = nn.Embedding(settings.queries, width)
            self.word_query_places = nn.Embedding(settings.queries, width)
            self.word_decoder = _decoder_layers(settings)

        # the sentences. Without a norm the fused levels drown the query
        is_transformer = settings.captioner.kind == "transformer"
        self.fused_norm: nn.LayerNorm | None = None
        if is_transformer and settings.fuse:
            self.fused_norm = nn.LayerNorm(width)
        self.captioner: Captioner | LstmCaptioner
        if is_transformer:
            self.captioner = Captioner(settings.captioner, vocabulary)
        else:
            self.captioner = LstmCaptioner(settings.captioner, vocabulary, settings.attention)
        self.temperature = Temperature()
        nn.init.xavier_uniform_(self.reference.weight)
        nn.init.zeros_(self.reference.bias)

    def forward(self, videos: VideoBatch) -> ModelOutput:
        """Return the predictions and query vectors of every decoder layer for a batch of videos.

        Raises ShapeError for features of another width than `settings.features`.
        """
        levels, lengths, pad = self._encode(videos)
        queries, predictions = self._decode(levels, lengths, pad)
        word_queries = queries
        if self.settings.query_form == "roles":
            word_queries = self._decode_words(predictions.boxes.detach(), levels, lengths, pad)
        fused = None
        if self.fused_norm is not None:
            fused = self.fused_norm(fuse_levels(levels, lengths))  # (B, R, D)
        return ModelOutput(predictions, queries, word_queries, levels, lengths, fused, videos.empty)

    def _encode(self, videos: VideoBatch) -> tuple[Tensor, tuple[int, ...], Tensor | None]:
        """Return the encoder outputs (B, P, D), the length of each level, and the padding mask (B,
        P) of empty videos."""
        values = videos.values
        if self.settings.standardise:
            values = standardise(values)
        levels = self.pyramid(values)
        lengths = tuple(level.shape[1] for level in levels)
        rows = torch.cat(levels, dim=1)  # (B, P, D)
        encoding = self.places(lengths, videos.durations)  # (B, P, D)
        pad = _padding_of_empty_videos(rows, videos.empty)
        points = reference_points(lengths, rows)[None, :, None, None]  # (1, P, 1, 1)
        references = points.expand(len(rows), -1, len(lengths), -1)  # (B, P, L, 1)
        for layer in self.encoder:
            rows = layer(rows, encoding, references, lengths, pad)
        return rows, lengths, pad

    def _decode(
        self, levels: Tensor, lengths: tuple[int, ...], pad: Tensor | None
    ) -> tuple[Tensor, Predictions]:
        """Return the query vectors (L, B, N, D) and the predictions of all decoder layers.

        Args:
            levels: (B, P, D) encoder outputs.
            lengths: number of positions of each level.
            pad: (B, P), True on padding. None: no padding.
        """
        size = (len(levels), -1, -1)
        queries = self.queries.weight.expand(size)  # (B, N, D)
        places = self.query_places.weight
        encoding = places.expand(size)  # (B, N, D)
        references = self.reference(places).sigmoid().expand(size)  # (B, N, 1)
        queries_by_layer = []
        logits = []
        boxes = []
        counts = []
        for layer, heads in zip(self.decoder, self.heads, strict=True):
            at_levels = _repeat_for_levels(references, lengths)
            queries = layer(queries, encoding, at_levels, levels, lengths, pad)
            layer_logits, layer_boxes, layer_counts = heads(queries, references)
            queries_by_layer.append(queries)
            logits.append(layer_logits)
            boxes.append(layer_boxes)
            counts.append(layer_counts)
            references = layer_boxes.detach()
        predictions = Predictions(torch.stack(logits), torch.stack(boxes), torch.stack(counts))
        return torch.stack(queries_by_layer), predictions

    def _decode_words(
        self, boxes: Tensor, levels: Tensor, lengths: tuple[int, ...], pad: Tensor | None
    ) -> Tensor:
        """Return the word queries (L, B, N, D) of all layers. Each layer attends to the video at
        the boxes that the main decoder predicted in the same layer.

        Args:
            boxes: (L, B, N, 2) predicted boxes of each layer.
            levels: (B, P, D) encoder outputs.
            lengths: number of positions of each level.
            pad: (B, P), True on padding. None: no padding.

        Source: queries by role are from ROS-DVC and DDVC. Attention at these boxes is an addition
        of this implementation.
        """
        size = (len(levels), -1, -1)
        queries = self.word_queries.weight.expand(size)  # (B, N, D)
        encoding = self.word_query_places.weight.expand(size)  # (B, N, D)
        by_layer = []
        for layer, references in zip(self.word_decoder, boxes, strict=True):
            at_levels = _repeat_for_levels(references, lengths)
            queries = layer(queries, encoding, at_levels, levels, lengths, pad)
            by_layer.append(queries)
        return torch.stack(by_layer)

    def caption_context(self, output: ModelOutput, query_index: QueryIndex) -> CaptionContext:
        """Return the queries and video features from which the captions of M queries are written.

        Args:
            output: output of the network.
            query_index: layer, video and number of each of the M queries.
        """
        index = (query_index.layer, query_index.video, query_index.query)
        queries = output.word_queries[index]  # (M, D)
        if self.settings.captioner.kind == "lstm":
            return CaptionContext(
                queries,
                query_index.video,
                feature_pad=_padding_of_empty_videos(output.levels, output.empty),
                levels=output.levels,
                lengths=output.lengths,
                boxes=output.predictions.boxes[index].detach(),  # (M, 2)
            )
        if output.fused is None:
            return CaptionContext(queries, query_index.video)
        pad = _padding_of_empty_videos(output.fused, output.empty)
        return CaptionContext(queries, query_index.video, output.fused, pad)


def _decoder_layers(settings: ModelSettings) -> nn.ModuleList:
    return nn.ModuleList(DecoderLayer(settings) for _ in range(settings.decoder_layers))


def _repeat_for_levels(references: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return references (B, N, 1 or 2) repeated for each level, (B, N, L, 1 or 2)."""
    return references[:, :, None].expand(-1, -1, len(lengths), -1)


def _padding_of_empty_videos(rows: Tensor, empty: Tensor | None) -> Tensor | None:
    """Return the padding mask (B, P), True on all rows of empty videos. None: no video is empty.

    Args:
        rows: (B, P, D) rows of the videos.
        empty: (B,), True for a video without feature rows. None: every video has rows.
    """
    return None if empty is None else empty[:, None].expand(rows.shape[:2])
