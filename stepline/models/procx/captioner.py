"""The text decoder: from what a query saw to a sentence, in CoCa's form, half on words alone, half
on words and query.

    u = text layers(words, CLS)                  words see earlier words, CLS sees all of them
    h = joint layers(u, [query; features; transcript])
    P(next word) = softmax(norm(h) E^T + b)      E: the embedding of the words
    v_text = unit(W_t norm(u_CLS)), v_query = unit(W_q query)   for the contrastive loss

Source: ProcX section 5 and appendix D. Yu et al. 2022 (CoCa). Differs: the features next to the
query, and a transcript, are options. Attributes that are modules or parameters are keys of the
weights on disk, so their names stay. Letters: M captions of B videos, K captions of the video with
most, W tokens, T feature rows, A transcript tokens. S
keys, H heads, D width, V vocabulary, d projection.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.models.procx.settings import CaptionerSettings
from stepline.models.training.layers import Dropout, Linear, linear

EMBEDDING_STD = 0.02  # standard deviation of fresh embeddings; GPT-2


@dataclass(frozen=True)
class CaptionContext:
    """What M captions are about.

    queries: (M, D).
    features: (B, T, D) fused rows of the videos, or None.
    video: (M,) whose each caption is.
    feature_pad: (B, T).
    transcript: (M, A) tokens of what is said around each, or None.
    transcript_pad: (M, A).
    For the LSTM alone:
    levels: (B, P, D), `lengths` positions of each one after the other. feature_pad is (B, P) then.
    boxes: (M, 2), the center and length of each caption's step.
    """

    queries: Tensor
    features: Tensor | None = None
    video: Tensor | None = None
    feature_pad: Tensor | None = None
    transcript: Tensor | None = None
    transcript_pad: Tensor | None = None
    levels: Tensor | None = None
    lengths: tuple[int, ...] = ()
    boxes: Tensor | None = None


@dataclass(frozen=True)
class CaptionerOutput:
    """What the captioner says.

    logits: (M, W, V) of each next token.
    text_vectors: (M, d), unit vectors of the sentences, None without any.
    """

    logits: Tensor
    text_vectors: Tensor | None


class Attendable(Protocol):
    """Keys and values in some form: a cache of each caption's own, or those that a video's captions
    share."""

    def attend(self, query: Tensor) -> Tensor:
        """Return what queries (M, H, W, D/H) attend to, (M, H, W, D/H)."""


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values (M, H, S, D/H) of what may be attended to. keep: (M, 1, 1, S), None: all of
    it."""

    keys: Tensor
    values: Tensor
    keep: Tensor | None = None

    def attend(self, query: Tensor, keep: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return what queries (M, H, W, D/H) attend to, (M, H, W, D/H). keep: (M, 1, W, S) in place
        of its own."""
        if keep is None:
            keep = self.keep
        mixed: Tensor = F.scaled_dot_product_attention(
            query, self.keys, self.values, keep, is_causal=causal
        )
        return mixed

    def concat(self, later: "KeyValueCache") -> "KeyValueCache":
        """Return the cache with what comes after it, (M, H, S + S', D/H)."""
        both_keys = (self.keys, later.keys)
        both_values = (self.values, later.values)
        keys = torch.cat(both_keys, dim=2)
        values = torch.cat(both_values, dim=2)
        if self.keep is None and later.keep is None:
            return KeyValueCache(keys, values)
        own_mask = self._full_keep()
        later_mask = later._full_keep()
        keep = torch.cat((own_mask, later_mask), dim=3)
        return KeyValueCache(keys, values, keep)

    def take(self, rows: Tensor) -> "KeyValueCache":
        """Return the keys and values of these captions, (M,) indices."""
        keep = self.keep
        if keep is not None:
            keep = keep[rows]
        keys = self.keys[rows]
        values = self.values[rows]
        return KeyValueCache(keys, values, keep)

    def _full_keep(self) -> Tensor:
        """Return the mask, (M, 1, 1, S), also where everything is kept."""
        if self.keep is not None:
            return self.keep
        captions, _, length, _ = self.keys.shape
        return self.keys.new_ones(captions, 1, 1, length).bool()


@dataclass(frozen=True)
class VideoSlots:
    """Where each caption is in a table of (B, K), the captions by video: video and slot (M,)
    each."""

    video: Tensor
    slot: Tensor
    videos: int
    slots: int

    @staticmethod
    def of(video: Tensor, videos: int) -> "VideoSlots":
        """Return the slots of captions whose videos these are, (M,), in any order. M is above 0."""
        same = video[:, None] == video  # (M, M)
        earlier = same.tril(-1)
        slot = earlier.sum(dim=1)  # (M,) captions of the video before it
        slots = int(slot.max()) + 1
        return VideoSlots(video, slot, videos, slots)

    def scatter(self, rows: Tensor) -> Tensor:
        """Return rows (M, ...) as a table (B, K, ...), the empty slots zero."""
        shape = rows.shape[1:]
        empty = rows.new_zeros(self.videos, self.slots, *shape)
        return empty.index_put((self.video, self.slot), rows)

    def gather(self, table: Tensor) -> Tensor:
        """Return the rows (M, ...) of a table (B, K, ...)."""
        return table[self.video, self.slot]


@dataclass(frozen=True)
class VideoKeyValues:
    """What captions attend to, without a copy of a video's rows for each of its captions.

    shared: (B, H, T, D/H), rows of the videos, which all captions of a video see.
    own: (M, H, 1, D/H), of each caption's query, which it alone sees.
    Equal to `own.concat(shared.take(video))`.
    """

    shared: KeyValueCache
    own: KeyValueCache
    slots: VideoSlots

    def attend(self, query: Tensor) -> Tensor:
        """Return what queries (M, H, W, D/H) attend to, (M, H, W, D/H)."""
        table = self.slots.scatter(query).transpose(1, 2)  # (B, H, K, W, D/H)
        queries = table.flatten(2, 3)  # (B, H, K W, D/H)
        keys = self._with_own(self.shared.keys, self.own.keys)  # (B, H, T + K, D/H)
        values = self._with_own(self.shared.values, self.own.values)
        mixed = F.scaled_dot_product_attention(queries, keys, values, self._keep(query))
        by_slot = mixed.view(table.shape).transpose(1, 2)  # (B, K, H, W, D/H)
        return self.slots.gather(by_slot)

    def _with_own(self, shared: Tensor, own: Tensor) -> Tensor:
        """Return the rows of the videos and of their captions' queries, (B, H, T + K, D/H)."""
        table = self.slots.scatter(own[:, :, 0])  # (B, K, H, D/H)
        by_head = table.transpose(1, 2)
        return torch.cat((shared, by_head), dim=2)

    def _keep(self, query: Tensor) -> Tensor:
        """Return the attention mask, (B or 1, 1, K W, T + K): a word sees the video's rows and its
        own query."""
        rows = self.shared.keys.shape[2]
        slots = self.slots.slots
        itself = torch.eye(slots, dtype=torch.bool, device=query.device)
        itself = itself.repeat_interleave(query.shape[2], dim=0)  # (K W, K)
        real = self.shared.keep  # (B or 1, 1, 1, T)
        if real is None:
            real = itself.new_ones(1, 1, 1, rows)
        sees_video = real.expand(-1, -1, len(itself), -1)
        sees_query = itself.expand(len(real), 1, -1, -1)
        return torch.cat((sees_video, sees_query), dim=3)


class Attention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Multi-head attention to keys and values that were made before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = Linear(width, width)
        self.remembered = Linear(width, 2 * width)
        self.out = Linear(width, width)

    def key_values(self, rows: Tensor, pad: Tensor | None = None) -> KeyValueCache:
        """Return rows (M, S, D) as keys and values. pad: (M, S), True where a row is padding."""
        both = self.remembered(rows)
        keys, values = both.chunk(2, dim=-1)  # (M, S, D) each
        keep = None
        if pad is not None:
            keep = ~pad[:, None, None]  # (M, 1, 1, S)
        keys = self._split_heads(keys)
        values = self._split_heads(values)
        return KeyValueCache(keys, values, keep)

    def forward(self, rows: Tensor, context: Attendable) -> Tensor:
        """Return rows (M, W, D) attended to what M captions see."""
        mixed = context.attend(self._split_heads(self.query(rows)))  # (M, H, W, D/H)
        return self.out(mixed.transpose(1, 2).reshape(rows.shape))

    def self_attend(
        self, rows: Tensor, *, keep: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Return rows (M, W, D) attended to each other. keep: (M, 1, W, W). causal: row w attends
        up to w alone."""
        query = self._split_heads(self.query(rows))  # (M, H, W, D/H)
        cache = self.key_values(rows)
        mixed = cache.attend(query, keep, causal=causal)  # (M, H, W, D/H)
        return self.out(mixed.transpose(1, 2).reshape(rows.shape))

    def _split_heads(self, rows: Tensor) -> Tensor:
        """Return (M, S, D) as (M, H, S, D/H)."""
        return rows.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class CaptionerLayer(nn.Module):  # type: ignore[misc]
    """Words attend to words, then to a context if the layer has one, then a feed-forward. Each is
    normalised first."""

    def __init__(
        self, width: int, heads: int, inner: int, dropout: float, *, crosses: bool
    ) -> None:
        super().__init__()
        self.within = Attention(width, heads)
        self.within_norm = nn.LayerNorm(width)
        self.across: Attention | None = None
        self.across_norm: nn.LayerNorm | None = None
        if crosses:
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
        context: Attendable | None = None,
        *,
        keep: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Return rows (M, W, D) after the layer. keep and causal are as in
        `Attention.self_attend`, of the words."""
        attended = self.within.self_attend(self.within_norm(rows), keep=keep, causal=causal)
        rows = rows + self.drop(attended)
        return self._cross_and_feed(rows, context)

    def step(
        self, rows: Tensor, past: KeyValueCache | None, context: KeyValueCache | None
    ) -> tuple[Tensor, KeyValueCache]:
        """Return the next word's row (M, 1, D) after the layer, and the past (M, H, S, D/H) with
        that word in it."""
        normed = self.within_norm(rows)
        cache = self.within.key_values(normed)
        if past is not None:
            cache = past.concat(cache)
        rows = rows + self.drop(self.within(normed, cache))
        return self._cross_and_feed(rows, context), cache

    def _cross_and_feed(self, rows: Tensor, context: Attendable | None) -> Tensor:
        """Return rows after cross-attention and feed-forward."""
        if self.across is not None and self.across_norm is not None and context is not None:
            normed = self.across_norm(rows)
            rows = rows + self.drop(self.across(normed, context))
        normed = self.feed_norm(rows)
        return rows + self.drop(self.feed(normed))


@dataclass
class DecoderState:
    """Captions under way: each joint layer's keys and values of the context (M), each layer's of
    the words."""

    contexts: list[KeyValueCache]
    pasts: list[KeyValueCache | None] = field(default_factory=list)
    length: int = 0


class Captioner(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """ProcX's text decoder, fresh until weights are loaded."""

    def __init__(self, settings: CaptionerSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.longest = settings.longest
        width = settings.width

        # words, and the layers on them
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(settings.longest, width)
        # CLS: comes after the words, has no position
        whole = torch.randn(width) * EMBEDDING_STD
        self.whole = nn.Parameter(whole)
        self.text_layers = _layers(settings, settings.text_layers, crosses=False)
        self.joint_layers = _layers(settings, settings.joint_layers, crosses=True)
        self.norm = nn.LayerNorm(width)
        self.text_norm = nn.LayerNorm(width)

        # what comes out
        self.text_out = nn.Linear(width, settings.projection, bias=False)
        self.query_out = nn.Linear(width, settings.projection, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

        # the transcript, and what tells query, features and transcript apart
        self.transcript_places = nn.Embedding(settings.longest_transcript, width)
        self.transcript_layers = _layers(settings, settings.transcript_layers, crosses=False)
        kinds = torch.randn(3, width) * EMBEDDING_STD
        self.kinds = nn.Parameter(kinds)
        self.drop = Dropout(settings.dropout)
        for table in (self.words, self.places, self.transcript_places):
            nn.init.normal_(table.weight, std=EMBEDDING_STD)

    def forward(
        self, tokens: Tensor, token_pad: Tensor, context: CaptionContext
    ) -> CaptionerOutput:
        """Return logits of what comes after each token, and the sentences' vectors. tokens,
        token_pad: (M, W), padded at the end.

        Raises ShapeError when there are more tokens than positions, or the context is of other
        captions.
        """
        self._check(tokens, context)
        rows, text = self._encode_words(tokens, token_pad)  # (M, W, D), (M, d)
        contexts = self._training_context(context)
        for layer, keys in zip(self.joint_layers, contexts, strict=True):
            rows = layer(rows, keys, causal=True)  # (M, W, D)
        return CaptionerOutput(self._logits(rows), text)

    def sentence_vectors(self, tokens: Tensor, token_pad: Tensor) -> Tensor:
        """Return unit vectors (M, d) of sentences alone, (M, W) tokens as `forward` takes them."""
        _, vectors = self._encode_words(tokens, token_pad)
        return vectors

    def query_vectors(self, queries: Tensor) -> Tensor:
        """Return unit vectors (M, d) of queries (M, D), to be compared with those of sentences."""
        return F.normalize(self.query_out(queries).float(), dim=-1)

    def begin(self, context: CaptionContext) -> DecoderState:
        """Return the state from which captions of this context are written."""
        self._check(None, context)
        layers = len(self.text_layers) + len(self.joint_layers)
        return DecoderState(self._context_caches(context), [None] * layers)

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Return the logits (M, V) of what comes after the last tokens (M,). `state` then holds
        them."""
        words = self.words(tokens)[:, None]
        rows = words + self.places.weight[state.length]  # (M, 1, D)
        contexts: list[KeyValueCache | None] = [None] * len(self.text_layers)
        contexts += state.contexts
        for index, layer in enumerate((*self.text_layers, *self.joint_layers)):
            past = state.pasts[index]
            rows, state.pasts[index] = layer.step(rows, past, contexts[index])
        state.length += 1
        return self._logits(rows)[:, 0]

    def _encode_words(self, tokens: Tensor, token_pad: Tensor) -> tuple[Tensor, Tensor]:
        """Return each word's row (M, W, D) after the layers on words alone, and the sentences' unit
        vectors (M, d)."""
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
        """Return logits (M, W, V) by the embedding of the words itself."""
        return linear(self.norm(rows), self.words.weight, self.bias)

    def _training_context(self, context: CaptionContext) -> Sequence[Attendable]:
        """Return what each joint layer's captions attend to, by video where they can share its
        rows."""
        features = context.features
        video = context.video
        if features is None or video is None or context.transcript is not None or not len(video):
            return self._context_caches(context)
        slots = VideoSlots.of(video, len(features))
        caches = []
        for layer in self.joint_layers:
            shared = layer.across.key_values(features + self.kinds[1], context.feature_pad)
            queries = context.queries + self.kinds[0]
            own = layer.across.key_values(queries[:, None])
            caches.append(VideoKeyValues(shared, own, slots))
        return caches

    def _context_caches(self, context: CaptionContext) -> list[KeyValueCache]:
        """Return each joint layer's keys and values of the context, M of each. The features' are
        made once per video."""
        transcript = self._encode_transcript(context)
        caches = []
        for layer in self.joint_layers:
            attention: Attention = layer.across
            queries = context.queries + self.kinds[0]
            cache = attention.key_values(queries[:, None])  # (M, H, 1, D/H)
            if context.features is not None and context.video is not None:
                rows = context.features + self.kinds[1]
                features = attention.key_values(rows, context.feature_pad)
                by_caption = features.take(context.video)
                cache = cache.concat(by_caption)  # (M, H, 1 + T, D/H)
            if transcript is not None:
                rows = transcript + self.kinds[2]
                cache = cache.concat(attention.key_values(rows, context.transcript_pad))
            caches.append(cache)
        return caches

    def _encode_transcript(self, context: CaptionContext) -> Tensor | None:
        """Return the transcript's words as rows (M, A, D), after layers in which they see each
        other."""
        tokens = context.transcript
        if tokens is None or not tokens.shape[1]:
            return None
        pad = context.transcript_pad
        places = self.transcript_places.weight[: tokens.shape[1]]
        rows = self.drop(self.words(tokens) + places)  # (M, A, D)
        keep = None
        if pad is not None:
            # every word sees itself, so that a row of padding alone has no NaN
            length = pad.shape[1]
            itself = torch.eye(length, dtype=torch.bool, device=pad.device)
            keep = ~pad[:, None, None] | itself  # (M, 1, A, A)
        for layer in self.transcript_layers:
            rows = layer(rows, keep=keep)
        return rows

    def _check(self, tokens: Tensor | None, context: CaptionContext) -> None:
        captions = len(context.queries)
        if tokens is not None:
            count, length = tokens.shape
            if length > self.longest or count != captions:
                expected = f"({captions}, at most {self.longest}), captions by tokens"
                raise ShapeError(f"tokens must be {expected}, not {(count, length)}")
        if context.queries.shape[1:] != (self.settings.width,):
            expected = f"(captions, {self.settings.width})"
            shape = tuple(context.queries.shape)
            raise ShapeError(f"queries must be {expected}, not {shape}; set captioner.width")
        if (context.features is None) != (context.video is None):
            raise ShapeError(
                "features need the video of each caption, and it them; give both or neither"
            )
        transcript = context.transcript
        most = self.settings.longest_transcript
        if transcript is not None:
            count, length = transcript.shape
            if count != captions or length > most:
                expected = f"({captions}, at most {most}), captions by tokens"
                raise ShapeError(f"a transcript must be {expected}, not {(count, length)}")


def _layers(settings: CaptionerSettings, count: int, *, crosses: bool) -> nn.ModuleList:
    """Return this many layers of the captioner's sizes."""
    layers = nn.ModuleList()
    for _ in range(count):
        layer = CaptionerLayer(
            settings.width, settings.heads, settings.feed_forward, settings.dropout, crosses=crosses
        )
        layers.append(layer)
    return layers
