"""One training loop, which knows no system by name: AdamW, a cosine schedule, checkpoints that resume bit for bit.

Nothing random is carried from step to step: the order of the videos follows from (seed, epoch), and the numbers that
a step draws from (seed, step). A run that was killed goes on from its last checkpoint as if it had not been.
Several processes (torchrun, with a process group that the caller began) share each batch and do as one would: sums and
counts are added over all before they are divided, since each holds another number of texts.

A part of what training lowers, as every loss gives it.

Reading ahead: threads make the next batches while the network learns from this one.

The numbers of a run as curves that TensorBoard draws; an optional extra.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from stepline.errors import ModelError, SettingsError, ShapeError
from stepline.storage import remove_partial_files
from stepline.training.batches import bucketed
from stepline.training.distributed import agreed, place, share_gradients, summed
from stepline.training.run_folder import CHECKPOINT, LOG, Log, Point, resume, save
from stepline.training.settings import TrainSettings


@dataclass(frozen=True)
class Loss:
    """A sum, and how many it is over: several processes add both up before they divide."""

    total: Tensor
    count: Tensor

    @property
    def mean(self) -> Tensor:
        """The sum, divided; exactly 0 when it is over nothing."""
        return self.total / self.count.clamp(min=1)

    def weighted(self, weight: float) -> "Loss":
        """Return the loss with its sum multiplied."""
        return Loss(self.total * weight, self.count)


J = TypeVar("J")
R = TypeVar("R")

EACH = 2  # batches that a thread may be ahead


class Ahead(Generic[R]):
    """The results of `work` on each of `jobs`, in their order; waited: seconds that the caller waited for them.

    workers: threads; with 0 there are none, and each result is made when it is asked for. An error that `work` raises
    is raised where its result would have come.
    """

    def __init__(self, jobs: Iterable[J], work: Callable[[J], R], workers: int) -> None:
        self._results = self._make(iter(jobs), work, workers)
        self.waited = 0.0

    def __iter__(self) -> Iterator[R]:
        return self._results

    def close(self) -> None:
        """Stop the threads."""
        self._results.close()

    def _make(self, jobs: Iterator[J], work: Callable[[J], R], workers: int) -> Generator[R, None, None]:
        if not workers:
            for job in jobs:
                began = time.perf_counter()
                made = work(job)
                self.waited += time.perf_counter() - began
                yield made
            return
        with ThreadPoolExecutor(workers, thread_name_prefix="ahead") as pool:
            waiting: deque[Future[R]] = deque(pool.submit(work, job) for job in islice(jobs, EACH * workers))
            try:
                while waiting:
                    began = time.perf_counter()
                    made = waiting.popleft().result()
                    self.waited += time.perf_counter() - began
                    waiting.extend(pool.submit(work, job) for job in islice(jobs, 1))
                    yield made
            finally:
                for future in waiting:
                    future.cancel()


S = TypeVar("S")


@dataclass(frozen=True)
class Task(Generic[S]):
    """What is learnt. length: of a sample, like goes with like; draw: what chance does to the samples of one step;
    losses: parts of a batch's loss, which is the sum of their means. lengths: of all samples, where they are known
    without reading each. Samples are read and drawn in threads, ahead of the step: `draw` takes chance from its
    generator alone.
    """

    samples: Sequence[S]
    length: Callable[[S], int]
    draw: Callable[[Sequence[S], np.random.Generator], Sequence[S]]
    losses: Callable[[nn.Module, Sequence[S]], Sequence[Loss]]
    lengths: Sequence[int] | None = None


@dataclass(frozen=True)
class Judge:
    """How good a network is on what it is not trained on, asked after every epoch.

    measure: (network, rank, processes) to a sum and a count over this process's share; their quotient over all
    processes is the score, more is better. keep: what is done with a network that is better than all before it.
    """

    measure: Callable[[nn.Module, int, int], tuple[float, float]]
    keep: Callable[[nn.Module], None]


@dataclass(frozen=True)
class Progress:
    """One step that was taken: `step` of `steps`, its loss, the learning rate, and seconds since the loop began.

    taken: steps since then. waited: seconds of them spent waiting for samples. score: what the judge says, after the
    last step of an epoch.
    """

    step: int
    steps: int
    loss: float
    learning_rate: float
    seconds: float
    taken: int = 0
    waited: float = 0.0
    score: float | None = None


@dataclass(frozen=True)
class _Drawn(Generic[S]):
    """A step's samples as chance left them, and the seed of what the network draws."""

    step: int
    last: bool  # of its epoch
    samples: Sequence[S]
    seed: int


