"""The training loop of every network: AdamW, warm-up and a cosine schedule, checkpoints from which
a run resumes bit for bit.

A system gives a `TrainingTask` (samples, augmentation, losses) and may give a `HeldOutScorer`,
which chooses the best network. `train_network` builds the network and trains it.

Nothing random is carried from step to step. The order of the samples depends on (seed, epoch)
alone, and the random numbers of a step on (seed, step). A killed run therefore resumes from its
last checkpoint as if it had never stopped. Several processes (torchrun) share each batch and learn
what one process would. Sums and counts are added over all processes before they are divided,
because each process holds another number of texts.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from stepline.errors import ModelError, SettingsError, ShapeError
from stepline.files.atomic_files import remove_partial_files
from stepline.models.training.batches import get_lengths_and_shards, plan_batches
from stepline.models.training.distributed import (
    broadcast_from_first,
    is_first,
    rank_and_world_size,
    start_processes,
    sum_gradients,
    sum_over_processes,
)
from stepline.models.training.run import (
    LOG_FILE,
    StepLog,
    TrainingState,
    resume_checkpoint,
    save_checkpoint,
)
from stepline.models.training.settings import CHECKPOINT_FILE, TrainSettings
from stepline.networks.device import device_of

JobT = TypeVar("JobT")
NetworkT = TypeVar("NetworkT", bound=nn.Module)
ResultT = TypeVar("ResultT")
SampleT = TypeVar("SampleT")

BATCHES_AHEAD = 2  # batches that each reading thread may be ahead of the current step


@dataclass(frozen=True)
class Loss:
    """One term of the loss of a batch, as a sum and a count. Processes add up both, then divide.

    Attributes:
        total: () sum over the items of the batch.
        count: () number of items.
    """

    total: Tensor
    count: Tensor

    @property
    def mean(self) -> Tensor:
        """The sum divided by the count. It is 0 when the count is 0."""
        return self.total / self.count.clamp(min=1)

    def weighted(self, weight: float) -> "Loss":
        """Return the loss with its sum multiplied by a weight."""
        return Loss(self.total * weight, self.count)


@dataclass(frozen=True)
class TrainingTask(Generic[SampleT]):
    """What a network is trained on.

    Attributes:
        samples: all training samples. `LazySamples` reads each one when a step needs it.
        length: returns the number of feature rows of a sample. Samples of similar length share a
            batch.
        augment: returns the samples of a step with random changes. It runs in reading threads, so
            it draws random numbers only from the generator in its second argument.
        losses: returns the terms of the loss of a batch, from the network and the batch's samples.
            The loss is the sum of the terms' means.
    """

    samples: Sequence[SampleT]
    length: Callable[[SampleT], int]
    augment: Callable[[Sequence[SampleT], np.random.Generator], Sequence[SampleT]]
    losses: Callable[[nn.Module, Sequence[SampleT]], Sequence[Loss]]


@dataclass(frozen=True)
class HeldOutScorer(Generic[SampleT]):
    """Scores the network every `score_every` epochs on held-out samples, and keeps the best
    network.

    Attributes:
        samples: the held-out samples, which are not used for training.
        batch: largest number of samples that are scored together.
        score: returns the sum of the scores of some samples, and the number of scored items. The
            network's score is the total sum divided by the total number. Higher is better.
        keep: called with the network whenever its score is higher than every score before.
    """

    samples: Sequence[SampleT]
    batch: int
    score: Callable[[nn.Module, Sequence[SampleT]], tuple[float, float]]
    keep: Callable[[nn.Module], None]


@dataclass(frozen=True)
class Progress:
    """The progress of a training run after an optimizer step.

    Attributes:
        step: number of the optimizer step, from 1.
        step_count: number of optimizer steps of the whole training.
        loss: loss of the step.
        learning_rate: learning rate of the step.
        seconds: seconds since the training was started or resumed.
        steps_since_start: number of optimizer steps since the training was started or resumed.
        wait_seconds: seconds, out of `seconds`, that were spent waiting for samples.
        score: score on the held-out samples after the step. None: the step was not scored.
    """

    step: int
    step_count: int
    loss: float
    learning_rate: float
    seconds: float
    steps_since_start: int
    wait_seconds: float
    score: float | None

    @property
    def log_row(self) -> dict[str, float]:
        """The line of the step in log.jsonl: step, loss and learning rate, and the score if there
        is one."""
        row = {"step": self.step, "loss": self.loss, "learning_rate": self.learning_rate}
        return row if self.score is None else row | {"score": self.score}


PlannedStep = tuple[int, tuple[int, ...]]  # its number from 0, and its samples' indices


@dataclass(frozen=True)
class _StepBatch(Generic[SampleT]):
    """The batch of one training step.

    Attributes:
        step: number of the step, from 0.
        samples: the augmented samples.
        seed: seed of torch's random numbers in the step, such as dropout.
    """

    step: int
    samples: Sequence[SampleT]
    seed: int


def train_network(
    build: Callable[[], NetworkT],
    task: TrainingTask[SampleT],
    settings: TrainSettings,
    folder: Path,
    report: Callable[[Progress], None] | None,
    *,
    scorer: HeldOutScorer[SampleT] | None = None,
    device: str | torch.device | None = None,
) -> NetworkT:
    """Build a network, train it on a device, and return it in evaluation mode.

    Fresh weights are drawn with the settings' seed. A training in the folder that was stopped is
    resumed.

    Args:
        build: makes the network with fresh weights.
        task: samples, augmentation and losses.
        settings: length of the training, learning rate and the like.
        folder: folder of the checkpoint and the log.
        report: called with the progress after each step. None: no reports.
        scorer: scores held-out samples and keeps the best network. None: nothing is held out.
        device: torch's device. None: the device of the settings.
    """
    # The seed comes first, because making the network draws its weights.
    torch.manual_seed(settings.seed)
    network = build()
    network.to(start_processes(settings.device) if device is None else device)
    fit(network, task, settings, folder, report, scorer=scorer)
    return network


def fit(
    model: nn.Module,
    task: TrainingTask[SampleT],
    settings: TrainSettings,
    folder: Path,
    report: Callable[[Progress], None] | None = None,
    *,
    scorer: HeldOutScorer[SampleT] | None = None,
) -> nn.Module:
    """Train a network in place and return it in evaluation mode. A checkpoint in `folder` is resumed.

    Arguments are those of `train_network`. With a scorer and `patience`, training ends early when
    the score no longer rises. Sets torch's seed at every step.
    Raises ShapeError without samples or when the loss is not finite. Raises SettingsError when
    `folder` holds another run or `patience` has no scorer. Raises ModelError when its checkpoint is
    damaged or of another network.
    """
    count = len(task.samples)
    steps_per_epoch = math.ceil(count / settings.batch)
    steps = settings.epochs * steps_per_epoch
    if not steps:
        raise ShapeError(
            "nothing to train on: no sample is left; loosen the filter that dropped them"
        )
    if settings.patience and scorer is None:
        raise SettingsError(
            f"train.patience={settings.patience}: nothing is held out to score; leave the setting "
            "out, or let `train nasva` or `train procx` hold videos out by data.held_out"
        )
    optimizer = _make_optimizer(model, settings)
    start = state = _resume(model, optimizer, settings, folder, count)
    if start.step == steps or start.is_at_plateau(settings.patience):
        return model.eval()
    began = time.monotonic()
    waited = 0.0
    model.train()
    batches = prefetch(
        _plan_steps(task, settings, start.step),
        partial(_read_batch, task, settings),
        settings.readers,
    )
    step_log = closing(StepLog(folder / LOG_FILE, start.step)) if is_first() else nullcontext()
    with step_log as log_file, closing(batches):
        while True:
            began_waiting = time.perf_counter()
            batch = next(batches)
            waited += time.perf_counter() - began_waiting
            loss = _take_step(model, optimizer, task, settings, batch=batch, steps=steps)
            number = batch.step + 1
            state = replace(state, step=number)
            score = None
            is_due = number % (settings.score_every * steps_per_epoch) == 0 or number == steps
            if scorer is not None and is_due:
                score = _score_held_out(model, scorer, state.best)
                state = state.with_score(score)
            is_last = number == steps or state.is_at_plateau(settings.patience)
            progress = Progress(
                step=number,
                step_count=steps,
                loss=loss,
                learning_rate=optimizer.param_groups[0]["lr"],
                seconds=time.monotonic() - began,
                steps_since_start=number - start.step,
                wait_seconds=waited,
                score=score,
            )
            if log_file is not None:
                log_file.write(progress.log_row)
                if number % settings.save_every == 0 or is_last:
                    path = folder / CHECKPOINT_FILE
                    save_checkpoint(model, optimizer, settings, path, state, count)
            if report is not None:
                report(progress)
            if is_last:
                return model.eval()


def _resume(
    model: nn.Module,
    optimizer: torch.optim.AdamW,
    settings: TrainSettings,
    folder: Path,
    samples: int,
) -> TrainingState:
    """Make the folder of a run, load its checkpoint if there is one, and return the run's progress.

    samples: number of training samples, which must be that of the checkpoint. Raises ModelError if
    processes find different checkpoints.
    """
    if is_first():
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial_files(folder)
    start = resume_checkpoint(model, optimizer, settings, folder / CHECKPOINT_FILE, samples)
    if start.step != broadcast_from_first(start.step):
        raise ModelError(
            f"{folder}: the processes find unlike checkpoints in it; put it on a disk that all "
            "nodes share"
        )
    return start


def _plan_steps(
    task: TrainingTask[SampleT], settings: TrainSettings, first: int
) -> Iterator[PlannedStep]:
    """Yield number and sample indices of each step of the training. first: number of the first step
    that is yielded, counted from 0."""
    # All steps are planned again, because the order of an epoch does not depend on the last one.
    lengths, shards = get_lengths_and_shards(task.samples, task.length)
    number = 0
    for epoch in range(settings.epochs):
        for indices in plan_batches(
            lengths, settings.batch, seed=settings.seed, epoch=epoch, shards=shards
        ):
            if number >= first:
                yield number, indices
            number += 1


def _read_batch(
    task: TrainingTask[SampleT], settings: TrainSettings, step: PlannedStep
) -> _StepBatch[SampleT]:
    number, indices = step
    rng = np.random.default_rng([settings.seed, number])
    seed = int(rng.integers(2**62))  # of dropout
    samples = [task.samples[index] for index in indices]
    return _StepBatch(number, task.augment(samples, rng), seed)


def _take_step(
    model: nn.Module,
    optimizer: torch.optim.AdamW,
    task: TrainingTask[SampleT],
    settings: TrainSettings,
    *,
    batch: _StepBatch[SampleT],
    steps: int,
) -> float:
    """Take one optimizer step and return its loss."""
    # Random numbers and learning rate depend on the step only, so that a resumed run has the same.
    rank, size = rank_and_world_size()
    torch.manual_seed(batch.seed + rank)
    factor = _compute_learning_rate_factor(batch.step, steps, settings.warmup)
    for group in optimizer.param_groups:
        group["lr"] = settings.learning_rate * factor

    # A process that has no sample of the batch must still take part in the sums. Its own terms
    # count 0.
    samples = batch.samples[rank::size] or batch.samples[:1]
    weight = float(rank < len(batch.samples))
    device = device_of(model)
    with torch.autocast(device.type, torch.bfloat16, enabled=settings.bf16):
        terms = task.losses(model, samples)
    # Counts are summed over processes before they divide, since each holds another number.
    counts = weight * torch.stack([term.count.float() for term in terms])
    totals = torch.stack([term.total for term in terms])
    loss = weight * (totals / sum_over_processes(counts).clamp(min=1)).sum()
    value = float(sum_over_processes(loss.detach().clone()))
    if not math.isfinite(value):
        raise ShapeError(
            f"step {batch.step + 1}: the loss is {value}; lower train.learning_rate, and look at "
            "the features"
        )

    # Each process has its share of the gradient, and the sum is that of the whole batch.
    optimizer.zero_grad()
    loss.backward()
    sum_gradients(model)
    nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
    optimizer.step()
    return value


def _compute_learning_rate_factor(step: int, steps: int, warmup: float) -> float:
    """Return the factor of the learning rate at a step: it rises linearly, then falls to 0 as a
    cosine.

    Args:
        step: number of the step, from 0.
        steps: number of steps of the training.
        warmup: fraction of the steps in which the factor rises.
    """
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / (rising + 1)
    return (1 + math.cos(math.pi * (step - rising) / (steps - rising))) / 2


def _make_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """Return AdamW whose weight decay applies to matrices only, not to biases and norms."""
    weights = list(model.parameters())
    matrices = [weight for weight in weights if weight.ndim > 1]
    others = [weight for weight in weights if weight.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)


def _score_held_out(model: nn.Module, scorer: HeldOutScorer[SampleT], best: float | None) -> float:
    """Return the held-out score of a network, and keep the network if its score is the best so far.

    best: the best score before. None: there is none.
    """
    rank, size = rank_and_world_size()
    indices = range(rank, len(scorer.samples), size)  # of the samples of this process
    # In float64, so that the order of the samples hardly matters.
    sums = torch.zeros(2, dtype=torch.float64)  # of the scores, and of what they are over
    model.eval()
    with torch.no_grad():
        for first in range(0, len(indices), scorer.batch):
            samples = [scorer.samples[index] for index in indices[first : first + scorer.batch]]
            sums += torch.tensor(scorer.score(model, samples), dtype=torch.float64)
    model.train()
    # Every process gets the same score, so that all stop at the same step. A single one stays on the
    # CPU, as Apple's GPUs have no float64.
    if size > 1:
        sums = sum_over_processes(sums.to(device_of(model)))
    total, count = sums.tolist()
    score = float(total) / max(float(count), 1.0)
    if rank == 0 and math.isfinite(score) and (best is None or score > best):
        scorer.keep(model)
    return score


def prefetch(
    jobs: Iterable[JobT], work: Callable[[JobT], ResultT], workers: int
) -> Generator[ResultT, None, None]:
    """Yield the result of each job, in order. Threads compute the results before they are needed.

    Args:
        jobs: arguments of `work`, one per call.
        work: function that computes the result of a job. Its error is raised when its result is due.
        workers: number of threads. With 0 each result is computed when it is asked for.
    """
    if not workers:
        yield from map(work, jobs)
        return
    iterator = iter(jobs)
    with ThreadPoolExecutor(workers, thread_name_prefix="ahead") as pool:
        first_jobs = islice(iterator, BATCHES_AHEAD * workers)
        pending = deque(pool.submit(work, job) for job in first_jobs)
        try:
            # Each result that is taken begins one more job.
            while pending:
                result = pending.popleft().result()
                pending.extend(pool.submit(work, job) for job in islice(iterator, 1))
                yield result
        finally:
            for future in pending:
                future.cancel()
