"""Matching of queries with steps, one to one and at the lowest cost (Hungarian method), and the boxes that
it compares.

For instance, 2 steps at 2-6 s and 10-14 s of a video of 20 s, and 2 queries of equal confidence:

    step 0    box (0.20, 0.2)      query 0    box (0.60, 0.2)
    step 1    box (0.60, 0.2)      query 1    box (0.25, 0.2)
    hungarian_match -> query 0 has step 1, query 1 has step 0
    spans (0.1, 0.3) and (0.2, 0.4)      IoU 0.1 / 0.3 = 0.333      gIoU 0.333, no gap
    spans (0.0, 0.2) and (0.4, 0.6)      IoU 0                      gIoU -0.2 / 0.6 = -0.333

A box is (center, length) as fractions of the video, as the network gives it. A span is (start,
end). The denominators of IoU and gIoU have PDVC's 1e-5 added. So two equal boxes have an IoU a
little under 1, and boxes without length have finite values and gradients.
Source: PDVC, as released, and Rezatofighi et al. 2019 (gIoU).
Letters: L decoder layers, B videos, N queries, K steps of the video that has most, M matches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stepline.errors import ShapeError
from stepline.models.training.batches import TensorRecord

UNION_EPSILON = 1e-5  # of the video's length, added to unions and hulls; PDVC
# of the cost, as PDVC's release trains YouCook2. The paper leaves it open
CONFIDENCE_COST = 2.0
GIOU_COST = 4.0
FOCAL_ALPHA = 0.25
FOCAL_GAMMA = 2.0
LOG_EPSILON = 1e-8  # added to probabilities before their logarithm; PDVC


def boxes_to_spans(boxes: Tensor) -> Tensor:
    """Return (start, end) of boxes given as (center, length). Input and output are (..., 2)."""
    center, length = boxes.unbind(-1)
    return torch.stack((center - 0.5 * length, center + 0.5 * length), dim=-1)


def spans_to_boxes(spans: Tensor) -> Tensor:
    """Return (center, length) of spans given as (start, end). Input and output are (..., 2)."""
    start, end = spans.unbind(-1)
    return torch.stack(((start + end) / 2, end - start), dim=-1)


def giou(first: Tensor, second: Tensor) -> Tensor:
    """Return the generalized IoU of pairs of (start, end) spans, in (-1, 1).

    It is the IoU minus the fraction of the enclosing span that neither span covers. Leading
    dimensions broadcast: (M, 1, 2) and (K, 2) give (M, K).
    """
    last_start = torch.maximum(first[..., 0], second[..., 0])
    overlap = (torch.minimum(first[..., 1], second[..., 1]) - last_start).clamp(min=0)
    lengths = first[..., 1] - first[..., 0] + (second[..., 1] - second[..., 0])
    union = lengths - overlap
    first_start = torch.minimum(first[..., 0], second[..., 0])
    hull = (torch.maximum(first[..., 1], second[..., 1]) - first_start).clamp(min=0)
    return overlap / (union + UNION_EPSILON) - (hull - union) / (hull + UNION_EPSILON)


@dataclass(frozen=True)
class Targets(TensorRecord):
    """Spans of the annotated steps of B videos.

    Attributes:
        boxes: (B, K, 2) center and length of up to K steps as fractions of the video, 0 on padding.
        box_pad: (B, K), True on padding.
    """

    boxes: Tensor
    box_pad: Tensor

    @property
    def counts(self) -> Tensor:
        """Number of steps of each video, (B,)."""
        return (~self.box_pad).sum(dim=1)


def build_targets(
    spans: Sequence[Sequence[tuple[float, float]]], durations: Sequence[float]
) -> Targets:
    """Return the annotated steps of B videos as padded boxes. Spans are clipped to [0, duration].

    Args:
        spans: (start, end) in seconds of each video's steps. A video may have no step.
        durations: length of each video in seconds.

    Raises ShapeError for a reversed span, a span wholly outside its video, or a video of length 0.
    """
    most_steps = max(map(len, spans), default=0)
    boxes = torch.zeros(len(spans), most_steps, 2)  # (B, K, 2)
    box_pad = torch.ones(boxes.shape[:2], dtype=torch.bool)
    for video, (steps, duration) in enumerate(zip(spans, durations, strict=True)):
        if not duration > 0:
            raise ShapeError(f"a video's duration must be above 0 seconds, not {duration}")
        for number, (start, end) in enumerate(steps):
            first = max(0.0, start) / duration
            last = min(duration, end) / duration
            if not (start <= end and first <= last):  # NaN too
                raise ShapeError(
                    f"step {start}-{end} is not in the video's 0-{duration} seconds; leave it out"
                )
            boxes[video, number] = torch.tensor([first, last])
            box_pad[video, number] = False
    return Targets(spans_to_boxes(boxes), box_pad)


@dataclass(frozen=True)
class QueryIndex:
    """Indices that select M decoder queries of a batch.

    Attributes:
        layer: (M,) number of the decoder layer. -1 is the last.
        video: (M,) index of the video in the batch.
        query: (M,) number of the query.
    """

    layer: Tensor
    video: Tensor
    query: Tensor

    @staticmethod
    def last_layer(video: Tensor, query: Tensor) -> "QueryIndex":
        """Return the indices of queries after the last decoder layer.

        Args:
            video: (M,) index of each query's video in the batch.
            query: (M,) number of each query.
        """
        return QueryIndex(torch.full_like(video, -1), video, query)


@dataclass(frozen=True)
class Matches(QueryIndex):
    """M pairs of a decoder query and the annotated step assigned to it, sorted by layer, video and
    query.

    Attributes:
        step: (M,) number of the step in its video.
    """

    step: Tensor

    def __len__(self) -> int:
        return len(self.query)

    def select_layer(self, layer: int) -> "Matches":
        """Return the matches of one decoder layer. layer: its number, from 0."""
        rows = self.layer == layer
        columns = (self.layer, self.video, self.query, self.step)
        return Matches(*(column[rows] for column in columns))

    def gather_queries(self, values: Tensor) -> Tensor:
        """Return the values (M, ...) of the matched queries, from values (L, B, N, ...) by layer,
        video and query."""
        return values[self.layer, self.video, self.query]

    def gather_steps(self, values: Tensor) -> Tensor:
        """Return the values (M, ...) of the matched steps, from values (B, K, ...) by video and
        step."""
        return values[self.video, self.step]


def hungarian_match(logits: Tensor, boxes: Tensor, targets: Targets) -> Matches:
    """Return the minimum-cost assignment of queries to annotated steps, for each video and decoder
    layer. If a video has more steps than queries, the costliest steps stay without a query.

    Args:
        logits: (L, B, N) confidence logits of L layers, B videos and N queries.
        boxes: (L, B, N, 2) predicted center and length as fractions of the video.
        targets: annotated steps of the B videos.

    Raises ShapeError for NaN.
    Source: PDVC's released code. The ProcX paper does not give the matching cost for its confidence
    loss.
    """
    from scipy.optimize import linear_sum_assignment

    costs = match_costs(logits, boxes, targets).cpu()  # (L, B, N, K)
    if not bool(torch.isfinite(costs).all()):
        raise ShapeError(
            "a confidence or box of the network is NaN or infinite; lower train.learning_rate"
        )

    # numbers of each video's steps
    real = [(~pad).nonzero().flatten().tolist() for pad in targets.box_pad.cpu()]

    # the cheapest pairs of each layer and video
    rows: list[tuple[int, int, int, int]] = []
    for layer, videos in enumerate(costs.numpy()):
        for video, (cost, numbers) in enumerate(zip(videos, real, strict=True)):
            # With more steps than queries, the steps that are dearest to match are left out.
            queries, columns = linear_sum_assignment(cost[:, numbers])
            for query, column in zip(queries.tolist(), columns, strict=True):
                rows.append((layer, video, query, numbers[column]))
    table = torch.tensor(rows, dtype=torch.int64, device=logits.device)
    return Matches(*table.view(-1, 4).unbind(1))


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def match_costs(logits: Tensor, boxes: Tensor, targets: Targets) -> Tensor:
    """Return the matching cost (L, B, N, K) float32 of each query and annotated step.

    The cost is the focal cost of the query's confidence minus the gIoU. Costs of padded steps have
    no meaning.

    Args:
        logits: (L, B, N) confidence logits of L layers, B videos and N queries.
        boxes: (L, B, N, 2) predicted center and length as fractions of the video.
        targets: annotated steps of the B videos, at most K each.
    """
    p = logits.float().sigmoid()  # (L, B, N)
    with_step = FOCAL_ALPHA * (1 - p) ** FOCAL_GAMMA * -(p + LOG_EPSILON).log()
    without = (1 - FOCAL_ALPHA) * p**FOCAL_GAMMA * -(1 - p + LOG_EPSILON).log()
    confidence = CONFIDENCE_COST * (with_step - without)[..., None]  # (L, B, N, 1)
    spans = boxes_to_spans(boxes.float()[..., None, :])  # (L, B, N, 1, 2)
    truth = boxes_to_spans(targets.boxes.float()[:, None])  # (B, 1, K, 2)
    return confidence - GIOU_COST * giou(spans, truth)
