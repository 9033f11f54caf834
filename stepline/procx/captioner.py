"""From what a query saw to a sentence: CoCa's decoder, half of it on words alone, half on words and query.

    u = text layers(words, CLS)                  words see earlier words, CLS sees all of them
    h = joint layers(u, [query; features; transcript])
    P(next word) = softmax(norm(h) E^T + b)      E: the embedding of the words
    v_text = unit(W_t norm(u_CLS)), v_query = unit(W_q query)   for the contrastive loss

Source: ProcX section 5 and appendix D; Yu et al. 2022 (CoCa). Differs: the features beside the query, and a transcript,
are options. Letters: M captions, B videos, W tokens, T feature rows, A transcript tokens, D width, V vocabulary, d
projection, R rows written at a time.

Layers of the text decoder: attention that remembers keys, and the feed-forward; normalised before each.

Letters: M captions, R rows that are written at a time (M times the beam), W tokens, S places remembered, H heads,
D width.

Captions of one video that attend to its rows together, so that no caption holds a copy of them.

Each caption sees all rows of its video, and of the queries its own alone. Letters: M captions of B videos, K captions
of the video with most, W tokens, T rows, H heads, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.procx.settings import CaptionerSettings
from stepline.training.layers import Dropout, Linear, linear


class Attendable(Protocol):
    """What may be attended to."""

    def __len__(self) -> int:
        """Return of how many captions it is, M."""

    def read(self, query: Tensor) -> Tensor:
        """Return what queries (M, H, W, D/H) read, (M, H, W, D/H)."""


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values (M, H, S, D/H) of what may be attended to; keep (M, 1, 1, S), None: all of it."""

    keys: Tensor
    values: Tensor
    keep: Tensor | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, query: Tensor, keep: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return what queries (M, H, W, D/H) read, (M, H, W, D/H). keep: (M, 1, W, S) in place of its own."""
        keep = self.keep if keep is None else keep
        mixed: Tensor = F.scaled_dot_product_attention(query, self.keys, self.values, keep, is_causal=causal)
        return mixed

    def joined(self, other: "KeyValueCache") -> "KeyValueCache":
        """Return the memory with what comes after it."""
        keys, values = torch.cat((self.keys, other.keys), dim=2), torch.cat((self.values, other.values), dim=2)
        if self.keep is None and other.keep is None:
            return KeyValueCache(keys, values)
        return KeyValueCache(keys, values, torch.cat((_kept(self), _kept(other)), dim=3))

    def take(self, rows: Tensor) -> "KeyValueCache":
        """Return what these captions remember, (R,) indices."""
        return KeyValueCache(self.keys[rows], self.values[rows], None if self.keep is None else self.keep[rows])


def _kept(memory: KeyValueCache) -> Tensor:
    if memory.keep is not None:
        return memory.keep
    captions, _, places, _ = memory.keys.shape
    return torch.ones(captions, 1, 1, places, dtype=torch.bool, device=memory.keys.device)


class Attention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Multi-head attention to a memory that was made before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.remembered = Linear(width, width), Linear(width, 2 * width)
        self.out = Linear(width, width)

    def remember(self, rows: Tensor, pad: Tensor | None = None) -> KeyValueCache:
        """Return rows (M, S, D) as keys and values. pad: (M, S), True where a row is padding."""
        keys, values = self.remembered(rows).chunk(2, dim=-1)  # (M, S, D) each
        keep = None if pad is None else ~pad[:, None, None]  # (M, 1, 1, S)
        return KeyValueCache(self._apart(keys), self._apart(values), keep)

    def forward(self, rows: Tensor, memory: Attendable) -> Tensor:
        """Return rows (R, W, D) attended to what M captions see; R may be a multiple of M, caption by caption."""
        each = len(rows) // len(memory) if len(memory) else 1  # R/M
        grouped = rows.reshape(len(memory), each * rows.shape[1], rows.shape[2])  # (M, R/M W, D)
        mixed = memory.read(self._apart(self.query(grouped)))  # (M, H, R/M W, D/H)
        return self.out(mixed.transpose(1, 2).reshape(rows.shape))

    def among(self, rows: Tensor, *, keep: Tensor | None = None, causal: bool = False) -> Tensor:
        """Return rows (M, W, D) attended to each other. keep: (M, 1, W, W); causal: row w attends up to w alone."""
        query = self._apart(self.query(rows))  # (M, H, W, D/H)
        mixed = self.remember(rows).read(query, keep, causal=causal)
        return self.out(mixed.transpose(1, 2).reshape(rows.shape))

    def _apart(self, rows: Tensor) -> Tensor:
        """Return (M, S, D) as (M, H, S, D/H)."""
        return rows.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class CaptionerLayer(nn.Module):  # type: ignore[misc]
    """Words attend to words, then to a context if the layer has one, then a feed-forward; each normalised first."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float, *, crosses: bool) -> None:
        super().__init__()
        self.within, self.within_norm = Attention(width, heads), nn.LayerNorm(width)
        self.across = Attention(width, heads) if crosses else None
        self.across_norm = nn.LayerNorm(width) if crosses else None
        self.feed = nn.Sequential(Linear(width, inner), nn.GELU(), Dropout(dropout), Linear(inner, width))
        self.feed_norm, self.drop = nn.LayerNorm(width), Dropout(dropout)

    def forward(
        self, rows: Tensor, context: Attendable | None = None, *, keep: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Return rows (M, W, D) after the layer; keep and causal as in `Attention.among`, of the words."""
        rows = rows + self.drop(self.within.among(self.within_norm(rows), keep=keep, causal=causal))
        return self._rest(rows, context)

    def go_on(
        self, rows: Tensor, past: KeyValueCache | None, context: KeyValueCache | None
    ) -> tuple[Tensor, KeyValueCache]:
        """Return the next word's row (R, 1, D) after the layer, and the past (R, H, S, D/H) with that word in it."""
        normed = self.within_norm(rows)
        here = self.within.remember(normed)
        past = here if past is None else past.joined(here)
        return self._rest(rows + self.drop(self.within(normed, past)), context), past

    def _rest(self, rows: Tensor, context: Attendable | None) -> Tensor:
        if self.across is not None and self.across_norm is not None and context is not None:
            rows = rows + self.drop(self.across(self.across_norm(rows), context))
        return rows + self.drop(self.feed(self.feed_norm(rows)))


@dataclass(frozen=True)
class VideoSlots:
    """Where each caption stands: video and place (M,) each, in a table of (B, K)."""

    video: Tensor
    place: Tensor
    videos: int
    most: int

    @staticmethod
    def of(video: Tensor, videos: int) -> "VideoSlots":
        """Return the seats of captions whose videos these are, (M,), in any order; M above 0."""
        same = video[:, None] == video  # (M, M)
        place = same.tril(-1).sum(dim=1)  # captions of the video before it
        return VideoSlots(video, place, videos, int(place.max()) + 1)

    def seat(self, rows: Tensor) -> Tensor:
        """Return rows (M, ...) at their seats, (B, K, ...), the empty ones zero."""
        empty = rows.new_zeros(self.videos, self.most, *rows.shape[1:])
        return empty.index_put((self.video, self.place), rows)

    def unseat(self, table: Tensor) -> Tensor:
        """Return the rows (M, ...) of a table (B, K, ...)."""
        return table[self.video, self.place]


@dataclass(frozen=True)
class VideoKeyValues:
    """What a layer's captions see: rows of the videos, (B, H, T, D/H), and their own query, (M, H, 1, D/H)."""

    shared: KeyValueCache
    own: KeyValueCache
    seats: VideoSlots

    def __len__(self) -> int:
        return len(self.own)

    def read(self, query: Tensor) -> Tensor:
        """Return what queries (M, H, W, D/H) read, (M, H, W, D/H)."""
        seated = self.seats.seat(query).transpose(1, 2)  # (B, H, K, W, D/H)
        keys, values = (
            torch.cat((rows, self.seats.seat(own[:, :, 0]).transpose(1, 2)), dim=2)
            for rows, own in ((self.shared.keys, self.own.keys), (self.shared.values, self.own.values))
        )  # (B, H, T + K, D/H)
        mixed = F.scaled_dot_product_attention(seated.flatten(2, 3), keys, values, self._keep(query))
        return self.seats.unseat(mixed.view(seated.shape).transpose(1, 2))

    def _keep(self, query: Tensor) -> Tensor:
        """Return who sees what, (B or 1, 1, K W, T + K): a word the rows and its own query."""
        most, rows = self.seats.most, self.shared.keys.shape[2]
        itself = torch.eye(most, dtype=torch.bool, device=query.device).repeat_interleave(query.shape[2], dim=0)
        real = itself.new_ones(1, 1, 1, rows) if self.shared.keep is None else self.shared.keep  # (B or 1, 1, 1, T)
        return torch.cat((real.expand(-1, -1, len(itself), -1), itself.expand(len(real), 1, -1, -1)), dim=3)


EMBEDDING_STD = 0.02  # standard deviation of fresh embeddings; GPT-2


@dataclass(frozen=True)
class CaptionContext:
    """What M captions are about.

    queries: (M, D). features: (B, T, D) fused rows of the videos, or None; video: (M,) whose each caption is;
    feature_pad: (B, T). transcript: (M, A) tokens of what is said around each, or None; transcript_pad: (M, A).
    For the LSTM alone: levels (B, P, D), `lengths` positions of each one after the other, feature_pad (B, P) then, and
    boxes (M, 2), the center and length of each caption's step.
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
    """logits (M, W, V) of each next token; text (M, d), unit vectors of the sentences, None where there are none."""

    logits: Tensor
    text: Tensor | None


@dataclass
class DecoderState:
    """A caption under way: what each layer remembers of its words (R rows), and of its context (M captions)."""

    contexts: list[KeyValueCache]
    pasts: list[KeyValueCache | None] = field(default_factory=list)
    length: int = 0

    def take(self, rows: Tensor) -> None:
        """Go on with these rows, (R,) indices into the present ones; those of a caption stand together."""
        self.pasts = [None if past is None else past.take(rows) for past in self.pasts]


class Captioner(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """ProcX's text decoder, fresh until weights are loaded."""

    def __init__(self, settings: CaptionerSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.longest = settings, settings.longest
        width = settings.width
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(settings.longest, width)
        self.whole = nn.Parameter(torch.randn(width) * EMBEDDING_STD)  # CLS: stands after the words, has no place
        self.text_layers = nn.ModuleList(_layer(settings, crosses=False) for _ in range(settings.text_layers))
        self.joint_layers = nn.ModuleList(_layer(settings, crosses=True) for _ in range(settings.joint_layers))
        self.norm, self.text_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.text_out, self.query_out = (nn.Linear(width, settings.projection, bias=False) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.transcript_places = nn.Embedding(settings.longest_transcript, width)
        self.transcript_layers = nn.ModuleList(
            _layer(settings, crosses=False) for _ in range(settings.transcript_layers)
        )
        self.kinds = nn.Parameter(torch.randn(3, width) * EMBEDDING_STD)  # added to query, features, transcript
        self.drop = Dropout(settings.dropout)
        for table in (self.words, self.places, self.transcript_places):
            nn.init.normal_(table.weight, std=EMBEDDING_STD)

    def forward(self, tokens: Tensor, token_pad: Tensor, context: CaptionContext) -> CaptionerOutput:
        """Return what comes after each token, and the sentences' vectors. tokens, token_pad: (M, W), padded at the end.

        Raises ShapeError when there are more tokens than places, or the context is of other captions.
        """
        self._check(tokens, context)
        rows, text = self._words(tokens, token_pad)
        for layer, memory in zip(self.joint_layers, self._seen(context), strict=True):
            rows = layer(rows, memory, causal=True)
        return CaptionerOutput(self._logits(rows), text)

    def sentence_vectors(self, tokens: Tensor, token_pad: Tensor) -> Tensor:
        """Return unit vectors (M, d) of sentences alone, (M, W) tokens as `forward` takes them."""
        return self._words(tokens, token_pad)[1]

    def _words(self, tokens: Tensor, token_pad: Tensor) -> tuple[Tensor, Tensor]:
        """Return each word's row (M, W, D) after the layers on words alone, and the sentences' unit vectors (M, d)."""
        captions, width = tokens.shape
        rows = self.drop(self.words(tokens) + self.places.weight[:width])  # (M, W, D)
        rows = torch.cat((rows, self.whole.expand(captions, 1, -1)), dim=1)  # (M, W + 1, D)
        keep = _text_keep(token_pad)
        for layer in self.text_layers:
            rows = layer(rows, keep=keep)
        whole = self.text_out(self.text_norm(rows[:, -1]))  # (M, d)
        return rows[:, :-1], F.normalize(whole.float(), dim=-1)

    def query_vectors(self, queries: Tensor) -> Tensor:
        """Return unit vectors (M, d) of queries (M, D), to be compared with those of sentences."""
        return F.normalize(self.query_out(queries).float(), dim=-1)

    def begin(self, context: CaptionContext) -> DecoderState:
        """Return the state from which captions of this context are written."""
        self._check(None, context)
        layers = len(self.text_layers) + len(self.joint_layers)
        return DecoderState(self._remember(context), [None] * layers)

    def go_on(self, tokens: Tensor, writing: DecoderState) -> Tensor:
        """Return the logits (R, V) of what comes after the last tokens (R,); `writing` then remembers them."""
        rows = self.words(tokens)[:, None] + self.places.weight[writing.length]  # (R, 1, D)
        contexts: list[KeyValueCache | None] = [None] * len(self.text_layers) + list(writing.contexts)
        for place, layer in enumerate((*self.text_layers, *self.joint_layers)):
            rows, writing.pasts[place] = layer.go_on(rows, writing.pasts[place], contexts[place])
        writing.length += 1
        return self._logits(rows)[:, 0]

    def _logits(self, rows: Tensor) -> Tensor:
        return linear(self.norm(rows), self.words.weight, self.bias)

    def _seen(self, context: CaptionContext) -> Sequence[Attendable]:
        """Return what each joint layer's captions see, without a copy of a video's rows for each of its captions."""
        if context.features is None or context.video is None or context.transcript is not None:
            return self._remember(context)
        if not len(context.video):
            return self._remember(context)
        seats = VideoSlots.of(context.video, len(context.features))
        attentions: list[Attention] = [layer.across for layer in self.joint_layers]
        return [
            VideoKeyValues(
                attention.remember(context.features + self.kinds[1], context.feature_pad),
                attention.remember((context.queries + self.kinds[0])[:, None]),
                seats,
            )
            for attention in attentions
        ]

    def _remember(self, context: CaptionContext) -> list[KeyValueCache]:
        """Return each joint layer's keys and values of the context; those of features are made once a video."""
        transcript = self._read(context)
        memories = []
        for layer in self.joint_layers:
            attention: Attention = layer.across
            memory = attention.remember((context.queries + self.kinds[0])[:, None])  # of one place
            if context.features is not None and context.video is not None:
                seen = attention.remember(context.features + self.kinds[1], context.feature_pad)
                memory = memory.joined(seen.take(context.video))
            if transcript is not None:
                memory = memory.joined(attention.remember(transcript + self.kinds[2], context.transcript_pad))
            memories.append(memory)
        return memories

    def _read(self, context: CaptionContext) -> Tensor | None:
        """Return the transcript's words as rows (M, A, D), after layers in which they see each other."""
        if context.transcript is None or not context.transcript.shape[1]:
            return None
        tokens, pad = context.transcript, context.transcript_pad
        rows = self.drop(self.words(tokens) + self.transcript_places.weight[: tokens.shape[1]])  # (M, A, D)
        keep = None
        if pad is not None:  # every word sees itself, so that a row of padding alone has no NaN
            keep = ~pad[:, None, None] | torch.eye(pad.shape[1], dtype=torch.bool, device=pad.device)  # (M, 1, A, A)
        for layer in self.transcript_layers:
            rows = layer(rows, keep=keep)
        return rows

    def _check(self, tokens: Tensor | None, context: CaptionContext) -> None:
        captions = len(context.queries)
        if tokens is not None and (tokens.shape[1] > self.longest or len(tokens) != captions):
            raise ShapeError(
                f"tokens must be ({captions}, at most {self.longest}), captions by tokens, not {tuple(tokens.shape)}"
            )
        if context.queries.shape[1:] != (self.settings.width,):
            shape = tuple(context.queries.shape)
            raise ShapeError(f"queries must be (captions, {self.settings.width}), not {shape}; set captioner.width")
        if (context.features is None) != (context.video is None):
            raise ShapeError("features need the video of each caption, and it them; give both or neither")
        transcript = context.transcript
        most = self.settings.longest_transcript
        if transcript is not None and (len(transcript) != captions or transcript.shape[1] > most):
            shape = tuple(transcript.shape)
            raise ShapeError(f"a transcript must be ({captions}, at most {most}), captions by tokens, not {shape}")


def _layer(settings: CaptionerSettings, *, crosses: bool) -> CaptionerLayer:
    return CaptionerLayer(settings.width, settings.heads, settings.feed_forward, settings.dropout, crosses=crosses)


def _text_keep(token_pad: Tensor) -> Tensor:
    """Return who sees whom, (M, 1, W + 1, W + 1): words the earlier words and themselves, CLS all real ones."""
    width = token_pad.shape[1] + 1
    earlier = torch.ones(width, width, dtype=torch.bool, device=token_pad.device).tril()
    real = F.pad(~token_pad, (0, 1), value=True)  # (M, W + 1)
    itself = torch.eye(width, dtype=torch.bool, device=token_pad.device)
    return (earlier & real[:, None, None]) | itself
