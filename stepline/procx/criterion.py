"""All that training lowers on a batch: where the steps are, how many, and their words. ProcX equation 14, section E.2.

Letters: L decoder layers, M pairs of a query and a step, C counts.
"""

from torch import Tensor

from stepline.procx.batch import StepBatch
from stepline.procx.captioner import Captioner
from stepline.procx.losses import (
    AlternativeTexts,
    apply_weights,
    caption_loss,
    caption_matches,
    contrastive_loss,
    localization_losses,
)
from stepline.procx.matcher import Matches
from stepline.procx.model import ModelOutput, ProcX
from stepline.procx.settings import LossSettings
from stepline.training.loop import Loss


def training_losses(
    model: ProcX, batch: StepBatch, settings: LossSettings | None = None, rates: Tensor | None = None
) -> list[Loss]:
    """Return the losses of a batch times their weights, as `training.fit` adds them; `batch_losses` says more."""
    settings = settings or LossSettings()
    return apply_weights(batch_losses(model, batch, settings, rates), settings)


def batch_losses(
    model: ProcX, batch: StepBatch, settings: LossSettings | None = None, rates: Tensor | None = None
) -> dict[str, Loss]:
    """Return "giou", "l1", "confidence", "count", "caption" and, from a transformer, "contrast", not yet weighted.

    rates: (C,) shares of counts in the training data, for PDVC's form of the count loss; None: all alike.
    """
    settings = settings or LossSettings()
    seen = model(batch.videos)
    found, pairs = localization_losses(seen.proposed, batch.targets, settings, rates)
    return found | _words(model, seen, batch, caption_matches(pairs, settings, len(seen.queries)), settings)


def _words(
    model: ProcX, seen: ModelOutput, batch: StepBatch, pairs: Matches, settings: LossSettings
) -> dict[str, Loss]:
    """Return the losses of the pairs' sentences."""
    rows = batch.rows(pairs.video, pairs.step)  # (M,)
    wanted = batch.captions.take(rows)
    said, said_pad = (None if part is None else part[rows] for part in (batch.said, batch.said_pad))
    context = model.context(seen, pairs, said, said_pad)
    says = model.captioner(wanted.tokens, wanted.token_pad, context)
    layers = len(seen.queries) if settings.text_layers == "every" else 1
    caption = caption_loss(says.logits, wanted.wanted, wanted.token_pad, settings.label_smoothing, layers=layers)
    if says.text is None or not isinstance(model.captioner, Captioner) or not settings.contrast_weight:
        return {"caption": caption}
    vectors, further = model.captioner.query_vectors(context.queries), None  # (M, d)
    if batch.others is not None and settings.contrast == "multiple":
        more = batch.others
        sentences = model.captioner.sentence_vectors(more.sentences.tokens, more.sentences.token_pad)  # (O, d)
        further = AlternativeTexts(sentences, more.video, more.step)
    compared = contrastive_loss(vectors, says.text, pairs, model.temperature(), settings, further)
    return {"caption": caption, "contrast": compared}
