"""Where PDVC's captioner looks before each word: a few points of every level near its box, weighed by what it has said.

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
from stepline.layers.linear import Linear
from stepline.procx.captioner import Context
from stepline.procx.settings import AttentionSettings
from stepline.procx.taps import taps


@dataclass(frozen=True)
class View:
    """What captions look at. values, hints: (B P, D), rows of all videos; first: (R,) where each caption's begin.

    boxes: (R, 2), center and length; queries: (R, D); lengths: positions of each level.
    """

    values: Tensor
    hints: Tensor
    first: Tensor
    boxes: Tensor
    queries: Tensor
    lengths: tuple[int, ...]

    def take(self, rows: Tensor) -> "View":
        """Return the view of these captions, (R',) indices."""
        return replace(self, first=self.first[rows], boxes=self.boxes[rows], queries=self.queries[rows])


class Looking(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
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

    def view(self, context: Context) -> View:
        """Return what captions of this context look at. Raises ShapeError when it holds no levels."""
        levels, boxes, video = context.levels, context.boxes, context.video
        if levels is None or boxes is None or video is None:
            raise ShapeError("this captioner looks at the video; give the levels, and each caption's video and box")
        values = self.value(levels)  # (B, P, D)
        if context.feature_pad is not None:
            values = values.masked_fill(context.feature_pad[..., None], 0.0)
        values = values.flatten(0, 1)  # (B P, D)
        return View(values, self.hint(values), video * levels.shape[1], boxes, context.queries, context.lengths)

    def forward(self, hidden: Tensor, view: View) -> Tensor:
        """Return what each caption sees now, (R, D). hidden: (R, D) of the LSTM."""
        offsets = self.offsets(torch.cat((hidden, view.queries), dim=-1)).float()  # (R, L K)
        center, length = view.boxes.float().unbind(-1)  # (R,) each
        places = center[:, None] + offsets * (length[:, None] * (0.5 / self.settings.points))  # (R, L K)
        shaped = places.unflatten(1, (self.settings.levels, -1))[:, None, None]  # (R, 1, 1, L, K)
        read = taps(shaped, view.lengths, self.settings.padding, backward=False)
        rows = read.position.flatten(1) + view.first[:, None]  # (R, 2 L K)
        left, right = read.left.flatten(1), read.right.flatten(1)  # (R, L K) each
        hints = F.embedding(rows, view.hints) * torch.cat((left, right), dim=1)[..., None]  # (R, 2 L K, D)
        hints = torch.add(*hints.chunk(2, dim=1))  # (R, L K, D)
        shares = self.share((hints + self.hidden(hidden)[:, None]).tanh())[..., 0].float().softmax(dim=-1)  # (R, L K)
        each = torch.cat((shares * left, shares * right), dim=1)  # (R, 2 L K)
        seen: Tensor = (each[:, None].to(view.values.dtype) @ F.embedding(rows, view.values))[:, 0]  # (R, D)
        return seen
