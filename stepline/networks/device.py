"""Selects device and number format of the networks, for every command and process.

    choose_device("cuda:1")      the requested device: auto, cpu, cuda, cuda:N or mps
    current_device()             the device for a network that is loaded now, and for its inputs

"auto" is a CUDA GPU where torch is installed and sees one, else the CPU. Apple's GPU (mps) is used
on request only: it lacks float64, which the matcher and the calibrations use, and speech
recognition (CTranslate2) cannot run on it.

Numbers are float32 unless `compute` names another format. A GPU then gives the CPU's results except
for the last bits. Speech recognition runs in float16 on a GPU, as its models are published.
"""

import ctypes
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import Field

from stepline.errors import ModelError, SettingsError

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

DEVICE_PATTERN = r"^(auto|cpu|mps|cuda(:\d+)?)$"
DeviceName = Annotated[str, Field(pattern=DEVICE_PATTERN)]
# "auto": float32, of recognition float16
ComputeType = Literal["auto", "float32", "bf16", "float16"]

# NVIDIA's driver. Where it is not, torch need not be loaded (1 s) to know that there is no GPU.
CUDA_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
GPU_BATCH = 16  # times as many inputs together as fit the caches of a CPU best. For speed alone
# How CUDA says, through torch or CTranslate2, that memory is short or the card is gone. A faulty
# kernel is neither.
GPU_ERROR_PATTERN = re.compile(
    r"(CUDA|cuBLAS|cuDNN|HIP|MPS).*"
    r"(out of memory|ALLOC_FAILED|ECC error|no CUDA-capable device|busy or unavailable|"
    r"unknown error|GPU is lost)",
    re.IGNORECASE | re.DOTALL,
)
# CTranslate2's
RECOGNITION_TYPES: dict[ComputeType, str] = {
    "float32": "float32",
    "bf16": "bfloat16",
    "float16": "float16",
}


@dataclass(frozen=True)
class Device:
    """Device and numeric precision with which networks run.

    Attributes:
        name: torch's name of the device, such as "cpu", "cuda:0" or "mps".
        compute: numeric precision of matrix products, such as "bf16". "auto": chosen by the device.
    """

    name: str
    compute: ComputeType = "auto"

    @property
    def device_type(self) -> str:
        """Return the device type without its number: "cpu", "cuda" or "mps"."""
        return self.name.partition(":")[0]

    @property
    def label(self) -> str:
        """Return the label in records, such as "cuda:0 bf16"."""
        is_float32 = self.compute in ("auto", "float32")
        return self.name if is_float32 else f"{self.name} {self.compute}"

    @property
    def needs_torch(self) -> bool:
        """Return whether text and image encoders run in torch, instead of ONNX Runtime (float32 on
        a CPU).
        """
        return self.device_type != "cpu" or self.compute not in ("auto", "float32")

    def autocast(self) -> "AbstractContextManager[None]":
        """Return PyTorch's mixed-precision context for the forward pass, without effect in
        float32."""
        import torch

        if self.compute in ("auto", "float32"):
            return nullcontext()
        dtype = torch.float16 if self.compute == "float16" else torch.bfloat16
        return cast("AbstractContextManager[None]", torch.autocast(self.device_type, dtype))

    def scale_batch_size(self, cpu_size: int) -> int:
        """Return the batch size of a network whose batch size on a CPU is `cpu_size`."""
        return cpu_size if self.device_type == "cpu" else cpu_size * GPU_BATCH

    def ctranslate2_options(self, cpu_type: str) -> dict[str, Any]:
        """Return the device arguments of CTranslate2 for speech recognition: device, device_index
        and compute_type.

        Without a CUDA GPU, recognition runs on the CPU, with a warning.

        cpu_type: number format on a CPU.
        """
        index = _gpu_index(self.name)
        if self.device_type == "cuda" and _ctranslate2_gpus() > index:
            default = "float32" if cpu_type == "float32" else "float16"
            return {
                "device": "cuda",
                "device_index": index,
                "compute_type": RECOGNITION_TYPES.get(self.compute, default),
            }
        if self.device_type != "cpu":
            log.warning("recognition stays on the CPU: CTranslate2 cannot use %s here", self.name)
        return {"device": "cpu", "device_index": 0, "compute_type": cpu_type}


