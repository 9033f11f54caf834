"""One training loop, which knows no system by name: AdamW, a cosine schedule, checkpoints that resume bit for bit.

Nothing random is carried from step to step: the order of the videos follows from (seed, epoch), and the numbers that
a step draws from (seed, step). A run that was killed goes on from its last checkpoint as if it had not been.
Several processes (torchrun, with a process group that the caller began) share each batch and do as one would: sums and
counts are added over all before they are divided, since each holds another number of texts.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as distributed
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from stepline.batches import bucketed
from stepline.errors import ModelError, SettingsError, ShapeError
from stepline.store import atomic_path, sweep
from stepline.training_settings import TrainSettings

log = logging.getLogger(__name__)

CHECKPOINT = "last.safetensors"
LOG = "log.jsonl"
MOMENTS = ("exp_avg", "exp_avg_sq", "step")   # what AdamW keeps of each weight
S = TypeVar("S")


class Summed(Protocol):
    """A part of the loss: a sum, and how many it is over."""

    @property
    def total(self) -> Tensor:
        """The sum."""

    @property
    def count(self) -> Tensor:
        """How many it is over; a sum over nothing counts as 0."""


@dataclass(frozen=True)
class Task(Generic[S]):
    """What is learnt. length: of a sample, like goes with like; draw: what chance does to the samples of one step;
    losses: parts of a batch's loss, which is the sum of their means.
    """

    samples: Sequence[S]
    length: Callable[[S], int]
    draw: Callable[[Sequence[S], np.random.Generator], Sequence[S]]
    losses: Callable[[nn.Module, Sequence[S]], Sequence[Summed]]


@dataclass(frozen=True)
class Progress:
    """One step that was taken: `step` of `steps`, its loss, the learning rate, and seconds since the loop began."""

    step: int
    steps: int
    loss: float
    learning_rate: float
    seconds: float


def fit(
    model: nn.Module,
    task: Task[S],
    settings: TrainSettings,
    folder: Path,
    report: Callable[[Progress], None] | None = None,
) -> nn.Module:
    """Train the model in place and return it at rest; checkpoints and the log go to `folder`, from which it resumes.

    Sets torch's seed at every step. Raises ShapeError without samples or when the loss is not finite, SettingsError
    when `folder` holds another run, ModelError when its checkpoint is damaged or of another network.
    """
    batches_an_epoch = math.ceil(len(task.samples) / settings.batch)
    steps = settings.epochs * batches_an_epoch
    if not steps:
        raise ShapeError("nothing to train on: no sample is left; loosen the filter that dropped them")
    first = _place()[0] == 0   # the process that writes
    if first:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
    optimizer = _optimizer(model, settings)
    done = _resume(model, optimizer, settings, folder / CHECKPOINT, len(task.samples))
    began = time.monotonic()
    model.train()
    with _Log(folder / LOG, done) if first else nullcontext() as lines:
        for step, chosen in _batches(task, settings, done, steps):
            loss = _step(model, optimizer, task, settings, step=step, steps=steps, chosen=chosen)
            progress = Progress(step + 1, steps, loss, optimizer.param_groups[0]["lr"], time.monotonic() - began)
            if lines is not None:
                lines.write(progress)
                if progress.step % settings.save_every == 0 or progress.step == steps:
                    lines.flush()
                    _save(model, optimizer, settings, folder / CHECKPOINT, progress.step, len(task.samples))
            if report is not None:
                report(progress)
    model.eval()
    return model


def _batches(task: Task[S], settings: TrainSettings, done: int, steps: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each step that is left, with the indices of its samples."""
    lengths = [task.length(sample) for sample in task.samples]
    step = 0
    for epoch in range(settings.epochs):
        for chosen in bucketed(lengths, settings.batch, seed=settings.seed, epoch=epoch):
            if done <= step < steps:
                yield step, chosen
            step += 1


