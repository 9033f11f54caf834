"""A key-aware attention layer over levels of 9, 5 and 2 rows, its queries, points and boxes."""

import closed_forms
import torch

WIDTH, HEADS, LENGTHS, POINTS, QUERIES = 32, 4, (9, 5, 2), 2, 3
NAMES = ("query", "key", "value", "out", "offsets")


def state():
    """Return the weights by our names. Lite-DETR's offsets have a second axis, which is 0 here."""
    count = HEADS * len(LENGTHS) * POINTS
    shapes = {}
    for name in NAMES:
        rows = count if name == "offsets" else WIDTH
        shapes |= {f"{name}.weight": (rows, WIDTH), f"{name}.bias": (rows,)}
    given = closed_forms.weights(shapes)
    given["offsets.bias"] = 8 * given["offsets.bias"]  # past both ends, too
    return given


def inputs():
    """Return queries (2, 3, D), points (2, 3, L, 1), boxes (2, 3, L, 2), rows (2, P, D) and padding
    (2, P), which ends the second video early."""
    rows = torch.tensor(closed_forms.rows("rows", 2 * sum(LENGTHS), WIDTH)).view(2, -1, WIDTH)
    queries = torch.tensor(closed_forms.rows("queries", 2 * QUERIES, WIDTH)).view(2, -1, WIDTH)
    size = (2, QUERIES, len(LENGTHS), 1)
    centers = torch.tensor([[0.02, 0.4, 0.97], [0.25, 0.5, 0.8]])[:, :, None, None].expand(size)
    lengths = torch.tensor([[0.1, 0.6, 0.3], [1.0, 0.05, 0.5]])[:, :, None, None].expand(size)
    pad = torch.zeros(2, sum(LENGTHS), dtype=torch.bool)
    pad[1, [7, 8, 13, 15]] = True
    return queries, centers, torch.cat((centers, lengths), dim=-1), rows, pad
