"""Measures deformable attention over time against sampling its points with grid_sample
(plain_deformable.py).

    python benchmarks/deformable_attention.py [--rounds N]

Batch 8, 8 heads of width 64, 480 positions in 4 levels (256, 128, 64, 32), 4 points a level, zero
padding. 480 queries as in the encoder, 100 as in the decoder. The attention alone, then the layer
with its projections. Forward and backward, then without gradients. Variants take turns in one
process at one thread, CPU seconds, minima and medians. Memory is the peak of a process of its own.
Writes benchmarks/results/deformable_attention.json.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from alternating import alternate, peak_rate
from media import peak_mib
from plain_deformable import deformable, key_aware, layer
from torch import Tensor

from stepline.procx.deformable_attention import (
    DeformableAttention,
    deformable_attention,
    key_aware_attention,
)
from stepline.procx.settings import AttentionForm, AttentionSettings

RESULTS = Path(__file__).parent / "results" / "deformable_attention.json"
BATCH, HEADS, WIDTH, POINTS, LENGTHS = 8, 8, 64, 4, (256, 128, 64, 32)
QUERIES = {"encoder": 480, "decoder": 100}
FORMS: tuple[AttentionForm, ...] = ("vanilla", "key-aware")
OURS, PLAIN, TOGETHER = "stepline", "grid_sample", "grid_sample, keys and values together"
Way = Callable[..., Tensor]


def ways(form: str) -> dict[str, Way]:
    """Return what each variant calls."""
    if form == "vanilla":
        return {OURS: deformable_attention, PLAIN: deformable}
    return {
        OURS: key_aware_attention,
        PLAIN: key_aware,
        TOGETHER: partial(key_aware, together=True),
    }


def inputs(form: str, queries: int) -> tuple[Tensor, ...]:
    """Return what a form takes before the lengths: points near a reference a query, some outside
    the video."""
    chance = torch.Generator().manual_seed(0)
    shape = (BATCH, queries, HEADS, len(LENGTHS), POINTS)
    references = torch.rand(BATCH, queries, 1, 1, 1, generator=chance)
    locations = references + 0.1 * torch.randn(shape, generator=chance)
    table = (BATCH, sum(LENGTHS), HEADS, WIDTH)
    query, key, value = (
        torch.randn(size, generator=chance) for size in ((*shape[:3], WIDTH), table, table)
    )
    weights = torch.randn(shape, generator=chance).flatten(3).softmax(-1).view(shape)
    given = (value, locations, weights) if form == "vanilla" else (query, key, value, locations)
    return tuple(tensor.requires_grad_() for tensor in given)


def train(way: Way, given: tuple[Tensor, ...], back: Tensor) -> tuple[Tensor, ...]:
    """Return the output and the gradients of all inputs."""
    mixed = way(*given, LENGTHS)
    return mixed, *torch.autograd.grad(mixed, given, back)


def infer(way: Way, given: tuple[Tensor, ...]) -> Tensor:
    """Return the output, without gradients."""
    with torch.inference_mode():
        return way(*given, LENGTHS)


def layers(form: AttentionForm, queries: int) -> dict[str, Callable[[], object]]:
    """Return a training pass of the layer with its projections, ours and sampled."""
    torch.manual_seed(0)
    attend = DeformableAttention(
        AttentionSettings(width=HEADS * WIDTH, heads=HEADS, points=POINTS, form=form)
    )
    memory = torch.randn(BATCH, sum(LENGTHS), HEADS * WIDTH, requires_grad=True)
    query = torch.randn(BATCH, queries, HEADS * WIDTH, requires_grad=True)
    references = torch.rand(BATCH, queries, 1, 1).expand(-1, -1, len(LENGTHS), -1)
    wanted = (query, memory, *attend.parameters())

    def pass_(way: Way) -> None:
        mixed = way(query, references, memory, LENGTHS)
        torch.autograd.grad(mixed, wanted, torch.ones_like(mixed))

    return {OURS: partial(pass_, attend), PLAIN: partial(pass_, partial(layer, attend))}


def differences(form: str, queries: int) -> dict[str, float]:
    """Return how far output and gradients are from the sampled ones at most, as a share of the
    largest of each."""
    given = inputs(form, queries)
    back = torch.randn(BATCH, queries, HEADS, WIDTH, generator=torch.Generator().manual_seed(1))
    names = (
        ("value", "locations", "weights")
        if form == "vanilla"
        else ("query", "key", "value", "locations")
    )
    ours, theirs = (train(ways(form)[name], given, back) for name in (OURS, PLAIN))
    return {
        name: float((one - other).detach().abs().max() / other.detach().abs().max())
        for name, one, other in zip(("output", *names), ours, theirs, strict=True)
    }


def measure(form: AttentionForm, queries: int, rounds: int) -> dict[str, Any]:
    """Return differences, times and memory of one form."""
    given, back = inputs(form, queries), torch.ones(BATCH, queries, HEADS, WIDTH)
    work = {
        "train": {name: partial(train, way, given, back) for name, way in ways(form).items()},
        "infer": {name: partial(infer, way, given) for name, way in ways(form).items()},
        "layer_train": layers(form, queries),
    }
    found: dict[str, Any] = {"differences": differences(form, queries)}
    for kind, sides in work.items():
        for side in sides.values():
            side()
        found[kind] = alternate(sides, rounds)
    found["memory_mib"] = {name: memory(name, form, queries) for name in ways(form)}
    return found


def memory(name: str, form: str, queries: int) -> float:
    """Return the MiB that forward and backward need at their peak, above the idle process, in a
    process of its own."""
    command = [sys.executable, __file__, "--memory-of", name, form, str(queries)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def report_memory(name: str, form: str, queries: int) -> None:
    """Print the MiB of forward and backward. The process ends after it."""
    given, back = inputs(form, queries), torch.ones(BATCH, queries, HEADS, WIDTH)
    small = (
        torch.ones(1, 1, 1, 1, dtype=torch.float32, requires_grad=True),
        torch.ones(1, 1, 1, 1, 1),
    )
    deformable(small[0], small[1], small[1], (1,)).backward()  # what a first call loads
    idle = peak_mib()
    for _ in range(2):
        train(ways(form)[name], given, back)
    print(peak_mib() - idle)


def show(title: str, found: dict[str, Any]) -> None:
    """Print the tables of one form."""
    worst = max(found["differences"].values())
    print(
        f"\n{title}: largest difference, as a share of the largest number, {worst:.1e}", flush=True
    )
    for kind in ("train", "infer", "layer_train"):
        for name, row in found[kind].items():
            pairs = [
                (row[f"cpu_{key}_s"], found[kind][OURS][f"cpu_{key}_s"])
                for key in ("min", "median")
            ]
            cells = " ".join(f"{value:8.4f}" for value, _ in pairs) + " ".join(
                f"{a / b:7.2f}x" for a, b in pairs
            )
            print(f"  {kind:12s}{name:40s}{cells}", flush=True)
    for name, size in found["memory_mib"].items():
        print(f"  {'memory':12s}{name:40s}{size:8.0f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="turns of every variant (default 5)"
    )
    parser.add_argument(
        "--memory-of", nargs=3, metavar=("VARIANT", "FORM", "QUERIES"), help=argparse.SUPPRESS
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.memory_of:
        name, form, queries = given.memory_of
        report_memory(name, form, int(queries))
        return
    results: dict[str, Any] = {
        "torch": torch.__version__,
        "rounds": given.rounds,
        "peak_gflops": peak_rate(),
    }
    for part, queries in QUERIES.items():
        for form in FORMS:
            results[f"{form}, {part}"] = measure(form, queries, given.rounds)
            show(f"{form}, {part} ({queries} queries)", results[f"{form}, {part}"])
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
