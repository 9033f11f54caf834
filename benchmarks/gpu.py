"""Measures every network on one GPU: recognition, backbones, training steps and inference, in bf16
and float32.

    python benchmarks/gpu.py [--device cuda|cpu] [--seconds S] [--only WORD ...] [--compile]
    [--json] [--small]

A row per network, work and precision: units per second, peak memory, TFLOP/s, and their share of a
large matrix product's on the same device. Operations are counted as they are done, padding and all.
CTranslate2 (recognition) reports none. Sizes are the papers': NaSVA batch 8 of T 400 / K 50 (near
the mean of its videos) and T 1200 / K 100. ProcX batch 8 (fine-tuning) and 64 (pre-training), 7.7
steps per video, its matching on the CPU. WYS2's detector on ready features, and end to end on 16
frames per clip. CLIP is ViT-L/14, its weights random as those of S3D. Projected are hours of the
papers' trainings at a row's speed. NaSVA has 340,000 + 370,000 samples x 12 epochs (the authors:
about 20 h on an RTX 3090). ProcX has 48,000 videos x 10 epochs (about 32 h on A100). Decoding and
reading from disk are in no row. --compile adds torch.compile of NaSVA. About --seconds (3) per row
and its warm-up: under 10 minutes in all. --device cpu --small goes through every line, and proves
that alone. Writes benchmarks/results/gpu.json, with --small nothing. Without a GPU it ends.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from gpu_works import Setup, Work, works
from media import peak_mib
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from stepline.networks.device import ComputeType, current_device, set_device

RESULT_PATH = Path(__file__).parent / "results" / "gpu.json"
PRECISION_NAMES: tuple[ComputeType, ...] = ("bf16", "float32")
WARM_CALLS = 3  # before the clock starts; the first compiles, or chooses kernels
PEAK_ROUNDS = 5


@dataclass(frozen=True)
class Row:
    """What a work came to. `tflops` and its share of the device's peak are None where operations
    are not reported."""

    network: str
    kind: str
    precision: str
    unit: str
    per_second: float
    peak_mib: float
    tflops: float | None
    share_of_peak: float | None
    hours_of_the_papers_training: float | None


class Operations(TorchDispatchMode):
    """Counts multiplications and additions of matrix products, convolutions and attention, forward
    and backward."""

    total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Do an operation and count it."""
        keywords = kwargs or {}
        count = flop_registry.get(func.overloadpacket)
        if count is None and func is not torch.ops.prim.device.default:
            # without gradients, torch shows `linear` whole
            with self:
                parts = func.decompose(*args, **keywords)
            if parts is not NotImplemented:
                return parts
        result = func(*args, **keywords)
        if count is not None:
            self.total += count(*args, **keywords, out_val=result)
        return result


def is_on_gpu() -> bool:
    """Say whether the device is a GPU."""
    return current_device().kind == "cuda"


def wait() -> None:
    """Return when the device has done what it was given."""
    if is_on_gpu():
        torch.cuda.synchronize()


def seconds_of(call: Callable[[], object], budget: float) -> float:
    """Return the seconds of one call, over as many as fit into the budget, two at least."""
    began = time.perf_counter()
    count = 0
    while count < 2 or time.perf_counter() - began < budget:
        call()
        count += 1
        wait()
    return (time.perf_counter() - began) / count


def measure(work: Work, precision: str, peak: float, budget: float) -> Row:
    """Return what a work comes to."""
    # CTranslate2 does not report its operations
    is_counted = not work.network.startswith("whisper")
    counter = Operations()
    with counter if is_counted else nullcontext():
        first_call = work.plain or work.call
        first_call()
    for _ in range(WARM_CALLS if is_counted else 1):
        work.call()
    wait()

    if is_on_gpu():
        torch.cuda.reset_peak_memory_stats()
    seconds = seconds_of(work.call, budget)
    mib = torch.cuda.max_memory_allocated() / 2**20 if is_on_gpu() else peak_mib()
    tflops = None
    share = None
    if is_counted:
        tflops = counter.total / seconds / 1e12
        share = tflops / peak
    hours = None
    if work.paper is not None:
        hours = work.paper * seconds / work.units / 3600
    return Row(
        network=work.network,
        kind=work.kind,
        precision=precision,
        unit=work.unit,
        per_second=work.units / seconds,
        peak_mib=mib,
        tflops=tflops,
        share_of_peak=share,
        hours_of_the_papers_training=hours,
    )


def peak_tflops(precision: str, size: int) -> float:
    """Return the TFLOP/s of a large matrix product, what this device reaches at most. float32
    without TF32."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    matrix = torch.randn(size, size, device=current_device().name, dtype=dtype)
    rounds = [seconds_of(lambda: matrix @ matrix, 0.0) for _ in range(PEAK_ROUNDS)]
    return 2 * size**3 / min(rounds) / 1e12


def line(row: Row) -> str:
    """Return a row as text."""
    share = ""
    if row.share_of_peak is not None:
        share = f"{row.tflops:8.2f} TFLOP/s {row.share_of_peak:6.1%} of peak"
    hours = ""
    if row.hours_of_the_papers_training is not None:
        hours = f"  the paper's training in {row.hours_of_the_papers_training:.1f} h"
    name = f"{row.network:32s} {row.kind:9s} {row.precision:8s}"
    speed = f"{row.per_second:11.1f} {row.unit}/s"
    return f"{name} {speed:26s} {row.peak_mib:7.0f} MiB {share}{hours}"


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured per row")
    parser.add_argument(
        "--only", nargs="*", default=[], help="whisper, backbones, nasva, procx, wys2"
    )
    parser.add_argument(
        "--compile", action="store_true", help="NaSVA through torch.compile as well"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument(
        "--small",
        action="store_true",
        help="tiny networks and batches: whether it runs, not how fast",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for. Return 0."""
    options = read_options(arguments)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("no GPU here: nothing is measured; --device cpu --small goes through the lines")
        return 0
    small = options.small
    budget = 0.0 if small else options.seconds
    out = sys.stderr if options.json else sys.stdout
    began = time.monotonic()
    rows: list[Row] = []
    peaks: dict[str, float] = {}
    # a row per network, work and precision
    for precision in PRECISION_NAMES:
        set_device(options.device, precision)
        peak = peak_tflops(precision, 256 if small else 8192)
        peaks[precision] = peak
        setup = Setup(precision, small, options.compile)
        for work in works(setup, options.only):
            row = measure(work, precision, peak, budget)
            rows.append(row)
            print(line(row), file=out, flush=True)
    # what was measured, and on what
    name = torch.cuda.get_device_name() if is_on_gpu() else "none (CPU)"
    result = {
        "device": name,
        "torch": torch.__version__,
        "seconds": round(time.monotonic() - began),
        "peak_tflops": peaks,
        "rows": [asdict(row) for row in rows],
    }
    text = json.dumps(result, indent=2)
    if options.json:
        print(text)
    if not small:
        RESULT_PATH.write_text(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
