"""How many steps a video has, as a choice among 0 ... C - 1.

The paper calls its loss a cross-entropy; PDVC's code, on which it builds, trains one binary choice a count, forgives
counts near the true one, and weighs each by how rare it is. Both are here by name. Letters: B videos, C counts.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.errors import ShapeError
from stepline.procx.loss_settings import CountForm


def count_loss(
    logits: Tensor,
    counts: Tensor,
    form: CountForm = "pdvc",
    *,
    rates: Tensor | None = None,
    spread: float = 2.0,
    beta: float = 1.0,
) -> Tensor:
    """Return the loss of each video, (..., B) float32. logits: (..., B, C); counts: (B,), those past C - 1 count as it.

    rates: (C,) the share of training videos with each count, by which "pdvc" weighs counts down; None: all alike.
    beta: power of 1 - exp(-d^2 / 2 spread^2), the weight of a wrong count d away; 0: all wrong ones weigh 1.
    """
    classes = logits.shape[-1]
    if rates is not None and rates.shape != (classes,):
        raise ShapeError(f"rates of counts must be ({classes},), one a count, not {tuple(rates.shape)}")
    logits, true = logits.float(), counts.clamp(max=classes - 1)
    if form == "cross_entropy":
        return -logits.log_softmax(dim=-1).gather(-1, true.expand(logits.shape[:-1])[..., None]).squeeze(-1)
    right = F.one_hot(true, classes).to(logits)  # (B, C)
    away = torch.arange(classes, device=logits.device) - true[:, None]  # (B, C)
    wrong = (1 - (-away.square() / (2 * spread**2)).exp()) ** beta
    weight = torch.where(right > 0, 1.0, wrong) * (1.0 if rates is None else 1 - rates)
    target = right.expand(logits.shape)
    losses = F.binary_cross_entropy_with_logits(logits, target, reduction="none") * weight  # (..., B, C)
    return losses.mean(dim=-1)


def count_rates(counts: Iterable[int], classes: int) -> Tensor:
    """Return the share of videos with each count, (classes,): of the training data itself.

    PDVC trains YouCook2 with the shares of ActivityNet. Raises ShapeError when there is no video.
    """
    held = torch.tensor(list(counts), dtype=torch.int64)
    if not len(held):
        raise ShapeError("no video to count the steps of; give at least one")
    return held.clamp(max=classes - 1).bincount(minlength=classes) / len(held)
