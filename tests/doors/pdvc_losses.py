"""Outputs of a network of two decoder layers for three videos of 3, 1 and 4 steps."""

import closed_forms
import torch

STEPS = {"pour": 3, "whisk": 1, "bake": 4}
LAYERS, QUERIES, COUNTS = 2, 7, 6


def made(name, rows, width):
    return torch.tensor(closed_forms.rows(name, rows, width), dtype=torch.float32)


def outputs():
    """Return logits (L, B, N), boxes (L, B, N, 2) and logits of counts (L, B, C)."""
    shape = (LAYERS, len(STEPS), QUERIES)
    size = LAYERS * len(STEPS)
    return {
        "logits": made("logits", size, QUERIES).view(shape),
        "boxes": made("boxes", size * QUERIES, 2).sigmoid().view(*shape, 2),
        "counts": made("counts", size, COUNTS).view(*shape[:2], COUNTS),
    }


def targets():
    """Return the boxes (K, 2) of the steps of each video: center and length as fractions of it."""
    return [made(name, count, 2).sigmoid() for name, count in STEPS.items()]


def rates():
    """Return the fraction of training videos with each number of steps (C,)."""
    return made("rates", 1, COUNTS)[0].softmax(dim=0)
