"""The training loop of every network: AdamW, warm-up and a cosine schedule, checkpoints that resume
bit for bit.

A system gives a `TrainingTask` (samples, augmentation, losses) and may give a `HeldOutScorer`,
which chooses the best network.

Nothing random is carried from step to step. The order of the videos follows from (seed, epoch), and
the numbers that a step draws from (seed, step). A run that was killed goes on from its last
checkpoint as if it had not been. Several processes (torchrun, with a process group that the caller
began) share each batch and do as one would. Sums and counts are added over all before they are
divided, since each holds another number of texts.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from stepline.errors import ModelError, SettingsError, ShapeError
from stepline.files.atomic_files import remove_partial_files
from stepline.models.training.batches import length_buckets, lengths_and_shards
from stepline.models.training.distributed import (
    is_first,
    rank_and_world_size,
    same_on_all_processes,
    sum_gradients,
    sum_over_processes,
)
from stepline.models.training.run_folder import (
    LOG_FILE,
    StepLog,
    TrainingState,
    resume_checkpoint,
    save_checkpoint,
)
from stepline.models.training.settings import CHECKPOINT_FILE, TrainSettings
from stepline.networks.device import device_of

J = TypeVar("J")
R = TypeVar("R")
S = TypeVar("S")

BATCHES_AHEAD = 2  # batches that a thread may be ahead of the step


@dataclass(frozen=True)
class Loss:
    """One term of a batch's loss: a sum, and how many it is over. Processes add both up before they
    divide."""

    total: Tensor
    count: Tensor

    @property
    def mean(self) -> Tensor:
        """The sum, divided. It is exactly 0 when it is over nothing."""
        return self.total / self.count.clamp(min=1)

    def weighted(self, weight: float) -> "Loss":
        """Return the loss with its sum multiplied."""
        return Loss(self.total * weight, self.count)


@dataclass(frozen=True)
class TrainingTask(Generic[S]):
    """What is learnt.

    length: of a sample. Samples of similar length share a batch. `LazySamples` know theirs without
    being read.
    augment: random changes to the samples of one step.
    losses: the terms of a batch's loss, which is the sum of their means.

    Samples are read and augmented in threads, ahead of the step, so `augment` draws from the
    generator it is given alone.
    """

    samples: Sequence[S]
    length: Callable[[S], int]
    augment: Callable[[Sequence[S], np.random.Generator], Sequence[S]]
    losses: Callable[[nn.Module, Sequence[S]], Sequence[Loss]]


@dataclass(frozen=True)
class HeldOutScorer(Generic[S]):
    """Scores the network every `score_every` epochs on samples that it is not trained on, and keeps
    the best.

    score: a sum and a count of some samples, at most `batch` at a time. The quotient over all
    samples is the network's score, more is better.
    keep: what is done with a network that is better than all before it.
    """

    samples: Sequence[S]
    batch: int
    score: Callable[[nn.Module, Sequence[S]], tuple[float, float]]
    keep: Callable[[nn.Module], None]


@dataclass(frozen=True)
class Progress:
    """One step that was taken: `step` of `steps`, its loss, the learning rate, and seconds since
    the loop began.

    steps_taken: since then. waited: seconds of them spent waiting for samples. score: on held-out
    samples, after the last step of an epoch.
    """

    step: int
    steps: int
    loss: float
    learning_rate: float
    seconds: float
    steps_taken: int = 0
    waited: float = 0.0
    score: float | None = None

    @property
    def log_line(self) -> dict[str, float]:
        """The step as a line of log.jsonl."""
        line = {"step": self.step, "loss": self.loss, "learning_rate": self.learning_rate}
        if self.score is not None:
            line["score"] = self.score
        return line


PlannedStep: TypeAlias = tuple[int, tuple[int, ...]]  # its number from 0, and its samples' indices


@dataclass(frozen=True)
class _StepSamples(Generic[S]):
    """The augmented samples of a step, and the seed of what the network draws (dropout)."""

    number: int
    samples: Sequence[S]
    seed: int


def fit(
    model: nn.Module,
    task: TrainingTask[S],
    settings: TrainSettings,
    folder: Path,
    report: Callable[[Progress], None] | None = None,
    *,
    scorer: HeldOutScorer[S] | None = None,
) -> nn.Module:
    """Train the model in place and return it at rest. It resumes from checkpoints in `folder`.

    With a scorer and `patience`, training ends where the score has stopped rising. Sets torch's
    seed at every step.
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
            f"train.patience={settings.patience}: nothing is held out to score; "
            "set data.held_out, or leave the setting out"
        )
    optimizer = _optimizer(model, settings)
    start = state = _resume(model, optimizer, settings, folder, count)
    if start.at_plateau(settings.patience):
        return model.eval()
    began = time.monotonic()
    model.train()
    planned = _steps_left(task, settings, start.step)
    loader = PrefetchingLoader(planned, partial(_read_step, task, settings), settings.readers)
    step_log = StepLog(folder / LOG_FILE, start.step) if is_first() else nullcontext()
    with step_log as log_file, closing(loader):
        for batch in loader:
            loss = _step(model, optimizer, task, settings, batch=batch, steps=steps)
            number = batch.number + 1
            state = replace(state, step=number)
            score = None
            is_due = number % (settings.score_every * steps_per_epoch) == 0 or number == steps
            if scorer is not None and is_due:
                score = _held_out_score(model, scorer, state.best)
                state = state.scored(score)
            is_last = number == steps or state.at_plateau(settings.patience)
            progress = Progress(
                step=number,
                steps=steps,
                loss=loss,
                learning_rate=optimizer.param_groups[0]["lr"],
                seconds=time.monotonic() - began,
                steps_taken=number - start.step,
                waited=loader.waited,
                score=score,
            )
            if log_file is not None:
                log_file.write(progress.log_line)
                if number % settings.save_every == 0 or is_last:
                    log_file.flush()
                    path = folder / CHECKPOINT_FILE
                    save_checkpoint(model, optimizer, settings, path, state, count)
            if report is not None:
                report(progress)
            if is_last:
                break
    return model.eval()


