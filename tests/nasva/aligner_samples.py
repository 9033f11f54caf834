"""Small networks and batches for the tests of the grounding network."""

import numpy as np

from stepline.nasva.settings import AlignerNetworkSettings
from stepline.training.batches import Sample, collate

WIDTH = 12  # of the features


def tiny(**changes):
    """Settings of a network that trains in a second; without dropout, so that equal inputs give equal outputs."""
    sizes = {"video_width": WIDTH, "text_width": WIDTH, "width": 32, "heads": 4, "encoder_layers": 1}
    sizes |= {"decoder_layers": 2, "feed_forward": 48, "projection": 8, "text_positions": 16, "dropout": 0.0}
    return AlignerNetworkSettings(**(sizes | changes))


def sample(seed=0, *, seconds=20, texts=4, ordered=False, labelled=True):
    """A video whose text k is shown in the 3 seconds from 4 k on, and looks like them."""
    chance = np.random.default_rng(seed)
    text = chance.normal(size=(texts, WIDTH)).astype(np.float32)
    video = chance.normal(size=(seconds, WIDTH)).astype(np.float32)
    positive = np.zeros((texts, seconds), dtype=bool)
    for k in range(texts if labelled else 0):
        positive[k, 4 * k : 4 * k + 3] = True
        video[positive[k]] += 2 * text[k]
    return Sample(f"v{seed}", video, text, positive, ordered)


def batch(*samples):
    """A batch of the given samples, or of two videos of unlike length."""
    return collate(samples or (sample(1, ordered=True), sample(2, seconds=14, texts=3, ordered=True)))
