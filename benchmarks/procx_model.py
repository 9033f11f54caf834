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
from alternating import alternate, cpu_cells, peak_rate
from media import peak_mib
from plain_procx import plain
from procx_parts import shares
from torch import nn

from stepline.models.procx.batch import StepBatch, StepSample, collate
from stepline.models.procx.losses import training_losses
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import (
    PDVC_LOSSES,
    PDVC_MODEL,
    PROCX_MODEL,
    AttentionForm,
    AttentionSettings,
    CaptionerSettings,
    LossSettings,
    ModelSettings,
)
from stepline.models.procx.vocabulary import HALF_BYTES, MARK_TOKENS, Vocabulary

RESULT_PATH = Path(__file__).parent / "results" / "procx_model.json"
STEP_COUNTS = (8, 6, 9, 7, 8, 10, 5, 9)  # of the videos; YouCook2: 7.7
WORD_COUNT = 9_981  # with marks and half bytes 10,000 tokens
ATTENTION_FORMS: tuple[AttentionForm, ...] = ("key-aware", "vanilla")
# learns the simulated world in minutes
SMALL_MODEL = ModelSettings(
    attention=AttentionSettings(width=64, heads=4),
    encoder_layers=2,
    decoder_layers=2,
    feed_forward=128,
    queries=20,
    captioner=CaptionerSettings(
        width=64, heads=4, text_layers=1, joint_layers=1, feed_forward=128, projection=32
    ),
)
MODEL_OF_SIZE: dict[str, ModelSettings] = {
    "paper": PROCX_MODEL,
    "small": SMALL_MODEL,
    "pdvc": PDVC_MODEL,
}
OUR_NAME = "stepline"
SAMPLED_NAME = "grid_sample"
PLAIN_NAME = "plain"
VIDEO_SECONDS = 300
Results = dict[str, Any]


def vocabulary(words: int = WORD_COUNT) -> Vocabulary:
    """Return words that mean nothing, one token each."""
    names = [f"w{number}" for number in range(words)]
    return Vocabulary((*MARK_TOKENS, *HALF_BYTES, *names))


def batch(
    settings: ModelSettings, words: Vocabulary, counts: tuple[int, ...] = STEP_COUNTS
) -> StepBatch:
    """Return a video for each count, its steps even in time."""
    rng = np.random.default_rng(0)
    first_word = len(MARK_TOKENS) + len(HALF_BYTES)
    tokens = words.tokens[first_word:]

    def video(count: int) -> StepSample:
        shape = (VIDEO_SECONDS, settings.features)
        values = rng.standard_normal(shape).astype(np.float32)
        spans = []
        sentences = []
        for step in range(count):
            start = VIDEO_SECONDS * step / count
            end = VIDEO_SECONDS * (step + 0.8) / count
            spans.append((start, end))
            length = rng.integers(5, 14)
            sentences.append(" ".join(rng.choice(tokens, length)))
        return StepSample("video", values, float(VIDEO_SECONDS), tuple(spans), tuple(sentences))

    return collate([video(count) for count in counts], words, settings)


class Trainer:
    """A network with what one step does, and a batch."""

    def __init__(
        self,
        settings: ModelSettings,
        *,
        device: str = "cpu",
        words: int = WORD_COUNT,
        counts: tuple[int, ...] = STEP_COUNTS,
    ) -> None:
        torch.manual_seed(0)
        tokens = vocabulary(words)
        self.model = ProcX(settings, len(tokens)).to(device).train()
        self.losses = PDVC_LOSSES if settings.captioner.kind == "lstm" else LossSettings()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, weight_decay=1e-3, fused=True
        )
        self.batch = batch(settings, tokens, counts).to(device)

    def loss(self) -> torch.Tensor:
        """Return the loss of the batch."""
        parts = training_losses(self.model, self.batch, self.losses)
        return torch.stack([part.mean for part in parts]).sum()

    def step(self, *, bf16: bool = False) -> torch.Tensor:
        """Take one step and return its loss, which waits for the device only where it is read."""
        device = self.batch.videos.values.device.type
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
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


WAY_CONTEXTS: dict[str, Callable[[], Any]] = {
    OUR_NAME: nullcontext,
    SAMPLED_NAME: partial(plain, layers=False),
    PLAIN_NAME: plain,
}