def _resume(
    model: nn.Module,
    optimizer: torch.optim.AdamW,
    settings: TrainSettings,
    folder: Path,
    samples: int,
) -> TrainingState:
    """Make the folder of a run, or load the checkpoint in it. Raises ModelError where the processes
    find different ones."""
    if is_first():
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial_files(folder)
    start = resume_checkpoint(model, optimizer, settings, folder / CHECKPOINT_FILE, samples)
    if not same_on_all_processes(start.step, device_of(model)):
        cure = "put it on a disk that all nodes share"
        raise ModelError(f"{folder}: the processes find unlike checkpoints in it; {cure}")
    return start


def _steps_left(
    task: TrainingTask[S], settings: TrainSettings, first: int
) -> Iterator[PlannedStep]:
    """Yield the steps from number `first` on."""
    # All steps are planned again, because the order of an epoch does not depend on the last one.
    lengths, shards = lengths_and_shards(task.samples, task.length)
    number = 0
    for epoch in range(settings.epochs):
        for indices in length_buckets(
            lengths, settings.batch, seed=settings.seed, epoch=epoch, shards=shards
        ):
            if number >= first:
                yield number, indices
            number += 1


def _read_step(
    task: TrainingTask[S], settings: TrainSettings, step: PlannedStep
) -> _StepSamples[S]:
    """Return the samples of a step. What they and the network draw follows from (seed, step)."""
    number, indices = step
    rng = np.random.default_rng([settings.seed, number])
    seed = int(rng.integers(2**62))  # of dropout
    samples = [task.samples[index] for index in indices]
    return _StepSamples(number, task.augment(samples, rng), seed)


