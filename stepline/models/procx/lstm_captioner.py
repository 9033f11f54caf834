"""PDVC's captioner, the baseline: one LSTM layer that reads the last word, the query, and the video.

Before each word it reads a few points of every level near its box, weighted by its hidden state
(deformable soft attention). Without attention settings it does not read the video: the plain
variant, a little worse in PDVC's paper.

    points = box + offsets(hidden, query)
    weight of point p = softmax_p(w tanh(W_v v_p + W_h hidden))

Source: PDVC's code (its LSTM with deformable soft attention), with one head as there. Differs: the
points begin spread over the whole box instead of to one side of its middle. Attributes that are
modules are keys of the weights on disk. Letters: B videos, P positions of all levels, L levels, M
captions. K points per level, W tokens, D width, V vocabulary.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.models.procx.captioner import CaptionContext, CaptionerOutput
from stepline.models.procx.deformable_attention import sampling_points
from stepline.models.procx.settings import AttentionSettings, CaptionerSettings
from stepline.models.training.layers import Dropout, Linear


@dataclass(frozen=True)
class AttendedLevels:
    """Projected encoder outputs that M captions attend to, all videos concatenated.

    Attributes:
        values: (B P, D) projected values of P positions of each of B videos.
        hints: (B P, D) projected keys, from which attention weights are computed.
        first_rows: (M,) index in `values` of the first row of each caption's video.
        boxes: (M, 2) center and length of each caption's step as fractions of the video.
        queries: (M, D) decoder query of each caption.
        lengths: number of positions of each temporal scale. They sum to P.
    """

    values: Tensor
    hints: Tensor
    first_rows: Tensor
    boxes: Tensor
    queries: Tensor
    lengths: tuple[int, ...]


class DeformableSoftAttention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Attention of an LSTM state to a few sampling points of each temporal scale near the caption's
    box."""

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__()
        self.settings = settings
        width = settings.width
        self.offsets = Linear(2 * width, settings.levels * settings.points)
        self.value = Linear(width, width)
        self.hint = Linear(width, width)
        self.hidden = Linear(width, width)
        self.share = Linear(width, 1)
        nn.init.xavier_uniform_(self.value.weight)
        nn.init.zeros_(self.value.bias)
        nn.init.zeros_(self.offsets.weight)
        numbers = torch.arange(settings.points)
        spread = 2 * numbers + 1 - settings.points  # -3, -1, 1, 3 of 4
        with torch.no_grad():
            self.offsets.bias.copy_(spread.repeat(settings.levels))

    def prepare_levels(self, context: CaptionContext) -> AttendedLevels:
        """Return the encoder outputs of a context, projected for this attention. Raises ShapeError
        if the context has no levels."""
        levels = context.levels
        boxes = context.boxes
        if levels is None or boxes is None:
            raise ShapeError(
                "this captioner looks at the video; "
                "give the levels, and each caption's video and box"
            )
        # Padded rows count as zeros.
        values = self.value(levels)  # (B, P, D)
        if context.feature_pad is not None:
            values = values.masked_fill(context.feature_pad[..., None], 0.0)
        values = values.flatten(0, 1)  # (B P, D)
        hints = self.hint(values)
        # Levels are flat over videos, so that a lookup needs one index alone.
        first_rows = context.video * levels.shape[1]
        return AttendedLevels(values, hints, first_rows, boxes, context.queries, context.lengths)

    def forward(self, hidden: Tensor, attended: AttendedLevels) -> Tensor:
        """Return the attended video features of each of M captions, (M, D).

        Args:
            hidden: (M, D) hidden state of the LSTM.
            attended: projected encoder outputs of the captions' videos.
        """
        # where it reads
        state_and_query = torch.cat((hidden, attended.queries), dim=-1)
        offsets = self.offsets(state_and_query).float()  # (M, L K)
        center, length = attended.boxes.float().unbind(-1)  # (M,) each
        # An offset as great as the number of points reaches the end of the box, as in PDVC.
        unit = length[:, None] * (0.5 / self.settings.points)
        locations = center[:, None] + offsets * unit  # (M, L K)
        by_level = locations.unflatten(1, (self.settings.levels, -1))  # (M, L, K)
        # Outside of the video it reads the nearest row, as PDVC's does on every device.
        half = 0.5 / torch.tensor(attended.lengths, device=center.device)[:, None]  # of a row
        by_level = by_level.clamp(half, 1 - half)
        by_level = by_level[:, None, None]  # (M, 1, 1, L, K)
        points = sampling_points(by_level, attended.lengths, backward=False)
        rows = points.position.flatten(1) + attended.first_rows[:, None]  # (M, 2 L K)
        left_weight = points.left_weight.flatten(1)
        right_weight = points.right_weight.flatten(1)
        sides = torch.cat((left_weight, right_weight), dim=1)  # (M, 2 L K)

        # how much each point counts
        hints = F.embedding(rows, attended.hints) * sides[..., None]  # (M, 2 L K, D)
        left_hints, right_hints = hints.chunk(2, dim=1)
        hints = torch.add(left_hints, right_hints)  # (M, L K, D)
        own = self.hidden(hidden)[:, None]
        scores = self.share((hints + own).tanh())[..., 0]  # (M, L K)
        shares = scores.float().softmax(dim=-1)
        weights = shares.repeat(1, 2) * sides  # (M, 2 L K)

        # what it reads
        values = F.embedding(rows, attended.values)  # (M, 2 L K, D)
        weights = weights[:, None].to(values.dtype)
        attended_rows: Tensor = (weights @ values)[:, 0]  # (M, D)
        return attended_rows


