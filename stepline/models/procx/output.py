"""What the network says of a batch of videos.

Letters: B videos, R rows, L decoder layers, P positions of all levels, N queries, C counts, D
width.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Predictions:
    """What the heads say of a batch at each decoder layer, the last one last.

    logits: (L, B, N) of confidence.
    boxes: (L, B, N, 2), center and length in [0, 1].
    counts: (L, B, C) logits.
    """

    logits: Tensor
    boxes: Tensor
    counts: Tensor


@dataclass(frozen=True)
class ModelOutput:
    """What the network made of a batch.

    queries: (L, B, N, D) after each decoder layer.
    word_queries: those that captions are written from, the same unless `query_form` is "roles".
    levels: (B, P, D), `lengths` positions of each level one after the other.
    fused: (B, R, D), None where the captioner does not look at it.
    empty: as in `Videos`.
    """

    predictions: Predictions
    queries: Tensor
    word_queries: Tensor
    levels: Tensor
    lengths: tuple[int, ...]
    fused: Tensor | None
    empty: Tensor | None