def _gpu_index(device: str) -> int:
    """Return the GPU number in a name such as cuda:1, or 0 without one."""
    return int(device.partition(":")[2] or 0)


def cpu_threads(reserved: int = 0) -> int:
    """Return the number of CPU threads for a network: OMP_NUM_THREADS, otherwise the number of
    cores.

    reserved: number of threads to leave for other work. The result is at least 1.
    """
    variable = os.environ.get("OMP_NUM_THREADS", "")
    if variable.isdecimal() and int(variable):
        return int(variable)
    return max(1, core_count() - reserved)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Context manager that limits torch to one CPU thread. The number of threads changes the last
    bits of a sum."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def core_count() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_device(name: str = "auto", compute: ComputeType = "auto") -> Device:
    """Return the device with a name.

    Args:
        name: "auto", "cpu", "cuda", "cuda:N" or "mps". "auto" selects the first CUDA GPU, or the
            CPU if there is none.
        compute: number format of matrix products.

    Raises SettingsError for another name, ModelError for a device that is not available.
    """
    if not re.fullmatch(DEVICE_PATTERN, name):
        raise SettingsError(
            f"device {name!r}: there is no such kind; give auto, cpu, cuda, cuda:N or mps"
        )
    if name == "auto" and cuda_gpus():
        return Device("cuda:0", compute)
    if name in ("auto", "cpu"):
        return Device("cpu", compute)
    if name == "mps":
        import torch

        if not torch.backends.mps.is_available():
            raise ModelError("device mps: torch sees no GPU of Apple's here; use --device cpu")
        return Device("mps", compute)
    # A GPU of CUDA, by its number.
    count = cuda_gpus()
    index = _gpu_index(name)
    if not count:
        raise ModelError(
            f"device {name}: torch sees no GPU here; install torch with CUDA (pytorch.org), or use "
            "--device cpu"
        )
    if index >= count:
        raise ModelError(
            f"device {name}: torch sees {count} GPUs here, from cuda:0 on; give one of them"
        )
    return Device(f"cuda:{index}", compute)


def cuda_gpus() -> int:
    """Return the number of CUDA or ROCm GPUs that torch can use. Torch is not loaded if the number
    is known to be 0."""
    try:
        # No driver, and no torch for ROCm: there is no GPU.
        ctypes.CDLL(CUDA_DRIVER)
    except OSError:
        try:
            if "rocm" not in version("torch"):
                return 0
        except PackageNotFoundError:
            return 0
    try:
        import torch
    except ModuleNotFoundError:
        return 0
    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def is_gpu_error(error: BaseException) -> bool:
    """Return whether an error of torch or CTranslate2 means that the GPU was lost or is out of
    memory."""
    return isinstance(error, RuntimeError) and GPU_ERROR_PATTERN.search(str(error)) is not None


def _ctranslate2_gpus() -> int:
    import ctranslate2

    return int(ctranslate2.get_cuda_device_count())


_requested: tuple[str, ComputeType] = ("auto", "auto")  # of this process; `--device` sets it
_current: Device | None = None


def set_device(name: str = "auto", compute: ComputeType = "auto") -> None:
    """Set the device of all networks loaded afterwards. Raises the errors of `choose_device`.

    "auto" is resolved when the first network is loaded.

    Args:
        name: "auto", "cpu", "cuda", "cuda:N" or "mps".
        compute: number format of matrix products.
    """
    global _requested, _current
    # "auto" waits for the first network, because it may have to load torch.
    _current = None if name == "auto" else choose_device(name, compute)
    _requested = name, compute


def requested_device() -> str:
    """Return the value of `--device`, "auto" by default."""
    return _requested[0]


def requested_compute() -> ComputeType:
    """Return the value of `--compute-type`, "auto" by default."""
    return _requested[1]


def current_device() -> Device:
    """Return the device for a network that is loaded now."""
    global _current
    _current = _current or choose_device(*_requested)
    return _current


def device_of_run(setting: str) -> Device:
    """Return the device of a training run. `--device` takes precedence over `setting`.

    Other networks of the run, such as a text encoder, use the same device.

    setting: value of the run's setting train.device.
    """
    global _current
    if requested_device() == "auto":
        _current = choose_device(setting, requested_compute())
    return current_device()


def device_of(network: "torch.nn.Module") -> "torch.device":
    """Return the device that holds a network's weights."""
    return next(network.parameters()).device