def within(way: str, work: Callable[[], object]) -> None:
    """Do some work in one of the ways."""
    with WAY_CONTEXTS[way]():
        work()


def with_form(settings: ModelSettings, form: AttentionForm) -> ModelSettings:
    """Return the settings with another attention."""
    attention = settings.attention.model_copy(update={"form": form})
    return settings.model_copy(update={"attention": attention})


def difference(trainer: Trainer) -> float:
    """Return how far the queries of the plain way are from ours at most, as a share of the largest,
    without dropout."""
    videos = trainer.batch.videos
    trainer.model.eval()
    with torch.no_grad():
        ours = trainer.model(videos).queries
        with plain():
            theirs = trainer.model(videos).queries
    trainer.model.train()
    distance = (ours - theirs).abs().max()
    return float(distance / theirs.abs().max())


def measure(size: str, form: AttentionForm, rounds: int) -> Results:
    """Return times, shares and memory of one network."""
    trainer = Trainer(with_form(MODEL_OF_SIZE[size], form))
    results: Results = {
        "rounds": rounds,
        "parameters": sum(weight.numel() for weight in trainer.model.parameters()),
        "query_difference": difference(trainer),
    }
    for kind, work in (("step", trainer.step), ("propose", trainer.propose)):
        sides = {way: partial(within, way, work) for way in WAY_CONTEXTS}
        # warm
        for side in sides.values():
            side()
        results[kind] = alternate(sides, rounds)
    results["shares"] = shares(trainer.model, trainer.step)
    del trainer
    results["memory_mib"] = {way: memory(way, size, form) for way in WAY_CONTEXTS}
    return results


def memory(way: str, size: str, form: str) -> float:
    """Return the MiB of a training step at its peak, above network, optimizer and batch, in a
    process of its own."""
    command = [sys.executable, __file__, "--memory-of", way, size, form]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(process.stdout)


def report_memory(way: str, size: str, form: AttentionForm) -> None:
    """Print the MiB of a step. The process ends after it."""
    small = Trainer(with_form(SMALL_MODEL, form))
    trainer = Trainer(with_form(MODEL_OF_SIZE[size], form))
    # what a first call loads
    within(way, small.step)
    idle = peak_mib()
    for _ in range(2):
        within(way, trainer.step)
    print(peak_mib() - idle)


def before() -> Results:
    """Return what was measured earlier."""
    if not RESULT_PATH.exists():
        return {}
    results: Results = json.loads(RESULT_PATH.read_text())
    return results


def show(title: str, results: Results) -> None:
    """Print the tables of one network."""
    million = results["parameters"] / 1e6
    distance = results["query_difference"]
    print(f"\n{title}: {million:.1f} M weights, queries differ by {distance:.1e}", flush=True)
    for kind in ("step", "propose"):
        ours = results[kind][OUR_NAME]
        for way, row in results[kind].items():
            cells = cpu_cells(row, ours, 3)
            print(f"  {kind:9s}{way:12s}{cells}", flush=True)
    for way, mib in results["memory_mib"].items():
        print(f"  {'memory':9s}{way:12s}{mib:8.0f} MiB", flush=True)
    share_texts = [f"{name} {share:.0%}" for name, share in results["shares"].items()]
    print("  shares   " + ", ".join(share_texts), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = list(MODEL_OF_SIZE)
    forms = list(ATTENTION_FORMS)
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="turns of every variant (default 3)"
    )
    parser.add_argument("--sizes", nargs="+", choices=sizes, default=sizes)
    parser.add_argument(
        "--forms", nargs="+", choices=forms, default=forms, help="PDVC: vanilla alone"
    )
    parser.add_argument(
        "--memory-of", nargs=3, metavar=("WAY", "SIZE", "FORM"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory_of:
        report_memory(*options.memory_of)
        return
    results = before() | {"torch": torch.__version__, "peak_gflops": peak_rate()}
    for size in options.sizes:
        for form in options.forms if size != "pdvc" else ("vanilla",):
            name = f"{size}, {form}"
            results[name] = measure(size, form, options.rounds)
            show(name, results[name])
            text = json.dumps(results, indent=2)
            RESULT_PATH.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
