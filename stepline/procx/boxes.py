"""Spans of a video as fractions of its length, and how well two of them agree.

A box is (center, length), as the network gives it; edges are (start, end). IoU and gIoU carry PDVC's 1e-5 below the
line: two equal boxes agree a little less than 1, and boxes without length have finite values and gradients.
Source: PDVC, as released; Rezatofighi et al. 2019 (gIoU).
"""

import torch
from torch import Tensor

EPSILON = 1e-5  # of the video's length, added to unions and hulls; PDVC


def edges(boxes: Tensor) -> Tensor:
    """Return (start, end) for (center, length), both (..., 2)."""
    center, length = boxes.unbind(-1)
    return torch.stack((center - 0.5 * length, center + 0.5 * length), dim=-1)


def centered(spans: Tensor) -> Tensor:
    """Return (center, length) for (start, end), both (..., 2)."""
    start, end = spans.unbind(-1)
    return torch.stack(((start + end) / 2, end - start), dim=-1)


def iou(first: Tensor, second: Tensor) -> Tensor:
    """Return the overlap of (start, end) spans over their union, (...): (M, 1, 2) and (K, 2) give (M, K)."""
    shared, union = _shared(first, second)
    return shared / (union + EPSILON)


def giou(first: Tensor, second: Tensor) -> Tensor:
    """Return IoU less the share of the hull that is in neither span, in (-1, 1), (...); shapes as `iou`."""
    shared, union = _shared(first, second)
    hull = torch.maximum(first[..., 1], second[..., 1]) - torch.minimum(first[..., 0], second[..., 0])
    hull = hull.clamp(min=0)
    return shared / (union + EPSILON) - (hull - union) / (hull + EPSILON)


def _shared(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lengths of intersection and union."""
    shared = torch.minimum(first[..., 1], second[..., 1]) - torch.maximum(first[..., 0], second[..., 0])
    shared = shared.clamp(min=0)
    return shared, (first[..., 1] - first[..., 0]) + (second[..., 1] - second[..., 0]) - shared
