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

How sure a query should be that it found a step: PDVC's focal loss, and ProcX's own (equation 13).

Equation 13 as printed gives a query without a step -alpha p^gamma log(1 - g) with g = 0, which is 0 whatever the query
says; VarifocalNet, which it cites, has log(1 - p), and so has this file. Letters: N queries.

How many steps a video has, as a choice among 0 ... C - 1.

The paper calls its loss a cross-entropy; PDVC's code, on which it builds, trains one binary choice a count, forgives
counts near the true one, and weighs each by how rare it is. Both are here by name. Letters: B videos, C counts.

Queries and the sentences of their steps, drawn together (ProcX equations 15 and 16).

Equation 15 as printed is a share, which falls as learning goes wrong; its -log is what is lowered, as in CoCa and
MIL-NCE. Letters: M pairs of a query and a step, P sentences, d width.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.procx.matcher import Matches, Targets, boxes_to_spans, giou, hungarian_match
from stepline.procx.settings import CountForm, LossSettings
from stepline.training.loop import Loss


def focal_loss(logits: Tensor, matched: Tensor, *, alpha: float, gamma: float) -> Tensor:
    """Return the focal loss of each query, (..., N) float32. matched: (..., N) bool, the query was given a step.

    Source: Lin et al. 2017; PDVC has alpha 0.25, gamma 2.
    """
    toward = torch.where(matched, logits.float(), -logits.float())  # logit of what is right
    missing = (gamma * F.logsigmoid(-toward)).exp()  # (1 - p_right)^gamma, whose gradient is finite everywhere
    return torch.where(matched, alpha, 1 - alpha) * missing * -F.logsigmoid(toward)


def varifocal_loss(logits: Tensor, quality: Tensor, *, alpha: float, gamma: float) -> Tensor:
    """Return the gIoU-guided loss of each query, (..., N) float32.

    quality: (..., N), g = (1 + gIoU) / 2 of a query and its step, exactly 0 for a query without one; it is a target and
    passes no gradient. Source: ProcX equation 13, mended; VarifocalNet (Zhang et al. 2021), alpha 0.75, gamma 2.
    """
    logits, quality = logits.float(), quality.detach().float()
    surprise = F.binary_cross_entropy_with_logits(logits, quality, reduction="none")
    without = alpha * (gamma * F.logsigmoid(logits)).exp()  # alpha p^gamma
    return torch.where(quality > 0, quality, without) * surprise


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


def count_frequencies(counts: Iterable[int], classes: int) -> Tensor:
    """Return the share of videos with each count, (classes,): of the training data itself.

    PDVC trains YouCook2 with the shares of ActivityNet. Raises ShapeError when there is no video.
    """
    held = torch.tensor(list(counts), dtype=torch.int64)
    if not len(held):
        raise ShapeError("no video to count the steps of; give at least one")
    return held.clamp(max=classes - 1).bincount(minlength=classes) / len(held)


MASKED_LOGIT = -1e4  # logit of what is left out; finite, so that no gradient is NaN
LEAST_TEMPERATURE = 0.01  # of temperatures; CLIP


class Temperature(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """The sigma of equation 15: learned, begins at 0.07, never below 0.01. Source: CoCa, CLIP; the paper gives none."""

    def __init__(self, start: float = 0.07) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.tensor(math.log(start)))

    def forward(self) -> Tensor:
        """Return sigma, a scalar."""
        return self.logarithm.exp().clamp(min=LEAST_TEMPERATURE)


def info_nce(queries: Tensor, texts: Tensor, positive: Tensor, temperature: Tensor) -> Tensor:
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
    right = logits.masked_fill(~positive, MASKED_LOGIT).logsumexp(dim)
    return torch.where(positive.any(dim), logits.logsumexp(dim) - right, 0.0)


