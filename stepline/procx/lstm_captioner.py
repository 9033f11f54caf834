"""PDVC's captioner, the baseline: one LSTM layer fed with the last word, the query, and what it looks at.

Without the attention's settings it looks at nothing: the plain variant, which PDVC's paper finds a little worse.
Letters: M captions, W tokens, D width, V vocabulary, R rows written at a time.

Where PDVC's captioner looks before each word: a few points of every level near its box, weighed by what it has said.

    points = box + offsets(hidden, query)
    share of point p = softmax_p(w tanh(W_v v_p + W_h hidden))
Source: PDVC's code (its LSTM with deformable soft attention), with one head as there. Differs: the points begin spread
over the whole box instead of to one side of its middle. Letters: B videos, P positions of all levels, L levels, M
captions, R rows written at a time, K points a level, D width.
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
    """What captions look at. values, hints: (B P, D), rows of all videos; first: (R,) where each caption's begin.

    boxes: (R, 2), center and length; queries: (R, D); lengths: positions of each level.
    """

    values: Tensor
    hints: Tensor
    first: Tensor
    boxes: Tensor
    queries: Tensor
    lengths: tuple[int, ...]

    def take(self, rows: Tensor) -> "AttendedLevels":
        """Return the view of these captions, (R',) indices."""
        return replace(self, first=self.first[rows], boxes=self.boxes[rows], queries=self.queries[rows])


class DeformableSoftAttention(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Deformable soft attention of a caption to the levels."""

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__()
        self.settings = settings
        width, count = settings.width, settings.levels * settings.points
        self.offsets = Linear(2 * width, count)
        self.value, self.hint, self.hidden = (Linear(width, width) for _ in range(3))
        self.share = Linear(width, 1)
        nn.init.zeros_(self.offsets.weight)
        spread = 2 * torch.arange(settings.points) + 1 - settings.points  # -3, -1, 1, 3 of 4
        with torch.no_grad():
            self.offsets.bias.copy_(spread.repeat(settings.levels))

    def view(self, context: CaptionContext) -> AttendedLevels:
        """Return what captions of this context look at. Raises ShapeError when it holds no levels."""
        levels, boxes, video = context.levels, context.boxes, context.video
        if levels is None or boxes is None or video is None:
            raise ShapeError("this captioner looks at the video; give the levels, and each caption's video and box")
        values = self.value(levels)  # (B, P, D)
        if context.feature_pad is not None:
            values = values.masked_fill(context.feature_pad[..., None], 0.0)
        values = values.flatten(0, 1)  # (B P, D)
        return AttendedLevels(
            values, self.hint(values), video * levels.shape[1], boxes, context.queries, context.lengths
        )

    def forward(self, hidden: Tensor, view: AttendedLevels) -> Tensor:
        """Return what each caption sees now, (R, D). hidden: (R, D) of the LSTM."""
        offsets = self.offsets(torch.cat((hidden, view.queries), dim=-1)).float()  # (R, L K)
        center, length = view.boxes.float().unbind(-1)  # (R,) each
        places = center[:, None] + offsets * (length[:, None] * (0.5 / self.settings.points))  # (R, L K)
        shaped = places.unflatten(1, (self.settings.levels, -1))[:, None, None]  # (R, 1, 1, L, K)
        read = sampling_points(shaped, view.lengths, self.settings.padding, backward=False)
        rows = read.position.flatten(1) + view.first[:, None]  # (R, 2 L K)
        left, right = read.left.flatten(1), read.right.flatten(1)  # (R, L K) each
        hints = F.embedding(rows, view.hints) * torch.cat((left, right), dim=1)[..., None]  # (R, 2 L K, D)
        hints = torch.add(*hints.chunk(2, dim=1))  # (R, L K, D)
        shares = self.share((hints + self.hidden(hidden)[:, None]).tanh())[..., 0].float().softmax(dim=-1)  # (R, L K)
        each = torch.cat((shares * left, shares * right), dim=1)  # (R, 2 L K)
        seen: Tensor = (each[:, None].to(view.values.dtype) @ F.embedding(rows, view.values))[:, 0]  # (R, D)
        return seen


@dataclass
class LstmState:
    """A caption under way: the queries (R, D), the layer's state, and what is looked at (None: nothing)."""

    queries: Tensor
    hidden: Tensor
    cell: Tensor
    view: AttendedLevels | None

    def take(self, rows: Tensor) -> None:
        """Go on with these rows, (R,) indices into the present ones."""
        self.queries, self.hidden, self.cell = self.queries[rows], self.hidden[rows], self.cell[rows]
        self.view = None if self.view is None else self.view.take(rows)


class LstmCaptioner(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """A caption word by word from the query and, with `attention`, the levels; a transcript is not read."""

    def __init__(
        self, settings: CaptionerSettings, vocabulary: int, attention: AttentionSettings | None = None
    ) -> None:
        super().__init__()
        self.settings, self.longest = settings, settings.longest
        width = settings.width
        self.words = nn.Embedding(vocabulary, width)
        self.looking = None if attention is None else DeformableSoftAttention(attention)
        self.fed = Linear(2 * width, 4 * width)  # word and query to the gates
        self.kept = Linear(width if attention is None else 2 * width, 4 * width)  # what is seen, and the state
        self.out = Linear(width, vocabulary)
        self.drop = Dropout(settings.dropout)
        nn.init.uniform_(self.words.weight, -0.1, 0.1)  # PDVC

    def forward(self, tokens: Tensor, token_pad: Tensor, context: CaptionContext) -> CaptionerOutput:  # noqa: ARG002
        """Return what comes after each token, no vectors. tokens, token_pad: (M, W), padded at the end."""
        if len(tokens) != len(context.queries):
            raise ShapeError(f"{len(tokens)} captions cannot be of {len(context.queries)} queries; give one each")
        queries = context.queries[:, None].expand(-1, tokens.shape[1], -1)  # (M, W, D)
        if not tokens.numel():
            return CaptionerOutput(self.out(queries), None)
        writing = self.begin(context)
        fed = self.fed(torch.cat((self.words(tokens), queries), dim=-1))  # (M, W, 4 D)
        rows = torch.stack([self._step(gates, writing) for gates in fed.unbind(1)], dim=1)  # (M, W, D)
        return CaptionerOutput(self.out(self.drop(rows)), None)

    def begin(self, context: CaptionContext) -> LstmState:
        """Return the state from which captions of this context are written."""
        empty = torch.zeros_like(context.queries)
        return LstmState(context.queries, empty, empty, self.looking and self.looking.view(context))

    def go_on(self, tokens: Tensor, writing: LstmState) -> Tensor:
        """Return the logits (R, V) of what comes after the last tokens (R,)."""
        fed = self.fed(torch.cat((self.words(tokens), writing.queries), dim=-1))  # (R, 4 D)
        return self.out(self._step(fed, writing))

    def _step(self, fed: Tensor, writing: LstmState) -> Tensor:
        """Return the layer's next hidden state (R, D), and keep it. fed: (R, 4 D), what word and query add to gates."""
        kept = writing.hidden
        if self.looking is not None and writing.view is not None:
            kept = torch.cat((self.looking(writing.hidden, writing.view), writing.hidden), dim=-1)  # (R, 2 D)
        take, forget, new, show = (fed + self.kept(kept)).chunk(4, dim=-1)  # (R, D) each
        writing.cell = forget.sigmoid() * writing.cell + take.sigmoid() * new.tanh()
        writing.hidden = show.sigmoid() * writing.cell.tanh()
        return writing.hidden
