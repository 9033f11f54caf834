"""From what a query saw to a sentence: CoCa's decoder, half of it on words alone, half on words and query.

    u = text layers(words, CLS)                  words see earlier words, CLS sees all of them
    h = joint layers(u, [query; features; transcript])
    P(next word) = softmax(norm(h) E^T + b)      E: the embedding of the words
    v_text = unit(W_t norm(u_CLS)), v_query = unit(W_q query)   for the contrastive loss

Source: ProcX section 5 and appendix D; Yu et al. 2022 (CoCa). Differs: the features beside the query, and a transcript,
are options. Letters: M captions, B videos, W tokens, T feature rows, A transcript tokens, D width, V vocabulary, d
projection, R rows written at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.layers.dropout import Drop
from stepline.layers.linear import affine
from stepline.procx.grouped import Grouped, Seats
from stepline.procx.text_layers import Attention, Layer, Memory, Readable
from stepline.procx.text_settings import CaptionerSettings

SPREAD = 0.02  # standard deviation of fresh embeddings; GPT-2


@dataclass(frozen=True)
class Context:
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
class Told:
    """logits (M, W, V) of each next token; text (M, d), unit vectors of the sentences, None where there are none."""

    logits: Tensor
    text: Tensor | None


@dataclass
class Writing:
    """A caption under way: what each layer remembers of its words (R rows), and of its context (M captions)."""

    contexts: list[Memory]
    pasts: list[Memory | None] = field(default_factory=list)
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
        self.whole = nn.Parameter(torch.randn(width) * SPREAD)  # CLS: stands after the words, has no place
        self.text_layers = nn.ModuleList(_layer(settings, crosses=False) for _ in range(settings.text_layers))
        self.joint_layers = nn.ModuleList(_layer(settings, crosses=True) for _ in range(settings.joint_layers))
        self.norm, self.text_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.text_out, self.query_out = (nn.Linear(width, settings.projection, bias=False) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.transcript_places = nn.Embedding(settings.longest_transcript, width)
        self.transcript_layers = nn.ModuleList(
            _layer(settings, crosses=False) for _ in range(settings.transcript_layers)
        )
        self.kinds = nn.Parameter(torch.randn(3, width) * SPREAD)  # added to query, features, transcript
        self.drop = Drop(settings.dropout)
        for table in (self.words, self.places, self.transcript_places):
            nn.init.normal_(table.weight, std=SPREAD)

    def forward(self, tokens: Tensor, token_pad: Tensor, context: Context) -> Told:
        """Return what comes after each token, and the sentences' vectors. tokens, token_pad: (M, W), padded at the end.

        Raises ShapeError when there are more tokens than places, or the context is of other captions.
        """
        self._check(tokens, context)
        rows, text = self._words(tokens, token_pad)
        for layer, memory in zip(self.joint_layers, self._seen(context), strict=True):
            rows = layer(rows, memory, causal=True)
        return Told(self._logits(rows), text)

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

    def begin(self, context: Context) -> Writing:
        """Return the state from which captions of this context are written."""
        self._check(None, context)
        layers = len(self.text_layers) + len(self.joint_layers)
        return Writing(self._remember(context), [None] * layers)

    def go_on(self, tokens: Tensor, writing: Writing) -> Tensor:
        """Return the logits (R, V) of what comes after the last tokens (R,); `writing` then remembers them."""
        rows = self.words(tokens)[:, None] + self.places.weight[writing.length]  # (R, 1, D)
        contexts: list[Memory | None] = [None] * len(self.text_layers) + list(writing.contexts)
        for place, layer in enumerate((*self.text_layers, *self.joint_layers)):
            rows, writing.pasts[place] = layer.go_on(rows, writing.pasts[place], contexts[place])
        writing.length += 1
        return self._logits(rows)[:, 0]

    def _logits(self, rows: Tensor) -> Tensor:
        return affine(self.norm(rows), self.words.weight, self.bias)

    def _seen(self, context: Context) -> Sequence[Readable]:
        """Return what each joint layer's captions see, without a copy of a video's rows for each of its captions."""
        if context.features is None or context.video is None or context.transcript is not None:
            return self._remember(context)
        if not len(context.video):
            return self._remember(context)
        seats = Seats.of(context.video, len(context.features))
        attentions: list[Attention] = [layer.across for layer in self.joint_layers]
        return [
            Grouped(
                attention.remember(context.features + self.kinds[1], context.feature_pad),
                attention.remember((context.queries + self.kinds[0])[:, None]),
                seats,
            )
            for attention in attentions
        ]

    def _remember(self, context: Context) -> list[Memory]:
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

    def _read(self, context: Context) -> Tensor | None:
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

    def _check(self, tokens: Tensor | None, context: Context) -> None:
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


def _layer(settings: CaptionerSettings, *, crosses: bool) -> Layer:
    return Layer(settings.width, settings.heads, settings.feed_forward, settings.dropout, crosses=crosses)


def _text_keep(token_pad: Tensor) -> Tensor:
    """Return who sees whom, (M, 1, W + 1, W + 1): words the earlier words and themselves, CLS all real ones."""
    width = token_pad.shape[1] + 1
    earlier = torch.ones(width, width, dtype=torch.bool, device=token_pad.device).tril()
    real = F.pad(~token_pad, (0, 1), value=True)  # (M, W + 1)
    itself = torch.eye(width, dtype=torch.bool, device=token_pad.device)
    return (earlier & real[:, None, None]) | itself
