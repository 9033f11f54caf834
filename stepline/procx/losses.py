"""What training ProcX lowers (equation 14 and section E.2), each part with what it is divided by.

    giou, l1      a sum over pairs           / steps of the batch
    confidence    a sum over all queries     / steps of the batch, at least 1
    count         a sum over videos          / videos
    caption       a sum over real tokens     / real tokens of a layer
    contrast      a sum over pairs           / pairs of a layer

All are summed over decoder layers, each with a pairing of its own (auxiliary losses, as in PDVC), the last two over
those that `text_layers` names. A batch
without any step still learns from its queries, which should all be unsure, and from its counts.
Letters: L decoder layers, B batch, N queries, C counts, M pairs, W tokens, V vocabulary.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.errors import ShapeError
from stepline.procx.boxes import edges, giou
from stepline.procx.confidence import focal, varifocal
from stepline.procx.contrast import Wordings, contrast, positives
from stepline.procx.counting import count_loss
from stepline.procx.loss_settings import LossSettings
from stepline.procx.matching import Pairs, match
from stepline.procx.targets import Targets
from stepline.training.loss import Loss


@dataclass(frozen=True)
class Proposed:
    """What the network says of a batch at each decoder layer, the last one last.

    logits: (L, B, N) of confidence; boxes: (L, B, N, 2), center and length in [0, 1]; counts: (L, B, C) logits.
    """

    logits: Tensor
    boxes: Tensor
    counts: Tensor


def location_losses(
    proposed: Proposed, targets: Targets, settings: LossSettings | None = None, rates: Tensor | None = None
) -> tuple[dict[str, Loss], Pairs]:
    """Return the losses "giou", "l1", "confidence" and "count", not yet weighted, and who was paired with what.

    rates: (C,) shares of counts in the training data, for the count loss of PDVC's form. Raises ShapeError for shapes
    that do not fit, or NaN.
    """
    settings = settings or LossSettings()
    pairs = match(proposed.logits, proposed.boxes, targets, settings.match)
    steps = targets.counts.sum()
    found, true = pairs.queries(proposed.boxes).float(), pairs.steps(targets.boxes)  # (M, 2) each
    agree = giou(edges(found), edges(true))  # (M,)
    counted = count_loss(
        proposed.counts,
        targets.counts,
        settings.count,
        rates=rates,
        spread=settings.count_spread,
        beta=settings.count_beta,
    )
    videos = torch.tensor(len(targets.boxes), device=steps.device)
    sure = _confidence(proposed.logits, pairs, agree, settings)
    return {
        "giou": Loss((1 - agree).sum(), steps),
        "l1": Loss((found - true).abs().sum(), steps),
        "confidence": Loss(sure.sum(), steps.clamp(min=1)),
        "count": Loss(counted.sum(), videos),
    }, pairs


def _confidence(logits: Tensor, pairs: Pairs, agree: Tensor, settings: LossSettings) -> Tensor:
    """Return the loss of each query's confidence, (L, B, N). agree: gIoU of each pair, (M,)."""
    place = (pairs.layer, pairs.video, pairs.query)
    if settings.confidence == "focal":
        matched = torch.zeros_like(logits, dtype=torch.bool).index_put_(place, torch.tensor(True, device=logits.device))
        return focal(logits, matched, alpha=settings.focal_alpha, gamma=settings.focal_gamma)
    quality = torch.zeros_like(logits, dtype=torch.float32).index_put_(place, 0.5 * (1 + agree.detach()))
    return varifocal(logits, quality, alpha=settings.varifocal_alpha, gamma=settings.varifocal_gamma)


def told(pairs: Pairs, settings: LossSettings, layers: int) -> Pairs:
    """Return the pairs whose queries are captioned and contrasted: of the last of `layers` layers, or of all."""
    return pairs if settings.text_layers == "every" else pairs.only(layers - 1)


def caption_loss(logits: Tensor, tokens: Tensor, token_pad: Tensor, smoothing: float = 0.2, *, layers: int = 1) -> Loss:
    """Return the cross-entropy of the next token. logits: (M, W, V); tokens (M, W) are the ones to be said.

    smoothing: share of the target that is spread over all V tokens. A padded token (True in token_pad) adds nothing.
    layers: how many decoder layers the captions are of. Raises ShapeError for shapes that do not fit.
    """
    if logits.shape[:2] != tokens.shape or tokens.shape != token_pad.shape:
        shapes = f"{tuple(logits.shape)}, {tuple(tokens.shape)} and {tuple(token_pad.shape)}"
        raise ShapeError(f"logits must be (captions, tokens, vocabulary), tokens and mask the first two, not {shapes}")
    wanted = tokens.masked_fill(token_pad, IGNORED).flatten()  # (M W,)
    total = F.cross_entropy(
        logits.float().flatten(0, 1), wanted, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing
    )
    return Loss(total * layers, (~token_pad).sum())


IGNORED = -100  # a target that cross_entropy leaves out


def contrast_loss(
    queries: Tensor,
    texts: Tensor,
    pairs: Pairs,
    temperature: Tensor,
    settings: LossSettings,
    further: Wordings | None = None,
) -> Loss:
    """Return equation 16 over the pairs. queries, texts: (M, d) unit vectors of each pair's query and sentence.

    Each decoder layer's pairs are compared among themselves. The steps of a video must be sorted in time when
    neighbours count as right ("multiple"); so do `further` wordings of the steps then, if there are any.
    """
    reach = settings.neighbours if settings.contrast == "multiple" else 0
    layers = pairs.layer.unique().tolist()
    total = queries.sum() * 0
    for layer in layers:
        here, own = pairs.layer == layer, pairs.only(layer)
        sentences, right = texts[here], positives(own, reach)
        if further is not None and settings.contrast == "multiple":
            sentences = torch.cat((sentences, further.vectors))  # (M + O, d)
            right = torch.cat((right, further.positives(own, reach)), dim=1)
        total = total + contrast(queries[here], sentences, right, temperature) * len(layers)
    return Loss(total, torch.tensor(len(pairs), device=queries.device))


def weighted(losses: dict[str, Loss], settings: LossSettings) -> list[Loss]:
    """Return the named losses times their weights, as the training loop adds them; weight 0 leaves one out."""
    weights: dict[str, float] = {name: getattr(settings, f"{name}_weight") for name in losses}
    return [loss.weighted(weights[name]) for name, loss in losses.items() if weights[name]]