def positive_mask(pairs: Matches, neighbours: int = 0) -> Tensor:
    """Return which pairs' sentences are right for which pairs' queries, (M, M).

    Its own; and with `neighbours`, those of steps so near in the same video. The pairs are of one layer, and the steps
    of a video sorted in time. The paper leaves the positives of its MIL-InfoNCE open; `AlternativeTexts` adds more.
    """
    same = pairs.video[:, None] == pairs.video  # (M, M)
    return same & ((pairs.step[:, None] - pairs.step).abs() <= neighbours)


@dataclass(frozen=True)
class AlternativeTexts:
    """Further sentences that are right for steps: unit vectors (O, d), each of step (O,) of video (O,)."""

    vectors: Tensor
    video: Tensor
    step: Tensor

    def positives(self, pairs: Matches, neighbours: int = 0) -> Tensor:
        """Return which of them are right for which pairs' queries, (M, O); as `positive_mask` has it."""
        same = pairs.video[:, None] == self.video  # (M, O)
        return same & ((pairs.step[:, None] - self.step).abs() <= neighbours)


@dataclass(frozen=True)
class Predictions:
    """What the network says of a batch at each decoder layer, the last one last.

    logits: (L, B, N) of confidence; boxes: (L, B, N, 2), center and length in [0, 1]; counts: (L, B, C) logits.
    """

    logits: Tensor
    boxes: Tensor
    counts: Tensor


def localization_losses(
    proposed: Predictions, targets: Targets, settings: LossSettings | None = None, rates: Tensor | None = None
) -> tuple[dict[str, Loss], Matches]:
    """Return the losses "giou", "l1", "confidence" and "count", not yet weighted, and who was paired with what.

    rates: (C,) shares of counts in the training data, for the count loss of PDVC's form. Raises ShapeError for shapes
    that do not fit, or NaN.
    """
    settings = settings or LossSettings()
    pairs = hungarian_match(proposed.logits, proposed.boxes, targets, settings.match)
    steps = targets.counts.sum()
    found, true = pairs.queries(proposed.boxes).float(), pairs.steps(targets.boxes)  # (M, 2) each
    agree = giou(boxes_to_spans(found), boxes_to_spans(true))  # (M,)
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


def _confidence(logits: Tensor, pairs: Matches, agree: Tensor, settings: LossSettings) -> Tensor:
    """Return the loss of each query's confidence, (L, B, N). agree: gIoU of each pair, (M,)."""
    place = (pairs.layer, pairs.video, pairs.query)
    if settings.confidence == "focal":
        matched = torch.zeros_like(logits, dtype=torch.bool).index_put_(place, torch.tensor(True, device=logits.device))
        return focal_loss(logits, matched, alpha=settings.focal_alpha, gamma=settings.focal_gamma)
    quality = torch.zeros_like(logits, dtype=torch.float32).index_put_(place, 0.5 * (1 + agree.detach()))
    return varifocal_loss(logits, quality, alpha=settings.varifocal_alpha, gamma=settings.varifocal_gamma)


def caption_matches(pairs: Matches, settings: LossSettings, layers: int) -> Matches:
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


def contrastive_loss(
    queries: Tensor,
    texts: Tensor,
    pairs: Matches,
    temperature: Tensor,
    settings: LossSettings,
    further: AlternativeTexts | None = None,
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
        sentences, right = texts[here], positive_mask(own, reach)
        if further is not None and settings.contrast == "multiple":
            sentences = torch.cat((sentences, further.vectors))  # (M + O, d)
            right = torch.cat((right, further.positives(own, reach)), dim=1)
        total = total + info_nce(queries[here], sentences, right, temperature) * len(layers)
    return Loss(total, torch.tensor(len(pairs), device=queries.device))


def apply_weights(losses: dict[str, Loss], settings: LossSettings) -> list[Loss]:
    """Return the named losses times their weights, as the training loop adds them; weight 0 leaves one out."""
    weights: dict[str, float] = {name: getattr(settings, f"{name}_weight") for name in losses}
    return [loss.weighted(weights[name]) for name, loss in losses.items() if weights[name]]
