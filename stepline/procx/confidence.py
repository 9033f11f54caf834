"""How sure a query should be that it found a step: PDVC's focal loss, and ProcX's own (equation 13).

Equation 13 as printed gives a query without a step -alpha p^gamma log(1 - g) with g = 0, which is 0 whatever the query
says; VarifocalNet, which it cites, has log(1 - p), and so has this file. Letters: N queries.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def focal(logits: Tensor, matched: Tensor, *, alpha: float, gamma: float) -> Tensor:
    """Return the focal loss of each query, (..., N) float32. matched: (..., N) bool, the query was given a step.

    Source: Lin et al. 2017; PDVC has alpha 0.25, gamma 2.
    """
    toward = torch.where(matched, logits.float(), -logits.float())  # logit of what is right
    missing = (gamma * F.logsigmoid(-toward)).exp()  # (1 - p_right)^gamma, whose gradient is finite everywhere
    return torch.where(matched, alpha, 1 - alpha) * missing * -F.logsigmoid(toward)


def varifocal(logits: Tensor, quality: Tensor, *, alpha: float, gamma: float) -> Tensor:
    """Return the gIoU-guided loss of each query, (..., N) float32.

    quality: (..., N), g = (1 + gIoU) / 2 of a query and its step, exactly 0 for a query without one; it is a target and
    passes no gradient. Source: ProcX equation 13, mended; VarifocalNet (Zhang et al. 2021), alpha 0.75, gamma 2.
    """
    logits, quality = logits.float(), quality.detach().float()
    surprise = F.binary_cross_entropy_with_logits(logits, quality, reduction="none")
    without = alpha * (gamma * F.logsigmoid(logits)).exp()  # alpha p^gamma
    return torch.where(quality > 0, quality, without) * surprise
