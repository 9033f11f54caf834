"""The captioner: from what a query saw to a sentence, in CoCa's form. Half of its layers see the words
alone, half the words and the query.

    u = text layers(words, CLS)                  words see earlier words, CLS sees all of them
    h = joint layers(u, [query; features])
    P(next word) = softmax(norm(h) E^T + b)      E: the embedding of the words
    v_text = unit(W_t norm(u_CLS)), v_query = unit(W_q query)   for the contrastive loss

Source: ProcX section 5 and appendix D. Yu et al. 2022 (CoCa). Differs: the features next to the
query are an option. Attributes that are modules or parameters are keys of the weights on disk, so
their names stay. Letters: M captions of B videos, K captions of the video with most, W tokens, T
feature rows, S keys, H heads, D width, V vocabulary, d projection.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.models.procx.settings import CaptionerSettings
from stepline.models.training.layers import Dropout, Linear, linear

EMBEDDING_STD = 0.02  # standard deviation of fresh embeddings; GPT-2


@dataclass(frozen=True)
class CaptionContext:
    """What M captions are about.

    Attributes:
        queries: (M, D) decoder queries, one per caption.
        video: (M,) index of each caption's video.
        features: (B, T, D) fused rows of the videos, which the transformer reads. None: the
            query alone.
        feature_pad: (B, T), or (B, P) with `levels`, True on padding. None: no padding.
        levels: (B, P, D) encoded levels one after the other, which the LSTM reads.
        lengths: positions of each level, P in all.
        boxes: (M, 2) center and length of each caption's step, for the LSTM.
    """

    queries: Tensor
    video: Tensor
    features: Tensor | None = None
    feature_pad: Tensor | None = None
    levels: Tensor | None = None
    lengths: tuple[int, ...] = ()
    boxes: Tensor | None = None


@dataclass(frozen=True)
class CaptionerOutput:
    """Result of teacher forcing.

    Attributes:
        logits: (M, W, V) of each next token.
        text_vectors: (M, d) unit vectors of the sentences, None from a captioner without any.
    """

    logits: Tensor
    text_vectors: Tensor | None


class KeyValueSource(Protocol):
    """Keys and values in some form: a cache of each caption's own, or those that a video's
    captions share."""

    def attend(self, query: Tensor) -> Tensor:
        """Return what queries (M, H, W, D/H) attend to, (M, H, W, D/H)."""


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values (M, H, S, D/H) that each caption attends to."""

    keys: Tensor
    values: Tensor

    def attend(self, query: Tensor) -> Tensor:
        """Return what queries (M, H, W, D/H) attend to, (M, H, W, D/H)."""
        attended_rows: Tensor = F.scaled_dot_product_attention(query, self.keys, self.values)
        return attended_rows

    def concat(self, later: "KeyValueCache") -> "KeyValueCache":
        """Return the cache with the later keys and values after it, (M, H, S + S', D/H)."""
        keys = torch.cat((self.keys, later.keys), dim=2)
        return KeyValueCache(keys, torch.cat((self.values, later.values), dim=2))


@dataclass(frozen=True)
class CaptionSlots:
    """Where each caption is in a table of (B, K), the captions by video.

    Attributes:
        video: (M,) row of each caption in the table.
        slot: (M,) column of each caption.
        video_count: B.
        slot_count: K.
    """

    video: Tensor
    slot: Tensor
    video_count: int
    slot_count: int

    @staticmethod
    def of(video: Tensor, video_count: int) -> "CaptionSlots":
        """Return the slots of captions of these videos, (M,) in any order. M is above 0."""
        earlier = (video[:, None] == video).tril(-1)  # (M, M)
        slot = earlier.sum(dim=1)  # (M,) captions of the video before it
        return CaptionSlots(video, slot, video_count, int(slot.max()) + 1)

    def scatter(self, rows: Tensor) -> Tensor:
        """Return rows (M, ...) as a table (B, K, ...), the empty slots zero."""
        empty = rows.new_zeros(self.video_count, self.slot_count, *rows.shape[1:])
        return empty.index_put((self.video, self.slot), rows)

    def gather(self, table: Tensor) -> Tensor:
        """Return the rows (M, ...) of a table (B, K, ...)."""
        return table[self.video, self.slot]


