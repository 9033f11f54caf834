"""Measures training of the grounding network on a GPU, and projects the paper's whole training.

    python benchmarks/gpu_nasva.py [--steps N] [--device cuda|cpu] [--small]

bf16 or float32, torch.compile or not, the released loss or the paper's, batch 8, T 1200 / K 100 and T 400 / K 50.
Projected: 340,000 + 370,000 samples x 12 epochs (the authors: about 20 h on an RTX 3090) at each row's speed; T 400 is
near the mean length of the paper's videos. The share of peak counts what real rows need, not what padding costs.
Without a GPU it says so and ends; --device cpu --small goes through every line in seconds, and proves that alone.
Writes benchmarks/results/gpu_nasva.json, with --small nothing.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from media import peak_mib
from nasva_data import batch
from nasva_speed import SHAPES, floating_operations, real_lengths
from torch import nn

from stepline.nasva.loss import grounding_loss
from stepline.nasva.model import Aligner
from stepline.nasva.settings import AlignerLossSettings, AlignerNetworkSettings, LossForm
from stepline.training.batches import Batch

RESULTS = Path(__file__).parent / "results" / "gpu_nasva.json"
SAMPLES = (340_000 + 370_000) * 12  # seen in the paper's training; both datasets, 12 epochs
WARM = 5  # steps before the clock starts; the first compiles
SMALL = {"T 40, K 5": (2, 40, 5)}
SMALL_MODEL = AlignerNetworkSettings(
    width=32, heads=4, encoder_layers=1, decoder_layers=1, feed_forward=64, projection=16
)
FORMS: tuple[LossForm, ...] = ("release", "paper")


def wait(device: str) -> None:
    """Return when the device has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def memory_mib(device: str) -> float:
    """Return the most memory that was in use: of the GPU since the last reset, of the process on a CPU."""
    return torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else peak_mib()


class Trainer:
    """A network on a device with what one step does."""

    def __init__(
        self, settings: AlignerNetworkSettings, form: LossForm, device: str, *, bf16: bool, compiled: bool
    ) -> None:
        torch.manual_seed(0)
        torch.compiler.reset()  # else the second shape would be compiled for any
        self.model = Aligner(settings).to(device).train()
        way = "inductor" if device == "cuda" else "eager"  # a CPU is to show that it runs, for which no C++ is compiled
        self.network: nn.Module = torch.compile(self.model, backend=way, dynamic=False) if compiled else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=5e-5, fused=True)
        self.settings, self.device, self.bf16 = AlignerLossSettings(form=form), device, bf16

    def step(self, data: Batch) -> torch.Tensor:
        """Take one step and return its loss, which waits for the device only where it is read."""
        with torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
            loss = grounding_loss(self.network(data), data, self.settings).mean
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def measure(trainer: Trainer, shape: tuple[int, int, int], steps: int) -> dict[str, float]:
    """Return samples a second, peak memory (MiB) and TFLOP/s of training on one batch."""
    given = batch(*shape)
    operations = 3 * floating_operations(real_lengths(given), trainer.model.settings)
    data = given.to(trainer.device)
    for _ in range(WARM):
        loss = trainer.step(data)
    wait(trainer.device)
    if trainer.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    for _ in range(steps):
        loss = trainer.step(data)
    wait(trainer.device)
    seconds = (time.perf_counter() - began) / steps
    return {
        "samples_per_s": shape[0] / seconds,
        "peak_mib": memory_mib(trainer.device),
        "tflops": operations / seconds / 1e12,
        "loss": float(loss),
    }


def peak(device: str, size: int, *, bf16: bool) -> float:
    """Return the TFLOP/s of a large matrix product, what this device reaches at most; float32 without TF32."""
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16 if bf16 else torch.float32)
    best = 0.0
    for _ in range(10):
        wait(device)
        began = time.perf_counter()
        a @ a
        wait(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - began) / 1e12)
    return best


def rows(device: str, steps: int, *, small: bool) -> Iterator[dict[str, Any]]:
    """Yield a row for each shape, loss, precision and way."""
    peaks = {bf16: peak(device, 256 if small else 8192, bf16=bf16) for bf16 in (True, False)}
    settings = SMALL_MODEL if small else AlignerNetworkSettings()
    shapes = SMALL if small else SHAPES
    for (shape, sizes), form, bf16, compiled in itertools.product(shapes.items(), FORMS, (True, False), (False, True)):
        found = measure(Trainer(settings, form, device, bf16=bf16, compiled=compiled), sizes, steps)
        yield {
            "shape": shape,
            "loss_form": form,
            "bf16": bf16,
            "compiled": compiled,
            **found,
            "peak_tflops": peaks[bf16],
            "share_of_peak": found["tflops"] / peaks[bf16],
            "hours_of_the_papers_training": SAMPLES / found["samples_per_s"] / 3600,
        }


def show(row: dict[str, Any]) -> None:
    """Print one row."""
    kind = f"{'bf16' if row['bf16'] else 'fp32'} {'compiled' if row['compiled'] else 'plain':8s}"
    speed = f"{row['samples_per_s']:8.1f} samples/s {row['peak_mib']:7.0f} MiB {row['share_of_peak']:6.1%} of peak"
    hours = f"paper's training in {row['hours_of_the_papers_training']:.1f} h, loss {row['loss']:.3f}"
    print(f"{row['shape']:15s} {row['loss_form']:8s} {kind} {speed}  {hours}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="a tiny network and batch: whether it runs, not how fast")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        print("no GPU here: nothing is measured; --device cpu --small goes through the lines")
        return 0
    found = []
    for row in rows(given.device, given.steps, small=given.small):
        show(row)
        found.append(row)
    if not given.small:
        name = torch.cuda.get_device_name() if given.device == "cuda" else "none (CPU)"
        RESULTS.write_text(json.dumps({"device": name, "torch": torch.__version__, "rows": found}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
