"""Measures training of ProcX on a GPU, and projects the paper's whole pre-training.

    python benchmarks/gpu_procx.py [--steps N] [--device cuda|cpu] [--small]

bf16 or float32, torch.compile of encoder and decoder or not, key-aware or vanilla attention, batch 8 (fine-tuning) and
64 (pre-training), points sampled with grid_sample beside our own; 7.7 steps a video. Projected: 48,000 videos x 10
epochs (the authors: about 32 GPU hours on A100) at each row's speed. Matching is on the CPU and counts.
Without a GPU it says so and ends; --device cpu --small goes through every line in seconds, and proves that alone.
Writes benchmarks/results/gpu_procx.json, with --small nothing.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from gpu_nasva import memory_mib, wait
from plain_procx import plain
from procx_model import COUNTS, FORMS, WORDS, Trainer, with_form

from stepline.procx.settings import PROCX, AttentionSettings, CaptionerSettings, ModelSettings

RESULTS = Path(__file__).parent / "results" / "gpu_procx.json"
VIDEOS = 48_000 * 10  # seen in the paper's pre-training: the training split of Sieve & Swap, 10 epochs
WARM = 5  # steps before the clock starts; the first compiles
BATCHES = (8, 64)
SMALL = ModelSettings(
    features=16,
    rows=32,
    attention=AttentionSettings(width=32, heads=4),
    encoder_layers=1,
    decoder_layers=2,
    feed_forward=32,
    queries=12,
    captioner=CaptionerSettings(width=32, heads=4, text_layers=1, joint_layers=1, feed_forward=32, projection=16),
)


def trainer(settings: ModelSettings, videos: int, device: str, *, compiled: bool, small: bool) -> Trainer:
    """Return a network on a device, with a batch of so many videos."""
    torch.compiler.reset()  # else the second shape would be compiled for any
    made = Trainer(settings, device=device, words=100 if small else WORDS, counts=(COUNTS * videos)[:videos])
    if compiled:
        way = "inductor" if device == "cuda" else "eager"  # a CPU is to show that it runs, for which no C++ is compiled
        made.model.compile(backend=way, dynamic=False)
    return made


def measure(given: Trainer, videos: int, steps: int, device: str, *, bf16: bool, sampled: bool) -> dict[str, float]:
    """Return videos a second, peak memory (MiB) and the loss of training on one batch."""
    with plain(layers=False) if sampled else nullcontext():
        for _ in range(WARM):
            loss = given.step(bf16=bf16)
        wait(device)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        for _ in range(steps):
            loss = given.step(bf16=bf16)
        wait(device)
    seconds = (time.perf_counter() - began) / steps
    return {"videos_per_s": videos / seconds, "peak_mib": memory_mib(device), "loss": float(loss)}


def rows(device: str, steps: int, *, small: bool) -> Iterator[dict[str, Any]]:
    """Yield a row for each batch, attention, precision and way."""
    for videos, form, bf16, way in itertools.product(
        (2,) if small else BATCHES, FORMS, (True, False), ("plain", "compiled", "grid_sample")
    ):
        settings = with_form(SMALL if small else PROCX, form)
        made = trainer(settings, videos, device, compiled=way == "compiled", small=small)
        found = measure(made, videos, steps, device, bf16=bf16, sampled=way == "grid_sample")
        hours = VIDEOS / found["videos_per_s"] / 3600
        kind = {"batch": videos, "form": form, "bf16": bf16, "way": way}
        yield {**kind, **found, "hours_of_the_papers_pre_training": hours}


def show(row: dict[str, Any]) -> None:
    """Print one row."""
    kind = f"batch {row['batch']:2d} {row['form']:9s} {'bf16' if row['bf16'] else 'fp32'} {row['way']:11s}"
    speed = f"{row['videos_per_s']:8.1f} videos/s {row['peak_mib']:7.0f} MiB"
    hours = f"pre-training in {row['hours_of_the_papers_pre_training']:.1f} h, loss {row['loss']:.3f}"
    print(f"{kind} {speed}  {hours}", flush=True)


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