@dataclass(frozen=True)
class VideoKeyValues:
    """Keys and values of captions, without a copy of a video's rows for each of its captions.

    Attributes:
        shared: (B, H, T, D/H) of the videos' rows, which all captions of a video see.
        own: (M, H, 1, D/H) of each caption's query, which only that caption sees.
        keep: (B, T), False on padded rows. None: no padding.
        slots: of the captions.
    """

    shared: KeyValueCache
    own: KeyValueCache
    keep: Tensor | None
    slots: CaptionSlots

    def attend(self, query: Tensor) -> Tensor:
        """Return what queries (M, H, W, D/H) attend to, (M, H, W, D/H)."""
        table = self.slots.scatter(query).transpose(1, 2)  # (B, H, K, W, D/H)
        queries = table.flatten(2, 3)  # (B, H, K W, D/H)
        keys = self._with_own(self.shared.keys, self.own.keys)  # (B, H, T + K, D/H)
        values = self._with_own(self.shared.values, self.own.values)
        mask = self._attention_mask(query.shape[2])
        attended_rows = F.scaled_dot_product_attention(queries, keys, values, mask)
        return self.slots.gather(attended_rows.view(table.shape).transpose(1, 2))

    def _with_own(self, shared: Tensor, own: Tensor) -> Tensor:
        """Return the rows of the videos and of their captions' queries, (B, H, T + K, D/H)."""
        table = self.slots.scatter(own[:, :, 0])  # (B, K, H, D/H)
        return torch.cat((shared, table.transpose(1, 2)), dim=2)

    def _attention_mask(self, word_count: int) -> Tensor:
        """Return a mask (B or 1, 1, K W, T + K): a word sees the video's rows and its own query."""
        device = self.shared.keys.device
        sees_query = torch.eye(self.slots.slot_count, dtype=torch.bool, device=device)
        sees_query = sees_query.repeat_interleave(word_count, dim=0)  # (K W, K)
        keep = self.keep
        if keep is None:
            keep = sees_query.new_ones(1, self.shared.keys.shape[2])
        sees_video = keep[:, None, None].expand(-1, -1, len(sees_query), -1)
        return torch.cat((sees_video, sees_query.expand(len(keep), 1, -1, -1)), dim=3)


