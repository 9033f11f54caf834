"""Which query is given which step: the cheapest one-to-one pairing (Hungarian method).

Letters: L decoder layers, B batch, N queries, K steps, M pairs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from stepline.errors import ShapeError
from stepline.procx.boxes import edges, giou
from stepline.procx.loss_settings import MatchSettings
from stepline.procx.targets import Targets

FAINT = 1e-8  # added to probabilities before their logarithm; PDVC


@dataclass(frozen=True)
class Pairs:
    """Queries with the steps that they were given: four rows of M indices, by layer, then video, then query.

    left_out: steps of videos with more steps than queries, counted once a layer; they teach no query.
    """

    layer: Tensor
    video: Tensor
    query: Tensor
    step: Tensor
    left_out: int

    def __len__(self) -> int:
        return len(self.query)

    def only(self, layer: int) -> "Pairs":
        """Return the pairs of one layer, whose number is not below 0."""
        kept = self.layer == layer
        return Pairs(self.layer[kept], self.video[kept], self.query[kept], self.step[kept], self.left_out)

    def queries(self, values: Tensor) -> Tensor:
        """Return what (L, B, N, ...) holds for each pair, (M, ...)."""
        return values[self.layer, self.video, self.query]

    def steps(self, values: Tensor) -> Tensor:
        """Return what (B, K, ...) holds for each pair, (M, ...)."""
        return values[self.video, self.step]


def match(logits: Tensor, boxes: Tensor, targets: Targets, settings: MatchSettings | None = None) -> Pairs:
    """Return the cheapest pairing of each video at each layer. logits: (L, B, N); boxes: (L, B, N, 2) as fractions.

    The same input gives the same pairs, ties too. Raises ShapeError for shapes that do not fit, or NaN.
    Source: PDVC, as released; ProcX does not say which cost it uses with its own confidence loss.
    """
    from scipy.optimize import linear_sum_assignment

    _check(logits, boxes, targets)
    costs = match_costs(logits, boxes, targets, settings or MatchSettings()).cpu()  # (L, B, N, K)
    if not bool(torch.isfinite(costs).all()):
        raise ShapeError("a confidence or box of the network is NaN or infinite; lower train.learning_rate")
    real = [(~pad).nonzero().flatten().tolist() for pad in targets.box_pad.cpu()]  # places of each video's steps
    found: list[tuple[int, int, int, int]] = []
    for layer, videos in enumerate(costs.numpy()):
        for video, (cost, places) in enumerate(zip(videos, real, strict=True)):
            queries, steps = linear_sum_assignment(cost[:, places])
            found += [(layer, video, int(query), places[step]) for query, step in zip(queries, steps, strict=True)]
    layer, video, query, step = torch.tensor(found, dtype=torch.int64, device=logits.device).view(-1, 4).T  # (M,) each
    return Pairs(layer, video, query, step, sum(map(len, real)) * len(logits) - len(found))


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def match_costs(logits: Tensor, boxes: Tensor, targets: Targets, settings: MatchSettings) -> Tensor:
    """Return what each pair would cost, (L, B, N, K) float32; padded steps mean nothing."""
    logits, boxes, wanted = logits.float(), boxes.float(), targets.boxes.float()[:, None]  # (B, 1, K, 2)
    p = logits.sigmoid()
    with_step = settings.alpha * (1 - p) ** settings.gamma * -(p + FAINT).log()
    without = (1 - settings.alpha) * p**settings.gamma * -(1 - p + FAINT).log()
    apart = (boxes[..., None, :] - wanted).abs().sum(dim=-1)  # (L, B, N, K)
    agree = giou(edges(boxes)[..., None, :], edges(wanted))  # (L, B, N, K)
    return settings.confidence * (with_step - without)[..., None] + settings.l1 * apart - settings.giou * agree


def _check(logits: Tensor, boxes: Tensor, targets: Targets) -> None:
    if logits.ndim != 3 or boxes.shape != (*logits.shape, 2):
        want = "logits (layers, videos, queries) and boxes (layers, videos, queries, 2)"
        raise ShapeError(f"matching takes {want}, not {tuple(logits.shape)} and {tuple(boxes.shape)}")
    if logits.shape[1] != len(targets.boxes):
        raise ShapeError(f"the network speaks of {logits.shape[1]} videos, the targets of {len(targets.boxes)}")
