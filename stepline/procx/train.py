"""Training ProcX: what `stepline.training.fit` learns here (ProcX, section E.2), and who judges it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from stepline.evaluate.soda import soda
from stepline.procx.batch import Sample, collate
from stepline.procx.choosing import choose
from stepline.procx.counting import count_rates
from stepline.procx.criterion import training_losses
from stepline.procx.data_settings import DataSettings
from stepline.procx.describe_settings import DescribeSettings
from stepline.procx.loss_settings import LossSettings
from stepline.procx.model import ProcX
from stepline.procx.model_settings import ModelSettings
from stepline.procx.proposals import propose
from stepline.procx.run_settings import PROCX_TRAINING
from stepline.procx.tokens import Vocabulary
from stepline.training import Judge, Progress, Task, fit
from stepline.training.loss import Loss
from stepline.training_settings import TrainSettings

AT_ONCE = 16  # held-out videos


def train_procx(
    samples: Sequence[Sample],
    folder: Path,
    *,
    vocabulary: Vocabulary,
    model: ModelSettings | None = None,
    loss: LossSettings | None = None,
    data: DataSettings | None = None,
    settings: TrainSettings | None = None,
    start: ProcX | None = None,
    report: Callable[[Progress], None] | None = None,
    judge: Judge | None = None,
    device: str | torch.device = "cpu",
) -> ProcX:
    """Return a network trained on the samples, from fresh weights or on from those of `start`, at rest.

    model: of a fresh network; `start` is changed in place. data: how often speech is heard, and whether wordings are
    drawn; None: samples as they come.
    A run in `folder` that was killed is taken up. Raises ShapeError when there is nothing to train on.
    """
    settings = settings or PROCX_TRAINING
    torch.manual_seed(settings.seed)  # of fresh weights
    network = start or ProcX(model or ModelSettings(), len(vocabulary))
    network.to(device)
    task = procx_task(samples, vocabulary, network.settings, loss or LossSettings(), data)
    fit(network, task, settings, folder, report, judge=judge)
    return network


def procx_task(
    samples: Sequence[Sample],
    vocabulary: Vocabulary,
    model: ModelSettings,
    loss: LossSettings,
    data: DataSettings | None = None,
) -> Task[Sample]:
    """Return what training learns. Every video counts as equally long, since all are resized to one length."""
    counts = samples.counts if hasattr(samples, "counts") else [len(sample.spans) for sample in samples]
    rates = count_rates(counts, model.most_steps + 1) if len(samples) else None  # the loop refuses none

    def losses(network: nn.Module, chosen: Sequence[Sample]) -> Sequence[Loss]:
        device = next(network.parameters()).device
        batch = collate(chosen, vocabulary, model).to(device)
        return training_losses(network, batch, loss, _to(rates, device))

    def draw(chosen: Sequence[Sample], chance: np.random.Generator) -> list[Sample]:
        return list(chosen) if data is None else [drawn(sample, data, chance) for sample in chosen]

    return Task(samples, lambda _: 1, draw, losses, [1] * len(samples))


def drawn(sample: Sample, data: DataSettings, chance: np.random.Generator) -> Sample:
    """Return the sample as one step sees it: with what is said or without, and one wording of each step, by chance."""
    heard = chance.random() < data.speech
    said = sample.said if heard else None
    if data.wording != "any" or not sample.others:
        return replace(sample, said=said)
    chosen = [_first(own, others, chance) for own, others in zip(sample.sentences, sample.others, strict=True)]
    sentences, others = zip(*chosen, strict=True)
    return replace(sample, said=said, sentences=sentences, others=others)


def _first(own: str, others: tuple[str, ...], chance: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    """Return a wording that is drawn, and the rest."""
    every = (own, *others)
    place = int(chance.integers(len(every)))
    return every[place], every[:place] + every[place + 1 :]


def soda_judge(samples: Sequence[Sample], keep: Callable[[nn.Module], None]) -> Judge:
    """Return the judge of held-out samples: SODA-D of the surest proposals, as many as are counted; no captions."""
    settings = DescribeSettings()

    def measure(network: nn.Module, rank: int, size: int) -> tuple[float, float]:
        total, mine = 0.0, range(rank, len(samples), size)
        for first in range(0, len(mine), AT_ONCE):
            total += _soda(network, [samples[index] for index in mine[first : first + AT_ONCE]], settings)
        return total, float(len(mine))

    return Judge(measure, keep)


def _soda(network: nn.Module, samples: Sequence[Sample], settings: DescribeSettings) -> float:
    """Return the sum of the videos' SODA-D."""
    found = propose(network, [one.values for one in samples], [one.duration for one in samples]).videos
    given = {
        one.id: [(*video.boxes[query].tolist(), "") for query in choose(video, settings)]
        for one, video in zip(samples, found, strict=True)
    }
    truth = {one.id: [(*span, "") for span in one.spans] for one in samples}
    return soda(truth, given, kind="d").f1 * len(samples)


def _to(rates: Tensor | None, device: torch.device) -> Tensor | None:
    return None if rates is None else rates.to(device)
