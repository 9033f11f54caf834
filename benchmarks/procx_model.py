"""Measures a training step and inference of ProcX's whole network against the same network in its
plain form.

    python benchmarks/procx_model.py [--rounds N] [--sizes paper small pdvc] [--forms key-aware
    vanilla]

Batch 8, 256 rows of S3D's width, 62 steps with sentences of 5 to 13 words, a vocabulary of 10,000.
Timed: forward, all losses with their matching, backward, clipping, AdamW. Variants take turns in
one process at one thread: CPU seconds, minima and medians. In "grid_sample" points are sampled. In
"plain" too, and linear layers, feed-forward and dropout are PyTorch's own. The share of each part
is of one profiled step. Memory is the peak of a process of its own, above the idle one. Writes
benchmarks/results/procx_model.json. What it does not measure this time stays there.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from alternating import alternate, peak_rate
from media import peak_mib
from plain_procx import plain
from procx_parts import shares
from torch import nn

from stepline.procx.batch import StepBatch, StepSample, collate
from stepline.procx.losses import training_losses
from stepline.procx.model import ProcX
from stepline.procx.settings import (
    PDVC_LOSSES,
    PROCX_MODEL,
    AttentionForm,
    AttentionSettings,
    CaptionerSettings,
    LossSettings,
    ModelSettings,
)
from stepline.procx.settings import PDVC_MODEL as PDVC
from stepline.procx.vocabulary import HALF_BYTES, MARK_TOKENS, Vocabulary

RESULTS = Path(__file__).parent / "results" / "procx_model.json"
COUNTS = (8, 6, 9, 7, 8, 10, 5, 9)  # steps of the videos; YouCook2: 7.7
WORDS = 9_981  # with marks and half bytes 10,000 tokens
FORMS: tuple[AttentionForm, ...] = ("key-aware", "vanilla")
SMALL = ModelSettings(  # learns the simulated world in minutes
    attention=AttentionSettings(width=64, heads=4),
    encoder_layers=2,
    decoder_layers=2,
    feed_forward=128,
    queries=20,
    captioner=CaptionerSettings(
        width=64, heads=4, text_layers=1, joint_layers=1, feed_forward=128, projection=32
    ),
)
SIZES: dict[str, ModelSettings] = {"paper": PROCX_MODEL, "small": SMALL, "pdvc": PDVC}
OURS, SAMPLED, PLAIN = "stepline", "grid_sample", "plain"


def vocabulary(words: int = WORDS) -> Vocabulary:
    """Return words that mean nothing, one token each."""
    return Vocabulary((*MARK_TOKENS, *HALF_BYTES, *(f"w{number}" for number in range(words))))


def batch(
    settings: ModelSettings, words: Vocabulary, counts: tuple[int, ...] = COUNTS
) -> StepBatch:
    """Return a video for each count, its steps even in time."""
    chance = np.random.default_rng(0)
    known = words.tokens[len(MARK_TOKENS) + len(HALF_BYTES) :]

    def video(count: int) -> StepSample:
        values = chance.standard_normal((300, settings.features)).astype(np.float32)
        spans = tuple((300 * step / count, 300 * (step + 0.8) / count) for step in range(count))
        sentences = tuple(" ".join(chance.choice(known, chance.integers(5, 14))) for _ in spans)
        return StepSample("video", values, 300.0, spans, sentences)

    return collate([video(count) for count in counts], words, settings)


class Trainer:
    """A network with what one step does, and a batch."""

    def __init__(
        self,
        settings: ModelSettings,
        *,
        device: str = "cpu",
        words: int = WORDS,
        counts: tuple[int, ...] = COUNTS,
    ) -> None:
        torch.manual_seed(0)
        held = vocabulary(words)
        self.model = ProcX(settings, len(held)).to(device).train()
        self.losses = PDVC_LOSSES if settings.captioner.kind == "lstm" else LossSettings()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, weight_decay=1e-3, fused=True
        )
        self.batch = batch(settings, held, counts).to(device)

    def loss(self) -> torch.Tensor:
        """Return the loss of the batch."""
        parts = training_losses(self.model, self.batch, self.losses)
        return torch.stack([part.mean for part in parts]).sum()

    def step(self, *, bf16: bool = False) -> torch.Tensor:
        """Take one step and return its loss, which waits for the device only where it is read."""
        with torch.autocast(self.batch.videos.values.device.type, torch.bfloat16, enabled=bf16):
            loss = self.loss()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def propose(self) -> None:
        """Look at the batch without gradients, and write nothing."""
        self.model.eval()
        with torch.inference_mode():
            self.model(self.batch.videos)
        self.model.train()


WAYS: dict[str, Callable[[], Any]] = {
    OURS: nullcontext,
    SAMPLED: partial(plain, layers=False),
    PLAIN: plain,
}


def within(way: str, work: Callable[[], object]) -> None:
    """Do some work in one of the ways."""
    with WAYS[way]():
        work()


def with_form(settings: ModelSettings, form: AttentionForm) -> ModelSettings:
    """Return the settings with another attention."""
    return settings.model_copy(
        update={"attention": settings.attention.model_copy(update={"form": form})}
    )


def difference(trainer: Trainer) -> float:
    """Return how far the queries of the plain way are from ours at most, as a share of the largest,
    without dropout."""
    trainer.model.eval()
    with torch.no_grad():
        ours = trainer.model(trainer.batch.videos).queries
        with plain():
            theirs = trainer.model(trainer.batch.videos).queries
    trainer.model.train()
    return float((ours - theirs).abs().max() / theirs.abs().max())


def measure(size: str, form: AttentionForm, rounds: int) -> dict[str, Any]:
    """Return times, shares and memory of one network."""
    trainer = Trainer(with_form(SIZES[size], form))
    found: dict[str, Any] = {
        "rounds": rounds,
        "parameters": sum(weight.numel() for weight in trainer.model.parameters()),
        "query_difference": difference(trainer),
    }
    for kind, work in (("step", trainer.step), ("propose", trainer.propose)):
        sides = {way: partial(within, way, work) for way in WAYS}
        for side in sides.values():
            side()
        found[kind] = alternate(sides, rounds)
    found["shares"] = shares(trainer.model, trainer.step)
    del trainer
    found["memory_mib"] = {way: memory(way, size, form) for way in WAYS}
    return found


def memory(way: str, size: str, form: str) -> float:
    """Return the MiB of a training step at its peak, above network, optimizer and batch, in a
    process of its own."""
    command = [sys.executable, __file__, "--memory-of", way, size, form]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def report_memory(way: str, size: str, form: AttentionForm) -> None:
    """Print the MiB of a step. The process ends after it."""
    small, trainer = Trainer(with_form(SMALL, form)), Trainer(with_form(SIZES[size], form))
    within(way, small.step)  # what a first call loads
    idle = peak_mib()
    for _ in range(2):
        within(way, trainer.step)
    print(peak_mib() - idle)


def before() -> dict[str, Any]:
    """Return what was measured earlier."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def show(title: str, found: dict[str, Any]) -> None:
    """Print the tables of one network."""
    million = found["parameters"] / 1e6
    print(
        f"\n{title}: {million:.1f} M weights, queries differ by {found['query_difference']:.1e}",
        flush=True,
    )
    for kind in ("step", "propose"):
        for way, row in found[kind].items():
            pairs = [
                (row[f"cpu_{key}_s"], found[kind][OURS][f"cpu_{key}_s"])
                for key in ("min", "median")
            ]
            cells = " ".join(f"{value:8.3f}" for value, _ in pairs) + " ".join(
                f"{a / b:7.2f}x" for a, b in pairs
            )
            print(f"  {kind:9s}{way:12s}{cells}", flush=True)
    for way, mib in found["memory_mib"].items():
        print(f"  {'memory':9s}{way:12s}{mib:8.0f} MiB", flush=True)
    print(
        "  shares   " + ", ".join(f"{name} {share:.0%}" for name, share in found["shares"].items()),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="turns of every variant (default 3)"
    )
    parser.add_argument("--sizes", nargs="+", choices=tuple(SIZES), default=list(SIZES))
    parser.add_argument(
        "--forms", nargs="+", choices=FORMS, default=list(FORMS), help="PDVC: vanilla alone"
    )
    parser.add_argument(
        "--memory-of", nargs=3, metavar=("WAY", "SIZE", "FORM"), help=argparse.SUPPRESS
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.memory_of:
        report_memory(*given.memory_of)
        return
    results = before() | {"torch": torch.__version__, "peak_gflops": peak_rate()}
    for size in given.sizes:
        forms: tuple[AttentionForm, ...] = tuple(given.forms) if size != "pdvc" else ("vanilla",)
        for form in forms:
            results[f"{size}, {form}"] = measure(size, form, given.rounds)
            show(f"{size}, {form}", results[f"{size}, {form}"])
            RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
