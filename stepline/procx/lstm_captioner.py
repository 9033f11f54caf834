"""PDVC's captioner, the baseline: one LSTM layer fed with the last word, the query, and what it
attends to.

Before each word it reads a few points of every level near its box, weighed by what it has said
(deformable soft attention). Without the attention's settings it reads nothing: the plain variant, a
little worse in PDVC's paper.

    points = box + offsets(hidden, query)
    weight of point p = softmax_p(w tanh(W_v v_p + W_h hidden))
Source: PDVC's code (its LSTM with deformable soft attention), with one head as there. Differs: the
points begin spread over the whole box instead of to one side of its middle. Attributes that are
modules are keys of the weights on disk. Letters: B videos, P positions of all levels, L levels, M
captions, R rows written at a time, K points a level, W tokens, D width, V vocabulary.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.procx.captioner import CaptionContext, CaptionerOutput
from stepline.procx.deformable_attention import sampling_points
from stepline.procx.settings import AttentionSettings, CaptionerSettings
from stepline.training.layers import Dropout, Linear


@dataclass(frozen=True)
class AttendedLevels:
    """What captions attend to. values, hints: (B P, D), rows of all videos; first: (R,) where each
    caption's begin.

    boxes: (R, 2), center and length; queries: (R, D); lengths: positions of each level.
    """

    values: Tensor
    hints: Tensor
    first: Tensor
    boxes: Tensor
    queries: Tensor
    lengths: tuple[int, ...]

    def take(self, rows: Tensor) -> "AttendedLevels":
        """Return what these captions attend to, (R',) indices."""
        return replace(
            self, first=self.first[rows], boxes=self.boxes[rows], queries=self.queries[rows]
        )


class DeformableSoftAttention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Attention of a caption's hidden state to a few points of each level near its box."""

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__()
        self.settings = settings
        width = settings.width
        self.offsets = Linear(2 * width, settings.levels * settings.points)
        self.value, self.hint, self.hidden = (Linear(width, width) for _ in range(3))
        self.share = Linear(width, 1)
        nn.init.xavier_uniform_(self.value.weight)
        nn.init.zeros_(self.value.bias)
        nn.init.zeros_(self.offsets.weight)
        spread = 2 * torch.arange(settings.points) + 1 - settings.points  # -3, -1, 1, 3 of 4
        with torch.no_grad():
            self.offsets.bias.copy_(spread.repeat(settings.levels))

    def attended_levels(self, context: CaptionContext) -> AttendedLevels:
        """Return what captions of this context attend to. Raises ShapeError when it holds no
        levels."""
        levels, boxes, video = context.levels, context.boxes, context.video
        if levels is None or boxes is None or video is None:
            raise ShapeError(
                "this captioner looks at the video; give the levels, and each caption's video and box"
            )
        values = self.value(levels)  # (B, P, D)
        if context.feature_pad is not None:
            values = values.masked_fill(context.feature_pad[..., None], 0.0)
        values = values.flatten(0, 1)  # (B P, D)
        hints, first = self.hint(values), video * levels.shape[1]
        return AttendedLevels(values, hints, first, boxes, context.queries, context.lengths)

    def forward(self, hidden: Tensor, attended: AttendedLevels) -> Tensor:
        """Return what each caption reads now, (R, D). hidden: (R, D) of the LSTM."""
        offsets = self.offsets(torch.cat((hidden, attended.queries), dim=-1)).float()  # (R, L K)
        center, length = attended.boxes.float().unbind(-1)  # (R,) each
        # (R, L K)
        locations = center[:, None] + offsets * (length[:, None] * (0.5 / self.settings.points))
        # (R, 1, 1, L, K)
        by_level = locations.unflatten(1, (self.settings.levels, -1))[:, None, None]
        points = sampling_points(by_level, attended.lengths, self.settings.padding, backward=False)
        rows = points.position.flatten(1) + attended.first[:, None]  # (R, 2 L K)
        sides = torch.cat((points.left_weight.flatten(1), points.right_weight.flatten(1)), dim=1)
        hints = F.embedding(rows, attended.hints) * sides[..., None]  # (R, 2 L K, D)
        hints = torch.add(*hints.chunk(2, dim=1))  # (R, L K, D)
        scores = self.share((hints + self.hidden(hidden)[:, None]).tanh())[..., 0]  # (R, L K)
        weights = scores.float().softmax(dim=-1).repeat(1, 2) * sides  # (R, 2 L K)
        values = F.embedding(rows, attended.values)  # (R, 2 L K, D)
        mixed: Tensor = (weights[:, None].to(values.dtype) @ values)[:, 0]  # (R, D)
        return mixed


@dataclass
class LstmState:
    """Captions under way: the queries (R, D), the layer's state, and what is attended to (None:
    nothing)."""

    queries: Tensor
    hidden: Tensor
    cell: Tensor
    attended: AttendedLevels | None

    def take(self, rows: Tensor) -> None:
        """Go on with these rows, (R,) indices into the present ones."""
        self.queries = self.queries[rows]
        self.hidden = self.hidden[rows]
        self.cell = self.cell[rows]
        if self.attended is not None:
            self.attended = self.attended.take(rows)


class LstmCaptioner(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """A caption word by word from the query and, with `attention`, the levels; a transcript is not
    read."""

    def __init__(
        self,
        settings: CaptionerSettings,
        vocabulary: int,
        attention: AttentionSettings | None = None,
    ) -> None:
        super().__init__()
        self.settings, self.longest = settings, settings.longest
        width = settings.width
        self.words = nn.Embedding(vocabulary, width)
        self.looking = None if attention is None else DeformableSoftAttention(attention)
        self.fed = Linear(2 * width, 4 * width)  # word and query to the gates
        # what is seen, and the state
        self.kept = Linear(width if attention is None else 2 * width, 4 * width)
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
        """Return what comes after each token, no vectors. tokens, token_pad: (M, W), padded at the
        end."""
        if len(tokens) != len(context.queries):
            raise ShapeError(
                f"{len(tokens)} captions cannot be of {len(context.queries)} queries; give one each"
            )
        queries = context.queries[:, None].expand(-1, tokens.shape[1], -1)  # (M, W, D)
        if not tokens.numel():
            return CaptionerOutput(self.out(queries), None)
        state = self.begin(context)
        fed = self.fed(torch.cat((self.words(tokens), queries), dim=-1))  # (M, W, 4 D)
        # (M, W, D)
        rows = torch.stack([self._lstm_step(gates, state) for gates in fed.unbind(1)], dim=1)
        return CaptionerOutput(self.out(self.drop(rows)), None)

    def begin(self, context: CaptionContext) -> LstmState:
        """Return the state from which captions of this context are written."""
        empty = torch.zeros_like(context.queries)
        attended = None if self.looking is None else self.looking.attended_levels(context)
        return LstmState(context.queries, empty, empty, attended)

    def step(self, tokens: Tensor, state: LstmState) -> Tensor:
        """Return the logits (R, V) of what comes after the last tokens (R,)."""
        fed = self.fed(torch.cat((self.words(tokens), state.queries), dim=-1))  # (R, 4 D)
        return self.out(self._lstm_step(fed, state))

    def _lstm_step(self, fed: Tensor, state: LstmState) -> Tensor:
        """Return the layer's next hidden state (R, D), and keep it. fed: (R, 4 D), what word and
        query add to gates."""
        recurrent = state.hidden
        if self.looking is not None:
            video_rows = self.looking(state.hidden, state.attended)  # (R, D)
            recurrent = torch.cat((video_rows, state.hidden), dim=-1)  # (R, 2 D)
        enter, forget, new, show = (fed + self.kept(recurrent)).chunk(4, dim=-1)  # (R, D) each
        state.cell = forget.sigmoid() * state.cell + enter.sigmoid() * new.tanh()
        state.hidden = show.sigmoid() * state.cell.tanh()
        return state.hidden
