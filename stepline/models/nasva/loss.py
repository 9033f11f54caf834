"""Losses of NaSVA's network: multi-positive InfoNCE of texts and seconds (section 3.3), and the
cross-entropy of the alignability head.

For instance, one text and 3 seconds, with tau = 0.07:

    A[0]     = 0.14  0  0          A / tau = 2  0  0         exp = 7.389  1  1
    Y[0]     = 1  0  0             l[0] = log 9.389 - log 7.389 = 0.2395
    Y[0]     = 1  1  0             l[0] = log 9.389 - log 8.389 = 0.1126
    Y[0]     = 0  0  0             l[0] = 0, and no text is counted

In general:

    l[k] = log sum_t exp(A[k, t] / tau) - log sum_t Y[k, t] exp(A[k, t] / tau)

A text without a positive row, a padded text, or a label past the end of a cut video has l = 0 and
no gradient. Source: NaSVA, section 3.3, and its released code. Letters: B batch, K texts, T feature
rows, d projection, L decoder layers.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.errors import ShapeError
from stepline.models.nasva.model import AlignerOutput, compute_dot_products
from stepline.models.nasva.settings import AlignerLossSettings
from stepline.models.training.batches import Batch
from stepline.models.training.layers import log_sum_exp_of_products, use_cpu_kernels
from stepline.models.training.loop import Loss

# logit of what is left out, finite, so that no gradient is NaN (a real logit is at most 1 / tau)
FAR_LOGIT = -1e4
# the same where something is always left in. exp is ten times as fast there as at FAR
NEGATIVE_INFINITY = -torch.inf


def grounding_loss(
    aligned: AlignerOutput, batch: Batch, settings: AlignerLossSettings = AlignerLossSettings()
) -> Loss:
    """Return the multi-positive InfoNCE of an alignment matrix, in the form that the settings name.

    "paper": the negatives of a text are the seconds of its own video. The mean is over labelled
    texts, and only the last decoder layer counts. "release": the negatives are the seconds of all
    videos of the batch. The mean is over all B x K text rows, padding included, and over the
    decoder layers.

    Args:
        aligned: output of the network for the batch: vectors of B x K texts and B x T seconds.
        batch: labels (B, K, T) and padding masks.
        settings: form and temperature of the loss.
    """
    release = settings.form == "release"

    # the logits of the layers that count
    text = aligned.text if release else aligned.text[-1:]  # (L or 1, B, K, d)
    positive = batch.positive_without_padding()  # (B, K, T)
    labelled = positive.any(dim=2)  # (B, K)
    text = text / settings.temperature
    logits = compute_dot_products(text, aligned.video)  # (L, B, K, T)
    if release:
        denominators = _log_sum_exp_over_batch(text, aligned.video, batch.video_pad)  # (L, B, K)
    else:
        seconds = logits.masked_fill(batch.video_pad[:, None], FAR_LOGIT)
        denominators = seconds.logsumexp(dim=3)  # (L, B, K)

    # (B, K, T). A text without a label keeps all seconds and counts 0 below
    others = labelled[:, :, None] & ~positive
    numerators = logits.masked_fill(others, NEGATIVE_INFINITY).logsumexp(dim=3)  # (L, B, K)
    total = torch.where(labelled, denominators - numerators, 0.0).mean(dim=0).sum()
    # The released code divides by all rows, with or without a label.
    if release:
        return Loss(total, torch.tensor(labelled.numel(), device=total.device))
    return Loss(total, labelled.sum())


def _log_sum_exp_over_batch(text: Tensor, video: Tensor, video_pad: Tensor) -> Tensor:
    """Return for each text the log of the sum, over all real seconds of the batch, of exp(text .
    second), (L, B, K).

    It is the InfoNCE denominator of the released code. L decoder layers, B videos, K texts, T
    seconds.

    Args:
        text: (L, B, K, d) unit vectors of the texts, divided by tau.
        video: (B, T, d) unit vectors of the seconds.
        video_pad: (B, T), True on padding, which is left out of the sum.
    """
    far = NEGATIVE_INFINITY if use_cpu_kernels(text) else FAR_LOGIT
    # (B T,), added in the product itself: that matrix is large
    apart = torch.where(video_pad.flatten(), far, 0.0)
    rows = text.flatten(0, 2)  # (L B K, d)
    seconds = video.flatten(0, 1)  # (B T, d)
    sums = log_sum_exp_of_products(rows, seconds, apart, floor=FAR_LOGIT)
    return sums.view(text.shape[:3])


def alignability_loss(aligned: AlignerOutput, batch: Batch) -> Loss:
    """Return the binary cross-entropy of the alignability head, summed over texts, and their
    number. The target is whether a text has a label.

    Args:
        aligned: output of the network for the batch.
        batch: texts, seconds and labels.

    Raises ShapeError when the network has no such head.
    """
    logits = aligned.alignability_logits
    if logits is None:
        raise ShapeError("the network has no alignability head; set model.alignability=true")
    labelled = (batch.positive & ~batch.video_pad[:, None]).any(dim=2)  # (B, K)
    is_text = ~batch.text_pad
    losses = F.binary_cross_entropy_with_logits(logits, labelled.float(), reduction="none")
    return Loss(torch.where(is_text, losses, 0.0).sum(), is_text.sum())
