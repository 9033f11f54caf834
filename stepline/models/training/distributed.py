"""Several processes that train one network (torchrun): each gets a part of every batch, and sums
are over all processes."""

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

KeyT = TypeVar("KeyT")
ResultT = TypeVar("ResultT")

# how long processes wait while the first one prepares data that all of them read
START_TIMEOUT = timedelta(hours=6)


def start_processes(device: str = "auto") -> torch.device:
    """Return the device of this process. Under torchrun, also join the group of processes.

    Under torchrun, accelerate starts the group and each process gets its own GPU.

    Args:
        device: the device setting of the run, such as "auto" or "cuda:1". The command-line option
            `--device` overrides it.

    Raises ModelError when there are several processes and accelerate is missing, or when the device
    does not exist.
    """
    # For a single process nothing has to be started.
    run_device = device_of_run(device)
    if _launched_processes() <= 1:
        return torch.device(run_device.name)
    try:
        from accelerate import PartialState
    except ImportError as error:
        raise ModelError(
            "training in several processes needs accelerate, which is not here; pip install -c "
            "constraints.txt 'stepline[train]'"
        ) from error
    # The first may prepare for hours while the others wait, so the usual timeout is too short.
    state = PartialState(cpu=run_device.device_type == "cpu", timeout=START_TIMEOUT)
    process_device = torch.device(state.device)
    if process_device.type == "cpu":  # "cpu:0" with some versions of accelerate
        process_device = torch.device("cpu")
    set_device(str(process_device), run_device.compute)
    return process_device


def _launched_processes() -> int:
    """Return the number of processes that torchrun started, 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def require_single_process(command: str) -> None:
    """Raise SettingsError if torchrun started several processes for a command that needs one.

    Args:
        command: name of the command, for the message.
    """
    if _launched_processes() > 1:
        raise SettingsError(
            f"{command} runs in one process, not in several; start it without torchrun"
        )


def end_processes() -> None:
    """Leave the process group of torchrun once all processes have reached this call.

    All processes leave together. A process that leaves while the first one still writes can abort.
    """
    if _is_running():
        distributed.barrier()
        distributed.destroy_process_group()


def _is_running() -> bool:
    return bool(distributed.is_available() and distributed.is_initialized())


def rank_and_world_size() -> tuple[int, int]:
    """Return the number of this process (0 is the first), and the number of processes."""
    if not _is_running():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def is_first() -> bool:
    """Return whether this process is the first one, which alone writes files and messages."""
    return rank_and_world_size()[0] == 0


def call_first_then_all(make: Callable[[], ResultT]) -> ResultT:
    """Call `make` in every process and return its result. The first process calls it first.

    The other processes start after it ends, so they find its files on disk.
    """
    if is_first():
        result = make()
        wait_for_all()
        return result
    wait_for_all()
    return make()


def broadcast_from_first(value: ResultT) -> ResultT:
    """Return on every process the value that the first process passed.

    Processes may pass different values, for example while files still appear on disk.
    """
    values = [value]
    if rank_and_world_size()[1] > 1:
        distributed.broadcast_object_list(values)
    return values[0]


def wait_for_all() -> None:
    """Wait until every process has reached this point."""
    if rank_and_world_size()[1] > 1:
        distributed.barrier()


def gather_from_all(results: dict[KeyT, ResultT]) -> dict[KeyT, ResultT]:
    """Return the results of all processes in one dict, on every process.

    Args:
        results: results of this process. No other process has the same keys.
    """
    size = rank_and_world_size()[1]
    if size == 1:
        return results
    parts: list[dict[KeyT, ResultT]] = [{}] * size
    distributed.all_gather_object(parts, results)
    return {key: value for part in parts for key, value in part.items()}


def sum_over_processes(values: Tensor) -> Tensor:
    """Replace a tensor by its sum over all processes, in place, and return it."""
    if rank_and_world_size()[1] > 1:
        distributed.all_reduce(values)
    return values


def sum_gradients(model: nn.Module) -> None:
    """Replace the gradients of every process by their sum over all processes."""
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
    """Return the peak memory of this process in bytes.

    This is GPU memory if the process uses a GPU, else main memory.
    """
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return int(torch.cuda.max_memory_allocated())
    usage = resource.getrusage(resource.RUSAGE_SELF)
    # macOS counts bytes, other systems KiB.
    return usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss * 1024
