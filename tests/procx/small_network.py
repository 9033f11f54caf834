"""A small ProcX, and videos whose features say where the steps are."""

import numpy as np
import torch

from stepline.models.procx.batch import StepSample, collate
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import (
    AttentionSettings,
    CaptionerSettings,
    LossSettings,
    ModelSettings,
    VocabularySettings,
)
from stepline.models.procx.vocabulary import train_vocabulary

SENTENCES = (
    "cut the onion into thin rings",
    "fry the onion in butter",
    "serve the eggs with toast",
    "crack 2 eggs into the pan",
    "add salt",
)
VOCABULARY = train_vocabulary(SENTENCES, VocabularySettings(size=300, rare=1))
WIDTH = 16  # of a feature row
# as its release trains YouCook2
PDVC_FORMS = {"confidence": "focal", "text_layers": "every", "caption_mean": "captions"}
PDVC_WEIGHTS = {"l1_weight": 0.0, "caption_weight": 2.0, "contrast_weight": 0.0}
PDVC_LOSSES = LossSettings(**PDVC_FORMS, **PDVC_WEIGHTS, label_smoothing=0.0)


def tiny(form="key-aware", kind="transformer", **changes):
    common = {"feed_forward": 64, "dropout": 0.0}
    sizes = {"width": 32, "heads": 4, "text_layers": 1, "joint_layers": 1, "projection": 16}
    captioner = CaptionerSettings(kind=kind, longest=16, **sizes, **common)
    attention = AttentionSettings(width=32, heads=4, form=form)
    sizes = {"features": WIDTH, "rows": 32, "encoder_layers": 1, "decoder_layers": 2, "queries": 8}
    sizes |= {"most_steps": 6, "longest_duration": 64} | common
    settings = ModelSettings(attention=attention, captioner=captioner, **sizes)
    return settings.model_copy(update=changes)


def network(settings=None, seed=0, stirred=False):
    """Fresh, or stirred: with weights in the places that begin as zeros."""
    torch.manual_seed(seed)
    model = ProcX(settings or tiny(), len(VOCABULARY))
    if stirred:
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.05 * torch.randn_like(weight))
    return model


def sample(name="a", rows=40, duration=100.0, steps=3, seed=0):
    """Steps that fill four fifths of the video, evenly."""
    values = np.random.default_rng(seed).standard_normal((rows, WIDTH)).astype(np.float32)
    length = duration / max(steps, 1)
    spans = tuple((length * step, length * (step + 0.8)) for step in range(steps))
    sentences = tuple(SENTENCES[step % len(SENTENCES)] for step in range(steps))
    return StepSample(name, values, duration, spans, sentences)


def three():
    """One video with three steps, one with two, one without any."""
    spans, features = ((5.0, 20.0), (30.0, 50.0), (60.0, 95.0)), np.random.default_rng(0)
    values = [features.standard_normal((rows, WIDTH)).astype(np.float32) for rows in (40, 20, 9)]
    return [
        StepSample("a", values[0], 100.0, spans, SENTENCES[:3]),
        StepSample("b", values[1], 50.0, ((2.0, 10.0), (25.0, 40.0)), SENTENCES[3:]),
        StepSample("c", values[2], 30.0),
    ]


def made(samples, settings=None):
    return collate(samples, VOCABULARY, settings or tiny())
