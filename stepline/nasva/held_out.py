"""How good a network is on samples that it is not trained on: what chooses the best of a run's networks."""

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor, nn

from stepline.batches import Batch, Sample, collate
from stepline.nasva.data_settings import HeldOutScore
from stepline.nasva.loss import grounding_loss
from stepline.nasva.model import Aligned
from stepline.nasva.model_settings import LossSettings
from stepline.training import Judge

AT_ONCE = 8  # samples


def aligner_judge(
    samples: Sequence[Sample], score: HeldOutScore, loss: LossSettings, keep: Callable[[nn.Module], None]
) -> Judge:
    """Return the judge of held-out samples; "recall": R@1 of their labels, "loss": what a text loses, negative."""

    def measure(network: nn.Module, rank: int, size: int) -> tuple[float, float]:
        total = count = 0.0
        for batch in _batches(samples, rank, size, next(network.parameters()).device):
            aligned = network(batch)
            more, over = hits(aligned, batch) if score == "recall" else _losses(aligned, batch, loss)
            total, count = total + float(more), count + float(over)
        return total, count

    return Judge(measure, keep)


def hits(aligned: Aligned, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return how many labelled texts have their best row among their labels, and how many there are."""
    shown = batch.positive & ~batch.video_pad[:, None] & ~batch.text_pad[:, :, None]  # (B, K, T)
    best = aligned.scores.masked_fill(batch.video_pad[:, None], -2.0).argmax(dim=2, keepdim=True)  # (B, K, 1)
    return shown.gather(2, best).sum(), shown.any(dim=2).sum()


def _losses(aligned: Aligned, batch: Batch, settings: LossSettings) -> tuple[Tensor, Tensor]:
    part = grounding_loss(aligned, batch, settings)
    return -part.total, part.count


def _batches(samples: Sequence[Sample], rank: int, size: int, device: object) -> Iterator[Batch]:
    mine = range(rank, len(samples), size)
    for first in range(0, len(mine), AT_ONCE):
        yield collate([samples[index] for index in mine[first : first + AT_ONCE]]).to(str(device))