class Attention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Multi-head attention to keys and values that were computed before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = Linear(width, width)
        self.remembered = Linear(width, 2 * width)
        self.out = Linear(width, width)

    def key_values(self, rows: Tensor) -> KeyValueCache:
        """Return rows (M, S, D) as keys and values."""
        keys, values = self.remembered(rows).chunk(2, dim=-1)  # (M, S, D) each
        return KeyValueCache(self._split_heads(keys), self._split_heads(values))

    def forward(self, rows: Tensor, context: KeyValueSource) -> Tensor:
        """Return rows (M, W, D) attended to a context."""
        attended_rows = context.attend(self._split_heads(self.query(rows)))  # (M, H, W, D/H)
        return self.out(attended_rows.transpose(1, 2).reshape(rows.shape))

    def self_attend(
        self, rows: Tensor, *, keep: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Return rows (M, W, D) attended to each other.

        Args:
            rows: of the words.
            keep: (M, 1, W, W), True where a row sees another one. None: as `causal` says.
            causal: row w sees only rows up to w.
        """
        cache = self.key_values(rows)
        attended_rows = F.scaled_dot_product_attention(
            self._split_heads(self.query(rows)), cache.keys, cache.values, keep, is_causal=causal
        )  # (M, H, W, D/H)
        return self.out(attended_rows.transpose(1, 2).reshape(rows.shape))

    def _split_heads(self, rows: Tensor) -> Tensor:
        """Return (M, S, D) as (M, H, S, D/H)."""
        return rows.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class CaptionerLayer(nn.Module):  # type: ignore[misc]
    """Self-attention of the words, cross-attention to a context if the layer has it, then a
    feed-forward block. Each block normalises its input."""

    def __init__(
        self, width: int, heads: int, inner: int, dropout: float, *, has_cross_attention: bool
    ) -> None:
        super().__init__()
        self.within = Attention(width, heads)
        self.within_norm = nn.LayerNorm(width)
        self.across: Attention | None = None
        self.across_norm: nn.LayerNorm | None = None
        if has_cross_attention:
            self.across = Attention(width, heads)
            self.across_norm = nn.LayerNorm(width)
        wide = Linear(width, inner)
        narrow = Linear(inner, width)
        self.feed = nn.Sequential(wide, nn.GELU(), Dropout(dropout), narrow)
        self.feed_norm = nn.LayerNorm(width)
        self.drop = Dropout(dropout)

    def forward(
        self,
        rows: Tensor,
        context: KeyValueSource | None = None,
        *,
        keep: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Return rows (M, W, D) after the layer.

        Args:
            rows: of the words.
            context: that the words attend to. None: words alone.
            keep: (M, 1, W, W), True where a word sees another one. None: as `causal` says.
            causal: word w sees only words up to w.
        """
        attended = self.within.self_attend(self.within_norm(rows), keep=keep, causal=causal)
        rows = rows + self.drop(attended)
        return self._cross_and_feed(rows, context)

    def step(
        self, rows: Tensor, past: KeyValueCache | None, context: KeyValueSource | None
    ) -> tuple[Tensor, KeyValueCache]:
        """Return the next word's row (M, 1, D) after the layer, and the keys and values of all
        words so far.

        Args:
            rows: (M, 1, D) of the next word.
            past: keys and values of the words before. None: no words.
            context: that the word attends to. None: words alone.
        """
        normed = self.within_norm(rows)
        cache = self.within.key_values(normed)
        if past is not None:
            cache = past.concat(cache)
        rows = rows + self.drop(self.within(normed, cache))
        return self._cross_and_feed(rows, context), cache

    def _cross_and_feed(self, rows: Tensor, context: KeyValueSource | None) -> Tensor:
        if self.across is not None and self.across_norm is not None and context is not None:
            normed = self.across_norm(rows)
            rows = rows + self.drop(self.across(normed, context))
        normed = self.feed_norm(rows)
        return rows + self.drop(self.feed(normed))


@dataclass
class DecoderState:
    """State of captions that are written word by word.

    Attributes:
        contexts: what each joint layer attends to.
        pasts: keys and values (M, H, S, D/H) of the words so far, of each layer.
        length: S, words so far.
    """

    contexts: Sequence[KeyValueSource]
    pasts: list[KeyValueCache | None] = field(default_factory=list)
    length: int = 0


class Captioner(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """ProcX's text decoder with fresh weights.

    Args:
        settings: sizes of the captioner.
        vocabulary: number of tokens.
    """

    def __init__(self, settings: CaptionerSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.longest = settings.longest
        width = settings.width

        # words, and the layers on them
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(settings.longest, width)
        # CLS: comes after the words, has no position
        self.whole = nn.Parameter(torch.randn(width) * EMBEDDING_STD)
        self.text_layers = _layers(settings, settings.text_layers, has_cross_attention=False)
        self.joint_layers = _layers(settings, settings.joint_layers, has_cross_attention=True)
        self.norm = nn.LayerNorm(width)
        self.text_norm = nn.LayerNorm(width)

        # what comes out
        self.text_out = nn.Linear(width, settings.projection, bias=False)
        self.query_out = nn.Linear(width, settings.projection, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

        # tells query and features apart. The third was that of transcripts, in earlier versions
        self.kinds = nn.Parameter(torch.randn(3, width) * EMBEDDING_STD)
        self.drop = Dropout(settings.dropout)
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=EMBEDDING_STD)

    def forward(
        self, tokens: Tensor, token_pad: Tensor, context: CaptionContext
    ) -> CaptionerOutput:
        """Return logits of what comes after each token, and the sentences' vectors.

        Args:
            tokens: (M, W) numbers of tokens, padded at the end.
            token_pad: (M, W), True on padding.
            context: of the M captions.
        """
        rows, vectors = self._encode_words(tokens, token_pad)  # (M, W, D), (M, d)
        contexts = self._layer_contexts(context)
        for layer, layer_context in zip(self.joint_layers, contexts, strict=True):
            rows = layer(rows, layer_context, causal=True)  # (M, W, D)
        return CaptionerOutput(self._logits(rows), vectors)

    def query_vectors(self, queries: Tensor) -> Tensor:
        """Return unit vectors (M, d) of queries (M, D), to be compared with those of sentences."""
        return F.normalize(self.query_out(queries).float(), dim=-1)

    def begin(self, context: CaptionContext) -> DecoderState:
        """Return the state from which captions of this context are written."""
        layer_count = len(self.text_layers) + len(self.joint_layers)
        return DecoderState(self._layer_contexts(context), [None] * layer_count)

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Return the logits (M, V) of what comes after the last tokens (M,), and add these to the
        state."""
        words = self.words(tokens)[:, None]
        rows = words + self.places.weight[state.length]  # (M, 1, D)
        contexts = [*[None] * len(self.text_layers), *state.contexts]
        for index, layer in enumerate((*self.text_layers, *self.joint_layers)):
            rows, state.pasts[index] = layer.step(rows, state.pasts[index], contexts[index])
        state.length += 1
        return self._logits(rows)[:, 0]

    def _encode_words(self, tokens: Tensor, token_pad: Tensor) -> tuple[Tensor, Tensor]:
        """Return each word's row (M, W, D) after the layers on words alone, and the unit vectors
        (M, d) of the sentences."""
        captions, width = tokens.shape
        words = self.words(tokens) + self.places.weight[:width]
        rows = self.drop(words)  # (M, W, D)
        cls = self.whole.expand(captions, 1, -1)
        rows = torch.cat((rows, cls), dim=1)  # (M, W + 1, D)

        # the mask (M, 1, W + 1, W + 1): words see earlier ones and themselves, CLS all real ones
        itself = torch.eye(width + 1, dtype=torch.bool, device=token_pad.device)
        earlier = torch.ones_like(itself).tril()
        real = F.pad(~token_pad, (0, 1), value=True)  # (M, W + 1)
        keep = (earlier & real[:, None, None]) | itself
        for layer in self.text_layers:
            rows = layer(rows, keep=keep)
        whole = self.text_norm(rows[:, -1])
        whole = self.text_out(whole)  # (M, d)
        return rows[:, :-1], F.normalize(whole.float(), dim=-1)

    def _logits(self, rows: Tensor) -> Tensor:
        return linear(self.norm(rows), self.words.weight, self.bias)

    def _layer_contexts(self, context: CaptionContext) -> Sequence[KeyValueSource]:
        """Return what each joint layer attends to. Captions of one video share the video's rows."""
        attentions: list[Attention] = [layer.across for layer in self.joint_layers]
        queries = (context.queries + self.kinds[0])[:, None]  # (M, 1, D)
        if context.features is None or not len(queries):
            return [attention.key_values(queries) for attention in attentions]
        # only the videos that have captions
        present, video = context.video.unique(return_inverse=True)
        slots = CaptionSlots.of(video, len(present))
        rows = context.features[present] + self.kinds[1]
        keep = None if context.feature_pad is None else ~context.feature_pad[present]
        return [
            VideoKeyValues(attention.key_values(rows), attention.key_values(queries), keep, slots)
            for attention in attentions
        ]


def _layers(settings: CaptionerSettings, count: int, *, has_cross_attention: bool) -> nn.ModuleList:
    layers = nn.ModuleList()
    for _ in range(count):
        layer = CaptionerLayer(
            settings.width,
            settings.heads,
            settings.feed_forward,
            settings.dropout,
            has_cross_attention=has_cross_attention,
        )
        layers.append(layer)
    return layers
