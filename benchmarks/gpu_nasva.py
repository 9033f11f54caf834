"""Measures training of the grounding network on a GPU, and projects the paper's whole training.

    python benchmarks/gpu_nasva.py [--steps N]

bf16 or float32, torch.compile or not, the released loss or the paper's, batch 8, T 1200 / K 100 and T 400 / K 50.
Projected: 340,000 + 370,000 samples x 12 epochs (the authors: about 20 h on an RTX 3090) at the speed of T 400 / K 50,
the mean length of the paper's videos. Without a GPU it says so and ends. Writes benchmarks/results/gpu_nasva.json.
"""

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from nasva_speed import SHAPES, batch, floating_operations
from torch import nn

from stepline.nasva.loss import grounding_loss
from stepline.nasva.model import Aligner
from stepline.nasva.model_settings import LossForm, LossSettings, ModelSettings

RESULTS = Path(__file__).parent / "results" / "gpu_nasva.json"
SAMPLES = (340_000 + 370_000) * 12  # seen in the paper's training; both datasets, 12 epochs
WARM = 5  # steps before the clock starts


def measure(shape: tuple[int, int, int], form: LossForm, steps: int, *, bf16: bool, compiled: bool) -> dict[str, float]:
    """Return samples a second, peak memory (MiB) and TFLOP/s of training on one batch."""
    torch.manual_seed(0)
    torch.cuda.reset_peak_memory_stats()
    model = Aligner(ModelSettings()).cuda().train()
    network: nn.Module = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=5e-5, fused=True)
    data, settings = batch(*shape).to("cuda"), LossSettings(form=form)
    for number in range(WARM + steps):
        if number == WARM:
            torch.cuda.synchronize()
            began = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            loss = grounding_loss(network(data), data, settings).mean
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - began) / steps
    return {
        "samples_per_s": shape[0] / seconds,
        "peak_mib": torch.cuda.max_memory_allocated() / 2**20,
        "tflops": 3 * floating_operations(*shape, ModelSettings()) / seconds / 1e12,
        "loss": loss.item(),
    }


def peak(bf16: bool) -> float:
    """Return the TFLOP/s of a large matrix product, what this GPU reaches at most."""
    size, kind = 8192, torch.bfloat16 if bf16 else torch.float32
    a = torch.randn(size, size, device="cuda", dtype=kind)
    best = 0.0
    for _ in range(10):
        torch.cuda.synchronize()
        began = time.perf_counter()
        a @ a
        torch.cuda.synchronize()
        best = max(best, 2 * size**3 / (time.perf_counter() - began) / 1e12)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing is measured")
        return 0
    peaks = {bf16: peak(bf16) for bf16 in (True, False)}
    rows: list[dict[str, Any]] = []
    forms: tuple[LossForm, ...] = ("release", "paper")
    for (shape, sizes), form, bf16, compiled in itertools.product(SHAPES.items(), forms, (True, False), (False, True)):
        found = measure(sizes, form, given.steps, bf16=bf16, compiled=compiled)
        share = found["tflops"] / peaks[bf16]
        hours = SAMPLES / found["samples_per_s"] / 3600
        rows.append({"shape": shape, "loss_form": form, "bf16": bf16, "compiled": compiled, **found, "share": share})
        speed = f"{found['samples_per_s']:8.0f} samples/s {found['peak_mib']:7.0f} MiB {share:5.1%} of peak"
        kind = f"{'bf16' if bf16 else 'fp32'} {'compiled' if compiled else 'plain':8s}"
        print(f"{shape:15s} {form:8s} {kind} {speed}  paper's training in {hours:.1f} h", flush=True)
    result = {"gpu": torch.cuda.get_device_name(), "peak_tflops": {str(k): v for k, v in peaks.items()}, "rows": rows}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
