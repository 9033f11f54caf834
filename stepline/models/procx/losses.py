"""What training ProcX lowers (equation 14 and section E.2), each part with what it is divided by.

For instance, one video with one step, one decoder layer, and one query that is matched to it:

    query    box (0.3, 0.2)    span (0.2, 0.4)         logit 0, so p = 0.5
    step     box (0.2, 0.2)    span (0.1, 0.3)         IoU = gIoU = 0.1 / 0.3 = 0.333
    giou = (1 - 0.333) / 1 = 0.667                     l1 = (|0.3 - 0.2| + |0.2 - 0.2|) / 1 = 0.1
    varifocal target g = (1 + 0.333) / 2 = 0.667       confidence = 0.667 x log 2 / 1 = 0.462

In general:

    giou, l1      a sum over matches         / steps of the batch
    confidence    a sum over all queries     / steps of the batch, at least 1
    count         a sum over videos          / videos
    caption       a sum over real tokens     / real tokens of a layer; or of captions' means / captions
    contrast      a sum over matches         / matches of a layer

All are summed over decoder layers, each with a matching of its own (auxiliary losses, as in PDVC).
Caption and contrast are summed over those that `text_layers` names. A batch without any step
still learns from its queries, which should all be unsure, and from its counts.

Confidence: PDVC's focal loss, and ProcX's varifocal loss (equation 13). As printed, a query without
a step gets -alpha p^gamma log(1 - g) with g = 0, which is 0 whatever the query says. VarifocalNet,
which it cites, has log(1 - p), and so has this file. Count: the paper calls it a cross-entropy.
PDVC's code trains one binary choice per count, forgives counts near the true one, and weighs each
by how rare it is. Both are here by name. Contrast: InfoNCE of queries and sentences (equations 15
and 16). Equation 15 as printed is a share, which falls as learning goes wrong. Its -log is what is
lowered, as in CoCa and MIL-NCE. Letters: L decoder
layers, B videos, N queries, C counts, M matches of a query and a step. P sentences, W tokens, V
vocabulary, d width of the compared vectors.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.errors import ShapeError
from stepline.models.procx.batch import StepBatch
from stepline.models.procx.captioner import Captioner
from stepline.models.procx.matcher import (
    FOCAL_ALPHA,
    FOCAL_GAMMA,
    Matches,
    Targets,
    boxes_to_spans,
    giou,
    hungarian_match,
)
from stepline.models.procx.model import Predictions, ProcX
from stepline.models.procx.settings import CaptionMean, CountForm, LossSettings
from stepline.models.training.loop import Loss

IGNORED_TOKEN = -100  # a target that cross_entropy leaves out
# VarifocalNet; the paper gives none
VARIFOCAL_ALPHA = 0.75  # weight of a query without a step
VARIFOCAL_GAMMA = 2.0
COUNT_DEVIATION = 2.0  # steps; sigma of what is forgiven next to the true count; PDVC
MASKED_LOGIT = -1e4  # of what is not a positive, and finite, so that no gradient is NaN


def compute_weighted_losses(
    model: ProcX,
    batch: StepBatch,
    settings: LossSettings = LossSettings(),
    rates: Tensor | None = None,
) -> list[Loss]:
    """Return the losses of a batch, each multiplied by its weight. Losses of weight 0 are left out.

    Args:
        model: the network.
        batch: videos with their annotated steps.
        settings: forms and weights of the losses.
        rates: (C,) fraction of training videos with each number of steps, for PDVC's count loss.
            None: equal fractions.
    """
    weighted = []
    for name, loss in compute_batch_losses(model, batch, settings, rates).items():
        weight: float = getattr(settings, f"{name}_weight")
        if weight:
            weighted.append(loss.weighted(weight))
    return weighted


def compute_batch_losses(
    model: ProcX,
    batch: StepBatch,
    settings: LossSettings = LossSettings(),
    rates: Tensor | None = None,
) -> dict[str, Loss]:
    """Return the unweighted losses by name: "giou", "l1", "confidence", "count" and "caption". A
    transformer captioner adds "contrast", unless its weight is 0.

    Args:
        model: the network.
        batch: videos with their annotated steps.
        settings: forms and weights of the losses.
        rates: (C,) fraction of training videos with each number of steps, for PDVC's count loss.
            None: equal fractions.
    """
    # The matching of the localization losses decides which queries are captioned.
    output = model(batch.videos)
    losses, matches = compute_localization_losses(
        output.predictions, batch.targets, settings, rates
    )
    layer_count = len(output.queries)
    if settings.text_layers == "last":
        matches = matches.select_layer(layer_count - 1)
        layer_count = 1
    # Teacher forcing: each token is predicted from the true ones before it.
    captions = batch.captions.select(batch.caption_rows(matches.video, matches.step))
    context = model.caption_context(output, matches)
    decoded = model.captioner(captions.tokens, captions.token_pad, context)
    losses["caption"] = caption_loss(
        decoded.logits,
        captions.targets,
        captions.token_pad,
        settings.label_smoothing,
        layers=layer_count,
        average=settings.caption_mean,
    )
    texts = decoded.text_vectors
    captioner = model.captioner
    if texts is not None and isinstance(captioner, Captioner) and settings.contrast_weight:
        queries = captioner.query_vectors(context.queries)  # (M, d)
        temperature = model.temperature()
        losses["contrast"] = contrastive_loss(queries, texts, matches, temperature, settings)
    return losses


def compute_localization_losses(
    predictions: Predictions,
    targets: Targets,
    settings: LossSettings = LossSettings(),
    rates: Tensor | None = None,
) -> tuple[dict[str, Loss], Matches]:
    """Return the unweighted losses "giou", "l1", "confidence" and "count", and the matches of
    queries and steps.

    Args:
        predictions: predictions of all decoder layers.
        targets: annotated steps of the videos.
        settings: forms of the losses.
        rates: (C,) fraction of training videos with each number of steps, for PDVC's count loss.
            None: equal fractions.

    Raises ShapeError for NaN.
    """
    # Boxes: of matched queries alone.
    matches = hungarian_match(predictions.logits, predictions.boxes, targets)
    boxes = matches.gather_queries(predictions.boxes).float()  # (M, 2)
    truth = matches.gather_steps(targets.boxes)
    agreement = giou(boxes_to_spans(boxes), boxes_to_spans(truth))  # (M,)
    disagreement = (1 - agreement).sum()
    distance = (boxes - truth).abs().sum()
    # Confidence and counts: of all queries, each at every layer.
    confidence = _confidence_loss(predictions.logits, matches, agreement, settings)
    count = count_loss(predictions.counts, targets.counts, settings.count, rates=rates)
    steps = targets.counts.sum()
    videos = torch.tensor(len(targets.boxes), device=steps.device)
    losses = {
        "giou": Loss(disagreement, steps),
        "l1": Loss(distance, steps),
        # Without any step the queries still learn to be unsure, so nothing is divided by 0.
        "confidence": Loss(confidence.sum(), steps.clamp(min=1)),
        "count": Loss(count.sum(), videos),
    }
    return losses, matches


def _confidence_loss(
    logits: Tensor, matches: Matches, agreement: Tensor, settings: LossSettings
) -> Tensor:
    """Return the confidence loss of each query, (L, B, N).

    Args:
        logits: (L, B, N) confidence logits of N queries in B videos at L decoder layers.
        matches: M pairs of a query and a step.
        agreement: (M,) gIoU of the boxes of each pair.
        settings: `confidence` selects the form.
    """
    index = (matches.layer, matches.video, matches.query)
    # PDVC's: a matched query is simply right, however well its box fits.
    if settings.confidence == "focal":
        matched = torch.zeros_like(logits, dtype=torch.bool)
        matched[index] = True
        return focal_loss(logits, matched)
    # ProcX's: a matched query is as right as its box fits, from 0 to 1.
    quality = torch.zeros_like(logits, dtype=torch.float32)
    quality[index] = 0.5 * (1 + agreement.detach())
    return varifocal_loss(logits, quality)


def focal_loss(logits: Tensor, matched: Tensor) -> Tensor:
    """Return the focal loss of each query's confidence, (..., N) float32.

    Args:
        logits: (..., N) confidence logits of N queries.
        matched: (..., N), True if the query is matched with an annotated step.

    Source: Lin et al. 2017, with PDVC's alpha 0.25 and gamma 2.
    """
    correct = torch.where(matched, logits.float(), -logits.float())  # logit of what is right
    # (1 - p_right)^gamma, whose gradient is finite everywhere
    modulation = (FOCAL_GAMMA * F.logsigmoid(-correct)).exp()
    return torch.where(matched, FOCAL_ALPHA, 1 - FOCAL_ALPHA) * modulation * -F.logsigmoid(correct)


def varifocal_loss(logits: Tensor, quality: Tensor) -> Tensor:
    """Return the gIoU-guided varifocal loss of each query's confidence, (..., N) float32.

    Args:
        logits: (..., N) confidence logits of N queries.
        quality: (..., N) target (1 + gIoU) / 2 of a matched query and its step, exactly 0 for an
            unmatched query. It gets no gradient.

    Source: ProcX equation 13 with its second branch corrected; VarifocalNet (Zhang et al. 2021)
    with alpha 0.75 and gamma 2.
    """
    logits = logits.float()
    quality = quality.detach().float()
    cross_entropy = F.binary_cross_entropy_with_logits(logits, quality, reduction="none")
    modulation = (VARIFOCAL_GAMMA * F.logsigmoid(logits)).exp()  # p^gamma
    # Only queries without a step are modulated, as in VarifocalNet.
    without = VARIFOCAL_ALPHA * modulation
    return torch.where(quality > 0, quality, without) * cross_entropy


def count_loss(
    logits: Tensor, counts: Tensor, form: CountForm = "pdvc", *, rates: Tensor | None = None
) -> Tensor:
    """Return the loss of the predicted number of steps of each video, (..., B) float32.

    Args:
        logits: (..., B, C) logits of the step counts 0 to C - 1.
        counts: (B,) true numbers of steps. Numbers above C - 1 are treated as C - 1.
        form: "cross_entropy", or "pdvc" for PDVC's binary loss. That one weighs a count that is off
            by d with 1 - exp(-d^2 / 2 deviation^2).
        rates: (C,) fraction of training videos with each count. "pdvc" gives frequent counts less
            weight. None: equal fractions.
    """
    classes = logits.shape[-1]
    logits = logits.float()
    true = counts.clamp(max=classes - 1)
    # The paper's form: one class per count.
    if form == "cross_entropy":
        index = true.expand(logits.shape[:-1])[..., None]  # (..., B, 1)
        return -logits.log_softmax(dim=-1).gather(-1, index)[..., 0]

    # a count near the true one is forgiven
    is_true_count = F.one_hot(true, classes).to(logits)  # (B, C)
    numbers = torch.arange(classes, device=logits.device)
    distance = numbers - true[:, None]  # (B, C)
    nearness = (-distance.square() / (2 * COUNT_DEVIATION**2)).exp()
    weight = torch.where(is_true_count > 0, 1.0, 1 - nearness)
    if rates is not None:
        weight = weight * (1 - rates)
    target = is_true_count.expand(logits.shape)
    losses = F.binary_cross_entropy_with_logits(logits, target, reduction="none")  # (..., B, C)
    return (losses * weight).mean(dim=-1)


def count_frequencies(counts: Iterable[int], classes: int) -> Tensor:
    """Return the fraction of training videos with each number of steps, (classes,).

    PDVC trains on YouCook2 with the fractions of ActivityNet. Raises ShapeError when there is no
    video.

    Args:
        counts: number of steps of each video.
        classes: number of classes of the count head, for 0 to classes - 1 steps.
    """
    number = torch.tensor(list(counts), dtype=torch.int64)
    if not len(number):
        raise ShapeError("no video to count the steps of; give at least one")
    # The last class holds all greater counts.
    classed = number.clamp(max=classes - 1)
    return classed.bincount(minlength=classes) / len(number)


def caption_loss(
    logits: Tensor,
    tokens: Tensor,
    token_pad: Tensor,
    smoothing: float = 0.2,
    *,
    layers: int = 1,
    average: CaptionMean = "tokens",
) -> Loss:
    """Return the next-token cross-entropy of M captions.

    Args:
        logits: (M, W, V) logits over V tokens.
        tokens: (M, W) true next tokens.
        token_pad: (M, W), True on padding, which does not count.
        smoothing: label smoothing: fraction of the target spread over all V tokens.
        layers: number of decoder layers from which the captions come.
        average: "tokens": mean over all tokens. "captions": mean over captions of each caption's
            mean, as in PDVC's code.
    """
    targets = tokens.masked_fill(token_pad, IGNORED_TOKEN)
    flat = F.cross_entropy(
        logits.float().flatten(0, 1),
        targets.flatten(),  # (M W,)
        ignore_index=IGNORED_TOKEN,
        reduction="none",
        label_smoothing=smoothing,
    )
    by_token = flat.view(tokens.shape)  # (M, W)
    real = (~token_pad).sum(dim=1)  # (M,)
    # Each layer captions the video's steps, so the mean of all times the layers is their sum.
    if average == "tokens":
        return Loss(by_token.sum() * layers, real.sum())
    by_caption = by_token.sum(dim=1) / real.clamp(min=1)  # (M,)
    return Loss(by_caption.sum() * layers, (real > 0).sum())


def contrastive_loss(
    queries: Tensor, texts: Tensor, matches: Matches, temperature: Tensor, settings: LossSettings
) -> Loss:
    """Return the contrastive loss between queries and sentences (equation 16). Only matches of the
    same decoder layer are compared.

    Args:
        queries: (M, d) unit vectors of the matched queries.
        texts: (M, d) unit vectors of the sentences of the matched steps.
        matches: pairs of query and step. The steps of a video are sorted by time.
        temperature: sigma of equation 15, a scalar.
        settings: `contrast` selects InfoNCE ("pair") or MIL-InfoNCE ("multiple"). The latter also
            counts the sentences of `neighbours` adjacent steps as positives.
    """
    reach = settings.neighbours if settings.contrast == "multiple" else 0
    layers = matches.layer.unique().tolist()
    # 0 with a graph: a batch without matches has gradients too.
    total = queries.sum() * 0
    for layer in layers:
        rows = matches.layer == layer
        positive = positive_mask(matches.select_layer(layer), reach)
        total = total + info_nce(queries[rows], texts[rows], positive, temperature) * len(layers)
    return Loss(total, torch.tensor(len(matches), device=queries.device))


def info_nce(queries: Tensor, texts: Tensor, positive: Tensor, temperature: Tensor) -> Tensor:
    """Return the symmetric InfoNCE loss with several positives, summed over queries (a scalar).

    One half is -log P of each query's positive sentences. The other half is -log P of each
    sentence's positive queries, rescaled from P to M. All other sentences of the batch are
    negatives. A row or a column without a positive adds nothing.

    Args:
        queries: (M, d) unit vectors of queries.
        texts: (P, d) unit vectors of sentences.
        positive: (M, P), True if sentence p is a positive of query m. The identity matrix gives
            InfoNCE, more positives give MIL-InfoNCE.
        temperature: sigma, a scalar.
    """
    if not positive.numel():
        return queries.sum() * 0 + texts.sum() * 0
    # In float32: cosines over a small temperature have large logits.
    with torch.autocast(queries.device.type, enabled=False):
        cosines = queries.float() @ texts.float().T
        logits = cosines / temperature  # (M, P)
    to_text = _negative_log_positive(logits, positive, dim=1)  # (M,)
    to_query = _negative_log_positive(logits, positive, dim=0)  # (P,)
    scaled = to_query.sum() * len(queries) / len(texts)
    return 0.5 * (to_text.sum() + scaled)


def _negative_log_positive(logits: Tensor, positive: Tensor, dim: int) -> Tensor:
    """Return -log of the total softmax probability of the positives along a dimension. It is 0 in
    rows without a positive.

    Args:
        logits: (M, P) logits of the softmax.
        positive: (M, P), True for positives.
        dim: dimension of the softmax, which the result lacks.
    """
    positive_logits = logits.masked_fill(~positive, MASKED_LOGIT).logsumexp(dim)
    everything = logits.logsumexp(dim)
    return torch.where(positive.any(dim), everything - positive_logits, 0.0)


def positive_mask(matches: Matches, neighbours: int = 0) -> Tensor:
    """Return the mask (M, M) that is True if sentence j is a positive of query i.

    The positives are the query's step and the steps up to `neighbours` steps before or after it in
    the same video. The paper does not define the positives of MIL-InfoNCE.

    Args:
        matches: matches of one decoder layer. The steps of a video are sorted by time.
        neighbours: number of adjacent steps on each side.
    """
    is_same_video = matches.video[:, None] == matches.video
    distance = (matches.step[:, None] - matches.step).abs()
    return is_same_video & (distance <= neighbours)
