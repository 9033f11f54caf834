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
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.models.procx.settings import CaptionerSettings
from stepline.models.training.layers import Dropout, Linear, linear

EMBEDDING_STD = 0.02  # standard deviation of fresh embeddings; GPT-2


@dataclass(frozen=True)
class CaptionContext:
    """Queries and video features from which M captions are written.

    Attributes:
        queries: (M, D) decoder queries, one per caption, D the width of the network.
        video: (M,) index of each caption's video in the batch.
        features: (B, T, D) fused feature rows of the B videos, for the transformer captioner. None:
            the captions are written from the queries only.
        feature_pad: True on padded rows: (B, T) for `features`, (B, P) for `levels`. None: no
            padding.
        levels: (B, P, D) encoder outputs of all temporal scales, concatenated, for the LSTM
            captioner.
        lengths: number of positions of each scale. They sum to P.
        boxes: (M, 2) center and length of each caption's step as fractions of the video, for the
            LSTM captioner.
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
    """Output of the captioner for M captions whose true words are given (teacher forcing).

    Attributes:
        logits: (M, W, V) logits over V tokens for the token after each of the W input tokens.
        text_vectors: (M, d) unit vectors of the sentences. None: the captioner makes none (LSTM).
    """

    logits: Tensor
    text_vectors: Tensor | None


@dataclass(frozen=True)
class KeyValueCache:
    """Attention keys and values of M captions.

    Attributes:
        keys: (M, H, S, D/H), S rows per caption, H heads, D the width.
        values: (M, H, S, D/H).
    """

    keys: Tensor
    values: Tensor

    def attend(self, query: Tensor) -> Tensor:
        """Return the attention output (M, H, W, D/H) of W query vectors per caption.

        query: (M, H, W, D/H), M captions, H heads, D the width.
        """
        attended_rows: Tensor = F.scaled_dot_product_attention(query, self.keys, self.values)
        return attended_rows

    def concat(self, later: "KeyValueCache") -> "KeyValueCache":
        """Return a cache (M, H, S + S', D/H) with the keys and values of `later` appended."""
        return KeyValueCache(
            torch.cat((self.keys, later.keys), dim=2), torch.cat((self.values, later.values), dim=2)
        )


@dataclass(frozen=True)
class CaptionSlots:
    """Row and column of each of M captions in a padded table (B, K) with one row per video.

    Attributes:
        video: (M,) row of each caption, which is its video.
        slot: (M,) column of each caption.
        video_count: B, number of videos.
        slot_count: K, largest number of captions of a video.
    """

    video: Tensor
    slot: Tensor
    video_count: int
    slot_count: int

    @staticmethod
    def from_videos(video: Tensor, video_count: int) -> "CaptionSlots":
        """Return the table positions of M captions. There must be at least one caption.

        Args:
            video: (M,) index of each caption's video, in any order.
            video_count: B, number of videos.
        """
        earlier = (video[:, None] == video).tril(-1)  # (M, M)
        slot = earlier.sum(dim=1)  # (M,) captions of the video before it
        return CaptionSlots(video, slot, video_count, int(slot.max()) + 1)

    def scatter(self, rows: Tensor) -> Tensor:
        """Return per-caption values (M, ...) as a padded table (B, K, ...), with 0 in unused
        entries."""
        empty = rows.new_zeros(self.video_count, self.slot_count, *rows.shape[1:])
        return empty.index_put((self.video, self.slot), rows)

    def gather(self, table: Tensor) -> Tensor:
        """Return the per-caption values (M, ...) of a padded table (B, K, ...)."""
        return table[self.video, self.slot]


@dataclass(frozen=True)
class VideoKeyValues:
    """Keys and values of M captions of B videos. The rows of a video are stored once for all its
    captions.

    Attributes:
        shared: (B, H, T, D/H) keys and values of the T feature rows of each video.
        own: (M, H, 1, D/H) key and value of the decoder query of each caption. Only that caption
            attends to it.
        keep: (B, T), False on padded feature rows. None: no padding.
        slots: row and column of each caption in a table with one row per video.
    """

    shared: KeyValueCache
    own: KeyValueCache
    keep: Tensor | None
    slots: CaptionSlots

    def attend(self, query: Tensor) -> Tensor:
        """Return the attention output (M, H, W, D/H) of W query vectors per caption.

        query: (M, H, W, D/H), M captions, H heads, D the width.
        """
        table = self.slots.scatter(query).transpose(1, 2)  # (B, H, K, W, D/H)
        queries = table.flatten(2, 3)  # (B, H, K W, D/H)
        keys = self._with_own(self.shared.keys, self.own.keys)  # (B, H, T + K, D/H)
        values = self._with_own(self.shared.values, self.own.values)
        mask = self._attention_mask(query.shape[2])
        attended_rows = F.scaled_dot_product_attention(queries, keys, values, mask)
        return self.slots.gather(attended_rows.view(table.shape).transpose(1, 2))

    def _with_own(self, shared: Tensor, own: Tensor) -> Tensor:
        """Return the shared rows of each video followed by the query rows of its captions, (B, H, T
        + K, D/H)."""
        table = self.slots.scatter(own[:, :, 0])  # (B, K, H, D/H)
        return torch.cat((shared, table.transpose(1, 2)), dim=2)

    def _attention_mask(self, word_count: int) -> Tensor:
        """Return the attention mask (B or 1, 1, K W, T + K), True if word i may attend to row j: all
        rows of its video that are not padded, and the query of its caption.

        word_count: W, words per caption.
        """
        device = self.shared.keys.device
        sees_query = torch.eye(self.slots.slot_count, dtype=torch.bool, device=device)
        sees_query = sees_query.repeat_interleave(word_count, dim=0)  # (K W, K)
        keep = self.keep
        if keep is None:
            keep = sees_query.new_ones(1, self.shared.keys.shape[2])
        sees_video = keep[:, None, None].expand(-1, -1, len(sees_query), -1)
        return torch.cat((sees_video, sees_query.expand(len(keep), 1, -1, -1)), dim=3)


# what the words of captions attend to: rows per caption, or once for all captions of a video
KeyValueSource = KeyValueCache | VideoKeyValues


class Attention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Multi-head attention of the words of captions: to given keys and values, or among
    themselves."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = Linear(width, width)
        self.remembered = Linear(width, 2 * width)
        self.out = Linear(width, width)

    def key_values(self, rows: Tensor) -> KeyValueCache:
        """Return the attention keys and values of rows (M, S, D)."""
        keys, values = self.remembered(rows).chunk(2, dim=-1)  # (M, S, D) each
        return KeyValueCache(self._split_heads(keys), self._split_heads(values))

    def forward(self, rows: Tensor, context: KeyValueSource) -> Tensor:
        """Return the attention output (M, W, D) of words that attend to given keys and values.

        Args:
            rows: (M, W, D) word vectors of M captions.
            context: keys and values to attend to.
        """
        attended_rows = context.attend(self._split_heads(self.query(rows)))  # (M, H, W, D/H)
        return self.out(attended_rows.transpose(1, 2).reshape(rows.shape))

    def self_attend(
        self, rows: Tensor, *, keep: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Return the self-attention output (M, W, D).

        Args:
            rows: (M, W, D) word vectors of M captions.
            keep: (M, 1, W, W), True if row i may attend to row j. None: only `causal` restricts
                attention.
            causal: True: row w attends only to rows up to and including w. False: to all rows.
        """
        cache = self.key_values(rows)
        attended_rows = F.scaled_dot_product_attention(
            self._split_heads(self.query(rows)), cache.keys, cache.values, keep, is_causal=causal
        )  # (M, H, W, D/H)
        return self.out(attended_rows.transpose(1, 2).reshape(rows.shape))

    def _split_heads(self, rows: Tensor) -> Tensor:
        return rows.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class CaptionerLayer(nn.Module):  # type: ignore[misc]
    """Pre-norm transformer decoder layer: self-attention of the words, optional cross-attention to
    query and video, feed-forward block."""

    def __init__(self, settings: CaptionerSettings, *, has_cross_attention: bool) -> None:
        super().__init__()
        width = settings.width
        heads = settings.heads
        self.within = Attention(width, heads)
        self.within_norm = nn.LayerNorm(width)
        self.across: Attention | None = None
        self.across_norm: nn.LayerNorm | None = None
        if has_cross_attention:
            self.across = Attention(width, heads)
            self.across_norm = nn.LayerNorm(width)
        wide = Linear(width, settings.feed_forward)
        narrow = Linear(settings.feed_forward, width)
        self.feed = nn.Sequential(wide, nn.GELU(), Dropout(settings.dropout), narrow)
        self.feed_norm = nn.LayerNorm(width)
        self.drop = Dropout(settings.dropout)

    def forward(
        self,
        rows: Tensor,
        context: KeyValueSource | None = None,
        *,
        keep: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Return the word vectors (M, W, D) after the layer.

        Args:
            rows: (M, W, D) word vectors of M captions.
            context: keys and values for the cross-attention. None: no cross-attention.
            keep: (M, 1, W, W), True if word i may attend to word j. None: only `causal` restricts
                attention.
            causal: True: word w attends only to words up to and including w. False: to all words.
        """
        attended = self.within.self_attend(self.within_norm(rows), keep=keep, causal=causal)
        rows = rows + self.drop(attended)
        return self._cross_attend_and_feed_forward(rows, context)

    def step(
        self, rows: Tensor, past: KeyValueCache | None, context: KeyValueSource | None
    ) -> tuple[Tensor, KeyValueCache]:
        """Return the vector (M, 1, D) of the newest word after the layer, and the self-attention
        keys and values of all words up to it.

        Args:
            rows: (M, 1, D) vector of the newest word.
            past: keys and values of the earlier words. None: there are no earlier words.
            context: keys and values for the cross-attention. None: no cross-attention.
        """
        normed = self.within_norm(rows)
        cache = self.within.key_values(normed)
        if past is not None:
            cache = past.concat(cache)
        rows = rows + self.drop(self.within(normed, cache))
        return self._cross_attend_and_feed_forward(rows, context), cache

    def _cross_attend_and_feed_forward(
        self, rows: Tensor, context: KeyValueSource | None
    ) -> Tensor:
        if self.across is not None and self.across_norm is not None and context is not None:
            rows = rows + self.drop(self.across(self.across_norm(rows), context))
        return rows + self.drop(self.feed(self.feed_norm(rows)))


@dataclass
class DecoderState:
    """State of M captions that are decoded word by word.

    Attributes:
        contexts: keys and values for the cross-attention of each layer that has one.
        pasts: self-attention keys and values (M, H, S, D/H) of the decoded words, one entry per
            layer. None: no word yet.
        length: S, number of tokens decoded so far.
    """

    contexts: Sequence[KeyValueSource]
    pasts: list[KeyValueCache | None]
    length: int = 0


class Captioner(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """ProcX's transformer captioner with fresh weights.

    Args:
        settings: sizes of the captioner.
        vocabulary: number of tokens in the vocabulary.
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
        self.text_layers = nn.ModuleList(
            CaptionerLayer(settings, has_cross_attention=False) for _ in range(settings.text_layers)
        )
        self.joint_layers = nn.ModuleList(
            CaptionerLayer(settings, has_cross_attention=True) for _ in range(settings.joint_layers)
        )
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
        """Return the next-token logits and the sentence vectors of M captions whose words are
        given.

        Args:
            tokens: (M, W) token numbers, padded at the end.
            token_pad: (M, W), True on padding.
            context: queries and video features of the M captions.
        """
        rows, vectors = self._encode_words(tokens, token_pad)  # (M, W, D), (M, d)
        contexts = self._layer_contexts(context)
        for layer, layer_context in zip(self.joint_layers, contexts, strict=True):
            rows = layer(rows, layer_context, causal=True)  # (M, W, D)
        return CaptionerOutput(self._logits(rows), vectors)

    def query_vectors(self, queries: Tensor) -> Tensor:
        """Return unit vectors (M, d) of decoder queries (M, D), to be compared with the sentence
        vectors."""
        return F.normalize(self.query_out(queries).float(), dim=-1)

    def begin(self, context: CaptionContext) -> DecoderState:
        """Return the decoding state of the M captions of a context, before the first word."""
        layer_count = len(self.text_layers) + len(self.joint_layers)
        return DecoderState(self._layer_contexts(context), [None] * layer_count)

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Return the logits (M, V) of the next token, and append the given tokens to the state.

        Args:
            tokens: (M,) number of the latest token of each caption.
            state: changed in place.
        """
        rows = self.words(tokens)[:, None] + self.places.weight[state.length]  # (M, 1, D)
        contexts = [*[None] * len(self.text_layers), *state.contexts]
        for index, layer in enumerate((*self.text_layers, *self.joint_layers)):
            rows, state.pasts[index] = layer.step(rows, state.pasts[index], contexts[index])
        state.length += 1
        return self._logits(rows)[:, 0]

    def _encode_words(self, tokens: Tensor, token_pad: Tensor) -> tuple[Tensor, Tensor]:
        """Return the word vectors (M, W, D) after the text-only layers, and the unit vectors (M, d)
        of the sentences."""
        captions, width = tokens.shape
        words = self.drop(self.words(tokens) + self.places.weight[:width])  # (M, W, D)
        cls = self.whole.expand(captions, 1, -1)
        rows = torch.cat((words, cls), dim=1)  # (M, W + 1, D)

        # the mask (M, 1, W + 1, W + 1): words see earlier ones and themselves, CLS all real ones
        itself = torch.eye(width + 1, dtype=torch.bool, device=token_pad.device)
        earlier = torch.ones_like(itself).tril()
        real = F.pad(~token_pad, (0, 1), value=True)  # (M, W + 1)
        keep = (earlier & real[:, None, None]) | itself
        for layer in self.text_layers:
            rows = layer(rows, keep=keep)
        whole = self.text_out(self.text_norm(rows[:, -1]))  # (M, d)
        return rows[:, :-1], F.normalize(whole.float(), dim=-1)

    def _logits(self, rows: Tensor) -> Tensor:
        return linear(self.norm(rows), self.words.weight, self.bias)

    def _layer_contexts(self, context: CaptionContext) -> Sequence[KeyValueSource]:
        """Return the keys and values of M captions for each joint layer: the decoder query, and the
        feature rows of the video if the context has some."""
        attentions: list[Attention] = [layer.across for layer in self.joint_layers]
        queries = (context.queries + self.kinds[0])[:, None]  # (M, 1, D)
        if context.features is None or not len(queries):
            return [attention.key_values(queries) for attention in attentions]
        # only the videos that have captions
        present, video = context.video.unique(return_inverse=True)
        slots = CaptionSlots.from_videos(video, len(present))
        rows = context.features[present] + self.kinds[1]
        keep = None if context.feature_pad is None else ~context.feature_pad[present]
        return [
            VideoKeyValues(attention.key_values(rows), attention.key_values(queries), keep, slots)
            for attention in attentions
        ]