def _step(
    model: nn.Module,
    optimizer: torch.optim.AdamW,
    task: Task[S],
    settings: TrainSettings,
    *,
    step: int,
    steps: int,
    chosen: Sequence[int],
) -> float:
    """Take one step and return its loss."""
    rank, size = _place()
    chance = np.random.default_rng([settings.seed, step])
    torch.manual_seed(int(chance.integers(2**62)) + rank)   # of dropout
    for group in optimizer.param_groups:
        group["lr"] = settings.learning_rate * (1 + math.cos(math.pi * step / steps)) / 2
    drawn = task.draw([task.samples[index] for index in chosen], chance)
    device = next(model.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=settings.bf16):
        parts = task.losses(model, drawn[rank::size] or drawn[:1])
    here = float(rank < len(drawn))   # a process whose share is empty takes part, and counts for nothing
    counts = _summed(here * torch.stack([part.count.float() for part in parts]))
    loss = here * (torch.stack([part.total for part in parts]) / counts.clamp(min=1)).sum()
    value = float(_summed(loss.detach().clone()))
    if not math.isfinite(value):
        raise ShapeError(f"step {step + 1}: the loss is {value}; lower train.learning_rate, and look at the features")
    optimizer.zero_grad()
    loss.backward()
    _share_gradients(model)
    nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
    optimizer.step()
    return value


def _optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """Return AdamW that decays matrices, not biases and norms. Differs: the released code's rule misses its norms."""
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.learning_rate)


# ---------------------------------------------------------------- several processes


def _place() -> tuple[int, int]:
    """Return which process this is, and of how many."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _summed(values: Tensor) -> Tensor:
    """Return the values added over all processes."""
    if _place()[1] > 1:
        distributed.all_reduce(values)
    return values


def _share_gradients(model: nn.Module) -> None:
    """Give every process the sum of all gradients, in one exchange."""
    if _place()[1] == 1:
        return
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    flat = torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).flatten() for w in weights])
    _summed(flat)
    for weight, part in zip(weights, flat.split([weight.numel() for weight in weights]), strict=True):
        weight.grad = part.view_as(weight)


# ---------------------------------------------------------------- checkpoints


def _save(
    model: nn.Module, optimizer: torch.optim.AdamW, settings: TrainSettings, path: Path, step: int, samples: int
) -> None:
    """Write all that the next step needs, whole or not at all."""
    tensors = {f"model.{key}": value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": state[name].cpu().contiguous() for name in MOMENTS}
    header = {"step": step, "samples": samples, "settings": settings.model_dump(mode="json")}
    with atomic_path(path) as partial:
        save_file(tensors, partial, metadata={"stepline": json.dumps(header, sort_keys=True)})
    log.info("%s: checkpoint after step %d", path, step)


def _resume(
    model: nn.Module, optimizer: torch.optim.AdamW, settings: TrainSettings, path: Path, samples: int
) -> int:
    """Take up a checkpoint where there is one, and return how many steps are done."""
    if not path.exists():
        return 0
    header, tensors = _read(path)
    if header["settings"] != settings.model_dump(mode="json") or header["samples"] != samples:
        raise SettingsError(f"{path}: another run, with other settings or samples; give another --out, or remove it")
    try:
        model.load_state_dict(_under(tensors, "model."))
        saved = optimizer.state_dict()
        count = sum(len(group["params"]) for group in saved["param_groups"])
        state = {number: _under(tensors, f"optimizer.{number}.") for number in range(count)}
        optimizer.load_state_dict({**saved, "state": {number: part for number, part in state.items() if part}})
    except (RuntimeError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: a checkpoint of another network ({reason}); give another --out") from error
    log.info("%s: resumed after step %d", path, header["step"])
    return int(header["step"])


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["stepline"])
            return header, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: not a checkpoint that can be read ({error}); remove it to start again") from error


def _under(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    return {key.removeprefix(start): value for key, value in tensors.items() if key.startswith(start)}


class _Log:
    """JSON lines, one a step; those after the checkpoint go, since their steps are taken again."""

    def __init__(self, path: Path, done: int) -> None:
        if path.exists():
            kept = path.read_text(encoding="utf-8").splitlines(keepends=True)[:done]
            with atomic_path(path) as partial:
                partial.write_text("".join(kept), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def __enter__(self) -> "_Log":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, progress: Progress) -> None:
        """Add a step."""
        line = {"step": progress.step, "loss": progress.loss, "learning_rate": progress.learning_rate}
        self._file.write(json.dumps(line) + "\n")

    def flush(self) -> None:
        """Hand the lines to the disk, so that a checkpoint never knows of steps that the log does not."""
        self._file.flush()