def fit(
    model: nn.Module,
    task: Task[S],
    settings: TrainSettings,
    folder: Path,
    report: Callable[[Progress], None] | None = None,
    *,
    judge: Judge | None = None,
) -> nn.Module:
    """Train the model in place and return it at rest; checkpoints and the log go to `folder`, from which it resumes.

    Sets torch's seed at every step. Raises ShapeError without samples or when the loss is not finite, SettingsError
    when `folder` holds another run, ModelError when its checkpoint is damaged or of another network.
    """
    count = len(task.samples)
    steps = settings.epochs * math.ceil(count / settings.batch)
    if not steps:
        raise ShapeError("nothing to train on: no sample is left; loosen the filter that dropped them")
    first = place()[0] == 0  # the process that writes
    if first:
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial_files(folder)
    optimizer = _optimizer(model, settings)
    point = resume(model, optimizer, settings, folder / CHECKPOINT, count)
    _check_agreed(point.step, model, folder)
    best = point.best
    began = time.monotonic()
    model.train()
    drawn = Ahead(_steps(task, settings, point.step), lambda one: _draw(task, settings, *one), settings.readers)
    with Log(folder / LOG, point.step) if first else nullcontext() as lines, closing(drawn):
        for one in drawn:
            loss = _step(model, optimizer, task, settings, drawn=one, steps=steps)
            score = _judged(model, judge, best) if judge is not None and one.last else None
            best = max((known for known in (best, score) if known is not None), default=None)
            rate, seconds = optimizer.param_groups[0]["lr"], time.monotonic() - began
            done = one.step + 1
            progress = Progress(done, steps, loss, rate, seconds, done - point.step, drawn.waited, score)
            if lines is not None:
                lines.write(_line(progress))
                if progress.step % settings.save_every == 0 or progress.step == steps:
                    lines.flush()
                    save(model, optimizer, settings, folder / CHECKPOINT, Point(progress.step, best), count)
            if report is not None:
                report(progress)
    model.eval()
    return model


def _line(progress: Progress) -> dict[str, float]:
    line: dict[str, float] = {"step": progress.step, "loss": progress.loss, "learning_rate": progress.learning_rate}
    return line if progress.score is None else line | {"score": progress.score}


def _steps(task: Task[S], settings: TrainSettings, done: int) -> Iterator[tuple[int, bool, tuple[int, ...]]]:
    """Yield each step that is left, whether it ends an epoch, and the indices of its samples."""
    lengths = [task.length(sample) for sample in task.samples] if task.lengths is None else task.lengths
    step = 0
    for epoch in range(settings.epochs):
        batches = list(bucketed(lengths, settings.batch, seed=settings.seed, epoch=epoch))
        for chosen in batches:
            step += 1
            if step > done:
                yield step - 1, chosen is batches[-1], chosen


def _draw(task: Task[S], settings: TrainSettings, step: int, last: bool, chosen: tuple[int, ...]) -> _Drawn[S]:
    """Read the samples of a step and let chance do its part."""
    chance = np.random.default_rng([settings.seed, step])
    seed = int(chance.integers(2**62))  # of dropout
    return _Drawn(step, last, task.draw([task.samples[index] for index in chosen], chance), seed)


def _step(
    model: nn.Module,
    optimizer: torch.optim.AdamW,
    task: Task[S],
    settings: TrainSettings,
    *,
    drawn: _Drawn[S],
    steps: int,
) -> float:
    """Take one step and return its loss."""
    rank, size = place()
    torch.manual_seed(drawn.seed + rank)
    for group in optimizer.param_groups:
        group["lr"] = settings.learning_rate * _pace(drawn.step, steps, settings.warmup)
    device = next(model.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=settings.bf16):
        parts = task.losses(model, drawn.samples[rank::size] or drawn.samples[:1])
    here = float(rank < len(drawn.samples))  # a process whose share is empty takes part, and counts for nothing
    counts = summed(here * torch.stack([part.count.float() for part in parts]))
    loss = here * (torch.stack([part.total for part in parts]) / counts.clamp(min=1)).sum()
    value = float(summed(loss.detach().clone()))
    if not math.isfinite(value):
        cure = "lower train.learning_rate, and look at the features"
        raise ShapeError(f"step {drawn.step + 1}: the loss is {value}; {cure}")
    optimizer.zero_grad()
    loss.backward()
    share_gradients(model)
    nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
    optimizer.step()
    return value


def _pace(step: int, steps: int, warmup: float) -> float:
    """Return the share of the learning rate that a step has: it rises evenly, then falls as a cosine to 0."""
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / (rising + 1)
    return (1 + math.cos(math.pi * (step - rising) / (steps - rising))) / 2


def _optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """Return AdamW that decays matrices, not biases and norms. Differs: the released code's rule misses its norms."""
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)


def _judged(model: nn.Module, judge: Judge, best: float | None) -> float:
    """Return the score of the network as it is, and keep it where it is the best so far."""
    rank, size = place()
    model.eval()
    with torch.no_grad():
        measured = judge.measure(model, rank, size)
    model.train()
    device = next(model.parameters()).device
    total, count = summed(torch.tensor(measured, dtype=torch.float64, device=device)).tolist()
    score = float(total) / max(float(count), 1.0)
    if rank == 0 and math.isfinite(score) and (best is None or score > best):
        judge.keep(model)
    return score


def _check_agreed(step: int, model: nn.Module, folder: Path) -> None:
    if not agreed(step, next(model.parameters()).device):
        cure = "put it on a disk that all nodes share"
        raise ModelError(f"{folder}: the processes find unlike checkpoints in it; {cure}")


class Curves:
    """Writes each step's loss, learning rate, score and share of the time spent waiting for samples.

    Raises SettingsError where TensorBoard's package is missing.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            cure = "pip install 'stepline[train]', or leave --tensorboard out"
            raise SettingsError(f"TensorBoard's package is not here; {cure}") from error
        self._kind, self._folder = SummaryWriter, folder
        self._writer: SummaryWriter | None = None

    def write(self, progress: Progress) -> None:
        """Add a point to each curve; points of steps that a resumed run takes again go."""
        if self._writer is None:
            self._writer = self._kind(str(self._folder), purge_step=progress.step)
        waited = progress.waited / max(progress.seconds, 1e-9)
        values = {"loss": progress.loss, "learning_rate": progress.learning_rate, "waited": waited}
        for name, value in values.items() if progress.score is None else (values | {"score": progress.score}).items():
            self._writer.add_scalar(name, value, progress.step)

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()
