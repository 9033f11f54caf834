"""What training lowers: the surprise at where a text is shown (NaSVA section 3.3), and at whether it is shown at all.

    l[k] = log sum_t exp(A[k, t] / tau) - log sum_t Y[k, t] exp(A[k, t] / tau)

A text with no positive row, a padded one, or a label past the end of a cut video has l = 0 and passes no gradient.
Letters: B batch, K texts, T feature rows, d projection, L decoder layers.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from stepline.errors import ShapeError
from stepline.nasva.model import Aligned, products
from stepline.nasva.network_settings import AlignabilityTargets, LossSettings
from stepline.training.batches import Batch
from stepline.training.layers import use_cpu_kernels
from stepline.training.loop import Loss

BLOCK = 128  # texts whose similarities to all seconds of a batch are in memory at a time: 5 MB at B 8, T 1200
FAR = -1e4  # logit of what is left out; finite, so that no gradient is NaN (a real logit is at most 1 / tau)
NEVER = -torch.inf  # the same where something is always left in; exp is ten times as fast there as at FAR


def grounding_loss(aligned: Aligned, batch: Batch, settings: LossSettings | None = None) -> Loss:
    """Return the loss of an alignment, by the form that the settings name.

    paper: rivals of a second are those of its own video, the mean is over labelled texts, the last layer counts.
    release: rivals are the seconds of all videos of the batch, the mean is over all B x K rows whether or not they
    are texts, and over the decoder layers. Source: NaSVA, section 3.3, and its released code.
    """
    settings = settings or LossSettings()
    release = settings.form == "release"
    every = release if settings.every_layer is None else settings.every_layer
    text = aligned.text if every else aligned.text[-1:]  # (L or 1, B, K, d)
    shown = batch.positive & ~batch.video_pad[:, None] & ~batch.text_pad[:, :, None]  # (B, K, T)
    labelled = shown.any(dim=2)  # (B, K)
    text = text / settings.temperature
    logits = products(text, aligned.video)  # (L, B, K, T)
    if release:
        rivals = _rivals_in_batch(text, aligned.video, batch.video_pad)  # (L, B, K)
    else:
        rivals = logits.masked_fill(batch.video_pad[:, None], FAR).logsumexp(dim=3)  # (L, B, K)
    others = labelled[:, :, None] & ~shown  # (B, K, T); a text without a label keeps all seconds and counts 0 below
    losses = rivals - logits.masked_fill(others, NEVER).logsumexp(dim=3)  # (L, B, K)
    total = torch.where(labelled, losses, 0.0).mean(dim=0).sum()
    count = torch.tensor(labelled.numel(), device=total.device) if release else labelled.sum()
    return Loss(total, count)


def _rivals_in_batch(text: Tensor, video: Tensor, video_pad: Tensor) -> Tensor:
    """Return the log of the sum over all real seconds of the batch, (L, B, K), for texts divided by tau."""
    far = NEVER if use_cpu_kernels(text) else FAR
    apart = torch.where(video_pad.flatten(), far, 0.0)  # (B T,), added in the product itself: that matrix is large
    rows, seconds = text.flatten(0, 2), video.flatten(0, 1)  # (L B K, d), (B T, d)
    if use_cpu_kernels(rows):
        return _Rivals.apply(rows, seconds, apart).view(text.shape[:3])  # (L, B, K)
    with torch.autocast(video.device.type, enabled=False):
        return torch.addmm(apart, rows, seconds.T).logsumexp(dim=1).view(text.shape[:3])  # (L, B, K)


class _Rivals(Function):  # type: ignore[misc]   # torch is untyped to mypy here
    """logsumexp(rows seconds^T + apart) along each row, (N,); the matrix is made block by block, backward once more.

    A row from which all seconds are apart has FAR, and no gradient.
    """

    @staticmethod
    def forward(context: Any, rows: Tensor, seconds: Tensor, apart: Tensor) -> Tensor:
        blocks = [torch.addmm(apart, block, seconds.T).logsumexp(dim=1) for block in rows.split(BLOCK)]
        sums = torch.cat(blocks).clamp_(min=FAR) if blocks else rows.new_zeros(0)
        context.save_for_backward(rows, seconds, apart, sums)
        return sums

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        rows, seconds, apart, sums = context.saved_tensors
        to_rows, to_seconds = torch.zeros_like(rows), torch.zeros_like(seconds)
        parts = (whole.split(BLOCK) for whole in (rows, sums, gradient, to_rows))
        for block, total, above, into in zip(*parts, strict=True):
            share = torch.addmm(apart, block, seconds.T).sub_(total[:, None]).exp_().mul_(above[:, None])
            into.copy_(share @ seconds)
            to_seconds.addmm_(share.T, block)
        return to_rows, to_seconds, None


def alignability_loss(aligned: Aligned, batch: Batch, targets: AlignabilityTargets = "kept") -> Loss:
    """Return the cross-entropy of the alignability head over the texts that have a target.

    Raises ShapeError when the network has no such head.
    """
    if aligned.alignable is None:
        raise ShapeError("the network has no alignability head; set model.alignability=true")
    alignable, known = kept(batch) if targets == "kept" else agreement(aligned, batch)  # (B, K) each
    losses = F.binary_cross_entropy_with_logits(aligned.alignable, alignable.float(), reduction="none")  # (B, K)
    return Loss(torch.where(known, losses, 0.0).sum(), known.sum())


def kept(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return which texts kept a label (B, K) and which have a target at all: all that are no padding."""
    return (batch.positive & ~batch.video_pad[:, None]).any(dim=2), ~batch.text_pad


def agreement(aligned: Aligned, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return which texts are alignable by the network's own scores (B, K), and where it agrees with itself.

    A text whose best second is in the upper half of the batch's texts, by the first and by the last decoder layer, is
    alignable; in the lower half by both, not; else it has no target. Source: TAN's co-training (Han et al. 2022).
    Differs: two layers of one branch, where TAN has two branches.
    """
    real = ~batch.text_pad
    with torch.no_grad():
        scores = products(aligned.text[[0, -1]], aligned.video)  # (2, B, K, T)
        best = scores.masked_fill(batch.video_pad[:, None], -1.0).amax(dim=3)  # (2, B, K)
        upper = best >= _middle(best, real)
    return upper.all(dim=0), (upper[0] == upper[1]) & real


def _middle(best: Tensor, real: Tensor) -> Tensor:
    """Return the median of the real texts' scores a layer, (2, 1, 1); 0 where there is no text."""
    if not bool(real.any()):
        return best.new_zeros(len(best), 1, 1)
    return best[:, real].quantile(0.5, dim=1)[:, None, None]
