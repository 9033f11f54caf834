"""What each decoder layer says of its queries: how sure, where, and how many steps there are.

Letters: B videos, N queries, D width, C counts.
"""

import math

import torch
from torch import Tensor, nn

from stepline.layers.linear import Linear
from stepline.procx.model_settings import ModelSettings

RARE = 0.01  # P(a query found a step) at the start; RetinaNet, PDVC's code
FAINT = 1e-5  # shares of a video are kept so far from 0 and 1 before their logit; Deformable DETR
SHORT = -2.0  # logit of a box's length at the start, about an eighth of the video; PDVC's code


class Heads(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """The three heads of one decoder layer. first: whether it is the first layer, whose boxes begin short."""

    def __init__(self, settings: ModelSettings, *, first: bool) -> None:
        super().__init__()
        width = settings.attention.width
        self.sure = nn.Linear(width, 1)
        self.box = nn.Sequential(Linear(width, width), nn.ReLU(), Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
        self.count = nn.Linear(width, settings.most_steps + 1)
        nn.init.constant_(self.sure.bias, -math.log((1 - RARE) / RARE))
        nn.init.zeros_(self.box[-1].weight)
        nn.init.zeros_(self.box[-1].bias)
        if first:
            nn.init.constant_(self.box[-1].bias[1:], SHORT)

    def forward(self, queries: Tensor, references: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits of confidence (B, N), boxes (B, N, 2) float32, and logits of counts (B, C).

        references: (B, N, 1), points, or (B, N, 2), boxes, in [0, 1], which the boxes move from.
        """
        moved = self.box(queries).float()  # (B, N, 2)
        near = logit(references.float())
        moved = torch.cat((moved[..., : near.shape[-1]] + near, moved[..., near.shape[-1] :]), dim=-1)
        return self.sure(queries)[..., 0], moved.sigmoid(), self.count(queries.amax(dim=1))


def logit(share: Tensor) -> Tensor:
    """Return the logit of shares, finite at 0 and 1, where no gradient passes."""
    return share.logit(eps=FAINT)