def _step(
    model: nn.Module,
    optimizer: torch.optim.AdamW,
    task: TrainingTask[S],
    settings: TrainSettings,
    *,
    batch: _StepSamples[S],
    steps: int,
) -> float:
    """Take one step and return its loss."""
    # Random numbers and rate of this step alone, so that a resumed run draws the same.
    rank, size = rank_and_world_size()
    torch.manual_seed(batch.seed + rank)
    factor = _learning_rate_factor(batch.number, steps, settings.warmup)
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
        cure = "lower train.learning_rate, and look at the features"
        raise ShapeError(f"step {batch.number + 1}: the loss is {value}; {cure}")

    # Each process has its share of the gradient, and the sum is that of the whole batch.
    optimizer.zero_grad()
    loss.backward()
    sum_gradients(model)
    nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
    optimizer.step()
    return value


def _learning_rate_factor(step: int, steps: int, warmup: float) -> float:
    """Return the fraction of the learning rate at a step: linear warm-up, then a cosine to 0."""
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / (rising + 1)
    angle = math.pi * (step - rising) / (steps - rising)
    return (1 + math.cos(angle)) / 2


def _optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """Return AdamW that decays matrices, not biases and norms. Differs: the released code's rule
    misses its norms."""
    weights = list(model.parameters())
    matrices = [weight for weight in weights if weight.ndim > 1]
    others = [weight for weight in weights if weight.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)


def _held_out_score(model: nn.Module, scorer: HeldOutScorer[S], best: float | None) -> float:
    """Return the score of the network as it is, and keep it where it is the best so far."""
    rank, size = rank_and_world_size()
    own = range(rank, len(scorer.samples), size)  # the samples of this process
    # In float64, so that the order of the samples hardly matters.
    sums = torch.zeros(2, dtype=torch.float64)  # of the scores, and of what they are over
    model.eval()
    with torch.no_grad():
        for first in range(0, len(own), scorer.batch):
            samples = [scorer.samples[index] for index in own[first : first + scorer.batch]]
            sums += torch.tensor(scorer.score(model, samples), dtype=torch.float64)
    model.train()
    # Every process gets the same score, so that all stop at the same step.
    total, count = sum_over_processes(sums.to(device_of(model))).tolist()
    score = float(total) / max(float(count), 1.0)
    if rank == 0 and math.isfinite(score) and (best is None or score > best):
        scorer.keep(model)
    return score


class PrefetchingLoader(Generic[R]):
    """The results of `work` on each of `jobs`, in order, made by threads ahead of their use.

    workers: threads. With 0 there is no thread, and each result is made when it is asked for.
    waited: seconds that the caller waited for results.

    An error that `work` raises is raised where its result would have come.
    """

    def __init__(self, jobs: Iterable[J], work: Callable[[J], R], workers: int) -> None:
        self._results = self._make(iter(jobs), work, workers)
        self.waited = 0.0

    def __iter__(self) -> Iterator[R]:
        return self._results

    def close(self) -> None:
        """Stop the threads."""
        self._results.close()

    def _make(
        self, jobs: Iterator[J], work: Callable[[J], R], workers: int
    ) -> Generator[R, None, None]:
        if not workers:
            for job in jobs:
                yield self._timed(partial(work, job))
            return
        # As many jobs are under way as may be ahead, and each result that is taken begins one more.
        with ThreadPoolExecutor(workers, thread_name_prefix="ahead") as pool:
            waiting: deque[Future[R]] = deque()
            for job in islice(jobs, BATCHES_AHEAD * workers):
                waiting.append(pool.submit(work, job))
            try:
                while waiting:
                    result = self._timed(waiting.popleft().result)
                    for job in islice(jobs, 1):
                        waiting.append(pool.submit(work, job))
                    yield result
            finally:
                for future in waiting:
                    future.cancel()

    def _timed(self, get: Callable[[], R]) -> R:
        """Return what `get` gives, and add the seconds that it took to `waited`."""
        began = time.perf_counter()
        result = get()
        self.waited += time.perf_counter() - began
        return result
