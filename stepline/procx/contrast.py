"""Queries and the sentences of their steps, drawn together (ProcX equations 15 and 16).

Equation 15 as printed is a share, which falls as learning goes wrong; its -log is what is lowered, as in CoCa and
MIL-NCE. Letters: M pairs of a query and a step, P sentences, d width.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.procx.matching import Pairs

APART = -1e4  # logit of what is left out; finite, so that no gradient is NaN
SHARPEST = 0.01  # of temperatures; CLIP


class Temperature(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """The sigma of equation 15: learned, begins at 0.07, never below 0.01. Source: CoCa, CLIP; the paper gives none."""

    def __init__(self, start: float = 0.07) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.tensor(math.log(start)))

    def forward(self) -> Tensor:
        """Return sigma, a scalar."""
        return self.logarithm.exp().clamp(min=SHARPEST)


def contrast(queries: Tensor, texts: Tensor, positive: Tensor, temperature: Tensor) -> Tensor:
    """Return half the surprise of both directions, a sum over M queries and P sentences scaled to M, a scalar.

    queries: (M, d) and texts: (P, d), unit vectors. positive: (M, P), sentence p is right for query m; all others of
    the batch are wrong, those of the same video too. The identity gives InfoNCE, more gives MIL-InfoNCE. A row or a
    column without a positive adds nothing. Raises ShapeError when `positive` is not (M, P).
    """
    if positive.shape != (len(queries), len(texts)):
        want = (len(queries), len(texts))
        raise ShapeError(f"positives must be {want}, queries by sentences, not {tuple(positive.shape)}")
    if not positive.numel():
        return queries.sum() * 0 + texts.sum() * 0
    with torch.autocast(queries.device.type, enabled=False):
        logits = queries.float() @ texts.float().T / temperature  # (M, P)
    to_text, to_query = (_surprise(logits, positive, dim) for dim in (1, 0))  # (M,), (P,)
    return 0.5 * (to_text.sum() + to_query.sum() * len(queries) / len(texts))


def _surprise(logits: Tensor, positive: Tensor, dim: int) -> Tensor:
    """Return -log of the positives' share along `dim`; 0 where there is none."""
    right = logits.masked_fill(~positive, APART).logsumexp(dim)
    return torch.where(positive.any(dim), logits.logsumexp(dim) - right, 0.0)


def positives(pairs: Pairs, neighbours: int = 0) -> Tensor:
    """Return which pairs' sentences are right for which pairs' queries, (M, M).

    Its own; and with `neighbours`, those of steps so near in the same video. The pairs are of one layer, and the steps
    of a video sorted in time. The paper leaves the positives of its MIL-InfoNCE open; `Wordings` adds more.
    """
    same = pairs.video[:, None] == pairs.video  # (M, M)
    return same & ((pairs.step[:, None] - pairs.step).abs() <= neighbours)


@dataclass(frozen=True)
class Wordings:
    """Further sentences that are right for steps: unit vectors (O, d), each of step (O,) of video (O,)."""

    vectors: Tensor
    video: Tensor
    step: Tensor

    def positives(self, pairs: Pairs, neighbours: int = 0) -> Tensor:
        """Return which of them are right for which pairs' queries, (M, O); as `positives` has it."""
        same = pairs.video[:, None] == self.video  # (M, O)
        return same & ((pairs.step[:, None] - self.step).abs() <= neighbours)
