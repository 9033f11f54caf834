"""Measures the grounding network against the same network from PyTorch's own layers.

    python benchmarks/nasva_speed.py [--only steps memory epoch loading] [--quick]

Released sizes (D 256, FFN 2048, 3 + 3 layers, batch 8) and the released loss on all sides. AdamW is
fused on our side, as stepline trains, and PyTorch's default on the references': 17 ms of a step.
Variants take turns in one process, minima and medians. Memory is the peak of a process of its own.
Three references (plain_transformer.py, with the loss as its formula reads): dropout as released,
attention dropout 0, equal function. One thread in CPU seconds, then two threads by the clock, which
means something on a quiet machine alone. An epoch of mixed lengths is shuffled on the references'
side and bucketed on ours. Writes benchmarks/results/nasva_speed.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # as the command line sets it

import torch
from alternating import alternate, peak_rate, timed
from media import peak_mib
from nasva_data import FEATURE_WIDTH, batch, mixed_videos, shuffled
from plain_transformer import EqualAligner, PlainAligner, plain_loss
from torch import Tensor, nn

from stepline.features import FeatureStore, FeatureWriter
from stepline.nasva.loss import grounding_loss
from stepline.nasva.model import Aligner
from stepline.nasva.settings import AlignerLossSettings, AlignerNetworkSettings
from stepline.training.batches import Batch, Sample, collate, length_buckets

RESULTS = Path(__file__).parent / "results" / "nasva_speed.json"
SHAPES = {"T 400, K 50": (8, 400, 50), "T 1200, K 100": (8, 1200, 100)}
ROUNDS = {"T 400, K 50": 5, "T 1200, K 100": 2}
OURS, HALF, DROPS = "stepline", "stepline, bf16", "stepline, attention dropout 0.1"
REFERENCES = ("as released", "attention dropout 0", "equal function")
RELEASE = AlignerLossSettings(form="release")
PARTS = ("steps", "memory", "epoch", "loading")
VIDEOS = 32  # of an epoch of mixed lengths


def build(name: str) -> nn.Module:
    """Return a network with fresh weights, the same for equal functions."""
    torch.manual_seed(0)
    released = AlignerNetworkSettings(attention_dropout=0.1)
    makers: dict[str, Callable[[], nn.Module]] = {
        OURS: lambda: Aligner(AlignerNetworkSettings()),
        HALF: lambda: Aligner(AlignerNetworkSettings()),
        DROPS: lambda: Aligner(released),
        "as released": lambda: PlainAligner(released),
        "attention dropout 0": lambda: PlainAligner(AlignerNetworkSettings()),
        "equal function": lambda: EqualAligner.of(Aligner(AlignerNetworkSettings())),
    }
    return makers[name]()


class Trainer:
    """A network with what one step of training or of inference does. Warm."""

    def __init__(self, name: str) -> None:
        self.model, self.ours, self.half = build(name), name.startswith(OURS), name == HALF
        weights = self.model.parameters()
        self.optimizer = torch.optim.AdamW(
            weights, lr=1e-4, weight_decay=5e-5, fused=self.ours or None
        )
        self.train(batch(2, 50, 9))
        self.infer(batch(2, 50, 9))

    def train(self, data: Batch) -> None:
        """Take one step: forward, loss, backward, clip, update."""
        self.model.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            loss = self._loss(data)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _loss(self, data: Batch) -> Tensor:
        aligned = self.model(data)
        return (
            grounding_loss(aligned, data, RELEASE).mean if self.ours else plain_loss(aligned, data)
        )

    def infer(self, data: Batch) -> None:
        """Score one batch."""
        self.model.eval()
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            self.model(data).scores  # noqa: B018 (computed on access)


def floating_operations(
    lengths: Sequence[tuple[int, int]], settings: AlignerNetworkSettings
) -> float:
    """Return the multiplications and additions of one forward pass over videos of (seconds, texts),
    no padding."""
    width, inner = settings.width, settings.feed_forward
    self_layer = 8 * width**2 + 4 * width * inner  # a row: four D x D projections, two D x F
    total = 0
    for seconds, texts in lengths:
        encode = settings.encoder_layers * seconds * (self_layer + 4 * seconds * width)
        cross = texts * (4 * width**2 + 4 * seconds * width) + seconds * 4 * width**2
        decode = settings.decoder_layers * (texts * (self_layer + 4 * texts * width) + cross)
        total += encode + decode + 2 * (seconds + texts) * width * settings.video_width
    return float(total)


def real_lengths(data: Batch) -> list[tuple[int, int]]:
    """Return the seconds and texts of each video of a batch."""
    counts = ((~pad).sum(dim=1).tolist() for pad in (data.video_pad, data.text_pad))
    return list(zip(*counts, strict=True))


def steps(shape: tuple[int, int, int], names: Sequence[str], rounds: int) -> dict[str, Any]:
    """Return times of training steps and of inference, and ours as a share of the machine's matmul
    peak."""
    data = batch(*shape)
    work = {name: Trainer(name) for name in names}
    before = peak_rate()
    train = alternate({name: partial(work[name].train, data) for name in names}, rounds)
    infer = alternate({name: partial(work[name].infer, data) for name in names}, rounds + 1)
    peak = max(before, peak_rate())
    operations = floating_operations(real_lengths(data), AlignerNetworkSettings()) / 1e9
    kind = "cpu_min_s" if torch.get_num_threads() == 1 else "wall_min_s"
    return {
        "train": train,
        "infer": infer,
        "peak_gflops": peak,
        "train_share_of_peak": 3 * operations / train[OURS][kind] / peak,
        "infer_share_of_peak": operations / infer[OURS][kind] / peak,
    }


def epoch(
    trainer: Trainer, videos: Sequence[Sample], batches: Sequence[Sequence[int]], *, train: bool
) -> None:
    """Go over all videos once."""
    for chosen in batches:
        data = collate([videos[index] for index in chosen])
        trainer.train(data) if train else trainer.infer(data)


def epochs(rounds: int) -> dict[str, Any]:
    """Return the times of an epoch of mixed lengths: ours bucketed, ours shuffled, the references
    shuffled."""
    videos = mixed_videos(VIDEOS)
    mixed = list(shuffled(VIDEOS))
    sides = {
        OURS: (
            OURS,
            list(length_buckets([len(video.video) for video in videos], 8, seed=0, epoch=0)),
        )
    }
    sides |= {f"{OURS}, shuffled": (OURS, mixed)} | {name: (name, mixed) for name in REFERENCES[:2]}
    trainers = {name: Trainer(who) for name, (who, _) in sides.items()}
    found: dict[str, Any] = {"videos": VIDEOS}
    for kind in ("train", "infer"):
        work = {
            name: partial(epoch, trainers[name], videos, batches, train=kind == "train")
            for name, (_, batches) in sides.items()
        }
        found[kind] = alternate(work, rounds)
    return found


def loading(rounds: int) -> dict[str, float]:
    """Return CPU seconds of reading an epoch of mixed lengths from a feature store and of padding
    it to batches."""
    videos = mixed_videos(VIDEOS)
    batches = list(length_buckets([len(video.video) for video in videos], 8, seed=0, epoch=0))
    with tempfile.TemporaryDirectory() as folder:
        with FeatureWriter(Path(folder) / "store") as writer:
            for video in videos:
                writer.add(f"{video.id} video", video.video, rate=1.0, backbone="random")
                writer.add(f"{video.id} text", video.text, rate=1.0, backbone="random")
        store = FeatureStore(Path(folder) / "store")

        def read(video: Sample) -> Sample:
            rows, texts = (store.matrix(f"{video.id} {part}") for part in ("video", "text"))
            return Sample(video.id, rows, texts, video.positive, video.ordered)

        def load() -> None:
            for chosen in batches:
                collate([read(videos[index]) for index in chosen])

        load()
        rows = sum(len(video.video) + len(video.text) for video in videos)
        return {
            "cpu_min_s": min(timed(load)[1] for _ in range(rounds)),
            "mib_in_float32": rows * FEATURE_WIDTH * 4 / 2**20,
        }


def memory(name: str, shape: str) -> float:
    """Return the MiB that two training steps need at their peak, above the idle process, in a
    process of its own."""
    command = [sys.executable, __file__, "--memory-of", name, shape]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def report_memory(name: str, shape: str) -> None:
    """Print the MiB of a training step. The process ends after it."""
    trainer, data = Trainer(name), batch(*SHAPES[shape])
    idle = peak_mib()
    trainer.train(data)
    print(peak_mib() - idle)


def difference(name: str) -> float:
    """Return how far the scores of a variant are from ours at most."""
    data = batch(2, 50, 9)
    real = ~(data.text_pad[:, :, None] | data.video_pad[:, None])
    with torch.inference_mode():
        ours = build(OURS).eval()(data).scores
        with torch.autocast("cpu", torch.bfloat16, enabled=name == HALF):
            theirs = build(name).eval()(data).scores
    return float((ours - theirs)[real].abs().max())


def show(title: str, times: dict[str, dict[str, float]], *, clock: str) -> None:
    """Print a table, each with its ratio to ours, by minima and by medians."""
    print(f"\n{title}, {clock} seconds: minimum, median; times ours by both", flush=True)
    for name, row in times.items():
        pairs = [
            (row[f"{clock}_{kind}_s"], times[OURS][f"{clock}_{kind}_s"])
            for kind in ("min", "median")
        ]
        cells = " ".join(f"{value:8.3f}" for value, _ in pairs) + " ".join(
            f"{a / b:7.2f}x" for a, b in pairs
        )
        print(f"  {name:33s}{cells}", flush=True)


def measure_steps(quick: bool) -> dict[str, Any]:
    """Measure and print steps at one thread, then at two."""
    found = {}
    for threads, clock in ((1, "cpu"), (2, "wall")):
        torch.set_num_threads(threads)
        for shape, sizes in SHAPES.items():
            many = threads == 1 and shape == "T 400, K 50"
            names = (OURS, HALF, *REFERENCES, DROPS) if many else (OURS, HALF, *REFERENCES)
            rounds = 1 if quick else ROUNDS[shape]
            if threads == 1 or not quick:
                title = f"{shape}, batch {sizes[0]}, {threads} threads"
                one = found[f"{shape}, {threads} threads"] = steps(sizes, names, rounds)
                show(f"training step, {title}", one["train"], clock=clock)
                show(f"inference, {title}", one["infer"], clock=clock)
                shares = one["train_share_of_peak"], one["infer_share_of_peak"]
                print(
                    f"  of {one['peak_gflops']:.0f} GFLOP/s: training {shares[0]:.0%}, inference {shares[1]:.0%}"
                )
    torch.set_num_threads(1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure; the rest stays"
    )
    parser.add_argument("--quick", action="store_true", help="one round, one thread")
    parser.add_argument(
        "--memory-of", nargs=2, metavar=("VARIANT", "SHAPE"), help=argparse.SUPPRESS
    )
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors")
    torch.set_num_threads(1)
    if given.memory_of:
        report_memory(*given.memory_of)
        return
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    differences = {name: difference(name) for name in ("equal function", HALF)}
    results |= {"torch": torch.__version__, "differences": differences}
    print(f"scores differ from ours by at most {differences}", flush=True)
    if "steps" in given.only:
        results["steps"] = measure_steps(given.quick)
    if "memory" in given.only:
        results["memory_mib"] = {
            shape: {name: memory(name, shape) for name in (OURS, *REFERENCES)} for shape in SHAPES
        }
        print(
            "\npeak memory of a training step (MiB)",
            json.dumps(results["memory_mib"], indent=2),
            flush=True,
        )
    if "epoch" in given.only:
        results["epoch"] = epochs(1 if given.quick else 2)
        show("training epoch of mixed lengths, 1 thread", results["epoch"]["train"], clock="cpu")
        show("inference over mixed lengths, 1 thread", results["epoch"]["infer"], clock="cpu")
    if "loading" in given.only:
        loaded = results["loading"] = loading(3)
        print(
            f"\nloading that epoch: {loaded['cpu_min_s']:.2f} CPU s for {loaded['mib_in_float32']:.0f} MiB"
        )
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
