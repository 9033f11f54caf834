"""One network, one sequence: the form of Vid2Seq as a baseline beside ProcX.

    seen = video layers(rows)                      rows see each other
    heard = speech layers(times and words)         only where speech is given
    P(next token) = softmax(norm(h) E^T + b)       h: writer layers(tokens so far; [seen; heard]); E: all tokens

Source: Yang et al. 2023. Differs: a small network from fresh weights in place of T5 and CLIP; the denoising loss of its
pre-training is left out. Letters: B videos, R rows, C width of a backbone, A tokens of speech, W tokens written,
D width, V tokens of the alphabet.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.procx.captioner import SPREAD, Context, Writing
from stepline.procx.text_layers import Attention, Layer, Memory
from stepline.procx.vid2seq_settings import Vid2SeqSettings


class Vid2Seq(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """The baseline, fresh until weights are loaded; a `search.Writer`. alphabet: how many tokens, times included."""

    def __init__(self, settings: Vid2SeqSettings, alphabet: int) -> None:
        super().__init__()
        self.settings, self.longest = settings, settings.longest
        width = settings.width
        self.rows, self.rows_norm = nn.Linear(settings.features, width), nn.LayerNorm(width)
        self.row_places = nn.Embedding(settings.rows, width)
        self.words, self.places = nn.Embedding(alphabet, width), nn.Embedding(settings.longest, width)
        self.speech_places = nn.Embedding(settings.longest_speech, width)
        self.kinds = nn.Parameter(torch.randn(2, width) * SPREAD)  # added to what is seen, and to what is heard
        self.video_layers = self._layers(settings.video_layers, crosses=False)
        self.speech_layers = self._layers(settings.speech_layers, crosses=False)
        self.writer_layers = self._layers(settings.writer_layers, crosses=True)
        self.norm, self.bias = nn.LayerNorm(width), nn.Parameter(torch.zeros(alphabet))
        self.drop = nn.Dropout(settings.dropout)
        for table in (self.row_places, self.words, self.places, self.speech_places):
            nn.init.normal_(table.weight, std=SPREAD)

    def context(self, values: Tensor, speech: Tensor | None = None, speech_pad: Tensor | None = None) -> Context:
        """Return what the sequences of B videos are about. values: (B, R, C); speech: (B, A) tokens, and their mask.

        Raises ShapeError for values of another shape than the network's, or more speech than it has places for.
        """
        wanted = (self.settings.rows, self.settings.features)
        if values.ndim != 3 or values.shape[1:] != wanted:
            raise ShapeError(f"features must be (videos, {wanted[0]}, {wanted[1]}), not {tuple(values.shape)}; resize")
        if speech is not None and speech.shape[1] > self.settings.longest_speech:
            raise ShapeError(f"{speech.shape[1]} tokens of speech; cut them to {self.settings.longest_speech}")
        rows = self.drop(self.rows_norm(self.rows(values)) + self.row_places.weight)  # (B, R, D)
        for layer in self.video_layers:
            rows = layer(rows)
        videos = torch.arange(len(rows), device=rows.device)
        return Context(rows.mean(dim=1), rows, videos, transcript=speech, transcript_pad=speech_pad)

    def forward(self, tokens: Tensor, context: Context) -> Tensor:
        """Return the logits (B, W, V) of what comes after each token (B, W); padding stands at the end.

        Raises ShapeError when there are more tokens than places.
        """
        if tokens.shape[1] > self.longest:
            raise ShapeError(f"{tokens.shape[1]} tokens are more than the {self.longest} places; cut the sequences")
        rows = self.drop(self.words(tokens) + self.places.weight[: tokens.shape[1]])  # (B, W, D)
        for layer, memory in zip(self.writer_layers, self._remember(context), strict=True):
            rows = layer(rows, memory, causal=True)
        return self._logits(rows)

    def begin(self, context: Context) -> Writing:
        """Return the state from which the sequences of this context are written."""
        return Writing(self._remember(context), [None] * len(self.writer_layers))

    def go_on(self, tokens: Tensor, writing: Writing) -> Tensor:
        """Return the logits (B, V) of what comes after the last tokens (B,); `writing` then remembers them."""
        rows = self.words(tokens)[:, None] + self.places.weight[writing.length]  # (B, 1, D)
        for place, layer in enumerate(self.writer_layers):
            rows, writing.pasts[place] = layer.go_on(rows, writing.pasts[place], writing.contexts[place])
        writing.length += 1
        return self._logits(rows)[:, 0]

    def _layers(self, count: int, *, crosses: bool) -> nn.ModuleList:
        own = self.settings
        return nn.ModuleList(
            Layer(own.width, own.heads, own.feed_forward, own.dropout, crosses=crosses) for _ in range(count)
        )

    def _logits(self, rows: Tensor) -> Tensor:
        return F.linear(self.norm(rows), self.words.weight, self.bias)

    def _remember(self, context: Context) -> list[Memory]:
        """Return each writer layer's keys and values of what is seen and heard."""
        heard = self._heard(context)
        memories = []
        for layer in self.writer_layers:
            attention: Attention = layer.across
            memory = attention.remember(context.features + self.kinds[0])
            if heard is not None:
                memory = memory.joined(attention.remember(heard + self.kinds[1], context.transcript_pad))
            memories.append(memory)
        return memories

    def _heard(self, context: Context) -> Tensor | None:
        """Return what is said as rows (B, A, D), after layers in which they see each other."""
        tokens, pad = context.transcript, context.transcript_pad
        if tokens is None or not tokens.shape[1]:
            return None
        rows = self.drop(self.words(tokens) + self.speech_places.weight[: tokens.shape[1]])  # (B, A, D)
        keep = None
        if pad is not None:  # every word sees itself, so that a row of padding alone has no NaN
            keep = ~pad[:, None, None] | torch.eye(pad.shape[1], dtype=torch.bool, device=pad.device)  # (B, 1, A, A)
        for layer in self.speech_layers:
            rows = layer(rows, keep=keep)
        return rows
