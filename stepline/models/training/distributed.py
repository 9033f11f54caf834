"""Several processes that train as one (torchrun): each has a part of every batch, and sums are over
all of them."""

import os
import resource
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as distributed
from torch import Tensor, nn

from stepline.errors import ModelError, SettingsError
from stepline.networks.device import device_of_run, set_device

K = TypeVar("K")
R = TypeVar("R")

# how long the others wait while the first prepares what all of them read
START_TIMEOUT = timedelta(hours=6)


def start_processes(device: str = "auto") -> torch.device:
    """Return the device of this process, and have it meet the others where a launcher (torchrun)
    started several.

    device: of the run's settings. What `--device` said wins.

    accelerate reads what the launcher says and starts the group, each process on its own GPU.
    Alone, a process does not need it.
    Raises ModelError when there are several processes and accelerate is missing, or no GPU where
    one is asked for.
    """
    # Alone, nothing has to be started.
    run_device = device_of_run(device)
    if _launched_processes() <= 1:
        return torch.device(run_device.name)
    try:
        from accelerate import PartialState
    except ImportError as error:
        cure = "pip install 'stepline[train]'"
        raise ModelError(
            f"training in several processes needs accelerate, which is not here; {cure}"
        ) from error
    # The first may prepare for hours while the others wait, so the usual timeout is too short.
    state = PartialState(cpu=run_device.kind == "cpu", timeout=START_TIMEOUT)
    own = torch.device(state.device)
    if own.type == "cpu":  # "cpu:0" with some versions of accelerate: there is only one
        own = torch.device("cpu")
    set_device(str(own), run_device.compute)
    return own


def _launched_processes() -> int:
    """Return how many processes a launcher (torchrun) started, 1 without one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def one_process(what: str) -> None:
    """Raise SettingsError where a launcher (torchrun) started several processes for what runs in
    one."""
    if _launched_processes() > 1:
        raise SettingsError(
            f"{what} runs in one process, not in several; start it without torchrun"
        )


def end_processes() -> None:
    """Leave the other processes, where there are some, once all are done. Without it torch
    complains at the end.

    They go together: one that leaves while the first still writes can abort in the threads of its
    connections.
    """
    if _is_running():
        distributed.barrier()
        distributed.destroy_process_group()


def _is_running() -> bool:
    return bool(distributed.is_available() and distributed.is_initialized())


def rank_and_world_size() -> tuple[int, int]:
    """Return which process this is, and of how many."""
    if not _is_running():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def is_first() -> bool:
    """Tell whether this process is the one that writes and speaks."""
    return rank_and_world_size()[0] == 0


def first_then_all(make: Callable[[], R]) -> R:
    """Return what `make` gives. The first process calls it before the others, which find what it
    left on disk."""
    if is_first():
        result = make()
        wait_for_all()
        return result
    wait_for_all()
    return make()


def first_says(fact: bool) -> bool:
    """Return what the first process sees, which the others may see another way while files
    appear."""
    facts = [fact]
    if rank_and_world_size()[1] > 1:
        distributed.broadcast_object_list(facts)
    return facts[0]


def wait_for_all() -> None:
    """Go on once every process is here."""
    if rank_and_world_size()[1] > 1:
        distributed.barrier()


def gather_from_all(own: dict[K, R]) -> dict[K, R]:
    """Return the results of all processes. No key is of two."""
    size = rank_and_world_size()[1]
    if size == 1:
        return own
    parts: list[dict[K, R]] = [{}] * size
    distributed.all_gather_object(parts, own)
    return {key: value for part in parts for key, value in part.items()}


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the values added over all processes."""
    if rank_and_world_size()[1] > 1:
        distributed.all_reduce(values)
    return values


def sum_gradients(model: nn.Module) -> None:
    """Give every process the sum of all gradients, in one exchange."""
    if rank_and_world_size()[1] == 1:
        return
    # All gradients as one row, because many small exchanges are slow.
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    # A weight without a gradient counts as 0, or the rows of the processes would not align.
    gradients = [
        torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights
    ]
    flat = sum_over_processes(torch.cat([gradient.flatten() for gradient in gradients]))
    parts = flat.split([weight.numel() for weight in weights])
    for weight, part in zip(weights, parts, strict=True):
        weight.grad = part.view_as(weight)


def peak_memory() -> int:
    """Return the most bytes that this process has held: of the GPU where it uses one, else of main
    memory."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return int(torch.cuda.max_memory_allocated())
    usage = resource.getrusage(resource.RUSAGE_SELF)
    # macOS counts bytes, other systems KiB.
    return usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss * 1024


def same_on_all_processes(number: int, device: torch.device) -> bool:
    """Say whether all processes have the same number."""
    rank, size = rank_and_world_size()
    numbers = torch.zeros(size, dtype=torch.int64, device=device)
    numbers[rank] = number
    return bool((sum_over_processes(numbers) == number).all())