@dataclass
class LstmState:
    """Decoding state of M captions of the LSTM captioner.

    Attributes:
        queries: (M, D) decoder query of each caption.
        hidden: (M, D) hidden state of the LSTM.
        cell: (M, D) cell state of the LSTM.
        attended: projected encoder outputs to attend to. None: video features are not used.
    """

    queries: Tensor
    hidden: Tensor
    cell: Tensor
    attended: AttendedLevels | None


class LstmCaptioner(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """PDVC's LSTM captioner with fresh weights.

    Args:
        settings: sizes of the captioner.
        vocabulary: number of tokens in the vocabulary.
        attention: settings of the attention to the video. None: the captioner uses only the decoder
            query.
    """

    def __init__(
        self,
        settings: CaptionerSettings,
        vocabulary: int,
        attention: AttentionSettings | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.longest = settings.longest
        width = settings.width
        self.words = nn.Embedding(vocabulary, width)
        state_width = width
        self.looking: DeformableSoftAttention | None = None
        if attention is not None:
            state_width = 2 * width  # what is seen, and the state
            self.looking = DeformableSoftAttention(attention)
        self.fed = Linear(2 * width, 4 * width)  # word and query to the gates
        self.kept = Linear(state_width, 4 * width)
        self.out = Linear(width, vocabulary)
        self.drop = Dropout(settings.dropout)
        for table in (self.words, self.out):  # PDVC
            nn.init.uniform_(table.weight, -0.1, 0.1)
        nn.init.zeros_(self.out.bias)

    def forward(
        self,
        tokens: Tensor,
        token_pad: Tensor,  # noqa: ARG002
        context: CaptionContext,
    ) -> CaptionerOutput:
        """Return the next-token logits of M captions whose words are given. There are no sentence
        vectors.

        Args:
            tokens: (M, W) token numbers, padded at the end.
            token_pad: not used. `Captioner` has the same argument.
            context: queries and video features of the M captions.
        """
        queries = context.queries[:, None]
        queries = queries.expand(-1, tokens.shape[1], -1)  # (M, W, D)
        # No token to read: the shapes stay, and no step is taken.
        if not tokens.numel():
            return CaptionerOutput(self.out(queries), None)
        state = self.begin(context)
        words_and_queries = torch.cat((self.words(tokens), queries), dim=-1)
        inputs = self.fed(words_and_queries)  # (M, W, 4 D)
        rows = [self._lstm_step(gates, state) for gates in inputs.unbind(1)]
        hidden = self.drop(torch.stack(rows, dim=1))  # (M, W, D)
        return CaptionerOutput(self.out(hidden), None)

    def begin(self, context: CaptionContext) -> LstmState:
        """Return the decoding state of the M captions of a context, before the first word."""
        empty = torch.zeros_like(context.queries)
        attended = self.looking.prepare_levels(context) if self.looking is not None else None
        return LstmState(context.queries, empty, empty, attended)

    def step(self, tokens: Tensor, state: LstmState) -> Tensor:
        """Return the logits (M, V) of the next token, and update the state.

        Args:
            tokens: (M,) number of the latest token of each caption.
            state: changed in place.
        """
        words_and_queries = torch.cat((self.words(tokens), state.queries), dim=-1)
        gates = self.fed(words_and_queries)  # (M, 4 D)
        return self.out(self._lstm_step(gates, state))

    def _lstm_step(self, inputs: Tensor, state: LstmState) -> Tensor:
        """Return the next hidden state (M, D), and update the state.

        inputs: (M, 4 D) contribution of word and query to the gates.
        """
        recurrent = state.hidden
        if self.looking is not None:
            video_rows = self.looking(state.hidden, state.attended)  # (M, D)
            recurrent = torch.cat((video_rows, state.hidden), dim=-1)  # (M, 2 D)
        gates = inputs + self.kept(recurrent)
        # The order of the gates is that of the weights on disk.
        enter, forget, new, show = gates.chunk(4, dim=-1)  # (M, D) each
        state.cell = forget.sigmoid() * state.cell + enter.sigmoid() * new.tanh()
        state.hidden = show.sigmoid() * state.cell.tanh()
        return state.hidden
