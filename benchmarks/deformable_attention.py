"""Measures deformable attention over time against sampling its points with grid_sample
(plain_deformable.py).

    python benchmarks/deformable_attention.py [--rounds N]

Batch 8, 8 heads of width 64, 480 positions in 4 levels (256, 128, 64, 32), 4 points per level,
zero padding. 480 queries as in the encoder, 100 as in the decoder. The attention alone, then the
layer with its projections. Forward and backward, then without gradients. Variants take turns in one
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
from alternating import alternate, cpu_cells, peak_rate
from media import peak_mib
from plain_deformable import deformable, key_aware, layer
from torch import Tensor

from stepline.models.procx.deformable_attention import (
    DeformableAttention,
    deformable_attention,
    key_aware_attention,
)
from stepline.models.procx.settings import AttentionForm, AttentionSettings

RESULT_PATH = Path(__file__).parent / "results" / "deformable_attention.json"
BATCH_SIZE = 8
HEAD_COUNT = 8
HEAD_WIDTH = 64
POINT_COUNT = 4  # per level
LEVEL_LENGTHS = (256, 128, 64, 32)
QUERY_COUNTS = {"encoder": 480, "decoder": 100}
ATTENTION_FORMS: tuple[AttentionForm, ...] = ("vanilla", "key-aware")
OUR_VARIANT = "stepline"
PLAIN_VARIANT = "grid_sample"
JOINT_VARIANT = "grid_sample, keys and values together"
Variant = Callable[..., Tensor]


def variants(form: str) -> dict[str, Variant]:
    """Return what each variant calls."""
    if form == "vanilla":
        return {OUR_VARIANT: deformable_attention, PLAIN_VARIANT: deformable}
    return {
        OUR_VARIANT: key_aware_attention,
        PLAIN_VARIANT: key_aware,
        JOINT_VARIANT: partial(key_aware, together=True),
    }


def inputs(form: str, queries: int) -> tuple[Tensor, ...]:
    """Return what a form takes before the lengths: points near one reference per query, some
    outside the video."""
    generator = torch.Generator().manual_seed(0)
    shape = (BATCH_SIZE, queries, HEAD_COUNT, len(LEVEL_LENGTHS), POINT_COUNT)
    references = torch.rand(BATCH_SIZE, queries, 1, 1, 1, generator=generator)
    locations = references + 0.1 * torch.randn(shape, generator=generator)
    table = (BATCH_SIZE, sum(LEVEL_LENGTHS), HEAD_COUNT, HEAD_WIDTH)
    query = torch.randn((*shape[:3], HEAD_WIDTH), generator=generator)
    key = torch.randn(table, generator=generator)
    value = torch.randn(table, generator=generator)
    logits = torch.randn(shape, generator=generator)
    weights = logits.flatten(3).softmax(-1).view(shape)
    tensors = (query, key, value, locations)
    if form == "vanilla":
        tensors = (value, locations, weights)
    return tuple(tensor.requires_grad_() for tensor in tensors)


def train(
    variant: Variant, tensors: tuple[Tensor, ...], output_gradient: Tensor
) -> tuple[Tensor, ...]:
    """Return the output and the gradients of all inputs."""
    output = variant(*tensors, LEVEL_LENGTHS)
    return output, *torch.autograd.grad(output, tensors, output_gradient)


def infer(variant: Variant, tensors: tuple[Tensor, ...]) -> Tensor:
    """Return the output, without gradients."""
    with torch.inference_mode():
        return variant(*tensors, LEVEL_LENGTHS)


def layers(form: AttentionForm, queries: int) -> dict[str, Callable[[], object]]:
    """Return a training pass of the layer with its projections, ours and sampled."""
    torch.manual_seed(0)
    width = HEAD_COUNT * HEAD_WIDTH
    settings = AttentionSettings(width=width, heads=HEAD_COUNT, points=POINT_COUNT, form=form)
    attend = DeformableAttention(settings)
    memory = torch.randn(BATCH_SIZE, sum(LEVEL_LENGTHS), width, requires_grad=True)
    query = torch.randn(BATCH_SIZE, queries, width, requires_grad=True)
    references = torch.rand(BATCH_SIZE, queries, 1, 1).expand(-1, -1, len(LEVEL_LENGTHS), -1)
    inputs_of_gradients = (query, memory, *attend.parameters())

    def training_pass(variant: Variant) -> None:
        output = variant(query, references, memory, LEVEL_LENGTHS)
        torch.autograd.grad(output, inputs_of_gradients, torch.ones_like(output))

    sampled = partial(layer, attend)
    return {
        OUR_VARIANT: partial(training_pass, attend),
        PLAIN_VARIANT: partial(training_pass, sampled),
    }


def differences(form: str, queries: int) -> dict[str, float]:
    """Return how far output and gradients are from the sampled ones at most, as a share of the
    largest of each."""
    tensors = inputs(form, queries)
    generator = torch.Generator().manual_seed(1)
    shape = (BATCH_SIZE, queries, HEAD_COUNT, HEAD_WIDTH)
    output_gradient = torch.randn(shape, generator=generator)
    names = ["output", "query", "key", "value", "locations"]
    if form == "vanilla":
        names = ["output", "value", "locations", "weights"]
    ours = train(variants(form)[OUR_VARIANT], tensors, output_gradient)
    plain = train(variants(form)[PLAIN_VARIANT], tensors, output_gradient)
    shares = {}
    for name, own, sampled in zip(names, ours, plain, strict=True):
        difference = (own - sampled).detach().abs().max()
        shares[name] = float(difference / sampled.detach().abs().max())
    return shares


def measure(form: AttentionForm, queries: int, rounds: int) -> dict[str, Any]:
    """Return differences, times and memory of one form."""
    tensors = inputs(form, queries)
    output_gradient = torch.ones(BATCH_SIZE, queries, HEAD_COUNT, HEAD_WIDTH)
    train_calls = {}
    infer_calls = {}
    for name, variant in variants(form).items():
        train_calls[name] = partial(train, variant, tensors, output_gradient)
        infer_calls[name] = partial(infer, variant, tensors)
    work = {"train": train_calls, "infer": infer_calls, "layer_train": layers(form, queries)}
    result: dict[str, Any] = {"differences": differences(form, queries)}
    for kind, calls in work.items():
        for call in calls.values():
            call()
        result[kind] = alternate(calls, rounds)
    result["memory_mib"] = {name: memory(name, form, queries) for name in variants(form)}
    return result


def memory(name: str, form: str, queries: int) -> float:
    """Return the MiB that forward and backward need at their peak, above the idle process, in a
    process of its own."""
    command = [sys.executable, __file__, "--memory-of", name, form, str(queries)]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(process.stdout)


def report_memory(name: str, form: str, queries: int) -> None:
    """Print the MiB of forward and backward. The process ends after it."""
    tensors = inputs(form, queries)
    output_gradient = torch.ones(BATCH_SIZE, queries, HEAD_COUNT, HEAD_WIDTH)
    # What a first call loads does not count.
    value = torch.ones(1, 1, 1, 1, dtype=torch.float32, requires_grad=True)
    locations = torch.ones(1, 1, 1, 1, 1)
    deformable(value, locations, locations, (1,)).backward()
    idle = peak_mib()
    for _ in range(2):
        train(variants(form)[name], tensors, output_gradient)
    print(peak_mib() - idle)


def show(title: str, result: dict[str, Any]) -> None:
    """Print the tables of one form."""
    worst = max(result["differences"].values())
    message = f"largest difference, as a share of the largest number, {worst:.1e}"
    print(f"\n{title}: {message}", flush=True)
    for kind in ("train", "infer", "layer_train"):
        ours = result[kind][OUR_VARIANT]
        for name, row in result[kind].items():
            cells = cpu_cells(row, ours, 4)
            print(f"  {kind:12s}{name:40s}{cells}", flush=True)
    for name, size in result["memory_mib"].items():
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
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory_of:
        name, form, queries = options.memory_of
        report_memory(name, form, int(queries))
        return
    results: dict[str, Any] = {
        "torch": torch.__version__,
        "rounds": options.rounds,
        "peak_gflops": peak_rate(),
    }
    for part, queries in QUERY_COUNTS.items():
        for form in ATTENTION_FORMS:
            result = measure(form, queries, options.rounds)
            results[f"{form}, {part}"] = result
            show(f"{form}, {part} ({queries} queries)", result)
    RESULT_PATH.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
